//! Pages of the customers: their state, checks and audit log, and a form for a manual decision.

use axum::Form;
use axum::extract::{Path, State};
use axum::http::{StatusCode, Uri};
use axum::response::{IntoResponse, Redirect, Response};
use maud::{Markup, html};
use payferry_domain::customer::KycStatus;
use payferry_domain::{CustomerId, Timestamp};
use payferry_httpkit::error::ApiError;
use payferry_httpkit::extract::{Fields, QueryFields};

use crate::Operator;
use crate::chains::page::bounded;
use crate::customers::query::{CheckLine, CustomerLine, CustomerList, CustomerView, DocumentLine};
use crate::customers::{carry_out, filter, query as customers, read_decision, view};
use crate::page::failure::{Failure, Refused};
use crate::page::form::{Filled, Sort};
use crate::page::path;
use crate::page::shell::{NavSection, Page};
use crate::page::words::{Tone, ago, badge, clock, grouped, plain};

/// Customers on one page.
const CUSTOMERS_MAX: u64 = 50;
/// Fields of a decision, named as in the API.
const FIELDS: [(&str, Sort); 2] = [("outcome", Sort::Text), ("reason", Sort::Text)];
const OUTCOMES: [(&str, &str); 2] = [("approved", "approve"), ("rejected", "reject")];

/// `/ops/view/customers`: the customers that match the search, newest first.
pub(crate) async fn list(State(operator): State<Operator>, uri: Uri) -> Result<Response, Failure> {
    let mut query = QueryFields::of(&uri);
    let asked = CustomerSearch::of(&mut query);
    let filter = filter(&mut query);
    if query.finish().is_err() {
        let page = list_page(&operator, &asked, None);
        return Ok(Page { status: StatusCode::BAD_REQUEST, ..page }.into_response());
    }
    let found = customers::list(operator.system.database(), &filter, CUSTOMERS_MAX, asked.offset).await;
    let found = found.map_err(ApiError::from)?;
    Ok(list_page(&operator, &asked, Some(&found)).into_response())
}

/// `/ops/view/customers/{customer_id}`: one customer.
pub(crate) async fn show(
    State(operator): State<Operator>,
    Path(customer_id): Path<String>,
    uri: Uri,
) -> Result<Response, Failure> {
    let view = find(&operator, &customer_id).await?;
    let is_decided = QueryFields::of(&uri).optional("done", |word| Ok(word == "decided")) == Some(true);
    let said = html! {
        @if is_decided { p.notice.good role="status" { "The decision is recorded and in effect." } }
    };
    let now = operator.system.clock().now();
    Ok(page(&view, &said, &Filled::default(), now).into_response())
}

/// Records a manual decision.
pub(crate) async fn decide(
    State(operator): State<Operator>,
    Path(customer_id): Path<String>,
    Form(pairs): Form<Vec<(String, String)>>,
) -> Result<Response, Refused> {
    let before = find(&operator, &customer_id).await?;
    let filled = Filled::sent(pairs);
    let body = filled.json(&FIELDS);
    let read = Fields::of_body(&body).and_then(|fields| {
        let decision = read_decision(&fields);
        fields.finish(decision)
    });
    let outcome = match read {
        Ok(decision) => carry_out(&operator, before.customer.customer_id, decision).await,
        Err(error) => Err(error),
    };
    let now = operator.system.clock().now();
    match outcome {
        Ok(()) => Ok(Redirect::to(&format!("{}/{customer_id}?done=decided", path("customers"))).into_response()),
        // A conflict is shown on the page of the form.
        Err(ApiError::Conflict(_, detail, _)) => {
            let said = html! { div.notice.bad role="alert" { "Nothing was changed: " (detail) } };
            let page = page(&before, &said, &filled, now);
            Ok(Page { status: StatusCode::CONFLICT, ..page }.into_response())
        }
        Err(error) => {
            let filled = filled.refused(error)?;
            let page = page(&before, &filled.summary(), &filled, now);
            Ok(Page { status: StatusCode::UNPROCESSABLE_ENTITY, ..page }.into_response())
        }
    }
}

async fn find(operator: &Operator, customer_id: &str) -> Result<CustomerView, Failure> {
    let missing = || Failure::not_found("customer", customer_id);
    let id: CustomerId = customer_id.parse().map_err(|_| missing())?;
    match view(operator, id).await {
        Err(ApiError::NotFound(_)) => Err(missing()),
        other => Ok(other?),
    }
}

/// Query of the list, as it was sent.
struct CustomerSearch {
    search: String,
    kyc_status: String,
    psp_id: String,
    offset: u64,
}

impl CustomerSearch {
    fn of(query: &mut QueryFields) -> Self {
        let mut text = |name| query.optional(name, |text| Ok(text.to_owned())).unwrap_or_default();
        let (search, kyc_status, psp_id) = (text("search"), text("kyc_status"), text("psp_id"));
        Self { search, kyc_status, psp_id, offset: query.page().offset }
    }

