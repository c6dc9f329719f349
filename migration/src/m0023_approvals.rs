//! Actions that wait for the approval of a second operator.

pub(crate) const UP: &[&str] = &[
    // `open_key` names the subject of an approval that is not closed: there is at most one. The second condition of the
    // check stops a write that lets operators approve their own proposal.
    "CREATE TABLE approvals (
         id TEXT NOT NULL,
         kind TEXT NOT NULL,
         status TEXT NOT NULL,
         psp_id TEXT NOT NULL,
         action TEXT NOT NULL,
         subject_state TEXT NOT NULL,
         reason TEXT,
         open_key TEXT,
         proposed_by TEXT NOT NULL,
         decided_by TEXT,
         decided_at BIGINT,
         decision_reason TEXT,
         failure_reason TEXT,
         failure TEXT,
         expires_at BIGINT NOT NULL,
         created_at BIGINT NOT NULL,
         updated_at BIGINT NOT NULL,
         PRIMARY KEY (id),
         UNIQUE (open_key),
         CHECK (status NOT IN ('approved', 'carried_out', 'failed')
             OR (decided_by IS NOT NULL AND decided_by <> proposed_by))
     )",
    "CREATE INDEX approvals_list ON approvals (created_at, id)",
    "CREATE INDEX approvals_status ON approvals (status, created_at, id)",
    "CREATE INDEX approvals_open ON approvals (created_at, id) WHERE open_key IS NOT NULL",
];
