//! Work on one check: request to the provider, and recording of the answer.

use std::sync::Arc;
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use payferry_domain::Timestamp;
use payferry_domain::customer::{CheckPurpose, Command, IdentityVerdict};
use payferry_entities::{Database, StoreError, customers};
use payferry_journal::customers::{CustomerChangeError, customer_of};
use payferry_nodes::Leases;
use payferry_runtime::clock::Clock;
use payferry_runtime::seal::Sealer;
use payferry_runtime::supervise::doubled;
use sea_orm::{DbErr, EntityTrait};
use serde::Deserialize;

use super::conclude::VerdictEffect;
use super::metrics;
use super::provider::{
    CheckRequest, IdentityError, IdentityProvider, IdentitySubject, ProviderCheckStatus, StartedCheck,
};
use super::queue::{self, Task};
use super::service::ComplianceConfig;
use crate::observe::TreeMetrics;

/// Share of a link's lifetime after which it is renewed, so that its recipient can still use it for a while.
const LINK_RENEWED_AFTER: (u32, u32) = (3, 4);

/// Failure of the provider, with its start.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ProviderOutage {
    /// Last error of the provider.
    pub reason: String,
    /// First of the consecutive failures.
    pub since: Timestamp,
}

/// State shared by the work on all checks.
pub(super) struct CheckContext {
    pub(super) config: ComplianceConfig,
    pub(super) provider: Option<Arc<dyn IdentityProvider>>,
    pub(super) database: Database,
    pub(super) sealer: Sealer,
    pub(super) clock: Clock,
    pub(super) registry: TreeMetrics,
    pub(super) leases: Leases,
    pub(super) outage: Mutex<Option<ProviderOutage>>,
}

