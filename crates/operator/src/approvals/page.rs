//! Pages of approvals: their list, and one with its forms. Not live, so that a refresh cannot remove typed input.

use axum::Extension;
use axum::extract::{Path, Query};
use axum::http::StatusCode;
use axum::response::{IntoResponse, Redirect, Response};
use maud::{Markup, html};
use payferry_domain::{ApprovalId, Timestamp};
use payferry_httpkit::lists::Page as ListPage;
use payferry_httpkit::{ApiError, RequestBody as _};
use serde::Deserialize;
use serde_json::Value;

use crate::Operator;
use crate::admit::Identity;
use crate::approvals::store::{self, Approval, ApprovalStatus};
use crate::approvals::{ApprovalDecision, FIELDS, decide};
use crate::page::form::Filled;
use crate::page::words::{Tone, ago, badge, done, grouped, head, heading, offset_pages, panel, payment_link, plain};
use crate::page::{Failure, NavSection, Page, Refused, id_of, path};

/// Approvals on one page of the list.
const LINES_MAX: u64 = 50;

/// Offset of the list.
#[derive(Deserialize)]
pub(crate) struct Part {
    offset: Option<u64>,
}

/// Result of the last form.
#[derive(Deserialize)]
pub(crate) struct ApprovalRequest {
    done: Option<String>,
}

/// `/ops/view/approvals`: all approvals, newest first.
pub(crate) async fn list(operator: Operator, Query(part): Query<Part>) -> Result<Response, Failure> {
    let offset = part.offset.unwrap_or_default();
    let part = ListPage::at("approvals", LINES_MAX, offset);
    let now = operator.system.clock().real_now();
    let (total, mut approvals) = store::list(operator.system.database(), None, &part, now).await?;
    part.cut(&mut approvals);
    let body = html! {
        p.crumbs { a href=(path("stuck")) { "Needs attention" } span { "approvals" } }
        div.title { h1 { "Approvals" } p { "Actions that a second operator approves." } }
        (panel("approvals", "All", &grouped(total), &html! {
            @if approvals.is_empty() { p.none { "None yet." } } @else { (table(&approvals, now)) }
            (offset_pages("approvals", offset, LINES_MAX, offset + LINES_MAX < total, |offset| format!("{}?offset={offset}", path("approvals"))))
        }))
    };
    Ok(Page::still("Approvals", NavSection::Attention, body).into_response())
}

/// `/ops/view/approvals/{approval_id}`.
pub(crate) async fn show(
    operator: Operator,
    Extension(identity): Extension<Identity>,
    Path(id): Path<String>,
    Query(shown): Query<ApprovalRequest>,
) -> Result<Response, Failure> {
    let approval = read(&operator, &id).await?;
    let said = match shown.done.as_deref() {
        Some("proposed") => done("Nothing is changed yet: a second operator has to approve it."),
        Some("decided") => done("The decision is recorded."),
        _ => html! {},
    };
    let now = operator.system.clock().real_now();
    Ok(page(&approval, &identity, &said, &Filled::default(), now).into_response())
}

/// Redirects from the form of an action to its approval.
pub(crate) fn redirect(approval: &Approval) -> Response {
    Redirect::to(&format!("{}/{}?done=proposed", path("approvals"), approval.id)).into_response()
}

pub(crate) async fn approve(
    operator: Operator,
    Extension(identity): Extension<Identity>,
    Path(id): Path<String>,
    filled: Filled,
) -> Result<Response, Refused> {
    let request = filled.read(&FIELDS, ApprovalDecision::read);
    answer(&operator, &identity, &id, true, request, &filled).await
}

pub(crate) async fn reject(
    operator: Operator,
    Extension(identity): Extension<Identity>,
    Path(id): Path<String>,
    filled: Filled,
) -> Result<Response, Refused> {
    let request = filled.read(&FIELDS, ApprovalDecision::read);
    answer(&operator, &identity, &id, false, request, &filled).await
}

async fn answer(
    operator: &Operator,
    identity: &Identity,
    id: &str,
    is_approved: bool,
    request: Result<ApprovalDecision, ApiError>,
    filled: &Filled,
) -> Result<Response, Refused> {
    let before = read(operator, id).await?;
    let here = format!("{}/{}", path("approvals"), before.id);
    let outcome = async { decide(operator, identity, before.id, is_approved, request?.reason).await };
    let outcome = match outcome.await {
        Err(ApiError::TimedOut) => return Err(Failure::Unknown { about: "approval", path: here }.into()),
        Err(ApiError::MissingRole(role)) => {
            let said = html! { div.notice.bad role="alert" { "Nothing was changed: this needs the role " (role) "." } };
            let now = operator.system.clock().real_now();
            return Ok(page(&before, identity, &said, filled, now).answer_form(StatusCode::FORBIDDEN));
        }
        outcome => outcome,
    };
    match filled.answered(outcome)? {
        Ok(_) => Ok(Redirect::to(&format!("{here}?done=decided")).into_response()),
        Err(refused) => {
            // The decision may have closed it.
            let approval = read(operator, id).await?;
            let now = operator.system.clock().real_now();
            Ok(page(&approval, identity, &refused.said, &refused.filled, now).answer_form(refused.status))
        }
    }
}

