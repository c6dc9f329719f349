//! Payers: real, signed token transfers from accounts of their own.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use alloy::primitives::{Address, B256, Bytes, U256};
use alloy::sol_types::SolCall;
use payferry_contracts::Token as TokenContract;
use payferry_devchain::Wallet;
use payferry_domain::Token;
use tokio::sync::Mutex;

use crate::deployment::{Accounts, Deployment};
use crate::node::Node;

/// Gas that a token transfer surely fits in.
const TRANSFER_GAS: u64 = 120_000;
/// Wei per gas that the tests' own transactions offer.
const MAX_FEE_WEI: u128 = 100_000_000_000;
const PRIORITY_FEE_WEI: u128 = 1_000_000;

/// Whose money is sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Payer {
    /// Nothing is known against it.
    #[default]
    Clean,
    /// It is on the sanctions list.
    Sanctioned,
}

/// The payers on one node.
#[derive(Debug)]
pub struct Payers {
    deployment: Deployment,
    accounts: Arc<Accounts>,
    /// One lock a payer: the nonce is read, used and accepted before the next transfer of the same payer.
    turns: Vec<Mutex<()>>,
    next_payer: AtomicUsize,
}

impl Payers {
    /// The payers that the deployment gave money to.
    pub fn new(deployment: &Deployment, accounts: &Arc<Accounts>) -> Self {
        Self {
            deployment: deployment.clone(),
            accounts: Arc::clone(accounts),
            turns: accounts.all_payers().map(|_| Mutex::default()).collect(),
            next_payer: AtomicUsize::new(0),
        }
    }

    /// Sends so many base units to `to`; the node has accepted it when this answers with the transaction's hash.
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

    /// Whether a transaction is in a block now, and succeeded there.
    pub async fn was_mined(&self, hash: B256) -> bool {
        self.deployment.node.receipt(hash).await.is_some_and(|receipt| receipt.status())
    }
}

/// Signs a call with the account's next nonce and sends it.
pub async fn send_as(node: &Node, wallet: &Wallet, to: Address, input: Bytes, gas: u64) -> B256 {
    // Asked each time: a reorganisation that drops transactions gives their nonces back.
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

    /// Nothing is mined unless a test says so.
    const NEVER: Duration = Duration::from_hours(24);

    async fn devchain() -> Node {
        Node::devchain(Chain::Base.default_id(), NEVER).await
    }

    async fn anvil() -> Node {
        Node::anvil(Chain::Base.default_id(), NEVER).await
    }

    async fn world(node: Node) -> (Deployment, Payers) {
        let accounts = Arc::new(Accounts::known(4));
        let deployment = Deployment::new(Chain::Base, node, &accounts).await;
        let payers = Payers::new(&deployment, &accounts);
        (deployment, payers)
    }

    #[tokio::test]
    async fn many_pay_at_once() {
        pay_many_at_once(devchain().await).await;
        pay_many_at_once(anvil().await).await;
    }

    async fn pay_many_at_once(node: Node) {
        let (deployment, payers) = world(node).await;
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
    async fn they_go_on_after_a_reorganisation_gave_nonces_back() {
        reorganise(devchain().await).await;
        reorganise(anvil().await).await;
    }

    async fn reorganise(node: Node) {
        let (deployment, payers) = world(node).await;
        let to = Address::repeat_byte(9);
        let mut gone = Vec::new();
        for _ in 0..8 {
            gone.push(payers.transfer(Payer::Clean, Token::Usdc, to, 1).await);
        }
        deployment.node.mine(1).await;
        deployment.node.reorg(1, Dropped::Discard).await;
        assert!(!payers.was_mined(gone[0]).await);
        // Another amount, or they would be the same transactions again.
        for _ in 0..8 {
            payers.transfer(Payer::Clean, Token::Usdc, to, 2).await;
        }
        deployment.node.mine(1).await;
        assert!(!payers.was_mined(gone[0]).await);
        assert_eq!(deployment.balance(Token::Usdc, to).await, 16);
        // Put back, they are mined again.
        let back = payers.transfer(Payer::Clean, Token::Usdc, to, 3).await;
        deployment.node.mine(1).await;
        deployment.node.reorg(1, Dropped::Remine).await;
        deployment.node.mine(1).await;
        assert!(payers.was_mined(back).await);
        assert_eq!(deployment.balance(Token::Usdc, to).await, 19);
    }
}
