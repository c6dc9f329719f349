//! Pages of the actions on many subjects: filter, preview, confirmation and progress.

use axum::extract::{Path, Query};
use axum::response::{IntoResponse, Redirect, Response};
use maud::{Markup, Render, html};
use payferry_domain::{BulkJobId, Chain, Timestamp};
use payferry_entities::DeliveryStatus;
use payferry_httpkit::RequestBody as _;
use serde::Deserialize;

use super::jobs::{Job, JobState};
use super::selection::{self, Candidate, Selection};
use super::{BULK_ITEMS_MAX, BulkAction, BulkFilter, BulkJobRecord, BulkRequest, BulkSum, FIELDS, Outcome, begin};
use crate::Operator;
use crate::lists::deliveries::subject;
use crate::lists::{field, query as link, select};
use crate::page::form::{ChangeButton, Filled, answer_button};
use crate::page::words::{Tone, ago, badge, count, grouped, head, heading, panel};
use crate::page::{Failure, NavSection, Page, PageRequest, Refused, id_of, path};

/// Subjects on the page of a preview.
const SHOWN_MAX: usize = 200;

/// Query of the page.
#[derive(Debug, Default, Clone, Deserialize)]
pub(crate) struct Wanted {
    action: Option<String>,
    psp_id: Option<String>,
    chain: Option<String>,
    contains: Option<String>,
    status: Option<String>,
}

impl Wanted {
    /// The filter; `None` without an action.
    fn filter(&self) -> Result<Option<BulkFilter>, Failure> {
        let Some(action) = given(self.action.as_ref()) else { return Ok(None) };
        Ok(Some(BulkFilter {
            action: id_of("action", action)?,
            psp_id: given(self.psp_id.as_ref()).map(|id| id_of("PSP", id)).transpose()?,
            chain: given(self.chain.as_ref()).map(|name| id_of("chain", name)).transpose()?,
            contains: given(self.contains.as_ref()).map(str::to_owned),
            status: given(self.status.as_ref()).map(|name| id_of("status of a delivery", name)).transpose()?,
        }))
    }