    /// The same query at another offset.
    fn at(&self, offset: u64) -> String {
        let offset = offset.to_string();
        let pairs =
            [("search", &self.search), ("kyc_status", &self.kyc_status), ("psp_id", &self.psp_id), ("offset", &offset)];
        let given = pairs.into_iter().filter(|(_, value)| !value.is_empty());
        let query = url::form_urlencoded::Serializer::new(String::new()).extend_pairs(given).finish();
        format!("{}?{query}", path("customers"))
    }
}

fn list_page(operator: &Operator, asked: &CustomerSearch, found: Option<&CustomerList>) -> Page {
    let now = operator.system.clock().now();
    let body = html! {
        div.title { h1 { "Customers" } p { "Payers and payees, and their verification status." } }
        section.panel aria-labelledby="find" {
            header { h2 #find { "Find" } }
            div.body {
                form.stack #find-customers method="get" action=(path("customers")) {
                    div.pair {
                        label { "Email or part of it"
                            input type="search" name="search" value=(asked.search) autocomplete="off" spellcheck="false"; }
                        label { "Verification"
                            select name="kyc_status" {
                                option value="" { "any" }
                                @for status in KycStatus::ALL {
                                    option value=(status) selected[asked.kyc_status == status.as_str()] { (plain(status.as_str())) }
                                }
                            } }
                        label { "PSP" input type="text" name="psp_id" value=(asked.psp_id) placeholder="psp_…" autocomplete="off"; }
                    }
                    div { button { "Find" } }
                }
            }
        }
        @match found {
            None => p.notice.bad role="alert" { "Invalid search: check the PSP id." },
            Some(found) => (listed(asked, found, now)),
        }
    };
    Page::still("Customers", NavSection::Customers, body)
}

