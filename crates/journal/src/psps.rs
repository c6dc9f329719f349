//! Policies and webhook filters of PSPs, cached in memory.
//!
//! The database is authoritative. Cached values are at most [`STALE_MAX`] old, on every node.

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

/// Maximum delay until a policy change takes effect.
pub const STALE_MAX: Duration = Duration::from_secs(1);
/// Maximum number of cached PSPs.
const PSPS_MAX: u64 = 10_000;
/// Settings of a PSP that payments need.
#[derive(Debug, Clone)]
pub struct PspSettings {
    /// Policies.
    pub policies: PspPolicies,
    /// Limits on outbound transfers.
    pub ceilings: Ceilings,
    /// Events that its endpoint subscribes to; empty means all.
    pub event_patterns: Vec<EventPattern>,
}

impl PspSettings {
    /// Returns true if the PSP's filter accepts the event.
    pub fn wants(&self, event: EventName) -> bool {
        self.event_patterns.is_empty() || self.event_patterns.iter().any(|pattern| pattern.matches(event))
    }

    /// Returns true if `event`, one of the events that a payment announces together, is sent: the PSP's filter and
    /// event families accept it.
    pub fn is_sent(&self, event: EventName, together: &[Announcement]) -> bool {
        let is_told = |name| together.iter().any(|announcement| announcement.name == name);
        self.wants(event) && self.policies.event_families.send(event, is_told)
    }
}

/// Reason why a PSP could not be loaded.
#[derive(Debug, Clone, thiserror::Error)]
pub enum PspError {
    /// No PSP has this id.
    #[error("no such PSP")]
    Unknown,
    /// Its stored settings are invalid for this version.
    #[error("the settings of {0} are unreadable: {1}")]
    Unreadable(PspId, String),
    /// The database is unavailable.
    #[error("the database is not available: {0}")]
    Unavailable(String),
}

/// Loads PSPs and caches each for [`STALE_MAX`].
#[derive(Clone, derive_more::Debug)]
#[debug("PspDirectory {{ remembered: {}, .. }}", self.seen.entry_count())]
pub struct PspDirectory {
    database: Database,
    ceilings: Ceilings,
    seen: moka::future::Cache<PspId, Arc<PspSettings>>,
}

impl PspDirectory {
    /// Creates an empty directory with the limits from the configuration.
    pub fn new(database: Database, ceilings: Ceilings) -> Self {
        let seen = moka::future::Cache::builder().max_capacity(PSPS_MAX).time_to_live(STALE_MAX).build();
        Self { database, ceilings, seen }
    }

    /// Returns the limits from the configuration, for PSPs without their own.
    pub const fn ceilings(&self) -> Ceilings {
        self.ceilings
    }

    /// Returns the PSP, at most [`STALE_MAX`] old.
    pub async fn get(&self, id: PspId) -> Result<Arc<PspSettings>, PspError> {
        if let Some(psp) = self.seen.get(&id).await {
            return Ok(psp);
        }
        let read = Box::pin(self.read(id));
        self.seen.try_get_with(id, read).await.map_err(|shared| (*shared).clone())
    }

    /// Removes a PSP from the cache, after a change made by this process.
    pub async fn forget(&self, id: PspId) {
        self.seen.invalidate(&id).await;
    }

    async fn read(&self, id: PspId) -> Result<Arc<PspSettings>, PspError> {
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
        Ok(Arc::new(PspSettings { ceilings: policies.ceilings(self.ceilings), policies, event_patterns }))
    }
}
