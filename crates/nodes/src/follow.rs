//! Follows the rows of leases: claims free ones up to this node's share, and hands others over.
//!
//! Every second, and when another node says that leases moved, this node reads all rows. A row that names it and that it
//! does not hold yet was claimed for it or handed over to it; a lease that it holds and whose row names another node is lost.

use std::collections::BTreeMap;
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

use async_trait::async_trait;
use payferry_domain::NodeId;
use sea_orm::DbErr;
use strum::IntoEnumIterator;
use tokio::sync::watch;

use crate::courier::Topic;
use crate::heartbeat::{Member, NodeState};
use crate::lease::{Lease, LeaseKind, LeaseName};
use crate::membership::{Inner, Node, claim};
use crate::{metrics, statements};

/// Interval of reads.
const INTERVAL: Duration = Duration::from_secs(1);
/// Time for which membership must be unchanged before a node hands leases over to balance the load.
const SETTLED_AFTER: Duration = Duration::from_secs(30);
/// Leases handed over per read to balance the load.
const BALANCED_MAX: usize = 16;
/// Leases handed over per read while draining.
const DRAINED_MAX: usize = 64;

/// Does the work of leases.
#[async_trait]
pub trait LeaseHolder: Send + Sync + 'static {
    /// Starts the work of leases that this node got. Returns those whose work could not start; they are tried again.
    async fn gain(&self, leases: Vec<Lease>) -> Vec<LeaseName>;

    /// Stops the work of leases; returns when it has stopped.
    async fn lose(&self, names: Vec<LeaseName>);
}

/// A row of `leases`.
#[derive(Debug, Clone, Copy)]
pub(crate) struct LeaseRow {
    pub(crate) name: LeaseName,
    pub(crate) owner: Option<NodeId>,
    /// Node to which an operator wants it handed over.
    pub(crate) requested_by: Option<NodeId>,
    pub(crate) epoch: i64,
    pub(crate) changed_at: i64,
    pub(crate) is_free: bool,
}

pub(crate) struct Follow {
    holder: Arc<dyn LeaseHolder>,
    /// Ids of the nodes, and the time since when they are the same.
    settled: (Vec<NodeId>, Instant),
}

impl Follow {
    pub(crate) fn new(holder: Arc<dyn LeaseHolder>) -> Self {
        Self { holder, settled: (Vec::new(), Instant::now()) }
    }

    /// Follows until the node is dropped.
    pub(crate) async fn run(mut self, node: Weak<Inner>, mut moved: watch::Receiver<()>) {
        loop {
            tokio::select! {
                () = tokio::time::sleep(INTERVAL) => {}
                Ok(()) = moved.changed() => {}
            }
            let Some(inner) = node.upgrade() else { return };
            let node = Node { inner };
            while self.turn(&node).await {}
        }
    }

    /// Reads the rows once and acts; returns true if there is more to do at once.
    pub(crate) async fn turn(&mut self, node: &Node) -> bool {
        let turned = async {
            let mut rows = read(node).await?;
            let claimed = claim_free(node, &rows).await?;
            if claimed > 0 {
                rows = read(node).await?;
            }
            self.take_up(node, &rows, claimed).await;
            self.hand_over(node, &rows).await
        };
        let more = turned.await;
        metrics::show_leases(node.leases());
        more.unwrap_or_else(|error: DbErr| {
            tracing::warn!(%error, "the leases cannot be read");
            false
        })
    }

    /// Starts the work of leases that this node got, and stops that of leases that it lost. It has claimed `claimed` of them.
    async fn take_up(&self, node: &Node, rows: &[LeaseRow], claimed: usize) {
        let (me, leases) = (node.id(), node.leases());
        let mine = rows.iter().filter(|row| row.owner == Some(me) && !row.is_free);
        let mine: BTreeMap<LeaseName, Lease> =
            mine.map(|row| (row.name, Lease::claimed(row.name, me, row.epoch, row.changed_at))).collect();
        let is_lost = |lease: &Lease| mine.get(&lease.name()) != Some(lease);
        let lost: Vec<LeaseName> = leases.all().iter().filter(|lease| is_lost(lease)).map(Lease::name).collect();
        if !lost.is_empty() {
            tracing::warn!(leases = lost.len(), "leases were lost: {}", names(&lost));
            for name in &lost {
                leases.remove(*name);
            }
            self.holder.lose(lost).await;
        }
        let new: Vec<Lease> = mine.into_values().filter(|lease| !leases.holds(lease.name())).collect();
        if new.is_empty() {
            return;
        }
        metrics::TAKEOVERS.add(&[("cause", "claimed")], claimed as u64);
        metrics::TAKEOVERS.add(&[("cause", "handed_over")], new.len().saturating_sub(claimed) as u64);
        let names_got: Vec<LeaseName> = new.iter().map(Lease::name).collect();
        tracing::info!(leases = new.len(), "this node got leases: {}", names(&names_got));
        for lease in &new {
            leases.insert(lease.clone());
        }
        for failed in self.holder.gain(new).await {
            leases.remove(failed);
        }
    }

