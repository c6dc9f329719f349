//! The settlement contracts, their compiled artifacts and typed bindings.
