//! Pages for payers and customers, and the reference of the API.

pub mod consent;
pub mod pay;
pub mod reference;
