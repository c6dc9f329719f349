//! Rows `customers-create` and `customers-list`: customers made per second, each durable before its response, and
//! searches by email in a long list.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use anyhow::{Context, ensure};
use axum::http::StatusCode;
use serde::Deserialize;
use serde_json::{Value, json};

use super::bound::start_bound;
use super::drive::{Outcome, closed_loop};
use super::env::Env;
use super::table::{Goal, TableLine};
use payferry_testkit::client::Client;
use payferry_testkit::service::{CALL_DEADLINE, Service};

const CONNECTIONS: usize = 64;
/// Goal per second, of each row.
const GOAL_PER_SEC: f64 = 1_000.0;
/// Goal of a search and of a first page, as a fraction of the bound.
const LIST_RATIO_GOAL: f64 = 0.2;
const LISTED: usize = 10_000;
/// The same in a quick run.
const LISTED_QUICK: usize = 300;
/// Customers of one request that fills the list.
const BATCH: usize = 100;
/// Time to warm up a service.
const WARM_UP: Duration = Duration::from_secs(1);
const PATH: &str = "/api/v1/customers";

#[derive(Deserialize)]
struct CreatedPage {
    customers: Vec<Summary>,
}

#[derive(Deserialize)]
struct Page {
    total: usize,
    customers: Vec<Summary>,
}

#[derive(Deserialize)]
struct Summary {
    id: String,
    email: String,
}

/// Measures creations, one customer per request.
pub(super) async fn create(env: &Env, time: Duration) -> anyhow::Result<Vec<TableLine>> {
    let bound = start_bound(env, None).await?;
    let client = Arc::new(Client::new(&bound.ready().api_url, CONNECTIONS, CALL_DEADLINE)?);
    let (_, bare) = create_with(&client, time).await;
    drop(bound);

    let service = Service::live_sandbox(&env.options("customers-create")?).await?;
    let client = Arc::new(service.client(CONNECTIONS)?);
    let (warm, outcome) = create_with(&client, time).await;
    let acknowledged = warm.made.len() + outcome.made.len();
    let there = read(&client, "?limit=1").await?.0.total;
    let failed = warm.failed() + outcome.failed();
    let lost = (there < acknowledged || (failed == 0 && there > acknowledged))
        .then(|| format!("{acknowledged} customers were acknowledged and {there} exist"));
    let wrong = lost.into_iter().chain(service.defects().await?).collect();
    let line = line("customers made, SQLite", &outcome)
        .beside("axum and one grouped writer, two rows a customer, same disk and load", bare.per_sec())
        .note(format!("{acknowledged} were counted afterwards"))
        .wrong(bare.failures());
    Ok(vec![line.wrong(wrong)])
}

/// Makes customers: a warm-up, and then for `time`.
async fn create_with(client: &Arc<Client>, time: Duration) -> (Outcome, Outcome) {
    let number = AtomicUsize::new(0);
    let make = || {
        let body = customer(number.fetch_add(1, Ordering::Relaxed)).to_string();
        let client = Arc::clone(client);
        async move {
            let answer = client.post(PATH, body).await.map_err(|error| error.to_string())?;
            if answer.status != StatusCode::CREATED {
                return Err(format!("status {}", answer.status.as_u16()));
            }
            let created: CreatedPage = serde_json::from_slice(&answer.body).map_err(|error| error.to_string())?;
            created
                .customers
                .into_iter()
                .next()
                .map(|one| one.id)
                .ok_or_else(|| "the answer has no customer".to_owned())
        }
    };
    let warm = closed_loop(CONNECTIONS, WARM_UP, make).await;
    (warm, closed_loop(CONNECTIONS, time, make).await)
}

