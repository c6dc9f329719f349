//! Language of the rows: parser from text to steps. `rows/README.md` describes the syntax.

use std::path::{Path, PathBuf};

/// A story and its expected outcome.
#[derive(Debug, Clone)]
pub struct Row {
    /// Location.
    pub place: ScriptLine,
    pub title: String,
    /// Transitions of the interface and problems of other providers that it covers.
    pub covers: Vec<String>,
    pub steps: Vec<Step>,
    /// Lines in the format of [`super::outcome`].
    pub expected: Vec<String>,
}

/// An action, and the condition to wait for afterwards.
#[derive(Debug, Clone)]
pub struct Step {
    pub line: usize,
    /// Subject; the first payment if not named.
    pub subject: Option<String>,
    pub words: Vec<String>,
    pub then: Vec<String>,
}

/// A line of a file.
#[derive(Debug, Clone, PartialEq, Eq, derive_more::Display)]
#[display("{file}:{line}")]
pub struct ScriptLine {
    pub file: String,
    pub line: usize,
}

/// Folder of the rows.
pub fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/it/stories/rows")
}

/// Reads the rows of a file.
pub fn read(file: &str) -> Vec<Row> {
    let path = folder().join(file);
    let text = std::fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    parse(file, &text)
}

/// Parses rows. A continuation line is indented deeper than a step.
pub fn parse(file: &str, text: &str) -> Vec<Row> {
    let mut rows: Vec<Row> = Vec::new();
    for (index, raw) in text.lines().enumerate() {
        let line = index + 1;
        let place = ScriptLine { file: file.to_owned(), line };
        let content = raw.split(" # ").next().unwrap_or_default().trim_end();
        if content.trim().is_empty() || content.starts_with('#') {
            continue;
        }
        if let Some(title) = content.strip_prefix("== ") {
            let (covers, steps, expected) = (Vec::new(), Vec::new(), Vec::new());
            rows.push(Row { place, title: title.trim().to_owned(), covers, steps, expected });
            continue;
        }
        let row = rows.last_mut().unwrap_or_else(|| panic!("{place}: a row starts with ==: {raw}"));
        if let Some(covers) = content.strip_prefix("covers: ") {
            row.covers.extend(covers.split_whitespace().map(str::to_owned));
        } else if let Some(expected) = content.strip_prefix("= ") {
            row.expected.push(joined(expected));
        } else if content.starts_with("    ") {
            let last = row.expected.last_mut().unwrap_or_else(|| panic!("{place}: no line to continue: {raw}"));
            *last = format!("{last} {}", joined(content));
        } else if content.starts_with("  ") && row.expected.is_empty() {
            row.steps.push(step(line, content));
        } else {
            panic!("{place}: neither title nor covers, step or outcome: {raw}");
        }
    }
    rows
}

/// Parses a step.
pub fn step(line: usize, content: &str) -> Step {
    let (does, then) = content.split_once("->").unwrap_or((content, ""));
    let mut words: Vec<String> = does.split_whitespace().map(str::to_owned).collect();
    let named = words.first().and_then(|word| word.strip_suffix(':')).map(str::to_owned);
    if named.is_some() {
        words.remove(0);
    }
    Step { line, subject: named, words, then: then.split_whitespace().map(str::to_owned).collect() }
}

fn joined(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parses_a_row() {
        let text = "# rows\n\n== Paid\ncovers: api/exact peers/x\n  initiate 10\n  b: pay 10 usdt -> settled -LATE\n\
                    = p: pending,\n    settled\n= holds: nothing\n== Another\n  cancel\n";
        let rows = parse("f", text);
        assert_eq!(rows.iter().map(|row| row.title.as_str()).collect::<Vec<_>>(), ["Paid", "Another"]);
        assert_eq!(
            (rows[0].place.to_string(), rows[0].covers.join(" ")),
            ("f:3".to_owned(), "api/exact peers/x".to_owned())
        );
        let step = &rows[0].steps[1];
        assert_eq!((step.line, step.subject.as_deref()), (6, Some("b")));
        assert_eq!((step.words.join(" "), step.then.join(" ")), ("pay 10 usdt".to_owned(), "settled -LATE".to_owned()));
        assert_eq!(rows[0].expected, ["p: pending, settled", "holds: nothing"]);
    }
}
