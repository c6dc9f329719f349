//! Transfers by signature (EIP-3009): which tokens support them, and the hash that a payer signs.
//!
//! Support is detected on the chain and never assumed: a token's name and version are used only if they yield the token's own
//! `DOMAIN_SEPARATOR`. Deliberately absent: verification of signatures (the token decides, by `eth_call`), nonces, and
//! transactions.

use std::fmt;

use alloy::primitives::{B256, U256};
use alloy::sol;
use alloy::sol_types::{Eip712Domain, SolCall, SolStruct};
use payferry_contracts::{Erc3009, Token as TokenContract};
use payferry_domain::{Address, Hash32};
use serde::{Deserialize, Serialize};

use crate::client::{ChainClient, ClientError};
use crate::wallet::{alloy_address, domain_hash};

pub use payferry_contracts::{ReceiveWithAuthorization, TransferWithAuthorization};

/// Version in the domain of OpenZeppelin's tokens, which have no `version()`.
const VERSION_UNNAMED: &str = "1";
/// Number of calls per token.
const CALLS: usize = 5;

sol! {
    /// EIP-5267: a contract describes its own EIP-712 domain.
    interface Erc5267 {
        function eip712Domain() external view returns (bytes1 fields, string name, string version, uint256 chainId, address verifyingContract, bytes32 salt, uint256[] extensions);
    }
}

/// EIP-712 domain of a token that supports EIP-3009. Only [`detect`] creates it, here or on another node.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Eip3009Domain {
    name: String,
    version: String,
    chain_id: u64,
    token: Address,
}

/// Reason why a token does not support EIP-3009.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Eip3009Gap {
    /// The token does not know the state of an authorization.
    #[error("the token has no `authorizationState`")]
    Authorizations,
    /// The token does not report the hash of its domain.
    #[error("the token has no `DOMAIN_SEPARATOR`")]
    Separator,
    /// The token does not report its domain.
    #[error("the token has neither `eip712Domain` nor `name`")]
    Domain,
    /// The token signs for another domain than it reports.
    #[error("`DOMAIN_SEPARATOR` does not match name {name:?}, version {version:?}")]
    Mismatch {
        /// The name that was tried last.
        name: String,
        /// The version that was tried last.
        version: String,
    },
}

/// Result of [`detect`] for one token.
pub type Eip3009Support = Result<Eip3009Domain, Eip3009Gap>;

/// Detects for each token, in that order, if it supports EIP-3009. An error means that an endpoint failed, so that nothing is
/// known.
pub async fn detect(
    client: &ChainClient,
    chain_id: u64,
    tokens: &[Address],
) -> Result<Vec<Eip3009Support>, ClientError> {
    let state = Erc3009::authorizationStateCall { authorizer: alloy::primitives::Address::ZERO, nonce: B256::ZERO };
    let inputs: [Vec<u8>; CALLS] = [
        state.abi_encode(),
        Erc3009::DOMAIN_SEPARATORCall {}.abi_encode(),
        Erc5267::eip712DomainCall {}.abi_encode(),
        TokenContract::nameCall {}.abi_encode(),
        Erc3009::versionCall {}.abi_encode(),
    ];
    let calls = tokens.iter().flat_map(|token| inputs.iter().map(|input| (*token, input.clone())));
    let mut answers = client.calls(calls.collect()).await?.into_iter();
    let mut next = || match answers.next() {
        Some(Ok(bytes)) => Ok(Some(bytes)),
        // The token does not have the function.
        Some(Err(ClientError::Reverted { .. })) => Ok(None),
        Some(Err(error)) => Err(error),
        None => Err(ClientError::Malformed("a response is missing".to_owned())),
    };
    let mut found = Vec::with_capacity(tokens.len());
    for token in tokens {
        let [state, separator, domain, name, version] = [next()?, next()?, next()?, next()?, next()?];
        let answers = TokenAnswers {
            knows_authorizations: decoded::<Erc3009::authorizationStateCall>(state).is_some(),
            separator: decoded::<Erc3009::DOMAIN_SEPARATORCall>(separator),
            domain: decoded::<Erc5267::eip712DomainCall>(domain).map(|domain| (domain.name, domain.version)),
            name: decoded::<TokenContract::nameCall>(name),
            version: decoded::<Erc3009::versionCall>(version),
        };
        found.push(answers.support(chain_id, *token));
    }
    Ok(found)
}

/// An answer of another type counts as none: a fallback function answers every call.
fn decoded<C: SolCall>(answer: Option<alloy::primitives::Bytes>) -> Option<C::Return> {
    C::abi_decode_returns_validate(&answer?).ok()
}

