//! Calls, gas estimates, and fees.

use alloy::eips::{BlockId, BlockNumberOrTag};
use alloy::primitives::{Address, TxKind, U64, U256};
use alloy::rpc::types::{FeeHistory, TransactionRequest};
use revm::context::TxEnv;
use revm::context::either::Either;
use revm::context::result::{EVMError, ExecutionResult, HaltReason, InvalidTransaction};

use super::view::View;
use super::{Answer, Params, json};
use crate::block::Block;
use crate::error::RpcError;
use crate::execute::{self, Unrunnable};

/// Maximum number of blocks of one `eth_feeHistory`, like geth's.
const FEE_HISTORY_MAX: u64 = 1_024;

/// Minimum gas of a transaction.
const TX_GAS: u64 = 21_000;

/// Tolerance of an estimate above the minimum gas that works, in parts per thousand, like geth's.
const ESTIMATE_TOLERANCE_PER_MILLE: u64 = 15;

pub(super) fn call(view: &View<'_>, mut params: Params) -> Answer {
    let (request, block) = requested(view, &mut params)?;
    let gas_limit = request.gas.unwrap_or(u64::MAX).min(view.engine.config.block_gas_limit);
    match run(view, block, &request, gas_limit)?.map_err(|error| unrunnable(&error))? {
        ExecutionResult::Success { output, .. } => json(&output.into_data()),
        ExecutionResult::Revert { output, .. } => Err(RpcError::reverted(&output)),
        ExecutionResult::Halt { reason, .. } => Err(halted(&reason)),
    }
}

pub(super) fn estimate_gas(view: &View<'_>, mut params: Params) -> Answer {
    let (request, block) = requested(view, &mut params)?;
    // As in geth, a limit below the minimum of any transaction is ignored.
    let asked = request.gas.filter(|gas| *gas >= TX_GAS).unwrap_or(u64::MAX);
    let mut high = asked.min(view.engine.config.block_gas_limit);
    high = high.min(affordable_gas(view, block, &request)?);
    let not_enough = || RpcError::server(format!("gas required exceeds allowance ({high})"));
    let used = match run(view, block, &request, high)? {
        Ok(ExecutionResult::Success { gas, .. }) => gas.tx_gas_used(),
        Ok(ExecutionResult::Revert { output, .. }) => return Err(RpcError::reverted(&output)),
        Ok(ExecutionResult::Halt { reason: HaltReason::OutOfGas(_), .. })
        | Err(EVMError::Transaction(
            InvalidTransaction::CallGasCostMoreThanGasLimit { .. }
            | InvalidTransaction::GasFloorMoreThanGasLimit { .. },
        )) => return Err(not_enough()),
        Ok(ExecutionResult::Halt { reason, .. }) => return Err(halted(&reason)),
        Err(error) => return Err(unrunnable(&error)),
    };
    // Because of refunds and the 63/64 rule, the required limit is greater than the gas used.
    let works = |limit: u64| matches!(run(view, block, &request, limit), Ok(Ok(result)) if result.is_success());
    let mut low = used.saturating_sub(1);
    let guess = used.saturating_add(used / 16).saturating_add(2_300);
    if guess < high {
        if works(used) {
            return json(&U64::from(used));
        }
        if works(guess) {
            high = guess;
        } else {
            low = guess;
        }
    }
    while low + 1 < high && (high - low) * 1_000 > high * ESTIMATE_TOLERANCE_PER_MILLE {
        let middle = low + (high - low) / 2;
        if works(middle) {
            high = middle;
        } else {
            low = middle;
        }
    }
    json(&U64::from(high))
}

pub(super) fn gas_price(view: &View<'_>) -> Answer {
    let next = view.chain.base_fee_after(view.head_block());
    json(&U64::from(next.saturating_add(view.engine.config.priority_fee_wei)))
}

