//! The audit: compares requests, transfers, events, deliveries, settlements and outbound transfers, and reports every
//! payment and order with an inconsistency.
//!
//! A pure function of the evidence, so that it can be tested with injected faults.

mod announced;
mod books;
mod money;
mod money_out;
#[cfg(test)]
mod tests;

use std::collections::{HashMap, HashSet};

use serde_json::Value;

use super::evidence::Evidence;
use super::load::Story;
use super::report::{Finding, Findings};

pub use money_out::moved_out;

/// Fields of an acknowledgement that must never change.
const KEPT: [&str; 6] = ["amount", "currency", "chain", "token_address", "intermediary_wallet", "magic_link"];

/// Returns all findings.
pub fn audit(evidence: &Evidence) -> Findings {
    let mut findings = Findings::new();
    for story in &evidence.stories {
        acknowledged(story, &mut findings);
        ended(story, &mut findings);
        money_out::destination(story, &mut findings);
    }
    for out in evidence.outgoing() {
        money_out::acknowledged(out, &mut findings);
    }
    made_once(evidence, &mut findings);
    money_out::made_once(evidence, &mut findings);
    money::transfers(evidence, &mut findings);
    money::settlements(evidence, &mut findings);
    money::holdings(evidence, &mut findings);
    money_out::sent_once(evidence, &mut findings);
    money_out::movements(evidence, &mut findings);
    money_out::recipients(evidence, &mut findings);
    money_out::something_moved(evidence, &mut findings);
    books::balances(evidence, &mut findings);
    books::accounts(evidence, &mut findings);
    books::postings(evidence, &mut findings);
    books::reconciled(evidence, &mut findings);
    announced::sequences(evidence, &mut findings);
    announced::names(evidence, &mut findings);
    announced::money_out(evidence, &mut findings);
    announced::deliveries(evidence, &mut findings);
    findings
}

/// Checks that an acknowledged payment exists unchanged, and that a repeated request gets the same answer.
fn acknowledged(story: &Story, findings: &mut Findings) {
    let mut wrong = |what: String| findings.push(Finding::of(story.name(), what));
    if let Some(trouble) = &story.trouble {
        wrong(trouble.clone());
    }
    let Some(made) = &story.made else {
        if story.trouble.is_none() {
            wrong("was never answered".to_owned());
        }
        return;
    };
    let Some(read) = &story.read else {
        return wrong("was acknowledged and is lost".to_owned());
    };
    let same = |key: &str| made[key] == read[key];
    if !same("payment_id") || read["reference"] != story.intent.key.as_str() {
        wrong(format!("reads as {} of {}", read["payment_id"], read["reference"]));
    }
    for key in KEPT.into_iter().filter(|key| !same(key)) {
        wrong(format!("was acknowledged with {key} {} and reads {}", made[key], read[key]));
    }
    match &story.replayed {
        Some(replayed) if replayed == made => {}
        Some(replayed) => wrong(format!("the same request was answered {made} and then {replayed}")),
        None => wrong("the same request is now refused".to_owned()),
    }
}

/// Checks that the payment ended as its behaviour requires.
fn ended(story: &Story, findings: &mut Findings) {
    let Some(read) = &story.read else { return };
    let ends = story.intent.behaviour.ends();
    let reason = read["failure_reason"].as_str();
    if read["status"] != ends.status || reason != ends.failure_reason {
        let meant = ends.failure_reason.unwrap_or("no failure");
        let what = format!(
            "{:?} must end {} ({meant}) and is {} ({}), labels {}, {} received",
            story.intent.behaviour,
            ends.status,
            read["status"],
            read["failure_reason"],
            read["labels"],
            read["amount_received"],
        );
        findings.push(Finding::of(story.name(), what));
    }
    // REORGED is permitted: chains reorg blocks that are not final yet.
    let wrong_labels = ["SETTLEMENT_FAILED", "EXCESS", "LATE", "WRONG_TOKEN", "WRONG_CHAIN", "IN_REVIEW"];
    let labels = read["labels"].as_array().into_iter().flatten().filter_map(Value::as_str);
    for label in labels.filter(|label| wrong_labels.contains(label)) {
        findings.push(Finding::of(story.name(), format!("is labelled {label}")));
    }
}

/// Checks that every request created one payment, that no two requests share one, and that every payment has a request.
fn made_once(evidence: &Evidence, findings: &mut Findings) {
    let mut by_id: HashMap<&str, u32> = HashMap::new();
    for id in evidence.stories.iter().filter_map(Story::payment_id) {
        *by_id.entry(id).or_default() += 1;
    }
    for (id, _) in by_id.iter().filter(|(_, count)| **count > 1) {
        findings.push(Finding::of(*id, "answers several requests"));
    }
    let mut listed = HashSet::new();
    for id in &evidence.listed {
        if !listed.insert(id.as_str()) {
            findings.push(Finding::of(id, "is listed twice"));
        } else if !by_id.contains_key(id.as_str()) {
            findings.push(Finding::of(id, "exists although no request was answered with it"));
        }
    }
    for id in by_id.keys().filter(|id| !listed.contains(**id)) {
        findings.push(Finding::of(*id, "was acknowledged and is not listed"));
    }
}
