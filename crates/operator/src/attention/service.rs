//! Kinds that are known in memory: database, journal, chains, settlers, quarantine, webhooks. Kinds that are read from
//! the compliance actor and the table of checks.

use payferry_actors::System;
use payferry_actors::chain::HeldTransfer;
use payferry_actors::compliance::identity::{ComplianceService, count, overdue};
use payferry_actors::ledger::check::{Imbalance, Where};
use payferry_actors::observe::{ActorSubject, Quarantinable, QuarantinedSubject};
use payferry_actors::pauses::{Pause, Scope};
use payferry_actors::reconcile::watch::PersistentDifference;
use payferry_actors::reconcile::{FundsPosition, Owner};
use payferry_domain::ledger::Asset;
use payferry_domain::payment::TransferKey;
use payferry_domain::{Chain, PaymentId, Timestamp};
use payferry_entities::checks;
use payferry_evm::client::EndpointProblem;
use payferry_journal::CommitBlocker;
use payferry_journal::violations::{self, StoppedWrite};
use payferry_nodes::{LostNode, Member};
use sea_orm::{ColumnTrait, Condition, DbErr, QueryFilter, QueryOrder, QuerySelect};

use crate::attention::{AttentionItem, AttentionKind, Count, Found, Part, UNDELIVERED_AFTER_SECS};
use crate::chains::{self, ChainState};
use crate::decisions::query::Possible;
use crate::page::words::plain;
use crate::webhooks::{EndpointLine, WebhookBacklog, Webhooks};

/// Time without a heartbeat after which a node is listed. It is declared gone soon after.
const SILENT_AFTER_MS: i64 = 3_000;
/// Item id if no identity provider is configured.
const NOBODY: &str = "none";

/// Returns one kind that is known without the database.
pub(super) fn of(system: &System, kind: AttentionKind, part: Part<'_>) -> Found {
    let now = system.clock().real_now();
    if kind == AttentionKind::Quarantined {
        return quarantined(system, now, part);
    }
    let items: Vec<AttentionItem> = match kind {
        AttentionKind::JournalHindered => hindered(system, now).into_iter().collect(),
        AttentionKind::Invariant => invariants(now).into_iter().collect(),
        AttentionKind::Endpoint => endpoints(system, now),
        AttentionKind::Chain => without_symptoms(degraded_chains(system), part),
        AttentionKind::Settler => without_symptoms(delayed_settlers(system, now), part),
        AttentionKind::LedgerImbalance => ledger(system, now),
        AttentionKind::VaultDifference => vaults(system, now),
        AttentionKind::TransferHeld => held_transfers(system, now),
        AttentionKind::Paused => paused(system, now),
        _ => Vec::new(),
    };
    first(kind, items, part)
}

/// Leaves out the problems that only follow from a database that is known to fail.
fn without_symptoms(mut items: Vec<AttentionItem>, part: Part<'_>) -> Vec<AttentionItem> {
    // As errors of the watcher and the settler begin.
    const OF_THE_DATABASE: [&str; 3] = ["journal: ", "database: ", "the database is not available"];
    items.retain(|item| !part.is_cause_known || !OF_THE_DATABASE.iter().any(|start| item.reason.starts_with(start)));
    items
}

/// Nodes without heartbeats, nodes that were declared gone, and this node if its clock is wrong.
pub(super) async fn nodes(system: &System, part: Part<'_>) -> Result<Found, DbErr> {
    let node = system.node();
    if !node.is_shared() {
        return Ok((Count::default(), Vec::new()));
    }
    let now: Timestamp = system.clock().real_now();
    let members = node.members();
    let offset_ms = members.iter().find(|member| member.id == node.id()).map_or(0, |own| own.clock_offset_ms);
    // Heartbeats have the time of the database server.
    let server_now = now.plus_millis(-offset_ms);
    let silent = |member: &Member| {
        let seen_at = Timestamp(member.seen_at);
        let is_silent = server_now.millis_since(seen_at) > SILENT_AFTER_MS;
        is_silent.then(|| AttentionItem::new(&member.name, Some(seen_at), server_now, "it sends no heartbeats"))
    };
    let mut items: Vec<AttentionItem> = members.iter().filter_map(silent).collect();
    let lost = |LostNode { name, seen_at }: LostNode| {
        let reason = "it was declared gone, and has not started again";
        AttentionItem::new(name, Some(Timestamp(seen_at)), server_now, reason)
    };
    items.extend(node.lost().await?.into_iter().map(lost));
    if let Some(offset_ms) = node.clock_fault_ms() {
        let reason = format!("its clock is off by {offset_ms} ms, so it takes no requests");
        items.push(AttentionItem::new(node.name(), None, now, reason));
    }
    Ok(first(AttentionKind::Node, items, part))
}

