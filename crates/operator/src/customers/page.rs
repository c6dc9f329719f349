//! Pages of the customers: their state, checks and audit log, and a form for a manual decision.

use axum::extract::Path;
use axum::http::{StatusCode, Uri};
use axum::response::{IntoResponse, Redirect, Response};
use maud::{Markup, html};
use payferry_domain::customer::{self, Customer, KycStatus};
use payferry_domain::{CustomerId, Timestamp};
use payferry_entities::{CheckStatus, checks, customer_documents};
use payferry_httpkit::lists::Page as ListPage;
use payferry_httpkit::{QueryFields, RequestBody as _};

use crate::Operator;
use crate::actors::panel::given_up;
use crate::actors::quarantine;
use crate::customers::query::{CustomerLine, CustomerPage, CustomerView};
use crate::customers::{CustomerDecision, FIELDS, carry_out, filter, query as customers};
use crate::page::form::Filled;
use crate::page::words::{Tone, ago, audit_log, badge, bounded, done, grouped, head, offset_pages, panel, plain};
use crate::page::{Failure, NavSection, Page, Refused, id_of, path};

const CUSTOMERS_MAX: u64 = 50;
const OUTCOMES: [(&str, &str); 2] = [("approved", "approve"), ("rejected", "reject")];

/// `/ops/view/customers`: the customers that match the search, newest first.
pub(crate) async fn list(operator: Operator, uri: Uri) -> Result<Response, Failure> {
    let mut query = QueryFields::of(&uri);
    let search = CustomerSearch::of(&mut query);
    let filter = filter(&mut query);
    if query.finish().is_err() {
        let page = list_page(&operator, &search, None);
        return Ok(Page { status: StatusCode::BAD_REQUEST, ..page }.into_response());
    }
    let part = ListPage::at("customers", CUSTOMERS_MAX, search.offset);
    let (total, mut found) = customers::list(operator.system.database(), &filter, &part).await?;
    part.cut(&mut found);
    Ok(list_page(&operator, &search, Some(&(total, found))).into_response())
}

/// `/ops/view/customers/{customer_id}`: one customer.
pub(crate) async fn show(operator: Operator, Path(customer_id): Path<String>, uri: Uri) -> Result<Response, Failure> {
    let view = find(&operator, &customer_id).await?;
    let is_decided = QueryFields::of(&uri).optional("done", |word| Ok(word == "decided")) == Some(true);
    let said = html! { @if is_decided { (done("The decision is recorded and in effect.")) } };
    Ok(page(&operator, &view, &said, &Filled::default()).into_response())
}

pub(crate) async fn decide(
    operator: Operator,
    Path(customer_id): Path<String>,
    filled: Filled,
) -> Result<Response, Refused> {
    let before = find(&operator, &customer_id).await?;
    let outcome =
        async { carry_out(&operator, before.line.customer.id, filled.read(&FIELDS, CustomerDecision::read)?).await };
    match filled.answered(outcome.await)? {
        Ok(()) => Ok(Redirect::to(&format!("{}/{customer_id}?done=decided", path("customers"))).into_response()),
        Err(refused) => Ok(page(&operator, &before, &refused.said, &refused.filled).answer_form(refused.status)),
    }
}

/// Releases a quarantined customer.
pub(crate) async fn release(operator: Operator, Path(id): Path<String>, filled: Filled) -> Result<Response, Refused> {
    let id: CustomerId = id_of("customer", &id)?;
    quarantine::release_by_form(&operator, &filled, id).await
}

