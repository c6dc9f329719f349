//! Database schema, one file per change.
