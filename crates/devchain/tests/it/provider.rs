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
async fn fees_follow_eip_1559() {
    let env = Env::with(ChainConfig { base_fee_initial_wei: 1_000_000_000, ..config() }).await;
    let provider = env.provider();
    env.chain.mine(20).await.unwrap();
    let history = provider.get_fee_history(10, BlockNumberOrTag::Latest, &[50.0]).await.unwrap();
    assert_eq!(history.base_fee_per_gas.len(), 11);
    assert!(history.base_fee_per_gas.windows(2).all(|pair| pair[1] < pair[0]));
    assert_eq!(history.reward.unwrap(), vec![vec![0]; 10], "no transaction paid a tip");
    let fees = provider.estimate_eip1559_fees().await.unwrap();
    assert!(fees.max_fee_per_gas > *history.base_fee_per_gas.last().unwrap());
    assert!(provider.get_gas_price().await.unwrap() > *history.base_fee_per_gas.last().unwrap());
    assert!(provider.get_max_priority_fee_per_gas().await.unwrap() > 0);
}
