//! Blocks, transactions, receipts, and accounts.

use alloy::consensus::transaction::Recovered;
use alloy::consensus::{
    Receipt as ConsensusReceipt, ReceiptEnvelope, ReceiptWithBloom, Sealable as _, Transaction as _,
};
use alloy::eips::{BlockId, BlockNumberOrTag};
use alloy::primitives::{Address, B256, Bloom, U64, U256};
use alloy::rpc::types::{
    Block as RpcBlock, BlockTransactions, Header as RpcHeader, Log as RpcLog, Transaction as RpcTransaction,
    TransactionReceipt,
};
use revm::state::Bytecode;
use serde_json::json;

use super::view::View;
use super::{Answer, Params, json};
use crate::block::{Block, Body};
use crate::tx::Tx;

pub(super) fn block_by_number(view: &View<'_>, mut params: Params) -> Answer {
    let tag: BlockNumberOrTag = params.take(0, "block number")?;
    let full = params.take(1, "full transactions")?;
    json(&view.by_number(tag).map(|block| rpc_block(block, full)))
}

pub(super) fn block_by_hash(view: &View<'_>, mut params: Params) -> Answer {
    let hash: B256 = params.take(0, "block hash")?;
    let full = params.take(1, "full transactions")?;
    json(&view.by_hash(&hash).map(|block| rpc_block(block, full)))
}

pub(super) fn block_receipts(view: &View<'_>, mut params: Params) -> Answer {
    let block = match params.take(0, "block")? {
        BlockId::Hash(hash) => view.by_hash(&hash.block_hash),
        BlockId::Number(tag) => view.by_number(tag),
    };
    let receipts = block.map(|block| {
        let bodies = block.body.iter().flat_map(|body| (0..body.txs.len()).map(move |index| (body, index)));
        bodies.map(|(body, index)| rpc_receipt(block, body, index)).collect::<Vec<_>>()
    });
    json(&receipts)
}

pub(super) fn transaction(view: &View<'_>, mut params: Params) -> Answer {
    let hash: B256 = params.take(0, "transaction hash")?;
    if let Some((block, body, index)) = mined(view, &hash) {
        return json(&rpc_transaction(&body.txs[index], Some((block, index))));
    }
    let pooled = view.engine.pool.lock().get(&hash).cloned();
    json(&pooled.map(|tx| rpc_transaction(&tx, None)))
}

pub(super) fn receipt(view: &View<'_>, mut params: Params) -> Answer {
    let hash: B256 = params.take(0, "transaction hash")?;
    json(&mined(view, &hash).map(|(block, body, index)| rpc_receipt(block, body, index)))
}

pub(super) fn balance(view: &View<'_>, mut params: Params) -> Answer {
    let address: Address = params.take(0, "address")?;
    let block = view.by_id(params.nullable(1, "block")?)?;
    view.with_state(block, |state| json(&state.info(&address).map_or(U256::ZERO, |info| info.balance)))
}

pub(super) fn code(view: &View<'_>, mut params: Params) -> Answer {
    let address: Address = params.take(0, "address")?;
    let block = view.by_id(params.nullable(1, "block")?)?;
    view.with_state(block, |state| {
        let code = state.info(&address).and_then(|info| info.code.as_ref());
        json(&code.map(Bytecode::original_bytes).unwrap_or_default())
    })
}

pub(super) fn storage_at(view: &View<'_>, mut params: Params) -> Answer {
    let address: Address = params.take(0, "address")?;
    let slot: U256 = params.take(1, "slot")?;
    let block = view.by_id(params.nullable(2, "block")?)?;
    view.with_state(block, |state| json(&B256::from(state.slot(&address, &slot))))
}

