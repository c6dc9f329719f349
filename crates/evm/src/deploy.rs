//! Deploys the settlement contract through the canonical CREATE2 deployer. Idempotent.
//!
//! Deliberately absent: the nonce table. The deploying account is the settling account, and no settler runs on a chain
//! without the contract.

use std::time::Duration;

use alloy::consensus::TxEip1559;
use alloy::primitives::{B256, TxKind, U256};
use payferry_contracts::{CREATE2_DEPLOYER, PAYFERRY_DEPLOY_GAS_MAX, create2_deploy_input, payferry_address};
use payferry_domain::{Address, Hash32};
use tokio::time::Instant;

use super::client::{ChainClient, ClientError};
use super::config::ChainSpec;
use super::fees::{AboveCeiling, Fees};
use crate::wallet::{OperatorSigner, SignerError, alloy_address, domain_address};

/// Maximum time for a deployment to be mined.
pub const DEPLOY_PATIENCE: Duration = Duration::from_mins(3);
/// Interval of checks for its receipt.
const LOOK_EVERY: Duration = Duration::from_millis(500);

/// Parties of the contract. They determine its address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Roles {
    /// May change the other roles and pause.
    pub admin: Address,
    /// Settles and sends.
    pub operator: Address,
    /// Takes the fees.
    pub treasury: Address,
}

/// Result of a deployment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Deployed {
    /// Address of the contract, the same on every chain.
    pub address: Address,
    /// The transaction; `None` if the contract was already there.
    pub tx_hash: Option<Hash32>,
}

/// Error of a deployment.
#[derive(Debug, thiserror::Error)]
pub enum DeployError {
    /// A call failed.
    #[error(transparent)]
    Client(#[from] ClientError),
    /// The chain lacks the CREATE2 deployer.
    #[error("the canonical CREATE2 deployer is not at {CREATE2_DEPLOYER} on this chain")]
    NoDeployer,
    /// The fees are above the ceiling.
    #[error("gas is too expensive: {0}; raise max_fee_gwei or wait")]
    HighBaseFee(#[from] AboveCeiling),
    /// The native coin balance of the account is too low.
    #[error("account {account} holds {held_wei} wei, but the deployment may cost {needed_wei}; add funds")]
    Poor {
        /// Paying account.
        account: Address,
        /// Its balance.
        held_wei: U256,
        /// Maximum cost.
        needed_wei: U256,
    },
    /// Signing failed.
    #[error(transparent)]
    Signer(#[from] SignerError),
    /// The transaction was mined without deploying the contract.
    #[error("transaction {0} was mined but deployed no contract")]
    Failed(Hash32),
    /// The transaction was sent but not mined.
    #[error("transaction {0} is not yet mined; run the command again later")]
    Slow(Hash32),
}

/// Address of the contract with these roles, on every chain.
pub fn contract_address(roles: Roles) -> Address {
    domain_address(payferry_address(&init_code(roles), B256::ZERO))
}

/// Deploys the contract unless it exists, and waits until it is mined.
pub async fn deploy(
    spec: &ChainSpec,
    client: &ChainClient,
    signer: &OperatorSigner,
    roles: Roles,
) -> Result<Deployed, DeployError> {
    let found = client.chain_id().await?;
    if found != spec.chain_id {
        return Err(ClientError::WrongChain { expected: spec.chain_id, found }.into());
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
    let l1 = client.l1_charge(spec.l1_data, deployer, &input).await?;
    let fees = Fees::first(client.fee_market().await?, l1.wei_per_gas(PAYFERRY_DEPLOY_GAS_MAX), spec.fees)?;
    let gas_limit = PAYFERRY_DEPLOY_GAS_MAX.saturating_add(l1.gas);
    let held_wei = client.balance_wei(signer.address()).await?;
    let gas_wei = U256::from(fees.max_fee_wei).saturating_mul(U256::from(gas_limit));
    let needed_wei = gas_wei.saturating_add(U256::from(l1.fee_wei));
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
