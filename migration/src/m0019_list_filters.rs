//! Indexes for the filters of lists, and the labels of payments as a column.
//!
//! An index begins with the columns that are compared and continues in the order of its list, so that a query reads only
//! the rows of one page. The index of a PSP's payments contains the chain and the token, which never change. Few payments
//! have labels, and only those are in the index of labels.

use crate::change::Change;

pub(crate) const CHANGE: Change =
    Change { sqlite: LABELS_SQLITE, postgres: LABELS_POSTGRES, ..Change::plain("m0019_list_filters", UP) };

const UP: &[&str] = &[
    "CREATE INDEX payments_list ON payments (psp_id, purpose, created_at, id, chain, token)",
    "DROP INDEX payments_psp_id_purpose_created_at_id",
    "CREATE INDEX payments_updated ON payments (psp_id, purpose, updated_at)",
    "CREATE INDEX sendings_customer ON sendings (psp_id, kind, customer_id, created_at, id)",
    "CREATE INDEX sendings_reference ON sendings (psp_id, kind, reference, created_at, id)",
    "CREATE INDEX customers_psp_kyc_status \
     ON customers (psp_id, kyc_status, created_at, id, is_active, email_search)",
    "ALTER TABLE payments ADD COLUMN labels TEXT",
    "CREATE INDEX payments_labelled ON payments (psp_id, purpose, created_at, id, labels) WHERE labels IS NOT NULL",
];

const LABELS_SQLITE: &[&str] =
    &["UPDATE payments SET labels = json_extract(state, '$.labels') WHERE json_extract(state, '$.labels') <> '[]'"];
// PostgreSQL's JSON functions refuse the escaped NUL, which `metadata` may contain.
const LABELS_POSTGRES: &[&str] = &["UPDATE payments SET labels = found.labels FROM (
         SELECT id, replace(state, '\\u0000', '\\u0001')::jsonb ->> 'labels' AS labels FROM payments
     ) found WHERE payments.id = found.id AND found.labels <> '[]'"];