    /// Hands leases over: all of them while draining, otherwise those above this node's share once membership has settled.
    /// Returns true if there is more to do at once.
    async fn hand_over(&mut self, node: &Node, rows: &[LeaseRow]) -> Result<bool, DbErr> {
        let inner = node.inner.clone();
        let members = inner.members.borrow().clone();
        let ids: Vec<NodeId> = members.iter().map(|member| member.id).collect();
        if self.settled.0 != ids {
            self.settled = (ids, Instant::now());
        }
        let state = *inner.state.borrow();
        let given = match state {
            NodeState::Draining => handed_over(rows, inner.id, &members, DRAINED_MAX, true),
            NodeState::Ready if self.settled.1.elapsed() >= SETTLED_AFTER => {
                let mut given = requested(rows, inner.id, &members);
                if given.is_empty() {
                    given = handed_over(rows, inner.id, &members, BALANCED_MAX, false);
                }
                given
            }
            _ => requested(rows, inner.id, &members),
        };
        let held: Vec<(Lease, NodeId)> =
            given.into_iter().filter_map(|(name, to)| Some((inner.leases.remove(name)?, to))).collect();
        if held.is_empty() {
            return Ok(false);
        }
        self.holder.lose(held.iter().map(|(lease, _)| lease.name()).collect()).await;
        let mut handed = 0;
        for (lease, to) in &held {
            let (me, to) = (inner.id.to_string(), to.to_string());
            let values = [me.into(), to.into(), lease.text().into(), lease.epoch().into(), lease.changed_at().into()];
            // If the other node is not ready any more, the next read finds the lease with this node again.
            handed += statements::run(inner.database.writer(), statements::HAND_OVER, values).await?.len();
        }
        tracing::info!(leases = handed, "handed leases over to other nodes");
        inner.courier.nudge(Topic::Leases, "");
        Ok(state == NodeState::Draining && handed > 0)
    }
}

async fn read(node: &Node) -> Result<Vec<LeaseRow>, DbErr> {
    let rows = statements::run(node.inner.database.writer(), statements::LEASES, []).await?;
    let mut read = Vec::with_capacity(rows.len());
    for row in rows {
        // A lease of another version is left to a node of that version.
        let Ok(name) = row.try_get::<String>("", "name")?.parse() else { continue };
        let node =
            |column: &str| Ok::<_, DbErr>(row.try_get::<Option<String>>("", column)?.and_then(|id| id.parse().ok()));
        let (owner, requested_by) = (node("owner")?, node("requested_by")?);
        let is_free = row.try_get::<i32>("", "free")? == 1;
        let (epoch, changed_at) = (row.try_get("", "epoch")?, row.try_get("", "changed_at")?);
        read.push(LeaseRow { name, owner, requested_by, epoch, changed_at, is_free });
    }
    Ok(read)
}

/// Claims free leases up to this node's share; returns their number.
async fn claim_free(node: &Node, rows: &[LeaseRow]) -> Result<usize, DbErr> {
    let Node { inner } = node;
    if *inner.state.borrow() == NodeState::Draining {
        return Ok(0);
    }
    let members = inner.members.borrow().clone();
    let mut got = 0;
    for kind in LeaseKind::iter() {
        let free = rows.iter().filter(|row| row.is_free && row.name.kind() == kind).map(|row| row.name);
        let wanted = claimable(rows, inner.id, &members, kind);
        got += claim(inner.database.writer(), inner.id, &free.collect::<Vec<_>>(), wanted).await?.len();
    }
    Ok(got)
}

fn names(names: &[LeaseName]) -> String {
    let shown = names.iter().filter(|name| name.kind() != LeaseKind::Shard && name.kind() != LeaseKind::Bucket);
    let shown: Vec<String> = shown.map(ToString::to_string).collect();
    let others = names.len() - shown.len();
    match (shown.is_empty(), others) {
        (_, 0) => shown.join(", "),
        (true, _) => format!("{others} shards and buckets"),
        (false, _) => format!("{}, and {others} shards and buckets", shown.join(", ")),
    }
}

/// Leases that an operator wants handed over to another node, which is ready.
fn requested(rows: &[LeaseRow], me: NodeId, members: &[Member]) -> Vec<(LeaseName, NodeId)> {
    let is_ready =
        |id: NodeId| id != me && members.iter().any(|member| member.id == id && member.state == NodeState::Ready);
    let mine = rows.iter().filter(|row| row.owner == Some(me) && !row.is_free);
    mine.filter_map(|row| Some((row.name, row.requested_by.filter(|to| is_ready(*to))?))).collect()
}

fn share(total: usize, nodes: usize) -> usize {
    total.div_ceil(nodes.max(1))
}

