//! Page of a chain, and the table of all chains on the overview.

use std::time::Duration;

use axum::extract::Path;
use axum::response::Response;
use maud::{Markup, html};
use payferry_domain::Timestamp;
use payferry_runtime::observe::{ActorKind, NodeView};

use crate::Operator;
use crate::actors::panel as actor;
use crate::chains::{self, ChainLine, ChainState};
use crate::page::words::{Tone, actor_path, ago, badge, bounded, count, explained_head, grouped, span};
use crate::page::{Failure, NavSection, Page, PageRequest, path};
use crate::query::{Count, if_by, soon};

/// `/ops/view/chains/{chain}`: one chain.
pub(crate) async fn show(
    operator: Operator,
    Path(name): Path<String>,
    request: PageRequest,
) -> Result<Response, Failure> {
    let system = &operator.system;
    let works = if_by(soon(), "settler work", chains::works(system)).await;
    let chains = chains::chains(system, works.as_ref());
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
    Ok(request.answer(&Page::live(format!("Chain {name}"), NavSection::Overview, site.body())))
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
        @for (index, problem) in problems(line).enumerate() {
            tr.more.bad id={ "trouble-" (chain) "-" (index) } { td colspan="6" { small { (problem) } } }
        }
    }
}

/// Problems that delay the chain's work.
fn problems(line: &ChainLine) -> impl Iterator<Item = String> {
    let reading = line.health.trouble.clone();
    let settling = line.settler.trouble.as_ref().map(|trouble| format!("settling: {trouble}"));
    reading.into_iter().chain(settling)
}

fn state(line: &ChainLine) -> Markup {
    html! {
        @match line.health.state {
            ChainState::Ok => (badge("ok", Tone::Good)),
            ChainState::Degraded => (badge("degraded", Tone::Warn)),
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
            @for problem in problems(line) { p.notice.bad role="alert" { (problem) } }
            div.grid.half {
                div.col { (self.reading()) @if let Some(node) = self.watcher { (actor::figures(node, self.real_now)) } }
                div.col { (self.settling()) @if let Some(node) = self.settler { (actor::figures(node, self.real_now)) } }
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
}

fn running(node: Option<&NodeView>) -> Markup {
    html! { @if let Some(node) = node { (actor::state(node.state)) } }
}

/// Link to the actor's page.
fn its_actor(node: Option<&NodeView>) -> Markup {
    html! { @if let Some(node) = node { a.more href=(actor_path(node.kind, &node.name)) { "actor" } } }
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
    use crate::chains::{ChainHealth, SettlerLine, Work};
    use payferry_domain::Chain;

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
