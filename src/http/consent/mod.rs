//! A customer's consent to the terms of service: the link that a PSP asks for, and the terms that it leads to.
//!
//! Whoever holds the link may accept; nothing is asked of the customer but a click. The page is in `pages::consent`.

pub mod link;
pub mod request;
mod terms;

pub use link::LINK_SECS;
pub use terms::{TERMS_BYTES_MAX, Terms, TermsError};
