//! Withdrawal wallets of PSPs, and pauses set by the operator.

pub(crate) const UP: &[&str] = &[
    // Rows are only inserted; their order and times determine the current wallet.
    "CREATE TABLE withdrawal_wallets (
         number {identity},
         psp_id TEXT NOT NULL,
         chain TEXT NOT NULL,
         address TEXT,
         effective_at BIGINT NOT NULL,
         set_by TEXT NOT NULL,
         created_at BIGINT NOT NULL,
         FOREIGN KEY (psp_id) REFERENCES psps (id)
     )",
    "CREATE INDEX withdrawal_wallets_psp_id_number ON withdrawal_wallets (psp_id, number)",
    "CREATE TABLE pauses (
         scope TEXT NOT NULL,
         reason TEXT NOT NULL,
         set_by TEXT NOT NULL,
         since BIGINT NOT NULL,
         PRIMARY KEY (scope)
     )",
];
