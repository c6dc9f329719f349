//! `/ops/overview`: overview of the service, most urgent first.

pub(crate) mod page;

use payferry_actors::observe::{QuarantinedSubject, Tallied, TreeView};
use payferry_actors::{AdmissionView, System};
use payferry_httpkit::{Answer, ApiError};
use payferry_runtime::observe::{Incident, KindView};
use serde::Serialize;
use utoipa::ToSchema;

use crate::Operator;
use crate::actors::journal::{self, JournalLine};
use crate::chains::{self, ChainLine};
use crate::health::{self, Readiness};
use crate::query::{if_by, soon};
use crate::webhooks::{self, Webhooks};

/// Maximum number of log entries, the newest.
pub const INCIDENTS_MAX: usize = 25;
/// Maximum number of quarantined subjects, the oldest.
pub const QUARANTINED_MAX: usize = 10;

/// An unsafe setting that the configuration uses and allows.
#[derive(Debug, Clone, Serialize, ToSchema)]
pub struct UnsafeSetting {
    /// Name in `[unsafe] allow`.
    pub setting: &'static str,
    /// The key, and what is unsafe about its value.
    pub detail: String,
}

/// Data of the overview.
#[derive(Debug, Clone, Serialize, ToSchema)]
pub struct Overview {
    /// Readiness for payments, with the reasons why not.
    pub readiness: Readiness,
    /// Permanent actors. Payments are counted in their shards, payouts and withdrawals at their supervisor.
    pub tree: TreeView,
    /// Figures of every kind of actor.
    pub kinds: Vec<KindView>,
    pub payments_quarantined: usize,
    pub sendings_quarantined: usize,
    pub customers_quarantined: usize,
    /// First [`QUARANTINED_MAX`] of the quarantined subjects.
    pub quarantined: Vec<QuarantinedSubject>,
    /// Supervision log, newest first, at most [`INCIDENTS_MAX`] entries.
    pub incidents: Vec<Incident>,
    /// Number of stored log entries.
    pub incidents_kept: usize,
    /// Payments by status and chain. `None` until the count after the start is complete.
    pub payments: Option<Vec<Tallied>>,
    pub chains: Vec<ChainLine>,
    /// Undelivered events. `None` if the database does not answer in time.
    pub webhooks: Option<Webhooks>,
    pub journal: JournalLine,
    /// Admission of new payments on this node.
    pub admission: AdmissionView,
    pub unsafe_settings: Vec<UnsafeSetting>,
}

/// Read the overview
///
/// Everything at a glance. Figures that only the database has are null while it does not answer.
#[utoipa::path(
    get, path = "/ops/overview", tag = "Service", operation_id = "getOverview",
    responses((status = 200, description = "The overview.", body = Overview)),
)]
pub(crate) async fn data(operator: Operator) -> Result<Answer, ApiError> {
    Answer::ok(&overview(&operator).await)
}

/// Reads the overview. Data that only the database has is missing while the database is down.
pub async fn overview(operator: &Operator) -> Overview {
    let system = &operator.system;
    let readiness = health::readiness(system, &operator.config.draining).await;
    let (mut works, mut undelivered) = (None, None);
    if readiness.database.reads {
        let deadline = soon();
        (works, undelivered) = tokio::join!(
            if_by(deadline, "settler work", chains::works(system)),
            if_by(deadline, "undelivered events", webhooks::webhooks(system)),
        );
    }
    let view = system.observe();
    Overview {
        readiness,
        tree: system.tree(),
        kinds: system.kinds(),
        payments_quarantined: view.payments_quarantined,
        sendings_quarantined: view.sendings_quarantined,
        customers_quarantined: view.customers_quarantined,
        quarantined: system.given_up(None, QUARANTINED_MAX),
        incidents: system.log().latest(INCIDENTS_MAX),
        incidents_kept: system.log().incidents_len(),
        payments: payments(system),
        chains: chains::chains(system, works.as_ref()),
        webhooks: undelivered,
        journal: journal::line(system),
        admission: system.admission(),
        unsafe_settings: operator.config.unsafe_settings.clone(),
    }
}

/// Payments by status and chain. Before the count is complete, the tally only covers changes since the start.
pub fn payments(system: &System) -> Option<Vec<Tallied>> {
    system.tally_is_counted().then(|| system.tally())
}
