//! Compares what is stored about payments with what the rules of this version lead to.

use payferry_domain::payment::{Command, DecisionDifference, Event, Payment, replay};
use payferry_entities::ledger_postings;
use serde::Serialize;
use serde_json::Value;

use super::pages::StoredHistory;
use super::{ReplayCounts, ReplayDifference, ReplayPart, stored_of};
use crate::postings;

/// Characters of a value in a report.
const VALUE_CHARS_MAX: usize = 120;
/// Fields whose values belong to the PSP or are secret. A report names the field only.
const PRIVATE_FIELDS: [&str; 4] = ["link_token", "metadata", "note", "reference"];

/// Result of one page.
#[derive(Debug, Default)]
pub(super) struct Checked {
    pub(super) counts: ReplayCounts,
    pub(super) differences: Vec<ReplayDifference>,
}

pub(super) fn check(page: Vec<StoredHistory>) -> Checked {
    let mut checked = Checked::default();
    for stored in page {
        checked.counts.payments += 1;
        checked.one(&stored);
    }
    checked
}

impl Checked {
    fn one(&mut self, stored: &StoredHistory) {
        let mut add = |version, part, command, stored_as: String, now: String| {
            let payment_id = stored.id.clone();
            self.differences.push(ReplayDifference { payment_id, version, part, command, stored: stored_as, now });
        };
        let mut before: Option<Payment> = None;
        let (mut announced, mut posted) = (Vec::new(), Vec::new());
        for row in &stored.transitions {
            self.counts.transitions += 1;
            let version = u32::try_from(row.version).ok();
            let step = match stored_of(&stored.id, row.version, row.at, &row.events, row.command.as_deref()) {
                Ok(step) => step,
                Err(error) => return add(version, ReplayPart::History, None, String::new(), error.to_string()),
            };
            let command = step.command.as_ref().map(Command::name);
            self.counts.decided += u64::from(command.is_some());
            let replayed = match replay(before.take(), &step) {
                Ok(replayed) => replayed,
                Err(error) => {
                    return add(version, ReplayPart::History, command, names(&step.events), error.to_string());
                }
            };
            if let Some(difference) = &replayed.difference {
                let (stored_as, now) = decision(&step.events, difference);
                add(version, ReplayPart::Decision, command, stored_as, now);
            }
            if let Some(violated) = &replayed.violated {
                add(version, ReplayPart::Invariant, command, names(&step.events), violated.to_string());
            }
            let transition = replayed.transition;
            let payment = &transition.payment;
            announced.extend(transition.announcements.iter().map(|one| (i64::from(one.sequence), one.name.as_str())));
            posted.extend(postings::rows(
                &stored.public_id,
                payment.version,
                payment.terms.psp_id,
                &transition.postings,
                payment.updated_at,
            ));
            before = Some(transition.payment);
        }
        let is_own = |payment: &Payment| payment.id().to_string() == stored.id;
        let Some(payment) = before.filter(is_own) else {
            return add(None, ReplayPart::History, None, String::new(), "it has no transitions of its own".to_owned());
        };
        match serde_json::from_str::<Payment>(&stored.state) {
            Ok(row) if row == payment => {}
            Ok(row) => {
                let (stored_as, now) = first_difference(&row, &payment);
                add(None, ReplayPart::State, None, stored_as, now);
            }
            Err(error) => add(None, ReplayPart::State, None, String::new(), format!("its row cannot be read: {error}")),
        }
        // Old events may have been deleted, so missing ones at the start are no difference.
        let kept = announced.len().saturating_sub(stored.announced.len());
        let of = |(sequence, name): (i64, &str)| format!("{sequence} {name}");
        let now: Vec<String> = announced[kept..].iter().map(|one| of(*one)).collect();
        let feed: Vec<String> = stored.announced.iter().map(|(sequence, name)| of((*sequence, name))).collect();
        if now != feed {
            let (stored_as, now) = first_of(&feed, &now);
            add(None, ReplayPart::Announcements, None, stored_as, now);
        }
        if posted != stored.posted {
            let text = |rows: &[ledger_postings::Model]| rows.iter().map(posting).collect::<Vec<_>>();
            let (stored_as, now) = first_of(&text(&stored.posted), &text(&posted));
            add(None, ReplayPart::Postings, None, stored_as, now);
        }
    }
}

