//! Verdict on each payment: expected and found.
//!
//! Pure: reads the state of the run and, if there was one, the audit.

use crate::wire::EventName;
use serde::Serialize;

use super::Audit;
use super::behaviour::Behaviour;
use super::expect;
use super::outbound::OutboundKind;
use super::record::Record;
use super::state::Inner;

/// Largest number of findings in a summary.
const SUMMARY_MAX: usize = 20;

crate::names! {
    /// Kind of a finding, the worst first.
    FindingKind, "a kind of finding" {
        /// The payment was acknowledged and does not exist.
        Lost = "lost",
        /// The payment is not as expected, or has an unexpected event.
        Wrong = "wrong",
        /// The payment is as expected, and webhooks are missing.
        Undelivered = "undelivered",
        /// The load tester could not pay it, so there is no verdict.
        Unpaid = "unpaid",
    }
}

/// A payment that is not as expected, or (without an id) a fault that belongs to no payment.
#[derive(Debug, Clone, Serialize)]
pub struct Finding {
    /// Id of the payment.
    pub payment_id: Option<String>,
    /// Kind.
    pub kind: FindingKind,
    /// Behaviour of the payer.
    pub payer: Option<Behaviour>,
    /// Expected state.
    pub expected: String,
    /// Found state.
    pub found: String,
    /// True if webhooks are missing, so that the service's delivery log is useful.
    #[serde(skip)]
    pub lacks_webhooks: bool,
    /// True if the service may only be too slow.
    #[serde(skip)]
    pub is_late: bool,
}

impl Finding {
    /// Makes a finding that belongs to no payment.
    pub fn of_none(expected: &str, found: String) -> Self {
        Self {
            payment_id: None,
            kind: FindingKind::Wrong,
            payer: None,
            expected: expected.to_owned(),
            found,
            lacks_webhooks: false,
            is_late: false,
        }
    }
}

/// Describes the first findings, one line each.
pub fn summary(findings: &[Finding]) -> Vec<String> {
    let line = |Finding { payment_id, kind, expected, found, .. }: &Finding| {
        format!("{} {}: {found}; expected {expected}", kind.as_str(), payment_id.as_deref().unwrap_or("-"))
    };
    let left = findings.len().saturating_sub(SUMMARY_MAX);
    let more = (left > 0).then(|| format!("and {left} more"));
    findings.iter().take(SUMMARY_MAX).map(line).chain(more).collect()
}

/// Returns all findings, the worst first. `unwanted` is the result of [`unwanted`].
pub fn findings(records: &[Record], audit: &Audit, unwanted: Vec<Finding>) -> Vec<Finding> {
    let of_payments = (0..).zip(records).filter_map(|(number, record)| judge(record, audit.shown.get(&number)));
    let unassigned = audit.unassigned.iter().map(|what| Finding::of_none("no such fault", what.clone()));
    let maybe_late = audit
        .maybe_late
        .iter()
        .map(|what| Finding { is_late: true, ..Finding::of_none("no such fault", what.clone()) });
    sorted(of_payments.chain(unassigned).chain(maybe_late).chain(unwanted))
}

/// Returns the findings that are certain without reading back: faults that no later event could resolve.
pub fn known(records: &[Record], unwanted: Vec<Finding>) -> Vec<Finding> {
    let of_payments = records.iter().filter_map(|record| {
        let faults = faults(record, None);
        match &record.unsent {
            _ if !faults.is_empty() => of_payment(record, FindingKind::Wrong, faults.join("; ")),
            Some(why) => of_payment(record, FindingKind::Unpaid, format!("its payer could not pay: {why}")),
            None => None,
        }
    });
    sorted(of_payments.chain(unwanted))
}

/// Returns findings about unwanted webhooks: forged ones and, if only this run uses the service, those of other
/// payments.
pub fn unwanted(inner: &Inner, is_alone: bool) -> Vec<Finding> {
    let forged = inner.forged.iter().map(|what| Finding::of_none("genuine webhooks only", format!("a webhook {what}")));
    let foreign = inner.foreign.iter().filter(|_| is_alone);
    let foreign = foreign.map(|what| Finding::of_none("webhooks of this run only", format!("a webhook {what}")));
    forged.chain(foreign).collect()
}

