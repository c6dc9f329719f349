//! `/ops/search`: finds everything by an id, a hash, an address, a reference or a name.
//!
//! Each look-up uses an index, except the sender of a transfer: the newest [`TRANSFERS_SCANNED_MAX`] transfers of each chain are
//! read. An index of senders would write another page for each transfer.

mod page;

use payferry_actors::System;
use payferry_domain::{
    Address, Chain, CustomerId, DeliveryId, EventId, Hash32, MerchantId, OperationId, PaymentId, PayoutId, PspId,
    RefundId, TransferId, WithdrawalId,
};
use payferry_httpkit::openapi::UnreadableQuery;
use payferry_httpkit::{Answer, ApiError, QueryFields, query, rule};
use sea_orm::{DbErr, FromQueryResult, Value};
use serde::Serialize;
use utoipa::ToSchema;

use crate::Operator;
use crate::page::path;
use crate::query::{by, rows, soon};

pub(crate) use page::show;

/// Maximum length of a search.
const SEARCH_CHARS_MAX: usize = 200;
/// Maximum number of results of one kind.
const HITS_MAX: usize = 50;
/// Transfers of each chain, the newest, whose sender is compared.
pub(crate) const TRANSFERS_SCANNED_MAX: u64 = 200_000;
/// Characters of a part of a name.
const NAME_CHARS_MIN: usize = 2;
/// Characters of a ULID.
const ULID_CHARS: usize = 26;

/// A result.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, ToSchema)]
pub struct Hit {
    /// `payment`, `payout`, `withdrawal`, `psp`, `merchant`, `customer`, `refund`, `operation`, `webhook` or `customers`.
    pub kind: &'static str,
    /// Its id.
    pub id: String,
    /// Path of its page.
    pub page: String,
    /// The property that matches.
    pub because: String,
}

/// Results of a search.
#[derive(Serialize, ToSchema)]
pub struct Hits {
    /// At most 50 of each kind.
    hits: Vec<Hit>,
}

query! {
    /// The search.
    pub struct SearchQuery {
        /// An id (also a ULID without its prefix), a transaction hash, a wallet or sender, a reference, or a name.
        q: String = rule::short::<SEARCH_CHARS_MAX>(),
    }
}

/// Search for anything
///
/// By id, transaction hash, wallet, sender, reference, PSP, merchant, customer, operation or webhook.
#[utoipa::path(
    get, path = "/ops/search", tag = "Service", operation_id = "search", params(SearchQuery),
    responses((status = 200, description = "The results.", body = Hits), UnreadableQuery),
)]
pub(crate) async fn data(operator: Operator, mut query: QueryFields) -> Result<Answer, ApiError> {
    let SearchQuery { q } = SearchQuery::read(&mut query);
    query.finish()?;
    Answer::ok(&Hits { hits: by(soon(), search(&operator.system, q.as_deref().unwrap_or_default())).await? })
}

#[derive(FromQueryResult)]
struct Found {
    id: String,
    because: String,
}

/// Searches, the most exact results first.
async fn search(system: &System, text: &str) -> Result<Vec<Hit>, DbErr> {
    let text = text.trim();
    let mut search = Search { system, hits: Vec::new() };
    if text.is_empty() {
        return Ok(search.hits);
    }
    if text.len() == ULID_CHARS && text.bytes().all(|byte| byte.is_ascii_alphanumeric()) {
        let ulid = text.to_ascii_uppercase();
        for prefix in PREFIXES {
            search.id(&format!("{prefix}{ulid}")).await?;
        }
    } else if PREFIXES.iter().any(|prefix| text.starts_with(prefix)) {
        search.id(text).await?;
    } else if let Ok(hash) = text.parse::<Hash32>() {
        search.transaction(&hash.to_string()).await?;
    } else if let Ok(address) = text.parse::<Address>() {
        search.address(&address.to_string()).await?;
    }
    search.text(text).await?;
    Ok(search.hits)
}

/// Prefixes of the ids that are found.
const PREFIXES: [&str; 11] = [
    PaymentId::PREFIX,
    TransferId::PREFIX,
    PayoutId::PREFIX,
    WithdrawalId::PREFIX,
    PspId::PREFIX,
    MerchantId::PREFIX,
    CustomerId::PREFIX,
    RefundId::PREFIX,
    OperationId::PREFIX,
    EventId::PREFIX,
    DeliveryId::PREFIX,
];

struct Search<'a> {
    system: &'a System,
    hits: Vec<Hit>,
}

