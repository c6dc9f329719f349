//! Outbound transfers: each acknowledged refund, payout, withdrawal and transfer to a customer was sent once to the
//! requested recipient, and nothing else left a vault.
//!
//! The expected recipient comes from the request. Answers, reads and events of the service are compared with it and
//! never replace it: a transfer to another address is an error even if the service reports that address.

use std::collections::{BTreeMap, BTreeSet, HashSet};

use alloy::primitives::{Address, B256};
use payferry_domain::{Chain, Token};
use serde_json::Value;

use super::super::evidence::Evidence;
use super::super::evidence::chain::{Movement, SentLog};
use super::super::load::Story;
use super::super::outgoing::Outgoing;
use super::super::report::{Finding, Findings};
use super::money::{address, wallet_of};
use crate::psp::decimal;

/// Fields of an acknowledgement that must never change.
const KEPT: [&str; 9] =
    ["amount", "currency", "chain", "token_address", "address", "requested_at", "id", "refund_id", "source"];

/// Checks that an acknowledged transfer exists as requested, and that a repeated request gets the same answer.
pub(super) fn acknowledged(out: &Outgoing, findings: &mut Findings) {
    if let Some(made) = &out.creation.made {
        let as_asked = made["amount"] == decimal(out.units)
            && address(&made["address"]) == Some(out.to)
            && made["chain"] == out.chain.as_str()
            && made["currency"] == out.token.as_str();
        if !as_asked {
            let asked = format!("{} {} on {} to {}", decimal(out.units), out.token, out.chain, out.to);
            let what = format!("is of {asked} and was acknowledged as {made}");
            findings.push(Finding::of(out.creation.name(), what));
        }
    }
    let Some((_, read)) = out.creation.acknowledged(&KEPT, findings) else { return };
    let mut wrong = |what: String| findings.push(Finding::of(out.creation.name(), what));
    if read["status"] != out.ends() {
        let what = format!("must end {} and is {} ({})", out.ends(), read["status"], why(read));
        wrong(what);
    } else if read["tx_hash"].is_string() != (out.ends() == "sent") {
        wrong(format!("is {} by transaction {}", out.ends(), read["tx_hash"]));
    }
}

/// Checks that a transfer goes to the customer's registered wallet. Only the read shows it, not the answer.
pub(super) fn destination(story: &Story, findings: &mut Findings) {
    let (Some(to), Some(read)) = (story.to, &story.creation.read) else { return };
    if address(&read["address"]) != Some(to) {
        findings
            .push(Finding::of(story.creation.name(), format!("must be sent on to {to} and reads {}", read["address"])));
    }
}

fn why(read: &Value) -> &str {
    read["failure"].as_str().unwrap_or("no failure")
}

/// Ids of all outbound transfers that the service lists: orders, and the refunds of each payment.
pub(super) fn listed(evidence: &Evidence) -> impl Iterator<Item = &str> {
    let refunds = evidence.stories.iter().filter_map(|story| story.creation.read.as_ref()?["refunds"].as_array());
    let refunds = refunds.flatten().filter_map(|refund| refund["refund_id"].as_str());
    evidence.listed_orders.iter().map(String::as_str).chain(refunds)
}

/// Money that left a vault according to the service: its owner, and the expected log according to the request.
struct Due {
    name: String,
    chain: Chain,
    log: SentLog,
}

/// Checks that on-chain outbound transfers and those that the service reports as sent match one to one.
pub(super) fn sent_once(evidence: &Evidence, findings: &mut Findings) {
    let orders = evidence.outgoing().filter(|out| out.is_sent()).filter_map(|out| due(evidence, out));
    let delivered = evidence.stories.iter().filter_map(delivery);
    let dues: Vec<Due> = orders.chain(delivered).collect();
    let mut meant: BTreeMap<(Chain, SentLog), Vec<&str>> = BTreeMap::new();
    for Due { name, chain, log } in &dues {
        meant.entry((*chain, log.clone())).or_default().push(name);
    }
    let mut strangers = Vec::new();
    for (chain, found) in &evidence.chains {
        for log in &found.sent {
            // Two equal logs need two orders.
            if meant.get_mut(&(*chain, log.clone())).and_then(Vec::pop).is_none() {
                strangers.push((*chain, log));
            }
        }
    }
    for (chain, log) in strangers {
        let what = format!("{} went to {} in {} and matches no order", decimal(log.units), log.to, log.tx_hash);
        // Its order is found by the recipient, if it was sent twice, or by the transaction, if it went to another
        // address.
        let again = evidence.outgoing().filter(|out| out.chain == chain && out.to == log.to && out.units == log.units);
        let elsewhere = |due: &&Due| due.chain == chain && due.log.tx_hash == log.tx_hash && due.log.units == log.units;
        let elsewhere = dues.iter().filter(elsewhere).map(|due| due.name.clone());
        let about: BTreeSet<String> = again.map(|out| out.creation.name()).chain(elsewhere).collect();
        let about = if about.is_empty() { chain.to_string() } else { about.into_iter().collect::<Vec<_>>().join(", ") };
        findings.push(Finding::of(about, what));
    }
    for ((_, log), names) in meant {
        for name in names {
            let what = format!("{} to {} in {} is not on-chain as reported", decimal(log.units), log.to, log.tx_hash);
            findings.push(Finding::of(name, what));
        }
    }
    let refused: HashSet<Address> = evidence.orders.iter().filter(|out| out.is_refused).map(|out| out.to).collect();
    for (chain, found) in &evidence.chains {
        for failed in found.refused.iter().filter(|log| log.to.is_none_or(|to| !refused.contains(&to))) {
            findings.push(Finding::of(chain.as_str(), format!("{} on-chain", failed.why)));
        }
    }
}

