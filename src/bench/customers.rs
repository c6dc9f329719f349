//! Customers made a second, each one on disk before its answer, and searches by email in a long list.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use anyhow::{Context, ensure};
use axum::http::StatusCode;
use serde::Deserialize;
use serde_json::{Value, json};

use super::drive::{Outcome, closed_loop};
use super::service::Service;
use super::table::{Goal, Line};
use super::world::World;
use crate::load::client::Client;

/// Connections of the load.
const CONNECTIONS: usize = 64;
/// A second, of each.
const GOAL_PER_SEC: f64 = 1_000.0;
/// Customers that are searched.
const LISTED: usize = 10_000;
/// The same in a quick run.
const LISTED_QUICK: usize = 300;
/// Customers of a request that fills the list.
const BATCH: usize = 100;
/// How long a service is warmed up.
const WARM_UP: Duration = Duration::from_secs(1);
const PATH: &str = "/api/v1/customers";

#[derive(Deserialize)]
struct Made {
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

/// Measures creations, one customer a request.
pub(super) async fn create(world: &World, time: Duration) -> anyhow::Result<Vec<Line>> {
    let service = Service::sandbox(&world.setup("customers-create")?).await?;
    let client = Arc::new(service.client(CONNECTIONS)?);
    let number = AtomicUsize::new(0);
    let make = || {
        let body = customer(number.fetch_add(1, Ordering::Relaxed)).to_string();
        let client = Arc::clone(&client);
        async move {
            let answer = client.post(PATH, body).await.map_err(|error| error.to_string())?;
            if answer.status != StatusCode::CREATED {
                return Err(format!("status {}", answer.status.as_u16()));
            }
            let made: Made = serde_json::from_slice(&answer.body).map_err(|error| error.to_string())?;
            made.customers.into_iter().next().map(|one| one.id).ok_or_else(|| "nobody was made".to_owned())
        }
    };
    let warm = closed_loop(CONNECTIONS, WARM_UP, make).await;
    let outcome = closed_loop(CONNECTIONS, time, make).await;
    let acknowledged = warm.made.len() + outcome.made.len();
    let there = read(&client, "?limit=1").await?.total;
    let failed = warm.errors.len() + outcome.errors.len();
    let lost = (there < acknowledged || (failed == 0 && there > acknowledged))
        .then(|| format!("{acknowledged} customers were acknowledged and {there} are there"));
    let line = line("customers made, SQLite", &outcome).note(format!("{acknowledged} were counted afterwards"));
    Ok(vec![line.wrong(lost.into_iter().collect::<Vec<_>>())])
}

/// Measures searches that find one customer of many.
pub(super) async fn list(world: &World, time: Duration, quick: bool) -> anyhow::Result<Vec<Line>> {
    let service = Service::sandbox(&world.setup("customers-list")?).await?;
    let client = Arc::new(service.client(CONNECTIONS)?);
    let listed = if quick { LISTED_QUICK } else { LISTED };
    for first in (0..listed).step_by(BATCH) {
        let batch: Value = (first..first + BATCH).map(customer).collect();
        let answer = client.post(PATH, batch.to_string()).await?;
        ensure!(answer.status == StatusCode::CREATED, "filling the list answered {}", answer.status);
    }
    let there = read(&client, "?limit=1").await?.total;
    ensure!(there == listed, "{there} customers are there instead of {listed}");
    let asked = AtomicUsize::new(0);
    let search = || {
        // Far apart, so that the newest are not asked for more often than the oldest.
        let number = asked.fetch_add(7_919, Ordering::Relaxed) % listed;
        let client = Arc::clone(&client);
        async move {
            let page =
                read(&client, &format!("?search=MER{number}.bench@")).await.map_err(|error| error.to_string())?;
            match page.customers.as_slice() {
                [one] if page.total == 1 && one.email == email(number) => Ok(one.id.clone()),
                _ => Err("somebody else was found".to_owned()),
            }
        }
    };
    closed_loop(CONNECTIONS, WARM_UP, search).await;
    let found = closed_loop(CONNECTIONS, time, search).await;
    let page =
        || async { read(&client, "").await.map(|page| page.total.to_string()).map_err(|error| error.to_string()) };
    let pages = closed_loop(CONNECTIONS, time, page).await;
    let searches = line(&format!("customers searched by email, {listed}, SQLite"), &found);
    Ok(vec![searches, line(&format!("first pages of {listed} customers, SQLite"), &pages)])
}

fn line(what: &str, outcome: &Outcome) -> Line {
    Line::new(what, outcome.per_sec(), "/s", Goal::AtLeast(GOAL_PER_SEC))
        .note(format!("{CONNECTIONS} connections that ask again at once"))
        .note(format!(
            "p50 {:.1} ms, p99 {:.1} ms, max {:.1} ms",
            outcome.percentile_ms(0.5),
            outcome.percentile_ms(0.99),
            outcome.percentile_ms(1.0)
        ))
        .wrong(outcome.troubles())
}

async fn read(client: &Client, query: &str) -> anyhow::Result<Page> {
    let answer = client.get(&format!("{PATH}{query}")).await?;
    ensure!(answer.status == StatusCode::OK, "status {}", answer.status.as_u16());
    serde_json::from_slice(&answer.body).context("the list cannot be read")
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
