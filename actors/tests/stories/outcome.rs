//! Outcome of a story as lines: states, labels, refunds, events and postings of each payment and outbound transfer, and
//! the final balances on the chains.

use std::collections::BTreeSet;
use std::fmt::Write as _;

use payferry_domain::payment::{HistoryEntry, Payment, Reason, Refund, Status};
use payferry_domain::sending::SendingId;
use payferry_domain::{Address, Amount, Asset, Chain, PaymentId, Token};
use payferry_entities::{balances, events, ledger_postings, operations};
use sea_orm::{ColumnTrait, EntityTrait, QueryFilter, QueryOrder};

use crate::chains::{Coin, account};
use crate::people::kind_of;
use crate::world::World;

/// Subject of a story.
#[derive(Debug, Clone, Copy)]
pub enum Subject {
    Payment(PaymentId),
    Sending(SendingId),
}

/// Prefix of a row's line about the PSP's balances. Rows without such a line do not check them.
pub const BALANCE: &str = "balance: ";

/// Returns the lines of all subjects; `others` are further accounts whose balances are included.
pub async fn lines(world: &World, subjects: &[(String, Subject)], others: &BTreeSet<String>) -> Vec<String> {
    let mut lines = Vec::new();
    for (name, subject) in subjects {
        match subject {
            Subject::Payment(id) => of_payment(world, name, *id, others, &mut lines).await,
            Subject::Sending(id) => of_sending(world, name, *id, &mut lines).await,
        }
    }
    lines.push(format!("holds: {}", holdings(world, subjects, others).await));
    lines
}

async fn of_payment(world: &World, name: &str, id: PaymentId, others: &BTreeSet<String>, lines: &mut Vec<String>) {
    let payment = world.payment(id).await;
    let history: Vec<String> = payment.history.iter().map(|entry| state(&payment, entry)).collect();
    lines.push(format!("{name}: {}", history.join(", ")));
    if !payment.terms.purpose.is_pay_in() {
        lines.push(format!("{name} shows: {}", payment.public_status()));
    }
    let labels: Vec<&str> = payment.labels.iter().map(payferry_domain::payment::Label::as_str).collect();
    if !labels.is_empty() {
        lines.push(format!("{name} labels: {}", labels.join(" ")));
    }
    let refunds: Vec<String> = payment.refunds.iter().map(|refund| refunded(world, &payment, refund, others)).collect();
    if !refunds.is_empty() {
        lines.push(format!("{name} refunds: {}", refunds.join(", ")));
    }
    told_and_posted(world, name, &payment.terms.public_id(), payment.asset(), lines).await;
}

async fn of_sending(world: &World, name: &str, id: SendingId, lines: &mut Vec<String>) {
    let sending = world.sending(id).await;
    let mut line = format!("{name}: {} pending", kind_of(id));
    if sending.status.as_str() != "pending" {
        let _ = write!(line, ", {}", sending.status);
    }
    if let Some(reason) = sending.failure_reason {
        let _ = write!(line, " ({reason})");
    }
    lines.push(line);
    told_and_posted(world, name, &id.to_string(), sending.order.asset, lines).await;
}

async fn told_and_posted(world: &World, name: &str, id: &str, own: Asset, lines: &mut Vec<String>) {
    let reader = world.database().reader();
    let told = events::Entity::find().filter(events::Column::PaymentId.eq(id));
    let told = told.order_by_asc(events::Column::Sequence).all(reader).await.unwrap();
    let told: Vec<String> = told.into_iter().map(|event| event.name).collect();
    if !told.is_empty() {
        lines.push(format!("{name} events: {}", told.join(" ")));
    }
    let posted = ledger_postings::Entity::find().filter(ledger_postings::Column::Subject.eq(id));
    let posted = posted.order_by_asc(ledger_postings::Column::Position).all(reader).await.unwrap();
    let posted: Vec<String> = posted.iter().map(|row| posting(world, row, own)).collect();
    if !posted.is_empty() {
        lines.push(format!("{name} ledger: {}", posted.join(", ")));
    }
}

