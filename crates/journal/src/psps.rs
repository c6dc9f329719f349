//! The PSPs' policies and webhook filters, kept in memory for a moment.
//!
//! The database is the truth; what is served here is at most [`STALE_MAX`] old, on every node.

mod policies;
pub mod wallets;

use std::sync::Arc;
use std::time::Duration;

use payferry_domain::PspId;
use payferry_domain::payment::{Announcement, EventName, EventPattern};
use payferry_entities::{Database, psps, webhook_endpoints};
use sea_orm::{DbErr, EntityTrait};

pub use policies::{
    Ceilings, DUST_FLOOR_DEFAULT, DUST_FLOOR_MAX, EventFamilies, PspPolicies, SEND_DAILY_MAX_DEFAULT, SEND_MAX_DEFAULT,
};

/// How long a change of policy may take to be seen.
pub const STALE_MAX: Duration = Duration::from_secs(1);
/// PSPs remembered at once.
const PSPS_MAX: u64 = 10_000;
/// A PSP as payments need it.
#[derive(Debug, Clone)]
pub struct Psp {
    /// Its policies.
    pub policies: PspPolicies,
    /// How much it may send.
    pub ceilings: Ceilings,
    /// Which events its endpoint wants; empty means all.
    pub event_patterns: Vec<EventPattern>,
}

impl Psp {
    /// Whether the PSP's filter lets the event through.
    pub fn wants(&self, event: EventName) -> bool {
        self.event_patterns.is_empty() || self.event_patterns.iter().any(|pattern| pattern.matches(event))
    }

    /// Whether it is sent one of the names that a payment announces together: its filter and its families let it through.
    pub fn is_sent(&self, event: EventName, together: &[Announcement]) -> bool {
        let is_told = |name| together.iter().any(|announcement| announcement.name == name);
        self.wants(event) && self.policies.event_families.send(event, is_told)
    }
}

/// Why a PSP could not be read.
#[derive(Debug, Clone, thiserror::Error)]
pub enum PspError {
    /// There is none with this id.
    #[error("no such PSP")]
    Unknown,
    /// Its stored settings are not what this version writes.
    #[error("the settings of {0} are unreadable: {1}")]
    Unreadable(PspId, String),
    /// The database is away.
    #[error("the database is not available: {0}")]
    Unavailable(String),
}

/// Reads PSPs, remembering each for [`STALE_MAX`].
#[derive(Clone)]
pub struct PspDirectory {
    database: Database,
    ceilings: Ceilings,
    seen: moka::future::Cache<PspId, Arc<Psp>>,
}

impl PspDirectory {
    /// An empty directory over `database`, with the configuration's ceilings.
    pub fn new(database: Database, ceilings: Ceilings) -> Self {
        let seen = moka::future::Cache::builder().max_capacity(PSPS_MAX).time_to_live(STALE_MAX).build();
        Self { database, ceilings, seen }
    }

    /// The configuration's ceilings, for PSPs of which the operator has not said otherwise.
    pub const fn ceilings(&self) -> Ceilings {
        self.ceilings
    }

    /// The PSP, at most [`STALE_MAX`] old.
    pub async fn get(&self, id: PspId) -> Result<Arc<Psp>, PspError> {
        if let Some(psp) = self.seen.get(&id).await {
            return Ok(psp);
        }
        let read = Box::pin(self.read(id));
        self.seen.try_get_with(id, read).await.map_err(|shared| (*shared).clone())
    }

    /// Forgets what is remembered, after a change made here.
    pub async fn forget(&self, id: PspId) {
        self.seen.invalidate(&id).await;
    }

    async fn read(&self, id: PspId) -> Result<Arc<Psp>, PspError> {
        let away = |error: DbErr| PspError::Unavailable(error.to_string());
        let unreadable = |error: String| PspError::Unreadable(id, error);
        let row = psps::Entity::find_by_id(id.to_string()).one(self.database.reader()).await.map_err(away)?;
        let row = row.ok_or(PspError::Unknown)?;
        let policies: PspPolicies =
            serde_json::from_str(&row.settings).map_err(|error| unreadable(error.to_string()))?;
        let endpoint =
            webhook_endpoints::Entity::find_by_id(id.to_string()).one(self.database.reader()).await.map_err(away)?;
        let patterns: Vec<String> = match endpoint {
            Some(endpoint) => serde_json::from_str(&endpoint.events).map_err(|error| unreadable(error.to_string()))?,
            None => Vec::new(),
        };
        let event_patterns = patterns
            .iter()
            .map(|pattern| pattern.parse().map_err(|_| unreadable(format!("event pattern {pattern}"))))
            .collect::<Result<_, _>>()?;
        Ok(Arc::new(Psp { ceilings: policies.ceilings(self.ceilings), policies, event_patterns }))
    }
}

impl std::fmt::Debug for PspDirectory {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("PspDirectory").field("remembered", &self.seen.entry_count()).finish_non_exhaustive()
    }
}
