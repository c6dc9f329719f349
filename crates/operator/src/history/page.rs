//! Plots of figures: a small one beside each figure, and a page with the last hour and the last 48 hours.

use std::collections::VecDeque;
use std::sync::Arc;

use axum::extract::Query;
use axum::response::Response;
use maud::{Markup, html};
use payferry_runtime::observe::ActorKind;
use serde::Deserialize;

use crate::Operator;
use crate::history::{COARSE_STEPS, FINE_STEPS, History, figures};
use crate::page::words::{panel, plain};
use crate::page::{Failure, NavSection, Page, PageRequest, context, path};

/// Size of a plot, in the units of its own coordinates.
const HEIGHT: f32 = 30.0;

/// Query of the page.
#[derive(Debug, Deserialize)]
pub(crate) struct Wanted {
    figure: String,
}

/// `/ops/view/history`: one figure.
pub(crate) async fn show(
    operator: Operator,
    Query(wanted): Query<Wanted>,
    request: PageRequest,
) -> Result<Response, Failure> {
    let missing = || Failure::not_found("figure", wanted.figure.clone());
    let (series, _) = operator.history.of(&wanted.figure).ok_or_else(missing)?;
    let title = title(&wanted.figure);
    let body = html! {
        p.crumbs { a href="/ops" { "Overview" } span { "history" } }
        div.title { h1 { (title) } p { "In memory, since the service started." } }
        div.col {
            (panel("hour", "Last hour", "every 10 s", &html! { div.body { (large(&series.fine, FINE_STEPS, "1 h ago")) } }))
            (panel("days", "Last 48 hours", "means of 5 minutes", &html! { div.body { (large(&series.coarse, COARSE_STEPS, "48 h ago")) } }))
        }
    };
    Ok(request.answer(&Page::live(title, NavSection::Overview, body)))
}

/// Name of a figure in words.
fn title(figure: &str) -> String {
    plain(&figure.replace('/', ", "))
}

/// Small plot of a figure's last hour, with a link to its page; nothing before its second sample.
pub(crate) fn plot(figure: &str) -> Markup {
    let history: Option<Arc<History>> = context().history;
    let series = history.and_then(|history| history.of(figure)).map(|(series, _)| series.fine);
    html! {
        @if let Some(values) = series.filter(|values| values.len() > 1) {
            a.plot href={ (path("history")) "?figure=" (encoded(figure)) } { (svg(&values, FINE_STEPS, &format!("{}, last hour", title(figure)))) }
        }
    }
}

/// The same for a figure of a permanent actor.
pub(crate) fn plot_of(kind: ActorKind, name: &str, figure: &str) -> Markup {
    plot(&format!("{}/{figure}", figures::of_actor(kind, name)))
}

fn encoded(text: &str) -> String {
    url::form_urlencoded::byte_serialize(text.as_bytes()).collect()
}

fn large(values: &VecDeque<f32>, steps: usize, oldest: &str) -> Markup {
    let (_, high) = bounds(values);
    html! {
        @if values.is_empty() { p.none { "No values yet." } } @else {
            div.large {
                span.soft { (shown(high)) }
                (svg(values, steps, oldest))
                div.axis.soft { span { "0" } span { (oldest) } span { "now" } }
            }
        }
    }
}

/// Lowest and highest value.
fn bounds(values: &VecDeque<f32>) -> (f32, f32) {
    let finite = values.iter().copied().filter(|value| value.is_finite());
    finite.fold((f32::MAX, 0.0), |(low, high), value| (low.min(value), high.max(value)))
}

fn shown(value: f32) -> String {
    if value >= 100.0 || value.fract() == 0.0 { format!("{value:.0}") } else { format!("{value:.2}") }
}

/// Lines from 0 to the highest value, the newest at the right; a gap interrupts the line.
fn svg(values: &VecDeque<f32>, steps: usize, label: &str) -> Markup {
    let (low, high) = bounds(values);
    let scale = if high > 0.0 { (HEIGHT - 2.0) / high } else { 0.0 };
    let first = steps.saturating_sub(values.len());
    let mut lines: Vec<Vec<String>> = vec![Vec::new()];
    for (place, value) in values.iter().enumerate() {
        if value.is_finite() {
            let point = format!("{},{:.1}", first + place, HEIGHT - 1.0 - value * scale);
            lines.last_mut().expect("there is one").push(point);
        } else {
            lines.push(Vec::new());
        }
    }
    let range = if low > high { "no values".to_owned() } else { format!("from {} to {}", shown(low), shown(high)) };
    html! {
        svg role="img" aria-label={ (label) ": " (range) } viewBox={ "0 0 " (steps) " " (HEIGHT) } preserveAspectRatio="none" {
            @for line in lines.iter().filter(|line| !line.is_empty()) { polyline points=(line.join(" ")) vector-effect="non-scaling-stroke"; }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_gap_interrupts_the_line_and_the_newest_value_is_at_the_right() {
        let values = VecDeque::from([0.0, 2.0, f32::NAN, 1.0]);
        let shown = svg(&values, 10, "x").into_string();
        assert!(shown.contains("points=\"6,29.0 7,1.0\"") && shown.contains("points=\"9,15.0\""), "{shown}");
        assert!(shown.contains("aria-label=\"x: from 0 to 2\""), "{shown}");
    }
}
