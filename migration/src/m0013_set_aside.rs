//! Index of transfers that their payments processed but do not list. They are few, and the operator searches for them.

pub(crate) const UP: &[&str] = &["CREATE INDEX transfers_set_aside ON transfers (payment_id, chain, token_address) \
     WHERE applied_version = 0 AND applied_revision > 0 AND presence = 'present'"];
