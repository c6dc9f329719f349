//! Simulation of batches before they are signed: a batch that would revert, or an operation that would fail, costs no gas.
//!
//! Deliberately absent: the failure of an operation. Only the chain decides it, because an endpoint may lag or lie.

use std::collections::{HashMap, HashSet};
use std::time::Duration;

use alloy::primitives::{Bytes, U256};
use alloy::sol_types::{SolCall, SolInterface};
use payferry_contracts::{ItemError, Payferry, TX_GAS_MAX, batch_gas_limit, describe_reason};
use payferry_domain::{Address, Amount};
use payferry_entities::operations;
use payferry_evm::client::ClientError;
use payferry_evm::config::L1Data;
use payferry_evm::pace::{BlockingError, Severity};
use payferry_evm::wallet::alloy_address;
use payferry_evm::{ChainClient, ChainSpec};
use payferry_journal::chain::Role;
use payferry_runtime::supervise::doubled;
use tokio::time::Instant;

use super::ChainContext;
use super::done::decoded;
use super::errors::SettleError;
use super::operations::item_input;
use super::settler::SettlerState;

/// Failed simulations of an operation, before the chain decides.
const SIMULATIONS_MAX: u32 = 3;
/// Wait after a failed simulation; doubles with each further one.
const WAIT: Duration = Duration::from_secs(1);
/// Upper limit of that wait.
const WAIT_MAX: Duration = Duration::from_mins(1);

/// An operation that is left out of batches for now.
#[derive(Clone, Debug)]
pub(super) struct Deferred {
    /// Failed simulations so far.
    pub(super) simulations: u32,
    pub(super) until: Instant,
    pub(super) why: String,
    /// Token whose limit it waits for. Later transfers of the token wait with it.
    pub(super) limited_token: Option<String>,
}

impl SettlerState {
    /// Leaves out operations that would fail now. After several simulations the chain decides, except for the limit of a
    /// token, which fails no operation.
    pub(super) async fn without_failing(
        &mut self,
        role: Role,
        rows: Vec<operations::Model>,
    ) -> Result<Vec<operations::Model>, SettleError> {
        let ChainContext { spec, client, .. } = &self.args.context;
        let contract = spec.contract;
        let gas_limit = match spec.l1_data {
            L1Data::None | L1Data::OpStack => batch_gas_limit(1, spec.item_gas),
            // The call pays for L1 data out of its gas, too.
            L1Data::Arbitrum => TX_GAS_MAX,
        };
        let calls = rows.iter().map(|row| Ok((contract, item_input(role, row)?))).collect::<Result<Vec<_>, _>>();
        let calls = calls.map_err(SettleError::Operation)?;
        let answers = client.calls_from(contract, gas_limit, calls).await?;
        let mut kept = Vec::with_capacity(rows.len());
        let mut limited: HashSet<String> = HashSet::new();
        for (row, answer) in rows.into_iter().zip(answers) {
            if limited.contains(&row.token_address) {
                continue;
            }
            let failure = match answer {
                Ok(_) => None,
                Err(ClientError::Reverted { data, reason }) => failure_of(&data, &reason),
                // An invalid response about one token blocks only its operations.
                Err(ClientError::Malformed(why) | ClientError::Refused { message: why, .. }) => {
                    Some(ItemFailure { why, is_limit: false })
                }
                Err(error) => return Err(error.into()),
            };
            let simulations = self.deferred.get(&row.id).map_or(0, |deferred| deferred.simulations);
            match failure {
                Some(ItemFailure { mut why, is_limit }) if is_limit || simulations < SIMULATIONS_MAX => {
                    let is_too_large = is_limit && self.exceeds_capacity(&row).await?;
                    if is_too_large {
                        why.push_str("; it exceeds half of the limit, so only a higher limit lets it pass");
                    }
                    tracing::warn!(chain = %self.args.spec.chain, operation.id = row.id, reason = why,
                        "operation {} would fail and waits: {why}", row.id);
                    let limited_token = (is_limit && !is_too_large).then(|| row.token_address.clone());
                    limited.extend(limited_token.clone());
                    let until = Instant::now() + doubled(WAIT, WAIT_MAX, simulations);
                    let why = format!("operation {} waits: {why}", row.id);
                    let simulations = simulations.saturating_add(1);
                    self.deferred.insert(row.id, Deferred { simulations, until, why, limited_token });
                }
                _ => {
                    self.deferred.remove(&row.id);
                    kept.push(row);
                }
            }
        }
        Ok(kept)
    }

