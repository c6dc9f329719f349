//! Transfers, settlements and balances.

use std::collections::{BTreeMap, HashMap};

use alloy::primitives::Address;
use payferry_domain::{Chain, Token};
use serde_json::Value;

use super::super::behaviour::Behaviour;
use super::super::evidence::Evidence;
use super::super::load::Story;
use super::super::report::{Finding, Findings};
use crate::psp::{decimal, units};

pub(super) fn wallet_of(made: &Value) -> Address {
    address(&made["intermediary_wallet"]).unwrap_or_default()
}

/// Parses an address in any letter case.
pub(super) fn address(shown: &Value) -> Option<Address> {
    shown.as_str()?.parse().ok()
}

fn list(read: &Value, key: &str) -> Vec<Value> {
    read[key].as_array().cloned().unwrap_or_default()
}

/// Checks that each sent transfer is in its payment's list once, final and counted as expected, and that the list has
/// no other.
pub(super) fn transfers(evidence: &Evidence, findings: &mut Findings) {
    let mut places: HashMap<(String, String), Vec<(&Story, Value)>> = HashMap::new();
    for story in &evidence.stories {
        let listed = story.creation.read.as_ref().map(|read| list(read, "transfers")).unwrap_or_default();
        // An orphaned entry is listed beside the entry of the transfer's new block.
        for transfer in listed.into_iter().filter(|transfer| transfer["status"] != "orphaned") {
            let text = |key: &str| transfer[key].as_str().unwrap_or_default().to_owned();
            places.entry((text("chain"), text("tx_hash"))).or_default().push((story, transfer));
        }
    }
    for story in &evidence.stories {
        let mut wrong = |what: String| findings.push(Finding::of(story.creation.name(), what));
        for sent in &story.sent {
            let hash = sent.tx_hash.to_string();
            let found = places.remove(&(sent.chain.to_string(), hash.clone())).unwrap_or_default();
            match &found[..] {
                [(listed_by, transfer)] => {
                    let counts = story.intent.behaviour != Behaviour::Tainted;
                    let good = listed_by.intent.key == story.intent.key
                        && transfer["amount"] == decimal(sent.units)
                        && transfer["status"] == "final"
                        && transfer["counted"] == counts;
                    if !good {
                        wrong(format!("its transfer of {} is listed as {transfer}", decimal(sent.units)));
                    }
                }
                [] => wrong(format!("its transfer {hash} of {} is not listed", decimal(sent.units))),
                several => wrong(format!("its transfer {hash} is listed {} times", several.len())),
            }
        }
        if let Some(read) = &story.creation.read {
            let counts = if story.intent.behaviour == Behaviour::Tainted { 0 } else { story.paid() };
            if units(&read["amount_received"]) != counts {
                wrong(format!("was paid {} and shows {} received", decimal(counts), read["amount_received"]));
            }
        }
    }
    for ((_, hash), listed_by) in places {
        for (story, _) in listed_by {
            findings
                .push(Finding::of(story.creation.name(), format!("lists a transfer {hash} that was not sent to it")));
        }
    }
}

