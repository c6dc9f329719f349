//! Replay of a payment: what each of its transitions did, and its state after each.

use axum::extract::{Path as UrlPath, Query};
use axum::response::Response;
use maud::{Markup, html};
use payferry_domain::payment::{Announcement, Command, DecisionDifference, Event, Payment, Transition};
use payferry_domain::{Amount, PaymentId, Timestamp};
use payferry_httpkit::lists::DateTime;
use payferry_httpkit::{Answer, ApiError, Path, Problem};
use payferry_journal::replay::{ReplayedHistory, ReplayedStep, history_of};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use utoipa::ToSchema;

use crate::Operator;
use crate::actors::effects;
use crate::input::payment_id_of;
use crate::openapi::FreeObject;
use crate::page::words::{Tone, badge, clock, exact, grouped, panel, plain, status};
use crate::page::{Failure, NavSection, Page, PageRequest, path};

/// Fields that a page or response does not show: secrets, and the PSP's own data.
const PRIVATE_FIELDS: [&str; 2] = ["link_token", "metadata"];

record! {
    fn of(step: ReplayedStep) -> Result<Self, ApiError> {
        let ReplayedStep { stored, decided_us, replayed } = step;
        let Transition { payment, announcements, effects: due, postings, .. } = replayed.transition;
    }

    /// A transition, as the rules of this version carry it out.
    pub struct StepRecord {
        /// Version of the payment after it.
        version: u32 = stored.version,
        at: DateTime = stored.at.into(),
        /// Name of the command that caused it. Null for the initiation, and if an earlier version did not store it.
        command: Option<&'static str> = stored.command.as_ref().map(Command::name),
        /// The command as it is stored.
        message: Option<FreeObject> = stored.command.as_ref().map(free).transpose()?,
        /// Time that the decision took, microseconds.
        decided_us: Option<i64> = decided_us,
        /// Events as they are stored.
        events: Vec<FreeObject> = stored.events.iter().map(free).collect::<Result<_, _>>()?,
        /// Names of the announced events.
        announcements: Vec<&'static str> = announcements.iter().map(|one| one.name.as_str()).collect(),
        /// Ledger postings.
        postings: Vec<PostingRecord> = postings.into_iter().map(PostingRecord::of).collect(),
        /// Effects after the commit; `effect` names the kind of each.
        effects: Vec<FreeObject> = effects(&due)?,
        /// True if the current rules would decide otherwise.
        differs: bool = replayed.difference.is_some() || replayed.violated.is_some(),
        /// The payment after it.
        state: FreeObject = free(&payment)?,
    }
}

record! {
    fn of(posting: payferry_domain::ledger::Posting) {}

    /// A ledger posting.
    pub struct PostingRecord {
        kind: &'static str = posting.kind.as_str(),
        amount: String = posting.amount.to_string(),
        debit: &'static str = posting.debit.as_str(),
        credit: &'static str = posting.credit.as_str(),
        reference: String = posting.reference,
    }
}

/// The replayed history of a payment.
#[derive(Serialize, ToSchema)]
pub struct ReplayRecord {
    payment_id: String,
    /// Oldest first, at most 5,000.
    steps: Vec<StepRecord>,
    /// Reason why the rest cannot be replayed.
    stopped: Option<String>,
}

/// Replay a payment
///
/// Each transition with its command, the stored events, and what follows from them by the rules of this version.
#[utoipa::path(
    get, path = "/ops/payments/{payment_id}/replay", tag = "Money", operation_id = "replayPayment",
    params(("payment_id" = String, Path, description = "The payment.")),
    responses(
        (status = 200, description = "The history.", body = ReplayRecord),
        (status = 404, description = "`payment_not_found`.", body = Problem),
    ),
)]
pub(crate) async fn data(operator: Operator, Path(id): Path<String>) -> Result<Answer, ApiError> {
    let id = payment_id_of(&id)?;
    let ReplayedHistory { steps, stopped } = history_of(operator.system.database(), id).await?;
    if steps.is_empty() && stopped.is_none() {
        return Err(ApiError::NotFound("payment"));
    }
    let steps = steps.into_iter().map(StepRecord::of).collect::<Result<_, _>>()?;
    Answer::ok(&ReplayRecord { payment_id: id.to_string(), steps, stopped })
}

/// The value without private fields.
fn free(value: &impl Serialize) -> Result<FreeObject, ApiError> {
    Ok(public(serde_json::to_value(value)?).into())
}

