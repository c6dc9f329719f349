//! Kind of a transfer's sender: an account with a private key, or a contract. Money is returned automatically only to
//! accounts, because a contract may do anything with it.
//!
//! The check runs concurrently with the KYT provider, and only if a payment may need it. An unknown kind is not an
//! error: such money can still be refunded to a given address.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use payferry_domain::payment::Verdict;
use payferry_domain::{Address, Chain};
use payferry_evm::ChainClient;

use super::kyt::{KytError, KytScreener, ScreenRequest};
use super::verdict::both_plain;

/// Timeout of the query for the code of an address. A verdict waits no longer for it.
pub const SENDER_KIND_TIMEOUT: Duration = Duration::from_secs(4);
/// Code prefix of an account that delegates to a contract (EIP-7702): its private key still controls it.
const DELEGATION: [u8; 3] = [0xef, 0x01, 0x00];
/// Length of such code: the prefix and an address.
const DELEGATION_BYTES: usize = 23;

/// Asks the chains for the kind of an address.
#[derive(Clone)]
pub struct PlainAccounts {
    chains: Arc<BTreeMap<Chain, ChainClient>>,
}

impl PlainAccounts {
    /// Asks these chains.
    pub fn new(chains: impl IntoIterator<Item = (Chain, ChainClient)>) -> Self {
        Self { chains: Arc::new(chains.into_iter().collect()) }
    }

    /// Client of a chain.
    pub(crate) fn client(&self, chain: Chain) -> Option<&ChainClient> {
        self.chains.get(&chain)
    }

    /// True for an account with a key, false for a contract; `None` if the chain does not answer in time.
    pub async fn is_plain(&self, chain: Chain, address: Address) -> Option<bool> {
        let client = self.chains.get(&chain)?;
        match tokio::time::timeout(SENDER_KIND_TIMEOUT, client.code(address)).await {
            Ok(Ok(code)) => Some(code.is_empty() || is_delegation(&code)),
            Ok(Err(error)) => {
                tracing::warn!(%chain, %address, %error, "the kind of a transfer's sender is unknown");
                None
            }
            Err(_) => None,
        }
    }
}

/// KYT provider whose verdicts also say whether the sender is a plain account.
pub struct SenderKind {
    screener: Arc<dyn KytScreener>,
    accounts: PlainAccounts,
}

impl SenderKind {
    /// Asks `screener` about the money, and the transfer's chain about the sender.
    pub fn new(screener: Arc<dyn KytScreener>, accounts: PlainAccounts) -> Self {
        Self { screener, accounts }
    }

    /// Returns `None` if not requested or unknown. Money is then not returned to the sender automatically.
    async fn is_plain(&self, request: &ScreenRequest) -> Option<bool> {
        if !request.wants_sender_kind {
            return None;
        }
        self.accounts.is_plain(request.chain, request.address).await
    }
}

fn is_delegation(code: &[u8]) -> bool {
    code.len() == DELEGATION_BYTES && code.starts_with(&DELEGATION)
}

#[async_trait::async_trait]
impl KytScreener for SenderKind {
    fn name(&self) -> &str {
        self.screener.name()
    }

    async fn screen(&self, request: &ScreenRequest) -> Result<Verdict, KytError> {
        let (verdict, is_plain) = futures::join!(self.screener.screen(request), self.is_plain(request));
        let mut verdict = verdict?;
        verdict.plain_sender = both_plain(verdict.plain_sender, is_plain);
        Ok(verdict)
    }
}

#[cfg(test)]
mod tests {
    use alloy::primitives::Bytes;
    use payferry_devchain::{ChainConfig, Devchain, Faults, GenesisAccount};
    use payferry_domain::payment::Decision;

    use super::*;
    use crate::compliance::tests::{Stub, request_from, says};
    use payferry_evm::wallet::alloy_address;

    const CONTRACT: Address = Address([0xc0; 20]);
    const DELEGATED: Address = Address([0xde; 20]);
    const PLAIN: Address = Address([0xee; 20]);

    /// Allows everything, or does not answer.
    fn provider(answers: bool) -> Arc<dyn KytScreener> {
        Arc::new(Stub("provider", move || {
            std::future::ready(if answers {
                Ok(says("provider", Decision::Allow))
            } else {
                Err(KytError("away".to_owned()))
            })
        }))
    }

    async fn chain() -> Devchain {
        // No chain has code that only starts like a delegation: EIP-3541 rejects it, and so does the devchain's EVM.
        let delegation = Bytes::from([&DELEGATION[..], &[7; 20]].concat());
        let codes = [(CONTRACT, Bytes::from_static(&[0x00])), (DELEGATED, delegation)];
        let genesis = codes.map(|(address, code)| {
            let address = alloy_address(address);
            GenesisAccount { address, code, ..GenesisAccount::default() }
        });
        Devchain::open(ChainConfig { genesis: genesis.into(), ..ChainConfig::default() }).await.unwrap()
    }

    async fn found(screener: &SenderKind, from: Address) -> Option<bool> {
        let request = ScreenRequest { wants_sender_kind: true, ..request_from(from) };
        screener.screen(&request).await.unwrap().plain_sender
    }

    #[tokio::test]
    async fn accounts_are_plain_and_contracts_are_not() {
        let chain = chain().await;
        let accounts = PlainAccounts::new([(Chain::Base, ChainClient::new(chain.transport()))]);
        let screener = SenderKind::new(provider(true), accounts);
        assert_eq!(found(&screener, PLAIN).await, Some(true));
        assert_eq!(found(&screener, DELEGATED).await, Some(true), "its key still controls it");
        assert_eq!(found(&screener, CONTRACT).await, Some(false));
        assert!(!is_delegation(&[&DELEGATION[..], &[7; 21]].concat()), "code that only starts like a delegation");
        assert_eq!(screener.screen(&request_from(PLAIN)).await.unwrap().plain_sender, None, "it was not requested");
        assert_eq!(screener.name(), "provider");
    }

    #[tokio::test]
    async fn unknown_sender_kind_neither_delays_nor_changes_verdicts() {
        let chain = chain().await;
        chain.set_faults(Faults { error_rate: 1.0, ..Faults::default() });
        let accounts = || PlainAccounts::new([(Chain::Base, ChainClient::new(chain.transport()))]);
        let screener = SenderKind::new(provider(true), accounts());
        assert_eq!(found(&screener, PLAIN).await, None);
        let elsewhere = SenderKind::new(provider(true), PlainAccounts::new([]));
        assert_eq!(found(&elsewhere, PLAIN).await, None, "a chain that is not configured here");
        let silent = SenderKind::new(provider(false), accounts());
        let request = ScreenRequest { wants_sender_kind: true, ..request_from(PLAIN) };
        assert!(silent.screen(&request).await.is_err(), "an error of the provider stays an error");
    }
}
