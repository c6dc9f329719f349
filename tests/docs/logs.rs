//! `logs.md`: every field of the events and spans that the sources log is in its tables, and no other.

use std::collections::BTreeSet;
use std::fs;

use super::root;
use super::rust::{arguments, calls, sources};

const LEVELS: [&str; 5] =
    ["tracing::error!(", "tracing::warn!(", "tracing::info!(", "tracing::debug!(", "tracing::trace!("];
const SPAN: &str = "tracing::info_span!(";

/// Names of the fields in the arguments of a macro: `name = value`, `%name`, `?name` or `name`, in front of the message.
fn fields(call: &str) -> impl Iterator<Item = String> {
    let arguments = arguments(call).into_iter().take_while(|argument| !argument.starts_with('"'));
    arguments.map(|argument| {
        let name = argument.split_once(" = ").map_or(argument, |(name, _)| name);
        name.trim_start_matches(['%', '?']).to_owned()
    })
}

fn logged(macros: &[&str]) -> BTreeSet<String> {
    let sources = sources();
    let texts = sources.iter().map(|source| source.text.as_str());
    let bodies = texts.flat_map(|text| macros.iter().flat_map(move |name| calls(text, name))).map(|(_, body)| body);
    bodies.flat_map(|body| fields(body).collect::<Vec<_>>()).collect()
}

/// First cells of the table below a heading of the guide.
fn documented(heading: &str) -> BTreeSet<String> {
    let guide = fs::read_to_string(root().join("docs/src/operate/logs.md")).unwrap();
    let (_, section) = guide.split_once(&format!("\n## {heading}\n")).unwrap();
    let section = section.split("\n## ").next().unwrap_or_default();
    let cells = section.lines().filter_map(|line| line.strip_prefix("| ")?.split_once(" | "));
    let names = cells.flat_map(|(cell, _)| cell.split('`').skip(1).step_by(2));
    names.map(str::to_owned).collect()
}

#[test]
fn every_field_of_the_logs_is_documented() {
    let mut of_events = documented("Fields of events");
    assert!(of_events.remove("message"));
    let logged_fields = logged(&LEVELS);
    assert!(logged_fields.len() > 60 && logged_fields.contains("tx.hash"), "{logged_fields:?}");
    assert_eq!(of_events, logged_fields);
    let mut of_spans = documented("The span of a request");
    assert!(of_spans.remove("name"));
    // The first argument of a span is its name, a literal.
    let spans = sources();
    let bodies = spans.iter().flat_map(|source| calls(&source.text, SPAN));
    let fields: BTreeSet<String> =
        bodies.flat_map(|(_, body)| fields(body.split_once(',').unwrap().1).collect::<Vec<_>>()).collect();
    assert_eq!(of_spans, fields);
}
