//! Texts of the log and of the operator's pages that the runbooks quote are those of the sources.

use std::fs;

use super::rust::sources;
use super::{files, root};

/// Phrases in double quotes, outside of code. A runbook writes `...` or `N` for a value.
fn quotes(page: &str) -> Vec<String> {
    let (mut found, mut is_code) = (Vec::new(), false);
    for paragraph in page.split("\n\n") {
        is_code ^= paragraph.matches("```").count() % 2 == 1;
        if is_code || paragraph.contains("```") {
            continue;
        }
        let prose: Vec<&str> = paragraph.split('`').step_by(2).collect();
        let prose = prose.join(" ").split_whitespace().collect::<Vec<_>>().join(" ");
        let quoted = prose.split('"').skip(1).step_by(2).filter(|quote| quote.contains(' '));
        found.extend(quoted.map(str::to_owned));
    }
    found
}

/// Returns true if the line contains all parts of the quote, in their order.
fn has(line: &str, quote: &str) -> bool {
    let marked = format!(" {quote} ").replace(" N ", "...").replace(" N,", "...,");
    let mut rest = line;
    marked.split("...").all(|part| {
        let part = part.trim();
        let Some(at) = rest.find(part) else { return false };
        rest = &rest[at + part.len()..];
        true
    })
}

#[test]
fn runbooks_quote_texts_that_exist() {
    let sources = sources();
    // A literal that continues on the next line becomes one line.
    let joined: Vec<String> = sources
        .iter()
        .map(|source| source.text.split("\\\n").map(str::trim_start).collect::<Vec<_>>().concat())
        .collect();
    let mut pages = files(&root().join("docs/src/operate/runbooks"), "md");
    pages.extend(["alerts.md", "backup.md"].map(|page| root().join("docs/src/operate").join(page)));
    let mut checked = 0;
    for page in pages {
        for quote in quotes(&fs::read_to_string(&page).unwrap()) {
            let exists = joined.iter().any(|text| text.lines().any(|line| has(line, &quote)));
            assert!(exists, "{}: no text of the sources is \"{quote}\"", page.display());
            checked += 1;
        }
    }
    assert!(checked >= 10, "{checked} quotes");
}
