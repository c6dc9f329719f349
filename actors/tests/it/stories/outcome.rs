//! Outcome of a story as lines: states, labels, refunds, events and postings of each payment and outbound transfer, and
//! the final balances on the chains.

use std::collections::BTreeSet;
use std::fmt::Write as _;

use payferry_domain::outbound::OutboundId;
use payferry_domain::payment::{HistoryEntry, Payment, Reason, Refund, Status};
use payferry_domain::{Address, Amount, Asset, Chain, PaymentId};
use payferry_entities::{balances, events, ledger_postings, operations};
use sea_orm::{ColumnTrait, EntityTrait, QueryFilter, QueryOrder};

use super::env::Env;
use super::people::kind_of;
use crate::env::{Coin, account};

/// Subject of a story.
#[derive(Debug, Clone, Copy)]
pub enum Subject {
    Payment(PaymentId),
    OutboundTransfer(OutboundId),
}

/// Prefix of a row's line about the PSP's balances. Rows without such a line do not check them.
pub const BALANCE: &str = "balance: ";

/// Returns the lines of all subjects; `others` are further accounts whose balances are included.
pub async fn lines(env: &Env, subjects: &[(String, Subject)], others: &BTreeSet<String>) -> Vec<String> {
    let mut lines = Vec::new();
    for (name, subject) in subjects {
        match subject {
            Subject::Payment(id) => of_payment(env, name, *id, others, &mut lines).await,
            Subject::OutboundTransfer(id) => of_outbound(env, name, *id, &mut lines).await,
        }
    }
    lines.push(format!("holds: {}", holdings(env, subjects, others).await));
    lines
}

async fn of_payment(env: &Env, name: &str, id: PaymentId, others: &BTreeSet<String>, lines: &mut Vec<String>) {
    let payment = env.load(id).await;
    let history: Vec<String> = payment.history.iter().map(|entry| state(&payment, entry)).collect();
    lines.push(format!("{name}: {}", history.join(", ")));
    if !payment.terms.purpose.is_pay_in() {
        lines.push(format!("{name} shows: {}", payment.public_status()));
    }
    let labels: Vec<&str> = payment.labels.iter().map(payferry_domain::payment::Label::as_str).collect();
    if !labels.is_empty() {
        lines.push(format!("{name} labels: {}", labels.join(" ")));
    }
    let refunds: Vec<String> = payment.refunds.iter().map(|refund| refunded(env, &payment, refund, others)).collect();
    if !refunds.is_empty() {
        lines.push(format!("{name} refunds: {}", refunds.join(", ")));
    }
    notified_and_posted(env, name, &payment.terms.public_id(), payment.asset(), lines).await;
}

async fn of_outbound(env: &Env, name: &str, id: OutboundId, lines: &mut Vec<String>) {
    let outbound = env.load_outbound(id).await;
    let mut line = format!("{name}: {} pending", kind_of(id));
    if outbound.status.as_str() != "pending" {
        let _ = write!(line, ", {}", outbound.status);
    }
    if let Some(reason) = outbound.failure_reason {
        let _ = write!(line, " ({reason})");
    }
    lines.push(line);
    notified_and_posted(env, name, &id.to_string(), outbound.order.asset, lines).await;
}

async fn notified_and_posted(env: &Env, name: &str, id: &str, own: Asset, lines: &mut Vec<String>) {
    let reader = env.database.reader();
    let notified = events::Entity::find().filter(events::Column::PaymentId.eq(id));
    let notified = notified.order_by_asc(events::Column::Sequence).all(reader).await.unwrap();
    let notified: Vec<String> = notified.into_iter().map(|event| event.name).collect();
    if !notified.is_empty() {
        lines.push(format!("{name} events: {}", notified.join(" ")));
    }
    let posted = ledger_postings::Entity::find().filter(ledger_postings::Column::Subject.eq(id));
    let posted = posted.order_by_asc(ledger_postings::Column::Position).all(reader).await.unwrap();
    let posted: Vec<String> = posted.iter().map(|row| posting(env, row, own)).collect();
    if !posted.is_empty() {
        lines.push(format!("{name} ledger: {}", posted.join(", ")));
    }
}