fn names(events: &[Event]) -> String {
    if events.is_empty() { "nothing".to_owned() } else { events.iter().map(Event::name).collect::<Vec<_>>().join(", ") }
}

/// The stored and the current decision in words.
fn decision(stored: &[Event], difference: &DecisionDifference) -> (String, String) {
    match difference {
        DecisionDifference::Decided(now) if names(stored) == names(now) => first_difference(&stored, now),
        DecisionDifference::Decided(now) => (names(stored), names(now)),
        DecisionDifference::Rejected(rejection) => (names(stored), format!("rejected: {rejection}")),
        DecisionDifference::Violated(violated) => (names(stored), violated.to_string()),
    }
}

fn posting(row: &ledger_postings::Model) -> String {
    let ledger_postings::Model { version, kind, debit, credit, chain, token_address, amount, reference, .. } = row;
    format!("version {version}: {kind} {amount} of {token_address} on {chain} from {debit} to {credit}, {reference}")
}

/// First lines that differ.
fn first_of(stored: &[String], now: &[String]) -> (String, String) {
    let place = stored.iter().zip(now).take_while(|(stored, now)| stored == now).count();
    let at = |lines: &[String]| lines.get(place).cloned().unwrap_or_else(|| "nothing".to_owned());
    (at(stored), at(now))
}

/// First field that differs, with its values.
fn first_difference(stored: &impl Serialize, now: &impl Serialize) -> (String, String) {
    let of = |value: Result<Value, _>| value.unwrap_or(Value::Null);
    let (stored, now) = (of(serde_json::to_value(stored)), of(serde_json::to_value(now)));
    differing("", &stored, &now).unwrap_or_default()
}

fn differing(path: &str, stored: &Value, now: &Value) -> Option<(String, String)> {
    if stored == now {
        return None;
    }
    let under = |name: &str| if path.is_empty() { name.to_owned() } else { format!("{path}.{name}") };
    match (stored, now) {
        (Value::Object(one), Value::Object(other)) => {
            let names = one.keys().chain(other.keys().filter(|name| !one.contains_key(*name)));
            let field = |name: &String| {
                let (stored, now) = (one.get(name).unwrap_or(&Value::Null), other.get(name).unwrap_or(&Value::Null));
                differing(&under(name), stored, now)
            };
            names.into_iter().find_map(field)
        }
        (Value::Array(one), Value::Array(other)) if one.len() == other.len() => {
            let mut items = one.iter().zip(other).enumerate();
            items.find_map(|(place, (stored, now))| differing(&format!("{path}[{place}]"), stored, now))
        }
        _ => {
            let is_private = path.split(['.', '[']).any(|name| PRIVATE_FIELDS.contains(&name));
            let text = |value: &Value| {
                let text: String = value.to_string().chars().take(VALUE_CHARS_MAX).collect();
                if is_private { format!("{path}: …") } else { format!("{path}: {text}") }
            };
            Some((text(stored), text(now)))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn names_the_first_field_that_differs_and_no_private_value() {
        let (stored, now) = (json!({"a": 1, "b": [{"c": 2}]}), json!({"a": 1, "b": [{"c": 3}]}));
        assert_eq!(first_difference(&stored, &now), ("b[0].c: 2".to_owned(), "b[0].c: 3".to_owned()));
        let (stored, now) = (json!({"terms": {"metadata": {"name": "Ada"}}}), json!({"terms": {}}));
        let (stored, now) = first_difference(&stored, &now);
        assert_eq!((stored.as_str(), now.as_str()), ("terms.metadata: …", "terms.metadata: …"));
    }
}
