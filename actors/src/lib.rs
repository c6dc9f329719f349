//! The supervision tree that runs payments.
