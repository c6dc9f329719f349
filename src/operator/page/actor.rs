//! What is measured of one actor, as a row of figures.

use maud::{Markup, html};
use payferry_actors::observe::{Figures, NodeView};
use payferry_domain::Timestamp;

use super::incidents;
use super::words::{ago, count, millis};

/// Of a permanent actor.
pub(super) fn figures(node: &NodeView, now: Timestamp) -> Markup {
    html! {
        dl.figures {
            div { dt { "Children" } dd { (count(node.children_live)) } }
            (of(&node.figures))
            div {
                dt { "Restarts" }
                dd { (count(node.restarts)) small { @if let Some(since) = node.since { "runs since " (ago(since, now)) } } }
            }
        }
        @if let Some(failure) = &node.last_failure {
            p.notice { "Last failure " (ago(failure.at, now)) ", " (incidents::cause(failure.cause)) ": " span.reason { (failure.reason) } }
        }
    }
}

/// Mailbox, messages and times.
pub(super) fn of(figures: &Figures) -> Markup {
    html! {
        div { dt { "Mailbox" } dd { (count(figures.mailbox)) } }
        div { dt { "Messages" } dd { (count(figures.messages)) } }
        div { dt { "Wait" } dd { (millis(figures.wait_ms)) small { (millis(figures.wait_ms_max)) " at most" } } }
        div { dt { "Handling" } dd { (millis(figures.handling_ms)) small { (millis(figures.handling_ms_max)) " at most" } } }
    }
}

/// Times as facts, for where there is no room for figures.
pub(super) fn times(figures: &Figures) -> Markup {
    html! {
        dt { "Wait" } dd { (millis(figures.wait_ms)) " on average, " (millis(figures.wait_ms_max)) " at most" }
        dt { "Handling" } dd { (millis(figures.handling_ms)) " on average, " (millis(figures.handling_ms_max)) " at most" }
    }
}
