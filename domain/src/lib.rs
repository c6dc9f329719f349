//! The payment domain: pure, no input or output.
