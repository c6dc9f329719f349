//! Detection of the tokens that support transfers by signature, with the test tokens and with Circle's FiatToken behind its
//! proxy.

use alloy::primitives::{Address as Account, B256, Bytes, U256, keccak256};
use alloy::signers::SignerSync;
use alloy::sol_types::{SolCall, SolValue};
use alloy::{hex, sol};
use payferry_contracts::{CREATE2_DEPLOYER, Erc3009, create2_deploy_input};
use payferry_devchain::DevWallet;
use payferry_domain::{Address, Chain, Token};
use payferry_evm::client::ClientError;
use payferry_evm::eip3009::{Eip3009Domain, Eip3009Gap, ReceiveWithAuthorization, TransferWithAuthorization, detect};
use payferry_evm::wallet::{alloy_address, domain_address};

use super::env::Env;
use crate::env::Coin;

sol! {
    contract FiatToken {
        function initialize(string memory tokenName, string memory tokenSymbol, string memory tokenCurrency, uint8 tokenDecimals, address newMasterMinter, address newPauser, address newBlacklister, address newOwner) external;
        function initializeV2(string calldata newName) external;
        function initializeV2_1(address lostAndFound) external;
        function initializeV2_2(address[] calldata accountsToBlacklist, string calldata newSymbol) external;
    }
}

const PROXY: &str = include_str!("../../../../contracts/artifacts/fiat-token/FiatTokenProxy.json");
const TOKEN: &str = include_str!("../../../../contracts/artifacts/fiat-token/FiatTokenV2_2.json");
const SIGNATURES: &str = include_str!("../../../../contracts/artifacts/fiat-token/SignatureChecker.json");
const LIBRARY: &str = "__$715109b5d747ea58b675c6ea3f0dba8c60$__";
/// Holds every role of the token.
const MASTER: Account = Account::repeat_byte(0x33);
const CALL_GAS: u64 = 1_000_000;

fn code_of(artifact: &str, library: Option<Account>) -> Vec<u8> {
    let artifact: serde_json::Value = serde_json::from_str(artifact).unwrap();
    let mut code = artifact["bytecode"].as_str().unwrap().to_owned();
    if let Some(library) = library {
        code = code.replace(LIBRARY, &hex::encode(library));
    }
    hex::decode(code).unwrap()
}

async fn deploy(env: &Env, code: Vec<u8>) -> Account {
    let address = CREATE2_DEPLOYER.create2_from_code(B256::ZERO, &code);
    let input = create2_deploy_input(B256::ZERO, &code).to_vec();
    env.call_as_owner(domain_address(CREATE2_DEPLOYER), input).await;
    env.mine(1).await;
    address
}

async fn deploy_fiat_token(env: &Env) -> Address {
    let library = deploy(env, code_of(SIGNATURES, None)).await;
    let implementation = deploy(env, code_of(TOKEN, Some(library))).await;
    let token = deploy(env, [code_of(PROXY, None), implementation.abi_encode()].concat()).await;
    let initialize = FiatToken::initializeCall {
        tokenName: "USD Coin".to_owned(),
        tokenSymbol: "USDC".to_owned(),
        tokenCurrency: "USD".to_owned(),
        tokenDecimals: 6,
        newMasterMinter: MASTER,
        newPauser: MASTER,
        newBlacklister: MASTER,
        newOwner: MASTER,
    };
    let calls = [
        initialize.abi_encode(),
        // Each of these accepts any caller, once.
        FiatToken::initializeV2Call { newName: "USD Coin".to_owned() }.abi_encode(),
        FiatToken::initializeV2_1Call { lostAndFound: MASTER }.abi_encode(),
        FiatToken::initializeV2_2Call { accountsToBlacklist: vec![], newSymbol: "USDC".to_owned() }.abi_encode(),
    ];
    for call in calls {
        env.call_as_owner(domain_address(token), call).await;
        env.mine(1).await;
    }
    domain_address(token)
}

