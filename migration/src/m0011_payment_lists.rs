//! Index of a PSP's payments by purpose. The lists of payments and of transfers use it for counting and paging.

pub(crate) const UP: &[&str] = &[
    "CREATE INDEX payments_psp_id_purpose_created_at_id ON payments (psp_id, purpose, created_at, id)",
    "DROP INDEX payments_psp_id_created_at_id",
];
