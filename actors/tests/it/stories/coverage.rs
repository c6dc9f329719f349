//! Coverage of the story table: each row of the interface's table of payments, each event that it names, and each known
//! problem of other providers occurs in a story row. The player checks a row's outcome when it plays it.

use std::collections::{BTreeMap, BTreeSet};

use super::script::{self, Row};
use super::table::FILES;

/// Minimum number of rows in the table.
const ROWS_MIN: usize = 60;

/// Table of payments: name, and from, fact, to.
const TRANSITIONS: [(&str, &str); 21] = [
    ("exact", "pending: net = amount, or within tolerance -> confirmed"),
    ("short", "pending: net < amount after a transfer counted -> mismatched UNDERPAID"),
    ("completed", "mismatched UNDERPAID: a further in-time transfer completes net, no refund accepted -> confirmed"),
    ("over", "pending, mismatched UNDERPAID: net > amount -> mismatched OVERPAID, or what the policy says"),
    ("accepted", "mismatched: the PSP accepts -> confirmed for net"),
    ("refunded", "mismatched: the PSP refunds all -> mismatched, nothing left to settle"),
    ("blocked", "pending: blocked money only, and at least what was due -> failed kyt_blocked"),
    ("tainted-dust", "pending: a blocked transfer smaller than what is due -> pending FUNDS_BLOCKED"),
    ("review", "pending: verdict review -> pending IN_REVIEW, expiry waits, the operator decides"),
    ("expired", "pending: expired, nothing counted -> failed expired; mismatched if wrong money is held"),
    ("short-expired", "mismatched UNDERPAID: the same -> stays mismatched, completes no more automatically"),
    ("cancelled", "pending: the PSP cancels, no transfer recorded -> failed cancelled"),
    ("late", "failed expired or cancelled, mismatched past its time: money arrives -> mismatched LATE"),
    ("excess", "confirmed, settled: more money arrives -> unchanged, EXCESS, refundable"),
    ("more-after-block", "failed kyt_blocked: more money arrives -> unchanged, listed, the operator decides"),
    ("wrong-money", "any: wrong token or chain arrives -> unchanged, labelled, recoverable"),
    ("settled", "confirmed: settlement mined and final -> settled"),
    ("settlement-fails", "confirmed: settlement reverts for a lasting reason -> SETTLEMENT_FAILED, retried"),
    ("failed-refunded", "confirmed SETTLEMENT_FAILED: the PSP refunds all -> failed settlement_failed"),
    ("orphaned", "confirmed: its transfer is orphaned -> pending REORGED"),
    ("settlement-orphaned", "settled: settlement orphaned -> broadcast again; without the transfer pending REORGED"),
];

/// Texts that a row must contain to show a transition, in its outcome or in a step with its condition: all of these,
/// each in one of its forms.
const SHOWN_BY: [(&str, &[&str]); TRANSITIONS.len()] = [
    ("exact", &["pending, confirmed, settled", "payment.confirmed payin.confirmed"]),
    ("short", &["-> mismatched UNDERPAID", "pending, mismatched (underpaid)", "payment.mismatched payin.underpaid"]),
    ("completed", &["mismatched (underpaid), confirmed | mismatched (underpaid), mismatched (more_received)"]),
    (
        "over",
        &[
            "pending, mismatched (overpaid) | pending, confirmed (overpaid)",
            "labels: OVERPAID",
            "events: payment.mismatched payin.mismatched",
        ],
    ),
    ("accepted", &["accept", "confirmed (accepted), settled"]),
    ("refunded", &["-> refund=sent", "-> refused nothing_to_accept", "sent 4.00 from payment"]),
    ("blocked", &["pending, failed (kyt_blocked)", "labels: FUNDS_BLOCKED", "payment.failed payin.failed"]),
    ("tainted-dust", &["-> pending FUNDS_BLOCKED", "pending, confirmed, settled"]),
    ("review", &["IN_REVIEW", "pending, confirmed, settled | pending, failed (kyt_blocked)"]),
    ("expired", &["pending, failed (expired) | pending, mismatched (wrong_money)"]),
    ("short-expired", &["-> passed", "mismatched (underpaid), mismatched (late)"]),
    ("cancelled", &["failed (cancelled) | -> refused transfer_recorded"]),
    ("late", &["mismatched (late)", "labels: LATE", "payment.mismatched payin.mismatched"]),
    ("excess", &["(more_received)", "labels: MULTIPLE EXCESS", "payment.mismatched payin.mismatched"]),
    ("more-after-block", &["pending, failed (kyt_blocked)", "transfers=2", "received 10.00, received 5.00"]),
    (
        "wrong-money",
        &["labels: WRONG_TOKEN | labels: WRONG_CHAIN", "events: payment.mismatched | payin.settled payment.mismatched"],
    ),
    ("settled", &["confirmed, settled", "payment.settled payin.settled", "settled 9.90, fee 0.10"]),
    ("settlement-fails", &["payin.settlement_failed", "confirmed (settlement_failed), settled"]),
    ("failed-refunded", &["failed (settlement_failed)", "payment.failed refund.sent", "sent 10.00 from payment"]),
    ("orphaned", &["-> pending REORGED", "pending (reorged)", "payment.reorged", "orphaned "]),
    ("settlement-orphaned", &["settled (reorged) | pending (reorged)", "payment.reorged", "settlement_reversed 9.90"]),
];
/// Separator between alternative forms.
const OR: &str = " | ";