async fn read(operator: &Operator, id: &str) -> Result<Approval, Failure> {
    let parsed: ApprovalId = id_of("approval", id)?;
    match store::find(operator.system.database().writer(), parsed).await {
        Err(ApiError::NotFound(_)) => Err(Failure::not_found("approval", id)),
        found => found.map_err(|error| Failure::of_form(&error)),
    }
}

fn table(approvals: &[Approval], now: Timestamp) -> Markup {
    html! {
        table {
            (head(&[("", "Action"), ("", "Status"), ("wide", "Proposed by"), ("wide", "Decided by"), ("n wide", "Proposed")]))
            tbody {
                @for approval in approvals {
                    tr id=(approval.id) {
                        th scope="row" {
                            a.reason href={ (path("approvals")) "/" (approval.id) } { (approval.action.words()) } br; small.mono { (approval.id) }
                        }
                        td { (status(approval.status_at(now))) }
                        td.wide { (approval.proposed_by) }
                        td.wide { @if let Some(by) = &approval.decided_by { (by) } @else { "–" } }
                        td.n.wide { (ago(approval.created_at, now)) }
                    }
                }
            }
        }
    }
}

fn status(status: ApprovalStatus) -> Markup {
    let tone = match status {
        ApprovalStatus::Proposed | ApprovalStatus::Approved => Tone::Warn,
        ApprovalStatus::CarriedOut => Tone::Good,
        ApprovalStatus::Failed => Tone::Bad,
        ApprovalStatus::Rejected | ApprovalStatus::Expired | ApprovalStatus::OutOfDate => Tone::Idle,
    };
    badge(status.as_str(), tone)
}

fn page(approval: &Approval, identity: &Identity, said: &Markup, filled: &Filled, now: Timestamp) -> Page {
    let status_now = approval.status_at(now);
    let is_open = status_now == ApprovalStatus::Proposed;
    let has_role = identity.role >= approval.action.role();
    let is_own = identity.name == approval.proposed_by;
    let body = html! {
        p.crumbs { a href=(path("stuck")) { "Needs attention" } a href=(path("approvals")) { "approvals" } span { "approval" } }
        div.title {
            h1 { (heading(approval.action.kind())) }
            (status(status_now))
            p { span.reason { (approval.action.words()) } }
            p { span.mono { (approval.id) } ", proposed by " strong { (approval.proposed_by) } " " (ago(approval.created_at, now)) }
        }
        (said)
        div.grid.two {
            div.col { (panel("action", "Action", "", &facts(approval, now))) }
            div.col {
                @if is_open && has_role { (forms(approval, is_own, filled)) }
                @if is_open && !has_role {
                    section.panel aria-label="Role" { p.none { "An operator with the role " (approval.action.role()) " approves it." } }
                }
            }
        }
    };
    Page::still(format!("Approval {}", approval.id), NavSection::Attention, body)
}

fn facts(approval: &Approval, now: Timestamp) -> Markup {
    html! {
        dl.facts {
            dt { "PSP" } dd { a.mono href={ (path("psps")) "/" (approval.psp_id) } { (approval.psp_id) } }
            @if let Some(payment) = approval.action.payment() { dt { "Payment" } dd { (payment_link(&payment.to_string())) } }
            (values(&approval.action.shown()))
            @if let Some(reason) = &approval.reason { dt { "Reason" } dd { (reason) } }
            dt { "When proposed" } dd { dl.facts { (values(&approval.subject_state)) } }
            @if let Some(by) = &approval.decided_by {
                dt { "Decided by" }
                dd { (by) @if let Some(at) = approval.decided_at { " " (ago(at, now)) } @if let Some(reason) = &approval.decision_reason { ": " (reason) } }
            }
            @if let Some((_, words)) = &approval.failure { dt { "Failed" } dd { span.bad-ink.reason { (words) } } }
            @if approval.status == ApprovalStatus::Proposed { dt { "Expires" } dd { (ago(approval.expires_at, now)) } }
        }
    }
}

/// The texts of an object.
fn values(object: &Value) -> Markup {
    let fields = object.as_object().into_iter().flatten();
    html! {
        @for (name, text) in fields.filter_map(|(name, value)| Some((name, value.as_str()?))) {
            dt { (plain(name)) } dd.mono { (text) }
        }
    }
}

fn forms(approval: &Approval, is_own: bool, filled: &Filled) -> Markup {
    let here = format!("{}/{}", path("approvals"), approval.id);
    html! {
        @if is_own {
            section.panel aria-label="Own proposal" { p.none { "You proposed this: another operator has to approve it." } }
        } @else {
            (panel("approve", "Approve", "it is carried out at once", &html! {
                div.body {
                    form.stack #approve-it method="post" action={ (here) "/approve" } {
                        (filled.sign("basis of the decision", "I have checked this action with its proposer"))
                        div { button.danger { "Approve" } }
                    }
                }
            }))
        }
        (panel("reject", if is_own { "Withdraw" } else { "Reject" }, "nothing is changed", &html! {
            div.body {
                form.stack #reject-it method="post" action={ (here) "/reject" } {
                    (filled.sign("basis of the decision", if is_own { "I withdraw my proposal" } else { "It must not be carried out" }))
                    div { button { @if is_own { "Withdraw" } @else { "Reject" } } }
                }
            }
        }))
    }
}
