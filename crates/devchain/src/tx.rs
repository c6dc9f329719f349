//! A signed transaction with its hash and sender, decoded and recovered once, without a lock.

use alloy::consensus::transaction::SignerRecoverable;
use alloy::consensus::{Transaction, TxEnvelope, TxType};
use alloy::eips::eip2718::Decodable2718;
use alloy::primitives::{Address, B256, U256};
use revm::context::TxEnv;
use revm::context::either::Either;

use crate::error::RpcError;

/// Maximum size of a transaction in geth's pool, in bytes.
const TX_BYTES_MAX: usize = 131_072;

#[derive(Debug)]
pub(crate) struct Tx {
    pub hash: B256,
    pub sender: Address,
    pub envelope: TxEnvelope,
}

impl Tx {
    pub(crate) fn decode(raw: &[u8]) -> Result<Self, RpcError> {
        if raw.len() > TX_BYTES_MAX {
            let message = format!("oversized data: transaction size {}, limit {TX_BYTES_MAX}", raw.len());
            return Err(RpcError::server(message));
        }
        let envelope = decode(raw).map_err(RpcError::server)?;
        if envelope.tx_type() == TxType::Eip4844 {
            return Err(RpcError::server("transaction type not supported"));
        }
        let sender = envelope.recover_signer();
        let sender = sender.map_err(|_| RpcError::server("invalid sender: invalid transaction v, r, s values"))?;
        Ok(Self { hash: *envelope.tx_hash(), sender, envelope })
    }

    /// Creates a transaction whose sender was recovered at acceptance.
    pub(crate) fn recovered(raw: &[u8], sender: Address) -> Result<Self, &'static str> {
        let envelope = decode(raw)?;
        Ok(Self { hash: *envelope.tx_hash(), sender, envelope })
    }

    pub(crate) fn nonce(&self) -> u64 {
        self.envelope.nonce()
    }

    pub(crate) fn gas_limit(&self) -> u64 {
        self.envelope.gas_limit()
    }

    pub(crate) fn max_fee(&self) -> u128 {
        self.envelope.max_fee_per_gas()
    }

    /// Returns the maximum tip per gas. For a legacy transaction this is its whole price.
    pub(crate) fn max_tip(&self) -> u128 {
        self.envelope.max_priority_fee_per_gas().unwrap_or_else(|| self.max_fee())
    }

    /// Returns the tip per gas at `base_fee`; `None` if the transaction does not cover the base fee.
    pub(crate) fn tip(&self, base_fee: u64) -> Option<u128> {
        self.max_fee().checked_sub(u128::from(base_fee)).map(|room| room.min(self.max_tip()))
    }

    /// Returns the maximum amount that the sender can be charged.
    pub(crate) fn cost(&self) -> U256 {
        (U256::from(self.gas_limit()) * U256::from(self.max_fee())).saturating_add(self.envelope.value())
    }

    pub(crate) fn env(&self) -> TxEnv {
        let tx = &self.envelope;
        TxEnv {
            tx_type: tx.tx_type() as u8,
            caller: self.sender,
            gas_limit: tx.gas_limit(),
            gas_price: tx.max_fee_per_gas(),
            kind: tx.kind(),
            value: tx.value(),
            data: tx.input().clone(),
            nonce: tx.nonce(),
            chain_id: tx.chain_id(),
            access_list: tx.access_list().cloned().unwrap_or_default(),
            gas_priority_fee: tx.max_priority_fee_per_gas(),
            authorization_list: tx.authorization_list().unwrap_or_default().iter().cloned().map(Either::Left).collect(),
            ..TxEnv::default()
        }
    }
}

fn decode(mut raw: &[u8]) -> Result<TxEnvelope, &'static str> {
    let envelope = TxEnvelope::decode_2718(&mut raw).map_err(|_| "rlp: transaction could not be decoded")?;
    if raw.is_empty() { Ok(envelope) } else { Err("rlp: input contains more than one value") }
}
