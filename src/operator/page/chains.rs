//! The chains: how far each was read, and how its settler gets on.

use std::time::Duration;

use axum::extract::{Path, State};
use axum::response::Response;
use maud::{Markup, html};
use payferry_domain::Timestamp;

use super::failure::Failure;
use super::path;
use super::shell::{Asked, Page, Place};
use super::words::{Tone, ago, badge, count, grouped, span};
use crate::operator::Operator;
use crate::operator::read::Count;
use crate::operator::read::chains::{self, ChainLine, ChainState};

/// `/ops/view/chains/{chain}`: one chain.
pub(super) async fn show(
    State(operator): State<Operator>,
    Path(name): Path<String>,
    asked: Asked,
) -> Result<Response, Failure> {
    let chains = chains::chains(&operator.system).await?;
    let line = chains.iter().find(|line| line.health.chain.as_str() == name);
    let line = line.ok_or_else(|| Failure::not_found("chain", name.clone()))?;
    let now = operator.system.clock().now();
    Ok(asked.answer(&Page::live(format!("Chain {name}"), Place::Overview, body(line, now))))
}

/// One row a chain.
pub(super) fn panel(chains: &[ChainLine]) -> Markup {
    html! {
        section.panel aria-labelledby="chains" {
            header { h2 #chains { "Chains" } }
            @if chains.is_empty() {
                p.none { "No chain runs here." }
            } @else {
                table {
                    thead {
                        tr {
                            th scope="col" { "Chain" }
                            th scope="col" { "State" }
                            th.n.wide scope="col" { "Head" }
                            th.n scope="col" { "Age" }
                            th.n scope="col" title="Blocks between the head and the last one read" { "Lag" }
                            th.n scope="col" title="Operations that wait for a transaction, or for one to be final" { "To settle" }
                        }
                    }
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
            td.n.wide { @if let Some(number) = line.head_number { (grouped(number.into())) } @else { "–" } }
            td.n { (age(line.health.head_age_ms)) }
            td.n { @if let Some(lag) = line.lag_blocks { (count(lag)) } @else { "–" } }
            td.n { (in_work(line)) }
        }
        @for (index, trouble) in troubles(line).enumerate() {
            tr.more.bad id={ "trouble-" (chain) "-" (index) } { td colspan="6" { small { (trouble) } } }
        }
    }
}

/// Everything that keeps a chain from its work, in words.
fn troubles(line: &ChainLine) -> impl Iterator<Item = String> {
    let reading = line.health.trouble.clone();
    let settling = line.settler.trouble.as_ref().map(|trouble| format!("settling: {trouble}"));
    reading.into_iter().chain(settling)
}

fn state(line: &ChainLine) -> Markup {
    html! {
        @match line.health.state {
            ChainState::Ok => (badge("read", Tone::Good)),
            ChainState::Troubled => (badge("troubled", Tone::Warn)),
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

/// What waits on all chains together, and what is under way there.
pub(super) fn to_settle(chains: &[ChainLine]) -> Markup {
    let all = |of: fn(&ChainLine) -> Count| chains.iter().map(of).fold(Count::default(), Count::and);
    let under_way = all(|line| line.settler.submitted.and(line.settler.mined));
    html! { (bounded(all(|line| line.settler.queued))) small { (bounded(under_way)) " under way" } }
}

fn in_work(line: &ChainLine) -> Markup {
    let settler = &line.settler;
    let under_way = settler.submitted.and(settler.mined);
    html! { (bounded(settler.queued)) @if under_way.counted > 0 { small.wide { " + " (bounded(under_way)) " under way" } } }
}

/// A count that ended at its bound says so.
pub(super) fn bounded(number: Count) -> Markup {
    html! {
        @if number.more {
            span title={ "more than " (grouped(number.counted.into())) } { "> " (grouped(number.counted.into())) }
        } @else {
            (count(number.counted))
        }
    }
}

/// The page of one chain.
fn body(line: &ChainLine, now: Timestamp) -> Markup {
    let chain = line.health.chain.as_str();
    let number = |number: Option<u64>| number.map_or_else(|| "–".to_owned(), |number| grouped(number.into()));
    html! {
        p.crumbs { a href="/ops" { "Overview" } span { "chain" } }
        div.title { h1 { "Chain " (chain) } (state(line)) }
        @for trouble in troubles(line) { p.notice.bad role="alert" { (trouble) } }
        div.grid.half {
            section.panel aria-labelledby="watcher" {
                header { h2 #watcher { "Watcher" } p { "reads the chain" } }
                dl.facts {
                    dt { "Chain id" } dd { (line.chain_id) }
                    dt { "Head" } dd { (number(line.head_number)) @if let Some(at) = line.head_at { small { ", " (ago(at.0, now)) } } }
                    dt { "Read up to" } dd { (number(line.read_number)) }
                    dt { "Lag" } dd { @if let Some(lag) = line.lag_blocks { (grouped(lag.into())) " blocks" } @else { "–" } }
                    dt { "Safe" } dd { (number(line.safe_number)) }
                    dt { "Finalized" } dd { (number(line.finalized_number)) }
                    dt { "Base fee" } dd { @if let Some(fee) = &line.base_fee_wei { (gwei(fee)) } @else { "–" } }
                }
            }
            section.panel aria-labelledby="settler" {
                header { h2 #settler { "Settler" } p { "moves the money" } }
                dl.facts {
                    dt { "Waiting" } dd { (bounded(line.settler.queued)) " operations" }
                    dt { "Sent" } dd { (bounded(line.settler.submitted)) " in a transaction that is not mined" }
                    dt { "Mined" } dd { (bounded(line.settler.mined)) " in a transaction that is not final" }
                    dt { "Signed" } dd { (count(line.settler.transactions_signed)) " transactions since the start" }
                    dt { "Gas money" } dd #gas-money { @if let Some(held) = &line.settler.gas_balance_wei { (coins(held)) } @else { "–" } }
                }
            }
        }
    }
}

/// Wei per gas as Gwei.
fn gwei(wei: &str) -> String {
    const WEI: f64 = 1e9;
    wei.parse::<f64>().map_or_else(|_| format!("{wei} wei"), |wei| format!("{} Gwei", three_digits(wei / WEI)))
}

/// Wei as coins of the chain's own.
fn coins(wei: &str) -> String {
    const WEI: f64 = 1e18;
    wei.parse::<f64>().map_or_else(|_| format!("{wei} wei"), |wei| format!("{} coins", three_digits(wei / WEI)))
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
    use payferry_domain::Chain;

    use super::*;
    use crate::operator::read::chains::{ChainHealth, SettlerLine};

    fn with_queued(queued: Count) -> ChainLine {
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
                queued,
                submitted: queued,
                mined: Count::default(),
                transactions_signed: 0,
                gas_balance_wei: None,
            },
        }
    }

    #[test]
    fn what_was_not_counted_to_its_end_is_more_than_that_also_in_sum() {
        let (many, few) = (Count { counted: 10_000, more: true }, Count { counted: 12, more: false });
        let sum = to_settle(&[with_queued(few), with_queued(many)]).into_string();
        assert_eq!(sum.matches("more than 10,012").count(), 2, "{sum}");
        assert_eq!(sum.matches("&gt; 10,012").count(), 2, "{sum}");
        let exact = to_settle(&[with_queued(few), with_queued(few)]).into_string();
        assert!(exact.contains("24") && !exact.contains("more than"), "{exact}");
        // A row of the table of chains, and its small print.
        assert_eq!(in_work(&with_queued(many)).into_string().matches("more than 10,000").count(), 2);
    }
}
