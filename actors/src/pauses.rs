//! Pauses by the operator: chains, PSPs, settlement, sending. And pauses by the service itself, which only a
//! reconciliation lifts: a signer of outbound transfers has used nonces that the database does not know.
//!
//! The table is authoritative and outlives restarts; the cached pauses are at most [`STALE_MAX`] old, on every node. A
//! pause holds back new work only: nothing is lost, and work continues when it is lifted. Deliberately absent: the
//! error for a caller.

use std::collections::BTreeMap;
use std::fmt;
use std::str::FromStr;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::RwLock;
use payferry_domain::{Address, Chain, PspId, Timestamp};
use payferry_entities::{Database, Transaction, pauses};
use payferry_journal::audit::{self, Actor, NewAuditEntry};
use payferry_journal::chain::Role;
use sea_orm::{DbErr, EntityTrait, IntoActiveModel, QuerySelect};
use serde_json::json;
use tokio_util::task::AbortOnDropHandle;

use crate::chains::Chains;

/// Maximum time until other nodes apply a pause.
pub const STALE_MAX: Duration = Duration::from_secs(1);
/// Pause between two reads; the rest of [`STALE_MAX`] is for the read.
const READ_PAUSE: Duration = Duration::from_millis(900);

payferry_runtime::metrics! {
    Gauge(Count) PAUSED = "payferry_paused", "Pauses in force, by kind; unreconciled: set by the service until `payferry reconcile` lifts it.";
}

/// Scope of a pause.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Scope {
    /// A chain: it accepts no new payments, and nothing is settled or sent there. It is still watched.
    Chain(Chain),
    /// A PSP: it starts no payments and sends no funds. Work in progress continues.
    Psp(PspId),
    /// Settlements, on this chain or on all chains.
    Settlement(Option<Chain>),
    /// Refunds, payouts, withdrawals and transfers, on this chain or on all chains.
    OutboundTransfer(Option<Chain>),
    /// Outbound transfers on this chain, by the service: it does not know all transactions of this account.
    Unreconciled(Chain, Address),
}

/// Error: not the name of a scope.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error(
    "must be chain:<chain>, psp:<psp_id>, settlement, settlement:<chain>, sending or sending:<chain>; only \
     `payferry reconcile` lifts a pause of kind unreconciled"
)]
pub struct UnknownScope;

impl Scope {
    /// Kinds of scopes, as in metrics.
    pub const KINDS: [&str; 5] = ["chain", "psp", "settlement", "sending", "unreconciled"];

    /// Kind of the scope.
    pub const fn kind(self) -> &'static str {
        match self {
            Self::Chain(_) => Self::KINDS[0],
            Self::Psp(_) => Self::KINDS[1],
            Self::Settlement(_) => Self::KINDS[2],
            Self::OutboundTransfer(_) => Self::KINDS[3],
            Self::Unreconciled(..) => Self::KINDS[4],
        }
    }

    /// Reads a stored scope: those of the operator, and the service's own.
    fn stored(text: &str) -> Result<Self, UnknownScope> {
        let unreconciled = text.strip_prefix(Self::KINDS[4]).and_then(|rest| rest.strip_prefix(':'));
        let Some((chain, account)) = unreconciled.and_then(|rest| rest.split_once(':')) else { return text.parse() };
        match (chain.parse(), account.parse()) {
            (Ok(chain), Ok(account)) => Ok(Self::Unreconciled(chain, account)),
            _ => Err(UnknownScope),
        }
    }
}

impl fmt::Display for Scope {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.kind())?;
        match self {
            Self::Chain(chain) | Self::Settlement(Some(chain)) | Self::OutboundTransfer(Some(chain)) => {
                write!(f, ":{chain}")
            }
            Self::Psp(psp_id) => write!(f, ":{psp_id}"),
            Self::Unreconciled(chain, account) => write!(f, ":{chain}:{account}"),
            Self::Settlement(None) | Self::OutboundTransfer(None) => Ok(()),
        }
    }
}

/// Reads a scope of the operator.
impl FromStr for Scope {
    type Err = UnknownScope;

    fn from_str(text: &str) -> Result<Self, UnknownScope> {
        let (kind, of) = text.split_once(':').map_or((text, None), |(kind, of)| (kind, Some(of)));
        let chain = |of: &str| of.parse::<Chain>().map_err(|_| UnknownScope);
        match (kind, of) {
            ("chain", Some(of)) => chain(of).map(Self::Chain),
            ("psp", Some(of)) => of.parse().map(Self::Psp).map_err(|_| UnknownScope),
            ("settlement", of) => of.map(chain).transpose().map(Self::Settlement),
            ("sending", of) => of.map(chain).transpose().map(Self::OutboundTransfer),
            _ => Err(UnknownScope),
        }
    }
}

