//! Refunds as rows, for their lists. The refund itself stays part of the state of its payment.

use crate::change::Change;

pub(crate) const CHANGE: Change =
    Change { sqlite: REFUNDS_SQLITE, postgres: REFUNDS_POSTGRES, ..Change::plain("m0025_refunds", UP) };

const UP: &[&str] = &[
    "CREATE TABLE refunds (
         id TEXT NOT NULL,
         payment_id TEXT NOT NULL,
         psp_id TEXT NOT NULL,
         reference TEXT,
         status TEXT NOT NULL,
         created_at BIGINT NOT NULL,
         PRIMARY KEY (id),
         FOREIGN KEY (payment_id) REFERENCES payments (id)
     )",
    "CREATE INDEX refunds_list ON refunds (psp_id, created_at, id)",
    "CREATE INDEX refunds_status ON refunds (psp_id, status, created_at, id)",
    "CREATE INDEX refunds_reference ON refunds (psp_id, reference, created_at, id) WHERE reference IS NOT NULL",
    "CREATE INDEX refunds_payment ON refunds (payment_id, created_at, id)",
];

// The text is only a fast filter: `json_each` finds the refunds.
const REFUNDS_SQLITE: &[&str] = &["INSERT INTO refunds (id, payment_id, psp_id, status, created_at)
     SELECT json_extract(r.value, '$.id'), p.id, p.psp_id,
         CASE WHEN json_extract(r.value, '$.state') = 'pending' AND json_extract(r.value, '$.limit') = 'approval'
             AND json_extract(r.value, '$.approved_at') IS NULL
             THEN 'pending_approval' ELSE json_extract(r.value, '$.state') END,
         json_extract(r.value, '$.requested_at')
     FROM payments p, json_each(p.state, '$.refunds') r WHERE p.state LIKE '%\"refunds\":[{%'"];
// PostgreSQL's JSON functions refuse the escaped NUL, which `metadata` may contain.
const REFUNDS_POSTGRES: &[&str] = &["INSERT INTO refunds (id, payment_id, psp_id, status, created_at)
     SELECT r ->> 'id', p.id, p.psp_id,
         CASE WHEN r ->> 'state' = 'pending' AND r ->> 'limit' = 'approval' AND r ->> 'approved_at' IS NULL
             THEN 'pending_approval' ELSE r ->> 'state' END,
         (r ->> 'requested_at')::bigint
     FROM payments p CROSS JOIN LATERAL
         jsonb_array_elements(replace(p.state, '\\u0000', '\\u0001')::jsonb -> 'refunds') r
     WHERE p.state LIKE '%\"refunds\":[{%'"];
