//! Faults of the service's environment while it works.

mod database;