fn listed(asked: &CustomerSearch, found: &CustomerList, now: Timestamp) -> Markup {
    let next = asked.offset + CUSTOMERS_MAX;
    let is_full = u64::try_from(found.customers.len()) == Ok(CUSTOMERS_MAX);
    // If the count is truncated, a full page may have a next page.
    let has_next = is_full && (found.total.more || next < found.total.counted);
    html! {
        section.panel aria-labelledby="found" {
            header { h2 #found { "Found" } p { (bounded(found.total)) } }
            @if found.customers.is_empty() { p.none { "None." } } @else { (table(&found.customers, now)) }
            @if asked.offset > 0 || has_next {
                nav.pages aria-label="Pages of customers" {
                    @if asked.offset > 0 { a rel="prev" href=(asked.at(asked.offset.saturating_sub(CUSTOMERS_MAX))) { "Previous" } }
                    @if has_next { a rel="next" href=(asked.at(next)) { "Next " (CUSTOMERS_MAX) } }
                }
            }
        }
    }
}

fn table(customers: &[CustomerLine], now: Timestamp) -> Markup {
    html! {
        table {
            thead {
                tr {
                    th scope="col" { "Customer" }
                    th scope="col" { "Verification" }
                    th.wide scope="col" { "Missing" }
                    th.wide scope="col" { "Country" }
                    th.n.wide scope="col" { "Changed" }
                }
            }
            tbody {
                @for customer in customers {
                    tr id=(customer.customer_id) {
                        th scope="row" {
                            a href={ (path("customers")) "/" (customer.customer_id) } { (customer.email) }
                            br; small { (customer.kind) ", " span.mono { (customer.customer_id) } }
                        }
                        td { (standing(customer)) }
                        td.wide { (missing(customer)) }
                        td.wide { (customer.country) }
                        td.n.wide { (ago(customer.updated_at.0, now)) }
                    }
                }
            }
        }
    }
}

fn standing(customer: &CustomerLine) -> Markup {
    let tone = match customer.kyc_status {
        KycStatus::Approved | KycStatus::Success => Tone::Good,
        KycStatus::PendingUpdate => Tone::Warn,
        KycStatus::Rejected => Tone::Bad,
        KycStatus::Pending => Tone::Idle,
    };
    html! {
        (badge(customer.kyc_status.as_str(), tone))
        @if !customer.is_active { " " (badge("deactivated", Tone::Bad)) }
    }
}

fn missing(customer: &CustomerLine) -> Markup {
    html! {
        @if customer.missing.is_empty() { span.soft { "nothing" } }
        @for (index, one) in customer.missing.iter().enumerate() { @if index > 0 { ", " } (plain(one.as_str())) }
    }
}

fn page(view: &CustomerView, said: &Markup, filled: &Filled, now: Timestamp) -> Page {
    let customer = &view.customer;
    let here = format!("{}/{}", path("customers"), customer.customer_id);
    let body = html! {
        p.crumbs { a href=(path("customers")) { "Customers" } span { "Customer" } }
        div.title { h1 { (customer.email) } (standing(customer)) p { span.mono { (customer.customer_id) } } }
        (said)
        div.grid.two {
            div.col {
                (facts(customer, now))
                (checks(&view.checks, now))
                (documents(customer, &view.stored_documents, now))
            }
            div.col {
                section.panel aria-labelledby="decide" {
                    header { h2 #decide { "Manual decision" } p { "possible after the terms are accepted" } }
                    div.body {
                        @if customer.is_active {
                            form.stack #decision method="post" action={ (here) "/decide" } {
                                (filled.choice("outcome", "Decision", &OUTCOMES))
                                (filled.line("reason", "Reason, without personal data", "basis of the decision", true))
                                div { button { "Decide" } }
                            }
                        } @else { p { "The customer is deactivated and cannot be changed." } }
                    }
                }
                (history(view, now))
            }
        }
    };
    Page::still(customer.email.clone(), NavSection::Customers, body)
}

fn facts(customer: &CustomerLine, now: Timestamp) -> Markup {
    html! {
        section.panel #standing aria-labelledby="where" {
            header { h2 #where { "Status" } p { @if customer.is_cleared { "may transact" } @else { "may not transact" } } }
            div.body {
                dl.facts {
                    dt { "Kind" } dd { (customer.kind) ", " (customer.country) }
                    dt { "PSP" } dd { a.mono href={ (path("psps")) "/" (customer.psp_id) } { (customer.psp_id) } }
                    dt { "Terms" } dd { @match customer.tos_accepted_at { Some(at) => { "accepted " (ago(at.0, now)) }, None => "not accepted" } }
                    dt { "Missing" } dd { (missing(customer)) }
                    @if let Some(before) = customer.before_update {
                        dt { "Status before the update" } dd { (plain(before.as_str())) }
                    }
                    @if !customer.rejection_reasons.is_empty() {
                        dt { "Rejected for" } dd { (customer.rejection_reasons.join("; ")) }
                    }
                    dt { "Created" } dd { (ago(customer.created_at.0, now)) }
                }
            }
        }
    }
}

fn checks(checks: &[CheckLine], now: Timestamp) -> Markup {
    html! {
        section.panel #checks aria-labelledby="its-checks" {
            header { h2 #its-checks { "Checks" } p { "with the identity provider" } }
            @if checks.is_empty() { p.none { "None yet." } } @else {
                table {
                    thead { tr { th scope="col" { "Check" } th scope="col" { "State" } th.wide scope="col" { "Provider" } th.n.wide scope="col" { "Requested" } } }
                    tbody {
                        @for check in checks {
                            tr id=(check.verification_id) {
                                th scope="row" { (check.purpose) br; small.mono { (check.verification_id) } }
                                td {
                                    (badge(&check.status, tone(&check.status)))
                                    @if let Some(error) = &check.last_error { br; small { (check.attempts) " failed attempts: " (error) } }
                                }
                                td.wide { (check.provider.as_deref().unwrap_or("not requested yet")) }
                                td.n.wide { (ago(check.created_at.0, now)) }
                            }
                        }
                    }
                }
            }
        }
    }
}

fn tone(check: &str) -> Tone {
    match check {
        "passed" => Tone::Good,
        "failed" => Tone::Bad,
        "queued" | "open" => Tone::Warn,
        _ => Tone::Idle,
    }
}

fn documents(customer: &CustomerLine, documents: &[DocumentLine], now: Timestamp) -> Markup {
    html! {
        section.panel #documents aria-labelledby="its-documents" {
            header { h2 #its-documents { "Documents" } p { "each access is recorded in the audit log" } }
            @if documents.is_empty() { p.none { "None yet." } } @else {
                table {
                    thead { tr { th scope="col" { "Document" } th.n scope="col" { "Size" } th.n.wide scope="col" { "Uploaded" } } }
                    tbody {
                        @for document in documents {
                            tr id=(document.document_id) {
                                th scope="row" {
                                    @if document.replaced_at.is_none() {
                                        a href={ "/ops/customers/" (customer.customer_id) "/documents/" (document.kind) } { (plain(&document.kind)) }
                                    } @else { span.soft { (plain(&document.kind)) ", replaced" } }
                                    br; small { (document.media_type) }
                                }
                                td.n { (grouped(document.size.into())) " B" }
                                td.n.wide { (ago(document.uploaded_at.0, now)) }
                            }
                        }
                    }
                }
            }
        }
    }
}

fn history(view: &CustomerView, now: Timestamp) -> Markup {
    html! {
        section.panel #history aria-labelledby="who" {
            header { h2 #who { "Audit log" } p { (grouped(view.history.len().try_into().unwrap_or(i128::MAX))) } }
            ol.log {
                @for entry in &view.history {
                    li id={ "entry-" (entry.number) } {
                        span.when { (clock(entry.at.0, now)) }
                        span.what { (plain(entry.action.strip_prefix("customer.").unwrap_or(&entry.action))) }
                        span.why { (plain(&entry.actor_kind)) @if !entry.actor.is_empty() { " " span.mono { (entry.actor) } } }
                        span.done { @if let Some(reason) = entry.detail["reason"].as_str() { (reason) } }
                    }
                }
            }
        }
    }
}
