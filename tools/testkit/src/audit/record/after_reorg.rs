//! Events of a payment whose chain was reorganised during the run: a reorganisation may undo a status, which is
//! announced again afterwards. Their number is not known in advance.
//!
//! Pure. Deliberately absent: the content of an event.

use std::collections::BTreeMap;

use super::{Novelty, Record};
use crate::audit::behaviour::Behaviour;
use crate::audit::expect::{self, ExpectedEvent};
use crate::receiver::WebhookEvent;
use crate::wire::{EventId, EventName, Status};

/// Largest number of events of one payment. More are a fault.
const EVENTS_MAX: u32 = 100;
/// Name of a missing event between others.
const SOME_EVENT: &str = "an event";

/// Events of a payment that may have been reorganised, by `sequence`.
#[derive(Debug, Default)]
pub(super) struct ReorgedEvents(BTreeMap<u32, Announced>);

#[derive(Debug, Clone, Copy)]
struct Announced {
    id: EventId,
    name: EventName,
    status: Status,
}

/// How far the events have announced a payment.
struct Progress {
    /// Next expected events. Empty if the expected end is announced.
    next: Vec<EventName>,
    /// Event that must not follow, in words.
    fault: Option<String>,
    /// Number of events without a gap.
    followed: u32,
}

impl ReorgedEvents {
    /// Takes the events so far, which are the first ones of the expected list.
    fn of(behaviour: Behaviour, events: &[Option<EventId>]) -> Self {
        let known = (1..).zip(events.iter().zip(expect::events(behaviour)));
        let announced = |(sequence, (id, expected)): (u32, (&Option<EventId>, &ExpectedEvent))| {
            Some((sequence, Announced { id: (*id)?, name: expected.name, status: expected.status }))
        };
        Self(known.filter_map(announced).collect())
    }

    fn progress(&self, behaviour: Behaviour) -> Progress {
        let groups = expect::groups(behaviour);
        // Groups that are announced, and events of the group that has begun.
        let (mut reached, mut within, mut followed) = (0, 0, 0);
        for (sequence, announced) in &self.0 {
            if *sequence != followed + 1 {
                break;
            }
            let next = groups.get(reached).map(|group: &&[ExpectedEvent]| group[within]);
            if within == 0 && reached > 0 && announced.name == EventName::PaymentReorged {
                reached = match announced.status {
                    Status::Pending => 0,
                    // The settlement was orphaned, and is announced again.
                    Status::Settled => reached - 1,
                    _ => reached,
                };
            } else if next.is_some_and(|next| next.name == announced.name) {
                within += 1;
                if within == groups[reached].len() {
                    (reached, within) = (reached + 1, 0);
                }
            } else {
                let wanted = next.map_or("no event", |next| next.name.as_str());
                let fault = format!("event {sequence} is {}, where {wanted} is expected", announced.name);
                return Progress { next: Vec::new(), fault: Some(fault), followed };
            }
            followed = *sequence;
        }
        let next = groups.iter().skip(reached).flat_map(|group| group.iter()).skip(within);
        Progress { next: next.map(|event| event.name).collect(), fault: None, followed }
    }

    pub(super) fn is_complete(&self, behaviour: Behaviour) -> bool {
        let progress = self.progress(behaviour);
        let last = self.0.keys().last().copied().unwrap_or(0);
        progress.fault.is_some() || (progress.next.is_empty() && progress.followed == last)
    }

    /// Returns the missing events with their positions: gaps, or what the end lacks.
    pub(super) fn missing(&self, behaviour: Behaviour) -> Vec<(&'static str, usize)> {
        let Progress { next, fault, followed } = self.progress(behaviour);
        let last = self.0.keys().last().copied().unwrap_or(0);
        if fault.is_some() {
            return Vec::new();
        }
        if followed == last {
            return (followed as usize + 1..).zip(next).map(|(place, name)| (name.as_str(), place)).collect();
        }
        let gaps = (1..last).filter(|sequence| !self.0.contains_key(sequence));
        gaps.map(|sequence| (SOME_EVENT, sequence as usize)).collect()
    }

    /// Returns true if an event before this one is missing.
    pub(super) fn lacks_before(&self, sequence: u32) -> bool {
        self.0.range(..sequence).count() + 1 < sequence as usize
    }

