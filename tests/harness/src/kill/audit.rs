//! The audit: compares requests, transfers, events, deliveries, settlements and outbound transfers, and reports every
//! payment and order with an inconsistency.
//!
//! A pure function of the evidence, so that it can be tested with injected faults.

mod announced;
mod money;
mod money_out;
mod postings;
#[cfg(test)]
mod tests;

use serde_json::Value;

use super::creation::made_once;
use super::evidence::Evidence;
use super::load::Story;
use super::report::{Finding, Findings};

pub use money_out::moved_out;

/// Fields of an acknowledgement that must never change.
const KEPT: [&str; 6] = ["amount", "currency", "chain", "token_address", "intermediary_wallet", "magic_link"];

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
    let payments = evidence.stories.iter().map(|story| &story.creation);
    made_once(payments, evidence.listed.iter().map(String::as_str), &mut findings);
    made_once(evidence.outgoing().map(|out| &out.creation), money_out::listed(evidence), &mut findings);
    money::transfers(evidence, &mut findings);
    money::settlements(evidence, &mut findings);
    money::holdings(evidence, &mut findings);
    money_out::sent_once(evidence, &mut findings);
    money_out::movements(evidence, &mut findings);
    money_out::recipients(evidence, &mut findings);
    money_out::something_moved(evidence, &mut findings);
    postings::balances(evidence, &mut findings);
    postings::accounts(evidence, &mut findings);
    postings::postings(evidence, &mut findings);
    postings::reconciled(evidence, &mut findings);
    announced::sequences(evidence, &mut findings);
    announced::names(evidence, &mut findings);
    announced::money_out(evidence, &mut findings);
    announced::deliveries(evidence, &mut findings);
    findings
}

fn text<'a>(record: &'a Value, key: &str) -> &'a str {
    record[key].as_str().unwrap_or_default()
}

/// Checks that an acknowledged payment exists unchanged, and that a repeated request gets the same answer.
fn acknowledged(story: &Story, findings: &mut Findings) {
    let Some((made, read)) = story.creation.acknowledged(&KEPT, findings) else { return };
    if made["payment_id"] != read["payment_id"] || read["reference"] != story.intent.key.as_str() {
        let what = format!("reads as {} of {}", read["payment_id"], read["reference"]);
        findings.push(Finding::of(story.creation.name(), what));
    }
}

/// Checks that the payment ended as its behaviour requires.
fn ended(story: &Story, findings: &mut Findings) {
    let Some(read) = &story.creation.read else { return };
    let ends = story.intent.behaviour.ends();
    let reason = read["failure_reason"].as_str();
    if read["status"] != ends.status || reason != ends.failure_reason {
        let (behaviour, meant) = (story.intent.behaviour, ends.failure_reason.unwrap_or("no failure"));
        let is = format!("{} ({}), labels {}", read["status"], read["failure_reason"], read["labels"]);
        let received = &read["amount_received"];
        let what = format!("{behaviour:?} must end {} ({meant}) and is {is}, {received} received", ends.status);
        findings.push(Finding::of(story.creation.name(), what));
    }
    // REORGED is permitted: chains reorg blocks that are not final yet.
    let wrong_labels = ["SETTLEMENT_FAILED", "EXCESS", "LATE", "WRONG_TOKEN", "WRONG_CHAIN", "IN_REVIEW"];
    let labels = read["labels"].as_array().into_iter().flatten().filter_map(Value::as_str);
    for label in labels.filter(|label| wrong_labels.contains(label)) {
        findings.push(Finding::of(story.creation.name(), format!("is labelled {label}")));
    }
}
