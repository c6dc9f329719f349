//! First grants of a new contract.

use alloy::primitives::{Address, Bytes, U256};
use alloy::sol_types::SolCall;

use crate::bindings::{Payferry, Role};

/// The grants of the admin to a new contract. Until then, nothing can be settled or sent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Grants {
    /// Key that settles.
    pub settler: Address,
    /// Key that sends outbound transfers.
    pub sender: Address,
    /// Account that receives the fees.
    pub treasury: Address,
    /// Tokens that can be sent, and what of each can be sent in 24 hours, in base units. One transfer moves at most half
    /// of it.
    pub limits: Vec<(Address, U256)>,
}

impl Grants {
    /// Returns the call data of the admin's transactions to the contract. The first grants take effect immediately.
    ///
    /// ```
    /// use alloy::primitives::{Address, U256};
    /// use payferry_contracts::Grants;
    /// let [settler, sender, treasury, token] = [1, 2, 3, 4].map(Address::with_last_byte);
    /// let grants = Grants { settler, sender, treasury, limits: vec![(token, U256::from(1_000_000))] };
    /// assert_eq!(grants.calls().len(), 4);
    /// ```
    pub fn calls(&self) -> Vec<Bytes> {
        let keys = [(Role::Settler, self.settler), (Role::Sender, self.sender)];
        let keys = keys.map(|(role, key)| Payferry::grantCall { role, key }.abi_encode());
        let treasury = Payferry::setTreasuryCall { treasury_: self.treasury }.abi_encode();
        let limits = self.limits.iter().map(|&(token, limit)| Payferry::setLimitCall { token, limit }.abi_encode());
        keys.into_iter().chain([treasury]).chain(limits).map(Bytes::from).collect()
    }
}
