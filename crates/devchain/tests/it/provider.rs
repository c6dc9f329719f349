use alloy::eips::{BlockId, BlockNumberOrTag};
use alloy::network::{EthereumWallet, TransactionBuilder};
use alloy::primitives::{Bytes, U256};
use alloy::providers::{Provider, ProviderBuilder};
use alloy::rpc::client::RpcClient;
use alloy::rpc::types::TransactionRequest;
use alloy::sol_types::SolCall;
use alloy::transports::RpcError;
use payferry_contracts::{CREATE2_DEPLOYER, CREATE2_DEPLOYER_CODE, Token};
use payferry_devchain::{ChainConfig, Mining};
use serde_json::{Value, json};

use crate::env::{CHAIN_ID, Env, config, payee};

#[tokio::test]
async fn token_transfer_leaves_receipt_log_and_balance() {
    let env = Env::new().await;
    let provider = env.provider();
    assert_eq!(provider.get_chain_id().await.unwrap(), CHAIN_ID);
    assert_eq!(provider.get_net_version().await.unwrap(), CHAIN_ID);
    assert!(provider.get_client_version().await.unwrap().starts_with("payferry-devchain/"));
    assert_eq!(provider.get_code_at(CREATE2_DEPLOYER).await.unwrap(), CREATE2_DEPLOYER_CODE);

    let receipt = env.pay(payee(1), 5_000_000).await;
    assert!(receipt.status());
    let log = receipt.logs()[0].log_decode::<Token::Transfer>().unwrap();
    assert_eq!(log.inner.data.value, U256::from(5_000_000));
    assert_eq!(log.block_hash, receipt.block_hash);
    assert_eq!(env.token_balance(payee(1), "latest").await, 5_000_000);
    assert_eq!(env.logs(&env.transfers().at_block_hash(receipt.block_hash.unwrap())).await, receipt.logs());

    let block = provider.get_block(BlockId::latest()).full().await.unwrap().unwrap();
    assert_eq!(block.header.hash, block.header.inner.hash_slow());
    assert_eq!(block.header.hash, env.chain.head().hash);
    assert_eq!(block.header.gas_used, receipt.gas_used);
    assert_eq!(
        block.clone().map_transactions(alloy::rpc::types::Transaction::into_inner).calculate_transactions_root(),
        Some(block.header.transactions_root)
    );
    let by_hash = provider.get_block_by_hash(block.header.hash).await.unwrap().unwrap();
    assert_eq!(by_hash.header, block.header);
    let tx = provider.get_transaction_by_hash(receipt.transaction_hash).await.unwrap().unwrap();
    assert_eq!(tx.block_hash, Some(block.header.hash));
    assert_eq!(tx.inner.signer(), env.owner.address());
    let receipts = provider.get_block_receipts(BlockId::latest()).await.unwrap().unwrap();
    assert_eq!(receipts, [receipt]);
}

#[tokio::test]
async fn alloy_fills_signs_and_waits() {
    let env = Env::with(ChainConfig { mining: Mining::PerTransaction, ..config() }).await;
    let wallet = EthereumWallet::from(env.owner.signer().clone());
    let provider = ProviderBuilder::new().wallet(wallet).connect_client(RpcClient::new(env.chain.transport(), true));
    let call = Token::transferCall { to: payee(2), value: U256::from(7) };
    let request = TransactionRequest::default().with_to(env.token).with_input(call.abi_encode());
    let receipt = provider.send_transaction(request).await.unwrap().get_receipt().await.unwrap();
    assert!(receipt.status());
    assert_eq!(env.token_balance(payee(2), "latest").await, 7);
}

#[tokio::test]
async fn reverts_have_code_3_and_data() {
    let env = Env::new().await;
    let provider = env.provider();
    let call = Token::transferCall { to: payee(2), value: U256::from(7) };
    let request = TransactionRequest::default().with_to(env.token).with_from(payee(9)).with_input(call.abi_encode());
    for error in [provider.call(request.clone()).await.unwrap_err(), provider.estimate_gas(request).await.unwrap_err()]
    {
        let RpcError::ErrorResp(payload) = error else { panic!("{error:?}") };
        assert_eq!(payload.code, 3);
        assert_eq!(payload.message, "execution reverted: ERC20: transfer amount exceeds balance");
        assert!(payload.as_revert_data().unwrap().len() > 4);
    }
    let error = provider.raw_request::<_, Bytes>("eth_doesNotExist".into(), ()).await.unwrap_err();
    assert_eq!(error.as_error_resp().unwrap().code, -32_601);
    let error = provider.raw_request::<_, Bytes>("eth_getBalance".into(), ("nonsense",)).await.unwrap_err();
    assert_eq!(error.as_error_resp().unwrap().code, -32_602);
}

