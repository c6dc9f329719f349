//! `GET /balances`.

use std::collections::HashMap;

use axum::extract::State;
use payferry_domain::{Address, Amount, Chain, Token};
use payferry_entities::{balances, operations};
use payferry_evm::wallet::checksummed;
use payferry_httpkit::{Answer, ApiError, Caller, Read};
use sea_orm::sea_query::Expr;
use sea_orm::{ColumnTrait, EntityTrait, QueryFilter, QuerySelect};
use serde::Serialize;
use utoipa::ToSchema;

use crate::http::state::AppState;

/// The account's balance in one token on one chain.
#[derive(Debug, Serialize, ToSchema)]
pub struct BalanceRecord {
    chain: &'static str,
    currency: &'static str,
    token_address: String,
    /// Available to pay out, withdraw or refund now. It is negative only after a reorg orphaned a settlement.
    #[schema(example = "990.00")]
    available: String,
    /// Expected from settlements in progress.
    pending: String,
    /// Reserved by payouts, withdrawals and refunds in progress.
    reserved: String,
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
        .filter(Column::Status.is_in(["queued", "submitted", "mined", "failed"]))
        .filter(Column::Kind.eq("settle"))
        .filter(Column::PspId.eq(psp_id.as_str()))
        .group_by(Column::Chain)
        .group_by(Column::TokenAddress)
        .into_tuple()
        .all(reader)
        .await?;
    let coming: HashMap<(String, String), i64> =
        coming.into_iter().map(|(chain, token, sum)| ((chain, token), sum.unwrap_or_default())).collect();
    let text = |units: i64| Amount(units).to_string();
    let record = |chain: Chain, token: Token, address: Address| {
        let key = (chain.as_str().to_owned(), address.to_string());
        let row = held.get(&key);
        BalanceRecord {
            chain: chain.as_str(),
            currency: token.as_str(),
            token_address: checksummed(address),
            available: text(row.map_or(0, |row| row.available)),
            pending: text(coming.get(&key).copied().unwrap_or_default()),
            reserved: text(row.map_or(0, |row| row.reserved)),
        }
    };
    let mut balances = Vec::new();
    for spec in app.system.chains().running() {
        for token in Token::ALL {
            if let Some(address) = spec.token_address(token) {
                balances.push(record(spec.chain, token, address));
            }
        }
    }
    Answer::ok(&BalanceList { message: "Balances", balances })
}
