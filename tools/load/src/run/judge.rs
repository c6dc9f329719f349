//! End of a run: everything is read back and compared.

use std::time::Duration;

use serde_json::Value;
use tokio::time::Instant;

use super::{POLL, Run, endpoint};
use payferry_testkit::audit::findings::{Finding, findings, known, unwanted};
use payferry_testkit::audit::record::Record;
use payferry_testkit::audit::session::Session;
use payferry_testkit::audit::{Audit, Holding, audit};

/// Longest wait for webhooks that are not expected, such as repetitions.
const DRAIN_PATIENCE: Duration = Duration::from_secs(10);
/// Time without webhooks after which no consequence of a reorganisation is expected any more, and the longest wait for
/// it. The service reads a chain several times in it.
const REST_AFTER_REORG: Duration = Duration::from_secs(2);
const REST_PATIENCE: Duration = Duration::from_secs(30);
/// Largest number of payments whose delivery log is read because webhooks are missing, and of those in the report.
const LOGS_MAX: usize = 5_000;
const LOGS_SHOWN_MAX: usize = 50;

/// Status of a delivery that the receiver accepted.
const DELIVERED: &str = "delivered";

/// Results of the comparison of all PSPs.
#[derive(Default)]
pub(super) struct Compared {
    pub(super) read_back: usize,
    pub(super) holdings: Vec<Holding>,
    pub(super) notes: Vec<String>,
}

pub(super) struct Outcome {
    /// None if not everything could be compared.
    pub(super) compared: Option<Compared>,
    pub(super) findings: Vec<Finding>,
    pub(super) interrupted: bool,
}

impl Run<'_> {
    /// Compares everything, unless the run is interrupted first or the service cannot be read. The report then has what
    /// is known.
    pub(super) async fn judge(&self) -> Outcome {
        let compared = tokio::select! {
            biased;
            () = self.stop.cancelled() => Err(None),
            () = self.target.ended.cancelled() => Err(Some("the service ended under load".to_owned())),
            compared = self.compare() => compared.map_err(|error| Some(format!("the comparison failed: {error:#}"))),
        };
        match compared {
            Ok((compared, findings)) => Outcome { compared: Some(compared), findings, interrupted: false },
            Err(why) => {
                let is_alone = self.target.is_alone;
                let known = self.context.states().flat_map(|state| {
                    let inner = state.read();
                    known(&inner.records, unwanted(&inner, is_alone))
                });
                let interrupted = why.is_none();
                let why = why.map(|why| Finding::of_none("all payments are read back and compared", why));
                Outcome { compared: None, findings: why.into_iter().chain(known).collect(), interrupted }
            }
        }
    }

    /// Waits until the service has delivered all webhooks of this run, then compares everything.
    async fn compare(&self) -> anyhow::Result<(Compared, Vec<Finding>)> {
        self.bar.say("compare webhooks, payments and chains");
        let (mut compared, mut found) = (Compared::default(), Vec::new());
        for session in &self.context.sessions {
            let (audit, findings) = self.compare_psp(session).await?;
            compared.read_back += audit.shown.len();
            let psp_id = (self.context.sessions.len() > 1).then(|| session.sandbox.psp_id.to_string());
            compared.holdings.extend(audit.holdings.into_iter().map(|of| Holding { psp_id: psp_id.clone(), ..of }));
            compared.notes.extend(audit.notes);
            found.extend(findings);
        }
        if let Some(own) = &self.target.own {
            found.extend(own.findings().await);
        }
        found.sort_by_key(|finding| finding.kind);
        Ok((compared, found))
    }

    async fn compare_psp(&self, session: &Session) -> anyhow::Result<(Audit, Vec<Finding>)> {
        let Session { psp, state, .. } = session;
        let since = Instant::now();
        while since.elapsed() < DRAIN_PATIENCE {
            if !endpoint::is_owed_any(psp, state).await? {
                break;
            }
            tokio::time::sleep(POLL).await;
        }
        let is_alone = self.target.is_alone;
        let audit = audit(session, is_alone).await?;
        let mut findings = {
            let inner = state.read();
            findings(&inner.records, &audit, unwanted(&inner, is_alone))
        };
        let untold = findings.iter_mut().filter(|finding| finding.lacks_webhooks);
        for (number, finding) in untold.take(LOGS_MAX).enumerate() {
            if number >= LOGS_SHOWN_MAX && !finding.is_late {
                continue;
            }
            let Some(deliveries) = deliveries(session, finding).await else { continue };
            // The service delivers nothing more, and the load tester still has not received it.
            let is_over = deliveries.iter().all(|delivery| delivery["delivery_status"] == DELIVERED);
            finding.is_late &= !is_over || is_complete(session, finding);
            if number < LOGS_SHOWN_MAX {
                finding.found = format!("{}; delivery log: {}", finding.found, in_words(&deliveries));
            }
        }
        Ok((audit, findings))
    }

    /// Waits until a reorganisation has no further consequences: a payment that was complete may be announced again.
    pub(super) async fn rest(&self) {
        let since = Instant::now();
        let last = || self.context.states().filter_map(|state| state.since_webhook()).min();
        let is_restless = || last().is_some_and(|since| since < REST_AFTER_REORG);
        while is_restless() && since.elapsed() < REST_PATIENCE && !self.stop.is_cancelled() {
            tokio::time::sleep(POLL).await;
        }
    }
}

/// Returns the service's delivery log of a payment.
async fn deliveries(session: &Session, finding: &Finding) -> Option<Vec<Value>> {
    let id = finding.payment_id.as_deref()?.parse().ok()?;
    session.psp.deliveries(id).await.ok()
}

/// Returns true if every event of a payment has arrived by now.
fn is_complete(session: &Session, finding: &Finding) -> bool {
    let inner = session.state.read();
    let about = |record: &&Record| record.id().map(|id| id.to_string()) == finding.payment_id;
    inner.records.iter().find(about).is_some_and(Record::is_complete)
}

fn in_words(deliveries: &[Value]) -> String {
    let line = |delivery: &Value| {
        let text = |key: &str| delivery[key].as_str().unwrap_or("-").to_owned();
        format!("{} {} after {} attempts", text("event"), text("delivery_status"), delivery["attempt_count"])
    };
    deliveries.iter().map(line).collect::<Vec<_>>().join(", ")
}
