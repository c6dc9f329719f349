//! State of the chains: read position, age of the head, and settler. The page of each chain.

use std::collections::HashMap;
use std::time::Duration;

use axum::extract::Path;
use axum::response::Response;
use maud::{Markup, html};

use payferry_accounts::Moment;
use payferry_actors::System;
use payferry_actors::chain::SettlerHandle;
use payferry_actors::pauses::Scope;
use payferry_domain::{Chain, Timestamp};
use payferry_journal::chain::Role;
use payferry_runtime::observe::{ActorKind, NodeView};
use sea_orm::DbErr;
use serde::Serialize;

use crate::Operator;
use crate::actors::{page as permanent, panel as actor, tree};
use crate::page::words::{Tone, ago, badge, bounded, count, explained_head, grouped, span};
use crate::page::{Failure, NavSection, Page, PageRequest, path};
use crate::query::{Count, if_by, soon};

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum ChainState {
    /// The chain is read.
    Ok,
    /// The chain cannot be read at present, but its last head is not stale yet.
    Troubled,
    /// No new block for longer than the outage limit: the chain is not offered, and no deadline passes on it.
    Stale,
    /// The chain has not been read since the service started.
    NeverRead,
}

/// Health of a chain for payments.
#[derive(Debug, Clone, Serialize)]
pub struct ChainHealth {
    pub chain: Chain,
    pub state: ChainState,
    /// Age of the newest block, milliseconds.
    pub head_age_ms: Option<i64>,
    /// Reason why it cannot be read, if any.
    pub trouble: Option<String>,
}

/// All data of one chain.
#[derive(Debug, Clone, Serialize)]
pub struct ChainLine {
    /// Health for payments.
    #[serde(flatten)]
    pub health: ChainHealth,
    pub chain_id: u64,
    /// Newest block that an endpoint reported.
    pub head_number: Option<u64>,
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

#[derive(Debug, Clone, Serialize)]
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
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
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
            Some(_) if trouble.is_some() => ChainState::Troubled,
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
    let mut works = Works::new();
    for spec in system.chains().running() {
        let chain = spec.chain;
        let work = Work {
            queued: Some(operations(system, chain, "queued").await?),
            submitted: Some(operations(system, chain, "submitted").await?),
            mined: Some(operations(system, chain, "mined").await?),
        };
        works.insert(chain, work);
    }
    Ok(works)
}

async fn operations(system: &System, chain: Chain, status: &str) -> Result<Count, DbErr> {
    let from = "FROM operations WHERE chain = $1 AND status = $2";
    Count::rows(system.database(), from, [chain.as_str().into(), status.into()]).await
}

/// `/ops/view/chains/{chain}`: one chain.
pub(crate) async fn show(
    operator: Operator,
    Path(name): Path<String>,
    asked: PageRequest,
) -> Result<Response, Failure> {
    let system = &operator.system;
    let works = if_by(soon(), "settler work", works(system)).await;
    let chains = chains(system, works.as_ref());
    let line = chains.iter().find(|line| line.health.chain.as_str() == name);
    let line = line.ok_or_else(|| Failure::not_found("chain", name.clone()))?;
    let root = system.tree().root;
    let node = |kind| root.children.iter().find(|node| node.kind == kind && node.name == name);
    let site = ChainPage {
        line,
        watcher: node(ActorKind::Watcher),
        settler: node(ActorKind::Settler),
        now: system.clock().now(),
        real_now: system.clock().real_now(),
    };
    Ok(asked.answer(&Page::live(format!("Chain {name}"), NavSection::Overview, site.body())))
}

struct ChainPage<'a> {
    line: &'a ChainLine,
    watcher: Option<&'a NodeView>,
    settler: Option<&'a NodeView>,
    /// The service's time. Heads carry the time of their chain, which the service's clock follows; actors use the wall
    /// clock.
    now: Timestamp,
    real_now: Timestamp,
}

