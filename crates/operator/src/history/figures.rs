//! The figures of a sample. Those that only grow are recorded as their change per second since the last sample.

use std::collections::HashMap;
use std::time::{Duration, Instant};

use payferry_actors::System;
use payferry_runtime::observe::{ActorFigures, ActorKind, NodeView};

use crate::Operator;
use crate::actors::messages;
use crate::page::words::float;
use crate::webhooks;

/// Samples between two reads of the database's figure.
const DATABASE_EVERY: u32 = 3;
/// Longest wait for the database.
const DATABASE_PATIENCE: Duration = Duration::from_millis(500);

/// Counters at the last sample.
#[derive(Default)]
pub(super) struct Sampler {
    counters: HashMap<String, f64>,
    at: Option<Instant>,
    samples: u32,
    webhooks_waiting: Option<f64>,
}

/// Undelivered events, if they are to be read in this sample and the database answers.
pub(super) async fn webhooks_waiting(operator: &Operator) -> Option<f64> {
    let is_due = operator.history.0.lock().sampler.samples.is_multiple_of(DATABASE_EVERY);
    if !is_due {
        return None;
    }
    let read = tokio::time::timeout(DATABASE_PATIENCE, webhooks::backlog(&operator.system)).await;
    let backlog = read.ok()?.ok()?;
    Some(float(backlog.queued.counted + backlog.retrying.counted))
}

impl Sampler {
    /// All figures now, by name.
    pub(super) fn figures(&mut self, system: &System, webhooks_waiting: Option<f64>) -> Vec<(String, f64)> {
        let secs = self.at.replace(Instant::now()).map(|at| at.elapsed().as_secs_f64()).filter(|secs| *secs > 0.0);
        self.samples = self.samples.wrapping_add(1);
        self.webhooks_waiting = webhooks_waiting.or(self.webhooks_waiting);
        let before = std::mem::take(&mut self.counters);
        let mut sample = Sample { before, counters: &mut self.counters, secs, figures: Vec::new() };
        let view = system.observe();
        let kinds = system.kinds();
        sample.add("payments/live", float(view.payments_live));
        sample.add("payments/quarantined", float(view.payments_quarantined));
        sample.add("mailboxes", float(kinds.iter().map(|kind| kind.figures.mailbox).sum::<usize>()));
        sample.rate("restarts", float(view.restarts.values().sum::<u64>()));
        let journal = system.journal().stats();
        sample.rate("journal/writes", float(journal.units));
        sample.mean("journal/commit_ms", float(journal.commit_time_us) / 1_000.0, float(journal.groups));
        sample.add("journal/queued", float(journal.transitions_queued + journal.initiations_queued));
        sample.rate("admission/refused", float(system.admission().refused));
        if let Some(waiting) = self.webhooks_waiting {
            sample.add("webhooks/waiting", waiting);
        }
        for spec in system.chains().running() {
            let chain = spec.chain;
            if let Some(view) = system.chain_view(chain) {
                sample.add(
                    &format!("chain/{chain}/head_age_secs"),
                    float(view.head_age_ms(system.clock().now())) / 1_000.0,
                );
                sample.add(
                    &format!("chain/{chain}/lag_blocks"),
                    float(view.head_number.saturating_sub(view.read_number)),
                );
            }
            if let Some(settler) = system.chains().settler(chain) {
                sample.rate(&format!("chain/{chain}/transactions"), float(settler.submitted_total()));
            }
        }
        for kind in &kinds {
            let name = format!("kind/{}", kind.kind.as_str());
            sample.add(&format!("{name}/live"), float(kind.live));
            sample.actor(&name, &kind.figures);
        }
        for edge in system.message_edges() {
            sample.rate(&messages::figure(edge), float(edge.messages));
        }
        sample.tree(&system.tree().root);
        sample.figures
    }
}

/// Name of the figures of a permanent actor, as the first part of their names.
pub(crate) fn of_actor(kind: ActorKind, name: &str) -> String {
    format!("actor/{}/{name}", kind.as_str())
}

struct Sample<'a> {
    before: HashMap<String, f64>,
    /// Counters of this sample. Those of actors that are gone are left out.
    counters: &'a mut HashMap<String, f64>,
    secs: Option<f64>,
    figures: Vec<(String, f64)>,
}

impl Sample<'_> {
    fn add(&mut self, name: &str, value: f64) {
        self.figures.push((name.to_owned(), value));
    }

    /// Growth of a counter since the last sample; `None` if that did not have it.
    fn growth(&mut self, name: &str, total: f64) -> Option<f64> {
        self.counters.insert(name.to_owned(), total);
        let before = self.before.get(name)?;
        // An actor that was removed and added again counts anew.
        Some((total - before).max(0.0))
    }

    fn rate(&mut self, name: &str, total: f64) {
        if let (Some(growth), Some(secs)) = (self.growth(name, total), self.secs) {
            self.add(&format!("{name}_per_second"), growth / secs);
        }
    }

    /// Mean since the last sample of what adds up to `sum` in `count` parts.
    fn mean(&mut self, name: &str, sum: f64, count: f64) {
        let (sum, count) = (self.growth(name, sum), self.growth(&format!("{name}#"), count));
        if let (Some(sum), Some(count)) = (sum, count) {
            self.add(name, if count > 0.0 { sum / count } else { 0.0 });
        }
    }

    fn actor(&mut self, name: &str, figures: &ActorFigures) {
        let messages = float(figures.messages);
        self.add(&format!("{name}/mailbox"), float(figures.mailbox));
        self.rate(&format!("{name}/messages"), messages);
        self.mean(&format!("{name}/wait_ms"), figures.wait_ms * messages, messages);
        self.mean(&format!("{name}/handling_ms"), figures.handling_ms * messages, messages);
    }

    fn tree(&mut self, node: &NodeView) {
        self.actor(&of_actor(node.kind, &node.name), &node.figures);
        for child in &node.children {
            self.tree(child);
        }
    }
}