async fn find(operator: &Operator, customer_id: &str) -> Result<CustomerView, Failure> {
    let found = customers::one(&operator.system, id_of("customer", customer_id)?).await?;
    found.ok_or_else(|| Failure::not_found("customer", customer_id))
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

fn list_page(operator: &Operator, search: &CustomerSearch, found: Option<&CustomerPage>) -> Page {
    let now = operator.system.clock().now();
    let body = html! {
        div.title { h1 { "Customers" } p { "Payers and payees, and their verification status." } }
        (panel("find", "Find", "", &html! {
            div.body {
                form.stack #find-customers method="get" action=(path("customers")) {
                    div.pair {
                        label { "Email or part of it"
                            input type="search" name="search" value=(search.search) autocomplete="off" spellcheck="false"; }
                        label { "Verification"
                            select name="kyc_status" {
                                option value="" { "any" }
                                @for status in KycStatus::ALL {
                                    option value=(status) selected[search.kyc_status == status.as_str()] { (plain(status.as_str())) }
                                }
                            } }
                        label { "PSP" input type="text" name="psp_id" value=(search.psp_id) placeholder="psp_…" autocomplete="off"; }
                    }
                    div { button { "Find" } }
                }
            }
        }))
        @match found {
            None => p.notice.bad role="alert" { "Invalid search: check the PSP id." },
            Some(found) => (listed(search, found, now)),
        }
    };
    Page::still("Customers", NavSection::Customers, body)
}