pub(super) fn fee_history(view: &View<'_>, mut params: Params) -> Answer {
    let count = params.take_quantity(0, "block count")?.clamp(1, FEE_HISTORY_MAX);
    let newest: BlockNumberOrTag = params.take(1, "newest block")?;
    let percentiles: Option<Vec<f64>> = params.optional(2, "reward percentiles")?;
    let percentiles = percentiles.filter(|at| !at.is_empty());
    check_percentiles(percentiles.as_deref().unwrap_or_default())?;
    let newest = view.by_number(newest).ok_or_else(|| RpcError::server("request beyond head block"))?;
    let oldest = newest.number.saturating_sub(count - 1);
    let blocks: Vec<&Block> = (oldest..=newest.number).filter_map(|number| view.chain.block(number)).collect();
    let mut history = FeeHistory { oldest_block: oldest, ..FeeHistory::default() };
    for block in &blocks {
        history.base_fee_per_gas.push(block.base_fee.into());
        #[allow(clippy::cast_precision_loss, reason = "gas is far below 2^52")]
        history.gas_used_ratio.push(block.gas_used() as f64 / block.gas_limit as f64);
    }
    history.base_fee_per_gas.push(view.chain.base_fee_after(newest).into());
    history.base_fee_per_blob_gas = vec![1; history.base_fee_per_gas.len()];
    history.blob_gas_used_ratio = vec![0.0; blocks.len()];
    history.reward = percentiles.map(|at| blocks.iter().map(|block| rewards(block, &at)).collect());
    json(&history)
}

/// Checks that percentiles are between 0 and 100 and strictly increasing.
fn check_percentiles(percentiles: &[f64]) -> Result<(), RpcError> {
    let wrong = percentiles.iter().find(|percentile| !(0.0..=100.0).contains(*percentile));
    let wrong = wrong.or_else(|| percentiles.windows(2).find(|pair| pair[0] >= pair[1]).map(|pair| &pair[1]));
    wrong.map_or(Ok(()), |percentile| Err(RpcError::server(format!("invalid reward percentile: {percentile}"))))
}

/// Returns the tips at these percentiles of the gas of a block; zeros for an empty block, like nodes.
fn rewards(block: &Block, percentiles: &[f64]) -> Vec<u128> {
    let Some(body) = &block.body else { return vec![0; percentiles.len()] };
    let base_fee = u128::from(block.base_fee);
    let mut tips: Vec<(u128, u64)> =
        body.receipts.iter().map(|receipt| (receipt.gas_price.saturating_sub(base_fee), receipt.gas_used)).collect();
    tips.sort_unstable();
    let at = |percentile: &f64| {
        #[allow(clippy::cast_precision_loss, clippy::cast_possible_truncation, clippy::cast_sign_loss)]
        let wanted = (body.gas_used as f64 * percentile / 100.0) as u64;
        let mut sum = 0;
        let mut found = tips.iter().skip_while(|(_, gas)| {
            sum += gas;
            sum < wanted
        });
        found.next().or(tips.last()).map_or(0, |(tip, _)| *tip)
    };
    percentiles.iter().map(at).collect()
}

/// Returns the call and the block whose state it sees.
fn requested<'a>(view: &View<'a>, params: &mut Params) -> Result<(TransactionRequest, &'a Block), RpcError> {
    let request: TransactionRequest = params.take(0, "transaction")?;
    let id: Option<BlockId> = params.optional(1, "block")?;
    let overrides = params.optional::<serde_json::Map<_, _>>(2, "state overrides")?;
    if overrides.is_some_and(|overrides| !overrides.is_empty()) {
        return Err(RpcError::invalid_params("state overrides are not supported"));
    }
    let block = view.by_id(id)?;
    check_request(view, &request)?;
    Ok((request, block))
}

/// Rejects contradictory requests and requests for another chain.
fn check_request(view: &View<'_>, request: &TransactionRequest) -> Result<(), RpcError> {
    if request.gas_price.is_some() && (request.max_fee_per_gas.is_some() || request.max_priority_fee_per_gas.is_some())
    {
        return Err(RpcError::server("both gasPrice and (maxFeePerGas or maxPriorityFeePerGas) specified"));
    }
    let own = view.engine.config.chain_id;
    match request.chain_id {
        Some(id) if id != own => {
            Err(RpcError::server(format!("chainId does not match node's (have={id}, want={own})")))
        }
        _ => Ok(()),
    }
}

