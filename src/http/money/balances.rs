//! `GET /balances`.

use std::collections::HashMap;

use axum::extract::State;
use payferry_domain::{Address, Amount, Chain, Token};
use payferry_entities::OperationStatus::{Failed, Mined, Queued, Submitted};
use payferry_entities::{balances, operations};
use payferry_evm::wallet::checksummed;
use payferry_httpkit::{Answer, ApiError, Caller, Read};
use sea_orm::sea_query::Expr;
use sea_orm::{ColumnTrait, EntityTrait, QueryFilter, QuerySelect};
use serde::Serialize;
use utoipa::ToSchema;

use crate::http::state::AppState;

record! {
    fn of(
        chain: Chain,
        token: Token,
        address: Address,
        row: Option<&balances::Model>,
        coming: i64
    ) {
        let text = |units: i64| Amount(units).to_string();
    }

    /// The account's balance in one token on one chain.
    #[derive(Debug)]
    pub struct BalanceRecord {
        chain: &'static str = chain.as_str(),
        currency: &'static str = token.as_str(),
        token_address: String = checksummed(address),
        /// Available to pay out, withdraw or refund now. It is negative only after a reorg orphaned a settlement.
        #[schema(example = "990.00")]
        available: String = text(row.map_or(0, |row| row.available)),
        /// Expected from settlements in progress.
        pending: String = text(coming),
        /// Reserved by payouts, withdrawals and refunds in progress.
        reserved: String = text(row.map_or(0, |row| row.reserved)),
    }
}

/// Every balance.
#[derive(Serialize, ToSchema)]
pub struct BalanceList {
    message: &'static str,
    /// One for each enabled token of each running chain.
    balances: Vec<BalanceRecord>,
}

/// Read the balances
#[utoipa::path(
    get, path = "/balances", tag = "Money", operation_id = "listBalances",
    responses((status = 200, description = "Every balance.", body = BalanceList)),
)]
pub async fn list(State(app): State<AppState>, caller: Caller<Read>) -> Result<Answer, ApiError> {
    use operations::Column;

    let psp_id = caller.psp_id.to_string();
    let reader = app.database().reader();
    let held: HashMap<(String, String), balances::Model> = balances::Entity::find()
        .filter(balances::Column::PspId.eq(psp_id.as_str()))
        .all(reader)
        .await?
        .into_iter()
        .map(|row| ((row.chain.clone(), row.token_address.clone()), row))
        .collect();
    let coming: Vec<(String, String, Option<i64>)> = operations::Entity::find()
        .select_only()
        .columns([Column::Chain, Column::TokenAddress])
        .expr(Expr::cust("CAST(SUM(psp_amount) AS BIGINT)"))
        .filter(Column::Chain.is_in(Chain::ALL.iter().map(|chain| chain.as_str())))
        .filter(Column::Status.is_in([Queued, Submitted, Mined, Failed]))
        .filter(Column::Kind.eq("settle"))
        .filter(Column::PspId.eq(psp_id.as_str()))
        .group_by(Column::Chain)
        .group_by(Column::TokenAddress)
        .into_tuple()
        .all(reader)
        .await?;
    let coming: HashMap<(String, String), i64> =
        coming.into_iter().map(|(chain, token, sum)| ((chain, token), sum.unwrap_or_default())).collect();
    let mut balances = Vec::new();
    for spec in app.system.chains().running() {
        for (token, address) in Token::ALL.into_iter().filter_map(|token| Some((token, spec.token_address(token)?))) {
            let key = (spec.chain.as_str().to_owned(), address.to_string());
            let coming = coming.get(&key).copied().unwrap_or_default();
            balances.push(BalanceRecord::of(spec.chain, token, address, held.get(&key), coming));
        }
    }
    Answer::ok(&BalanceList { message: "Balances", balances })
}