fn due(evidence: &Evidence, out: &Outgoing) -> Option<Due> {
    let wallet = || {
        let refunded = |story: &&Story| story.refunds.iter().any(|refund| refund.creation.key == out.creation.key);
        Some(wallet_of(evidence.stories.iter().find(refunded)?.creation.made.as_ref()?))
    };
    let vault = if out.is_from_wallet() { wallet()? } else { evidence.chains.get(&out.chain)?.psp_vault };
    let tx_hash = hash(out.creation.read.as_ref()?);
    let log = SentLog { vault, token: Some(out.token), to: out.to, units: out.units, tx_hash };
    Some(Due { name: out.creation.name(), chain: out.chain, log })
}

/// The expected log of a transfer to a customer.
fn delivery(story: &Story) -> Option<Due> {
    let read = story.creation.read.as_ref().filter(|read| read["status"] == "settled")?;
    if !story.intent.behaviour.is_transfer() {
        return None;
    }
    let log = SentLog {
        vault: wallet_of(read),
        token: Some(story.intent.token),
        to: story.to?,
        units: story.intent.units,
        tx_hash: hash(&read["settlement"]),
    };
    Some(Due { name: story.creation.name(), chain: read["chain"].as_str()?.parse().ok()?, log })
}

fn hash(record: &Value) -> B256 {
    record["tx_hash"].as_str().and_then(|hash| hash.parse().ok()).unwrap_or_default()
}

/// Checks that movements out of the PSP's vault and of payment wallets match the shares of settlements and outbound
/// transfers one to one.
pub(super) fn movements(evidence: &Evidence, findings: &mut Findings) {
    let wallets: HashSet<Address> =
        evidence.stories.iter().filter_map(|story| story.creation.made.as_ref()).map(wallet_of).collect();
    for (chain, found) in &evidence.chains {
        let mut owed: BTreeMap<Movement, i32> = BTreeMap::new();
        let mut owe = |token: Option<Token>, from, to, units, tx_hash| {
            if let Some(token) = token.filter(|_| units != 0) {
                *owed.entry(Movement { token, from, to, units, tx_hash }).or_default() += 1;
            }
        };
        for log in &found.settled {
            owe(log.token, log.vault, found.psp_vault, log.psp_amount, log.tx_hash);
            owe(log.token, log.vault, found.treasury_at, log.treasury_fee, log.tx_hash);
        }
        for log in &found.sent {
            owe(log.token, log.vault, log.to, log.units, log.tx_hash);
        }
        let leaves = |moved: &&Movement| moved.from == found.psp_vault || wallets.contains(&moved.from);
        for moved in found.movements.iter().filter(leaves) {
            *owed.entry(*moved).or_default() -= 1;
        }
        for (moved, count) in owed.into_iter().filter(|(_, count)| *count != 0) {
            let Movement { token, from, to, units, tx_hash } = moved;
            let way = format!("{} {token} from {from} to {to} in {tx_hash}", decimal(units));
            let what = if count > 0 { "was reported and never moved" } else { "moved without an operation" };
            findings.push(Finding::of(chain.as_str(), format!("{way} {what}")));
        }
    }
}

/// Checks that each recipient holds the amounts that the service reports as sent, and nothing else.
pub(super) fn recipients(evidence: &Evidence, findings: &mut Findings) {
    let mut meant: BTreeMap<(Chain, Token, Address), (i64, Vec<String>)> = BTreeMap::new();
    let mut pays = |chain, token, to, units, name| {
        let place = meant.entry((chain, token, to)).or_default();
        place.0 += units;
        place.1.push(name);
    };
    for out in evidence.outgoing() {
        pays(out.chain, out.token, out.to, if out.is_sent() { out.units } else { 0 }, out.creation.name());
    }
    for Due { name, chain, log } in evidence.stories.iter().filter_map(delivery) {
        pays(chain, log.token.unwrap_or(Token::Usdc), log.to, log.units, name);
    }
    for ((chain, token, to), (units, names)) in meant {
        let held = evidence.chains.get(&chain).map_or(0, |found| found.held(token, to));
        if held != units {
            // A refund has its own address; a customer receives several payouts.
            let about = if let [name] = &names[..] { name.clone() } else { chain.to_string() };
            let what = format!("{to} holds {} {token} instead of {}", decimal(held), decimal(units));
            findings.push(Finding::of(about, what));
        }
    }
}

/// Checks that the run had outbound transfers, because otherwise it proves nothing about them.
pub(super) fn something_moved(evidence: &Evidence, findings: &mut Findings) {
    if moved_out(evidence).is_empty() {
        findings.push(Finding::of("run", "nothing was moved out"));
    }
}

/// Outbound transfers that the service reports as sent, by kind.
pub fn moved_out(evidence: &Evidence) -> BTreeMap<String, usize> {
    let mut kinds = BTreeMap::new();
    for out in evidence.outgoing().filter(|out| out.is_sent()) {
        *kinds.entry(out.kind.to_string()).or_default() += 1;
    }
    let delivered = evidence.stories.iter().filter_map(delivery).count();
    if delivered > 0 {
        kinds.insert("transfer".to_owned(), delivered);
    }
    kinds
}
