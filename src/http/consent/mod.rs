//! A customer's consent to the terms of service: the link that a PSP requests, and the terms behind it.
//!
//! The link is the only credential: the customer just clicks to accept. The page is in `pages::consent`.

pub mod link;
pub mod request;
mod terms;

pub use link::LINK_SECS;
pub use terms::{TERMS_BYTES_MAX, Terms, TermsError};
