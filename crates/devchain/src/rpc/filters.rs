//! Filters that clients install and poll, with the semantics of geth: `eth_newFilter`, `eth_newBlockFilter`,
//! `eth_newPendingTransactionFilter`, `eth_getFilterChanges`, `eth_getFilterLogs`, and `eth_uninstallFilter`.
//!
//! A filter is the newest block that its client has seen. A poll compares it with the chain, so blocks that were added
//! and removed between two polls appear in neither.

use std::collections::HashMap;
use std::hash::{BuildHasher as _, RandomState};
use std::time::Duration;

use alloy::primitives::{B256, U128};
use parking_lot::MutexGuard;
use tokio::time::Instant;

use super::logs::{self, Follow};
use super::read::rpc_transaction;
use super::view::View;
use super::{Answer, Params, json};
use crate::error::RpcError;

/// Maximum number of filters of a chain.
const FILTERS_MAX: usize = 500;

/// Time without a poll after which a filter is removed.
const IDLE_MAX: Duration = Duration::from_mins(5);

/// The filters of a chain, by id.
#[derive(Default)]
pub(crate) struct Filters {
    installed: HashMap<U128, Installed>,
    ids: Ids,
}

struct Installed {
    kind: Kind,
    polled: Instant,
}

enum Kind {
    Logs {
        follow: Box<Follow>,
        seen: B256,
    },
    Blocks {
        seen: B256,
    },
    /// Position in the arrivals of the mempool.
    Transactions {
        arrivals: u64,
        full: bool,
    },
}

/// Source of ids that a client cannot guess.
#[derive(Default)]
pub(super) struct Ids {
    keys: [RandomState; 2],
    given: u64,
}

impl Ids {
    pub(super) fn next(&mut self) -> U128 {
        self.given += 1;
        let [low, high] = self.keys.each_ref().map(|keys| U128::from(keys.hash_one(self.given)));
        high << 64 | low
    }
}

pub(super) fn of_logs(view: &View<'_>, mut params: Params) -> Answer {
    let follow = Box::new(Follow::new(params.take(0, "filter")?)?);
    install(view, Kind::Logs { follow, seen: view.head_block().hash })
}

pub(super) fn of_blocks(view: &View<'_>) -> Answer {
    install(view, Kind::Blocks { seen: view.head_block().hash })
}

pub(super) fn of_transactions(view: &View<'_>, mut params: Params) -> Answer {
    let full = params.optional(0, "full transactions")?.unwrap_or(false);
    let arrivals = view.engine.pool.lock().arrivals();
    install(view, Kind::Transactions { arrivals, full })
}

fn install(view: &View<'_>, kind: Kind) -> Answer {
    let mut filters = live(view);
    if filters.installed.len() >= FILTERS_MAX {
        let message = format!("there are {FILTERS_MAX} filters already: uninstall one, or wait until one expires");
        return Err(RpcError::new(-32_005, message));
    }
    let id = filters.ids.next();
    filters.installed.insert(id, Installed { kind, polled: Instant::now() });
    json(&id)
}

pub(super) fn uninstall(view: &View<'_>, mut params: Params) -> Answer {
    let id: U128 = params.take(0, "filter id")?;
    json(&live(view).installed.remove(&id).is_some())
}

/// Returns what changed since the last poll.
pub(super) fn changes(view: &View<'_>, mut params: Params) -> Answer {
    let id: U128 = params.take(0, "filter id")?;
    let mut filters = live(view);
    let Some(filter) = filters.installed.get_mut(&id) else { return Err(not_found()) };
    filter.polled = Instant::now();
    let changes = match &mut filter.kind {
        Kind::Logs { follow, seen } => view.chain.difference(*seen, view.head).map(|difference| {
            *seen = difference.seen;
            json(&follow.changes(&difference))
        }),
        Kind::Blocks { seen } => view.chain.difference(*seen, view.head).map(|difference| {
            *seen = difference.seen;
            json(&difference.added.iter().map(|block| block.hash).collect::<Vec<_>>())
        }),
        Kind::Transactions { arrivals, full } => {
            let pool = view.engine.pool.lock();
            let arrived = pool.arrived_after(std::mem::replace(arrivals, pool.arrivals()));
            Some(if *full {
                json(&arrived.map(|tx| rpc_transaction(tx, None)).collect::<Vec<_>>())
            } else {
                json(&arrived.map(|tx| tx.hash).collect::<Vec<_>>())
            })
        }
    };
    changes.unwrap_or_else(|| {
        filters.installed.remove(&id);
        Err(not_found())
    })
}

/// Returns all logs of a log filter's blocks, like `eth_getLogs`. This is not a poll.
pub(super) fn all_logs(view: &View<'_>, mut params: Params) -> Answer {
    let id: U128 = params.take(0, "filter id")?;
    match live(view).installed.get(&id).map(|filter| &filter.kind) {
        Some(Kind::Logs { follow, .. }) => logs::matching(view, &follow.filter),
        Some(Kind::Blocks { .. } | Kind::Transactions { .. }) | None => Err(not_found()),
    }
}

/// Locks the filters and removes the expired ones.
fn live<'a>(view: &View<'a>) -> MutexGuard<'a, Filters> {
    let mut filters = view.engine.filters.lock();
    filters.installed.retain(|_, filter| filter.polled.elapsed() < IDLE_MAX);
    filters
}

fn not_found() -> RpcError {
    RpcError::server("filter not found")
}