/// Writes that the database or an invariant stopped.
fn invariants(now: Timestamp) -> Option<AttentionItem> {
    let stopped = violations::latest()?;
    let StoppedWrite { at, subject, reason, total } = stopped;
    let reason = format!("{reason} ({total} stopped since the start)");
    let item = AttentionItem::new(&subject, Some(at), now, reason);
    let is_payment = subject.parse::<PaymentId>().is_ok();
    Some(if is_payment { item.of_payment(&subject, None) } else { item })
}

/// Endpoints that are skipped, with the number of blocks by which they are behind.
fn endpoints(system: &System, now: Timestamp) -> Vec<AttentionItem> {
    let item = |(chain, trouble): (Chain, EndpointProblem)| {
        let EndpointProblem { index, kind, since, why, lag_blocks } = trouble;
        let lag = lag_blocks.filter(|lag| *lag > 0).map(|lag| format!(", {lag} blocks behind")).unwrap_or_default();
        let reason = format!("{}{lag}: {why}", plain(kind.as_str()));
        let id = format!("{chain} endpoint {index}");
        AttentionItem::new(id, Some(since.into()), now, reason).on_chain(chain)
    };
    system.endpoint_problems().into_iter().map(item).collect()
}

fn hindered(system: &System, now: Timestamp) -> Option<AttentionItem> {
    let CommitBlocker { since, why } = system.journal().commit_blocker()?;
    Some(AttentionItem::new("journal", Some(since), now, format!("the last groups could not be written: {why}")))
}

/// Item for a database that does not answer, with the kinds that are unknown because of it. Empty if it answers.
pub(super) fn database(system: &System, failure: Option<DbErr>, unread: &[AttentionKind]) -> Found {
    let Some(failure) = failure else { return (Count::default(), Vec::new()) };
    let kinds: Vec<_> = unread.iter().map(|kind| kind.as_str()).collect();
    let unknown = if kinds.is_empty() { String::new() } else { format!("; unknown: {}", kinds.join(", ")) };
    let now = system.clock().real_now();
    (Count::of(1), vec![AttentionItem::new("database", None, now, format!("{failure}{unknown}"))])
}

/// Up to the number of payments.
fn quarantined(system: &System, now: Timestamp, part: Part<'_>) -> Found {
    let counted = system.quarantine_counts().total() as u64;
    let after = part.after.and_then(|after| Some((after.at, after.id.parse::<Quarantinable>().ok()?)));
    let item = |QuarantinedSubject { id: of, quarantine }: QuarantinedSubject| {
        let id = of.to_string();
        let release = Possible { action: "release", path: format!("/ops/actors/{id}/release") };
        let item = AttentionItem::new(&id, Some(quarantine.since), now, quarantine.reason).with(vec![release]);
        if let Quarantinable::Actor(ActorSubject::Payment(_)) = of { item.of_payment(&id, None) } else { item }
    };
    let items = system.given_up(after, part.read_max()).into_iter().map(item);
    (Count { counted, more: false }, items.collect())
}

/// Reads a kind from the webhooks.
pub(super) fn webhooks(system: &System, kind: AttentionKind, webhooks: &Webhooks, part: Part<'_>) -> Found {
    let now = system.clock().real_now();
    let items = webhooks.endpoints.iter().filter_map(|line| {
        let mut item = match kind {
            AttentionKind::BreakerOpen => tripped(line, now),
            AttentionKind::WebhooksDelayed => delayed(line, now),
            AttentionKind::WebhooksExhausted => exhausted(line, now),
            _ => None,
        }?;
        item.psp_id = Some(line.psp_id.clone());
        Some(item)
    });
    let (total, items) = first(kind, items.collect(), part);
    (Count { more: webhooks.more && total != Count::default(), ..total }, items)
}

/// Cuts a page out of the complete list.
pub(super) fn first(kind: AttentionKind, mut items: Vec<AttentionItem>, part: Part<'_>) -> Found {
    items.retain(|item| !part.acknowledged.contains(kind, &item.position));
    let total = Count { counted: items.len() as u64, more: false };
    items.retain(|item| part.after.is_none_or(|after| item.position > *after));
    items.sort_by(|one, other| one.position.cmp(&other.position));
    items.truncate(part.read_max());
    (total, items)
}

