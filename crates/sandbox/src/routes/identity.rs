//! Identity verification of the sandbox: a page in place of the provider's page, and `POST
//! /sandbox/customers/{id}/kyc`. Both use the same code path as a provider's verdict.

use axum::Form;
use axum::extract::rejection::{FormRejection, PathRejection};
use axum::extract::{Path as AxumPath, State};
use axum::http::StatusCode;
use axum::http::header::RETRY_AFTER;
use axum::response::Response;
use maud::{Markup, html};
use payferry_actors::compliance::identity::{CallbackFact, SANDBOX_PROVIDER, VerdictEffect, VerificationLinks};
use payferry_domain::customer::{Command, IdentityVerdict, Rejection};
use payferry_domain::{CheckId, CustomerId};
use payferry_entities::{CheckStatus, checks, customers};
use payferry_httpkit::{Answer, ApiError, Caller, Customers, Fault, Path, pages, read};
use payferry_journal::audit::Actor;
use payferry_journal::customers::customer_of;
use sea_orm::EntityTrait;
use serde::Deserialize;
use serde_json::{Value, json};

use super::{Body, fields};
use crate::routes::SandboxHost;

/// Rejection reason of the page's button, in the provider's format.
const PAGE_REASON: &str = "rejected_on_the_sandbox_page";
/// Default rejection reason of the route.
const ROUTE_REASON: &str = "rejected_by_the_sandbox";
/// Maximum number of reasons of one rejection.
const REASONS_MAX: usize = 16;

/// Sets a verdict as the provider would. Starts a verification if none is open and nothing is missing.
pub(super) async fn kyc<H: SandboxHost>(
    State(app): State<H>,
    caller: Caller<Customers>,
    Path(id): Path<String>,
    Body(body): Body,
) -> Result<Answer, ApiError> {
    let id: CustomerId = id.parse().map_err(|_| ApiError::NotFound("customer"))?;
    let verdict = fields(&body, |fields| {
        let outcome = fields.required("outcome", outcome);
        let reasons = fields.optional("reasons", reasons);
        let rejected =
            || IdentityVerdict::Rejected { reasons: reasons.unwrap_or_else(|| vec![ROUTE_REASON.to_owned()]) };
        Some(if outcome? { IdentityVerdict::Approved } else { rejected() })
    })?;
    let mut opened = app.system().open_customer(id, Some(caller.psp_id)).await?;
    if opened.customer().tos_accepted_at.is_none() {
        return Err(Rejection::TermsNotAccepted.into());
    }
    let now = app.clock().now();
    if opened.customer().check.is_none() {
        let command = Command::RequestCheck(CheckId::generate());
        opened.apply(&command, &Actor::ApiKey(caller.key_id), now).await?;
    }
    let check = opened.customer().check.ok_or_else(|| ApiError::internal("a verification without a check"))?.id;
    let command = Command::ConcludeCheck { check, verdict };
    opened.apply(&command, &Actor::Provider(SANDBOX_PROVIDER.to_owned()), now).await?;
    let answer = Answer::ok(&json!({
        "message": "Decided",
        "customer_id": id,
        "kyc_status": opened.customer().kyc_status,
        "verification_id": check,
    }))?;
    opened.commit().await?;
    Ok(answer)
}

/// Reads `approved` as true and `rejected` as false.
fn outcome(value: &Value) -> Result<bool, Fault> {
    match read::string(value)? {
        "approved" => Ok(true),
        "rejected" => Ok(false),
        _ => Err(Fault::new("unknown_value", "must be one of approved, rejected")),
    }
}

fn reasons(value: &Value) -> Result<Vec<String>, Fault> {
    let list = value.as_array().ok_or_else(|| Fault::new("wrong_type", "must be a list of texts"))?;
    if list.is_empty() || list.len() > REASONS_MAX {
        return Err(Fault::new("out_of_range", format!("must have 1 to {REASONS_MAX} items")));
    }
    list.iter().map(read::text).collect()
}

/// Form data of the page.
#[derive(Deserialize)]
pub(super) struct Decision {
    decision: String,
}

/// Page on which a developer plays the provider.
pub(super) async fn page<H: SandboxHost>(
    _: pages::PageAdmitted,
    State(app): State<H>,
    token: Result<AxumPath<String>, PathRejection>,
) -> Response {
    match find(&app, token).await {
        Ok(found) => shown(StatusCode::OK, &found.markup()),
        Err(error) => failure(&error),
    }
}

