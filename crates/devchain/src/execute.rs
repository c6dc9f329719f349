//! Executes transactions and calls on an overlay. Takes no lock and applies nothing.

use std::sync::{Arc, LazyLock};

use alloy::consensus::Transaction as _;
use alloy::eips::eip1559::{BaseFeeParams, calc_next_block_base_fee};
use alloy::primitives::U256;
use revm::context::result::{EVMError, ExecutionResult, ResultAndState};
use revm::context::{BlockEnv, Context, TxEnv};
use revm::context_interface::cfg::GasParams;
use revm::handler::MainnetContext;
use revm::primitives::hardfork::SpecId;
use revm::{ExecuteCommitEvm, ExecuteEvm, MainBuilder};

use crate::block::{BENEFICIARY, Block, BlockParams, Body, LogEntry, Receipt, prevrandao};
use crate::config::ChainConfig;
use crate::mempool::Candidates;
use crate::state::{Changes, Overlay};
use crate::tx::Tx;

/// Hard fork of all chains. It is pinned, because a newer default would change the execution of old files.
const SPEC: SpecId = SpecId::PRAGUE;

/// A block that is executed, but not applied.
pub(crate) struct Executed {
    pub block: Block,
    pub changes: Changes,
    /// Transactions that cannot be executed, with the reasons.
    pub invalid: Vec<(Arc<Tx>, String)>,
}

pub(crate) fn base_fee_after(config: &ChainConfig, parent: &Block) -> u64 {
    let gas_used = parent.gas_used();
    let fee = calc_next_block_base_fee(gas_used, parent.gas_limit, parent.base_fee, BaseFeeParams::ethereum());
    fee.max(config.base_fee_min_wei)
}

/// Fills a block with the best candidates that fit.
pub(crate) fn fill(
    config: &ChainConfig,
    params: BlockParams,
    overlay: Overlay<'_>,
    mut candidates: Candidates,
) -> Executed {
    let mut run = BlockRun::new(config, params, overlay);
    let mut invalid = Vec::new();
    while let Some((tx, sender)) = candidates.next() {
        if tx.gas_limit() > run.gas_left() {
            continue;
        }
        match run.transact(&tx) {
            Ok(()) => candidates.advance(sender),
            Err(reason) => invalid.push((tx, reason)),
        }
    }
    run.seal(invalid)
}

/// Executes exactly these transactions.
pub(crate) fn exactly(config: &ChainConfig, params: BlockParams, overlay: Overlay<'_>, txs: &[Arc<Tx>]) -> Executed {
    if txs.is_empty() {
        // Most blocks of an idle chain are empty. Creating an EVM would cost more than the rest of the block.
        let block = Block::seal(params, config.block_gas_limit, None);
        return Executed { block, changes: Changes::default(), invalid: Vec::new() };
    }
    let mut run = BlockRun::new(config, params, overlay);
    let mut invalid = Vec::new();
    for tx in txs {
        if let Err(reason) = run.transact(tx) {
            invalid.push((Arc::clone(tx), reason));
        }
    }
    run.seal(invalid)
}

type Evm<'a> = revm::handler::MainnetEvm<MainnetContext<Overlay<'a>>>;

struct BlockRun<'a> {
    params: BlockParams,
    gas_limit: u64,
    evm: Evm<'a>,
    txs: Vec<Arc<Tx>>,
    receipts: Vec<Receipt>,
    logs: Vec<LogEntry>,
    gas_used: u64,
}

impl<'a> BlockRun<'a> {
    fn new(config: &ChainConfig, params: BlockParams, overlay: Overlay<'a>) -> Self {
        let evm = evm(config, params, overlay);
        let gas_limit = config.block_gas_limit;
        Self { params, gas_limit, evm, txs: Vec::new(), receipts: Vec::new(), logs: Vec::new(), gas_used: 0 }
    }

    fn gas_left(&self) -> u64 {
        self.gas_limit - self.gas_used
    }

    fn transact(&mut self, tx: &Arc<Tx>) -> Result<(), String> {
        let result = self.evm.transact_commit(tx.env()).map_err(|error| error.to_string())?;
        let gas_used = result.tx_gas_used();
        self.gas_used += gas_used;
        // Set even if the creation failed, like the responses of nodes.
        let contract = tx.envelope.kind().is_create().then(|| tx.sender.create(tx.nonce()));
        let success = result.is_success();
        let logs_start = self.logs.len();
        let tx_index = self.txs.len();
        let logs = if success { result.into_logs() } else { Vec::new() };
        self.logs.extend(logs.into_iter().map(|log| LogEntry { log, tx_index }));
        self.receipts.push(Receipt {
            success,
            gas_used,
            gas_used_cumulative: self.gas_used,
            gas_price: u128::from(self.params.base_fee) + tx.tip(self.params.base_fee).unwrap_or_default(),
            contract,
            logs: logs_start..self.logs.len(),
        });
        self.txs.push(Arc::clone(tx));
        Ok(())
    }

    fn seal(self, invalid: Vec<(Arc<Tx>, String)>) -> Executed {
        let block = Block::seal(self.params, self.gas_limit, Body::new(self.txs, self.receipts, self.logs));
        let changes = self.evm.ctx.journaled_state.database.into_changes();
        Executed { block, changes, invalid }
    }
}

fn evm<'a>(config: &ChainConfig, params: BlockParams, overlay: Overlay<'a>) -> Evm<'a> {
    let mut context: MainnetContext<Overlay<'a>> = Context::new(overlay, SPEC);
    context.cfg.chain_id = config.chain_id;
    context.block = BlockEnv {
        number: U256::from(params.number),
        beneficiary: BENEFICIARY,
        timestamp: U256::from(params.timestamp),
        gas_limit: config.block_gas_limit,
        basefee: params.base_fee,
        prevrandao: Some(prevrandao(params.parent_hash)),
        ..BlockEnv::default()
    };
    context.build_mainnet()
}

/// Error of a call that could not start.
pub(crate) type Unrunnable = EVMError<std::convert::Infallible>;

/// Executes a call. Unlike a transaction, it needs no nonce, and it needs funds only for a price that it names.
pub(crate) fn call(
    config: &ChainConfig,
    params: BlockParams,
    overlay: Overlay<'_>,
    tx: TxEnv,
) -> Result<ExecutionResult, Unrunnable> {
    let mut evm = evm(config, params, overlay);
    evm.ctx.cfg.disable_nonce_check = true;
    evm.ctx.cfg.disable_base_fee = tx.gas_price == 0;
    evm.ctx.cfg.disable_eip3607 = true;
    evm.ctx.cfg.tx_chain_id_check = false;
    let ResultAndState { result, .. } = evm.transact(tx)?;
    Ok(result)
}

/// Returns the minimum gas limit of a valid transaction.
pub(crate) fn intrinsic_gas(tx: &Tx) -> u64 {
    static GAS: LazyLock<GasParams> = LazyLock::new(|| GasParams::new_spec(SPEC));
    let gas = GAS.initial_tx_gas_for_tx(tx.env(), None);
    (gas.initial_regular_gas + gas.initial_state_gas).max(gas.floor_gas)
}
