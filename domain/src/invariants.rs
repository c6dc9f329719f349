//! Numbered, named invariants.
