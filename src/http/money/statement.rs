//! `GET /ledger/statement`.

use axum::body::Body;
use axum::extract::State;
use axum::http::header::{ACCEPT, CONTENT_DISPOSITION, CONTENT_TYPE};
use axum::http::{HeaderMap, HeaderValue};
use axum::response::{IntoResponse, Response};
use payferry_domain::{Chain, Timestamp, Token};
use payferry_httpkit::extract::field::required;
use payferry_httpkit::extract::parameters::word;
use payferry_httpkit::lists::DateTime;
use payferry_httpkit::live::{StreamOwner, StreamPermit};
use payferry_httpkit::openapi::UnreadableQuery;
use payferry_httpkit::{ApiError, Caller, Fault, QueryFields, Read, Rule, query, rule};
use serde::Serialize;
use utoipa::ToSchema;

use crate::http::state::AppState;
use crate::statements::{Format, Period, Statement, StatementAccount, StatementEntry, Tokens, Wanted};

/// Concurrent statements of one PSP.
pub const STATEMENTS_PER_PSP: usize = 2;
const CSV_TYPE: &str = "text/csv";

/// The body, for the API description only. A statement is streamed and never held as a whole.
#[derive(Serialize, ToSchema)]
pub struct StatementDocument {
    message: String,
    psp_id: String,
    from: DateTime,
    to: DateTime,
    /// One for each enabled token of each running chain, and for every other token that was ever in your vault.
    accounts: Vec<StatementDocumentAccount>,
}

/// A chain and token with its entries.
#[derive(Serialize, ToSchema)]
pub struct StatementDocumentAccount {
    #[serde(flatten)]
    account: StatementAccount,
    /// In the order in which they were posted.
    entries: Vec<StatementEntry>,
}

/// A format.
const FORMAT: Rule<Format> = Rule {
    read: |value| word(&[("csv", Format::Csv), ("json", Format::Json)], value),
    schema: || rule::one_of(["csv", "json"]),
};

query! {
    /// Period, chain, token and format.
    pub struct StatementQuery {
        /// Beginning: a day (its midnight, UTC) or a time.
        from: Timestamp = required(rule::moment()),
        /// End (excluded): at most 366 days later.
        to: Timestamp = required(rule::moment()),
        /// Only this chain.
        chain: Chain = rule::name(),
        /// Only this token.
        currency: Token = rule::name(),
        /// By default from `Accept`, else JSON.
        format: Format = FORMAT,
    }
}

/// Read a statement
///
/// The opening balance of your vaults, every movement in the period, and the closing balance, by chain and token. The
/// closing balance of a period is the opening balance of the next one. Money reserved for a payout, withdrawal or
/// refund in progress is still in the vault and leaves it when it is sent. The statement of a period that has not ended
/// contains the entries up to now.
///
/// As CSV (RFC 4180) every row has the same columns: `row` is `opening`, `entry`, `total` or `closing`. The body is
/// streamed; an interrupted one ends without its last row. An account can read at most two statements at once.
#[utoipa::path(
    get, path = "/ledger/statement", tag = "Money", operation_id = "readStatement", params(StatementQuery),
    responses(
        (status = 200, description = "The statement.", content(
            (StatementDocument = "application/json"),
            (String = "text/csv"),
        )),
        UnreadableQuery,
    ),
)]
pub async fn read_statement(
    State(app): State<AppState>,
    caller: Caller<Read>,
    headers: HeaderMap,
    mut query: QueryFields,
) -> Result<Response, ApiError> {
    let StatementQuery { from, to, chain, currency, format } = StatementQuery::read(&mut query);
    let period = from.zip(to).and_then(|(from, to)| match Period::new(from, to) {
        Ok(period) => Some(period),
        Err(fault) => {
            query.fault("to", Fault::new(fault.code(), fault.to_string()));
            None
        }
    });
    query.finish()?;
    let Some(period) = period else { return Err(ApiError::internal("a valid period is missing")) };
    let format = format.unwrap_or_else(|| accepted(&headers));
    let place = app.statements.take(StreamOwner::Psp(caller.psp_id), STATEMENTS_PER_PSP)?;
    let wanted = Wanted { psp_id: caller.psp_id, period, chain, currency };
    let tokens = Tokens::of(app.system.chains().running());
    let statement = Statement::begin(app.database().clone(), wanted, &tokens, format).await?;
    Ok(respond(&app, statement, place, format, period))
}

/// CSV only if the header names it before JSON.
fn accepted(headers: &HeaderMap) -> Format {
    let accept = headers.get(ACCEPT).and_then(|value| value.to_str().ok()).unwrap_or_default();
    let mut kinds = accept.split(',').map(|kind| kind.split(';').next().unwrap_or_default().trim());
    match kinds.find(|kind| [CSV_TYPE, "application/json"].contains(kind)) {
        Some(CSV_TYPE) => Format::Csv,
        _ => Format::Json,
    }
}

fn respond(app: &AppState, statement: Statement, place: StreamPermit, format: Format, period: Period) -> Response {
    let closing = app.config.closing.clone();
    let chunks = futures::stream::try_unfold((statement, place), move |(mut statement, place)| {
        let closing = closing.clone();
        async move {
            let chunk = tokio::select! {
                // End with an error, so that the client detects the truncated body.
                () = closing.cancelled() => return Err(std::io::Error::other("the service is shutting down")),
                chunk = statement.chunk() => chunk,
            };
            match chunk {
                Ok(chunk) => Ok(chunk.map(|chunk| (chunk, (statement, place)))),
                Err(error) => {
                    tracing::error!(%error, "a statement was interrupted: {error}");
                    Err(std::io::Error::other(error))
                }
            }
        }
    });
    let body = Body::from_stream(chunks);
    if format == Format::Json {
        return ([(CONTENT_TYPE, HeaderValue::from_static("application/json"))], body).into_response();
    }
    let day = |moment: payferry_domain::Timestamp| moment.to_string().chars().take(10).collect::<String>();
    let name = format!("payferry-statement-{}-{}.csv", day(period.from()), day(period.to()));
    let disposition = HeaderValue::try_from(format!("attachment; filename=\"{name}\""));
    let kind = HeaderValue::from_static("text/csv; charset=utf-8; header=present");
    let mut response = ([(CONTENT_TYPE, kind)], body).into_response();
    response.headers_mut().extend(disposition.map(|disposition| (CONTENT_DISPOSITION, disposition)));
    response
}
