//! Screening of incoming money (KYT): the trait providers implement, a list-based provider, and the actor that asks them.

mod kyt;
mod list;
mod screening;

pub use kyt::{KytError, KytScreener, ScreenRequest};
pub use list::ListScreener;
pub use screening::{Screening, ScreeningConfig};