fn ledger(system: &System, now: Timestamp) -> Vec<AttentionItem> {
    let item = |imbalance: Imbalance| {
        let Asset { chain, address } = imbalance.asset;
        let reason = imbalance.words(system.chains().spec(chain).and_then(|spec| spec.token_at(address)));
        let Imbalance { place: Where { kind, account, psp_id, subject, .. }, since, .. } = imbalance;
        let payment_id = subject.as_deref().and_then(payment_of);
        // The payment id is in a field of its own. Payouts and withdrawals have none.
        let reason = match &subject {
            Some(subject) if payment_id.is_none() => format!("{subject}: {reason}"),
            _ => reason,
        };
        let id = subject.unwrap_or_else(|| psp_id.clone());
        // One subject may have problems with several tokens, accounts and kinds of difference.
        let position = format!("{id}:{chain}:{address}:{account:?}:{kind:?}");
        let item = AttentionItem::new(id, Some(since), now, reason).at_position(since.as_millis(), position);
        AttentionItem { payment_id, psp_id: Some(psp_id), ..item }
    };
    system.ledger().imbalances.into_iter().map(item).collect()
}

fn vaults(system: &System, now: Timestamp) -> Vec<AttentionItem> {
    let item = |PersistentDifference { difference, since }: PersistentDifference| {
        let FundsPosition { owner, chain, token_address, .. } = &difference.place;
        let reason = difference.words(system.chains().spec(*chain).and_then(|spec| spec.token_at(*token_address)));
        let position = format!("{owner}:{chain}:{token_address}");
        let item = AttentionItem::new(owner.to_string(), Some(since), now, reason);
        let (payment_id, psp_id) = match owner {
            Owner::Payment { payment_id, psp_id, .. } => (Some(payment_id.clone()), Some(psp_id.clone())),
            Owner::Psp { psp_id } => (None, Some(psp_id.clone())),
            Owner::Treasury => (None, None),
        };
        AttentionItem { payment_id, psp_id, ..item.at_position(since.as_millis(), position) }
    };
    system.vaults().differences.into_iter().map(item).collect()
}

/// Payment with this subject in the ledger, if any. A transfer to a customer has another prefix there.
fn payment_of(subject: &str) -> Option<String> {
    let (prefix, rest) = subject.split_once('_')?;
    matches!(prefix, "pay" | "tr").then(|| format!("pay_{rest}"))
}

fn degraded_chains(system: &System) -> Vec<AttentionItem> {
    // Heads have the time of their chain, which the service's clock follows.
    let now: Timestamp = system.clock().now();
    let lines = chains::health(system).into_iter().filter(|chain| chain.state != ChainState::Ok);
    let item = |chain: chains::ChainHealth| {
        let since = chain.head_age_ms.map(|age| now.plus_millis(-age));
        let reason = match (chain.state, chain.trouble) {
            (ChainState::NeverRead, None) => "not read since the service started".to_owned(),
            (ChainState::NeverRead, Some(trouble)) => format!("never read: {trouble}"),
            (ChainState::Stale, Some(trouble)) => format!("no new block: {trouble}"),
            (ChainState::Stale, None) => "no new block".to_owned(),
            (_, trouble) => trouble.unwrap_or_default(),
        };
        AttentionItem::new(chain.chain.as_str(), since, now, reason)
    };
    lines.map(item).collect()
}

fn delayed_settlers(system: &System, now: Timestamp) -> Vec<AttentionItem> {
    let item = |chain: Chain| {
        let settler = system.chains().settler(chain)?;
        Some(AttentionItem::new(chain.as_str(), settler.blocked_since(), now, settler.blocked_reason()?))
    };
    system.chains().running().filter_map(|spec| item(spec.chain)).collect()
}

fn held_transfers(system: &System, now: Timestamp) -> Vec<AttentionItem> {
    let item = |held: HeldTransfer| {
        let HeldTransfer { key: TransferKey { chain, tx_hash, log_index, block_hash }, amount, .. } = held;
        let payment_id = held.payment_id.to_string();
        let position = format!("{chain}:{tx_hash}:{log_index}:{block_hash}");
        let reason = format!("transaction {tx_hash} on {chain}, for a payment of {amount}: {}", held.reason);
        let item = AttentionItem::new(&payment_id, Some(held.since), now, reason);
        item.at_position(held.since.as_millis(), position).of_payment(&payment_id, None)
    };
    system.chains().held_transfers().into_iter().map(item).collect()
}