fn sorted(findings: impl Iterator<Item = Finding>) -> Vec<Finding> {
    let mut findings: Vec<Finding> = findings.collect();
    findings.sort_by_key(|finding| finding.kind);
    findings
}

fn judge(record: &Record, shown: Option<&String>) -> Option<Finding> {
    let faults = faults(record, shown);
    let (missing, missing_outbound) = (record.missing(), record.missing_outbound());
    // A payment that was not paid has no events.
    let lacks_webhooks = record.made.is_some() && record.unsent.is_none() && !missing.is_empty();
    // Without the payment's last events, the transfer was not requested.
    let lacks_outbound = record.made.is_some() && record.unsent.is_none() && !missing_outbound.is_empty();
    let never_came = (lacks_webhooks || lacks_outbound).then(|| {
        let missing = missing.iter().chain(&missing_outbound);
        let missing: Vec<String> = missing.map(|(name, place)| format!("{name} (event {place})")).collect();
        format!("missing: {}", missing.join(", "))
    });
    let (kind, found) = match (shown, &record.unsent) {
        (None, _) if record.made.is_some() => (FindingKind::Lost, "the service no longer has this payment".to_owned()),
        (Some(shown), _) if record.outbound.as_ref().is_some_and(|outbound| outbound.is_lost) => {
            let lost =
                format!("{shown}; the service no longer has the {}", record.expected_outbound().unwrap_or_default());
            (FindingKind::Lost, std::iter::once(lost).chain(faults).collect::<Vec<_>>().join("; "))
        }
        _ if !faults.is_empty() => {
            (FindingKind::Wrong, faults.into_iter().chain(never_came).collect::<Vec<_>>().join("; "))
        }
        (None, _) if record.reported_id.is_some() => {
            (FindingKind::Lost, "webhooks reported it, but the service does not have it".to_owned())
        }
        (Some(shown), Some(why)) => (FindingKind::Unpaid, format!("{shown}; its payer could not pay: {why}")),
        (Some(shown), None) if record.is_outbound_refused() => {
            let why = record.outbound.as_ref().and_then(|outbound| outbound.not_made.as_ref());
            let why = why.map_or("no answer", |why| why.kind.as_str());
            let outbound = record.expected_outbound().unwrap_or_default();
            (FindingKind::Unpaid, format!("{shown}; the service did not accept the {outbound}: {why}"))
        }
        (Some(shown), None) => (FindingKind::Undelivered, format!("{shown}; {}", never_came?)),
        (None, _) => return None,
    };
    let lacks_webhooks = lacks_webhooks && kind != FindingKind::Lost;
    let is_late = kind == FindingKind::Unpaid || (record.is_late && kind != FindingKind::Lost);
    Some(Finding { lacks_webhooks, is_late, ..of_payment(record, kind, found)? })
}

/// Returns the faults of a payment. The existence of a payment that was refused or never requested is one.
fn faults(record: &Record, shown: Option<&String>) -> Vec<String> {
    let not_made = record.not_made.as_ref().filter(|why| !why.may_be_there && record.reported_id.is_some());
    let is_there = not_made.map(|why| {
        let how = shown.map_or_else(|| "webhooks report it".to_owned(), |shown| format!("exists: {shown}"));
        format!("was not made ({}), but {how}", why.kind)
    });
    is_there.into_iter().chain(record.faults.iter().cloned()).collect()
}

fn of_payment(record: &Record, kind: FindingKind, found: String) -> Option<Finding> {
    let payment_id = Some(record.id()?.to_string());
    let payer = Some(record.intent.behaviour);
    Some(Finding { payment_id, kind, payer, expected: expected(record), found, lacks_webhooks: false, is_late: false })
}

