//! The verdict on each payment: what was expected, what was found.
//!
//! Pure: reads the records and, if there was one, the audit.

use payferry_domain::payment::EventName;
use serde::Serialize;

use super::audit::Audit;
use super::behaviour::Behaviour;
use super::expect;
use super::record::Record;

/// What is wrong with a payment.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Kind {
    /// It was acknowledged, and is not there.
    Lost,
    /// It is not as it must be, or something was told that must not be.
    Wrong,
    /// It is as it must be, and not everything was told.
    Undelivered,
    /// The load tester itself could not pay it, so that nothing can be said about it.
    Unpaid,
}

impl Kind {
    /// Its name.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Lost => "lost",
            Self::Wrong => "wrong",
            Self::Undelivered => "undelivered",
            Self::Unpaid => "unpaid",
        }
    }
}

/// One payment that is not as it must be, or (without an id) something that belongs to none.
#[derive(Debug, Clone, Serialize)]
pub struct Finding {
    /// The payment.
    pub payment_id: Option<String>,
    /// What is wrong.
    pub kind: Kind,
    /// What its payer did.
    pub payer: Option<Behaviour>,
    /// What must be.
    pub expected: String,
    /// What is.
    pub found: String,
}

impl Finding {
    /// Something that is wrong and belongs to no payment.
    pub fn of_none(expected: &str, found: String) -> Self {
        Self { payment_id: None, kind: Kind::Wrong, payer: None, expected: expected.to_owned(), found }
    }
}

/// Everything that is wrong, the worst first.
pub fn findings(records: &[Record], audit: &Audit, forged: &[String]) -> Vec<Finding> {
    let of_payments = (0..).zip(records).filter_map(|(number, record)| judge(record, audit.shown.get(&number)));
    let homeless = audit.homeless.iter().map(|what| Finding::of_none("nothing of the kind", what.clone()));
    let mut findings: Vec<Finding> = of_payments.chain(homeless).chain(of_forged(forged)).collect();
    findings.sort_by_key(|finding| finding.kind);
    findings
}

/// What is known to be wrong although nothing was read back: faults that nothing to come could mend.
pub fn known(records: &[Record], forged: &[String]) -> Vec<Finding> {
    let of_payments = records.iter().filter_map(|record| {
        let (kind, found) = match &record.unsent {
            _ if !record.faults.is_empty() => (Kind::Wrong, record.faults.join("; ")),
            Some(why) => (Kind::Unpaid, format!("its payer could not pay: {why}")),
            None => return None,
        };
        of_payment(record, kind, found)
    });
    let mut findings: Vec<Finding> = of_payments.chain(of_forged(forged)).collect();
    findings.sort_by_key(|finding| finding.kind);
    findings
}

fn of_forged(forged: &[String]) -> impl Iterator<Item = Finding> + '_ {
    forged.iter().map(|what| Finding::of_none("genuine webhooks only", format!("a webhook {what}")))
}

fn judge(record: &Record, shown: Option<&String>) -> Option<Finding> {
    record.made?;
    let missing = record.missing();
    let (kind, found) = match (shown, &record.unsent) {
        (None, _) => (Kind::Lost, "the service has no such payment any more".to_owned()),
        (Some(_), _) if !record.faults.is_empty() => (Kind::Wrong, record.faults.join("; ")),
        (Some(shown), Some(why)) => (Kind::Unpaid, format!("{shown}; its payer could not pay: {why}")),
        (Some(shown), None) if !missing.is_empty() => {
            let missing: Vec<String> = missing.iter().map(|(name, place)| format!("{name} (event {place})")).collect();
            (Kind::Undelivered, format!("{shown}; never came: {}", missing.join(", ")))
        }
        _ => return None,
    };
    of_payment(record, kind, found)
}