/// Returns the gas that the sender's balance can pay at the price of the request.
fn affordable_gas(view: &View<'_>, block: &Block, request: &TransactionRequest) -> Result<u64, RpcError> {
    let value = request.value.unwrap_or_default();
    let price = request.max_fee_per_gas.or(request.gas_price).unwrap_or_default();
    if value.is_zero() && price == 0 {
        return Ok(u64::MAX);
    }
    let from = request.from.unwrap_or_default();
    let balance = view.with_state(block, |state| Ok(state.info(&from).map_or(U256::ZERO, |info| info.balance)))?;
    let Some(left) = balance.checked_sub(value) else {
        return Err(RpcError::server("insufficient funds for transfer"));
    };
    let gas = left.checked_div(U256::from(price)).unwrap_or(U256::MAX);
    Ok(u64::try_from(gas).unwrap_or(u64::MAX))
}

fn run(
    view: &View<'_>,
    block: &Block,
    request: &TransactionRequest,
    gas_limit: u64,
) -> Result<Result<ExecutionResult, Unrunnable>, RpcError> {
    view.with_state(block, |state| {
        let from = request.from.unwrap_or_default();
        let env = env(view, request, gas_limit, state.info(&from).map_or(0, |info| info.nonce));
        Ok(execute::call(&view.engine.config, block.params(), state, env))
    })
}

fn env(view: &View<'_>, request: &TransactionRequest, gas_limit: u64, nonce: u64) -> TxEnv {
    let mut env = TxEnv {
        caller: request.from.unwrap_or(Address::ZERO),
        gas_limit,
        gas_price: request.max_fee_per_gas.or(request.gas_price).unwrap_or_default(),
        gas_priority_fee: request.max_priority_fee_per_gas,
        kind: request.to.unwrap_or(TxKind::Create),
        value: request.value.unwrap_or_default(),
        data: request.input.input().cloned().unwrap_or_default(),
        nonce,
        chain_id: Some(view.engine.config.chain_id),
        access_list: request.access_list.clone().unwrap_or_default(),
        authorization_list: request.authorization_list.iter().flatten().cloned().map(Either::Left).collect(),
        ..TxEnv::default()
    };
    // A tip without a price is ignored, so the call is free.
    if env.gas_price == 0 {
        env.gas_priority_fee = None;
    }
    if env.derive_tx_type().is_err() {
        env.authorization_list.clear();
    }
    env
}

/// Converts the error, with geth's messages.
fn unrunnable(error: &Unrunnable) -> RpcError {
    RpcError::server(match error {
        EVMError::Transaction(InvalidTransaction::GasPriceLessThanBasefee) => {
            "max fee per gas less than block base fee".to_owned()
        }
        EVMError::Transaction(InvalidTransaction::PriorityFeeGreaterThanMaxFee) => {
            "max priority fee per gas higher than max fee per gas".to_owned()
        }
        EVMError::Transaction(InvalidTransaction::CallGasCostMoreThanGasLimit { initial_gas, gas_limit }) => {
            format!("intrinsic gas too low: have {gas_limit}, want {initial_gas}")
        }
        EVMError::Transaction(InvalidTransaction::LackOfFundForMaxFee { fee, balance }) => {
            format!("insufficient funds for gas * price + value: have {balance} want {fee}")
        }
        other => other.to_string(),
    })
}

fn halted(reason: &HaltReason) -> RpcError {
    match reason {
        HaltReason::OutOfGas(_) => RpcError::server("out of gas"),
        HaltReason::OpcodeNotFound | HaltReason::InvalidFEOpcode => RpcError::server("invalid opcode"),
        other => RpcError::server(format!("execution halted: {other:?}")),
    }
}
