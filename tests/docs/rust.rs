//! Reads Rust sources as text: enough of the language to find literals, enums and macro calls.

use std::fs;
use std::path::PathBuf;

use super::{files, root};

/// Folders of the workspace whose sources the pages describe.
const FOLDERS: [&str; 6] = ["src", "actors", "domain", "crates", "entities", "contracts/src"];

/// A source file, without its unit tests.
pub(super) struct Source {
    pub(super) path: PathBuf,
    pub(super) text: String,
}

/// The sources of the service.
pub(super) fn sources() -> Vec<Source> {
    let paths = FOLDERS.iter().flat_map(|folder| files(&root().join(folder), "rs"));
    let is_test = |path: &PathBuf| {
        let path = path.strip_prefix(root()).unwrap();
        path.components().any(|part| part.as_os_str() == "tests") || path.ends_with("tests.rs")
    };
    let read = |path: PathBuf| {
        let text = fs::read_to_string(&path).unwrap();
        let end = text.find("\nmod tests {").map_or(text.len(), |at| text[..at].rfind("#[cfg(test)]").unwrap_or(at));
        Source { path, text: text[..end].to_owned() }
    };
    paths.filter(|path| !is_test(path)).map(read).collect()
}

/// The string literal at the start of `text`, and its length there.
pub(super) fn literal(text: &str) -> Option<(String, usize)> {
    let mut letters = text.char_indices().peekable();
    if letters.next()?.1 != '"' {
        return None;
    }
    let mut value = String::new();
    while let Some((at, letter)) = letters.next() {
        match letter {
            '"' => return Some((value, at + 1)),
            '\\' => match letters.next()?.1 {
                // A continued line: the indentation of the next one is no part of the text.
                '\n' => while letters.next_if(|(_, next)| next.is_whitespace()).is_some() {},
                'n' => value.push(' '),
                other => value.push(other),
            },
            other => value.push(other),
        }
    }
    None
}

/// The arguments of a call; `text` begins behind its opening parenthesis.
pub(super) fn arguments(text: &str) -> Vec<&str> {
    let (mut found, mut depth, mut start, mut at) = (Vec::new(), 0_usize, 0, 0);
    while let Some(letter) = text[at..].chars().next() {
        match letter {
            '"' => {
                at += literal(&text[at..]).map_or(1, |(_, length)| length);
                continue;
            }
            '(' | '[' | '{' => depth += 1,
            ')' | ']' | '}' if depth == 0 => {
                found.push(text[start..at].trim());
                break;
            }
            ')' | ']' | '}' => depth -= 1,
            ',' if depth == 0 => {
                found.push(text[start..at].trim());
                start = at + 1;
            }
            _ => {}
        }
        at += letter.len_utf8();
    }
    found.retain(|argument| !argument.is_empty());
    found
}

/// The text of each call of `name`, from behind its opening parenthesis, with its position. `name` ends with `(`.
pub(super) fn calls<'a>(text: &'a str, name: &str) -> Vec<(usize, &'a str)> {
    let is_whole = |at: usize| !text[..at].ends_with(|before: char| before.is_alphanumeric() || before == '_');
    text.match_indices(name).filter(|(at, _)| is_whole(*at)).map(|(at, _)| (at, &text[at + name.len()..])).collect()
}

/// The first string literal of an expression such as `"x".to_owned()` or `format!("x {y}")`, with interpolated values as `…`.
pub(super) fn message(expression: &str) -> Option<String> {
    let expression = expression.strip_prefix("format!(").unwrap_or(expression).trim_start();
    let (text, _) = literal(expression)?;
    let (mut message, mut depth) = (String::new(), 0);
    for letter in text.chars() {
        match letter {
            '{' if depth == 0 => {
                depth = 1;
                message.push('…');
            }
            '{' => depth += 1,
            '}' if depth > 0 => depth -= 1,
            _ if depth == 0 => message.push(letter),
            _ => {}
        }
    }
    Some(message)
}

/// The name at the start of `text`.
pub(super) fn name(text: &str) -> &str {
    let end = text.find(|letter: char| !letter.is_alphanumeric() && letter != '_').unwrap_or(text.len());
    &text[..end]
}

/// An enum and its variants.
pub(super) struct Enum {
    pub(super) name: String,
    pub(super) variants: Vec<Variant>,
}

/// One variant.
pub(super) struct Variant {
    pub(super) name: String,
    /// Its doc comment.
    pub(super) doc: String,
    /// The text of its `#[error("...")]`.
    pub(super) error: Option<String>,
    /// The type of its first field, for tuples.
    pub(super) payload: Option<String>,
}

/// The enums of a source.
pub(super) fn enums(text: &str) -> Vec<Enum> {
    let is_declaration = |at: usize| text[..at].ends_with(['\n', ' ', ')']) && !text[..at].ends_with("// ");
    let starts = text.match_indices("enum ").filter(|(at, _)| is_declaration(*at));
    starts
        .filter_map(|(at, _)| {
            let rest = &text[at + "enum ".len()..];
            let (before, body) = rest.split_once('{')?;
            let name = name(before);
            (before.len() < 80 && !name.is_empty()).then(|| Enum { name: name.to_owned(), variants: variants(body) })
        })
        .collect()
}

fn variants(body: &str) -> Vec<Variant> {
    let (mut found, mut doc, mut error, mut depth) = (Vec::new(), String::new(), None, 0_i32);
    let mut at = 0;
    for line in body.split_inclusive('\n') {
        let trimmed = line.trim();
        let start = at + line.len() - line.trim_start().len();
        at += line.len();
        if depth == 0 && trimmed.starts_with('}') {
            break;
        }
        if depth == 0 {
            if let Some(more) = trimmed.strip_prefix("///") {
                doc.push_str(more.trim());
                doc.push(' ');
                continue;
            } else if trimmed.starts_with("#[error(") {
                error = message(body[start + "#[error(".len()..].trim_start());
            } else if trimmed.starts_with(char::is_uppercase) {
                let name = name(trimmed).to_owned();
                let payload = trimmed[name.len()..].strip_prefix('(').map(|types| self::name(types).to_owned());
                found.push(Variant {
                    name,
                    doc: std::mem::take(&mut doc).trim_end().to_owned(),
                    error: error.take(),
                    payload,
                });
            }
        }
        let count = |open: [char; 3]| i32::try_from(trimmed.matches(open).count()).unwrap();
        if !trimmed.starts_with("//") && !trimmed.starts_with("#[") {
            depth += count(['{', '(', '[']) - count(['}', ')', ']']);
        }
    }
    found
}
