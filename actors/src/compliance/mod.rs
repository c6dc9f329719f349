//! Screening of incoming money (KYT): the provider trait, the providers, and the screening actor. Customer verification
//! is in [`identity`].
//!
//! One provider is asked; if several are configured, it is [`Strictest`] over them. A provider error is never an
//! `allow`: [`Screening`] holds the funds and requests a verdict again.

mod allow_all;
mod chainalysis;
mod http;
pub mod identity;
mod kyt;
mod list;
mod metrics;
mod oracle;
mod sanctions_file;
mod screening;
mod sender;
mod strictest;
#[cfg(test)]
mod tests;
mod verdict;

pub use allow_all::AllowAll;
pub use chainalysis::{ChainalysisApi, ChainalysisApiError, RiskDecisions};
pub use kyt::{KytError, KytScreener, KytSubject, ScreenRequest};
pub use list::ListScreener;
pub use oracle::ChainalysisOracle;
pub use sanctions_file::{SanctionsFile, SanctionsFileError};
pub use screening::{Screening, ScreeningConfig};
pub use sender::{PlainAccounts, SENDER_KIND_TIMEOUT, SenderKind};
pub use strictest::Strictest;
