//! Payers: signed token transfers from separate accounts.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use alloy::primitives::{Address, B256, Bytes, U256};
use alloy::sol_types::SolCall;
use payferry_contracts::Token as TokenContract;
use payferry_devchain::DevWallet;
use payferry_domain::Token;
use tokio::sync::Mutex;

use crate::deployment::{Accounts, Deployment};
use crate::node::Node;

/// Gas limit of a token transfer.
const TRANSFER_GAS: u64 = 120_000;
/// Maximum fee per gas of the tests' transactions, in wei.
const MAX_FEE_WEI: u128 = 100_000_000_000;
const PRIORITY_FEE_WEI: u128 = 1_000_000;

/// Sender of a transfer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Payer {
    /// An address without findings.
    #[default]
    Clean,
    /// An address on the sanctions list.
    Sanctioned,
}

/// The payers on one node.
#[derive(Debug)]
pub struct Payers {
    deployment: Deployment,
    accounts: Arc<Accounts>,
    /// One lock per payer: the nonce is read, used and accepted before the next transfer of the same payer.
    turns: Vec<Mutex<()>>,
    next_payer: AtomicUsize,
}

impl Payers {
    /// Payers funded by the deployment.
    pub fn new(deployment: &Deployment, accounts: &Arc<Accounts>) -> Self {
        Self {
            deployment: deployment.clone(),
            accounts: Arc::clone(accounts),
            turns: accounts.all_payers().map(|_| Mutex::default()).collect(),
            next_payer: AtomicUsize::new(0),
        }
    }

    /// Sends this number of base units to `to`. Returns the transaction's hash once the node has accepted it.
    pub async fn transfer(&self, payer: Payer, token: Token, to: Address, units: i64) -> B256 {
        let clean = self.accounts.payers.len();
        let (turn, wallet) = match payer {
            Payer::Clean => {
                let index = self.next_payer.fetch_add(1, Ordering::Relaxed) % clean;
                (&self.turns[index], &self.accounts.payers[index])
            }
            Payer::Sanctioned => (&self.turns[clean], &self.accounts.sanctioned),
        };
        let call = TokenContract::transferCall { to, value: U256::from(u64::try_from(units).unwrap()) };
        let _turn = turn.lock().await;
        let contract = self.deployment.token(token);
        send_as(&self.deployment.node, wallet, contract, call.abi_encode().into(), TRANSFER_GAS).await
    }

    /// Returns true if a transaction is currently in a block and succeeded.
    pub async fn was_mined(&self, hash: B256) -> bool {
        self.deployment.node.receipt(hash).await.is_some_and(|receipt| receipt.status())
    }
}

/// Signs a call with the account's next nonce and sends it.
pub async fn send_as(node: &Node, wallet: &DevWallet, to: Address, input: Bytes, gas: u64) -> B256 {
    // Read for each transaction: a reorg that drops transactions makes their nonces available again.
    let nonce = node.nonce(wallet.address(), "pending").await;
    let (raw, hash) = wallet.sign_call(node.chain_id(), nonce, to, input, gas, MAX_FEE_WEI, PRIORITY_FEE_WEI);
    let sent = node.send_raw(&raw).await.unwrap_or_else(|refused| panic!("nonce {nonce}: {refused:?}"));
    assert_eq!(sent, hash);
    hash
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;
    use std::time::Duration;

    use payferry_domain::Chain;

    use super::*;
    use crate::node::Dropped;

    /// No block is mined unless a test mines it.
    const NEVER: Duration = Duration::from_hours(24);

    async fn devchain() -> Node {
        Node::devchain(Chain::Base.default_id(), NEVER).await
    }

    async fn anvil() -> Node {
        Node::anvil(Chain::Base.default_id(), NEVER).await
    }

    async fn env(node: Node) -> (Deployment, Payers) {
        let accounts = Arc::new(Accounts::known(4));
        let deployment = Deployment::new(Chain::Base, node, &accounts).await;
        let payers = Payers::new(&deployment, &accounts);
        (deployment, payers)
    }

    #[tokio::test]
    async fn payers_transfer_concurrently() {
        pay_many_at_once(devchain().await).await;
        pay_many_at_once(anvil().await).await;
    }

    async fn pay_many_at_once(node: Node) {
        let (deployment, payers) = env(node).await;
        let to = Address::repeat_byte(9);
        let pays = (0..50).map(|_| payers.transfer(Payer::Clean, Token::Usdt, to, 2));
        let hashes: BTreeSet<B256> = futures::future::join_all(pays).await.into_iter().collect();
        assert_eq!(hashes.len(), 50);
        let first = *hashes.first().unwrap();
        assert!(!payers.was_mined(first).await);
        deployment.node.mine(1).await;
        assert!(payers.was_mined(first).await);
        assert_eq!(deployment.balance(Token::Usdt, to).await, 100);
        let sanctioned = payers.transfer(Payer::Sanctioned, Token::Usdc, to, 7).await;
        deployment.node.mine(1).await;
        assert!(payers.was_mined(sanctioned).await);
        assert_eq!(deployment.balance(Token::Usdc, to).await, 7);
    }

    #[tokio::test]
    async fn payers_continue_after_a_reorg_returns_their_nonces() {
        reorganise(devchain().await).await;
        reorganise(anvil().await).await;
    }

    async fn reorganise(node: Node) {
        let (deployment, payers) = env(node).await;
        let to = Address::repeat_byte(9);
        let mut gone = Vec::new();
        for _ in 0..8 {
            gone.push(payers.transfer(Payer::Clean, Token::Usdc, to, 1).await);
        }
        deployment.node.mine(1).await;
        deployment.node.reorg(1, Dropped::Discard).await;
        assert!(!payers.was_mined(gone[0]).await);
        // Another amount, to get different transaction hashes.
        for _ in 0..8 {
            payers.transfer(Payer::Clean, Token::Usdc, to, 2).await;
        }
        deployment.node.mine(1).await;
        assert!(!payers.was_mined(gone[0]).await);
        assert_eq!(deployment.balance(Token::Usdc, to).await, 16);
        // Transactions returned to the pool are mined again.
        let back = payers.transfer(Payer::Clean, Token::Usdc, to, 3).await;
        deployment.node.mine(1).await;
        deployment.node.reorg(1, Dropped::Remine).await;
        deployment.node.mine(1).await;
        assert!(payers.was_mined(back).await);
        assert_eq!(deployment.balance(Token::Usdc, to).await, 19);
    }
}