/// Table with a row for each chain.
pub(crate) fn panel(chains: &[ChainLine]) -> Markup {
    html! {
        section.panel aria-labelledby="chains" {
            header { h2 #chains { "Chains" } }
            @if chains.is_empty() {
                p.none { "No chain is running." }
            } @else {
                table {
                    (explained_head(&[
                        ("", "Chain", ""), ("", "State", ""), ("n wide", "Head", ""), ("n", "Age", ""),
                        ("n", "Lag", "Blocks between the head and the last block read"),
                        ("n", "To settle", "Operations without a final transaction"),
                    ]))
                    tbody {
                        @for line in chains { (row(line)) }
                    }
                }
            }
        }
    }
}

fn row(line: &ChainLine) -> Markup {
    let chain = line.health.chain.as_str();
    html! {
        tr id={ "chain-" (chain) } .bad[line.health.state != ChainState::Ok] {
            th scope="row" { a href={ (path("chains")) "/" (chain) } { (chain) } }
            td { (state(line)) }
            td.n.wide { @if let Some(number) = line.head_number { (grouped(number)) } @else { "–" } }
            td.n { (age(line.health.head_age_ms)) }
            td.n { @if let Some(lag) = line.lag_blocks { (count(lag)) } @else { "–" } }
            td.n { (in_work(line)) }
        }
        @for (index, trouble) in troubles(line).enumerate() {
            tr.more.bad id={ "trouble-" (chain) "-" (index) } { td colspan="6" { small { (trouble) } } }
        }
    }
}

/// Problems that delay the chain's work.
fn troubles(line: &ChainLine) -> impl Iterator<Item = String> {
    let reading = line.health.trouble.clone();
    let settling = line.settler.trouble.as_ref().map(|trouble| format!("settling: {trouble}"));
    reading.into_iter().chain(settling)
}

fn state(line: &ChainLine) -> Markup {
    html! {
        @match line.health.state {
            ChainState::Ok => (badge("ok", Tone::Good)),
            ChainState::Troubled => (badge("degraded", Tone::Warn)),
            ChainState::Stale => (badge("stale", Tone::Bad)),
            ChainState::NeverRead => (badge("never read", Tone::Bad)),
        }
        @if line.paused { " " (badge("paused", Tone::Warn)) }
        @if line.settler.settling_paused { " " (badge("settling paused", Tone::Warn)) }
        @if line.settler.sending_paused { " " (badge("sending paused", Tone::Warn)) }
    }
}

fn age(ms: Option<i64>) -> String {
    ms.map_or_else(|| "–".to_owned(), |ms| span(Duration::from_millis(ms.unsigned_abs())))
}

/// Operations of all chains that are queued or in progress.
pub(crate) fn to_settle(chains: &[ChainLine]) -> Markup {
    let all = |of: fn(&ChainLine) -> Option<Count>| {
        chains.iter().map(of).try_fold(Count::default(), |sum, count| Some(sum.and(count?)))
    };
    html! {
        @match (all(|line| line.settler.work.queued), all(|line| line.settler.work.under_way())) {
            (Some(queued), Some(under_way)) => { (bounded(queued)) small { (bounded(under_way)) " in progress" } },
            _ => { "–" small { "unknown" } },
        }
    }
}

fn in_work(line: &ChainLine) -> Markup {
    let work = line.settler.work;
    let under_way = work.under_way().filter(|under_way| under_way.counted > 0);
    html! { (known(work.queued)) @if let Some(under_way) = under_way { small.wide { " + " (bounded(under_way)) " in progress" } } }
}

/// A count, or a dash if the database did not return it.
fn known(number: Option<Count>) -> Markup {
    html! { @match number { Some(number) => (bounded(number)), None => "–" } }
}

impl ChainPage<'_> {
    fn body(&self) -> Markup {
        let line = self.line;
        let chain = line.health.chain.as_str();
        html! {
            p.crumbs { a href="/ops" { "Overview" } span { "chain" } }
            div.title { h1 { "Chain " (chain) } (state(line)) }
            @for trouble in troubles(line) { p.notice.bad role="alert" { (trouble) } }
            div.grid.half {
                div.col { (self.reading()) (self.books(self.watcher)) }
                div.col { (self.settling()) (self.books(self.settler)) }
            }
        }
    }

    fn reading(&self) -> Markup {
        let line = self.line;
        let number = |number: Option<u64>| number.map_or_else(|| "–".to_owned(), grouped);
        html! {
            section.panel aria-labelledby="watcher" {
                header { h2 #watcher { "Watcher" } (running(self.watcher)) p { "reads blocks" } (its_actor(self.watcher)) }
                dl.facts {
                    dt { "Chain id" } dd { (line.chain_id) }
                    dt { "Head" } dd { (number(line.head_number)) @if let Some(at) = line.head_at { small { ", " (ago(at.0, self.now)) } } }
                    dt { "Read up to" } dd { (number(line.read_number)) }
                    dt { "Lag" } dd { @if let Some(lag) = line.lag_blocks { (grouped(lag)) " blocks" } @else { "–" } }
                    dt { "Safe" } dd { (number(line.safe_number)) }
                    dt { "Finalized" } dd { (number(line.finalized_number)) }
                    dt { "Base fee" } dd { @if let Some(fee) = &line.base_fee_wei { (in_unit(fee, 1e9, "Gwei")) } @else { "–" } }
                }
            }
        }
    }

    fn settling(&self) -> Markup {
        let settler = &self.line.settler;
        let held: Vec<_> = [(settler.settling_paused, "settlements"), (settler.sending_paused, "outbound transfers")]
            .into_iter()
            .filter_map(|(is_held, what)| is_held.then_some(what))
            .collect();
        html! {
            section.panel aria-labelledby="settler" {
                header { h2 #settler { "Settler" } (running(self.settler)) p { "sends transactions" } (its_actor(self.settler)) }
                dl.facts {
                    @if !held.is_empty() {
                        dt { "Paused" } dd { span.warn-ink { "new " (held.join(" and ")) } ", see " a href=(path("pauses")) { "pauses" } }
                    }
                    dt { "Queued" } dd { (known(settler.work.queued)) " operations" }
                    dt { "Submitted" } dd { (known(settler.work.submitted)) " operations in a transaction that is not mined" }
                    dt { "Mined" } dd { (known(settler.work.mined)) " operations in a transaction that is not final" }
                    dt { "Signed" } dd { (count(settler.transactions_signed)) " transactions since the start" }
                    dt { "Gas balance" } dd #gas-money { @if let Some(held) = &settler.gas_balance_wei { (in_unit(held, 1e18, "coins")) } @else { "–" } }
                }
            }
        }
    }

    /// Figures of the actor.
    fn books(&self, node: Option<&NodeView>) -> Markup {
        html! { @if let Some(node) = node { (actor::figures(node, self.real_now)) } }
    }
}

fn running(node: Option<&NodeView>) -> Markup {
    html! { @if let Some(node) = node { (tree::state(node.state)) } }
}

/// Link to the actor's page.
fn its_actor(node: Option<&NodeView>) -> Markup {
    html! { @if let Some(node) = node { a.more href=(permanent::page(node.kind, &node.name)) { "actor" } } }
}

/// Wei in a larger unit of that many wei.
fn in_unit(wei: &str, wei_per_unit: f64, unit: &str) -> String {
    let number = wei.parse::<f64>().map(|wei| three_digits(wei / wei_per_unit));
    number.map_or_else(|_| format!("{wei} wei"), |number| format!("{number} {unit}"))
}

fn three_digits(number: f64) -> String {
    match number {
        0.0 => "0".to_owned(),
        number if number < 0.001 => format!("{number:.1e}"),
        number if number < 1.0 => format!("{number:.4}"),
        number if number < 100.0 => format!("{number:.2}"),
        number => format!("{number:.0}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn with_queued(queued: Count) -> ChainLine {
        with(Work { queued: Some(queued), submitted: Some(queued), mined: Some(Count::default()) })
    }

    fn with(work: Work) -> ChainLine {
        ChainLine {
            health: ChainHealth { chain: Chain::Base, state: ChainState::Ok, head_age_ms: Some(1_000), trouble: None },
            chain_id: Chain::Base.default_id(),
            head_number: None,
            head_at: None,
            read_number: None,
            lag_blocks: None,
            safe_number: None,
            finalized_number: None,
            base_fee_wei: None,
            paused: false,
            settler: SettlerLine {
                trouble: None,
                settling_paused: false,
                sending_paused: false,
                work,
                transactions_signed: 0,
                gas_balance_wei: None,
            },
        }
    }

    #[test]
    fn a_sum_with_a_truncated_count_shows_more_than() {
        let (many, few) = (Count { counted: 10_000, more: true }, Count { counted: 12, more: false });
        let sum = to_settle(&[with_queued(few), with_queued(many)]).into_string();
        assert_eq!(sum.matches("more than 10,012").count(), 2, "{sum}");
        assert_eq!(sum.matches("&gt; 10,012").count(), 2, "{sum}");
        let exact = to_settle(&[with_queued(few), with_queued(few)]).into_string();
        assert!(exact.contains("24") && !exact.contains("more than"), "{exact}");
        // If the count of one chain is unknown, the sum is unknown.
        let some = to_settle(&[with_queued(few), with(Work::default())]).into_string();
        assert!(some.contains("unknown") && !some.contains("12"), "{some}");
        assert_eq!(in_work(&with(Work::default())).into_string(), "–");
        // A row of the table of chains, with its details.
        assert_eq!(in_work(&with_queued(many)).into_string().matches("more than 10,000").count(), 2);
    }
}