    /// The fields that are set.
    fn pairs(&self) -> [(&'static str, Option<&str>); 5] {
        [
            ("action", given(self.action.as_ref())),
            ("psp_id", given(self.psp_id.as_ref())),
            ("chain", given(self.chain.as_ref())),
            ("contains", given(self.contains.as_ref())),
            ("status", given(self.status.as_ref())),
        ]
    }
}

fn given(text: Option<&String>) -> Option<&str> {
    text.map(String::as_str).map(str::trim).filter(|text| !text.is_empty())
}

/// Link from a list of subjects to the action on all of them.
pub(crate) fn link_to(action: BulkAction, words: &str) -> Markup {
    let action = action.as_str();
    html! { a.more href={ (path("bulk")) "?action=" (action) } { (words) } }
}

/// `/ops/view/bulk`: the filter, the preview and the last jobs.
pub(crate) async fn show(operator: Operator, Query(wanted): Query<Wanted>) -> Result<Response, Failure> {
    let page = page(&operator, &wanted, &html! {}, &Filled::default()).await?;
    Ok(page.into_response())
}

/// Starts a job.
pub(crate) async fn start(operator: Operator, filled: Filled) -> Result<Response, Refused> {
    let outcome = async { begin(&operator, filled.read(&FIELDS, BulkRequest::read)?).await };
    match filled.answered(outcome.await)? {
        Ok(job) => Ok(Redirect::to(&format!("{}/{}", path("bulk"), job.id)).into_response()),
        Err(refused) => {
            let text = |name: &str| Some(refused.filled.value(name).to_owned());
            let wanted = Wanted {
                action: text("action"),
                psp_id: text("psp_id"),
                chain: text("chain"),
                contains: text("contains"),
                status: text("status"),
            };
            Ok(page(&operator, &wanted, &refused.said, &refused.filled).await?.answer_form(refused.status))
        }
    }
}

/// `/ops/view/bulk/{job_id}`: the progress of a job.
pub(crate) async fn show_job(
    operator: Operator,
    Path(id): Path<String>,
    request: PageRequest,
) -> Result<Response, Failure> {
    let job = find(&operator, &id)?;
    let body = job_body(&job, operator.system.clock().real_now());
    Ok(request.answer(&Page::live(heading(job.action.as_str()), NavSection::Attention, body)))
}

/// Stops a job.
pub(crate) async fn stop(operator: Operator, Path(id): Path<String>, filled: Filled) -> Result<Response, Refused> {
    let job = find(&operator, &id)?;
    answer_button(&filled, &format!("{}/{}", path("bulk"), job.id), async {
        job.stop();
        Ok(())
    })
    .await
}

fn find(operator: &Operator, id: &str) -> Result<std::sync::Arc<Job>, Failure> {
    let parsed: BulkJobId = id_of("job", id)?;
    operator.bulk.find(parsed).ok_or_else(|| Failure::not_found("job", id))
}

async fn page(operator: &Operator, wanted: &Wanted, said: &Markup, filled: &Filled) -> Result<Page, Failure> {
    let preview = match wanted.filter()? {
        Some(filter) => {
            let found = selection::find(operator, &filter).await.map_err(|error| Failure::of_form(&error))?;
            Some((filter.action, found))
        }
        None => None,
    };
    let now = operator.system.clock().real_now();
    let jobs = operator.bulk.all();
    let body = html! {
        p.crumbs { a href=(path("stuck")) { "Needs attention" } span { "bulk actions" } }
        div.title { h1 { "Bulk actions" } p { "One action on at most " (grouped(BULK_ITEMS_MAX)) " subjects. Nothing is changed before the confirmation." } }
        (said)
        (filter_form(wanted))
        @if let Some((action, selection)) = &preview { (preview_panel(wanted, *action, selection, filled)) }
        @if !jobs.is_empty() { (panel("jobs", "Last jobs", "of this node", &job_table(&jobs, now))) }
    };
    Ok(Page::still("Bulk actions", NavSection::Attention, body))
}

fn filter_form(wanted: &Wanted) -> Markup {
    let chains: Vec<&str> = Chain::ALL.iter().map(|chain| chain.as_str()).collect();
    let statuses = DeliveryStatus::ALL.map(DeliveryStatus::as_str);
    html! {
        form.filters method="get" action=(path("bulk")) {
            label {
                "Action"
                select name="action" required {
                    @for action in BulkAction::ALL { option value=(action) selected[given(wanted.action.as_ref()) == Some(action.as_str())] { (heading(action.as_str())) } }
                }
            }
            (field("psp_id", "PSP", given(wanted.psp_id.as_ref()), "psp_…"))
            (select("chain", "Chain", given(wanted.chain.as_ref()), &chains))
            (field("contains", "Reason contains", given(wanted.contains.as_ref()), "part of the reason"))
            (select("status", "Status (deliveries)", given(wanted.status.as_ref()), &statuses))
            div { button { "Preview" } }
        }
    }
}

fn preview_panel(wanted: &Wanted, action: BulkAction, selection: &Selection, filled: &Filled) -> Markup {
    let Selection { candidates, more } = selection;
    let total = candidates.len();
    let note = if *more { "the filter finds more than one job can have" } else { "" };
    let statement = format!("I have checked the list: {} of {}", action_words(action), grouped(total));
    let body = html! {
        @if candidates.is_empty() { p.none { "The filter finds nothing." } } @else {
            (sums_of(&selection.sums()))
            (candidate_table(&candidates[..total.min(SHOWN_MAX)]))
            @if total > SHOWN_MAX { p.none { "And " (grouped(total - SHOWN_MAX)) " more." } }
            div.body {
                form.stack #start-job method="post" action=(path("bulk")) {
                    @for (name, value) in wanted.pairs().into_iter().filter_map(|(name, value)| Some((name, value?))) {
                        input type="hidden" name=(name) value=(value);
                    }
                    input type="hidden" name="selection" value=(selection.name(action));
                    (filled.sign("basis of the decision", &statement))
                    div { button.danger { (heading(action.as_str())) " (" (grouped(total)) ")" } }
                }
            }
        }
    };
    panel("preview", &format!("Preview: {}", grouped(total)), note, &body)
}

/// The action as a noun.
const fn action_words(action: BulkAction) -> &'static str {
    match action {
        BulkAction::Release => "release",
        BulkAction::Redeliver => "redelivery",
        BulkAction::RetrySettlement => "settlement retry",
        BulkAction::ApproveRefund => "refund approval",
    }
}