/// Simulates an authorization of `payer` over nothing, signed with the hash of the domain: as a transfer, and as a payment
/// that the payee takes.
async fn signed_calls(env: &Env, domain: &Eip3009Domain) -> [Result<Bytes, ClientError>; 2] {
    let payer = DevWallet::from_seed("payer");
    let (from, to, nonce) = (payer.address(), MASTER, keccak256("nonce"));
    let (value, valid_after, valid_before) = (U256::ZERO, U256::ZERO, U256::from(u64::MAX));
    let transfer =
        TransferWithAuthorization { from, to, value, validAfter: valid_after, validBefore: valid_before, nonce };
    let receive =
        ReceiveWithAuthorization { from, to, value, validAfter: valid_after, validBefore: valid_before, nonce };
    let sign = |hash: payferry_domain::Hash32| payer.signer().sign_hash_sync(&hash.0.into()).unwrap();
    let signed = [sign(domain.signing_hash(&transfer)), sign(domain.signing_hash(&receive))];
    let [(v1, r1, s1), (v2, r2, s2)] =
        signed.map(|signature| (27 + u8::from(signature.v()), signature.r().into(), signature.s().into()));
    let inputs = [
        Erc3009::transferWithAuthorization_0Call {
            from,
            to,
            value,
            validAfter: valid_after,
            validBefore: valid_before,
            nonce,
            v: v1,
            r: r1,
            s: s1,
        }
        .abi_encode(),
        Erc3009::receiveWithAuthorization_0Call {
            from,
            to,
            value,
            validAfter: valid_after,
            validBefore: valid_before,
            nonce,
            v: v2,
            r: r2,
            s: s2,
        }
        .abi_encode(),
    ];
    let [transfer, receive] =
        inputs.map(async |input| env.client().call_from(domain_address(to), domain.token(), input, CALL_GAS).await);
    [transfer.await, receive.await]
}

#[tokio::test]
async fn tokens_are_asked_and_their_domain_is_verified() {
    let env = Env::watching().await;
    let (usdc, usdt, fiat) = (env.coin(Coin::Usdc), env.coin(Coin::Usdt), deploy_fiat_token(&env).await);
    let chain_id = env.spec.chain_id;
    let found = detect(&env.client(), chain_id, &[usdc, usdt, fiat, env.spec.treasury]).await.unwrap();
    let [Ok(ours), Err(Eip3009Gap::Authorizations), Ok(circles), Err(Eip3009Gap::Authorizations)] = &found[..] else {
        panic!("{found:?}");
    };
    for (domain, token) in [(ours, usdc), (circles, fiat)] {
        assert_eq!(domain.to_string(), r#"name "USD Coin", version "2""#);
        assert_eq!((domain.chain_id(), domain.token()), (chain_id, token));
        // The token accepts what is signed with this domain.
        for outcome in signed_calls(&env, domain).await {
            outcome.unwrap();
        }
    }
    // Of another chain, the domain does not match.
    let elsewhere = detect(&env.client(), chain_id + 1, &[fiat]).await.unwrap();
    assert!(matches!(elsewhere[..], [Err(Eip3009Gap::Mismatch { .. })]), "{elsewhere:?}");
}

#[tokio::test]
async fn signature_for_another_token_is_refused() {
    let env = Env::watching().await;
    let found = detect(&env.client(), env.spec.chain_id, &[env.coin(Coin::Usdc), env.spec.lookalikes[0]]).await;
    let [Ok(usdc), Ok(lookalike)] = &found.unwrap()[..] else { panic!("both are test tokens") };
    assert_ne!(usdc.separator(), lookalike.separator());
    assert_eq!(alloy_address(usdc.token()), usdc.eip712().verifying_contract.unwrap());
}

#[tokio::test]
async fn watcher_publishes_the_domains_of_its_tokens() {
    let env = Env::watching().await;
    let (usdc, usdt) = (env.spec.token_address(Token::Usdc).unwrap(), env.spec.token_address(Token::Usdt).unwrap());
    env.until("the tokens are known", async || env.watchlist.eip3009(Chain::Base, usdc).is_some()).await;
    assert_eq!(env.watchlist.eip3009(Chain::Base, usdc).unwrap().name(), "USD Coin");
    assert_eq!(env.watchlist.eip3009(Chain::Base, usdt), None);
    assert_eq!(env.watchlist.eip3009(Chain::Polygon, usdc), None);
    // A chain that was not read: the payer is asked to try again.
    assert!(env.watchlist.knows_eip3009(Chain::Base) && !env.watchlist.knows_eip3009(Chain::Polygon));
}

/// Payments are made on a chain that has a view.
#[tokio::test]
async fn tokens_are_known_before_the_chain_is_shown() {
    let env = Env::new().await;
    env.watch().await;
    while env.watchlist.view(Chain::Base).is_none() {
        tokio::task::yield_now().await;
    }
    assert!(env.watchlist.knows_eip3009(Chain::Base));
}
