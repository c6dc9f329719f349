//! The book under `docs/`: pages that are generated from the sources are up to date, and links lead somewhere.
//!
//! `PAYFERRY_UPDATE_DOCS=1` writes the generated pages instead of comparing them. The sources are read as text, so that a
//! file may move between crates.
#![allow(clippy::unwrap_used, missing_docs)]

mod configuration;
mod errors;
mod events;
mod links;
mod logs;
mod metrics;
mod quotes;
mod rust;

use std::fs;
use std::path::{Path, PathBuf};

/// Columns of a line of prose.
const COLUMNS: usize = 100;

/// The folder of the workspace.
fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

/// All files below `folder` with this extension, in a stable order. Neither hidden folders nor build output.
fn files(folder: &Path, extension: &str) -> Vec<PathBuf> {
    let mut found = Vec::new();
    let Ok(entries) = fs::read_dir(folder) else { return found };
    for entry in entries {
        let path = entry.unwrap().path();
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        let is_foreign = name.starts_with('.') || name == "target" || name == "node_modules";
        if path.is_dir() && !is_foreign {
            found.extend(files(&path, extension));
        } else if path.extension().is_some_and(|of| of == extension) {
            found.push(path);
        }
    }
    found.sort();
    found
}

/// Compares the page `reference/<name>.md` with `text`, or writes it.
fn assert_page(name: &str, text: &str) {
    let page = root().join("docs/src/reference").join(name).with_extension("md");
    if std::env::var_os("PAYFERRY_UPDATE_DOCS").is_some() {
        return fs::write(&page, text).unwrap();
    }
    let committed = fs::read_to_string(&page).unwrap_or_default();
    let first_difference = committed.lines().zip(text.lines()).find(|(old, new)| old != new);
    assert!(
        committed == text,
        "{} is out of date, first at {first_difference:?}; run \
         `PAYFERRY_UPDATE_DOCS=1 cargo nextest run -p payferry docs::` and commit the page",
        page.display()
    );
}

/// The head of a generated page.
fn head(title: &str, source: &str, text: &str) -> String {
    let how = "../develop/checks.md#generated-reference-pages";
    format!("# {title}\n\nGenerated from {source} ([how]({how})); do not edit.\n\n{}\n", wrapped(text))
}

/// `text` in lines of at most [`COLUMNS`].
fn wrapped(text: &str) -> String {
    let mut lines = vec![String::new()];
    for word in text.split_whitespace() {
        let line = lines.last_mut().unwrap();
        if line.is_empty() {
            line.push_str(word);
        } else if line.chars().count() + 1 + word.chars().count() > COLUMNS {
            lines.push(word.to_owned());
        } else {
            line.push(' ');
            line.push_str(word);
        }
    }
    lines.join("\n")
}

/// One row of a table.
fn row(cells: &[&str]) -> String {
    let cells: Vec<String> = cells.iter().map(|cell| cell.replace('|', "\\|")).collect();
    format!("| {} |\n", cells.join(" | "))
}

/// A capital letter at the start, and a full stop at the end.
fn sentence(text: &str) -> String {
    let text = text.trim();
    let mut letters = text.chars();
    let first = letters.next().map(char::to_uppercase).into_iter().flatten();
    let mut sentence: String = first.chain(letters).collect();
    if !sentence.is_empty() && !sentence.ends_with(['.', '?', '!']) {
        sentence.push('.');
    }
    sentence
}
