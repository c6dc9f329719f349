//! Indexes of the customers of all PSPs by time, for the operator: newest first, and by verification status. They
//! contain the other filter columns of the operator's list, like the index of a PSP's customers.

pub(crate) const UP: &[&str] = &[
    "CREATE INDEX customers_newest ON customers (created_at, id, is_active, email_search)",
    "CREATE INDEX customers_kyc_status ON customers (kyc_status, created_at, id, psp_id, is_active, email_search)",
];