/// Checks that each settled payment was settled on-chain once, with the amounts and transaction that it shows, and no
/// other.
pub(super) fn settlements(evidence: &Evidence, findings: &mut Findings) {
    let wallet = |story: &Story| story.creation.made.as_ref().map(wallet_of);
    let by_wallet: HashMap<Address, &Story> =
        evidence.stories.iter().filter_map(|story| Some((wallet(story)?, story))).collect();
    let mut on_chain: HashMap<Address, u32> = HashMap::new();
    for (chain, found) in &evidence.chains {
        for failed in &found.failed {
            findings.push(Finding::of(chain.as_str(), format!("{failed} on-chain")));
        }
        for log in &found.settled {
            *on_chain.entry(log.vault).or_default() += 1;
            let Some(story) = by_wallet.get(&log.vault) else {
                let what = format!("{} settled the vault of no payment, {}", log.tx_hash, log.vault);
                findings.push(Finding::of(chain.as_str(), what));
                continue;
            };
            let Some(read) = &story.creation.read else { continue };
            let shown = &read["settlement"];
            let good = read["chain"] == chain.as_str()
                && log.token == Some(story.intent.token)
                && log.psp_vault == found.psp_vault
                && shown["tx_hash"] == log.tx_hash.to_string()
                && shown["psp_amount"] == decimal(log.psp_amount)
                && shown["treasury_fee"] == decimal(log.treasury_fee)
                && story.paid() - story.refunded_from_wallet() == log.psp_amount + log.treasury_fee;
            if !good {
                let amounts = format!("{} + {}", decimal(log.psp_amount), decimal(log.treasury_fee));
                let what = format!("was settled for {amounts} in {} and shows {shown}", log.tx_hash);
                findings.push(Finding::of(story.creation.name(), what));
            }
        }
    }
    for story in &evidence.stories {
        let (Some(id), Some(wallet)) = (story.creation.id(), wallet(story)) else { continue };
        let times = on_chain.get(&wallet).copied().unwrap_or_default();
        let behaviour = story.intent.behaviour;
        let meant = u32::from(behaviour.ends().status == "settled" && !behaviour.is_transfer());
        if times != meant {
            findings.push(Finding::of(id, format!("was settled {times} times on-chain instead of {meant}")));
        }
    }
}

/// Checks that vaults, treasury and payment wallets hold the amounts that the payments show, and that no nonce is
/// missing.
pub(super) fn holdings(evidence: &Evidence, findings: &mut Findings) {
    let mut shares: BTreeMap<(Chain, Token), (i64, i64)> = BTreeMap::new();
    for story in &evidence.stories {
        let (Some(id), Some(made)) = (story.creation.id(), &story.creation.made) else { continue };
        let Some(chain) = made["chain"].as_str().and_then(|name| name.parse::<Chain>().ok()) else { continue };
        let settled = story.creation.read.as_ref().filter(|read| read["status"] == "settled");
        let settlement = settled.map(|read| &read["settlement"]);
        let amount =
            |key: &str| settlement.map_or(0, |shown| if shown[key].is_null() { 0 } else { units(&shown[key]) });
        let (psp_amount, treasury_fee) = (amount("psp_amount"), amount("treasury_fee"));
        let share = shares.entry((chain, story.intent.token)).or_default();
        *share = (share.0 + psp_amount, share.1 + treasury_fee);
        let Some(found) = evidence.chains.get(&chain) else { continue };
        let went = if story.intent.behaviour.is_transfer() { amount("amount") } else { psp_amount + treasury_fee };
        let meant = story.paid() - went - story.refunded_from_wallet();
        let held = found.held(story.intent.token, wallet_of(made));
        if held != meant {
            let what = format!("its wallet holds {} instead of {}", decimal(held), decimal(meant));
            findings.push(Finding::of(id, what));
        }
    }
    for out in evidence.outgoing().filter(|out| out.is_sent() && !out.is_from_wallet()) {
        shares.entry((out.chain, out.token)).or_default().0 -= out.units;
    }
    for (chain, found) in &evidence.chains {
        for (token, vault) in &found.vault {
            let treasury = found.treasury.get(token).copied().unwrap_or_default();
            let share = shares.get(&(*chain, *token)).copied().unwrap_or_default();
            for (whose, held, meant) in [("the PSP's vault", *vault, share.0), ("the treasury", treasury, share.1)] {
                if held != meant {
                    let what = format!("{whose} holds {} {token} instead of {}", decimal(held), decimal(meant));
                    findings.push(Finding::of(chain.as_str(), what));
                }
            }
        }
        for (signer, (latest, pending)) in ["settler", "sender"].into_iter().zip(found.nonces) {
            if latest != pending {
                let what = format!("the {signer}'s nonce is {latest}, and {pending} with pending transactions");
                findings.push(Finding::of(chain.as_str(), what));
            }
        }
    }
}