fn expected(record: &Record) -> String {
    if let Some(not_made) = &record.not_made {
        let statuses = expect::unpaid(record.intent.behaviour);
        let statuses = statuses.iter().map(|status| status.as_str()).collect::<Vec<_>>().join(" or ");
        let unpaid = format!("no payment, or {statuses}, 0.00 of {} received", record.intent.amount);
        return if not_made.may_be_there { unpaid } else { "no payment".to_owned() };
    }
    let behaviour = record.intent.behaviour;
    let ends = expect::ends(behaviour);
    let labels = ends.labels.iter().map(|label| label.as_str());
    let text = expect::state(ends.status.as_str(), ends.failure_reason, labels);
    let own = behaviour.outbound().map_or(&[][..], OutboundKind::events);
    let names = expect::events(behaviour).iter().map(|event| event.name).chain(own.iter().copied());
    let names: Vec<&str> = names.map(EventName::as_str).collect();
    let received = record.intent.paid_amount().unwrap_or_default();
    let outbound = record.expected_outbound().map(|outbound| format!("; {outbound}")).unwrap_or_default();
    format!("{text}, {received} of {} received{outbound}; webhooks: {}", record.intent.amount, names.join(", "))
}

#[cfg(test)]
mod tests {
    use crate::wire::{EventId, PaymentId};
    use serde_json::json;
    use tokio::time::Instant;

    use super::*;
    use crate::audit::record::InitiationFailure;
    use crate::audit::state::RunState;
    use crate::receiver::WebhookRequest;

    /// Makes a payment all of whose webhooks arrived.
    fn record(behaviour: Behaviour) -> Record {
        let mut record = super::super::record::tests::record(behaviour);
        record.events.iter_mut().for_each(|events| *events = Some(EventId::generate()));
        record
    }

    /// Returns the state of a run that received this request only.
    fn received(body: &serde_json::Value, verified: Result<(), &'static str>) -> RunState {
        let (state, _late) = RunState::new("0a1b2c3d", 0, 100);
        let (at, at_wall) = (Instant::now(), chrono::DateTime::UNIX_EPOCH);
        let (webhook_id, body) = ("evt_1".to_owned(), body.to_string().into());
        state.receive(&WebhookRequest { at, at_wall, webhook_id, body, verified });
        state
    }

    fn forged() -> Vec<Finding> {
        let state = received(&json!({}), Err("forged"));
        unwanted(&state.read(), true)
    }

    #[test]
    fn names_each_wrong_payment() {
        let well = record(Behaviour::Exact);
        let lost = record(Behaviour::Over);
        let mut wrong = record(Behaviour::Never);
        wrong.fault("shows status `pending`, not `failed`".to_owned());
        let mut untold = record(Behaviour::Exact);
        untold.events[2] = None;
        let mut unpaid = record(Behaviour::Under);
        unpaid.unsent = Some("the node is away".to_owned());
        unpaid.events = vec![None; 3];
        let mut refused = record(Behaviour::Exact);
        refused.made = None;
        let records = [well, untold, lost, wrong, unpaid, refused];
        let shown = [0, 1, 3, 4].map(|number| (number, "settled, 5.05 of 5.05 received".to_owned())).into();
        let audit = Audit { shown, unassigned: vec!["pay_X is there".to_owned()], ..Audit::default() };
        let found = findings(&records, &audit, forged());
        let id = |number: usize| Some(records[number].made.unwrap().id.to_string());
        let reported: Vec<_> = found.iter().map(|finding| (finding.kind, finding.payment_id.clone())).collect();
        assert_eq!(
            reported,
            [
                (FindingKind::Lost, id(2)),
                (FindingKind::Wrong, id(3)),
                (FindingKind::Wrong, None),
                (FindingKind::Wrong, None),
                (FindingKind::Undelivered, id(1)),
                (FindingKind::Unpaid, id(4)),
            ]
        );
        let untold = &found[4];
        assert_eq!(
            untold.expected,
            "settled, 5.00 of 5.00 received; webhooks: payment.confirmed, payin.confirmed, payment.settled, payin.settled"
        );
        assert!(untold.found.ends_with("missing: payment.settled (event 3)"), "{}", untold.found);
        assert_eq!(
            found[0].expected,
            "mismatched OVERPAID, 6.00 of 5.00 received; webhooks: payment.mismatched, payin.mismatched"
        );
        // Without reading back, lost payments and missing webhooks are unknown.
        let known = known(&records, forged());
        let reported: Vec<_> = known.iter().map(|finding| (finding.kind, finding.payment_id.clone())).collect();
        assert_eq!(reported, [(FindingKind::Wrong, id(3)), (FindingKind::Wrong, None), (FindingKind::Unpaid, id(4))]);
        assert_eq!(known[0].found, "shows status `pending`, not `failed`");
    }

