//! Circle's real USDC behind its proxy, from `artifacts/fiat-token`.

use alloy::primitives::{Address, Bytes, TxKind, U256};
use alloy::sol;
use alloy::sol_types::{SolCall, SolValue};
use payferry_contracts::Payferry;

use crate::env::{Env, LIMIT, MINTER};

sol! {
    #[derive(Debug)]
    contract FiatToken {
        function initialize(string memory tokenName, string memory tokenSymbol, string memory tokenCurrency, uint8 tokenDecimals, address newMasterMinter, address newPauser, address newBlacklister, address newOwner) external;
        function initializeV2(string calldata newName) external;
        function initializeV2_1(address lostAndFound) external;
        function initializeV2_2(address[] calldata accountsToBlacklist, string calldata newSymbol) external;
        function configureMinter(address minter, uint256 minterAllowedAmount) external;
        function blacklist(address account) external;
        function unBlacklist(address account) external;
        function pause() external;
    }
}

const PROXY: &str = include_str!("../../artifacts/fiat-token/FiatTokenProxy.json");
const TOKEN: &str = include_str!("../../artifacts/fiat-token/FiatTokenV2_2.json");
const SIGNATURES: &str = include_str!("../../artifacts/fiat-token/SignatureChecker.json");
const LIBRARY: &str = "__$715109b5d747ea58b675c6ea3f0dba8c60$__";
/// The proxy's admin cannot use the token.
const PROXY_ADMIN: Address = Address::with_last_byte(0xb0);

/// Deploys the token with a limit in the contract. `MINTER` has all of its roles.
pub fn deploy(env: &mut Env) -> Address {
    let library = env.create(code_of(SIGNATURES, None));
    let implementation = env.create(code_of(TOKEN, Some(library)));
    let proxy = [code_of(PROXY, None).to_vec(), implementation.abi_encode()].concat();
    let made = env.transact(PROXY_ADMIN, TxKind::Create, proxy.into(), env.create_gas());
    assert!(made.ok, "{made:?}");
    let token = Address::from_slice(&made.output);
    let initialize = FiatToken::initializeCall {
        tokenName: "USD Coin".to_owned(),
        tokenSymbol: "USDC".to_owned(),
        tokenCurrency: "USD".to_owned(),
        tokenDecimals: 6,
        newMasterMinter: MINTER,
        newPauser: MINTER,
        newBlacklister: MINTER,
        newOwner: MINTER,
    };
    call(env, token, &initialize);
    call(env, token, &FiatToken::initializeV2Call { newName: "USD Coin".to_owned() });
    call(env, token, &FiatToken::initializeV2_1Call { lostAndFound: MINTER });
    call(env, token, &FiatToken::initializeV2_2Call { accountsToBlacklist: vec![], newSymbol: "USDC".to_owned() });
    call(env, token, &FiatToken::configureMinterCall { minter: MINTER, minterAllowedAmount: U256::MAX >> 1 });
    env.admin(&Payferry::setLimitCall { token, limit: U256::from(LIMIT) });
    token
}

fn call(env: &mut Env, token: Address, call: &impl SolCall) {
    let outcome = env.call(MINTER, token, call);
    assert!(outcome.ok, "{outcome:?}");
}

fn code_of(artifact: &str, library: Option<Address>) -> Bytes {
    let artifact: serde_json::Value = serde_json::from_str(artifact).unwrap();
    let mut code = artifact["bytecode"].as_str().unwrap().to_owned();
    if let Some(library) = library {
        code = code.replace(LIBRARY, &alloy::hex::encode(library));
    }
    alloy::hex::decode(code).unwrap().into()
}
