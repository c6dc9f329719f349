//! A key for tests, and for payers of sandboxes and test networks. It must never hold real funds.

use std::sync::atomic::{AtomicU64, Ordering};

use alloy::consensus::{SignableTransaction, TxEip1559, TxEnvelope};
use alloy::eips::eip2718::Encodable2718;
use alloy::primitives::{Address, B256, Bytes, TxKind, keccak256};
use alloy::signers::SignerSync;
use alloy::signers::local::PrivateKeySigner;

/// A key with its own nonce counter that signs EIP-1559 transactions.
#[derive(Debug)]
pub struct DevWallet {
    signer: PrivateKeySigner,
    nonce: AtomicU64,
}

impl DevWallet {
    /// Returns the key of this seed. The result is always the same.
    pub fn from_seed(seed: &str) -> Self {
        let mut secret = keccak256(seed);
        // A hash that is not a valid key (one in 2^128) is hashed again.
        loop {
            if let Ok(signer) = PrivateKeySigner::from_bytes(&secret) {
                return Self::of(signer);
            }
            secret = keccak256(secret);
        }
    }

    /// Returns the wallet of this key.
    pub const fn of(signer: PrivateKeySigner) -> Self {
        Self { signer, nonce: AtomicU64::new(0) }
    }

    /// Returns the address.
    pub fn address(&self) -> Address {
        self.signer.address()
    }

    /// Returns the signer, for an alloy wallet.
    pub fn signer(&self) -> &PrivateKeySigner {
        &self.signer
    }

    /// Returns the next nonce and increments the counter, which starts at 0.
    pub fn next_nonce(&self) -> u64 {
        self.nonce.fetch_add(1, Ordering::Relaxed)
    }

    /// Sets the counter, which is the next nonce.
    pub fn set_nonce(&self, nonce: u64) {
        self.nonce.store(nonce, Ordering::Relaxed);
    }

    /// Signs a call without value. Returns the raw transaction and its hash. Fees are in wei per gas.
    #[allow(clippy::too_many_arguments, reason = "the fields of a transaction")]
    pub fn sign_call(
        &self,
        chain_id: u64,
        nonce: u64,
        to: Address,
        input: Bytes,
        gas_limit: u64,
        max_fee: u128,
        priority: u128,
    ) -> (Bytes, B256) {
        self.sign(TxEip1559 {
            chain_id,
            nonce,
            gas_limit,
            max_fee_per_gas: max_fee,
            max_priority_fee_per_gas: priority,
            to: TxKind::Call(to),
            input,
            ..TxEip1559::default()
        })
    }

    /// Signs any EIP-1559 transaction, including deployments and values. Returns the raw transaction and its hash.
    pub fn sign(&self, tx: TxEip1559) -> (Bytes, B256) {
        #[allow(clippy::expect_used, reason = "a local key signs any 32 bytes")]
        let signature = self.signer.sign_hash_sync(&tx.signature_hash()).expect("a local key signs any hash");
        let envelope: TxEnvelope = tx.into_signed(signature).into();
        (envelope.encoded_2718().into(), *envelope.tx_hash())
    }
}
