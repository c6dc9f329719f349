//! Requests of the PSP that create an object, and what came of each.

use std::collections::HashSet;

use reqwest::Method;
use serde_json::Value;

use super::report::{Finding, Findings};
use crate::psp::Psp;

/// A request with its idempotency key, and the created object as seen from outside.
#[derive(Debug, Clone, Default)]
pub struct Creation {
    pub key: String,
    pub path: String,
    /// Path below which the created object is read.
    pub below: String,
    pub request: Value,
    /// Name of the object's id field.
    pub id_field: &'static str,
    /// The first answer; once it exists, the object must not be lost.
    pub made: Option<Value>,
    /// A refusal that must not happen.
    pub trouble: Option<String>,
    /// The object as read at the end.
    pub read: Option<Value>,
    /// The answer to the repeated request at the end.
    pub replayed: Option<Value>,
}

impl Creation {
    /// Id of the object, once it is acknowledged.
    pub fn id(&self) -> Option<&str> {
        self.made.as_ref()?[self.id_field].as_str()
    }

    /// Name in findings: the object's id, or the request's key.
    pub fn name(&self) -> String {
        self.id().map_or_else(|| format!("request {}", self.key), str::to_owned)
    }

    /// Reads the object, and repeats the request with its idempotency key.
    pub(super) async fn read_again(&mut self, psp: &Psp) {
        let Some(id) = self.id() else { return };
        let (status, read) = psp.call(Method::GET, &format!("{}/{id}", self.below), Value::Null).await;
        self.read = status.is_success().then_some(read);
        let replayed = psp.try_call(Method::POST, &self.path, &self.request, Some(&self.key)).await;
        self.replayed = replayed.ok().filter(|(status, _)| status.is_success()).map(|(_, answer)| answer);
    }

    /// Checks that an acknowledged object exists, that these fields of the acknowledgement did not change, and that a
    /// repeated request gets the same answer. Returns the acknowledgement, and the object as read.
    pub(super) fn acknowledged(&self, kept: &[&str], findings: &mut Findings) -> Option<(&Value, &Value)> {
        let mut wrong = |what: String| findings.push(Finding::of(self.name(), what));
        if let Some(trouble) = &self.trouble {
            wrong(trouble.clone());
        }
        let Some(made) = &self.made else {
            if self.trouble.is_none() {
                wrong("was never answered".to_owned());
            }
            return None;
        };
        let Some(read) = &self.read else {
            wrong("was acknowledged and is lost".to_owned());
            return None;
        };
        for key in kept.iter().filter(|key| made[**key] != read[**key]) {
            wrong(format!("was acknowledged with {key} {} and reads {}", made[*key], read[*key]));
        }
        match &self.replayed {
            Some(replayed) if replayed == made => {}
            Some(replayed) => wrong(format!("the same request was answered {made} and then {replayed}")),
            None => wrong("the same request is now refused".to_owned()),
        }
        Some((made, read))
    }
}

/// Checks that every request created one object, that no two requests share one, and that every object that the service
/// lists has a request.
pub(super) fn made_once<'a>(
    creations: impl Iterator<Item = &'a Creation>,
    listed: impl Iterator<Item = &'a str>,
    findings: &mut Findings,
) {
    let (mut known, mut seen) = (HashSet::new(), HashSet::new());
    for id in creations.filter_map(Creation::id).filter(|id| !known.insert(*id)) {
        findings.push(Finding::of(id, "answers several requests"));
    }
    for id in listed {
        if !seen.insert(id) {
            findings.push(Finding::of(id, "is listed twice"));
        } else if !known.contains(id) {
            findings.push(Finding::of(id, "exists although no request was answered with it"));
        }
    }
    for id in known.difference(&seen) {
        findings.push(Finding::of(*id, "was acknowledged and is not listed"));
    }
}