/// Returns the PSP's balances: available, pending from settlements in progress, and reserved.
pub async fn balances(world: &World) -> String {
    let reader = world.database().reader();
    let rows = balances::Entity::find().all(reader).await.unwrap();
    // Failed settlements are retried.
    let coming = operations::Entity::find()
        .filter(operations::Column::Kind.eq("settle"))
        .filter(operations::Column::Status.is_in(["queued", "submitted", "mined", "failed"]))
        .all(reader)
        .await
        .unwrap();
    let mut told = Vec::new();
    for (chain, story) in &world.chains {
        for coin in Coin::ALL {
            let contract = story.coin(coin);
            let plain = *chain == Chain::Base && coin == Coin::from(Token::Usdc);
            let named = if plain { String::new() } else { format!(" {}", coin_named(world, *chain, contract)) };
            let (chain, token) = (chain.as_str(), contract.to_string());
            let row = rows.iter().find(|row| row.chain == chain && row.token_address == token);
            let coming = coming.iter().filter(|row| row.chain == chain && row.token_address == token);
            let pending: i64 = coming.map(|row| row.psp_amount).sum();
            let (available, reserved) = row.map_or((0, 0), |row| (row.available, row.reserved));
            for (what, units) in [("available", available), ("pending", pending), ("reserved", reserved)] {
                if units != 0 {
                    told.push(format!("{what} {}{named}", Amount(units)));
                }
            }
        }
    }
    if told.is_empty() { "nothing".to_owned() } else { told.join(", ") }
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

fn refunded(world: &World, payment: &Payment, refund: &Refund, others: &BTreeSet<String>) -> String {
    let to = others.iter().find(|name| account(name) == refund.to).map_or("unlisted", String::as_str);
    let coin = refund.asset.map_or_else(String::new, |asset| coin_beside(world, asset, payment.asset()));
    format!("{}{coin} to {to} {}", refund.amount, refund.state)
}

fn posting(world: &World, row: &ledger_postings::Model, own: Asset) -> String {
    let asset = Asset { chain: row.chain.parse().unwrap(), address: row.token_address.parse().unwrap() };
    let coin = coin_beside(world, asset, own);
    // Every other kind debits only one account.
    let from = if row.kind == "sent" { format!(" from {}", row.debit) } else { String::new() };
    format!("{} {}{coin}{from}", row.kind, Amount(row.amount))
}

/// Name of an asset, if it differs from the default.
fn coin_beside(world: &World, asset: Asset, own: Asset) -> String {
    if asset == own { String::new() } else { format!(" {}", coin_named(world, asset.chain, asset.address)) }
}

fn coin_named(world: &World, chain: Chain, contract: Address) -> String {
    let coin = world.chains[&chain].coin_of(contract).map_or("unknown token", Coin::as_str);
    if chain == Chain::Base { coin.to_owned() } else { format!("{coin}/{chain}") }
}

/// Balances of all accounts of the story; USDC on Base has no suffix.
async fn holdings(world: &World, subjects: &[(String, Subject)], others: &BTreeSet<String>) -> String {
    let treasury = world.chains.values().next().unwrap().spec.treasury;
    let mut purses: Vec<(&str, Address)> = Vec::new();
    for (name, subject) in subjects {
        if let Subject::Payment(id) = subject {
            purses.push((name, world.vault_of(*id)));
        }
    }
    purses.extend([("psp", world.psp_vault()), ("treasury", treasury)]);
    purses.extend(others.iter().map(|name| (name.as_str(), account(name))));
    let mut held = Vec::new();
    for (name, address) in purses {
        for (chain, story) in &world.chains {
            for coin in Coin::ALL {
                let units = story.balance(coin, address).await;
                if units != 0 {
                    let plain = *chain == Chain::Base && coin == Coin::from(Token::Usdc);
                    let coin =
                        if plain { String::new() } else { format!(" {}", coin_named(world, *chain, story.coin(coin))) };
                    held.push(format!("{name} {}{coin}", Amount(units)));
                }
            }
        }
    }
    if held.is_empty() { "nothing".to_owned() } else { held.join(", ") }
}
