//! Accounts, contracts, and transactions, the same on both nodes.

use alloy::consensus::{SignableTransaction, Signed, TxEip1559, TxEnvelope};
use alloy::eips::eip2718::Encodable2718;
use alloy::primitives::{Address, B256, Bytes, Signature, TxKind, U256};
use alloy::signers::SignerSync;
use alloy::sol_types::SolCall;
use payferry_contracts::{Grants, Token, payferry_init_code, test_usdc_init_code, test_usdt_init_code};
use payferry_devchain::DevWallet;

use super::pair::Pair;
pub use crate::env::{CHAIN_ID, GWEI, payee};

/// Both nodes, with an owner that has deployed the tokens and the settlement contract.
pub struct Env {
    pub pair: Pair,
    pub owner: DevWallet,
    pub usdc: Address,
    pub usdt: Address,
    pub payferry: Address,
}

impl Env {
    /// Block 1 deploys the three contracts, block 2 mints tokens and grants the roles.
    pub async fn new() -> Self {
        let pair = Pair::start().await;
        let owner = DevWallet::from_seed("owner");
        pair.fund(owner.address(), ether(1_000)).await;
        let me = owner.address();
        let env = Self { pair, usdc: me.create(0), usdt: me.create(1), payferry: me.create(2), owner };
        for init_code in [test_usdc_init_code(me), test_usdt_init_code(me), payferry_init_code(me)] {
            let raw = env.sign(TxEip1559 { to: TxKind::Create, input: init_code, gas_limit: 6_000_000, ..env.tx() });
            env.pair.send(&raw).await;
        }
        env.pair.mine().await;
        for token in [env.usdc, env.usdt] {
            let mint = Token::mintCall { to: me, value: U256::from(10).pow(U256::from(15)) };
            env.pair.send(&env.call(token, mint.abi_encode())).await;
        }
        let grants = Grants { settler: me, sender: me, treasury: payee(0xee), limits: Vec::new() };
        for call in grants.calls() {
            env.pair.send(&env.call(env.payferry, call.to_vec())).await;
        }
        env.pair.mine().await;
        env
    }

    /// Returns a transaction with the next nonce and without a value, as a template.
    pub fn tx(&self) -> TxEip1559 {
        tx(self.owner.next_nonce())
    }

    pub fn sign(&self, tx: TxEip1559) -> Bytes {
        self.owner.sign(tx).0
    }

    pub fn call(&self, to: Address, input: Vec<u8>) -> Bytes {
        self.sign(TxEip1559 { to: to.into(), input: input.into(), ..self.tx() })
    }

    pub fn transfer(&self, token: Address, to: Address, units: u64) -> Bytes {
        self.call(token, Token::transferCall { to, value: U256::from(units) }.abi_encode())
    }

    /// Sends a token transfer to both nodes.
    pub async fn pay(&self, token: Address, to: Address, units: u64) -> B256 {
        self.pair.send(&self.transfer(token, to, units)).await
    }
}

pub fn tx(nonce: u64) -> TxEip1559 {
    TxEip1559 {
        chain_id: CHAIN_ID,
        nonce,
        gas_limit: 200_000,
        max_fee_per_gas: 3 * GWEI,
        max_priority_fee_per_gas: GWEI,
        to: payee(1).into(),
        ..TxEip1559::default()
    }
}

/// Returns the raw signed transaction, of any type.
pub fn signed<T: SignableTransaction<Signature>>(wallet: &DevWallet, tx: T) -> Bytes
where
    TxEnvelope: From<Signed<T>>,
{
    let signature = wallet.signer().sign_hash_sync(&tx.signature_hash()).unwrap();
    TxEnvelope::from(tx.into_signed(signature)).encoded_2718().into()
}

pub fn ether(count: u64) -> U256 {
    U256::from(count) * U256::from(10).pow(U256::from(18))
}
