//! Policies and webhook filters of PSPs, cached in memory.
//!
//! The database is authoritative. Cached values are at most [`STALE_MAX`] old, on every node.

mod checkout;
mod policies;
pub mod wallets;

use std::sync::Arc;
use std::time::Duration;

use payferry_domain::payment::{Announcement, EventName, EventPattern};
use payferry_domain::{EndpointId, PspId};
use payferry_entities::{Database, EndpointStatus, psps, webhook_endpoints};
use sea_orm::{ColumnTrait, ConnectionTrait, DbErr, EntityTrait, QueryFilter};

pub use checkout::{Checkout, Color, ColorError, PAYMENT_ID, ReturnUrl, ReturnUrlError};
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
    /// Display name.
    pub name: String,
    /// Policies.
    pub policies: PspPolicies,
    /// Limits on outbound transfers.
    pub ceilings: Ceilings,
    /// Its endpoints. Without one, the first endpoint, which gets every event once it exists.
    pub destinations: Vec<Destination>,
}

/// An endpoint as a destination of events.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Destination {
    /// The endpoint; `None` is the PSP's first one.
    pub endpoint_id: Option<EndpointId>,
    /// Events that it subscribes to.
    pub patterns: Vec<EventPattern>,
}

impl Destination {
    /// Returns true if the endpoint subscribes to this event.
    pub(crate) fn wants(&self, event: EventName) -> bool {
        self.patterns.iter().any(|pattern| pattern.matches(event))
    }
}

impl PspSettings {
    /// Returns the endpoints that an event is sent to.
    pub fn destinations_of(&self, event: EventName) -> Destinations {
        self.destinations.iter().filter(|to| to.wants(event)).map(|to| to.endpoint_id).collect()
    }

    /// Like [`Self::destinations_of`] for one of the events that a payment announces together: the PSP's event families
    /// may leave it out.
    pub fn destinations_among(&self, event: EventName, together: &[Announcement]) -> Destinations {
        let is_told = |name| together.iter().any(|announcement| announcement.name == name);
        if self.policies.event_families.send(event, is_told) { self.destinations_of(event) } else { Vec::new() }
    }
}

/// Endpoints that an event is sent to; `None` is the PSP's first one.
pub type Destinations = Vec<Option<EndpointId>>;

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
        let destinations = destinations(self.database.reader(), id).await?;
        let ceilings = policies.ceilings(self.ceilings);
        Ok(Arc::new(PspSettings { name: row.name, policies, ceilings, destinations }))
    }
}

/// Reads the endpoints of a PSP as destinations. Without one, the first endpoint, which gets every event once it exists.
pub(crate) async fn destinations(connection: &impl ConnectionTrait, id: PspId) -> Result<Vec<Destination>, PspError> {
    let unreadable = |error: String| PspError::Unreadable(id, error);
    let own = webhook_endpoints::Entity::find().filter(webhook_endpoints::Column::PspId.eq(id.to_string()));
    let own = own.filter(webhook_endpoints::Column::Status.ne(EndpointStatus::Deleted));
    let endpoints = own.all(connection).await.map_err(|error| PspError::Unavailable(error.to_string()))?;
    let mut destinations = Vec::with_capacity(endpoints.len().max(1));
    for endpoint in endpoints {
        let endpoint_id: EndpointId = endpoint.id.parse().map_err(|_| unreadable(endpoint.id.clone()))?;
        let patterns = patterns_of(&endpoint).map_err(|error| unreadable(error.to_string()))?;
        let endpoint_id = Some(endpoint_id).filter(|endpoint| *endpoint != EndpointId::first_of(id));
        destinations.push(Destination { endpoint_id, patterns });
    }
    if destinations.is_empty() {
        destinations.push(Destination { endpoint_id: None, patterns: vec![EventPattern::All] });
    }
    Ok(destinations)
}

/// Returns the patterns of an endpoint's row. An empty list means all events.
pub fn patterns_of(endpoint: &webhook_endpoints::Model) -> Result<Vec<EventPattern>, serde_json::Error> {
    let patterns: Vec<EventPattern> = serde_json::from_str(&endpoint.events)?;
    Ok(if patterns.is_empty() { vec![EventPattern::All] } else { patterns })
}
