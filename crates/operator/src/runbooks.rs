//! Pages with the runbooks of the documentation, so that they are at hand while something is wrong.

use std::sync::LazyLock;

use axum::extract::Path;
use axum::response::{IntoResponse, Response};
use maud::{Markup, PreEscaped, html};
use pulldown_cmark::{CowStr, Event, Options, Parser, Tag, TagEnd};

use crate::page::{Failure, NavSection, Page, path};

/// The documents, by name.
const RUNBOOKS: [(&str, &str); 9] = [
    ("payments", include_str!("../../../docs/src/operate/runbooks/payments.md")),
    ("journal", include_str!("../../../docs/src/operate/runbooks/journal.md")),
    ("chains", include_str!("../../../docs/src/operate/runbooks/chains.md")),
    ("settlement", include_str!("../../../docs/src/operate/runbooks/settlement.md")),
    ("webhooks", include_str!("../../../docs/src/operate/runbooks/webhooks.md")),
    ("screening", include_str!("../../../docs/src/operate/runbooks/screening.md")),
    ("identity", include_str!("../../../docs/src/operate/runbooks/identity.md")),
    ("ledger", include_str!("../../../docs/src/operate/runbooks/ledger.md")),
    ("process", include_str!("../../../docs/src/operate/runbooks/process.md")),
];

/// The page about the functions that the commands use.
const INTRODUCTION: &str = include_str!("../../../docs/src/operate/runbooks/README.md");

static RENDERED: LazyLock<Vec<(&str, String)>> =
    LazyLock::new(|| RUNBOOKS.iter().map(|(name, text)| (*name, rendered(text))).collect());

/// Path of a runbook: `name#heading`.
pub(crate) fn path_of(runbook: &str) -> String {
    format!("{}/{runbook}", path("runbooks"))
}

/// `/ops/view/runbooks`: how to use them, with a link to each.
pub(crate) async fn list() -> Response {
    let body = html! {
        p.crumbs { a href="/ops" { "Overview" } span { "runbooks" } }
        section.panel aria-label="Runbooks" { div.body.doc { (PreEscaped(rendered(INTRODUCTION))) } }
    };
    Page::still("Runbooks", NavSection::Attention, body).into_response()
}

/// `/ops/view/runbooks/{name}`.
pub(crate) async fn show(Path(name): Path<String>) -> Result<Response, Failure> {
    let book = RENDERED.iter().find(|(known, _)| *known == name);
    let (_, book) = book.ok_or_else(|| Failure::not_found("runbook", name.clone()))?;
    Ok(Page::still(format!("Runbook: {name}"), NavSection::Attention, body(&name, book)).into_response())
}

fn body(name: &str, book: &str) -> Markup {
    html! {
        p.crumbs { a href=(path("stuck")) { "Needs attention" } a href=(path("runbooks")) { "runbooks" } span { (name) } }
        section.panel aria-label={ "Runbook " (name) } { div.body.doc { (PreEscaped(book)) } }
    }
}

/// HTML of a document. Headings have the ids that links expect; links to other documents than runbooks become text.
fn rendered(text: &str) -> String {
    let mut events: Vec<Event<'_>> = Parser::new_ext(text, Options::ENABLE_TABLES).collect();
    let mut is_dropped = false;
    for place in 0..events.len() {
        let id = match &events[place] {
            Event::Start(Tag::Heading { .. }) => Some(slug(&events[place..])),
            _ => None,
        };
        match &mut events[place] {
            Event::Start(Tag::Heading { id: own, .. }) => *own = id.map(CowStr::from),
            Event::Start(Tag::Link { dest_url, .. }) => {
                if let Some(target) = target(dest_url) {
                    *dest_url = target.into();
                } else {
                    is_dropped = true;
                    events[place] = Event::Text("".into());
                }
            }
            Event::End(TagEnd::Link) if is_dropped => {
                is_dropped = false;
                events[place] = Event::Text("".into());
            }
            // The documents are ours and contain no HTML.
            Event::Html(_) | Event::InlineHtml(_) => events[place] = Event::Text("".into()),
            _ => {}
        }
    }
    let mut html = String::new();
    pulldown_cmark::html::push_html(&mut html, events.into_iter());
    html
}

/// Id of the heading with which these events begin: its letters and digits in lower case, with hyphens for spaces.
fn slug(events: &[Event<'_>]) -> String {
    let of_heading = events.iter().take_while(|event| !matches!(event, Event::End(TagEnd::Heading(_))));
    let text: String = of_heading
        .filter_map(|event| match event {
            Event::Text(text) | Event::Code(text) => Some(text.as_ref()),
            _ => None,
        })
        .collect();
    let letters = text
        .to_lowercase()
        .chars()
        .filter(|letter| letter.is_alphanumeric() || " -_".contains(*letter))
        .collect::<String>();
    letters.replace(' ', "-")
}

/// Path of a link between runbooks. `None` for other documents, which this listener does not have.
fn target(link: &str) -> Option<String> {
    if link.starts_with('#') {
        return Some(link.to_owned());
    }
    let (file, heading) =
        link.split_once('#').map_or((link, String::new()), |(file, heading)| (file, format!("#{heading}")));
    let name = file.strip_suffix(".md")?;
    RUNBOOKS.iter().any(|(known, _)| *known == name).then(|| path_of(&format!("{name}{heading}")))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::attention::AttentionKind;

    #[test]
    fn every_kind_of_entry_has_a_runbook_with_its_heading() {
        for kind in AttentionKind::ALL {
            let (name, heading) = kind.runbook().split_once('#').unwrap();
            let book = RENDERED.iter().find(|(known, _)| *known == name).unwrap();
            assert!(book.1.contains(&format!("id=\"{heading}\"")), "{kind}: {}", kind.runbook());
        }
    }

    #[test]
    fn links_between_runbooks_stay_and_others_become_text() {
        let text =
            "## Chain `base` is away\n\nSee [the journal](journal.md#queue) and [alerts](../alerts.md) & [here](#top).";
        assert_eq!(
            rendered(text),
            "<h2 id=\"chain-base-is-away\">Chain <code>base</code> is away</h2>\n<p>See <a \
             href=\"/ops/view/runbooks/journal#queue\">the journal</a> and alerts &amp; <a href=\"#top\">here</a>.</p>\n"
        );
    }
}