    /// True if the amount exceeds what the token's limit allows in one transfer, which is half of it.
    async fn exceeds_capacity(&self, row: &operations::Model) -> Result<bool, SettleError> {
        let token: Address = row.token_address.parse().map_err(|_| SettleError::Row("a token address is malformed"))?;
        let answer = self.args.client.call(self.args.spec.contract, limit_of(token)).await?;
        Ok(U256::from(row.amount.unsigned_abs()) > capacity(&answer)?)
    }

    /// Forgets operations that are not in the queue any more, and returns the tokens with a transfer that waits for their
    /// limit.
    pub(super) fn limited_tokens(&mut self, now: Instant) -> Vec<String> {
        self.deferred.retain(|_, deferred| now < deferred.until + WAIT_MAX);
        let waiting = self.deferred.values().filter(|deferred| now < deferred.until);
        waiting.filter_map(|deferred| deferred.limited_token.clone()).collect()
    }

    /// Checks that the contract accepts the batch as a whole: no pause, and the signer has its role. Otherwise nothing is
    /// signed for this role until a later check succeeds.
    pub(super) async fn is_accepted(
        &mut self,
        role: Role,
        signer: Address,
        input: &Bytes,
        gas_limit: u64,
    ) -> Result<bool, SettleError> {
        let spec = &self.args.spec;
        match self.args.client.call_from(signer, spec.contract, input.to_vec(), gas_limit).await {
            Ok(_) => {
                self.refused.remove(&role);
                Ok(true)
            }
            Err(ClientError::Reverted { data, reason }) => {
                let why = refusal(&data, &reason, signer);
                tracing::warn!(chain = %spec.chain, reason = why, "the contract would refuse a batch; nothing is sent: {why}");
                let blocking_error = BlockingError { severity: Severity::Outside, why };
                self.refused.entry(role).or_default().conclude([blocking_error]);
                Ok(false)
            }
            Err(error) => Err(error.into()),
        }
    }
}

/// Reason why an item fails, and if it is the limit of the token.
struct ItemFailure {
    why: String,
    is_limit: bool,
}

/// `None` if the chain must decide: the operation was done before.
fn failure_of(data: &[u8], reason: &str) -> Option<ItemFailure> {
    let error = ItemError::abi_decode(data);
    if matches!(error, Ok(ItemError::AlreadyDone(_))) {
        return None;
    }
    let why = if data.is_empty() { reason.to_owned() } else { describe_reason(data) };
    Some(ItemFailure { why, is_limit: matches!(error, Ok(ItemError::LimitExceeded(_))) })
}

/// Reason why the contract refuses a batch, and what to do.
fn refusal(data: &[u8], reason: &str, signer: Address) -> String {
    match ItemError::abi_decode(data) {
        Ok(ItemError::SettlePaused(_)) => {
            "settling is paused on-chain: the admin of the contract must resume it (`unpause`)".to_owned()
        }
        Ok(ItemError::SendPaused(_)) => {
            "sending is paused on-chain: the admin of the contract must resume it (`unpause`)".to_owned()
        }
        Ok(ItemError::NotSettler(_)) => {
            format!(
                "the contract has not granted the settler role to {signer}, or revoked it: grant it, or change `signer.settler`"
            )
        }
        Ok(ItemError::NotSender(_)) => {
            format!(
                "the contract has not granted the sender role to {signer}, or revoked it: grant it, or change `signer.sender`"
            )
        }
        Ok(ItemError::NoTreasury(_)) => {
            "the contract has no treasury: set it with `payferry contract grant`".to_owned()
        }
        Ok(ItemError::ItemGasTooLow(_)) => "the contract requires more gas per operation: raise `item_gas`".to_owned(),
        _ if data.is_empty() => format!("the contract would revert the batch: {reason}"),
        _ => format!("the contract would revert the batch: {}", describe_reason(data)),
    }
}

/// Largest amount of one outbound transfer per configured token, by the contract's limits.
pub(super) async fn send_max(spec: &ChainSpec, client: &ChainClient) -> Result<HashMap<Address, Amount>, ClientError> {
    let tokens = spec.tokens.iter().map(|(_, address)| *address);
    let answers = client.calls(tokens.clone().map(|token| (spec.contract, limit_of(token))).collect()).await?;
    let read = |(token, answer): (Address, Result<Bytes, ClientError>)| {
        let units = i64::try_from(capacity(&answer?)?).unwrap_or(i64::MAX);
        Ok((token, Amount::from_units(units)))
    };
    tokens.zip(answers).map(read).collect()
}

fn limit_of(token: Address) -> Vec<u8> {
    Payferry::limitOfCall { token: alloy_address(token) }.abi_encode()
}

/// Largest amount of one transfer under this limit: half of it.
fn capacity(answer: &[u8]) -> Result<U256, ClientError> {
    Ok(decoded::<Payferry::limitOfCall>(answer)?.limit / U256::from(2))
}
