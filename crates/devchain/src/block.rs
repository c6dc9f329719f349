//! Blocks as stored: the few fields that cannot be derived, and a body only if there are transactions.

use std::ops::Range;
use std::sync::Arc;

use alloy::consensus::{Header, Receipt as ConsensusReceipt, ReceiptEnvelope, TxReceipt as _, proofs};
use alloy::primitives::{Address, B256, Bloom, Bytes, Log, address, keccak256};

use crate::tx::Tx;

/// Account that receives the tips.
pub(crate) const BENEFICIARY: Address = address!("00000000000000000000000000000000c01bA5e0");

/// Position and hash of a block.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize)]
pub struct BlockRef {
    /// Block number, from 0.
    pub number: u64,
    /// Hash of the header.
    pub hash: B256,
    /// Hash of the parent; zero for block 0.
    pub parent_hash: B256,
    /// Timestamp in Unix seconds.
    pub timestamp: u64,
}

/// Parameters of a block, except its transactions.
#[derive(Clone, Copy, Debug)]
pub(crate) struct BlockParams {
    pub number: u64,
    pub parent_hash: B256,
    pub timestamp: u64,
    pub base_fee: u64,
    /// Distinguishes a block of a reorg from the block that it replaces; 0 otherwise.
    pub salt: u64,
}

#[derive(Debug)]
pub(crate) struct Block {
    pub number: u64,
    pub hash: B256,
    pub parent_hash: B256,
    pub timestamp: u64,
    pub base_fee: u64,
    pub gas_limit: u64,
    pub salt: u64,
    pub body: Option<Box<Body>>,
}

#[derive(Debug)]
pub(crate) struct Body {
    pub txs: Vec<Arc<Tx>>,
    /// One per transaction.
    pub receipts: Vec<Receipt>,
    /// Logs of the whole block. The index of a log is its position here.
    pub logs: Vec<LogEntry>,
    pub gas_used: u64,
    transactions_root: B256,
    receipts_root: B256,
    bloom: Bloom,
}

#[derive(Debug)]
pub(crate) struct Receipt {
    pub success: bool,
    pub gas_used: u64,
    pub gas_used_cumulative: u64,
    pub gas_price: u128,
    pub contract: Option<Address>,
    /// Its logs in those of the block.
    pub logs: Range<usize>,
}

#[derive(Debug)]
pub(crate) struct LogEntry {
    pub log: Log,
    pub tx_index: usize,
}

impl Body {
    /// Returns `None` if there are no transactions.
    pub(crate) fn new(txs: Vec<Arc<Tx>>, receipts: Vec<Receipt>, logs: Vec<LogEntry>) -> Option<Box<Self>> {
        let gas_used = receipts.last()?.gas_used_cumulative;
        let envelopes: Vec<_> = txs.iter().map(|tx| &tx.envelope).collect();
        let transactions_root = proofs::calculate_transaction_root(&envelopes);
        let mut body =
            Self { txs, receipts, logs, gas_used, transactions_root, receipts_root: B256::ZERO, bloom: Bloom::ZERO };
        let envelopes: Vec<_> = (0..body.txs.len()).map(|index| body.receipt_envelope(index)).collect();
        body.receipts_root = proofs::calculate_receipt_root(&envelopes);
        body.bloom = envelopes.iter().fold(Bloom::ZERO, |bloom, receipt| bloom | receipt.bloom());
        Some(Box::new(body))
    }

    fn receipt_envelope(&self, index: usize) -> ReceiptEnvelope {
        let receipt = &self.receipts[index];
        let logs = self.logs_of(index).iter().map(|entry| entry.log.clone()).collect();
        let receipt =
            ConsensusReceipt { status: receipt.success.into(), cumulative_gas_used: receipt.gas_used_cumulative, logs };
        ReceiptEnvelope::from_typed(self.txs[index].envelope.tx_type(), receipt)
    }

    pub(crate) fn logs_of(&self, index: usize) -> &[LogEntry] {
        &self.logs[self.receipts[index].logs.clone()]
    }
}

impl Block {
    /// Creates a block and computes its hash.
    pub(crate) fn seal(params: BlockParams, gas_limit: u64, body: Option<Box<Body>>) -> Self {
        let BlockParams { number, parent_hash, timestamp, base_fee, salt } = params;
        let mut block = Self { number, hash: B256::ZERO, parent_hash, timestamp, base_fee, gas_limit, salt, body };
        block.hash = block.header().hash_slow();
        block
    }

    pub(crate) fn header(&self) -> Header {
        let mut header = Header {
            parent_hash: self.parent_hash,
            beneficiary: BENEFICIARY,
            number: self.number,
            gas_limit: self.gas_limit,
            timestamp: self.timestamp,
            mix_hash: prevrandao(self.parent_hash),
            base_fee_per_gas: Some(self.base_fee),
            ..Header::default()
        };
        if self.salt != 0 {
            header.extra_data = Bytes::copy_from_slice(&self.salt.to_be_bytes());
        }
        if let Some(body) = &self.body {
            header.gas_used = body.gas_used;
            header.transactions_root = body.transactions_root;
            header.receipts_root = body.receipts_root;
            header.logs_bloom = body.bloom;
        }
        header
    }

    pub(crate) fn params(&self) -> BlockParams {
        let Self { number, parent_hash, timestamp, base_fee, salt, .. } = *self;
        BlockParams { number, parent_hash, timestamp, base_fee, salt }
    }

    pub(crate) fn reference(&self) -> BlockRef {
        BlockRef { number: self.number, hash: self.hash, parent_hash: self.parent_hash, timestamp: self.timestamp }
    }

    pub(crate) fn gas_used(&self) -> u64 {
        self.body.as_ref().map_or(0, |body| body.gas_used)
    }

    pub(crate) fn txs(&self) -> &[Arc<Tx>] {
        self.body.as_ref().map_or(&[], |body| &body.txs)
    }
}

/// Returns the `prevrandao` value for contracts. It is not random, but it differs between blocks.
pub(crate) fn prevrandao(parent_hash: B256) -> B256 {
    keccak256(parent_hash)
}
