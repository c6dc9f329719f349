//! Lists behind the numbers of the console: payments, deliveries and operations, newest first.
//!
//! A filter without an index would read all rows. A page therefore reads at most [`SCANNED_MAX`] rows, and continues on the next
//! page, which may be empty and have a next page.

pub(crate) mod deliveries;
pub(crate) mod operations;
pub(crate) mod payments;

use maud::{Markup, html};
use payferry_domain::Timestamp;
use sea_orm::Value;

use crate::page::words::grouped;

/// Maximum number of rows that one page reads, whether they match or not.
pub(crate) const SCANNED_MAX: u64 = 100_000;
/// Rows on one page.
const PAGE_ROWS: u64 = 50;

/// Condition of a query with its values. Parameters are numbered as they are added.
#[derive(Debug, Default)]
struct Conditions {
    texts: Vec<String>,
    values: Vec<Value>,
}

impl Conditions {
    /// Adds a condition, in which `?` stands for the value.
    fn add(&mut self, text: &str, value: impl Into<Value>) {
        let parameter = self.parameter(value);
        self.texts.push(text.replace('?', &parameter));
    }

    fn add_some(&mut self, text: &str, value: Option<impl Into<Value>>) {
        if let Some(value) = value {
            self.add(text, value);
        }
    }

    /// Adds a value, and returns its parameter.
    fn parameter(&mut self, value: impl Into<Value>) -> String {
        self.values.push(value.into());
        format!("${}", self.values.len())
    }

    /// The conditions so far; the next ones belong to another part of the query.
    fn take(&mut self) -> String {
        if self.texts.is_empty() { "true".to_owned() } else { std::mem::take(&mut self.texts).join(" AND ") }
    }
}

/// First id with this time in the order of ids.
fn id_at(prefix: &str, at: Timestamp) -> String {
    let ms = u64::try_from(at.as_millis()).unwrap_or_default();
    format!("{prefix}{}", ulid::Ulid::from_parts(ms, 0))
}

/// The rows of a page, and the key after which the next one begins.
pub(crate) struct ScannedPage<R, K> {
    pub(crate) rows: Vec<R>,
    pub(crate) next: Option<K>,
}

/// Parameters of a page in a link: a filter that is set, or nothing.
pub(crate) fn query(pairs: &[(&str, Option<&str>)]) -> String {
    let set = pairs.iter().filter_map(|(name, value)| Some((name, (*value)?)));
    let text = url::form_urlencoded::Serializer::new(String::new()).extend_pairs(set).finish();
    if text.is_empty() { text } else { format!("?{text}") }
}

/// Selection of one value in a filter; the empty value means all.
pub(crate) fn select(name: &str, label: &str, chosen: Option<&str>, choices: &[&str]) -> Markup {
    html! {
        label {
            (label)
            select name=(name) {
                option value="" { "all" }
                @for choice in choices { option value=(choice) selected[chosen == Some(*choice)] { (crate::page::words::plain(choice)) } }
            }
        }
    }
}

/// Text field of a filter.
pub(crate) fn field(name: &str, label: &str, value: Option<&str>, hint: &str) -> Markup {
    html! { label { (label) input type="text" name=(name) value=[value] placeholder=(hint) autocomplete="off" spellcheck="false"; } }
}

/// Links to the first and the next page, and a note if a page stopped at its limit.
fn pages(of: &str, first: &str, is_first: bool, next: Option<&str>, shown: usize) -> Markup {
    html! {
        @if !is_first || next.is_some() {
            nav.pages aria-label={ "Pages of " (of) } {
                @if !is_first { a rel="first" href=(first) { "First page" } }
                @if let Some(next) = next {
                    a rel="next" href=(next) { "Next page" }
                    @if shown < usize::try_from(PAGE_ROWS).unwrap_or(usize::MAX) {
                        span { "The last " (grouped(SCANNED_MAX)) " rows were read; older ones may match, too." }
                    }
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn conditions_number_their_parameters() {
        let mut conditions = Conditions::default();
        conditions.add("status = ?", "settled");
        conditions.add_some("chain = ?", None::<&str>);
        let inner = conditions.take();
        conditions.add("created_at < ?", 5);
        assert_eq!((inner.as_str(), conditions.take().as_str()), ("status = $1", "created_at < $2"));
        assert_eq!((conditions.take().as_str(), conditions.values.len()), ("true", 2));
    }

    #[test]
    fn a_link_has_only_the_filters_that_are_set() {
        assert_eq!(
            query(&[("status", Some("failed")), ("chain", None), ("label", Some("IN REVIEW"))]),
            "?status=failed&label=IN+REVIEW"
        );
        assert_eq!(query(&[("status", None)]), "");
    }
}