    /// Returns the fault of the order of events, if there is one.
    pub(super) fn fault(&self, behaviour: Behaviour) -> Option<String> {
        self.progress(behaviour).fault
    }

    /// Returns true if the service announced that the chain dropped money or a settlement of the payment.
    fn is_reorged(&self) -> bool {
        self.0.values().any(|announced| announced.name == EventName::PaymentReorged)
    }
}

impl Record {
    /// Records that the chain of the payment was reorganised, so that it may be announced again.
    pub fn chain_reorged(&mut self) {
        let known = || ReorgedEvents::of(self.intent.behaviour, &self.events);
        self.reorged = Some(self.reorged.take().unwrap_or_else(known));
    }

    /// Returns true if the chain of the payment was reorganised after it was due.
    pub const fn may_be_reorged(&self) -> bool {
        self.reorged.is_some()
    }

    /// Returns true if a webhook announced that the chain dropped money or a settlement of the payment.
    pub fn is_reorged(&self) -> bool {
        self.reorged.as_ref().is_some_and(ReorgedEvents::is_reorged)
    }

    /// Records an event of a payment whose chain was reorganised.
    pub(super) fn receive_reorged(&mut self, event: &WebhookEvent, id: EventId) -> Novelty {
        let (behaviour, sequence) = (self.intent.behaviour, event.sequence);
        let Some(known) = &mut self.reorged else { return Novelty::Wrong };
        if let Some(other) = known.0.get(&sequence) {
            if other.id == id {
                return Novelty::Repeated;
            }
            let fault = format!("event {sequence} arrived as {} and as {id} ({})", other.id, event.event);
            self.fault(fault);
            return Novelty::Wrong;
        }
        let (name, status) = (event.event.parse::<EventName>(), event.status.parse::<Status>());
        let (Ok(name), Ok(status), 1..=EVENTS_MAX) = (name, status, sequence) else {
            self.fault(format!("{} arrived as event {sequence} ({id}), with the status {}", event.event, event.status));
            return Novelty::Wrong;
        };
        let is_newest = known.0.keys().all(|other| *other < sequence);
        known.0.insert(sequence, Announced { id, name, status });
        let of_name = expect::events(behaviour).iter().find(|expected| expected.name == name);
        match of_name {
            Some(expected) => self.compare(event, *expected, is_newest),
            None if name == EventName::PaymentReorged => self.compare_reorged(event),
            // The order of events has the fault.
            None => {}
        }
        Novelty::New(name)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::audit::record::tests::{event, record};
    use crate::wire::Label;

    /// An event by its place in the expected list, or a reorganisation that leaves a payment with this status.
    enum Then {
        Event(usize),
        Reorged(Status),
    }
    use Then::{Event, Reorged};

    /// Makes the events in the order of their `sequence`.
    fn events(record: &Record, course: &[Then]) -> Vec<WebhookEvent> {
        let of = |(sequence, then): (u32, &Then)| {
            let event = match then {
                Event(place) => event(record, *place),
                Reorged(status) => WebhookEvent {
                    event: EventName::PaymentReorged.to_string(),
                    status: status.to_string(),
                    labels: vec![Label::Reorged.to_string()],
                    ..event(record, 0)
                },
            };
            WebhookEvent { sequence, ..event }
        };
        (1..).zip(course).map(of).collect()
    }

    /// Receives events of a payment whose chain was reorganised after the first `before` of them.
    fn received(behaviour: Behaviour, course: &[Then], before: usize, is_kept: impl Fn(u32) -> bool) -> Record {
        let mut record = record(behaviour);
        for (number, event) in events(&record, course).iter().enumerate() {
            if number == before {
                record.chain_reorged();
            }
            if is_kept(event.sequence) {
                record.receive(event, &event.event_id);
            }
        }
        record.close();
        record
    }

    #[test]
    fn a_reorganised_payment_is_announced_again() {
        use Behaviour::{Exact, Late, Under};
        let (reopened, unsettled) = (Reorged(Status::Pending), Reorged(Status::Settled));
        let again = [Event(0), Event(1), Event(2), Event(3), reopened, Event(0), Event(1), Event(2), Event(3)];
        let settlement = [Event(0), Event(1), Event(2), Event(3), unsettled, Event(2), Event(3)];
        let early = [Event(0), Event(1), Reorged(Status::Pending), Event(0), Event(1), Event(2), Event(3)];
        let under = [Event(0), Event(1), Event(2), Reorged(Status::Pending), Event(0), Event(1), Event(2)];
        let late = [Event(0), Event(1), Event(2), Event(3), Reorged(Status::Mismatched)];
        let usual = [Event(0), Event(1), Event(2), Event(3)];
        for (behaviour, course, is_reorged) in [
            (Exact, &again[..], true),
            (Exact, &settlement, true),
            (Exact, &early, true),
            (Under, &under, true),
            (Late, &late, true),
            (Exact, &usual, false),
        ] {
            for before in [0, 2] {
                let record = received(behaviour, course, before, |_| true);
                assert_eq!(record.faults, Vec::<String>::new(), "{behaviour:?}");
                assert!(record.is_complete() && record.missing().is_empty(), "{behaviour:?}: {:?}", record.missing());
                assert_eq!(record.is_reorged(), is_reorged);
                // Each lost webhook is missing, also the last one.
                for lost in before + 1..=course.len() {
                    let record = received(behaviour, course, before, |sequence| sequence as usize != lost);
                    let ends_with_it = matches!(course[lost - 1], Reorged(_)) && lost == course.len();
                    assert_eq!(record.is_complete(), ends_with_it, "{behaviour:?} {lost}: {:?}", record.missing());
                    assert!(ends_with_it || record.missing().iter().any(|(_, place)| *place == lost), "{lost}");
                }
            }
        }
    }

    #[test]
    fn events_out_of_order_and_repeated_are_no_faults() {
        let course = [Event(0), Event(1), Reorged(Status::Pending), Event(0), Event(1), Event(2), Event(3)];
        let mut record = record(Behaviour::Exact);
        record.chain_reorged();
        for event in events(&record, &course).iter().rev() {
            assert!(!record.is_complete());
            assert!(matches!(record.receive(event, &event.event_id), Novelty::New(_)), "{:?}", record.faults);
            assert_eq!(record.receive(event, &event.event_id), Novelty::Repeated);
        }
        record.close();
        assert!(record.is_complete() && record.faults.is_empty(), "{:?}", record.faults);
    }

    #[test]
    fn surplus_events_are_faults() {
        for (course, says) in [
            // A credit without a reorganisation before it.
            (
                &[Event(0), Event(1), Event(2), Event(3), Event(2)][..],
                "event 5 is payment.settled, where no event is expected",
            ),
            (&[Event(0), Event(1), Event(0)], "event 3 is payment.confirmed, where payment.settled is expected"),
            (&[Event(0), Event(2)], "event 2 is payment.settled, where payin.confirmed is expected"),
            (&[Reorged(Status::Pending)], "event 1 is payment.reorged, where payment.confirmed is expected"),
        ] {
            let record = received(Behaviour::Exact, course, 0, |_| true);
            assert!(record.faults.iter().any(|fault| fault == says), "{:?}", record.faults);
        }
        // Two events with one number.
        let mut record = received(Behaviour::Exact, &[Event(0)], 0, |_| true);
        let other = event(&record, 0);
        assert_eq!(record.receive(&other, &other.event_id), Novelty::Wrong);
        assert!(record.faults[0].contains("event 1 arrived as evt_"), "{:?}", record.faults);
        // Without a reorganisation of the chain, its event is a fault.
        let mut record = crate::audit::record::tests::record(Behaviour::Exact);
        let reorged = events(&record, &[Reorged(Status::Pending)]).remove(0);
        assert_eq!(record.receive(&reorged, &reorged.event_id), Novelty::Wrong);
    }

    #[test]
    fn values_are_compared_after_a_reorganisation() {
        let mut record = record(Behaviour::Exact);
        record.chain_reorged();
        let wrong = WebhookEvent { amount_received: "9.00".to_owned(), ..event(&record, 0) };
        record.receive(&wrong, &wrong.event_id);
        assert!(record.faults[0].contains("amount_received is `9.00`"), "{:?}", record.faults);
        let reorged = events(&record, &[Event(0), Reorged(Status::Pending)]).remove(1);
        let unlabelled = WebhookEvent { labels: Vec::new(), ..reorged };
        record.receive(&unlabelled, &unlabelled.event_id);
        assert_eq!(record.faults.len(), 2, "{:?}", record.faults);
    }
}
