//! What payouts and withdrawals need from the rest of the tree.

use std::ops::Deref;
use std::sync::Arc;

use super::LiveOutbound;
use crate::services::Services;

/// Everything a payout or withdrawal speaks to.
pub(crate) struct SendingServices {
    services: Arc<Services>,
    /// The live ones, and the way to them.
    pub(crate) live: Arc<LiveOutbound>,
}

/// The services that payouts and withdrawals share with the rest of the tree.
impl Deref for SendingServices {
    type Target = Services;

    fn deref(&self) -> &Services {
        &self.services
    }
}

impl SendingServices {
    /// Of a tree in which none is live yet.
    pub(crate) fn new(services: Arc<Services>) -> Self {
        Self { services, live: Arc::default() }
    }
}