/// One pause.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Pause {
    /// Reason given by the operator or the service.
    pub reason: String,
    /// Kind of the actor that set it.
    pub set_by: String,
    /// Time when it was set.
    pub since: Timestamp,
}

impl From<pauses::Model> for Pause {
    fn from(row: pauses::Model) -> Self {
        Self { reason: row.reason, set_by: row.set_by, since: Timestamp(row.since) }
    }
}

/// All pauses by scope.
pub type Held = BTreeMap<Scope, Pause>;

/// Cached pauses. Clones share the cache.
#[derive(Clone, derive_more::Debug)]
#[debug("Pauses {{ held: {:?}, .. }}", self.held())]
pub struct Pauses {
    database: Database,
    held: Arc<RwLock<Arc<Held>>>,
    /// Serialises reads: a result from before a change must not replace a later one.
    turn: Arc<tokio::sync::Mutex<()>>,
}

impl Pauses {
    /// Creates an empty cache over `database`.
    pub(crate) fn new(database: Database) -> Self {
        describe();
        Self { database, held: Arc::default(), turn: Arc::default() }
    }

    /// All pauses, at most [`STALE_MAX`] old; while the database is unavailable, the last ones read.
    pub fn held(&self) -> Arc<Held> {
        self.held.read().clone()
    }

    /// True if exactly this scope is paused.
    pub fn is_paused(&self, scope: Scope) -> bool {
        self.held.read().contains_key(&scope)
    }

    /// True if settlement on a chain is paused.
    pub fn is_settlement_held(&self, chain: Chain) -> bool {
        self.is_any_paused([Scope::Chain(chain), Scope::Settlement(None), Scope::Settlement(Some(chain))])
    }

    /// True if sending on a chain is paused. Accepted orders wait meanwhile.
    pub fn is_outbound_held(&self, chain: Chain) -> bool {
        self.is_any_paused([Scope::Chain(chain), Scope::OutboundTransfer(None), Scope::OutboundTransfer(Some(chain))])
            || self.is_unreconciled(chain)
    }

    /// True if outbound transfers on a chain wait for a reconciliation. New ones are refused: they may repeat one that
    /// the database does not know.
    pub fn is_unreconciled(&self, chain: Chain) -> bool {
        self.held.read().keys().any(|scope| matches!(scope, Scope::Unreconciled(of, _) if *of == chain))
    }

    fn is_any_paused<const N: usize>(&self, scopes: [Scope; N]) -> bool {
        let held = self.held.read();
        scopes.iter().any(|scope| held.contains_key(scope))
    }

    /// Reads the table and applies it to the chains.
    pub(crate) async fn refresh(&self, chains: &Chains) -> Result<(), DbErr> {
        let _turn = self.turn.lock().await;
        let held = Arc::new(load(&self.database).await?);
        let before = std::mem::replace(&mut *self.held.write(), held.clone());
        if before != held {
            let names: Vec<String> = held.keys().map(Scope::to_string).collect();
            tracing::warn!(paused = names.join(" "), "the pauses have changed: {} active", names.len());
        }
        for spec in chains.running() {
            let chain = spec.chain;
            let Some(settler) = chains.settler(chain) else { continue };
            let holds = [(Role::Settle, self.is_settlement_held(chain)), (Role::Send, self.is_outbound_held(chain))];
            for (role, is_held) in holds {
                if settler.is_paused(role) != is_held {
                    settler.set_paused(role, is_held);
                }
            }
        }
        for kind in Scope::KINDS {
            let count = held.keys().filter(|scope| scope.kind() == kind).count() as u64;
            PAUSED.set_count(&[("scope", kind)], count);
        }
        Ok(())
    }

    /// Reads the table periodically, until it is dropped.
    pub(crate) fn follow(&self, chains: Arc<Chains>) -> AbortOnDropHandle<()> {
        let pauses = self.clone();
        AbortOnDropHandle::new(tokio::spawn(async move {
            let mut is_away = false;
            loop {
                tokio::time::sleep(READ_PAUSE).await;
                let read = pauses.refresh(&chains).await;
                if let Err(error) = &read
                    && !is_away
                {
                    tracing::warn!(%error, "the pauses cannot be read; the last ones read remain in force");
                }
                is_away = read.is_err();
            }
        }))
    }
}

