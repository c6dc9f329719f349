//! Error pages.

use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use maud::html;
use payferry_entities::StoreError;
use payferry_httpkit::error::ApiError;
use sea_orm::DbErr;

use crate::page::shell::{NavSection, Page};

/// Reason why a page cannot be shown.
#[derive(Debug)]
pub(crate) enum Failure {
    /// No object of this type has this name.
    NotFound { what: &'static str, name: String },
    /// The database does not answer, or a row cannot be read.
    Unreadable(String),
    /// The outcome of a form is unknown: it may have been applied, or may still be. Names the page to check before a
    /// retry.
    Unknown { about: &'static str, path: String },
}

/// Failure of a form. Its page is not live, because the path of a form cannot be fetched.
#[derive(Debug)]
pub(crate) struct Refused(Failure);

/// Characters of an unknown name that the page repeats.
const NAME_CHARS_MAX: usize = 80;

impl Failure {
    pub(crate) fn not_found(what: &'static str, name: impl Into<String>) -> Self {
        Self::NotFound { what, name: name.into() }
    }

    pub(crate) fn unknown(about: &'static str, path: String) -> Self {
        Self::Unknown { about, path }
    }
}

impl<E: Into<Failure>> From<E> for Refused {
    fn from(error: E) -> Self {
        Self(error.into())
    }
}

impl From<DbErr> for Failure {
    fn from(error: DbErr) -> Self {
        Self::Unreadable(error.to_string())
    }
}

impl From<ApiError> for Failure {
    fn from(error: ApiError) -> Self {
        match error {
            ApiError::NotFound(what) => Self::not_found(what, "that id"),
            ApiError::TimedOut => Self::unknown("overview", "/ops".to_owned()),
            other => {
                Self::Unreadable(other.for_log().map_or_else(|| format!("{other:?}"), |(_, reason)| reason.to_owned()))
            }
        }
    }
}

impl From<StoreError> for Failure {
    fn from(error: StoreError) -> Self {
        Self::Unreadable(error.to_string())
    }
}

impl Failure {
    fn page(self) -> Page {
        let is_live = matches!(self, Self::Unreadable(_));
        let (status, headline, words) = match self {
            Self::NotFound { what, name } => {
                let name: String = name.chars().take(NAME_CHARS_MAX).collect();
                let words = html! { "No " (what) " “" (name) "” exists." };
                (StatusCode::NOT_FOUND, format!("No such {what}"), words)
            }
            Self::Unreadable(error) => {
                tracing::error!(error, "operator page failed: {error}");
                let words = html! { "The database did not return the data. See the service log for the reason." };
                (StatusCode::SERVICE_UNAVAILABLE, "Not available".to_owned(), words)
            }
            Self::Unknown { about, path } => {
                tracing::error!(about = %path, "outcome of an operator's request is unknown: {path}");
                let words = html! {
                    "The request timed out. It may have been carried out, or may still be. Check the "
                    a #about href=(path) { (about) } " before you repeat it."
                };
                (StatusCode::SERVICE_UNAVAILABLE, "Outcome unknown".to_owned(), words)
            }
        };
        let body = html! {
            div.title { h1 { (headline) } }
            p.notice.bad role="alert" { (words) }
        };
        // A live page shows the requested content as soon as it is available.
        Page { status, is_live, ..Page::still(headline, NavSection::Overview, body) }
    }
}

impl IntoResponse for Failure {
    fn into_response(self) -> Response {
        self.page().into_response()
    }
}

impl IntoResponse for Refused {
    fn into_response(self) -> Response {
        Page { is_live: false, ..self.0.page() }.into_response()
    }
}