/// Measures searches that find one of many customers, and first pages.
pub(super) async fn list(env: &Env, time: Duration, quick: bool) -> anyhow::Result<Vec<TableLine>> {
    let service = Service::live_sandbox(&env.options("customers-list")?).await?;
    let client = Arc::new(service.client(CONNECTIONS)?);
    let listed = if quick { LISTED_QUICK } else { LISTED };
    for first in (0..listed).step_by(BATCH) {
        let batch: Value = (first..first + BATCH).map(customer).collect();
        let answer = client.post(PATH, batch.to_string()).await?;
        ensure!(answer.status == StatusCode::CREATED, "POST customers to fill the list answered {}", answer.status);
    }
    let there = read(&client, "?limit=1").await?.0.total;
    ensure!(there == listed, "{there} customers exist instead of {listed}");
    let asked = AtomicUsize::new(0);
    let query_of = |number: usize| format!("?search=MER{number}.bench@");
    let search = || {
        // A large step, so that new customers are not searched more often than old ones.
        let number = asked.fetch_add(7_919, Ordering::Relaxed) % listed;
        let (client, query) = (Arc::clone(&client), query_of(number));
        async move {
            let (page, _) = read(&client, &query).await.map_err(|error| error.to_string())?;
            match page.customers.as_slice() {
                [one] if page.total == 1 && one.email == email(number) => Ok(one.id.clone()),
                _ => Err("another customer was found".to_owned()),
            }
        }
    };
    let found_bytes = read(&client, &query_of(0)).await?.1;
    let page_bytes = read(&client, "").await?.1;
    closed_loop(CONNECTIONS, WARM_UP, search).await;
    let found = closed_loop(CONNECTIONS, time, search).await;
    let page =
        || async { read(&client, "").await.map(|page| page.0.total.to_string()).map_err(|error| error.to_string()) };
    let pages = closed_loop(CONNECTIONS, time, page).await;
    let mut defects = service.defects().await?;
    drop(service);
    let bound = start_bound(env, None).await?;
    let mut lines = Vec::new();
    for (what, outcome, bytes) in [
        (format!("customers searched by email, {listed}, SQLite"), found, found_bytes),
        (format!("first pages of {listed} customers, SQLite"), pages, page_bytes),
    ] {
        let bare = from_memory(&bound, bytes, time).await?;
        let line = line(&what, &outcome).beside("axum, an answer of the same length from memory", bare.per_sec());
        let line = line.ratio_goal(Goal::AtLeast(LIST_RATIO_GOAL)).wrong(bare.failures());
        lines.push(line.wrong(std::mem::take(&mut defects)));
    }
    Ok(lines)
}

/// Measures responses of `bytes` bytes from memory.
async fn from_memory(bound: &Service, bytes: usize, time: Duration) -> anyhow::Result<Outcome> {
    let client = Client::new(&bound.ready().api_url, CONNECTIONS, CALL_DEADLINE)?;
    let path = format!("/bytes/{bytes}");
    let ask = || async {
        let answer = client.get(&path).await.map_err(|error| error.to_string())?;
        if answer.body.len() == bytes { Ok(String::new()) } else { Err("the response has another length".to_owned()) }
    };
    Ok(closed_loop(CONNECTIONS, time, ask).await)
}

fn line(what: &str, outcome: &Outcome) -> TableLine {
    TableLine::new(what, outcome.per_sec(), "/s", Goal::AtLeast(GOAL_PER_SEC))
        .note(format!("closed loop of {CONNECTIONS} connections"))
        .note(outcome.latencies())
        .wrong(outcome.failures())
}

/// Reads a page of the list. Returns it and its size in bytes.
async fn read(client: &Client, query: &str) -> anyhow::Result<(Page, usize)> {
    let answer = client.get(&format!("{PATH}{query}")).await?;
    ensure!(answer.status == StatusCode::OK, "status {}", answer.status.as_u16());
    Ok((serde_json::from_slice(&answer.body).context("the list of customers cannot be read")?, answer.body.len()))
}

fn email(number: usize) -> String {
    format!("customer{number}.bench@example{}.com", number % 97)
}

fn customer(number: usize) -> Value {
    json!({
        "type": "individual",
        "country": "NGA",
        "currency": "NGN",
        "email": email(number),
        "first_name": "Ada",
        "last_name": "Bench",
        "dob": "1990-12-10",
        "phone_number": "+2348012345678",
        "government_id_number": format!("P{number}"),
        "residential_address": { "street_line_1": "1 Marina Road", "city": "Lagos", "region": "LA", "zip": "101231",
            "country": "NGA" },
    })
}
