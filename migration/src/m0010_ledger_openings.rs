//! Marker that everything from before the ledger is posted. The service sets it, because only the domain can create the
//! postings.

pub(crate) const UP: &[&str] = &["CREATE TABLE ledger_openings (
         id BIGINT NOT NULL PRIMARY KEY CHECK (id = 1),
         opened_at BIGINT NOT NULL
     )"];
