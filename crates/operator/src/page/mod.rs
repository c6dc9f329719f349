//! Parts that all pages of the operator share: shell, words, forms and failures.
//!
//! Pages are rendered on the server and work without scripts; one small script keeps them current. They are at `/ops` and under
//! `/ops/view/`; all other paths under `/ops` are for programs. Deliberately absent: a build step, resources from other sites, and
//! lists that grow with the payments.

pub(crate) mod failure;
pub(crate) mod form;
pub(crate) mod shell;
pub(crate) mod words;

pub(super) use shell::outside;

/// The path of the pages of something.
pub(crate) fn path(what: &str) -> String {
    format!("/ops/view/{what}")
}
