//! The list of payments, with search and filters.

use axum::extract::Query;
use axum::http::StatusCode;
use axum::response::Response;
use maud::{Markup, html};
use payferry_domain::payment::{Label, Status};
use payferry_domain::{Chain, Timestamp, Token};
use payferry_httpkit::ApiError;
use payferry_httpkit::error::Listener;
use payferry_httpkit::pages::words::{Tone, ago, badge, grouped, head, plain, status};
use serde::Deserialize;

use crate::api::{At, with_query};
use crate::deliveries::page_of;
use crate::page::{NavSection, cursor_pages, see_other};
use crate::session::Session;

/// Path of the list.
pub(crate) const PATH: &str = "/dashboard/payments";
/// Hexadecimal digits of a transaction hash and of an address, with their prefix.
const HASH_CHARS: usize = 66;
const ADDRESS_CHARS: usize = 42;

/// A payment in a list.
#[derive(Debug, Deserialize)]
pub(crate) struct PaymentLine {
    payment_id: String,
    status: String,
    labels: Vec<String>,
    reference: Option<String>,
    amount: String,
    amount_received: String,
    currency: String,
    chain: Option<String>,
    created_at: At,
}

/// A page of payments.
#[derive(Debug, Deserialize)]
pub(crate) struct PaymentList {
    pub(crate) total: Option<u64>,
    next_cursor: Option<String>,
    pub(crate) payments: Vec<PaymentLine>,
}

/// A merchant with the searched reference.
#[derive(Debug, Deserialize)]
struct Merchant {
    merchant_id: String,
    name: String,
}

#[derive(Debug, Deserialize)]
struct MerchantList {
    merchants: Vec<Merchant>,
}

/// Query of the page: the searched text, the filters of the API, and the cursor.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(crate) struct Wanted {
    /// An id, a hash, a wallet, a reference of a payment or of a merchant.
    q: String,
    status: String,
    chain: String,
    currency: String,
    label: String,
    merchant_id: String,
    customer_id: String,
    reference: String,
    tx_hash: String,
    wallet: String,
    created_from: String,
    created_to: String,
    updated_from: String,
    cursor: String,
}