fn sums_of(sums: &[BulkSum]) -> Markup {
    html! {
        @if !sums.is_empty() {
            dl.facts #sums { @for BulkSum { currency, amount } in sums { dt { (currency) } dd { strong { (amount) } } } }
        }
    }
}

fn candidate_table(candidates: &[Candidate]) -> Markup {
    html! {
        table {
            (head(&[("", "Subject"), ("n", "Amount"), ("wide", "Chain"), ("wide", "Reason")]))
            tbody {
                @for candidate in candidates {
                    tr id={ "candidate-" (candidate.id) } {
                        th scope="row" {
                            (subject(&candidate.subject))
                            @if candidate.id != candidate.subject { br; small.mono { (candidate.id) } }
                        }
                        td.n { @match &candidate.money { Some((amount, currency)) => { (amount) " " (currency) }, None => "–" } }
                        td.wide { (candidate.chain.as_deref().unwrap_or("–")) }
                        td.wide { span.reason { (candidate.reason) } }
                    }
                }
            }
        }
    }
}

fn job_table(jobs: &[std::sync::Arc<Job>], now: Timestamp) -> Markup {
    html! {
        table {
            (head(&[("", "Action"), ("", "State"), ("n", "Subjects"), ("wide", "Operator"), ("n wide", "Started")]))
            tbody {
                @for job in jobs {
                    tr id=(job.id) {
                        th scope="row" { a href={ (path("bulk")) "/" (job.id) } { (heading(job.action.as_str())) } }
                        td { (state(job.progress().state)) }
                        td.n { (grouped(job.total)) }
                        td.wide { (job.operator) }
                        td.n.wide { (ago(job.started_at, now)) }
                    }
                }
            }
        }
    }
}

fn state(state: JobState) -> Markup {
    let tone = match state {
        JobState::Running => Tone::Warn,
        JobState::Completed => Tone::Good,
        JobState::Stopped => Tone::Idle,
        JobState::Interrupted => Tone::Bad,
    };
    badge(state.as_str(), tone)
}

fn job_body(job: &Job, now: Timestamp) -> Markup {
    let record = BulkJobRecord::of(job);
    let done = record.outcomes.len();
    let is_running = record.state == JobState::Running;
    let others = record.outcomes.iter().filter(|one| one.outcome != Outcome::CarriedOut);
    let again = format!("{}{}", path("bulk"), link(&[("action", Some(job.action.as_str()))]));
    html! {
        p.crumbs { a href=(path("stuck")) { "Needs attention" } a href=(path("bulk")) { "bulk actions" } span { "job" } }
        div.title {
            h1 { (heading(job.action.as_str())) }
            (state(record.state))
            p { "Started " (ago(job.started_at, now)) " by " strong { (job.operator) } ": " (job.reason) }
        }
        section.panel aria-labelledby="progress" {
            header { h2 #progress { "Progress" } p { (grouped(done)) " of " (grouped(job.total)) } }
            div.body { progress #bar max=(job.total) value=(done) aria-labelledby="progress" {} }
            dl.facts {
                dt { "Carried out" } dd #carried-out { (count(record.carried_out)) }
                dt { "Wait for approval" } dd { (count(record.proposed)) }
                dt { "Refused" } dd { (count(record.refused)) }
                dt { "Failed" } dd { (count(record.failed)) }
                @for BulkSum { currency, amount } in &job.sums { dt { "Money (" (currency) ")" } dd { (amount) } }
            }
            div.body {
                @if is_running {
                    (ChangeButton {
                        label: "Stop", subject: "the job", action: &format!("{}/{}/stop", path("bulk"), job.id), hidden: &[],
                        statement: "The rest must not be carried out",
                    }.render())
                } @else if done < job.total {
                    p { (grouped(job.total - done)) " were not reached and are unchanged. " a href=(again) { "Preview again" } }
                }
            }
        }
        @if others.clone().next().is_some() {
            (panel("others", "Not carried out", "", &html! {
                table {
                    (head(&[("", "Subject"), ("", "Outcome"), ("", "Reason")]))
                    tbody {
                        @for one in others {
                            tr id={ "outcome-" (one.id) } {
                                th.mono scope="row" { (one.id) }
                                td { (badge(one.outcome.as_str(), if one.outcome == Outcome::Proposed { Tone::Warn } else { Tone::Bad })) }
                                td { @if let Some(detail) = &one.detail { span.reason { (detail) } } }
                            }
                        }
                    }
                }
            }))
        }
    }
}