#[tokio::test]
async fn estimates_are_sufficient_and_close() {
    let env = Env::new().await;
    let provider = env.provider();
    let plain = TransactionRequest::default().with_to(payee(1)).with_from(env.owner.address()).with_value(U256::ONE);
    assert_eq!(provider.estimate_gas(plain.clone()).await.unwrap(), 21_000);
    let poor = plain.with_from(payee(3));
    assert!(provider.estimate_gas(poor).await.unwrap_err().to_string().contains("insufficient funds"));
    let call = Token::transferCall { to: payee(1), value: U256::from(7) };
    let request =
        TransactionRequest::default().with_to(env.token).with_from(env.owner.address()).with_input(call.abi_encode());
    let estimate = provider.estimate_gas(request).await.unwrap();
    let used = env.pay(payee(1), 7).await.gas_used;
    assert!(estimate >= used && estimate <= used + used / 10, "{estimate} for {used}");
}

#[tokio::test]
async fn fees_follow_eip_1559() {
    let env = Env::with(ChainConfig { base_fee_initial_wei: 1_000_000_000, ..config() }).await;
    let provider = env.provider();
    env.chain.mine(20).await.unwrap();
    let history = provider.get_fee_history(10, BlockNumberOrTag::Latest, &[50.0]).await.unwrap();
    assert_eq!(history.base_fee_per_gas.len(), 11);
    assert!(history.base_fee_per_gas.windows(2).all(|pair| pair[1] < pair[0]));
    assert_eq!(history.reward.unwrap(), vec![vec![0]; 10], "no transaction paid a tip");
    for percentiles in [json!([101]), json!([-1]), json!([50, 50]), json!([90, 10])] {
        let refused = env.call::<Value>("eth_feeHistory", json!(["0x5", "latest", percentiles])).await.unwrap_err();
        assert!(refused.message.starts_with("invalid reward percentile"), "{refused}");
    }
    let without: Value = env.call("eth_feeHistory", json!(["0x5", "latest", []])).await.unwrap();
    assert!(without.get("reward").is_none());
    let fees = provider.estimate_eip1559_fees().await.unwrap();
    assert!(fees.max_fee_per_gas > *history.base_fee_per_gas.last().unwrap());
    assert!(provider.get_gas_price().await.unwrap() > *history.base_fee_per_gas.last().unwrap());
    assert!(provider.get_max_priority_fee_per_gas().await.unwrap() > 0);
}

#[tokio::test]
async fn safe_and_finalized_are_behind_the_head() {
    let env = Env::with(ChainConfig { safe_depth: 3, finalized_depth: 6, ..config() }).await;
    env.chain.mine(10).await.unwrap();
    let head = env.chain.head().number;
    let provider = env.provider();
    let number = async |tag| provider.get_block_by_number(tag).await.unwrap().map(|block| block.header.number);
    assert_eq!(number(BlockNumberOrTag::Latest).await, Some(head));
    assert_eq!(number(BlockNumberOrTag::Safe).await, Some(head - 3));
    assert_eq!(number(BlockNumberOrTag::Finalized).await, Some(head - 6));
    assert_eq!(number(BlockNumberOrTag::Earliest).await, Some(0));
    assert_eq!(number(BlockNumberOrTag::Number(head + 1)).await, None);
}

#[tokio::test]
async fn older_states_can_be_read() {
    let env = Env::new().await;
    let mut blocks = Vec::new();
    for round in 1..=4 {
        blocks.push(env.pay(payee(1), round).await.block_number.unwrap());
    }
    for (sum, block) in [1, 3, 6, 10].into_iter().zip(&blocks) {
        assert_eq!(env.token_balance(payee(1), format!("{block:#x}")).await, sum);
    }
    assert_eq!(env.token_balance(payee(1), format!("{:#x}", blocks[0] - 1)).await, 0);
    let provider = env.provider();
    let nonce = provider.get_transaction_count(env.owner.address()).block_id(blocks[0].into()).await.unwrap();
    assert_eq!(nonce, 3);
    let slot = provider.get_storage_at(env.token, U256::from(1)).await.unwrap();
    assert_eq!(slot, U256::from(10).pow(U256::from(15)), "totalSupply");
}
