//! Addresses that must never receive funds: the service's own, token contracts, and addresses without an owner.
//!
//! Deliberately absent: screening (the KYT provider knows the owners of addresses), and checksums of input.

use payferry_domain::Address;
use payferry_entities::Database;
use payferry_evm::ChainSpec;
use payferry_evm::wallet::Vaults;
use payferry_journal::payments::StoreError;
use sea_orm::DbErr;

use crate::chain::{self, Watchlist};
use crate::system::System;

/// Highest number of a built-in contract; the lowest is 1.
const RESERVED_MAX: u16 = 0x01ff;

/// Reason why an address must not receive funds.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Unsuitable {
    /// The zero address: funds sent there are lost.
    #[error("is the zero address")]
    Zero,
    /// A built-in contract of every chain: funds sent there are lost.
    #[error("is one of the chain's own contracts")]
    Reserved,
    /// Contract of a token or look-alike.
    #[error("is the contract of a token")]
    Token,
    /// The settlement contract.
    #[error("is the settlement contract of this service")]
    Contract,
    /// Recipient of fees.
    #[error("is the treasury of this service")]
    Treasury,
    /// Vault of a payment or of a PSP: the funds would belong to it.
    #[error("is a vault of this service")]
    Vault,
}

impl Unsuitable {
    /// Machine-readable reason code.
    pub const fn code(self) -> &'static str {
        match self {
            Self::Zero => "zero_address",
            Self::Reserved => "reserved_address",
            Self::Token => "token_contract",
            Self::Contract => "service_contract",
            Self::Treasury => "treasury_address",
            Self::Vault => "service_vault",
        }
    }
}

/// Reason why an address must not receive funds, as far as it is known without the database.
fn unsuitable_by_itself<'a>(specs: impl IntoIterator<Item = &'a ChainSpec>, address: Address) -> Option<Unsuitable> {
    if let Some(reason) = of_the_chain(address) {
        return Some(reason);
    }
    // On any chain: an address is the same on all of them.
    specs.into_iter().find_map(|spec| {
        let is_token = spec.watched_contracts().any(|token| token == address);
        let is_treasury = spec.treasury == address;
        let is_contract = spec.contract == address;
        let own =
            [(is_token, Unsuitable::Token), (is_contract, Unsuitable::Contract), (is_treasury, Unsuitable::Treasury)];
        own.into_iter().find_map(|(is, reason)| is.then_some(reason))
    })
}

/// Checks the lowest addresses, which are reserved by the chains.
fn of_the_chain(address: Address) -> Option<Unsuitable> {
    let (head, tail) = address.0.split_at(18);
    if head.iter().any(|byte| *byte != 0) {
        return None;
    }
    match u16::from_be_bytes([tail[0], tail[1]]) {
        0 => Some(Unsuitable::Zero),
        1..=RESERVED_MAX => Some(Unsuitable::Reserved),
        _ => None,
    }
}

impl System {
    /// Reason why an address must not receive funds, if any.
    pub async fn unsuitable(&self, address: Address) -> Result<Option<Unsuitable>, DbErr> {
        let specs: Vec<&ChainSpec> = self.chains().running().collect();
        unsuitable(self.database(), self.chains().watchlist(), specs, address).await
    }
}

/// Reason why an address must not receive funds, if any. Without a running service, the watchlist is empty.
pub async fn unsuitable<'a>(
    database: &Database,
    watchlist: &Watchlist,
    specs: impl IntoIterator<Item = &'a ChainSpec> + Clone,
    address: Address,
) -> Result<Option<Unsuitable>, DbErr> {
    if let Some(reason) = unsuitable_by_itself(specs.clone(), address) {
        return Ok(Some(reason));
    }
    let of_payment = chain::owners(database, watchlist, vec![address]).await.map_err(|error| match error {
        StoreError::Database(error) => error,
        unreadable @ StoreError::Unreadable { .. } => DbErr::Custom(unreadable.to_string()),
    })?;
    if !of_payment.is_empty() {
        return Ok(Some(Unsuitable::Vault));
    }
    // PSP vaults are not stored: they are derived from the ids.
    let ids = chain::psp_ids(database).await?;
    let is_of_psp = specs.into_iter().any(|spec| {
        let vaults = Vaults::new(spec.contract);
        ids.iter().any(|id| vaults.of_psp(*id) == address)
    });
    Ok(is_of_psp.then_some(Unsuitable::Vault))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lowest_addresses_are_reserved() {
        let numbered = |number: u16| {
            let mut bytes = [0; 20];
            bytes[18..].copy_from_slice(&number.to_be_bytes());
            of_the_chain(Address(bytes))
        };
        assert_eq!(numbered(0), Some(Unsuitable::Zero));
        assert_eq!((numbered(1), numbered(0x0100)), (Some(Unsuitable::Reserved), Some(Unsuitable::Reserved)));
        assert_eq!((numbered(RESERVED_MAX + 1), of_the_chain(Address([1; 20]))), (None, None));
    }
}
