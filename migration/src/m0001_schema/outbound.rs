//! Payouts and withdrawals.

pub(super) const BOTH: &[&str] = &[
    "CREATE TABLE sendings (
         id TEXT NOT NULL,
         psp_id TEXT NOT NULL,
         kind TEXT NOT NULL,
         customer_id TEXT,
         reference TEXT,
         chain TEXT NOT NULL,
         token TEXT NOT NULL,
         amount BIGINT NOT NULL,
         recipient TEXT NOT NULL,
         version BIGINT NOT NULL,
         status TEXT NOT NULL,
         live BOOLEAN NOT NULL,
         in_review BOOLEAN NOT NULL,
         created_at BIGINT NOT NULL,
         updated_at BIGINT NOT NULL,
         state TEXT NOT NULL,
         PRIMARY KEY (id),
         CHECK (kind IN ('payout', 'withdrawal')),
         CHECK (status IN ('pending', 'sent', 'failed')),
         CHECK (amount > 0),
         FOREIGN KEY (psp_id) REFERENCES psps (id)
     )",
    "CREATE INDEX sendings_psp_id_kind_created_at_id ON sendings (psp_id, kind, created_at, id)",
    "CREATE INDEX sendings_live ON sendings (id) WHERE live",
    "CREATE INDEX sendings_customer ON sendings (psp_id, kind, customer_id, created_at, id)",
    "CREATE INDEX sendings_reference ON sendings (psp_id, kind, reference, created_at, id)",
    "CREATE TABLE sending_transitions (
         sending_id TEXT NOT NULL,
         version BIGINT NOT NULL,
         at BIGINT NOT NULL,
         events TEXT NOT NULL,
         PRIMARY KEY (sending_id, version),
         FOREIGN KEY (sending_id) REFERENCES sendings (id)
     )",
    "CREATE TABLE sends_per_day (
         psp_id TEXT NOT NULL,
         token TEXT NOT NULL,
         day BIGINT NOT NULL,
         amount BIGINT NOT NULL,
         PRIMARY KEY (psp_id, token, day),
         FOREIGN KEY (psp_id) REFERENCES psps (id)
     )",
];