/// Answers of a token; `None` if it does not have the function.
struct TokenAnswers {
    knows_authorizations: bool,
    separator: Option<B256>,
    /// Name and version of `eip712Domain`.
    domain: Option<(String, String)>,
    name: Option<String>,
    version: Option<String>,
}

impl TokenAnswers {
    fn support(self, chain_id: u64, token: Address) -> Eip3009Support {
        if !self.knows_authorizations {
            return Err(Eip3009Gap::Authorizations);
        }
        let separator = self.separator.ok_or(Eip3009Gap::Separator)?;
        let version = self.version.unwrap_or_else(|| VERSION_UNNAMED.to_owned());
        let mut gap = Eip3009Gap::Domain;
        for (name, version) in self.domain.into_iter().chain(self.name.map(|name| (name, version))) {
            let domain = Eip3009Domain { name, version, chain_id, token };
            if domain.separator().0 == separator.0 {
                return Ok(domain);
            }
            gap = Eip3009Gap::Mismatch { name: domain.name, version: domain.version };
        }
        Err(gap)
    }
}

impl Eip3009Domain {
    /// Name in the domain.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Version in the domain.
    pub fn version(&self) -> &str {
        &self.version
    }

    /// Chain id in the domain.
    pub const fn chain_id(&self) -> u64 {
        self.chain_id
    }

    /// The token, which verifies the signatures.
    pub const fn token(&self) -> Address {
        self.token
    }

    /// The domain in alloy's type.
    pub fn eip712(&self) -> Eip712Domain {
        Eip712Domain::new(
            Some(self.name.clone().into()),
            Some(self.version.clone().into()),
            Some(U256::from(self.chain_id)),
            Some(alloy_address(self.token)),
            None,
        )
    }

    /// Hash of the domain, as the token's `DOMAIN_SEPARATOR` returns it.
    pub fn separator(&self) -> Hash32 {
        domain_hash(self.eip712().separator())
    }

    /// Hash that the payer signs: of [`ReceiveWithAuthorization`] or [`TransferWithAuthorization`] in this domain. The hash
    /// of the struct alone is `eip712_hash_struct`.
    pub fn signing_hash(&self, message: &impl SolStruct) -> Hash32 {
        domain_hash(message.eip712_signing_hash(&self.eip712()))
    }
}

impl fmt::Display for Eip3009Domain {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "name {:?}, version {:?}", self.name, self.version)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// USDC on Base.
    const USDC: &str = "0x833589fcd6edb6e08f4c7c32d4f71b54bda02913";

    fn usdc() -> Eip3009Domain {
        let (name, version) = ("USD Coin".to_owned(), "2".to_owned());
        Eip3009Domain { name, version, chain_id: 8453, token: USDC.parse().unwrap() }
    }

    fn answers() -> TokenAnswers {
        TokenAnswers {
            knows_authorizations: true,
            separator: Some(usdc().separator().0.into()),
            domain: None,
            name: Some("USD Coin".to_owned()),
            version: Some("2".to_owned()),
        }
    }

    fn support(answers: TokenAnswers) -> Eip3009Support {
        answers.support(8453, USDC.parse().unwrap())
    }

    #[test]
    fn only_a_domain_with_the_separator_of_the_token_counts() {
        assert_eq!(support(answers()), Ok(usdc()));
        // The domain that the token describes, and a name that has changed since.
        let described = Some(("USD Coin".to_owned(), "2".to_owned()));
        let renamed = || Some("USDC".to_owned());
        assert_eq!(support(TokenAnswers { domain: described, name: renamed(), ..answers() }), Ok(usdc()));
        let mismatch = Eip3009Gap::Mismatch { name: "USDC".to_owned(), version: "2".to_owned() };
        assert_eq!(support(TokenAnswers { name: renamed(), ..answers() }), Err(mismatch));
        // Another chain or another token.
        assert!(matches!(answers().support(1, USDC.parse().unwrap()), Err(Eip3009Gap::Mismatch { .. })));
        assert!(matches!(answers().support(8453, Address([1; 20])), Err(Eip3009Gap::Mismatch { .. })));
    }

    #[test]
    fn a_token_without_version_has_version_1() {
        let permit = Eip3009Domain { version: "1".to_owned(), ..usdc() };
        let separator = Some(permit.separator().0.into());
        assert_eq!(support(TokenAnswers { version: None, separator, ..answers() }), Ok(permit));
    }

    #[test]
    fn each_missing_function_is_named() {
        let gap = |answers| support(answers).unwrap_err();
        assert_eq!(gap(TokenAnswers { knows_authorizations: false, ..answers() }), Eip3009Gap::Authorizations);
        assert_eq!(gap(TokenAnswers { separator: None, ..answers() }), Eip3009Gap::Separator);
        assert_eq!(gap(TokenAnswers { name: None, ..answers() }), Eip3009Gap::Domain);
    }
}