impl Search<'_> {
    fn add(&mut self, kind: &'static str, id: String, page: String, because: String) {
        // A payment may match in several ways.
        if !self.hits.iter().any(|hit| hit.page == page) {
            self.hits.push(Hit { kind, id, page, because });
        }
    }

    /// Adds the payments, payouts and withdrawals whose ids a query returns.
    async fn subjects(&mut self, sql: &str, values: impl IntoIterator<Item = Value>) -> Result<(), DbErr> {
        let sql = format!("{sql} LIMIT {HITS_MAX}");
        for Found { id, because } in rows::<Found>(self.system.database(), sql, values).await? {
            let (kind, pages) = match id.split_once('_') {
                Some(("po", _)) => ("payout", "sendings"),
                Some(("wd", _)) => ("withdrawal", "sendings"),
                Some(("cr", _)) => ("customer", "customers"),
                _ => ("payment", "payments"),
            };
            let page = format!("{}/{id}", path(pages));
            self.add(kind, id, page, because);
        }
        Ok(())
    }

    /// Adds the object with an id.
    async fn id(&mut self, id: &str) -> Result<(), DbErr> {
        let subjects = |table: &str, column: &str, condition: &str, because: &str| {
            format!("SELECT {column} AS id, '{because}' AS because FROM {table} WHERE {condition} = $1")
        };
        let sql = match id.split_once('_').map(|(prefix, _)| prefix) {
            Some("pay" | "tr") => {
                let id = id.replacen(TransferId::PREFIX, PaymentId::PREFIX, 1);
                return self.subjects(&subjects("payments", "id", "id", "id"), [id.into()]).await;
            }
            Some("po" | "wd") => subjects("sendings", "id", "id", "id"),
            Some("cr") => subjects("customers", "id", "id", "id"),
            Some("rf") => subjects("refunds", "payment_id", "id", "refund"),
            Some("op") => subjects("operations", "payment_id", "id", "operation"),
            Some("evt") => subjects("events", "payment_id", "id", "event"),
            Some("whd") => subjects("deliveries", "payment_id", "id", "delivery"),
            Some("psp") => return self.psps("id = $1", id).await,
            Some("merch") => return self.merchants("id = $1", id).await,
            _ => return Ok(()),
        };
        self.subjects(&sql, [id.into()]).await
    }

    async fn psps(&mut self, condition: &str, value: &str) -> Result<(), DbErr> {
        let sql = format!("SELECT id, name AS because FROM psps WHERE {condition} LIMIT {HITS_MAX}");
        for Found { id, because } in rows::<Found>(self.system.database(), sql, [value.into()]).await? {
            let page = format!("{}/{id}", path("psps"));
            self.add("psp", id, page, because);
        }
        Ok(())
    }

    async fn merchants(&mut self, condition: &str, value: &str) -> Result<(), DbErr> {
        let sql = format!("SELECT id, psp_id AS because FROM merchants WHERE {condition} LIMIT {HITS_MAX}");
        for Found { id, because: psp_id } in rows::<Found>(self.system.database(), sql, [value.into()]).await? {
            let page = format!("{}?psp_id={psp_id}&merchant_id={id}", path("payments"));
            self.add("merchant", id, page, format!("of {psp_id}"));
        }
        Ok(())
    }

    /// Adds what a transaction moved: a transfer to a payment, or an operation.
    async fn transaction(&mut self, hash: &str) -> Result<(), DbErr> {
        let chains = Chain::ALL.map(|chain| format!("'{chain}'")).join(", ");
        let received = format!(
            "SELECT DISTINCT payment_id AS id, 'received in this transaction' AS because FROM transfers \
             WHERE chain IN ({chains}) AND tx_hash = $1"
        );
        self.subjects(&received, [hash.into()]).await?;
        let sent = "SELECT DISTINCT operations.payment_id AS id, 'sent in this transaction' AS because \
            FROM chain_tx_attempts JOIN chain_txs ON chain_txs.chain = chain_tx_attempts.chain \
            AND chain_txs.sender = chain_tx_attempts.sender AND chain_txs.nonce = chain_tx_attempts.nonce \
            JOIN operations ON operations.chain_tx_id = chain_txs.id WHERE chain_tx_attempts.tx_hash = $1";
        self.subjects(sent, [hash.into()]).await
    }

    /// Adds payments by their wallet, or by a sender of their transfers.
    async fn address(&mut self, address: &str) -> Result<(), DbErr> {
        // Each condition matches an index.
        for condition in ["live AND wallet = $1", "NOT live AND wallet = $1"] {
            let sql = format!("SELECT id, 'wallet' AS because FROM payments WHERE {condition}");
            self.subjects(&sql, [address.into()]).await?;
        }
        for chain in Chain::ALL {
            let sql = format!(
                "SELECT DISTINCT payment_id AS id, 'sender on {chain}' AS because FROM (SELECT payment_id, from_address \
                 FROM transfers WHERE chain = '{chain}' ORDER BY block_number DESC LIMIT {TRANSFERS_SCANNED_MAX}) AS newest \
                 WHERE from_address = $1"
            );
            self.subjects(&sql, [address.into()]).await?;
        }
        let sql = "SELECT DISTINCT psp_id AS id, psp_id AS because FROM withdrawal_wallets WHERE address = $1";
        for Found { id, .. } in rows::<Found>(self.system.database(), sql.to_owned(), [address.into()]).await? {
            let page = format!("{}/{id}", path("psps"));
            self.add("psp", id, page, "withdrawal wallet".to_owned());
        }
        Ok(())
    }

    /// Adds objects by a reference, the PSP's own id of a merchant, the name of a PSP, or a part of an email.
    async fn text(&mut self, text: &str) -> Result<(), DbErr> {
        // One look-up for each PSP.
        for (table, column, and) in [
            ("payments", "id", ""),
            ("refunds", "payment_id", ""),
            ("sendings", "id", "AND kind IN ('payout', 'withdrawal')"),
        ] {
            let sql = format!(
                "SELECT {column} AS id, 'reference' AS because FROM {table} \
                 WHERE psp_id IN (SELECT id FROM psps) {and} AND reference = $1"
            );
            self.subjects(&sql, [text.into()]).await?;
        }
        self.merchants("psp_id IN (SELECT id FROM psps) AND external_id = $1", text).await?;
        // The names have no index, but PSPs are few.
        let part = text.to_lowercase().replace(['%', '_'], "");
        if part.chars().count() >= NAME_CHARS_MIN {
            self.psps("LOWER(name) LIKE $1", &format!("%{part}%")).await?;
        }
        if text.contains('@') {
            let page = format!(
                "{}?{}",
                path("customers"),
                url::form_urlencoded::Serializer::new(String::new()).append_pair("search", text).finish()
            );
            self.add("customers", text.to_owned(), page, "email".to_owned());
        }
        Ok(())
    }
}