    #[test]
    fn a_wrong_payment_names_its_missing_webhooks() {
        let mut wrong = record(Behaviour::Exact);
        wrong.fault("a fault".to_owned());
        wrong.events[2..].fill(None);
        let mut unpaid = record(Behaviour::Exact);
        unpaid.fault("a fault".to_owned());
        (unpaid.unsent, unpaid.events) = (Some("the node is away".to_owned()), vec![None; 4]);
        let shown = [0, 1].map(|number| (number, "confirmed".to_owned())).into();
        let found = findings(&[wrong, unpaid], &Audit { shown, ..Audit::default() }, Vec::new());
        let reported: Vec<_> =
            found.iter().map(|finding| (finding.kind, finding.lacks_webhooks, finding.found.as_str())).collect();
        let never_came = "a fault; missing: payment.settled (event 3), payin.settled (event 4)";
        assert_eq!(reported, [(FindingKind::Wrong, true, never_came), (FindingKind::Wrong, false, "a fault")]);
    }

    #[test]
    fn a_refused_payment_must_not_exist() {
        let not_made = |may_be_there: bool| {
            let mut record = record(Behaviour::Exact);
            record.events = vec![None; 4];
            record.made = None;
            record.reported_id = Some(PaymentId::generate());
            record.not_made = Some(InitiationFailure { kind: "initiate: 503 overloaded".to_owned(), may_be_there });
            record
        };
        let mut strange = not_made(true);
        strange.fault("shows status `settled`, not `pending`".to_owned());
        // Unanswered and existing; refused with a webhook only; refused and existing; unanswered with a webhook and
        // gone.
        let records = [not_made(true), not_made(false), not_made(false), strange, not_made(true)];
        let shown = [0, 2, 3].map(|number| (number, "pending, 0.00 of 5.00 received".to_owned())).into();
        let found = findings(&records, &Audit { shown, ..Audit::default() }, Vec::new());
        let id = |number: usize| records[number].reported_id.map(|id| id.to_string());
        let reported: Vec<_> = found.iter().map(|one| (one.kind, one.payment_id.clone(), one.found.as_str())).collect();
        let refused = "was not made (initiate: 503 overloaded), but";
        let (events, there) =
            (format!("{refused} webhooks report it"), format!("{refused} exists: pending, 0.00 of 5.00 received"));
        assert_eq!(
            reported,
            [
                (FindingKind::Lost, id(4), "webhooks reported it, but the service does not have it"),
                (FindingKind::Wrong, id(1), events.as_str()),
                (FindingKind::Wrong, id(2), there.as_str()),
                (FindingKind::Wrong, id(3), "shows status `settled`, not `pending`"),
            ]
        );
        assert_eq!(found[1].expected, "no payment");
        let known = known(&records, Vec::new());
        let reported: Vec<_> = known.iter().map(|one| (one.kind, one.payment_id.clone())).collect();
        assert_eq!(reported, [1, 2, 3].map(|number| (FindingKind::Wrong, id(number))));
    }

    #[test]
    fn foreign_webhooks_are_wrong_only_in_a_sandbox_of_its_own() {
        let event = json!({
            "event": "payment.failed", "payment_id": "pay_other", "event_id": "evt_1", "timestamp": "2026-01-01T00:00:00Z",
        });
        let state = received(&event, Ok(()));
        assert!(unwanted(&state.read(), false).is_empty());
        let found = unwanted(&state.read(), true);
        assert_eq!(found[0].found, "a webhook payment.failed of pay_other (reference -)");
    }
}
