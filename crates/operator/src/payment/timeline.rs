//! Readable history of a payment: each commit with its events.

use maud::{Markup, html};
use payferry_domain::Timestamp;
use payferry_domain::payment::{Decision, Event, TransferKey};

use crate::page::words::{Tone, badge, clock, moment, plain, short, span};

/// One commit.
pub(super) struct Step<'a> {
    /// Version of the payment after the commit.
    pub(super) version: u32,
    /// Time of the commit.
    pub(super) at: Timestamp,
    /// Events of the commit. Empty if a newer version of the service wrote it.
    pub(super) events: &'a [Event],
}

/// One line of the history.
struct TimelineEntry {
    tone: Tone,
    headline: Markup,
    /// Details.
    detail: Option<Markup>,
}

/// The history, oldest first.
pub(super) fn panel(steps: &[Step<'_>], now: Timestamp) -> Markup {
    html! {
        section.panel aria-labelledby="history" {
            header { h2 #history { "History" } p { "service clock, UTC" } }
            ol.line {
                @for step in steps { (entry(step, now)) }
            }
        }
    }
}

fn entry(step: &Step<'_>, now: Timestamp) -> Markup {
    let entries: Vec<TimelineEntry> = step.events.iter().map(entry_of).collect();
    let tone = entries.iter().map(|entry| entry.tone).max().unwrap_or(Tone::Idle);
    html! {
        li id={ "version-" (step.version) } class=(tone.as_str()) {
            @for (index, entry) in entries.iter().enumerate() {
                div.head {
                    span { (entry.headline) }
                    @if index == 0 { span.at { (clock(step.at, now)) " " small { "v" (step.version) } } }
                }
                @if let Some(detail) = &entry.detail { ul { li { (detail) } } }
            }
            @if entries.is_empty() {
                div.head { span { "Event unknown to this version of the service" } span.at { (clock(step.at, now)) } }
            }
        }
    }
}

fn entry_of(event: &Event) -> TimelineEntry {
    let said = |tone, headline: Markup| TimelineEntry { tone, headline, detail: None };
    let with = |tone, headline: Markup, detail: Markup| TimelineEntry { tone, headline, detail: Some(detail) };
    match event {
        Event::Initiated { terms, expires_at } => with(
            Tone::Idle,
            html! { strong { "Initiated" } " for " (terms.amount) " " (terms.token) " on " (terms.chain) },
            html! { "payable until " (moment(*expires_at, &expires_at.to_string())) },
        ),
        Event::TransferRecorded { transfer, remine_until } => with(
            if remine_until.is_some() { Tone::Warn } else { Tone::Idle },
            html! { "Transfer of " (transfer.amount) " " (transfer.status) ", in block " (transfer.block.number) },
            html! {
                (tx(transfer.key)) " from " (short(&transfer.from.to_string()))
                @if let Some(until) = remine_until { ", waiting to be mined again until " (moment(*until, &until.to_string())) }
            },
        ),
        Event::TransferFinalised { key } => with(Tone::Idle, html! { "Transfer final" }, tx(*key)),
        Event::TransferScreened { key, verdict } => with(
            match verdict.decision {
                Decision::Allow => Tone::Idle,
                Decision::Review => Tone::Warn,
                Decision::Block => Tone::Bad,
            },
            html! { "Transfer screened: " strong { (verdict.decision) } },
            html! {
                (tx(*key)) " by " (verdict.provider)
                @if let Some(level) = &verdict.risk_level { ", risk " (level) }
                @if !verdict.flags.is_empty() { ", " (verdict.flags.join(", ")) }
            },
        ),
        Event::RefundScreened { refund_id, verdict } => with(
            match verdict.decision {
                Decision::Allow => Tone::Idle,
                Decision::Review => Tone::Warn,
                Decision::Block => Tone::Bad,
            },
            html! { "Refund address screened: " strong { (verdict.decision) } },
            html! { span.mono { (refund_id) } " by " (verdict.provider) },
        ),
        Event::TransferCounted { key, excess, .. } => {
            with(Tone::Idle, html! { "Transfer counted" @if *excess { " as excess" } }, tx(*key))
        }
        Event::Reorged { key, reopened, .. } => {
            with(Tone::Bad, html! { "Transfer reorged" @if *reopened { "; the payment is pending again" } }, tx(*key))
        }
        Event::DeadlinePassed { chain_time } => with(
            Tone::Idle,
            html! { "Deadline passed" },
            html! { "block time " (moment(*chain_time, &chain_time.to_string())) },
        ),
        Event::DeadlineMoved { from, to, expires_at, .. } => with(
            Tone::Warn,
            html! { "Deadline extended to " (moment(*expires_at, &expires_at.to_string())) },
            html! { "the chain produced no block for " (between(*from, *to)) },
        ),
        Event::Confirmed { amount, psp_amount, treasury_fee, reason, .. } => with(
            Tone::Good,
            html! { (badge("confirmed", Tone::Idle)) " for " (amount) ", " (plain(reason.as_str())) },
            html! { (psp_amount) " for the PSP, " (treasury_fee) " for the treasury" },
        ),
        Event::Mismatched { reason, .. } => {
            said(Tone::Warn, html! { (badge("mismatched", Tone::Warn)) " " (plain(reason.as_str())) })
        }
        Event::Failed { reason, .. } => {
            said(Tone::Bad, html! { (badge("failed", Tone::Bad)) " " (plain(reason.as_str())) })
        }
        Event::SettlementCompleted { tx_hash, .. } => {
            with(Tone::Idle, html! { "Settlement final" }, html! { (short(&tx_hash.to_string())) })
        }
        Event::Settled { .. } => said(Tone::Good, html! { (badge("settled", Tone::Good)) }),
        Event::SettlementFailed { reason, retry_at, .. } => with(
            Tone::Bad,
            html! { "Settlement failed" },
            html! { (reason) "; next attempt at " (moment(*retry_at, &retry_at.to_string())) },
        ),
        Event::SettlementRetried { by } => said(Tone::Idle, html! { "Settlement retry requested by the " (by) }),
        Event::SettlementOrphaned { was_settled, .. } => {
            said(Tone::Bad, html! { "Settlement reorged" @if *was_settled { ", after it was final by its tier" } })
        }
        Event::RefundRequested { refund, withdraws_settlement } => with(
            Tone::Idle,
            html! { "Refund of " (refund.amount) " accepted, requested by the " (refund.requested_by) },
            html! { "to " (short(&refund.to.to_string())) @if *withdraws_settlement { "; replaces the settlement" } },
        ),
        Event::RefundSent { tx_hash, .. } => {
            with(Tone::Idle, html! { "Refund sent" }, html! { (short(&tx_hash.to_string())) })
        }
        Event::RefundFailed { reason, .. } => with(Tone::Bad, html! { "Refund failed" }, html! { (reason) }),
    }
}

fn tx(key: TransferKey) -> Markup {
    html! { (short(&key.tx_hash.to_string())) " log " (key.log_index) }
}

fn between(from: Timestamp, to: Timestamp) -> String {
    span(std::time::Duration::from_millis(to.millis_since(from).unsigned_abs()))
}
