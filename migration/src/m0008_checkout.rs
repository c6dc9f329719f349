//! Logos of the PSPs on the payer's page.

use crate::change::Change;

pub(crate) const CHANGE: Change = Change {
    name: "m0008_checkout",
    both: &[&[
        "CREATE TABLE checkout_logos (
             psp_id TEXT PRIMARY KEY NOT NULL,
             hash TEXT NOT NULL,
             media_type TEXT NOT NULL,
             content {bytes} NOT NULL,
             uploaded_at BIGINT NOT NULL,
             FOREIGN KEY (psp_id) REFERENCES psps (id)
         )",
        "CREATE INDEX checkout_logos_hash ON checkout_logos (hash)",
    ]],
    sqlite: &[],
    postgres: &[],
};
