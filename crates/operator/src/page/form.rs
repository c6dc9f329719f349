//! Forms of operators. Each makes a change, and needs a reason and a confirmation. The audit entries of the change contain
//! the reason.

use axum::extract::rejection::FormRejection;
use axum::extract::{FromRequest, Request};
use axum::http::StatusCode;
use axum::response::{IntoResponse, Redirect, Response};
use maud::{Markup, html};
use payferry_httpkit::extract::read::TEXT_CHARS_MAX;
use payferry_httpkit::pages::form::FormValues;
use payferry_httpkit::{ApiError, FieldError, Fields};
use payferry_runtime::request;

use crate::page::{Failure, NavSection, Page, Refused};

pub(crate) use payferry_httpkit::pages::form::{Sort, ticked};

/// Field with the reason for a change. It must be filled in.
const REASON: &str = "reason";

/// Values of a form, as sent or as shown first.
#[derive(Debug, Clone, Default, derive_more::Deref)]
pub(crate) struct Filled(FormValues);

/// Form that was not carried out, for its page.
pub(crate) struct RefusedForm {
    pub(crate) status: StatusCode,
    /// Reason, as a notice.
    pub(crate) said: Markup,
    /// The form as it was sent, with its errors.
    pub(crate) filled: Filled,
}

impl<S: Send + Sync> FromRequest<S> for Filled {
    type Rejection = FormRejection;

    async fn from_request(request: Request, state: &S) -> Result<Self, FormRejection> {
        let filled = Self(FormValues::from_request(request, state).await?);
        let reason = filled.value(REASON).trim();
        if !reason.is_empty() {
            request::give_reason(reason);
        }
        Ok(filled)
    }
}

impl Filled {
    /// A form with initial values.
    pub(crate) fn with<const N: usize>(values: [(&str, String); N]) -> Self {
        Self(FormValues::with(values))
    }

    /// Reads the form in the same way as the body of an API request. Every form also has a reason and a confirmation.
    pub(crate) fn read<T>(
        &self,
        fields: &[(&str, Sort)],
        read: impl FnOnce(&Fields<'_>) -> Option<T>,
    ) -> Result<T, ApiError> {
        let read = || {
            let body = self.json(fields);
            let fields = Fields::of_body(&body)?;
            let request = read(&fields);
            fields.finish(request)
        };
        let request = read();
        let mut errors = match &request {
            Err(ApiError::Validation(errors)) => errors.clone(),
            Err(_) => return request,
            Ok(_) => Vec::new(),
        };
        let mut add = |error: FieldError| {
            if errors.iter().all(|other| other.field != error.field) {
                errors.push(error);
            }
        };
        let reason = self.value(REASON).trim();
        if reason.is_empty() {
            add(FieldError::new(REASON, "required", "is required"));
        } else if reason.chars().count() > TEXT_CHARS_MAX {
            add(FieldError::new(REASON, "too_long", format!("must have at most {TEXT_CHARS_MAX} characters")));
        }
        if !self.is_confirmed() {
            add(FormValues::unconfirmed());
        }
        if errors.is_empty() { request } else { Err(ApiError::Validation(errors)) }
    }

    /// Reads a form with no other fields than the reason and the confirmation.
    pub(crate) fn signed(&self) -> Result<(), ApiError> {
        self.read(&[], |_| Some(()))
    }

    /// The outcome of the form, or the form with the reason why it was not carried out. Returns an error unchanged that
    /// is no answer to the form.
    pub(crate) fn answered<T>(&self, outcome: Result<T, ApiError>) -> Result<Result<T, RefusedForm>, Failure> {
        let mut filled = self.clone();
        let said = |detail: &str| html! { div.notice.bad role="alert" { "Nothing was changed: " (detail) } };
        let (status, said) = match outcome {
            Ok(done) => return Ok(Ok(done)),
            Err(ApiError::Conflict(_, detail, _) | ApiError::Unprocessable(_, detail, _)) => {
                (StatusCode::CONFLICT, said(&detail))
            }
            Err(ApiError::NotFound(what)) => (StatusCode::NOT_FOUND, said(&format!("{what} not found."))),
            Err(ApiError::Validation(errors)) => {
                filled = Self(self.refused(errors));
                (StatusCode::UNPROCESSABLE_ENTITY, filled.summary())
            }
            Err(other) => return Err(Failure::of_form(&other)),
        };
        Ok(Err(RefusedForm { status, said, filled }))
    }

    /// Fields that every form ends with: the reason, and the confirmation of `statement`.
    pub(crate) fn sign(&self, hint: &str, statement: &str) -> Markup {
        html! {
            (self.line(REASON, "Reason, without personal data", hint, true))
            (self.confirm(statement))
        }
    }
}

/// A change that is made with one button: its form is behind a fold, with a reason and a confirmation.
pub(crate) struct ChangeButton<'a> {
    /// Word on the button.
    pub(crate) label: &'a str,
    /// The changed object, for screen readers.
    pub(crate) subject: &'a str,
    /// Path of the form.
    pub(crate) action: &'a str,
    /// Hidden fields.
    pub(crate) hidden: &'a [(&'a str, &'a str)],
    /// Statement that is confirmed.
    pub(crate) statement: &'a str,
}

impl maud::Render for ChangeButton<'_> {
    fn render(&self) -> Markup {
        let Self { label, subject, action, hidden, statement } = self;
        html! {
            details.act {
                summary aria-label={ (label) " " (subject) } { (label) }
                form.stack method="post" action=(action) {
                    @for (name, value) in *hidden { input type="hidden" name=(name) value=(value); }
                    (Filled::default().sign("basis of the decision", statement))
                    div { button.danger aria-label={ (label) " " (subject) } { (label) } }
                }
            }
        }
    }
}

/// Answers the form of a [`ChangeButton`] on the page `here`: shows the page again, or what is missing.
pub(crate) async fn answer_button(
    filled: &Filled,
    here: &str,
    change: impl Future<Output = Result<(), ApiError>>,
) -> Result<Response, Refused> {
    let outcome = async {
        filled.signed()?;
        change.await
    };
    match filled.answered(outcome.await)? {
        Ok(()) => Ok(Redirect::to(here).into_response()),
        Err(refused) => {
            let body = html! {
                div.title { h1 { "Nothing was changed" } }
                (refused.said)
                p { a #back href=(here) { "Back" } }
            };
            Ok(Page::still("Nothing was changed", NavSection::Overview, body).answer_form(refused.status))
        }
    }
}
