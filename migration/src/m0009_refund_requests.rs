//! Requests of payers for refunds: the columns of their list.

use crate::change::Change;

pub(crate) const CHANGE: Change = Change {
    name: "m0009_refund_requests",
    both: &[&[
        "CREATE TABLE refund_requests (
             id TEXT NOT NULL,
             payment_id TEXT NOT NULL,
             psp_id TEXT NOT NULL,
             status TEXT NOT NULL,
             created_at BIGINT NOT NULL,
             PRIMARY KEY (id),
             CHECK (status IN ('requested', 'approved', 'declined')),
             FOREIGN KEY (payment_id) REFERENCES payments (id)
         )",
        "CREATE INDEX refund_requests_list ON refund_requests (psp_id, created_at, id)",
        "CREATE INDEX refund_requests_status ON refund_requests (psp_id, status, created_at, id)",
        "CREATE INDEX refund_requests_payment ON refund_requests (payment_id, created_at, id)",
    ]],
    sqlite: &[],
    postgres: &[],
};