fn public(value: Value) -> Value {
    match value {
        Value::Object(fields) => {
            let shown = fields.into_iter().filter(|(name, _)| !PRIVATE_FIELDS.contains(&name.as_str()));
            Value::Object(shown.map(|(name, value)| (name, public(value))).collect())
        }
        Value::Array(items) => items.into_iter().map(public).collect(),
        other => other,
    }
}

/// Version that is shown.
#[derive(Deserialize)]
pub(crate) struct At {
    version: Option<u32>,
}

/// `/ops/view/payments/{payment_id}/replay`: one transition, with links to the others.
pub(crate) async fn show(
    operator: Operator,
    UrlPath(id): UrlPath<String>,
    Query(at): Query<At>,
    request: PageRequest,
) -> Result<Response, Failure> {
    let missing = || Failure::not_found("payment", id.clone());
    let id = PaymentId::of_public(&id).ok_or_else(missing)?;
    let history = history_of(operator.system.database(), id).await?;
    let newest = history.steps.last().ok_or_else(missing)?.stored.version;
    let wanted = at.version.unwrap_or(newest);
    let place = history.steps.iter().position(|step| step.stored.version == wanted);
    let place = place.ok_or_else(|| Failure::not_found("version of the payment", wanted.to_string()))?;
    let body = body(id, &history, place, operator.system.clock().now());
    Ok(request.answer(&Page::still(format!("Replay of {id}"), NavSection::Payments, body)))
}

fn body(id: PaymentId, history: &ReplayedHistory, place: usize, now: Timestamp) -> Markup {
    let here = format!("{}/{id}/replay", path("payments"));
    let steps = &history.steps;
    let step = &steps[place];
    let before = place.checked_sub(1).map(|before| &steps[before].replayed.transition.payment);
    html! {
        p.crumbs { a href=(path("payments")) { "Payments" } a href={ (path("payments")) "/" (id) } { "payment" } span { "replay" } }
        div.title {
            h1 { "Replay" }
            (status(step.replayed.transition.payment.status.as_str()))
            p { span.mono { (id) } ", version " (step.stored.version) " of " (steps.len()) ", at " (exact(step.stored.at)) }
        }
        (scrubber(&here, steps, place))
        @if let Some(stopped) = &history.stopped { p.notice.bad role="status" { "The history stops at " (stopped) } }
        @if let Some(difference) = &step.replayed.difference { (differs(difference)) }
        @if let Some(violated) = &step.replayed.violated { p.notice.bad role="status" { (violated) } }
        div.grid.two {
            div.col {
                (cause(step))
                (follows(&step.replayed.transition, now))
            }
            div.col { (state(&step.replayed.transition.payment, before)) }
        }
    }
}

/// Links to every version, and to the ones beside this one.
fn scrubber(here: &str, steps: &[ReplayedStep], place: usize) -> Markup {
    let at = |place: usize| format!("{here}?version={}", steps[place].stored.version);
    html! {
        nav.scrub aria-label="Versions" {
            @if place > 0 { a rel="prev" href=(at(place - 1)) { "Previous" } } @else { span.soft { "Previous" } }
            ol {
                @for (index, step) in steps.iter().enumerate() {
                    @let words = step.stored.events.iter().map(|event| plain(event.name())).collect::<Vec<_>>().join(", ");
                    li { a href=(at(index)) title=(words) aria-current=[(index == place).then_some("step")] .bad-ink[step.replayed.difference.is_some()] { (step.stored.version) } }
                }
            }
            @if place + 1 < steps.len() { a rel="next" href=(at(place + 1)) { "Next" } } @else { span.soft { "Next" } }
        }
    }
}

fn differs(difference: &DecisionDifference) -> Markup {
    let names = |events: &[Event]| {
        if events.is_empty() {
            "nothing".to_owned()
        } else {
            events.iter().map(|event| plain(event.name())).collect::<Vec<_>>().join(", ")
        }
    };
    html! {
        p.notice.warn role="status" {
            strong { "This version would decide otherwise: " }
            @match difference {
                DecisionDifference::Decided(events) => (names(events)),
                DecisionDifference::Rejected(rejection) => { "rejected, because " (rejection) },
                DecisionDifference::Violated(violated) => (violated),
            }
        }
    }
}