/// Number of free leases of a kind that this node may claim.
fn claimable(rows: &[LeaseRow], me: NodeId, members: &[Member], kind: LeaseKind) -> usize {
    let of_kind: Vec<_> = rows.iter().filter(|row| row.name.kind() == kind).collect();
    let ready = members.iter().filter(|member| member.state == NodeState::Ready && member.id != me).count() + 1;
    let mine = of_kind.iter().filter(|row| row.owner == Some(me)).count();
    let free = of_kind.iter().filter(|row| row.is_free).count();
    share(of_kind.len(), ready).saturating_sub(mine).min(free)
}

/// Leases that this node hands over, and to which node: to the ready one with the fewest of the kind.
fn handed_over(
    rows: &[LeaseRow],
    me: NodeId,
    members: &[Member],
    limit: usize,
    is_draining: bool,
) -> Vec<(LeaseName, NodeId)> {
    let ready: Vec<NodeId> = members
        .iter()
        .filter(|member| member.state == NodeState::Ready && member.id != me)
        .map(|member| member.id)
        .collect();
    let mut given = Vec::new();
    for kind in LeaseKind::iter() {
        let of_kind = rows.iter().filter(|row| row.name.kind() == kind && !row.is_free);
        let mut held: BTreeMap<NodeId, Vec<LeaseName>> = ready.iter().map(|id| (*id, Vec::new())).collect();
        let mut mine = Vec::new();
        for row in of_kind {
            match row.owner {
                Some(owner) if owner == me => mine.push(row.name),
                Some(owner) => held.entry(owner).or_default().push(row.name),
                None => {}
            }
        }
        let total = rows.iter().filter(|row| row.name.kind() == kind).count();
        let kept = if is_draining { 0 } else { share(total, ready.len() + 1) };
        while mine.len() > kept && given.len() < limit {
            let fewest = ready.iter().min_by_key(|id| held.get(id).map_or(0, Vec::len));
            let (Some(to), Some(name)) = (fewest, mine.pop()) else { break };
            held.entry(*to).or_default().push(name);
            given.push((name, *to));
        }
    }
    given
}

#[cfg(test)]
mod tests {
    use super::*;

    fn member(id: NodeId, state: NodeState) -> Member {
        let (name, text) = (id.to_string(), String::new);
        Member {
            id,
            name,
            version: text(),
            config_digest: text(),
            api_url: text(),
            operator_url: text(),
            state,
            seen_at: 0,
            joined_at: 0,
            clock_offset_ms: 0,
            drain_requested: false,
        }
    }

    fn rows(owners: &[(Option<NodeId>, bool)]) -> Vec<LeaseRow> {
        let row = |(number, (owner, is_free)): (usize, &(Option<NodeId>, bool))| LeaseRow {
            name: LeaseName::Shard(u8::try_from(number).unwrap()),
            owner: *owner,
            requested_by: None,
            epoch: 1,
            changed_at: 0,
            is_free: *is_free,
        };
        owners.iter().enumerate().map(row).collect()
    }

    #[test]
    fn a_node_claims_free_leases_up_to_its_share() {
        let [me, other] = [(); 2].map(|()| NodeId::generate());
        let both = [member(me, NodeState::Joining), member(other, NodeState::Ready)];
        let kind = LeaseKind::Shard;
        assert_eq!(claimable(&rows(&[(None, true); 5]), me, &both[..1], kind), 5, "it is the only one");
        assert_eq!(claimable(&rows(&[(None, true); 5]), me, &both, kind), 3);
        let joining = [member(me, NodeState::Joining), member(other, NodeState::Joining)];
        assert_eq!(claimable(&rows(&[(None, true); 5]), me, &joining, kind), 5, "no other node is ready");
        let held = rows(&[(Some(me), false), (Some(other), true), (Some(other), true), (Some(other), true)]);
        assert_eq!(claimable(&held, me, &both, kind), 1);
        assert_eq!(claimable(&rows(&[(Some(other), false); 4]), me, &both, kind), 0, "none is free");
        assert_eq!(claimable(&held, me, &both, LeaseKind::Chain), 0, "another kind");
    }

    #[test]
    fn a_node_above_its_share_hands_over_to_the_node_with_the_fewest() {
        let [me, second, third] = [(); 3].map(|()| NodeId::generate());
        let members = [me, second, third].map(|id| member(id, NodeState::Ready));
        let held = rows(&[(Some(me), false), (Some(me), false), (Some(me), false), (Some(second), false)]);
        let given = handed_over(&held, me, &members, 16, false);
        assert_eq!(given, [(LeaseName::Shard(2), third)], "4 leases, 3 nodes: at most 2 each");
        let all = handed_over(&held, me, &members, 16, true);
        let to: Vec<NodeId> = all.iter().map(|(_, to)| *to).collect();
        assert_eq!(to.len(), 3);
        assert_eq!(to.iter().filter(|to| **to == third).count(), 2, "draining balances the others");
        assert_eq!(handed_over(&held, me, &members, 2, true).len(), 2, "at most the limit");
        assert_eq!(handed_over(&held, me, &members[..1], 16, true), [], "no other node is ready");
        assert_eq!(handed_over(&rows(&[(Some(me), false), (Some(second), false)]), me, &members[..2], 16, false), []);
    }
}
