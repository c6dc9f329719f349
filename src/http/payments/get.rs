//! `GET /payments/{payment_id}`, and `GET /payments/{payment_id}/events`, which streams a payment's changes as server-sent
//! events.

use axum::extract::State;
use axum::response::Response;
use axum::response::sse::Event;
use payferry_domain::payment::Payment;
use payferry_httpkit::live::{STREAMS_PER_PSP, StreamOwner};
use payferry_httpkit::{Answer, ApiError, Caller, Path, Problem, Read};

use super::{PaymentRecord, own};
use crate::http::live;
use crate::http::state::{AppState, Shared};

/// Read a payment
///
/// The authoritative state of a payment, independent of webhooks.
#[utoipa::path(
    get, path = "/payments/{payment_id}", tag = "Payments", operation_id = "getPayment",
    params(("payment_id" = String, Path, description = "The id from `initiate`.")),
    responses(
        (status = 200, description = "The complete payment.", body = PaymentRecord),
        (status = 404, description = "There is none with this id.", body = Problem),
    ),
)]
pub async fn get(
    State(app): State<AppState>,
    caller: Caller<Read>,
    Path(payment_id): Path<String>,
) -> Result<Answer, ApiError> {
    Answer::ok(&PaymentRecord::of(&app, &own(&app, caller.psp_id, &payment_id).await?))
}

/// Follow a payment
///
/// Server-sent events. `payment` has the payment as in `GET /payments/{payment_id}`; it is sent at once and after each
/// change (its `id` is the payment's version). `end` is sent once the payment is settled or failed, and ends the
/// stream. The stream also ends after half an hour; open it again. At most 1,024 streams of one account can be open at
/// once.
#[utoipa::path(
    get, path = "/payments/{payment_id}/events", tag = "Payments", operation_id = "followPayment",
    params(("payment_id" = String, Path, description = "The id from `initiate`.")),
    responses(
        (status = 200, description = "The stream.", body = String, content_type = "text/event-stream"),
        (status = 404, description = "There is none with this id.", body = Problem),
    ),
)]
pub async fn events(
    State(app): State<AppState>,
    caller: Caller<Read>,
    Path(payment_id): Path<String>,
) -> Result<Response, ApiError> {
    let payment = own(&app, caller.psp_id, &payment_id).await?;
    let place = app.stream_limits.take(StreamOwner::Psp(caller.psp_id), STREAMS_PER_PSP)?;
    Ok(live::follow(app, payment, place, event))
}

fn event(app: &Shared, payment: &Payment) -> Event {
    let event = Event::default().event("payment").id(payment.version.to_string());
    event.json_data(PaymentRecord::of(app, payment)).unwrap_or_else(|error| {
        tracing::error!(%error, "a payment could not be serialised for its stream");
        Event::default().comment("unavailable")
    })
}
