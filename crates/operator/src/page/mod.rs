//! The operator's live page: server-rendered, whole without scripts, kept at the present by one small script.
//!
//! Pages are at `/ops` and under `/ops/view/`; everything else under `/ops` is for programs. What a page shows comes from
//! `operator::read` and the tree, as for programs; what a form changes goes through `operator::admin`. Deliberately absent:
//! a build step, anything from elsewhere, and any list that grows with the payments.

pub(crate) mod failure;
pub(crate) mod form;
pub(crate) mod shell;
pub(crate) mod words;

pub(super) use shell::outside;

/// The path of the pages of something.
pub(crate) fn path(what: &str) -> String {
    format!("/ops/view/{what}")
}