/// Reasons why work on a check failed. The check stays due.
#[derive(Debug, thiserror::Error)]
pub(super) enum WorkError {
    #[error(transparent)]
    Provider(#[from] IdentityError),
    #[error(transparent)]
    Change(#[from] CustomerChangeError),
    #[error("the database is not available: {0}")]
    Database(#[from] DbErr),
    #[error("the customer's particulars cannot be read")]
    Unreadable,
}

/// The part of a customer's particulars that a screening needs.
#[derive(Deserialize)]
struct Particulars {
    first_name: String,
    last_name: String,
    dob: String,
    #[serde(default)]
    phone_number: Option<String>,
}

impl CheckContext {
    /// Performs the due step of a check and records the result.
    pub(super) async fn work(&self, task: &Task) {
        let Some(provider) = &self.provider else { return };
        let Err(error) = self.step(provider.as_ref(), task).await else { return };
        let away = matches!(
            &error,
            WorkError::Database(_) | WorkError::Change(CustomerChangeError::Store(StoreError::Database(_)))
        );
        tracing::warn!(check.id = %task.check, provider = provider.name(), %error, "check {} is retried", task.check);
        if away {
            // Nothing can be written now; the next sweep finds the row unchanged.
            return;
        }
        let at = self.after(self.backoff(task.attempts));
        if let Err(error) = queue::failed(self.database.writer(), task, &error.to_string(), at).await {
            tracing::warn!(check.id = %task.check, %error, "could not record the failure of check {}", task.check);
        }
    }

    async fn step(&self, provider: &dyn IdentityProvider, task: &Task) -> Result<(), WorkError> {
        let reference = task.provider_ref.as_deref().filter(|_| task.is_open && is_with(provider, task));
        match reference {
            Some(reference) if !self.has_old_link(provider, task) => self.check_status(provider, task, reference).await,
            _ => self.begin(provider, task).await,
        }
    }

    fn has_old_link(&self, provider: &dyn IdentityProvider, task: &Task) -> bool {
        let Some(lifetime) = provider.link_lifetime().filter(|_| task.purpose == CheckPurpose::Identity) else {
            return false;
        };
        let (share, of) = LINK_RENEWED_AFTER;
        self.clock.now::<Timestamp>().millis_since(task.since) >= millis(lifetime * share / of)
    }

    async fn begin(&self, provider: &dyn IdentityProvider, task: &Task) -> Result<(), WorkError> {
        let row = customers::Entity::find_by_id(task.customer.to_string()).one(self.database.reader()).await?;
        let row = row.ok_or(CustomerChangeError::NotFound)?;
        let customer = customer_of(&row).map_err(CustomerChangeError::from)?;
        let request = CheckRequest { check: task.check, kind: customer.kind };
        let begun = match task.purpose {
            CheckPurpose::Identity => self.ask(provider.begin(&request)).await?,
            CheckPurpose::Rescreen => {
                let subject = self.subject(&row)?;
                self.ask(provider.rescreen(&request, &subject)).await?
            }
        };
        let name = provider.name();
        let opened = async |provider_ref: &str, url: Option<&url::Url>, look_after: Duration| {
            let sealed = queue::sealed(&self.sealer, task.check, url);
            let (look_at, now) = (self.after(look_after), self.clock.now());
            queue::opened(self.database.writer(), task, name, provider_ref, sealed, look_at, now).await
        };
        match begun {
            StartedCheck::Open { provider_ref, url, look_after } => {
                opened(&provider_ref, url.as_ref(), look_after.unwrap_or(self.config.poll_interval)).await?;
                Ok(())
            }
            StartedCheck::Decided { provider_ref, verdict } => {
                opened(&provider_ref, None, Duration::ZERO).await?;
                self.end(provider, task, Some(verdict)).await
            }
        }
    }

    async fn check_status(
        &self,
        provider: &dyn IdentityProvider,
        task: &Task,
        reference: &str,
    ) -> Result<(), WorkError> {
        match self.ask(provider.check_status(task.check, reference)).await? {
            ProviderCheckStatus::InProgress => {
                let at = self.after(self.until_next_look(task));
                Ok(queue::look_again(self.database.writer(), task, at).await?)
            }
            ProviderCheckStatus::Decided(verdict) => self.end(provider, task, Some(verdict)).await,
            ProviderCheckStatus::Lapsed if task.purpose == CheckPurpose::Identity => {
                self.end(provider, task, None).await
            }
            ProviderCheckStatus::Lapsed => {
                let at = self.after(self.backoff(task.attempts));
                let reason = "the provider no longer has the screening";
                Ok(queue::requeued(self.database.writer(), task, reason, at).await?)
            }
        }
    }

    async fn end(
        &self,
        provider: &dyn IdentityProvider,
        task: &Task,
        verdict: Option<IdentityVerdict>,
    ) -> Result<(), WorkError> {
        let word = verdict_name(verdict.as_ref());
        let command = match verdict {
            Some(verdict) => Command::ConcludeCheck { check: task.check, verdict },
            None => Command::LapseCheck(task.check),
        };
        let concluded = self.conclude(task.customer, command, provider.name()).await?;
        if concluded == VerdictEffect::Changed {
            metrics::VERDICTS.add(&[("verdict", word)], 1);
        }
        Ok(())
    }

    /// Sends a request with the timeout and records the provider's health.
    async fn ask<T>(&self, request: impl Future<Output = Result<T, IdentityError>>) -> Result<T, IdentityError> {
        let begun = Instant::now();
        let timeout = self.config.timeout;
        let answer = tokio::time::timeout(timeout, request).await;
        let answer = answer.unwrap_or_else(|_| Err(IdentityError(format!("no answer within {timeout:?}"))));
        metrics::SECONDS.record(&[], begun.elapsed().as_secs_f64());
        let mut outage = self.outage.lock();
        match &answer {
            Ok(_) => *outage = None,
            Err(IdentityError(reason)) => {
                metrics::ERRORS.add(&[], 1);
                let since = outage.as_ref().map_or_else(|| self.clock.real_now(), |outage| outage.since);
                *outage = Some(ProviderOutage { reason: reason.clone(), since });
            }
        }
        answer
    }

    fn subject(&self, row: &customers::Model) -> Result<IdentitySubject, WorkError> {
        let opened = self.sealer.open(&["customers", &row.id, "particulars"], &row.particulars);
        let particulars = opened.ok().and_then(|json| serde_json::from_slice::<Particulars>(&json).ok());
        let Particulars { first_name, last_name, dob, phone_number } = particulars.ok_or(WorkError::Unreadable)?;
        Ok(IdentitySubject { first_name, last_name, dob, country: row.country.clone(), phone_number })
    }

    /// Returns the time until the next status query. Persons may take any time. A screening takes seconds or very long,
    /// so the interval grows with its age.
    fn until_next_look(&self, task: &Task) -> Duration {
        let interval = self.config.poll_interval;
        match task.purpose {
            CheckPurpose::Identity => interval,
            CheckPurpose::Rescreen => {
                let age = self.clock.now::<Timestamp>().millis_since(task.since);
                let least = self.config.retry_min.min(interval);
                Duration::from_millis(u64::try_from(age).unwrap_or_default()).clamp(least, interval)
            }
        }
    }

    fn backoff(&self, attempts: u32) -> Duration {
        let ComplianceConfig { retry_min, retry_max, .. } = self.config;
        doubled(retry_min, retry_max, attempts)
    }

    fn after(&self, pause: Duration) -> Timestamp {
        self.clock.now::<Timestamp>().plus_millis(millis(pause))
    }
}

/// Returns `true` if the check is at the configured provider. A check at a provider that is no longer configured starts
/// again at the configured one.
fn is_with(provider: &dyn IdentityProvider, task: &Task) -> bool {
    task.provider.as_deref() == Some(provider.name())
}

pub(super) fn verdict_name(verdict: Option<&IdentityVerdict>) -> &'static str {
    match verdict {
        Some(IdentityVerdict::Approved) => "approved",
        Some(IdentityVerdict::Rejected { .. }) => "rejected",
        None => "lapsed",
    }
}

fn millis(duration: Duration) -> i64 {
    i64::try_from(duration.as_millis()).unwrap_or(i64::MAX)
}
