//! Screening of incoming money (KYT): the trait that providers implement, the providers, and the actor that asks them.
//! Verification of customers is a room of its own, [`identity`].
//!
//! One provider is asked; where several are configured, it is [`Strictest`] over them. An error of a provider is never an
//! `allow`: [`Screening`] holds the money and asks again.

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
pub use kyt::{KytError, KytScreener, ScreenRequest, Subject};
pub use list::ListScreener;
pub use oracle::ChainalysisOracle;
pub use sanctions_file::{SanctionsFile, SanctionsFileError};
pub use screening::{Screening, ScreeningConfig};
pub use sender::{SENDER_KIND_TIMEOUT, SenderKind};
pub use strictest::Strictest;
