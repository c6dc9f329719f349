//! Several webhook endpoints per PSP. The existing one becomes the first: its id has the ULID of the PSP. A delivery without
//! an endpoint is one to the first.

use crate::change::{Change, Rebuild};

pub(crate) const CHANGE: Change = Change {
    sqlite_rebuilds: &[Rebuild {
        table: "webhook_endpoints",
        from: "PRIMARY KEY (psp_id)",
        to: "PRIMARY KEY (id)",
        indexes: &[("webhook_endpoints_psp_id", "ON webhook_endpoints (psp_id)")],
    }],
    postgres: &[
        "ALTER TABLE webhook_endpoints DROP CONSTRAINT webhook_endpoints_pkey",
        "ALTER TABLE webhook_endpoints ADD PRIMARY KEY (id)",
        "CREATE INDEX webhook_endpoints_psp_id ON webhook_endpoints (psp_id)",
    ],
    ..Change::plain("m0026_endpoints", UP)
};

const UP: &[&str] = &[
    "ALTER TABLE webhook_endpoints ADD COLUMN id TEXT NOT NULL DEFAULT ''",
    "ALTER TABLE webhook_endpoints ADD COLUMN description TEXT",
    "ALTER TABLE webhook_endpoints ADD COLUMN schedule TEXT NOT NULL DEFAULT 'default'",
    "ALTER TABLE webhook_endpoints ADD COLUMN status TEXT NOT NULL DEFAULT 'enabled'",
    "UPDATE webhook_endpoints SET id = 'we_' || substr(psp_id, 5)",
    "ALTER TABLE deliveries ADD COLUMN endpoint_id TEXT",
    // Each endpoint has its own queue.
    "DROP INDEX deliveries_queued",
    "CREATE INDEX deliveries_queued ON deliveries (COALESCE(endpoint_id, psp_id), position) WHERE status = 'queued'",
    "CREATE INDEX deliveries_retries ON deliveries (COALESCE(endpoint_id, psp_id), next_attempt_at)
         WHERE status = 'failed'",
    // The longest schedule has ten retries, of which the default one leaves seven unused.
    "UPDATE deliveries SET retries_left = retries_left + 7 WHERE status IN ('queued', 'failed')",
];