/// Known problems of other providers' users.
const PAINS: [(&str, &str); 17] = [
    ("late-lost", "late payments lost once monitoring stops"),
    ("rpc-limits", "RPC limits lose deposits"),
    ("never-credited", "deposit seen, never credited"),
    ("equal-amounts", "two orders on one address, equal amounts confused"),
    ("short-by-fees", "short by the sender's fees"),
    ("amounts-missing", "over and under amounts missing from webhooks"),
    ("silent-end", "no event for expiry or cancel"),
    ("duplicates", "duplicate or looping webhooks"),
    ("endpoint-silent", "endpoint silent after failures, no response code in the log"),
    ("second-payment", "second payment to a paid invoice"),
    ("excess-refund", "refund of just the excess, partial refunds"),
    ("reorg-after-paid", "reorg after paid"),
    ("unrecorded-payout", "payout broadcast but not recorded"),
    ("unswept", "received but balance 0 (unswept, no gas)"),
    ("fixed-confirmations", "confirmations by a fixed block count take minutes"),
    ("queue-outside", "webhook queue outside the database loses its place"),
    ("address-collisions", "deposit address from 8 bytes of the id: collisions after hundreds"),
];

/// Events of the interface: its table of sixteen, and the four of the payment flow.
const EVENTS: [&str; 20] = [
    "payin.confirmed",
    "payin.settled",
    "payin.settlement_failed",
    "payin.failed",
    "payin.mismatched",
    "payin.underpaid",
    "payout.pending",
    "payout.sent",
    "payout.failed",
    "withdraw.sent",
    "withdraw.failed",
    "refund.sent",
    "refund.failed",
    "transfer.settled",
    "transfer.failed",
    "transfer.underpaid",
    "payment.confirmed",
    "payment.settled",
    "payment.mismatched",
    "payment.failed",
];
/// Additional events of Payferry.
const OUR_EVENTS: [&str; 3] = ["payment.reorged", "transfer.mismatched", "transfer.reorged"];

fn rows() -> Vec<Row> {
    FILES.iter().flat_map(|file| script::read(file)).collect()
}

#[test]
fn every_transition_and_every_problem_has_a_row() {
    let rows = rows();
    assert!(rows.len() >= ROWS_MIN, "there are {} rows", rows.len());
    let said = |kind: &str, all: &[(&str, &str)]| -> BTreeSet<String> {
        all.iter().map(|(name, _)| format!("{kind}/{name}")).collect()
    };
    let mut wanted = said("api", &TRANSITIONS);
    wanted.extend(said("peers", &PAINS));
    let mut covered: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for row in &rows {
        for name in &row.covers {
            covered.entry(name.clone()).or_default().push(row.place.to_string());
        }
    }
    let found: BTreeSet<String> = covered.keys().cloned().collect();
    assert_eq!(found, wanted, "transitions and problems covered by rows, and the known ones");
}

#[test]
fn rows_show_the_transitions_that_they_cover() {
    let mut wrong = Vec::new();
    for row in rows() {
        let steps = row.steps.iter().map(|step| format!("{} -> {}", step.words.join(" "), step.then.join(" ")));
        let lines: Vec<String> = steps.chain(row.expected.iter().cloned()).collect();
        for name in row.covers.iter().filter_map(|name| name.strip_prefix("api/")) {
            let (_, wanted) =
                SHOWN_BY.iter().find(|(known, _)| *known == name).expect("every transition has texts that show it");
            let is_said = |what: &&&str| what.split(OR).any(|form| lines.iter().any(|line| line.contains(form)));
            let missing: Vec<_> = wanted.iter().filter(|what| !is_said(what)).collect();
            if !missing.is_empty() {
                wrong.push(format!("{} covers api/{name} but lacks {missing:?}", row.place));
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn rows_emit_exactly_the_events_of_the_interface() {
    let mut emitted = BTreeSet::new();
    for row in rows() {
        let notified = row.expected.iter().filter_map(|line| line.split_once(" events: "));
        emitted.extend(notified.flat_map(|(_, events)| events.split(' ').map(str::to_owned).collect::<Vec<_>>()));
    }
    let wanted: BTreeSet<String> = EVENTS.iter().chain(&OUR_EVENTS).map(|name| (*name).to_owned()).collect();
    assert_eq!(emitted, wanted);
}

#[test]
fn row_titles_are_unique() {
    let mut seen = BTreeMap::new();
    for row in rows() {
        if let Some(other) = seen.insert(row.title.clone(), row.place.clone()) {
            panic!("{} and {other} have the same title {}", row.place, row.title);
        }
    }
}
