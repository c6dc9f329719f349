//! Events: each was published as expected and delivered.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::time::Duration;

use serde_json::Value;

use super::super::evidence::Evidence;
use super::super::report::{Finding, Findings};
use super::money::address;
use super::text;
use crate::psp::decimal;
use crate::receiver::Delivery;

fn by_payment(feed: &[Value]) -> BTreeMap<&str, Vec<&Value>> {
    let mut payments: BTreeMap<&str, Vec<&Value>> = BTreeMap::new();
    for event in feed {
        payments.entry(text(event, "payment_id")).or_default().push(event);
    }
    payments
}

/// Checks that each payment's events are numbered 1, 2, 3, ... in the order of the feed, and that event ids are unique.
pub(super) fn sequences(evidence: &Evidence, findings: &mut Findings) {
    for (id, events) in by_payment(&evidence.feed) {
        let sequence: Vec<u64> = events.iter().map(|event| event["sequence"].as_u64().unwrap_or_default()).collect();
        if !sequence.iter().zip(1..).all(|(found, meant)| *found == meant) {
            findings.push(Finding::of(id, format!("its events are numbered {sequence:?}")));
        }
    }
    let mut seen = HashSet::new();
    for event in evidence.feed.iter().filter(|event| !seen.insert(text(event, "event_id"))) {
        let what = format!("event {} is in the feed twice", text(event, "event_id"));
        findings.push(Finding::of(text(event, "payment_id"), what));
    }
}

/// Checks that each refund, payout and withdrawal published the expected events once, without contradictions.
pub(super) fn money_out(evidence: &Evidence, findings: &mut Findings) {
    let mut announced: BTreeMap<&str, Vec<&Value>> = BTreeMap::new();
    for event in &evidence.feed {
        let about = if is_of_refund(event) { text(event, "refund_id") } else { text(event, "payment_id") };
        announced.entry(about).or_default().push(event);
    }
    for out in evidence.outgoing() {
        let Some(id) = out.creation.id() else { continue };
        let found = announced.remove(id).unwrap_or_default();
        let names: Vec<&str> = found.iter().map(|event| text(event, "event")).collect();
        if names != out.announces() {
            findings.push(Finding::of(id, format!("announced {names:?} instead of {:?}", out.announces())));
        }
        for event in &found {
            let notified = address(&event[out.address_field()]);
            if notified != Some(out.to) {
                findings.push(Finding::of(id, format!("must go to {} and announced {event}", out.to)));
            }
        }
        let shown = out.creation.read.as_ref().map_or(&Value::Null, |read| &read["tx_hash"]);
        for event in
            found.into_iter().filter(|event| text(event, "event").split_once('.').is_some_and(|(_, did)| did == "sent"))
        {
            if event["tx_hash"] != *shown || event[out.amount_field()] != decimal(out.units) {
                findings.push(Finding::of(id, format!("announced {event} and shows transaction {shown}")));
            }
        }
    }
    for (id, found) in announced.into_iter().filter(|(_, found)| found.iter().any(|event| is_of_refund(event))) {
        findings.push(Finding::of(id, format!("announced {} refunds that no request asked for", found.len())));
    }
}

fn is_of_refund(event: &Value) -> bool {
    text(event, "event").starts_with("refund.")
}

/// Checks that each payment published the expected events once.
pub(super) fn names(evidence: &Evidence, findings: &mut Findings) {
    let announced = by_payment(&evidence.feed);
    for story in &evidence.stories {
        let Some(id) = story.creation.id() else { continue };
        let mut counts: BTreeMap<&str, u32> = BTreeMap::new();
        for event in announced.get(id).into_iter().flatten().filter(|event| !is_of_refund(event)) {
            *counts.entry(text(event, "event")).or_default() += 1;
        }
        let ends = story.intent.behaviour.ends();
        let mut wrong = |what: String| findings.push(Finding::of(id, what));
        for name in ends.announces.iter().filter(|name| !counts.contains_key(**name)) {
            wrong(format!("never announced {name}"));
        }
        for (name, count) in counts {
            let allowed = ends.announces.contains(&name) || ends.may_announce.contains(&name);
            if !allowed || count > 1 {
                wrong(format!("announced {name} {count} times"));
            }
        }
    }
    let orders = evidence.orders.iter().filter_map(|out| out.creation.id());
    let known: HashSet<&str> = evidence.stories.iter().filter_map(|story| story.creation.id()).chain(orders).collect();
    for id in announced.keys().filter(|id| !known.contains(**id)) {
        findings.push(Finding::of(*id, "announced events although no request was answered with it"));
    }
}

/// Longest time from the arrival of a delivery until its outcome is stored, on a busy machine.
const OUTCOME_STORED_MAX: Duration = Duration::from_secs(3);
/// Longest time that a request of a killed process is on its way.
const ARRIVES_MAX: Duration = Duration::from_secs(1);

/// Returns true if a process was killed or frozen while its outcome of a delivery may have been missing.
fn was_in_flight(evidence: &Evidence, delivery: &Delivery) -> bool {
    let stored = delivery.at + OUTCOME_STORED_MAX;
    evidence.interrupted_at.iter().any(|at| *at + ARRIVES_MAX >= delivery.at && *at < stored)
}

/// Checks that each event was delivered and accepted under its own id, always with the body from the feed, and once
/// unless it was in flight when a process was killed or frozen.
pub(super) fn deliveries(evidence: &Evidence, findings: &mut Findings) {
    for id in &evidence.unverified {
        findings.push(Finding::of(id, "was delivered with a signature that does not verify"));
    }
    let mut by_id: HashMap<&str, Vec<&Delivery>> = HashMap::new();
    for delivery in &evidence.deliveries {
        by_id.entry(&delivery.webhook_id).or_default().push(delivery);
    }
    for event in &evidence.feed {
        let (id, payment) = (text(event, "event_id"), text(event, "payment_id"));
        let name = text(event, "event");
        let mut wrong = |what: String| findings.push(Finding::of(payment, what));
        let Some(delivered) = by_id.remove(id) else {
            wrong(format!("{name} ({id}) was never delivered"));
            continue;
        };
        if !delivered.iter().any(|delivery| delivery.answered == 200) {
            let after = |delivery: &&Delivery| format!("{:.1}", (delivery.at - delivered[0].at).as_secs_f64());
            let times: Vec<String> = delivered.iter().map(after).collect();
            wrong(format!("{name} ({id}) was refused after {} s and never accepted", times.join(", ")));
        }
        let accepted: Vec<&&Delivery> = delivered.iter().filter(|delivery| delivery.answered == 200).collect();
        for again in accepted.windows(2) {
            if !was_in_flight(evidence, again[0]) {
                let after = (again[1].at - again[0].at).as_secs_f64();
                wrong(format!(
                    "{name} ({id}) was accepted and delivered again after {after:.1} s without an interruption"
                ));
            }
        }
        let body = &delivered[0].body;
        if let Some(other) = delivered.iter().find(|delivery| delivery.body != *body) {
            wrong(format!("{name} ({id}) was delivered with two bodies: {body} and {}", other.body));
        }
        if serde_json::from_str::<Value>(body).ok().as_ref() != Some(event) {
            wrong(format!("{name} ({id}) was delivered as {body} and is in the feed as {event}"));
        }
    }
    for (id, delivered) in by_id {
        let body: Value = serde_json::from_str(&delivered[0].body).unwrap_or_default();
        findings.push(Finding::of(text(&body, "payment_id"), format!("{id} was delivered and is not in the feed")));
    }
}
