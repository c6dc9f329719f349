//! Direct actions on the sandbox's chains: balances, a token's blacklist, and payments from a contract.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use alloy::primitives::{Address as Account, B256, Bytes, U256, keccak256};
use alloy::signers::SignerSync as _;
use alloy::sol;
use alloy::sol_types::{SolCall, SolStruct as _, SolValue as _};
use payferry::sandbox::Payer;
use payferry_contracts::{
    CREATE2_DEPLOYER, SignedAuthorization, TestUSDC, Token as TokenContract, TransferWithAuthorization,
    create2_deploy_input,
};
use payferry_devchain::DevWallet;
use payferry_domain::{Address, Chain, Timestamp, Token};
use payferry_harness::node::Node;
use payferry_harness::payers::send_as;
use serde_json::{Value, json};

use crate::app::TestApp;
use crate::call::{Reply, until};
use crate::http::authorizations::{domain, typed_data};

sol! {
    /// A contract that can be made to call anything, such as a token.
    interface Puppet {
        function run(address target, bytes data) external;
    }
}

/// Compiled from `contracts/sol/test/HostileToken.sol`, of which only `run` is used here.
const PUPPET: &str = include_str!("../../contracts/artifacts/test/HostileToken.json");
/// Compiled from `contracts/sol/test/SmartWallet.sol`.
const SMART_WALLET: &str = include_str!("../../contracts/artifacts/test/SmartWallet.json");
const GAS: u64 = 3_000_000;

pub fn token_of(app: &TestApp, chain: Chain, token: Token) -> Account {
    Account::from(app.env().chain(chain).spec().token_address(token).unwrap().0)
}

pub async fn node(app: &TestApp, chain: Chain) -> Node {
    Node::serving(app.env().chain(chain).devchain().clone()).await
}

/// Balance of an account, base units.
pub async fn balance(app: &TestApp, chain: Chain, token: Token, account: &str) -> u64 {
    node(app, chain).await.balance_of(token_of(app, chain, token), account.parse().unwrap()).await.to()
}

/// Makes a call as the sandbox's deployer, the owner of the tokens; waits until it is mined successfully.
async fn deployer_calls(app: &TestApp, chain: Chain, to: Account, input: Vec<u8>) {
    let (node, deployer) = (node(app, chain).await, DevWallet::from_seed("payferry sandbox deployer"));
    let hash = send_as(&node, &deployer, to, input.into(), GAS).await;
    let receipt = until("the call is mined", async || node.receipt(hash).await).await;
    assert!(receipt.status(), "{receipt:#?}");
}

/// Adds an account to USDC's blacklist or removes it.
pub async fn blacklist(app: &TestApp, chain: Chain, account: &str, is_listed: bool) {
    let account = account.parse().unwrap();
    let input = if is_listed {
        TestUSDC::blacklistCall { account }.abi_encode()
    } else {
        TestUSDC::unBlacklistCall { account }.abi_encode()
    };
    deployer_calls(app, chain, token_of(app, chain, Token::Usdc), input).await;
}

/// Pays from a newly deployed contract.
pub async fn pay_from_contract(app: &TestApp, payment: &Reply, amount: &str) {
    static MADE: AtomicU64 = AtomicU64::new(0);
    let chain: Chain = payment["chain"].as_str().unwrap().parse().unwrap();
    let token: Token = payment["currency"].as_str().unwrap().parse().unwrap();
    let artifact: Value = serde_json::from_str(PUPPET).unwrap();
    let code: Bytes = artifact["bytecode"].as_str().unwrap().parse().unwrap();
    let salt: B256 = keccak256(MADE.fetch_add(1, Ordering::Relaxed).to_be_bytes());
    let puppet = CREATE2_DEPLOYER.create2_from_code(salt, &code);
    deployer_calls(app, chain, CREATE2_DEPLOYER, create2_deploy_input(salt, &code).to_vec()).await;
    let amount: payferry_domain::Amount = amount.parse().unwrap();
    let purse = Address(puppet.into_array());
    app.env().chain(chain).transfer(Payer::Clean, token, purse, amount).await.unwrap();
    let purse = puppet.to_string();
    until("the contract has money", async || (balance(app, chain, token, &purse).await > 0).then_some(())).await;
    let to = payment.wallet().parse().unwrap();
    let data = TokenContract::transferCall { to, value: U256::from(amount.units()) }.abi_encode().into();
    let call = Puppet::runCall { target: token_of(app, chain, token), data };
    deployer_calls(app, chain, puppet, call.abi_encode()).await;
}

/// Deploys a contract wallet (ERC-1271) of this owner. Its signatures have one more byte than those of a key.
pub async fn smart_wallet(app: &TestApp, chain: Chain, owner: Account) -> Account {
    let artifact: Value = serde_json::from_str(SMART_WALLET).unwrap();
    let code: Bytes = artifact["bytecode"].as_str().unwrap().parse().unwrap();
    let code = [code.to_vec(), owner.abi_encode()].concat();
    deployer_calls(app, chain, CREATE2_DEPLOYER, create2_deploy_input(B256::ZERO, &code).to_vec()).await;
    CREATE2_DEPLOYER.create2_from_code(B256::ZERO, &code)
}

/// Pays USDC from a contract wallet, by a transfer that its owner signs.
pub async fn pay_from_smart_wallet(
    app: &TestApp,
    chain: Chain,
    (wallet, owner): (Account, &DevWallet),
    to: &str,
    amount: &str,
) {
    let (token, amount): (_, payferry_domain::Amount) = (token_of(app, chain, Token::Usdc), amount.parse().unwrap());
    let purse = Address(wallet.into_array());
    app.env().chain(chain).transfer(Payer::Clean, Token::Usdc, purse, amount).await.unwrap();
    let is_funded = async || (balance(app, chain, Token::Usdc, &wallet.to_string()).await > 0).then_some(());
    until("the wallet has money", is_funded).await;
    let any = app.initiate(&json!({ "chain": chain })).await.ok(201);
    let domain = domain(&typed_data(&app.get(&any.path()).await.json));
    let (to, value) = (to.parse().unwrap(), U256::from(amount.units()));
    let (valid_before, nonce) = (u64::MAX, B256::repeat_byte(3));
    let message = TransferWithAuthorization {
        from: wallet,
        to,
        value,
        validAfter: U256::ZERO,
        validBefore: U256::from(valid_before),
        nonce,
    };
    let signature = owner.signer().sign_hash_sync(&message.eip712_signing_hash(&domain)).unwrap();
    let authorization = SignedAuthorization {
        from: wallet,
        value: u128::from(amount.units().unsigned_abs()),
        valid_after: 0,
        valid_before,
        nonce,
        signature: [signature.as_bytes().as_slice(), &[0]].concat().into(),
        by_contract: true,
    };
    deployer_calls(app, chain, token, authorization.transfer_call(to)).await;
}

/// Advances time on all chains and in the service without blocks in between, for periods too long to mine through.
pub async fn sleep(app: &TestApp, length: Duration) {
    for (_, chain) in app.env().chains() {
        chain.devchain().jump_time(length.as_secs()).await.unwrap();
    }
    app.state.clock().advance_secs(length.as_secs().try_into().unwrap());
    let now: Timestamp = app.state.clock().now();
    let read = async || {
        let recent =
            |chain| app.state.system.chain_view(chain).is_some_and(|view| view.read_time >= now.plus_secs(-60));
        Chain::ALL.into_iter().all(recent).then_some(())
    };
    until("the chains are read up to now", read).await;
}