/// The message that caused the transition, and the decision.
fn cause(step: &ReplayedStep) -> Markup {
    let body = html! {
        dl.facts {
            dt { "Message" }
            dd {
                @match &step.stored.command {
                    Some(command) => {
                        strong { (plain(command.name())) }
                        (json("Contents", command))
                    }
                    None if step.stored.version == 1 => "request of the PSP",
                    None => span.soft { "not stored by the version that wrote it" },
                }
            }
            dt { "Decision" } dd { @match step.decided_us { Some(took) => { "in " (grouped(took)) " µs" }, None => span.soft { "time not stored" } } }
            dt { "Events" }
            dd { @for event in &step.stored.events { div { strong { (plain(event.name())) } (json("Contents", event)) } } }
        }
    };
    panel("cause", "Message and decision", "", &body)
}

/// Panel of the announcements, postings and effects of the events.
fn follows(transition: &Transition, now: Timestamp) -> Markup {
    let body = html! {
        dl.facts {
            dt { "Announced" }
            dd {
                @for Announcement { name, sequence, .. } in &transition.announcements { div { (name) " " small { "number " (sequence) } } }
                @if transition.announcements.is_empty() { span.soft { "nothing" } }
            }
            dt { "Posted" }
            dd {
                @for posting in &transition.postings {
                    div { (posting.amount) " " (plain(posting.kind.as_str())) ", from " (plain(posting.debit.as_str())) " to " (plain(posting.credit.as_str())) }
                }
                @if transition.postings.is_empty() { span.soft { "nothing" } }
            }
            dt { "Effects" }
            dd {
                @for effect in &transition.effects {
                    @let value = serde_json::to_value(effect).unwrap_or_default();
                    div { (plain(value["effect"].as_str().unwrap_or("alarm"))) }
                }
                @if transition.effects.is_empty() { span.soft { "nothing" } }
            }
            dt { "Committed" } dd { (clock(transition.payment.updated_at, now)) }
        }
    };
    panel("follows", "What followed", "", &body)
}

/// The payment after the transition. Fields that it changed are marked.
fn state(payment: &Payment, before: Option<&Payment>) -> Markup {
    let changed = |is_so: fn(&Payment, &Payment) -> bool| before.is_some_and(|before| is_so(before, payment));
    let labels: Vec<_> = payment.labels.iter().collect();
    let fact = |name: &str, is_changed: bool, value: &Markup| {
        html! { dt { (name) } dd .warn-ink[is_changed] { (value) @if is_changed { " " (badge("changed", Tone::Warn)) } } }
    };
    let amount = |amount: Amount| html! { (amount) };
    let body = html! {
        dl.facts {
            (fact("Status", changed(|one, other| one.status != other.status), &status(payment.status.as_str())))
            (fact("Labels", changed(|one, other| one.labels != other.labels), &html! {
                @for label in &labels { (badge(label.as_str(), Tone::Warn)) " " }
                @if labels.is_empty() { span.soft { "none" } }
            }))
            (fact("Received", changed(|one, other| one.amount_received() != other.amount_received()), &amount(payment.amount_received())))
            (fact("Excess", changed(|one, other| one.excess_received() != other.excess_received()), &amount(payment.excess_received())))
            (fact("Due", changed(|one, other| one.amount_due() != other.amount_due()), &amount(payment.amount_due())))
            (fact("In its wallet", changed(|one, other| one.in_wallet() != other.in_wallet()), &amount(payment.in_wallet())))
            (fact("Payable until", changed(|one, other| one.expires_at != other.expires_at), &exact(payment.expires_at)))
            (fact("Transfers", changed(|one, other| one.transfers != other.transfers), &html! { (payment.transfers.len()) }))
            (fact("Refunds", changed(|one, other| one.refunds != other.refunds), &html! { (payment.refunds.len()) }))
            (fact("Settlement", changed(|one, other| one.settlement != other.settlement), &html! {
                @match payment.settlement.as_deref() { Some(one) => (status(one.state.as_str())), None => span.soft { "none" } }
            }))
        }
        div.body { (json("Whole state", payment)) }
    };
    panel("state", "State after it", "", &body)
}

/// A value as JSON, closed at first.
fn json(summary: &str, value: &impl Serialize) -> Markup {
    let value = serde_json::to_value(value).map(public).unwrap_or_default();
    let text = serde_json::to_string_pretty(&value).unwrap_or_default();
    html! { details { summary { (summary) } pre.mono { (text) } } }
}