/// Reads every pause. A row with a scope of another version is skipped and logged.
pub async fn load(database: &Database) -> Result<Held, DbErr> {
    let rows = pauses::Entity::find().all(database.reader()).await?;
    let read = |row: pauses::Model| {
        let skipped = |error: &UnknownScope| tracing::error!(%error, "a pause with an unknown scope is skipped");
        Some((Scope::stored(&row.scope).inspect_err(skipped).ok()?, row.into()))
    };
    Ok(rows.into_iter().filter_map(read).collect())
}

/// True if exactly this scope is paused, by the table.
pub(crate) async fn is_set(database: &Database, scope: Scope) -> Result<bool, DbErr> {
    Ok(pauses::Entity::find_by_id(scope.to_string()).one(database.reader()).await?.is_some())
}

/// Pauses a scope, in a transaction that the caller commits; returns the pause. An existing pause is returned
/// unchanged.
pub async fn set(
    transaction: &Transaction,
    scope: Scope,
    reason: &str,
    by: &Actor,
    now: Timestamp,
) -> Result<Pause, DbErr> {
    let row = pauses::Model {
        scope: scope.to_string(),
        reason: reason.to_owned(),
        set_by: by.kind().to_owned(),
        since: now.as_millis(),
    };
    let keep = sea_orm::sea_query::OnConflict::column(pauses::Column::Scope).do_nothing().to_owned();
    let inserted = pauses::Entity::insert(row.clone().into_active_model())
        .on_conflict(keep)
        .exec_without_returning(transaction)
        .await?;
    let is_new = inserted > 0;
    if is_new {
        let entry = entry("pause.set", scope, json!({ "reason": reason }));
        audit::append(transaction, by, now, vec![entry]).await?;
    }
    let there = pauses::Entity::find_by_id(scope.to_string()).one(transaction).await?.unwrap_or(row);
    Ok(there.into())
}

/// Lifts a pause, in a transaction that the caller commits; returns the previous pause, if any.
pub async fn lift(transaction: &Transaction, scope: Scope, by: &Actor, now: Timestamp) -> Result<Option<Pause>, DbErr> {
    let id = scope.to_string();
    let Some(row) = pauses::Entity::find_by_id(&id).lock_exclusive().one(transaction).await? else { return Ok(None) };
    pauses::Entity::delete_by_id(&id).exec(transaction).await?;
    let pause = Pause::from(row);
    let detail = json!({ "pause_reason": pause.reason, "since": pause.since.to_string() });
    audit::append(transaction, by, now, vec![entry("pause.lifted", scope, detail)]).await?;
    Ok(Some(pause))
}

fn entry(action: &str, scope: Scope, detail: serde_json::Value) -> NewAuditEntry {
    let psp_id = match scope {
        Scope::Psp(psp_id) => Some(psp_id),
        _ => None,
    };
    NewAuditEntry { action: action.to_owned(), psp_id, subject: scope.to_string(), detail }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn scopes_parse_as_they_are_displayed() {
        let psp = PspId::generate();
        let scopes = [
            Scope::Chain(Chain::Base),
            Scope::Psp(psp),
            Scope::Settlement(None),
            Scope::Settlement(Some(Chain::Polygon)),
            Scope::OutboundTransfer(None),
            Scope::OutboundTransfer(Some(Chain::Arbitrum)),
        ];
        let expected =
            ["chain:base", &format!("psp:{psp}"), "settlement", "settlement:polygon", "sending", "sending:arbitrum"];
        assert_eq!(scopes.map(|scope| scope.to_string()), expected);
        for scope in scopes {
            assert_eq!(scope.to_string().parse(), Ok(scope));
        }
        for unknown in
            ["", "chain", "chain:", "chain:doge", "psp", "psp:pay_1", "settlement:", "payouts", "sending:base:x"]
        {
            assert_eq!(unknown.parse::<Scope>(), Err(UnknownScope), "{unknown}");
        }
        // The operator can neither set nor lift it.
        let own = Scope::Unreconciled(Chain::Base, Address([0xab; 20]));
        let name = format!("unreconciled:base:0x{}", "ab".repeat(20));
        assert_eq!((own.to_string(), Scope::stored(&name), name.parse::<Scope>()), (name, Ok(own), Err(UnknownScope)));
        assert_eq!(Scope::stored("sending:base"), Ok(Scope::OutboundTransfer(Some(Chain::Base))));
    }
}
