//! The PSP's balances and ledger, compared with each order and with the chains.

use std::collections::{BTreeMap, HashMap};

use payferry_domain::{Chain, Token};
use serde_json::Value;

use super::super::evidence::Evidence;
use super::super::outgoing::Outgoing;
use super::super::report::{Finding, Findings};
use super::money::wallet_of;
use super::text;
use crate::psp::{decimal, units};

/// Checks that nothing is pending at the end, and that the available balance equals the balance of the PSP's vault.
pub(super) fn balances(evidence: &Evidence, findings: &mut Findings) {
    let mut shown: BTreeMap<(&str, &str), &Value> = BTreeMap::new();
    for balance in &evidence.ledger.balances {
        shown.insert((text(balance, "chain"), text(balance, "currency")), balance);
    }
    for (chain, found) in &evidence.chains {
        for (token, vault) in &found.vault {
            let mut wrong = |what: String| findings.push(Finding::of(chain.as_str(), what));
            let Some(balance) = shown.get(&(chain.as_str(), token.as_str())) else {
                wrong(format!("shows no balance of {token}"));
                continue;
            };
            for (what, meant) in [("available", *vault), ("pending", 0), ("reserved", 0)] {
                let is = units(&balance[what]);
                if is != meant {
                    wrong(format!("the balance shows {} {token} {what} instead of {}", decimal(is), decimal(meant)));
                }
            }
        }
    }
}

/// Checks that each ledger account equals the on-chain balance of its owner.
pub(super) fn accounts(evidence: &Evidence, findings: &mut Findings) {
    let tokens: HashMap<(&str, &str), Token> = evidence
        .ledger
        .balances
        .iter()
        .filter_map(|balance| {
            let token = text(balance, "currency").parse().ok()?;
            Some(((text(balance, "chain"), text(balance, "token_address")), token))
        })
        .collect();
    let mut stands: HashMap<(&str, Token, &str), i64> = HashMap::new();
    for entry in &evidence.ledger.entries {
        let (chain, address) = (text(entry, "chain"), text(entry, "token_address"));
        let Some(token) = tokens.get(&(chain, address)).copied() else {
            findings
                .push(Finding::of(text(entry, "subject"), format!("posted in a token that has no balance: {entry}")));
            continue;
        };
        *stands.entry((chain, token, text(entry, "debit"))).or_default() -= units(&entry["amount"]);
        *stands.entry((chain, token, text(entry, "credit"))).or_default() += units(&entry["amount"]);
    }
    let wallets = wallets(evidence);
    for (chain, found) in &evidence.chains {
        for (token, vault) in &found.vault {
            let on = |account: &str| stands.get(&(chain.as_str(), *token, account)).copied().unwrap_or_default();
            let treasury = found.treasury.get(token).copied().unwrap_or_default();
            let in_wallets = wallets.get(&(*chain, *token)).copied().unwrap_or_default();
            for (whose, is, meant) in [
                ("psp", on("psp"), *vault),
                ("in_flight", on("in_flight"), 0),
                ("treasury", on("treasury"), treasury),
                ("payment and suspense", on("payment") + on("suspense"), in_wallets),
            ] {
                if is != meant {
                    let what =
                        format!("the ledger has {} {token} on {whose} instead of {}", decimal(is), decimal(meant));
                    findings.push(Finding::of(chain.as_str(), what));
                }
            }
        }
    }
}

/// Total balance of all payment wallets.
fn wallets(evidence: &Evidence) -> HashMap<(Chain, Token), i64> {
    let mut held = HashMap::new();
    for made in evidence.stories.iter().filter_map(|story| story.creation.made.as_ref()) {
        let Ok(chain) = text(made, "chain").parse::<Chain>() else { continue };
        let Some(found) = evidence.chains.get(&chain) else { continue };
        for token in Token::ALL {
            *held.entry((chain, token)).or_default() += found.held(token, wallet_of(made));
        }
    }
    held
}

/// Checks that each order was posted as expected, once.
pub(super) fn postings(evidence: &Evidence, findings: &mut Findings) {
    let mut posted: HashMap<&str, Vec<(&str, String)>> = HashMap::new();
    for entry in &evidence.ledger.entries {
        let way = (text(entry, "kind"), text(entry, "amount").to_owned());
        posted.entry(text(entry, "reference")).or_default().push(way);
    }
    for out in evidence.outgoing() {
        let Some(id) = out.creation.id() else { continue };
        let meant: Vec<(&str, String)> = kinds(out).iter().map(|kind| (*kind, decimal(out.units))).collect();
        let is = posted.remove(id).unwrap_or_default();
        if is != meant {
            findings.push(Finding::of(id, format!("is posted as {is:?} instead of {meant:?}")));
        }
    }
}

/// Outbound transfers from a payment's own wallet need no reservation.
fn kinds(out: &Outgoing) -> &'static [&'static str] {
    match (out.is_refused, out.is_from_wallet()) {
        (false, false) => &["reserved", "sent"],
        (true, false) => &["reserved", "returned"],
        (false, true) => &["sent"],
        (true, true) => &[],
    }
}

/// Checks that the operator's own check reports no problem.
pub(super) fn reconciled(evidence: &Evidence, findings: &mut Findings) {
    findings.extend(evidence.ledger.complaint.iter().map(|complaint| Finding::of("payferry reconcile", complaint)));
}