fn paused(system: &System, now: Timestamp) -> Vec<AttentionItem> {
    let held = system.pauses().held();
    let item = |(scope, pause): (&Scope, &Pause)| {
        let psp_id = if let Scope::Psp(psp_id) = scope { Some(psp_id.to_string()) } else { None };
        AttentionItem { psp_id, ..AttentionItem::new(scope.to_string(), Some(pause.since), now, &pause.reason) }
    };
    held.iter().map(item).collect()
}

fn tripped(line: &EndpointLine, now: Timestamp) -> Option<AttentionItem> {
    let actor = line.actor.as_ref().filter(|_| line.is_tripped())?;
    let reason = match &actor.last_failure {
        Some(failure) => format!("the last failure was {failure}"),
        None => "the receiver failed".to_owned(),
    };
    Some(AttentionItem::new(&line.psp_id, line.backlog.waiting_since.map(|since| since.0), now, reason))
}

fn delayed(line: &EndpointLine, now: Timestamp) -> Option<AttentionItem> {
    let WebhookBacklog { queued, retrying, unaddressed, waiting_since, unaddressed_since, .. } = line.backlog;
    let since = waiting_since.or(unaddressed_since)?.0;
    if now.millis_since(since) < UNDELIVERED_AFTER_SECS * 1_000 {
        return None;
    }
    let waits = if waiting_since.is_some() {
        format!("{queued} queued, {retrying} waiting for a retry")
    } else {
        format!("{unaddressed} waiting")
    };
    // A reason that is not the receiver's.
    let reason = line.held_by.map_or_else(|| waits.clone(), |held_by| format!("{held_by}: {waits}"));
    Some(AttentionItem::new(&line.psp_id, Some(since), now, reason))
}

fn exhausted(line: &EndpointLine, now: Timestamp) -> Option<AttentionItem> {
    let since = line.backlog.exhausted_since?.0;
    Some(AttentionItem::new(&line.psp_id, Some(since), now, format!("{} exhausted", line.backlog.exhausted)))
}

/// The identity provider, if checks wait for it.
pub(super) async fn provider(system: &System, part: Part<'_>) -> Result<Found, DbErr> {
    let compliance = system.compliance();
    let now = system.clock().real_now();
    let item = match (compliance.provider(), compliance.outage()) {
        (Some(name), Some(outage)) => AttentionItem::new(name, Some(outage.since), now, outage.reason),
        (Some(_), None) => return Ok((Count::default(), Vec::new())),
        (None, _) => {
            let waiting = compliance.backlog().await?;
            let waiting = waiting.queued + waiting.open;
            if waiting == 0 {
                return Ok((Count::default(), Vec::new()));
            }
            AttentionItem::new(NOBODY, None, now, format!("no provider is configured and {waiting} checks are waiting"))
        }
    };
    Ok(first(AttentionKind::IdentityProvider, vec![item], part))
}

/// Checks that have waited too long for the provider.
pub(super) async fn checks_overdue(system: &System, part: Part<'_>) -> Result<Found, DbErr> {
    let (compliance, database) = (system.compliance(), system.database());
    // Rows have the service's time.
    let now = system.clock().now();
    let query = || overdue(now, compliance.config().overdue_after);
    let total = count(database, query()).await?;
    if total == 0 {
        return Ok((Count::default(), Vec::new()));
    }
    let mut rest = query().order_by_asc(checks::Column::Id);
    if let Some(after) = part.after {
        let at = after.at.as_millis();
        let beside = Condition::all().add(checks::Column::CreatedAt.eq(at)).add(checks::Column::Id.gt(&after.id));
        rest = rest.filter(Condition::any().add(checks::Column::CreatedAt.gt(at)).add(beside));
    }
    let rows: Vec<checks::Model> = rest.limit(part.read_max() as u64).all(database.reader()).await?;
    let items = rows.into_iter().map(|row| check(&compliance, row, now)).collect();
    Ok((Count::of(i64::try_from(total).unwrap_or(i64::MAX)), items))
}

fn check(compliance: &ComplianceService, row: checks::Model, now: Timestamp) -> AttentionItem {
    let provider = compliance.provider().unwrap_or(NOBODY);
    let why = row.last_error.unwrap_or_else(|| format!("status {} (provider: {provider})", row.status));
    let reason = format!("{}, {} attempts: {why}", row.purpose, row.attempts);
    let item = AttentionItem::new(row.id, Some(Timestamp(row.created_at)), now, reason);
    AttentionItem { psp_id: Some(row.psp_id), ..item }
}
