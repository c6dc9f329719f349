//! `configuration.md`: every key of the embedded defaults, with its default and its comment.

use std::collections::HashMap;
use std::fs;

use super::{assert_page, files, head, root, row, wrapped};

const TEXT: &str = "A configuration file needs only the keys that it changes. `PAYFERRY_SERVER__LISTEN` in the \
                    environment sets `listen` of `[server]`. See [Configure](../operate/configure.md).";

struct Section {
    name: String,
    comment: String,
    keys: Vec<Key>,
}

struct Key {
    name: String,
    default: String,
    comment: String,
}

/// The comment so far.
fn taken(comment: &mut String) -> String {
    std::mem::take(comment).trim_end().to_owned()
}

/// The sections of the file. A comment belongs to the key or the section after it.
fn sections(text: &str) -> Vec<Section> {
    let (mut sections, mut comment) = (Vec::<Section>::new(), String::new());
    for line in text.lines() {
        if let Some(more) = line.strip_prefix('#') {
            comment.push_str(more.trim());
            comment.push(' ');
        } else if let Some(name) = line.strip_prefix('[').and_then(|rest| rest.strip_suffix(']')) {
            sections.push(Section { name: name.to_owned(), comment: taken(&mut comment), keys: Vec::new() });
        } else if let Some((name, default)) = line.split_once(" = ") {
            let key = Key { name: name.to_owned(), default: default.to_owned(), comment: taken(&mut comment) };
            sections.last_mut().unwrap().keys.push(key);
        } else {
            // A comment that an empty line follows is about the whole file.
            comment.clear();
        }
    }
    sections
}

fn render(sections: &[Section]) -> String {
    let mut page = head("Configuration", "`default.toml`", TEXT);
    // Sections of one parent, such as the chains, have the same keys; the first one describes them.
    let mut described: HashMap<&str, &Section> = HashMap::new();
    for section in sections {
        let parent = section.name.split('.').next().unwrap();
        let first = *described.entry(parent).or_insert(section);
        let is_first = first.name == section.name;
        let default_of =
            |name: &str| first.keys.iter().find(|other| other.name == name).expect("the first has every key");
        let differing: Vec<&Key> =
            section.keys.iter().filter(|key| is_first || key.default != default_of(&key.name).default).collect();
        let text = match (is_first, differing.is_empty()) {
            (true, _) => section.comment.clone(),
            (false, true) => format!("{} The same keys and defaults as in `[{}]`.", section.comment, first.name),
            (false, false) => format!("The same keys as in `[{}]`. These defaults differ:", first.name),
        };
        page.push_str(format!("\n## `[{}]`\n\n{}", section.name, wrapped(&text)).trim_end());
        page.push('\n');
        if differing.is_empty() {
            continue;
        }
        page.push_str("\n| Key | Default | Description |\n|---|---|---|\n");
        for key in differing {
            let comment = if key.comment.is_empty() { &default_of(&key.name).comment } else { &key.comment };
            assert!(!comment.is_empty(), "{}.{} needs a comment", section.name, key.name);
            page.push_str(&row(&[&format!("`{}`", key.name), &format!("`{}`", key.default), comment]));
        }
    }
    page
}

#[test]
fn configuration_page_is_up_to_date() {
    let defaults = files(root(), "toml").into_iter().filter(|file| file.ends_with("config/default.toml"));
    let defaults: Vec<_> = defaults.collect();
    assert_eq!(defaults.len(), 1, "{defaults:?}");
    let sections = sections(&fs::read_to_string(&defaults[0]).unwrap());
    let keys: usize = sections.iter().map(|section| section.keys.len()).sum();
    assert!(sections.len() >= 15 && keys >= 100, "{} sections, {keys} keys", sections.len());
    assert_page("configuration", &render(&sections));
}