fn of_payment(record: &Record, kind: Kind, found: String) -> Option<Finding> {
    let payment_id = Some(record.made?.id.to_string());
    Some(Finding { payment_id, kind, payer: Some(record.intent.behaviour), expected: expected(record), found })
}

fn expected(record: &Record) -> String {
    let behaviour = record.intent.behaviour;
    let ends = expect::ends(behaviour);
    let mut text = ends.status.to_string();
    if let Some(reason) = ends.failure_reason {
        text = format!("{text} ({reason})");
    }
    for label in ends.labels {
        text = format!("{text} {label}");
    }
    let names: Vec<&str> = expect::events(behaviour).iter().map(|event| EventName::as_str(event.name)).collect();
    let received = record.intent.pays().unwrap_or_default();
    format!("{text}, {received} of {} received; told: {}", record.intent.amount, names.join(", "))
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use alloy::primitives::Address;
    use payferry_domain::{EventId, PaymentId, Timestamp};
    use tokio::time::Instant;

    use super::*;
    use crate::load::behaviour::Intent;
    use crate::load::record::MadeAt;

    fn record(behaviour: Behaviour) -> Record {
        let due_at = Timestamp::from_secs(1_000_000);
        let mut record = Record::new(Intent::nth(5, behaviour), Instant::now(), due_at, 100);
        let at = Instant::now();
        record.made = Some(MadeAt { id: PaymentId::generate(), wallet: Address::ZERO, at });
        record.heard.iter_mut().for_each(|heard| *heard = Some(EventId::generate()));
        record
    }

    #[test]
    fn each_payment_that_is_not_as_it_must_be_is_named() {
        let well = record(Behaviour::Exact);
        let lost = record(Behaviour::Over);
        let mut wrong = record(Behaviour::Never);
        wrong.fault("reads back with status `pending`, not `failed`".to_owned());
        let mut untold = record(Behaviour::Exact);
        untold.heard[2] = None;
        let mut unpaid = record(Behaviour::Under);
        unpaid.unsent = Some("the node is away".to_owned());
        unpaid.heard = vec![None; 3];
        let mut refused = record(Behaviour::Exact);
        refused.made = None;
        let records = [well, untold, lost, wrong, unpaid, refused];
        let shown = [0, 1, 3, 4].map(|number| (number, "settled, 5.05 of 5.05 received".to_owned())).into();
        let audit = Audit { shown, homeless: vec!["pay_X is there".to_owned()], ..Audit::default() };
        let found = findings(&records, &audit, &["evt_1: forged".to_owned()]);
        let id = |number: usize| Some(records[number].made.unwrap().id.to_string());
        let told: Vec<_> = found.iter().map(|finding| (finding.kind, finding.payment_id.clone())).collect();
        assert_eq!(
            told,
            [
                (Kind::Lost, id(2)),
                (Kind::Wrong, id(3)),
                (Kind::Wrong, None),
                (Kind::Wrong, None),
                (Kind::Undelivered, id(1)),
                (Kind::Unpaid, id(4)),
            ]
        );
        let untold = &found[4];
        assert_eq!(
            untold.expected,
            "settled, 5.05 of 5.05 received; told: payment.confirmed, payin.confirmed, payment.settled, payin.settled"
        );
        assert!(untold.found.ends_with("never came: payment.settled (event 3)"), "{}", untold.found);
        assert_eq!(
            found[0].expected,
            "mismatched OVERPAID, 6.05 of 5.05 received; told: payment.mismatched, payin.mismatched"
        );
        // Before anything was read back, what is lost or untold is not known.
        let known = known(&records, &["evt_1: forged".to_owned()]);
        let told: Vec<_> = known.iter().map(|finding| (finding.kind, finding.payment_id.clone())).collect();
        assert_eq!(told, [(Kind::Wrong, id(3)), (Kind::Wrong, None), (Kind::Unpaid, id(4))]);
        assert_eq!(known[0].found, "reads back with status `pending`, not `failed`");
    }
}
