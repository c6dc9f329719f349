//! Multicall3: several calls in one, each with its result.

use alloy::primitives::{Bytes, U256};
use alloy::sol_types::SolCall;
use payferry_contracts_next::Multicall3::{self, Call, Call3, Call3Value};
use payferry_contracts_next::{MULTICALL3_JSON, Token};

use crate::env::{Env, PAYEE};

/// A call that succeeds, and one that reverts because the caller has no funds.
fn calls() -> [Bytes; 2] {
    let transfer = Token::transferCall { to: PAYEE, value: U256::from(1) };
    [Token::decimalsCall {}.abi_encode().into(), transfer.abi_encode().into()]
}

#[test]
fn aggregates_calls_and_reports_each_result() {
    let mut env = Env::new();
    let multicall = env.create_test_contract(MULTICALL3_JSON, &[]);
    let (target, [good, bad]) = (env.usdc, calls());
    let call3 = |data: &Bytes, may_fail| Call3 { target, allowFailure: may_fail, callData: data.clone() };
    let results =
        env.read(multicall, &Multicall3::aggregate3Call { calls: vec![call3(&good, false), call3(&bad, true)] });
    assert_eq!(results.iter().map(|result| result.success).collect::<Vec<_>>(), [true, false]);
    assert_eq!(Token::decimalsCall::abi_decode_returns(&results[0].returnData).unwrap(), 6);
    assert!(!results[1].returnData.is_empty(), "the reason of the revert");
    let strict = Multicall3::aggregate3Call { calls: vec![call3(&good, true), call3(&bad, false)] };
    assert!(!env.call(PAYEE, multicall, &strict).ok);

    let call = |data: &Bytes| Call { target, callData: data.clone() };
    let both = || vec![call(&good), call(&bad)];
    assert!(!env.call(PAYEE, multicall, &Multicall3::aggregateCall { calls: both() }).ok);
    assert!(!env.call(PAYEE, multicall, &Multicall3::blockAndAggregateCall { calls: both() }).ok);
    let aggregated = env.read(multicall, &Multicall3::aggregateCall { calls: vec![call(&good)] });
    assert_eq!((aggregated.blockNumber, aggregated.returnData.len()), (U256::from(1), 1));
    for is_strict in [false, true] {
        let tried = Multicall3::tryAggregateCall { requireSuccess: is_strict, calls: both() };
        assert_eq!(env.call(PAYEE, multicall, &tried).ok, !is_strict);
    }
    let tried = Multicall3::tryBlockAndAggregateCall { requireSuccess: false, calls: both() };
    let tried = env.read(multicall, &tried);
    assert_eq!(tried.returnData.iter().map(|result| result.success).collect::<Vec<_>>(), [true, false]);
    let valued = Call3Value { target, allowFailure: true, value: U256::from(1), callData: good.clone() };
    let without_value = Multicall3::aggregate3ValueCall { calls: vec![valued] };
    assert!(!env.call(PAYEE, multicall, &without_value).ok, "the sum of the values is not the transaction's");
}

#[test]
fn describes_the_block_and_accounts() {
    let mut env = Env::new();
    let multicall = env.create_test_contract(MULTICALL3_JSON, &[]);
    assert_eq!(env.read(multicall, &Multicall3::getBlockNumberCall {}), U256::from(1));
    assert_eq!(env.read(multicall, &Multicall3::getCurrentBlockTimestampCall {}), U256::from(env.now));
    assert_eq!(env.read(multicall, &Multicall3::getChainIdCall {}), U256::from(1));
    assert_eq!(env.read(multicall, &Multicall3::getEthBalanceCall { addr: PAYEE }), U256::ZERO);
}