/// Handles the buttons of the page.
pub(super) async fn decide<H: SandboxHost>(
    _: pages::PageAdmitted,
    State(app): State<H>,
    token: Result<AxumPath<String>, PathRejection>,
    form: Result<Form<Decision>, FormRejection>,
) -> Response {
    let verdict = match form.as_ref().map(|Form(form)| form.decision.as_str()) {
        Ok("approve") => IdentityVerdict::Approved,
        Ok("reject") => IdentityVerdict::Rejected { reasons: vec![PAGE_REASON.to_owned()] },
        _ => return failure(&ApiError::MalformedJson("the form has no decision".to_owned())),
    };
    let decided = async {
        let found = find(&app, token).await?;
        let fact = CallbackFact { check: found.check, provider_ref: found.provider_ref(), verdict };
        let concluded = app.system().compliance().apply(SANDBOX_PROVIDER, &fact).await?;
        let found = Found::read(&app, found.check).await?;
        Ok::<_, ApiError>((concluded, found))
    };
    match decided.await {
        Ok((VerdictEffect::Changed, found)) => shown(StatusCode::OK, &found.markup()),
        Ok((VerdictEffect::Known, found)) => shown(StatusCode::CONFLICT, &found.markup()),
        Err(error) => failure(&error),
    }
}

/// A check and the status of its customer.
struct Found {
    check: CheckId,
    row: checks::Model,
    kyc_status: String,
}

impl Found {
    async fn read(app: &impl SandboxHost, check: CheckId) -> Result<Self, ApiError> {
        let missing = || ApiError::NotFound("verification");
        let reader = app.database().reader();
        let row = checks::Entity::find_by_id(check.to_string()).one(reader).await?.ok_or_else(missing)?;
        let customer = customers::Entity::find_by_id(&row.customer_id).one(reader).await?.ok_or_else(missing)?;
        let kyc_status = customer_of(&customer).map_err(ApiError::internal)?.kyc_status.to_string();
        Ok(Self { check, row, kyc_status })
    }

    fn is_open(&self) -> bool {
        self.row.status.is_waiting()
    }

    /// Provider reference as stored by the identity service; empty if none is stored yet.
    fn provider_ref(&self) -> String {
        self.row.provider_ref.clone().unwrap_or_default()
    }

    fn markup(&self) -> Markup {
        let (headline, explanation) = match self.row.status {
            CheckStatus::Open | CheckStatus::Queued => {
                ("Identity verification", "In production, this is the identity provider's page.")
            }
            CheckStatus::Passed => ("Approved", "The verification is complete. You can close this page."),
            CheckStatus::Failed => ("Rejected", "The verification is complete. You can start another one."),
            CheckStatus::Lapsed | CheckStatus::Superseded => {
                ("No longer valid", "This verification was cancelled or replaced.")
            }
        };
        pages::page(
            headline,
            &html! {
                main.narrow {
                    h1 { (headline) }
                    p { (explanation) }
                    dl {
                        dt { "Verification" }
                        dd.mono { (self.check) }
                        dt { "Customer" }
                        dd.mono { (self.row.customer_id) }
                        dt { "Status of the customer" }
                        dd { (self.kyc_status) }
                    }
                    @if self.is_open() {
                        form method="post" {
                            button.pay type="submit" name="decision" value="approve" { "Approve" }
                            button.pay type="submit" name="decision" value="reject" { "Reject" }
                        }
                    }
                }
            },
        )
    }
}

async fn find(app: &impl SandboxHost, token: Result<AxumPath<String>, PathRejection>) -> Result<Found, ApiError> {
    let missing = || ApiError::NotFound("verification");
    let AxumPath(token) = token.map_err(|_| missing())?;
    let links = VerificationLinks::new(app.public_url().clone(), app.sealer().clone());
    Found::read(app, links.check_of(&token).ok_or_else(missing)?).await
}

fn shown(status: StatusCode, page: &Markup) -> Response {
    pages::respond_with_form(status, page.clone().into_string())
}

/// Returns an error page instead of JSON, because people read it.
fn failure(error: &ApiError) -> Response {
    if let Some((_, reason)) = error.for_log() {
        tracing::error!(error = reason, "a verification page failed: {reason}");
    }
    let status = error.status();
    let (headline, explanation) = match status {
        StatusCode::NOT_FOUND => ("No such verification", "This link does not belong to a verification."),
        StatusCode::TOO_MANY_REQUESTS => ("Too many requests", "Wait a minute, then reload."),
        StatusCode::BAD_REQUEST => ("Invalid request", "Go back and use one of the two buttons."),
        _ => ("Not available", "The page cannot be shown at the moment. Reload it in a minute."),
    };
    let body = html! { main.narrow { h1 { (headline) } p { (explanation) } } };
    let mut response = shown(status, &pages::page(headline, &body));
    response.headers_mut().extend(error.retry_after_secs().map(|secs| (RETRY_AFTER, secs.into())));
    response
}
