//! End of a run: everything is read back and compared.

use std::time::Duration;

use serde_json::Value;
use tokio::time::Instant;

use super::{POLL, Run, endpoint};
use payferry_testkit::audit::findings::{Finding, findings, known, unwanted};
use payferry_testkit::audit::record::Record;
use payferry_testkit::audit::session::Session;
use payferry_testkit::audit::{Audit, audit};

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

pub(super) struct Outcome {
    /// None if not everything could be compared.
    pub(super) audit: Option<Audit>,
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
            Ok((audit, findings)) => Outcome { audit: Some(audit), findings, interrupted: false },
            Err(why) => {
                let inner = self.context.session.state.read();
                let known = known(&inner.records, unwanted(&inner, self.target.own.is_some()));
                let interrupted = why.is_none();
                let why = why.map(|why| Finding::of_none("all payments are read back and compared", why));
                Outcome { audit: None, findings: why.into_iter().chain(known).collect(), interrupted }
            }
        }
    }

    /// Waits until the service has delivered all webhooks of this run, then compares everything.
    async fn compare(&self) -> anyhow::Result<(Audit, Vec<Finding>)> {
        self.bar.say("compare webhooks, payments and chains");
        let Session { psp, state, .. } = &self.context.session;
        let since = Instant::now();
        while since.elapsed() < DRAIN_PATIENCE {
            if !endpoint::is_owed_any(psp, state).await? {
                break;
            }
            tokio::time::sleep(POLL).await;
        }
        let is_alone = self.target.own.is_some();
        let audit = audit(&self.context.session, is_alone).await?;
        let mut defects = Vec::new();
        if let Some(own) = &self.target.own {
            defects = own.findings().await;
        }
        let mut findings = {
            let inner = state.read();
            let whole = unwanted(&inner, is_alone).into_iter().chain(defects).collect();
            findings(&inner.records, &audit, whole)
        };
        let untold = findings.iter_mut().filter(|finding| finding.lacks_webhooks);
        for (number, finding) in untold.take(LOGS_MAX).enumerate() {
            if number >= LOGS_SHOWN_MAX && !finding.is_late {
                continue;
            }
            let Some(deliveries) = self.deliveries(finding).await else { continue };
            // The service delivers nothing more, and the load tester still has not received it.
            let is_over = deliveries.iter().all(|delivery| delivery["delivery_status"] == DELIVERED);
            finding.is_late &= !is_over || self.is_complete(finding);
            if number < LOGS_SHOWN_MAX {
                finding.found = format!("{}; delivery log: {}", finding.found, in_words(&deliveries));
            }
        }
        Ok((audit, findings))
    }

    /// Waits until a reorganisation has no further consequences: a payment that was complete may be announced again.
    pub(super) async fn rest(&self) {
        let (state, since) = (&self.context.session.state, Instant::now());
        let is_restless = || state.since_webhook().is_some_and(|since| since < REST_AFTER_REORG);
        while is_restless() && since.elapsed() < REST_PATIENCE && !self.stop.is_cancelled() {
            tokio::time::sleep(POLL).await;
        }
    }

    /// Returns the service's delivery log of a payment.
    async fn deliveries(&self, finding: &Finding) -> Option<Vec<Value>> {
        let id = finding.payment_id.as_deref()?.parse().ok()?;
        self.context.session.psp.deliveries(id).await.ok()
    }

    /// Returns true if every event of a payment has arrived by now.
    fn is_complete(&self, finding: &Finding) -> bool {
        let inner = self.context.session.state.read();
        let about = |record: &&Record| record.id().map(|id| id.to_string()) == finding.payment_id;
        inner.records.iter().find(about).is_some_and(Record::is_complete)
    }
}

fn in_words(deliveries: &[Value]) -> String {
    let line = |delivery: &Value| {
        let text = |key: &str| delivery[key].as_str().unwrap_or("-").to_owned();
        format!("{} {} after {} attempts", text("event"), text("delivery_status"), delivery["attempt_count"])
    };
    deliveries.iter().map(line).collect::<Vec<_>>().join(", ")
}
