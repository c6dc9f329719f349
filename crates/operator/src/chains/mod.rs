//! State of the chains: read position, age of the head, and settler. Deliberately absent: JSON routes; the overview, the
//! events and the readiness contain this data.

pub(crate) mod page;

use payferry_entities::OperationStatus;
use std::collections::HashMap;

use payferry_accounts::Moment;
use payferry_actors::System;
use payferry_actors::chain::SettlerHandle;
use payferry_actors::pauses::Scope;
use payferry_domain::Chain;
use payferry_journal::chain::Role;
use sea_orm::DbErr;
use serde::Serialize;
use utoipa::ToSchema;

use crate::query::Count;

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum ChainState {
    /// The chain is read.
    Ok,
    /// The chain cannot be read at present, but its last head is not stale yet.
    #[serde(rename = "troubled")]
    Degraded,
    /// No new block for longer than the outage limit: the chain is not offered, and no deadline passes on it.
    Stale,
    /// The chain has not been read since the service started.
    NeverRead,
}

/// Health of a chain for payments.
#[derive(Debug, Clone, Serialize, ToSchema)]
pub struct ChainHealth {
    #[schema(value_type = String)]
    pub chain: Chain,
    pub state: ChainState,
    /// Age of the newest block, milliseconds.
    pub head_age_ms: Option<i64>,
    /// Reason why it cannot be read, if any.
    pub trouble: Option<String>,
}

/// All data of one chain.
#[derive(Debug, Clone, Serialize, ToSchema)]
pub struct ChainLine {
    /// Health for payments.
    #[serde(flatten)]
    pub health: ChainHealth,
    pub chain_id: u64,
    /// Newest block that an endpoint reported.
    pub head_number: Option<u64>,
    #[schema(value_type = Option<String>, format = DateTime)]
    pub head_at: Option<Moment>,
    /// Last block that was completely read.
    pub read_number: Option<u64>,
    /// Blocks between the head and the last block read.
    pub lag_blocks: Option<u64>,
    /// Newest block that the chain calls safe.
    pub safe_number: Option<u64>,
    /// Newest block that the chain calls finalized.
    pub finalized_number: Option<u64>,
    /// Base fee of the head, wei per gas.
    pub base_fee_wei: Option<String>,
    /// True if the operator has paused it, so that `best` skips it.
    pub paused: bool,
    pub settler: SettlerLine,
}

#[derive(Debug, Clone, Serialize, ToSchema)]
pub struct SettlerLine {
    /// Reason why settlements are delayed, if any.
    pub trouble: Option<String>,
    /// True if the operator has paused new settlements.
    pub settling_paused: bool,
    /// True if the operator has paused new outbound transfers.
    pub sending_paused: bool,
    /// Pending operations. Empty if the database does not answer in time.
    #[serde(flatten)]
    pub work: Work,
    /// Transactions signed since the service started.
    pub transactions_signed: u64,
    /// Last known balance of the gas account in the chain's native coin, wei.
    pub gas_balance_wei: Option<String>,
}

/// Pending operations of a settler, as far as they are known.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, ToSchema)]
pub struct Work {
    /// Operations that wait for a transaction.
    pub queued: Option<Count>,
    /// Operations in a transaction that is not mined.
    pub submitted: Option<Count>,
    /// Operations in a mined transaction that is not final.
    pub mined: Option<Count>,
}

impl Work {
    /// Number of operations in a transaction.
    pub fn under_way(self) -> Option<Count> {
        Some(self.submitted?.and(self.mined?))
    }
}

/// Pending operations by chain.
pub type Works = HashMap<Chain, Work>;

/// Returns the health of each running chain.
pub fn health(system: &System) -> Vec<ChainHealth> {
    let now = system.clock().now();
    let health = |chain: Chain| {
        let view = system.chain_view(chain);
        let trouble = system.chains().degraded_reason(chain);
        let state = match &view {
            None => ChainState::NeverRead,
            Some(view) if view.is_stale(now) => ChainState::Stale,
            Some(_) if trouble.is_some() => ChainState::Degraded,
            Some(_) => ChainState::Ok,
        };
        ChainHealth { chain, state, head_age_ms: view.map(|view| view.head_age_ms(now)), trouble }
    };
    system.chains().running().map(|spec| health(spec.chain)).collect()
}

/// Returns all data of each running chain, with the given counts of operations.
pub fn chains(system: &System, works: Option<&Works>) -> Vec<ChainLine> {
    let line = |health: ChainHealth| {
        let chain = health.chain;
        let spec = system.chains().spec(chain)?;
        let view = system.chain_view(chain);
        let work = works.and_then(|works| works.get(&chain)).copied().unwrap_or_default();
        Some(ChainLine {
            health,
            chain_id: spec.chain_id,
            head_number: view.as_ref().map(|view| view.head_number),
            head_at: view.as_ref().map(|view| view.head_time.into()),
            read_number: view.as_ref().map(|view| view.read_number),
            lag_blocks: view.as_ref().map(|view| view.head_number.saturating_sub(view.read_number)),
            safe_number: view.as_ref().and_then(|view| view.safe),
            finalized_number: view.as_ref().and_then(|view| view.finalized),
            base_fee_wei: view.as_ref().map(|view| view.base_fee_wei.to_string()),
            paused: system.pauses().is_paused(Scope::Chain(chain)),
            settler: settler(system, chain, work),
        })
    };
    health(system).into_iter().filter_map(line).collect()
}

fn settler(system: &System, chain: Chain, work: Work) -> SettlerLine {
    let handle = system.chains().settler(chain);
    let paused = |role| handle.is_some_and(|handle| handle.is_paused(role));
    SettlerLine {
        trouble: handle.and_then(SettlerHandle::blocked_reason),
        settling_paused: paused(Role::Settle),
        sending_paused: paused(Role::Send),
        work,
        transactions_signed: handle.map_or(0, SettlerHandle::submitted_total),
        gas_balance_wei: handle.and_then(SettlerHandle::gas_balance_wei).map(|wei| wei.to_string()),
    }
}

/// Counts the pending operations of each settler.
pub async fn works(system: &System) -> Result<Works, DbErr> {
    let from = "FROM operations WHERE chain = $1 AND status = $2";
    let mut works = Works::new();
    for spec in system.chains().running() {
        let count =
            |status: OperationStatus| Count::rows(system.database(), from, [spec.chain.as_str().into(), status.into()]);
        let (queued, submitted) =
            (Some(count(OperationStatus::Queued).await?), Some(count(OperationStatus::Submitted).await?));
        works.insert(spec.chain, Work { queued, submitted, mined: Some(count(OperationStatus::Mined).await?) });
    }
    Ok(works)
}
