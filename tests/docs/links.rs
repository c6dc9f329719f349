//! Relative links of the book and of the pages beside the README lead to a file, and to a heading in it.

use std::fs;
use std::path::{Path, PathBuf};

use super::{files, root};

/// The anchor of a heading, as Git hosts and mdBook make it.
fn anchor(heading: &str) -> String {
    let kept = heading.trim().to_lowercase();
    let kept = kept.chars().filter(|letter| letter.is_alphanumeric() || matches!(letter, ' ' | '-' | '_'));
    kept.map(|letter| if letter == ' ' { '-' } else { letter }).collect()
}

fn has_heading(page: &Path, wanted: &str) -> bool {
    let text = fs::read_to_string(page).unwrap();
    text.lines().filter(|line| line.starts_with('#')).any(|line| anchor(line.trim_start_matches('#')) == wanted)
}

/// The targets of all links outside of code blocks.
fn targets(text: &str) -> Vec<String> {
    let (mut found, mut is_code) = (Vec::new(), false);
    for line in text.lines() {
        if line.trim_start().starts_with("```") {
            is_code = !is_code;
        }
        if !is_code {
            let links = line.split("](").skip(1).filter_map(|rest| rest.split_once(')'));
            found.extend(links.map(|(target, _)| target.to_owned()));
        }
    }
    found
}

#[test]
fn links_lead_to_pages_and_headings() {
    let mut pages = files(&root().join("docs/src"), "md");
    pages.extend(["README.md", "CHANGELOG.md", "CONTRIBUTING.md", "SECURITY.md"].map(|name| root().join(name)));
    let mut broken = Vec::new();
    for page in &pages {
        for target in targets(&fs::read_to_string(page).unwrap()) {
            if target.contains("://") {
                continue;
            }
            let (file, heading) = target.split_once('#').unwrap_or((&target, ""));
            let linked = if file.is_empty() { page.clone() } else { page.parent().unwrap().join(file) };
            if !linked.exists() || (!heading.is_empty() && !has_heading(&linked, heading)) {
                broken.push(format!("{}: {target}", page.display()));
            }
        }
    }
    assert!(broken.is_empty(), "broken links:\n{}", broken.join("\n"));
}

#[test]
fn summary_lists_every_page() {
    let source = root().join("docs/src");
    let summary = fs::read_to_string(source.join("SUMMARY.md")).unwrap();
    let listed: Vec<PathBuf> = targets(&summary).iter().map(|target| source.join(target)).collect();
    let missing: Vec<PathBuf> = files(&source, "md")
        .into_iter()
        .filter(|page| !page.ends_with("SUMMARY.md") && !listed.contains(page))
        .collect();
    assert!(missing.is_empty(), "not in SUMMARY.md: {missing:?}");
}
