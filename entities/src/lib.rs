//! Database tables as SeaORM entities.
