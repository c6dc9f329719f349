//! What the service stands on fails while it works.

mod database;
