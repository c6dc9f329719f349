//! Services that the actors of payouts and withdrawals use.

use std::ops::Deref;
use std::sync::Arc;

use super::LiveOutbound;
use crate::services::Services;

/// Services that a payout or withdrawal uses.
pub(crate) struct OutboundServices {
    services: Arc<Services>,
    /// Live payouts and withdrawals, and their mailboxes.
    pub(crate) live: Arc<LiveOutbound>,
}

/// The services that payouts and withdrawals share with the rest of the tree.
impl Deref for OutboundServices {
    type Target = Services;

    fn deref(&self) -> &Services {
        &self.services
    }
}

impl OutboundServices {
    /// Services of a tree without live payouts and withdrawals.
    pub(crate) fn new(services: Arc<Services>) -> Self {
        Self { services, live: Arc::default() }
    }
}