fn listed(search: &CustomerSearch, (total, found): &CustomerPage, now: Timestamp) -> Markup {
    let next = search.offset + CUSTOMERS_MAX;
    let is_full = u64::try_from(found.len()) == Ok(CUSTOMERS_MAX);
    // If the count is truncated, a full page may have a next page.
    let has_next = is_full && (total.more || next < total.counted);
    html! {
        section.panel aria-labelledby="found" {
            header { h2 #found { "Found" } p { (bounded(*total)) } }
            @if found.is_empty() { p.none { "None." } } @else { (table(found, now)) }
            (offset_pages("customers", search.offset, CUSTOMERS_MAX, has_next, |offset| search.at(offset)))
        }
    }
}

fn table(customers: &[CustomerLine], now: Timestamp) -> Markup {
    html! {
        table {
            (head(&[("", "Customer"), ("", "Verification"), ("wide", "Missing"), ("wide", "Country"), ("n wide", "Changed")]))
            tbody {
                @for line in customers {
                    @let customer = &line.customer;
                    tr id=(customer.id) {
                        th scope="row" {
                            a href={ (path("customers")) "/" (customer.id) } { (line.email) }
                            br; small { (customer.kind.as_str()) ", " span.mono { (customer.id) } }
                        }
                        td { (state(customer)) }
                        td.wide { (missing(customer)) }
                        td.wide { (line.country) }
                        td.n.wide { (ago(line.updated_at, now)) }
                    }
                }
            }
        }
    }
}

fn state(customer: &Customer) -> Markup {
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

fn missing(customer: &Customer) -> Markup {
    let missing = customer::missing(customer);
    html! {
        @if missing.is_empty() { span.soft { "nothing" } }
        @for (index, one) in missing.iter().enumerate() { @if index > 0 { ", " } (plain(one.as_str())) }
    }
}

fn page(operator: &Operator, view: &CustomerView, said: &Markup, filled: &Filled) -> Page {
    let (now, real_now) = (operator.system.clock().now(), operator.system.clock().real_now());
    let CustomerLine { customer, email, .. } = &view.line;
    let here = format!("{}/{}", path("customers"), customer.id);
    let body = html! {
        p.crumbs { a href=(path("customers")) { "Customers" } span { "Customer" } }
        div.title { h1 { (email) } (state(customer)) p { span.mono { (customer.id) } } }
        (said)
        (given_up(customer.id, view.quarantined.as_ref(), real_now))
        div.grid.two {
            div.col {
                (facts(&view.line, now))
                (checks(&view.checks, now))
                (documents(customer, &view.documents, now))
            }
            div.col {
                (panel("decide", "Manual decision", "possible after the terms are accepted", &html! {
                    div.body {
                        @if customer.is_active {
                            form.stack #decision method="post" action={ (here) "/decide" } {
                                (filled.choice("outcome", "Decision", &OUTCOMES))
                                (filled.sign("basis of the decision", "I have checked the customer's documents"))
                                div { button { "Decide" } }
                            }
                        } @else { p { "The customer is deactivated and cannot be changed." } }
                    }
                }))
                (audit_log(&view.history, "customer.", &html! { p { (grouped(view.history.len())) } }, "", now))
            }
        }
    };
    Page::still(email.clone(), NavSection::Customers, body)
}

fn facts(line: &CustomerLine, now: Timestamp) -> Markup {
    let customer = &line.customer;
    html! {
        section.panel #standing aria-labelledby="where" {
            header { h2 #where { "Status" } p { @if customer.is_cleared() { "may transact" } @else { "may not transact" } } }
            div.body {
                dl.facts {
                    dt { "Kind" } dd { (customer.kind.as_str()) ", " (line.country) }
                    dt { "PSP" } dd { a.mono href={ (path("psps")) "/" (customer.psp_id) } { (customer.psp_id) } }
                    dt { "Terms" } dd { @match customer.tos_accepted_at { Some(at) => { "accepted " (ago(at, now)) }, None => "not accepted" } }
                    dt { "Missing" } dd { (missing(customer)) }
                    @if let Some(before) = customer.before_update {
                        dt { "Status before the update" } dd { (plain(before.as_str())) }
                    }
                    @if !customer.rejection_reasons.is_empty() {
                        dt { "Rejected for" } dd { (customer.rejection_reasons.join("; ")) }
                    }
                    dt { "Created" } dd { (ago(line.created_at, now)) }
                }
            }
        }
    }
}

fn checks(checks: &[checks::Model], now: Timestamp) -> Markup {
    html! {
        section.panel #checks aria-labelledby="its-checks" {
            header { h2 #its-checks { "Checks" } p { "with the identity provider" } }
            @if checks.is_empty() { p.none { "None yet." } } @else {
                table {
                    (head(&[("", "Check"), ("", "State"), ("wide", "Provider"), ("n wide", "Requested")]))
                    tbody {
                        @for check in checks {
                            tr id=(check.id) {
                                th scope="row" { (check.purpose) br; small.mono { (check.id) } }
                                td {
                                    (badge(check.status.as_str(), tone(check.status)))
                                    @if let Some(error) = &check.last_error { br; small { (check.attempts) " failed attempts: " (error) } }
                                }
                                td.wide { (check.provider.as_deref().unwrap_or("not requested yet")) }
                                td.n.wide { (ago(Timestamp(check.created_at), now)) }
                            }
                        }
                    }
                }
            }
        }
    }
}

fn tone(check: CheckStatus) -> Tone {
    match check {
        CheckStatus::Passed => Tone::Good,
        CheckStatus::Failed => Tone::Bad,
        CheckStatus::Queued | CheckStatus::Open => Tone::Warn,
        CheckStatus::Lapsed | CheckStatus::Superseded => Tone::Idle,
    }
}

fn documents(customer: &Customer, documents: &[customer_documents::Model], now: Timestamp) -> Markup {
    html! {
        section.panel #documents aria-labelledby="its-documents" {
            header { h2 #its-documents { "Documents" } p { "each access is recorded in the audit log" } }
            @if documents.is_empty() { p.none { "None yet." } } @else {
                table {
                    (head(&[("", "Document"), ("n", "Size"), ("n wide", "Uploaded")]))
                    tbody {
                        @for document in documents {
                            tr id=(document.id) {
                                th scope="row" {
                                    @if document.replaced_at.is_none() {
                                        a href={ "/ops/customers/" (customer.id) "/documents/" (document.kind) } { (plain(&document.kind)) }
                                    } @else { span.soft { (plain(&document.kind)) ", replaced" } }
                                    br; small { (document.media_type) }
                                }
                                td.n { (grouped(document.size)) " B" }
                                td.n.wide { (ago(Timestamp(document.uploaded_at), now)) }
                            }
                        }
                    }
                }
            }
        }
    }
}
