//! Puts the settlement contract onto a chain, through the canonical CREATE2 deployer. May be repeated.
//!
//! Deliberately absent: the nonce table. The account that deploys is the one that settles, and a chain without the
//! contract has no settler running.

use std::time::Duration;

use alloy::consensus::TxEip1559;
use alloy::primitives::{B256, TxKind, U256};
use payferry_contracts::{CREATE2_DEPLOYER, PAYFERRY_DEPLOY_GAS_MAX, create2_deploy_input, payferry_address};
use payferry_domain::{Address, Hash32};
use tokio::time::Instant;

use super::client::{ChainClient, ClientError};
use super::config::{ChainSpec, L1Gas};
use super::fees::{AboveCeiling, Fees};
use crate::wallet::{OperatorSigner, SignerError, alloy_address, domain_address};

/// How long a deployment may take to be mined.
pub const DEPLOY_PATIENCE: Duration = Duration::from_mins(3);
/// Between two looks for its receipt.
const LOOK_EVERY: Duration = Duration::from_millis(500);
/// Estimates are given this much room, in percent, where a chain charges L1 data as gas: its price moves.
const L1_ROOM_PERCENT: u64 = 150;

/// The parties that the contract is made with. They decide its address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Roles {
    /// May change the others and pause.
    pub admin: Address,
    /// Settles and sends.
    pub operator: Address,
    /// Takes the fees.
    pub treasury: Address,
}

/// Where the contract is, and how it came there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Deployed {
    /// Its address, the same on every chain.
    pub address: Address,
    /// The transaction; `None` if it was there before.
    pub tx_hash: Option<Hash32>,
}

/// Why the contract was not deployed.
#[derive(Debug, thiserror::Error)]
pub enum DeployError {
    /// The endpoint.
    #[error(transparent)]
    Client(#[from] ClientError),
    /// Another chain than configured.
    #[error("the endpoint is of chain {found}, expected chain id {expected}")]
    ChainId {
        /// As configured.
        expected: u64,
        /// As answered.
        found: u64,
    },
    /// Nothing is deployed through it.
    #[error("the canonical CREATE2 deployer is not at {CREATE2_DEPLOYER} on this chain")]
    NoDeployer,
    /// Fees.
    #[error("gas is dear at the moment: {0}; raise max_fee_gwei or wait")]
    Dear(#[from] AboveCeiling),
    /// The account has too little of the chain's coin.
    #[error("the account {account} holds {held_wei} wei and the deployment may cost {needed_wei}")]
    Poor {
        /// Who pays.
        account: Address,
        /// What it has.
        held_wei: U256,
        /// What it may need.
        needed_wei: U256,
    },
    /// The signer.
    #[error(transparent)]
    Signer(#[from] SignerError),
    /// It was mined and there is nothing.
    #[error("transaction {0} was mined and deployed nothing")]
    Failed(Hash32),
    /// It was sent and not mined.
    #[error("transaction {0} is not mined yet; run the command again later")]
    Slow(Hash32),
}

/// Where the contract of these roles is, on every chain.
pub fn contract_address(roles: Roles) -> Address {
    domain_address(payferry_address(&init_code(roles), B256::ZERO))
}

/// Deploys the contract unless it is there, and waits until it is mined.
pub async fn deploy(
    spec: &ChainSpec,
    client: &ChainClient,
    signer: &OperatorSigner,
    roles: Roles,
) -> Result<Deployed, DeployError> {
    let found = client.chain_id().await?;
    if found != spec.chain_id {
        return Err(DeployError::ChainId { expected: spec.chain_id, found });
    }
    let address = contract_address(roles);
    if client.has_code(address).await? {
        return Ok(Deployed { address, tx_hash: None });
    }
    let deployer = domain_address(CREATE2_DEPLOYER);
    if !client.has_code(deployer).await? {
        return Err(DeployError::NoDeployer);
    }
    let input = create2_deploy_input(B256::ZERO, &init_code(roles));
    let fees = Fees::first(client.fee_market().await?, spec.fees)?;
    let gas_limit = match spec.l1_gas {
        L1Gas::None => PAYFERRY_DEPLOY_GAS_MAX,
        L1Gas::ArbitrumNodeInterface => {
            let estimate = client.estimate_gas(signer.address(), deployer, input.to_vec()).await?;
            estimate.saturating_mul(L1_ROOM_PERCENT) / 100
        }
    };
    let held_wei = client.balance_wei(signer.address()).await?;
    let needed_wei = U256::from(fees.max_fee_wei).saturating_mul(U256::from(gas_limit));
    if held_wei < needed_wei {
        return Err(DeployError::Poor { account: signer.address(), held_wei, needed_wei });
    }
    let tx = TxEip1559 {
        chain_id: spec.chain_id,
        nonce: client.nonce(signer.address(), "latest").await?,
        gas_limit,
        max_fee_per_gas: fees.max_fee_wei,
        max_priority_fee_per_gas: fees.priority_fee_wei,
        to: TxKind::Call(alloy_address(deployer)),
        input,
        ..TxEip1559::default()
    };
    let signed = signer.sign(tx).await?;
    client.broadcast(&signed.raw.to_string()).await?;
    let deadline = Instant::now() + DEPLOY_PATIENCE;
    loop {
        if client.receipts(&[signed.hash]).await?.into_iter().flatten().next().is_some() {
            if client.has_code(address).await? {
                return Ok(Deployed { address, tx_hash: Some(signed.hash) });
            }
            return Err(DeployError::Failed(signed.hash));
        }
        if Instant::now() > deadline {
            return Err(DeployError::Slow(signed.hash));
        }
        tokio::time::sleep(LOOK_EVERY).await;
    }
}

fn init_code(roles: Roles) -> Vec<u8> {
    let Roles { admin, operator, treasury } = roles;
    let operator = alloy_address(operator);
    payferry_contracts::payferry_init_code(alloy_address(admin), operator, operator, alloy_address(treasury)).to_vec()
}
