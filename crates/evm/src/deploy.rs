//! Deploys the settlement contract through the canonical CREATE2 deployer, and grants its roles. Idempotent.
//!
//! Not here: the table of nonces. No settler runs on a chain before [`deploy`]. [`grant`] signs with the admin's account,
//! which must not be the account of a running settler or sender.

use std::time::Duration;

use alloy::consensus::TxEip1559;
use alloy::primitives::{B256, Bytes, TxKind, U256};
use alloy::sol_types::SolCall;
use payferry_contracts::{
    CREATE2_DEPLOYER, PAYFERRY_DEPLOY_GAS_MAX, Payferry, Role, create2_deploy_input, describe_reason, payferry_address,
    payferry_init_code,
};
use payferry_domain::{Address, Hash32};
use tokio::time::Instant;

use super::client::{ChainClient, ClientError};
use super::config::ChainSpec;
use super::fees::{AboveCeiling, Fees};
use super::inspect::{RoleKeys, read};
use crate::wallet::{OperatorSigner, SignerError, alloy_address, domain_address};

/// Maximum time for a deployment to be mined.
pub const DEPLOY_PATIENCE: Duration = Duration::from_mins(3);
/// Gas limit that is always sufficient for one grant.
const GRANT_GAS_MAX: u64 = 300_000;
/// Interval of checks for its receipt.
const LOOK_EVERY: Duration = Duration::from_millis(500);

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
    /// No key could grant the roles, so the contract would be of no use.
    #[error("the admin is the zero address; set the account that grants the roles")]
    ZeroAdmin,
    /// The transaction would revert.
    #[error("the transaction would revert and was not sent: {0}")]
    Reverts(String),
    /// The chain lacks the CREATE2 deployer.
    #[error("the canonical CREATE2 deployer is not at {CREATE2_DEPLOYER} on this chain")]
    NoDeployer,
    /// The fees are above the ceiling.
    #[error("gas is too expensive: {0}; raise max_fee_gwei or wait")]
    HighBaseFee(#[from] AboveCeiling),
    /// The native coin balance of the account is too low.
    #[error("account {account} holds {held_wei} wei, but the transaction may cost {needed_wei}; add funds")]
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
    /// The transaction was mined without effect.
    #[error("transaction {tx_hash} was mined without effect: {cause}")]
    Failed {
        /// The transaction.
        tx_hash: Hash32,
        /// Reason of the failure.
        cause: String,
    },
    /// The transaction was sent but not mined.
    #[error("transaction {0} is not yet mined; run the command again later")]
    Slow(Hash32),
}

/// Address of the contract with this admin, on every chain.
pub fn contract_address(admin: Address) -> Result<Address, DeployError> {
    if admin == Address([0; 20]) {
        return Err(DeployError::ZeroAdmin);
    }
    Ok(domain_address(payferry_address(&payferry_init_code(alloy_address(admin)), B256::ZERO)))
}

/// Deploys the contract unless it exists, and waits until it is mined. Anyone may deploy it: the roles are granted
/// afterwards, by the admin.
pub async fn deploy(
    spec: &ChainSpec,
    client: &ChainClient,
    signer: &OperatorSigner,
    admin: Address,
) -> Result<Deployed, DeployError> {
    let address = contract_address(admin)?;
    let found = client.chain_id().await?;
    if found != spec.chain_id {
        return Err(ClientError::WrongChain { expected: spec.chain_id, found }.into());
    }
    if client.has_code(address).await? {
        return Ok(Deployed { address, tx_hash: None });
    }
    let deployer = domain_address(CREATE2_DEPLOYER);
    if !client.has_code(deployer).await? {
        return Err(DeployError::NoDeployer);
    }
    let input = create2_deploy_input(B256::ZERO, &payferry_init_code(alloy_address(admin)));
    let sent = mined(spec, client, signer, deployer, input, PAYFERRY_DEPLOY_GAS_MAX).await?;
    if client.has_code(address).await? {
        return Ok(Deployed { address, tx_hash: Some(sent) });
    }
    Err(DeployError::Failed {
        tx_hash: sent,
        cause: "the endpoint does not show its code; run the command again".to_owned(),
    })
}

/// Calls to the contract that grant what a new deployment lacks: both keys, the treasury, and a limit of this many base
/// units in 24 hours for each token. Earlier grants stay as they are.
pub async fn missing_grants(
    spec: &ChainSpec,
    client: &ChainClient,
    keys: RoleKeys,
    limit: U256,
) -> Result<Vec<Bytes>, ClientError> {
    let at = spec.contract;
    let mut calls = Vec::new();
    for (role, key) in [(Role::Settler, keys.settler), (Role::Sender, keys.sender)] {
        let key = alloy_address(key);
        if !read(client, at, &Payferry::hasRoleCall { role, key }).await? {
            calls.push(Payferry::grantCall { role, key }.abi_encode().into());
        }
    }
    if read(client, at, &Payferry::treasuryCall {}).await?.is_zero() {
        calls.push(Payferry::setTreasuryCall { treasury_: alloy_address(spec.treasury) }.abi_encode().into());
    }
    for (_, token) in &spec.tokens {
        let token = alloy_address(*token);
        if read(client, at, &Payferry::limitOfCall { token }).await?.limit.is_zero() {
            calls.push(Payferry::setLimitCall { token, limit }.abi_encode().into());
        }
    }
    Ok(calls)
}

/// Sends calls to the contract from its admin, and waits until each is mined.
pub async fn grant(
    spec: &ChainSpec,
    client: &ChainClient,
    admin: &OperatorSigner,
    calls: Vec<Bytes>,
) -> Result<(), DeployError> {
    for call in calls {
        mined(spec, client, admin, spec.contract, call, GRANT_GAS_MAX).await?;
    }
    Ok(())
}

/// Sends a transaction that a simulation accepts, and waits until it is mined.
async fn mined(
    spec: &ChainSpec,
    client: &ChainClient,
    signer: &OperatorSigner,
    to: Address,
    input: Bytes,
    gas_limit: u64,
) -> Result<Hash32, DeployError> {
    if let Err(error) = client.call_from(signer.address(), to, input.to_vec(), gas_limit).await {
        return Err(match error {
            ClientError::Reverted { data, .. } if !data.is_empty() => DeployError::Reverts(describe_reason(&data)),
            ClientError::Reverted { reason, .. } => DeployError::Reverts(reason),
            error => error.into(),
        });
    }
    let l1 = client.l1_charge(spec.l1_data, to, &input).await?;
    let fees = Fees::first(client.fee_market().await?, l1.wei_per_gas(gas_limit), spec.fees)?;
    let gas_limit = gas_limit.saturating_add(l1.gas);
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
        to: TxKind::Call(alloy_address(to)),
        input,
        ..TxEip1559::default()
    };
    let signed = signer.sign(tx).await?;
    client.broadcast(&signed.raw.to_string()).await?;
    let deadline = Instant::now() + DEPLOY_PATIENCE;
    loop {
        if let Some(receipt) = client.receipts(&[signed.hash]).await?.into_iter().flatten().next() {
            if receipt.status() {
                return Ok(signed.hash);
            }
            let used = receipt.gas_used;
            let cause = if used >= gas_limit {
                format!("it used all of its {gas_limit} gas")
            } else {
                format!("it reverted after {used} of {gas_limit} gas")
            };
            return Err(DeployError::Failed { tx_hash: signed.hash, cause });
        }
        if Instant::now() > deadline {
            return Err(DeployError::Slow(signed.hash));
        }
        tokio::time::sleep(LOOK_EVERY).await;
    }
}