impl Wanted {
    /// The filters, named as in the API.
    fn filters(&self) -> [(&'static str, &str); 12] {
        [
            ("status", self.status.trim()),
            ("chain", self.chain.trim()),
            ("currency", self.currency.trim()),
            ("label", self.label.trim()),
            ("merchant_id", self.merchant_id.trim()),
            ("customer_id", self.customer_id.trim()),
            ("reference", self.reference.trim()),
            ("tx_hash", self.tx_hash.trim()),
            ("wallet", self.wallet.trim()),
            ("created_from", self.created_from.trim()),
            ("created_to", self.created_to.trim()),
            ("updated_from", self.updated_from.trim()),
        ]
    }

    fn is_filtered(&self) -> bool {
        self.filters().iter().any(|(_, value)| !value.is_empty())
    }
}

/// `/dashboard/payments`: the list, or the payment with the searched id.
pub(crate) async fn show(session: Session, Query(wanted): Query<Wanted>) -> Response {
    let text = wanted.q.trim();
    if text.is_empty() {
        return session.answer(list(&session, &wanted).await);
    }
    session.answer(match meaning(text) {
        Searched::Page(page) => Ok(see_other(&page)),
        Searched::Filter(name) => Ok(see_other(&with_query(PATH, [(name, text)]))),
        Searched::Reference => found(&session, text).await,
    })
}

/// Meaning of a searched text.
#[derive(Debug, PartialEq, Eq)]
enum Searched {
    /// The object of this page.
    Page(String),
    /// The payments with this value of a filter.
    Filter(&'static str),
    /// The reference of a payment or of a merchant.
    Reference,
}

fn meaning(text: &str) -> Searched {
    let is_word = text.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_');
    if is_word && let Some(page) = page_of(text) {
        return Searched::Page(page);
    }
    match text {
        text if text.starts_with("merch_") => Searched::Filter("merchant_id"),
        text if text.starts_with("cr_") => Searched::Filter("customer_id"),
        text if text.starts_with("0x") && text.len() == HASH_CHARS => Searched::Filter("tx_hash"),
        text if text.starts_with("0x") && text.len() == ADDRESS_CHARS => Searched::Filter("wallet"),
        _ => Searched::Reference,
    }
}

/// The payments with a reference; or those of the merchant with that reference, if no payment has it.
async fn found(session: &Session, text: &str) -> Result<Response, ApiError> {
    let of_payment = with_query("/payments", [("reference", text), ("limit", "1")]);
    if session.api.get::<PaymentList>(&of_payment).await?.payments.is_empty() {
        let merchants: MerchantList = session.api.get(&with_query("/merchants", [("external_id", text)])).await?;
        if let Some(Merchant { merchant_id, .. }) = merchants.merchants.first() {
            return Ok(see_other(&with_query(PATH, [("merchant_id", merchant_id.as_str())])));
        }
    }
    Ok(see_other(&with_query(PATH, [("reference", text)])))
}

async fn list(session: &Session, wanted: &Wanted) -> Result<Response, ApiError> {
    let pairs = wanted.filters().into_iter().chain([("cursor", wanted.cursor.as_str())]);
    let read = session.api.get::<PaymentList>(&with_query("/payments", pairs)).await;
    let (status, said, found) = match read {
        Ok(found) => (StatusCode::OK, html! {}, Some(found)),
        Err(error @ ApiError::BadParameters(_)) => {
            let said = html! { p.notice.bad role="alert" { (error.detail(Listener::Public)) } };
            (error.status(), said, None)
        }
        Err(error) => return Err(error),
    };
    let merchant = merchant(session, wanted).await;
    let body = html! {
        div.title {
            h1 { "Payments" }
            p { "Newest first." @if let Some(name) = merchant { " Of the merchant " strong { (name) } "." } }
        }
        (said)
        (filters(wanted))
        @if let Some(found) = &found { (panel(found, wanted, session.now())) }
    };
    Ok(session.page(status, "Payments", NavSection::Payments, &body))
}

/// The name of the merchant whose payments are listed. The list is complete without it.
async fn merchant(session: &Session, wanted: &Wanted) -> Option<String> {
    #[derive(Deserialize)]
    struct Answer {
        merchant: Merchant,
    }
    let id = wanted.merchant_id.trim();
    let id = crate::api::segment(id, "merchant").ok()?;
    let answer: Result<Answer, ApiError> = session.api.get(&format!("/merchants/{id}")).await;
    Some(answer.ok()?.merchant.name)
}

fn panel(found: &PaymentList, wanted: &Wanted, now: Timestamp) -> Markup {
    let is_first = wanted.cursor.is_empty();
    let first = with_query(PATH, wanted.filters());
    let next = found.next_cursor.as_deref();
    let next = next.map(|cursor| with_query(PATH, wanted.filters().into_iter().chain([("cursor", cursor)])));
    html! {
        section.panel #list aria-labelledby="payments" {
            header { h2 #payments { "Payments" } @if let Some(total) = found.total { p { (grouped(total)) } } }
            @if found.payments.is_empty() { p.none { "No payments." } } @else { (table(&found.payments, now)) }
            (cursor_pages("payments", (!is_first).then_some(&first), next.as_deref()))
        }
    }
}

/// Payments, each with a link.
pub(crate) fn table(payments: &[PaymentLine], now: Timestamp) -> Markup {
    html! {
        table {
            (head(&[("", "Payment"), ("", "Status"), ("n", "Amount"), ("n wide", "Received"), ("wide", "Chain"), ("wide", "Reference"), ("n", "Created")]))
            tbody {
                @for one in payments {
                    tr id=(one.payment_id) {
                        th scope="row" { a.mono href={ (PATH) "/" (one.payment_id) } { (one.payment_id) } }
                        td { (status(&one.status)) @for label in &one.labels { " " (badge(&label.to_lowercase(), Tone::Warn)) } }
                        td.n { (one.amount) " " (one.currency) }
                        td.n.wide { (one.amount_received) }
                        td.wide { (one.chain.as_deref().unwrap_or("–")) }
                        td.wide { (one.reference.as_deref().unwrap_or("–")) }
                        td.n { (ago(one.created_at, now)) }
                    }
                }
            }
        }
    }
}

fn filters(wanted: &Wanted) -> Markup {
    let statuses = Status::ALL.map(Status::as_str);
    let chains = Chain::ALL.map(Chain::as_str);
    let tokens = Token::ALL.map(Token::as_str);
    let labels = Label::ALL.map(Label::as_str);
    html! {
        details.fold open[wanted.is_filtered()] {
            summary { "Filters" }
            form.filters #filters method="get" action=(PATH) {
                (select("status", "Status", &wanted.status, &statuses))
                (select("chain", "Chain", &wanted.chain, &chains))
                (select("currency", "Currency", &wanted.currency, &tokens))
                (select("label", "Label", &wanted.label, &labels))
                (field("reference", "Reference", &wanted.reference, "order-7"))
                (field("merchant_id", "Merchant", &wanted.merchant_id, "merch_…"))
                (field("customer_id", "Customer", &wanted.customer_id, "cr_…"))
                (field("tx_hash", "Transaction", &wanted.tx_hash, "0x…"))
                (field("wallet", "Wallet", &wanted.wallet, "0x…"))
                (field("created_from", "Created from", &wanted.created_from, "2026-11-29"))
                (field("created_to", "Created before", &wanted.created_to, "2026-11-30"))
                (field("updated_from", "Changed from", &wanted.updated_from, "2026-11-29"))
                div { button { "Filter" } " " a.button.quiet href=(PATH) { "All" } }
            }
        }
    }
}

fn field(name: &str, label: &str, value: &str, hint: &str) -> Markup {
    html! {
        label {
            (label)
            input type="text" name=(name) value=(value) placeholder=(hint) autocomplete="off" spellcheck="false" maxlength="255";
        }
    }
}

fn select(name: &str, label: &str, chosen: &str, choices: &[&str]) -> Markup {
    html! {
        label {
            (label)
            select name=(name) {
                option value="" { "all" }
                @for choice in choices { option value=(choice) selected[chosen == *choice] { (plain(&choice.to_lowercase())) } }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn searched_texts_have_a_meaning() {
        let (hash, wallet) = (format!("0x{}", "ab".repeat(32)), format!("0x{}", "ab".repeat(20)));
        for (text, meant) in [
            ("pay_1", Searched::Page("/dashboard/payments/pay_1".to_owned())),
            ("wd_1", Searched::Page("/dashboard/outbound/wd_1".to_owned())),
            ("pay_/../x", Searched::Reference),
            ("merch_1", Searched::Filter("merchant_id")),
            ("cr_1", Searched::Filter("customer_id")),
            (&hash, Searched::Filter("tx_hash")),
            (&wallet, Searched::Filter("wallet")),
            ("order-7", Searched::Reference),
        ] {
            assert_eq!(meaning(text), meant, "{text}");
        }
    }
}
