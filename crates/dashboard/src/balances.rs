//! Balances, payouts and withdrawals, and the form of a withdrawal.

use axum::extract::Query;
use axum::http::{Method, StatusCode};
use axum::response::Response;
use futures::try_join;
use maud::{Markup, html};
use payferry_domain::{Chain, Token};
use payferry_httpkit::ApiError;
use payferry_httpkit::pages::form::{FormValues, Sort};
use payferry_httpkit::pages::words::{exact, head, panel as section, status};
use serde::Deserialize;

use crate::api::{At, with_query};
use crate::outbound::{Outbound, list_panel};
use crate::page::{NavSection, RefusedForm, form_id, notice, see_other};
use crate::session::Session;

/// Path of the page.
const PATH: &str = "/dashboard/balances";
/// Rows of the lists of payouts and withdrawals.
const ROWS_MAX: &str = "20";
/// Notices, by the word in the query.
const NOTICES: [(&str, &str); 1] = [("withdrawn", "The withdrawal was accepted. Its amount is reserved.")];
/// Fields of a withdrawal.
const FIELDS: [(&str, Sort); 4] =
    [("amount", Sort::Text), ("currency", Sort::Text), ("chain", Sort::Text), ("reference", Sort::Text)];

#[derive(Debug, Deserialize)]
struct Balance {
    chain: String,
    currency: String,
    available: String,
    pending: String,
    reserved: String,
}

/// Every balance.
#[derive(Debug, Deserialize)]
pub(crate) struct BalanceList {
    balances: Vec<Balance>,
}

/// A page of payouts or withdrawals.
#[derive(Debug, Deserialize)]
struct OutboundList {
    total: u64,
    next_cursor: Option<String>,
    #[serde(alias = "payouts", alias = "withdrawals")]
    rows: Vec<Outbound>,
}

/// A wallet that withdrawals go to.
#[derive(Debug, Deserialize)]
pub(crate) struct WithdrawalWallet {
    chain: String,
    address: String,
    status: String,
    effective_at: At,
}

#[derive(Debug, Deserialize)]
struct Settings {
    withdrawal_wallets: Vec<WithdrawalWallet>,
}

/// Query of the page: the result of the last form, and the cursors of the lists.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(crate) struct BalancesQuery {
    done: Option<String>,
    payouts: String,
    withdrawals: String,
}

/// `/dashboard/balances`.
pub(crate) async fn show(session: Session, Query(shown): Query<BalancesQuery>) -> Response {
    session.answer(page(&session, &shown, None).await)
}

/// Withdraws from a balance.
pub(crate) async fn withdraw(session: Session, form: FormValues) -> Response {
    session.answer(send(&session, &form).await)
}

async fn send(session: &Session, form: &FormValues) -> Result<Response, ApiError> {
    match session.submit::<Outbound>(form, Method::POST, "/withdrawals", form.json(&FIELDS)).await? {
        Ok(_) => Ok(see_other(&format!("{PATH}?done=withdrawn"))),
        Err(refused) => page(session, &BalancesQuery::default(), Some(refused)).await,
    }
}

async fn page(session: &Session, shown: &BalancesQuery, refused: Option<RefusedForm>) -> Result<Response, ApiError> {
    let list = |path, cursor: &str| with_query(path, [("limit", ROWS_MAX), ("cursor", cursor)]);
    let (payouts, withdrawals) = (list("/payouts", &shown.payouts), list("/withdrawals", &shown.withdrawals));
    let (balances, payouts, withdrawals, settings) = try_join!(
        session.api.get::<BalanceList>("/balances"),
        session.api.get::<OutboundList>(&payouts),
        session.api.get::<OutboundList>(&withdrawals),
        session.api.get::<Settings>("/api/v1/settings"),
    )?;
    let (status, said, form) = match refused {
        Some(RefusedForm { status, said, form, .. }) => (status, said, form),
        None => (StatusCode::OK, notice(shown.done.as_deref(), &NOTICES), FormValues::default()),
    };
    let lists = [
        ("withdrawals", "Withdrawals", &withdrawals, &shown.withdrawals),
        ("payouts", "Payouts", &payouts, &shown.payouts),
    ];
    let body = html! {
        div.title { h1 { "Balances" } p { "Money of settled payments, on each chain." } }
        (said)
        div.grid.two {
            div.col {
                (panel(&balances))
                @for (id, heading, list, cursor) in lists { (rows(session, (id, heading), list, cursor)) }
            }
            div.col {
                @if session.key.has("money") { (withdrawal_panel(&form)) }
                (wallets_panel(session, &settings.withdrawal_wallets))
            }
        }
    };
    Ok(session.page(status, "Balances", NavSection::Balances, &body))
}

fn rows(session: &Session, (id, heading): (&str, &str), list: &OutboundList, cursor: &str) -> Markup {
    let next = list.next_cursor.as_deref().map(|next| with_query(PATH, [(id, next)]));
    let first = (!cursor.is_empty()).then_some(PATH);
    list_panel(session, (id, heading), list.total, &list.rows, (first, next.as_deref()))
}

/// The balances.
pub(crate) fn panel(list: &BalanceList) -> Markup {
    let body = html! {
        @if list.balances.is_empty() { p.none { "No chain is running." } } @else {
            table {
                (head(&[("", "Chain"), ("n", "Available"), ("n", "Pending"), ("n", "Reserved")]))
                tbody {
                    @for balance in &list.balances {
                        tr {
                            th scope="row" { (balance.chain) " " small { (balance.currency) } }
                            td.n { (balance.available) }
                            td.n { (balance.pending) }
                            td.n { (balance.reserved) }
                        }
                    }
                }
            }
        }
    };
    section("balances", "Balances", "", &body)
}

fn withdrawal_panel(form: &FormValues) -> Markup {
    let tokens = Token::ALL.map(|token| (token.as_str(), token.as_str()));
    let chains = Chain::ALL.map(|chain| (chain.as_str(), chain.as_str()));
    let body = html! {
        div.body {
            form.stack #withdrawal method="post" action="/dashboard/withdrawals" {
                (form_id(form))
                div.pair {
                    (form.line("amount", "Amount", "25.00", true))
                    (form.choice("currency", "Currency", &tokens))
                    (form.choice("chain", "Chain", &chains))
                    (form.line("reference", "Reference (optional)", "payroll-11", false))
                }
                (form.confirm("Send this amount to the withdrawal wallet of the chain"))
                div { button { "Withdraw" } }
            }
        }
    };
    section("withdraw", "Withdraw", "to the withdrawal wallet", &body)
}

/// The wallets that withdrawals go to. Only the operator sets them.
pub(crate) fn wallets_panel(session: &Session, wallets: &[WithdrawalWallet]) -> Markup {
    let body = html! {
        @if wallets.is_empty() { p.none { "None. Ask the operator to register one." } } @else {
            table {
                (head(&[("", "Chain"), ("", "Wallet"), ("", "State")]))
                tbody {
                    @for wallet in wallets {
                        tr {
                            th scope="row" { (wallet.chain) }
                            td { (session.whole_on_chain(&wallet.chain, &wallet.address)) }
                            td { (status(&wallet.status)) @if wallet.status == "pending" { br; small { "from " (exact(wallet.effective_at.0)) } } }
                        }
                    }
                }
            }
            p.none { "Only the operator changes these. Inform the operator at once if you did not request a change." }
        }
    };
    section("wallets", "Withdrawal wallets", "", &body)
}
