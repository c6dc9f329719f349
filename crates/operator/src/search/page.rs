//! `/ops/view/search`: the results, or the page of the only one.

use axum::extract::Query;
use axum::response::{IntoResponse, Redirect, Response};
use maud::{Markup, html};
use serde::Deserialize;

use crate::Operator;
use crate::page::words::{grouped, head, plain};
use crate::page::{Failure, NavSection, Page};
use crate::query::{by, soon};
use crate::search::{Hit, SEARCH_CHARS_MAX, TRANSFERS_SCANNED_MAX, search};

/// Query of the search box.
#[derive(Debug, Deserialize)]
pub(crate) struct Wanted {
    q: Option<String>,
}

pub(crate) async fn show(operator: Operator, Query(wanted): Query<Wanted>) -> Result<Response, Failure> {
    let text: String = wanted.q.unwrap_or_default().chars().take(SEARCH_CHARS_MAX).collect();
    let hits = by(soon(), search(&operator.system, &text)).await?;
    if let [only] = &hits[..] {
        return Ok(Redirect::to(&only.page).into_response());
    }
    Ok(Page::still("Search", NavSection::Overview, body(&text, &hits)).into_response())
}

fn body(text: &str, hits: &[Hit]) -> Markup {
    html! {
        div.title { h1 { "Search" } @if !text.trim().is_empty() { p { "Results for " span.mono { (text) } } } }
        section.panel aria-labelledby="results" {
            header { h2 #results { "Results" } }
            @if hits.is_empty() {
                p.none {
                    "Nothing was found. Search for an id, a transaction hash, a wallet, a sender (of the newest "
                    (grouped(TRANSFERS_SCANNED_MAX)) " transfers of each chain), a reference, a PSP, a merchant or an email."
                }
            } @else {
                table {
                    (head(&[("", "Result"), ("", "Kind"), ("", "Matches")]))
                    tbody {
                        @for hit in hits {
                            tr { th scope="row" { a.mono href=(hit.page) { (hit.id) } } td { (plain(hit.kind)) } td { (hit.because) } }
                        }
                    }
                }
            }
        }
    }
}
