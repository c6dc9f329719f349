//! `GET /payments/{payment_id}/events`: streams a payment's changes as server-sent events.

use axum::extract::State;
use axum::response::Response;
use axum::response::sse::Event;
use payferry_domain::payment::Payment;
use payferry_httpkit::caller::{Caller, Read};
use payferry_httpkit::error::{ApiError, Problem};
use payferry_httpkit::extract::Path;
use payferry_httpkit::live::{STREAMS_PER_PSP, StreamOwner};

use super::{PaymentRecord, own};
use crate::http::live;
use crate::http::state::{AppState, Shared};

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
    let payment = payferry_journal::payments::payment_of(&own(&app, caller.psp_id, &payment_id).await?)?;
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