/// Returns the PSP's balances: available, pending from settlements in progress, and reserved.
pub async fn balances(env: &Env) -> String {
    let reader = env.database.reader();
    let rows = balances::Entity::find().all(reader).await.unwrap();
    // Failed settlements are retried.
    let coming = operations::Entity::find()
        .filter(operations::Column::Kind.eq("settle"))
        .filter(operations::Column::Status.is_in(["queued", "submitted", "mined", "failed"]))
        .all(reader)
        .await
        .unwrap();
    let mut notified = Vec::new();
    for (chain, story) in &env.chains {
        for coin in Coin::ALL {
            let contract = story.coin(coin);
            let named = coin_beside(env, Asset { chain: *chain, address: contract }, usdc_on_base(env));
            let (chain, token) = (chain.as_str(), contract.to_string());
            let row = rows.iter().find(|row| row.chain == chain && row.token_address == token);
            let coming = coming.iter().filter(|row| row.chain == chain && row.token_address == token);
            let pending: i64 = coming.map(|row| row.psp_amount).sum();
            let (available, reserved) = row.map_or((0, 0), |row| (row.available, row.reserved));
            for (what, units) in [("available", available), ("pending", pending), ("reserved", reserved)] {
                if units != 0 {
                    notified.push(format!("{what} {}{named}", Amount(units)));
                }
            }
        }
    }
    if notified.is_empty() { "nothing".to_owned() } else { notified.join(", ") }
}

/// One entry of the history, with its reason where the state alone does not imply it.
fn state(payment: &Payment, entry: &HistoryEntry) -> String {
    let (status, reason) = (entry.status, entry.reason);
    let plain = matches!(
        (status, reason),
        (Status::Pending, Reason::Initiated) | (Status::Confirmed, Reason::Paid) | (Status::Settled, Reason::Settled)
    );
    debug_assert!(payment.history.contains(entry));
    if plain { status.to_string() } else { format!("{status} ({reason})") }
}

fn refunded(env: &Env, payment: &Payment, refund: &Refund, others: &BTreeSet<String>) -> String {
    let to = others.iter().find(|name| account(name) == refund.to).map_or("unlisted", String::as_str);
    let coin = refund.asset.map_or_else(String::new, |asset| coin_beside(env, asset, payment.asset()));
    format!("{}{coin} to {to} {}", refund.amount, refund.public_status())
}

fn posting(env: &Env, row: &ledger_postings::Model, own: Asset) -> String {
    let asset = Asset { chain: row.chain.parse().unwrap(), address: row.token_address.parse().unwrap() };
    let coin = coin_beside(env, asset, own);
    // Every other kind debits only one account.
    let from = if row.kind == "sent" { format!(" from {}", row.debit) } else { String::new() };
    format!("{} {}{coin}{from}", row.kind, Amount(row.amount))
}

/// The asset of most amounts, which are shown without its name.
fn usdc_on_base(env: &Env) -> Asset {
    Asset { chain: Chain::Base, address: env.chains[&Chain::Base].coin(Coin::Usdc) }
}

/// Name of an asset, if it differs from the default.
fn coin_beside(env: &Env, asset: Asset, own: Asset) -> String {
    if asset == own { String::new() } else { format!(" {}", coin_named(env, asset.chain, asset.address)) }
}

fn coin_named(env: &Env, chain: Chain, contract: Address) -> String {
    let coin = env.chains[&chain].coin_of(contract).map_or("unknown token", Coin::as_str);
    if chain == Chain::Base { coin.to_owned() } else { format!("{coin}/{chain}") }
}

/// Balances of all accounts of the story; USDC on Base has no suffix.
async fn holdings(env: &Env, subjects: &[(String, Subject)], others: &BTreeSet<String>) -> String {
    let treasury = env.chains.values().next().unwrap().spec.treasury;
    let mut target_accounts: Vec<(&str, Address)> = Vec::new();
    for (name, subject) in subjects {
        if let Subject::Payment(id) = subject {
            target_accounts.push((name, env.load(*id).await.terms.wallet));
        }
    }
    target_accounts.extend([("psp", env.psp_vault()), ("treasury", treasury)]);
    target_accounts.extend(others.iter().map(|name| (name.as_str(), account(name))));
    let mut held = Vec::new();
    for (name, address) in target_accounts {
        for (chain, story) in &env.chains {
            for coin in Coin::ALL {
                let units = story.balance(coin, address).await;
                if units != 0 {
                    let asset = Asset { chain: *chain, address: story.coin(coin) };
                    let coin = coin_beside(env, asset, usdc_on_base(env));
                    held.push(format!("{name} {}{coin}", Amount(units)));
                }
            }
        }
    }
    if held.is_empty() { "nothing".to_owned() } else { held.join(", ") }
}
