//! What a page says when it cannot be shown.

use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use maud::html;
use payferry_entities::StoreError;
use payferry_httpkit::error::ApiError;
use sea_orm::DbErr;

use crate::page::shell::{Page, Place};

/// Why there is no page.
#[derive(Debug)]
pub(crate) enum Failure {
    /// There is nothing of this sort by this name.
    NotFound { what: &'static str, name: String },
    /// The database is away, or holds what cannot be read.
    Unreadable(String),
    /// A form's wish may have been carried out, or may yet be; what to look at before it is repeated, and where that is.
    Unknown { about: &'static str, path: String },
}

/// Why a form came to nothing. Its page stands still: the path of a form is nothing that can be fetched again.
#[derive(Debug)]
pub(crate) struct Refused(Failure);

/// Characters of a name that was not found, as the page repeats it.
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
                let words = html! { "There is no " (what) " “" (name) "” here." };
                (StatusCode::NOT_FOUND, format!("No such {what}"), words)
            }
            Self::Unreadable(error) => {
                tracing::error!(error, "an operator's page failed: {error}");
                let words = html! { "The database does not answer as it should; the log has the reason." };
                (StatusCode::SERVICE_UNAVAILABLE, "Not available".to_owned(), words)
            }
            Self::Unknown { about, path } => {
                tracing::error!(about = %path, "nobody knows whether what an operator wished was done: {path}");
                let words = html! {
                    "This was not answered in time: it may have been carried out, or may yet be. Look at the "
                    a #about href=(path) { (about) } " before you repeat it."
                };
                (StatusCode::SERVICE_UNAVAILABLE, "Outcome unknown".to_owned(), words)
            }
        };
        let body = html! {
            div.title { h1 { (headline) } }
            p.notice.bad role="alert" { (words) }
        };
        // If live, it shows what was asked for as soon as that can be shown.
        Page { status, is_live, ..Page::still(headline, Place::Overview, body) }
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
