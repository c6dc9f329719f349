//! A payer's signed authorization (EIP-3009), as the contract and the token take it.

use alloy::primitives::{Address, B256, Bytes, U256};
use alloy::sol_types::{SolCall, SolValue};

use crate::{Authorization, Erc3009};

/// Length of the signature of a plain account: r, s and v.
pub const PLAIN_SIGNATURE_BYTES: usize = 65;

/// An authorization with its signature.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SignedAuthorization {
    /// Payer.
    pub from: Address,
    /// Base units.
    pub value: u128,
    /// Seconds, exclusive.
    pub valid_after: u64,
    /// Seconds, exclusive.
    pub valid_before: u64,
    /// Nonce.
    pub nonce: B256,
    /// r, s and v of a plain account, or the bytes of a contract wallet (ERC-1271).
    pub signature: Bytes,
    /// True if a contract wallet signed, so that the token gets the bytes.
    pub by_contract: bool,
}

impl SignedAuthorization {
    /// Returns the terms as `collect` takes them.
    pub fn terms(&self) -> Authorization {
        let (v, r, s) = self.plain_signature().unwrap_or_default();
        Authorization {
            from: self.from,
            value: self.value,
            validAfter: U256::from(self.valid_after),
            validBefore: U256::from(self.valid_before),
            v,
            r,
            s,
        }
    }

    /// Returns the bytes that `collect` takes beside the terms; empty for a plain account.
    pub fn contract_signature(&self) -> Bytes {
        if self.by_contract { self.signature.clone() } else { Bytes::new() }
    }

    /// Returns the call of the token that the contract makes: `ReceiveWithAuthorization` to the contract itself.
    pub fn receive_call(&self, to: Address) -> Vec<u8> {
        use Erc3009::{receiveWithAuthorization_0Call as Plain, receiveWithAuthorization_1Call as ByContract};
        self.call(to, Plain::SELECTOR, ByContract::SELECTOR)
    }

    /// Returns the call of the token that the contract makes: `TransferWithAuthorization` to the vault of the payment.
    pub fn transfer_call(&self, to: Address) -> Vec<u8> {
        use Erc3009::{transferWithAuthorization_0Call as Plain, transferWithAuthorization_1Call as ByContract};
        self.call(to, Plain::SELECTOR, ByContract::SELECTOR)
    }

    /// Both calls have the same parameters.
    fn call(&self, to: Address, plain: [u8; 4], by_contract: [u8; 4]) -> Vec<u8> {
        let Authorization { from, validAfter, validBefore, v, r, s, .. } = self.terms();
        let (value, nonce) = (U256::from(self.value), self.nonce);
        if self.by_contract {
            let terms = (from, to, value, validAfter, validBefore, nonce, self.signature.clone());
            return [by_contract.to_vec(), terms.abi_encode_params()].concat();
        }
        [plain.to_vec(), (from, to, value, validAfter, validBefore, nonce, U256::from(v), r, s).abi_encode_params()]
            .concat()
    }

    /// v (27 or 28), r and s.
    fn plain_signature(&self) -> Option<(u8, B256, B256)> {
        if self.by_contract || self.signature.len() != PLAIN_SIGNATURE_BYTES {
            return None;
        }
        let (r, s) = (B256::from_slice(&self.signature[..32]), B256::from_slice(&self.signature[32..64]));
        let v = self.signature[64];
        Some((if v < 27 { v + 27 } else { v }, r, s))
    }
}