pub(super) fn transaction_count(view: &View<'_>, mut params: Params) -> Answer {
    let address: Address = params.take(0, "address")?;
    let id: Option<BlockId> = params.nullable(1, "block")?;
    if id == Some(BlockId::pending()) {
        let nonce = view.chain.nonce(&address);
        return json(&U64::from(view.engine.pool.lock().next_nonce(&address, nonce)));
    }
    let block = view.by_id(id)?;
    view.with_state(block, |state| json(&U64::from(state.info(&address).map_or(0, |info| info.nonce))))
}

pub(super) fn pool_status(view: &View<'_>) -> Answer {
    let (pending, queued) = view.engine.pool.lock().counts(|sender| view.chain.nonce(sender));
    json(&json!({"pending": U64::from(pending), "queued": U64::from(queued)}))
}

fn mined<'a>(view: &View<'a>, hash: &B256) -> Option<(&'a Block, &'a Body, usize)> {
    let (number, index) = view.chain.place_of(hash)?;
    if number > view.head {
        return None;
    }
    let block = view.chain.block(number)?;
    Some((block, block.body.as_deref()?, index as usize))
}

fn rpc_block(block: &Block, full: bool) -> RpcBlock {
    let txs = block.txs();
    let transactions = if full {
        let txs = txs.iter().enumerate();
        BlockTransactions::Full(txs.map(|(index, tx)| rpc_transaction(tx, Some((block, index)))).collect())
    } else {
        BlockTransactions::Hashes(txs.iter().map(|tx| tx.hash).collect())
    };
    RpcBlock::new(rpc_header(block), transactions)
}

pub(super) fn rpc_header(block: &Block) -> RpcHeader {
    RpcHeader::from_consensus(block.header().seal_unchecked(block.hash), Some(U256::ZERO), None)
}

pub(super) fn rpc_transaction(tx: &Tx, place: Option<(&Block, usize)>) -> RpcTransaction {
    let base_fee = place.map(|(block, _)| block.base_fee);
    RpcTransaction {
        inner: Recovered::new_unchecked(tx.envelope.clone(), tx.sender),
        block_hash: place.map(|(block, _)| block.hash),
        block_number: place.map(|(block, _)| block.number),
        transaction_index: place.map(|(_, index)| index as u64),
        effective_gas_price: Some(tx.envelope.effective_gas_price(base_fee)),
        block_timestamp: place.map(|(block, _)| block.timestamp),
    }
}

/// Returns the log at this index of the block.
pub(super) fn rpc_log(block: &Block, body: &Body, index: usize) -> RpcLog {
    let entry = &body.logs[index];
    RpcLog {
        inner: entry.log.clone(),
        block_hash: Some(block.hash),
        block_number: Some(block.number),
        block_timestamp: Some(block.timestamp),
        transaction_hash: Some(body.txs[entry.tx_index].hash),
        transaction_index: Some(entry.tx_index as u64),
        log_index: Some(index as u64),
        removed: false,
    }
}

fn rpc_receipt(block: &Block, body: &Body, index: usize) -> TransactionReceipt {
    let (tx, receipt) = (&body.txs[index], &body.receipts[index]);
    let logs_bloom = body.logs_of(index).iter().map(|entry| &entry.log).collect::<Bloom>();
    let consensus: ConsensusReceipt<RpcLog> = ConsensusReceipt {
        status: receipt.success.into(),
        cumulative_gas_used: receipt.gas_used_cumulative,
        logs: receipt.logs.clone().map(|log| rpc_log(block, body, log)).collect(),
    };
    TransactionReceipt {
        inner: ReceiptEnvelope::from_typed(tx.envelope.tx_type(), ReceiptWithBloom::new(consensus, logs_bloom)),
        transaction_hash: tx.hash,
        transaction_index: Some(index as u64),
        block_hash: Some(block.hash),
        block_number: Some(block.number),
        gas_used: receipt.gas_used,
        effective_gas_price: receipt.gas_price,
        blob_gas_used: None,
        blob_gas_price: None,
        from: tx.sender,
        to: tx.envelope.to(),
        contract_address: receipt.contract,
    }
}
