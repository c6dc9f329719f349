//! Draws the dashboards in the way of Grafana, with data of a real Prometheus that reads three nodes under load.
//!
//! The pictures are written like those of the pages: `PAYFERRY_SCREENSHOTS=docs/src/screenshots` refreshes the documentation's.

use std::time::{Duration, SystemTime};

use payferry_harness::browser::Browser;
use payferry_harness::database::TestDatabase;
use payferry_harness::process::{Served, Starting};
use payferry_harness::prometheus::{Server, adapted};
use payferry_harness::psp::Psp;

use super::dashboards::{Dashboard, dashboards};
use crate::browser::pictures_folder;
use crate::prelude::*;
use crate::process::payferry;

const NODES: usize = 3;
/// Width of the pictures, CSS pixels.
const WIDTH: u32 = 1440;
/// Interval of scrapes and rules, and the smallest range of `rate()` with four scrapes.
const SCRAPE_SECS: u64 = 2;
const RATE_INTERVAL: &str = "10s";
/// Points of a series.
const POINTS: u64 = 100;
const LOAD_SECS: u64 = 180;
/// Largest picture, bytes.
const PICTURE_MAX: u64 = 300_000;
/// Settled payments from which on the pictures show a load: about half of what the load settles.
const SETTLED_MIN: f64 = 200.0;

/// Payments of many kinds, and failing endpoints and webhooks.
fn load(url: &str, key: &str) -> std::process::Command {
    let mut command = payferry();
    command.args([
        "load",
        "--url",
        url,
        "--key",
        key,
        "--rate",
        "3/s",
        "--duration",
        &format!("{LOAD_SECS}s"),
        "--json",
    ]);
    command.args(["--mix", "exact=70,authorized=8,under=6,over=4,refunded=8,customer=4", "--settle-timeout", "60"]);
    command.args(["--not-made-max", "10"]);
    command.args(["--fault", "rpc-errors 0.2@80s-95s; receiver-fail 0.5@110s-125s"]);
    command
}

/// The sandbox with its nodes.
struct Nodes {
    served: Served,
    _folder: tempfile::TempDir,
}

impl Nodes {
    async fn start(database: &TestDatabase) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let mut command = payferry();
        command.args(["sandbox", "--json", "--ephemeral", "--nodes", &NODES.to_string()]);
        command.args(["--listen", "127.0.0.1:0", "--operator-listen", "127.0.0.1:0"]);
        let starting = Starting::spawn(command, folder.path(), &[("PAYFERRY_SANDBOX_DATABASE_URL", database.url())]);
        let served = tokio::task::spawn_blocking(|| starting.ready()).await.unwrap();
        Self { served, _folder: folder }
    }

    fn node(&self, number: usize) -> &Value {
        &self.served.ready["nodes"][number]
    }

    /// Addresses of the operator listeners, as targets of Prometheus.
    fn targets(&self) -> String {
        let urls = (0..NODES).map(|number| self.node(number)["operator_url"].as_str().unwrap());
        json!(urls.map(|url| url.strip_prefix("http://").unwrap()).collect::<Vec<_>>()).to_string()
    }
}

fn now() -> u64 {
    SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap().as_secs()
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "long"]
async fn every_query_of_the_dashboards_has_data_and_is_drawn() {
    let database = TestDatabase::empty_postgres().await;
    let nodes = Nodes::start(&database).await;
    let interval = format!("{SCRAPE_SECS}s");
    let prometheus = Server::prometheus(&adapted(
        "prometheus.yml",
        &[
            ("scrape_interval: 15s", &format!("scrape_interval: {interval}")),
            ("evaluation_interval: 15s", &format!("evaluation_interval: {interval}")),
            (r#"["127.0.0.1:8081"]"#, &nodes.targets()),
        ],
    ));
    let start = now();
    let (url, key) = (nodes.served.api_url().to_owned(), nodes.served.text("api_key").to_owned());
    let loading = tokio::task::spawn_blocking({
        let mut command = load(&url, &key);
        move || command.output().unwrap()
    });
    provoke(&nodes, Psp::new(&url, &key)).await;
    let report = loading.await.unwrap();
    println!("{}", String::from_utf8_lossy(&report.stderr));
    let range = Range { start, end: now() };
    let settled = range.of(&prometheus, r#"sum(payferry_payments{status="settled"})"#, true).await;
    let count: f64 = settled[0]["value"][1].as_str().unwrap().parse().unwrap();
    assert!(count >= SETTLED_MIN, "the load settled {count} payments");

    let browser = Browser::start().await;
    browser.resize(WIDTH, 900, 1).await;
    let mut empty = Vec::new();
    for dashboard in dashboards() {
        let data = range.read(&prometheus, &dashboard, &mut empty).await;
        draw(&browser, &dashboard.name, &data).await;
    }
    browser.close().await;
    assert!(empty.is_empty(), "queries without data, of panels that do not say that this is usual: {empty:#?}");
    drop(nodes);
}

/// Restarts, a quarantine, a review, a reorganisation, and a killed node, while the load runs.
async fn provoke(nodes: &Nodes, mut psp: Psp) {
    let pause = async |secs| tokio::time::sleep(Duration::from_secs(secs)).await;
    psp.merchant_id = psp.merchant("m-1").await;
    let panic = async |chain, times: u32| {
        let id = psp.payment("25", Token::Usdc, chain).await;
        psp.ok(Method::POST, &format!("/sandbox/payments/{id}/panic"), json!({"times": times})).await;
    };
    pause(LOAD_SECS / 6).await;
    for chain in Chain::ALL {
        panic(chain, 1).await;
    }
    pause(LOAD_SECS / 6).await;
    panic(Chain::Base, 10).await;
    let reviewed = psp.payment("25", Token::Usdc, Chain::Polygon).await;
    psp.ok(Method::POST, &format!("/sandbox/payments/{reviewed}/pay"), json!({"from": "review"})).await;
    pause(LOAD_SECS / 12).await;
    psp.ok(Method::POST, "/sandbox/chains/polygon/reorg", json!({"depth": 3})).await;
    pause(LOAD_SECS / 6).await;
    let pid = nodes.node(NODES - 1)["pid"].to_string();
    assert!(std::process::Command::new("kill").args(["-KILL", &pid]).status().unwrap().success());
}

/// Time range of the pictures, in seconds since 1970.
struct Range {
    start: u64,
    end: u64,
}

impl Range {
    /// The dashboard with the results of its queries. Appends the queries that should have data and have none.
    async fn read(&self, prometheus: &Server, dashboard: &Dashboard, empty: &mut Vec<String>) -> Value {
        let mut results = serde_json::Map::new();
        for query in dashboard.queries() {
            let expression = query.expression(RATE_INTERVAL);
            let result = self.of(prometheus, &expression, query.target["instant"] == true).await;
            let has_data = result.as_array().is_some_and(|series| !series.is_empty());
            if !has_data && query.panel["fieldConfig"]["defaults"]["noValue"].is_null() {
                empty.push(format!("{}: {}: {expression}", dashboard.name, query.panel["title"]));
            }
            let of_panel = results.entry(query.panel["id"].to_string()).or_insert_with(|| json!([]));
            of_panel.as_array_mut().unwrap().push(result);
        }
        let annotation = dashboard.json["annotations"]["list"][0]["expr"].as_str().unwrap();
        let alerts = self.of(prometheus, annotation, false).await;
        let begins = alerts.as_array().unwrap().iter().map(|alert| alert["values"][0][0].clone());
        let begins: Vec<Value> = begins.collect();
        json!({"dashboard": dashboard.json, "results": results, "alerts": begins, "start": self.start, "end": self.end})
    }

    async fn of(&self, prometheus: &Server, expression: &str, is_instant: bool) -> Value {
        let (start, end) = (self.start.to_string(), self.end.to_string());
        let step = ((self.end - self.start) / POINTS).max(SCRAPE_SECS).to_string();
        let (path, parameters) = if is_instant {
            ("/api/v1/query", vec![("query", expression), ("time", &end)])
        } else {
            ("/api/v1/query_range", vec![("query", expression), ("start", &start), ("end", &end), ("step", &step)])
        };
        prometheus.get(path, &parameters).await["result"].clone()
    }
}

async fn draw(browser: &Browser, name: &str, data: &Value) {
    let folder = tempfile::tempdir().unwrap();
    let page = folder.path().join("plots.html");
    // JSON in a script element must not end it.
    let data = data.to_string().replace("</", "<\\/");
    std::fs::write(&page, include_str!("plots.html").replacen("DATA", &data, 1)).unwrap();
    browser.open(&format!("file://{}", page.display())).await;
    browser.until_count("body[data-drawn]", 1).await;
    assert_eq!(browser.complaints().await, Vec::<String>::new());
    let picture = pictures_folder().join(format!("grafana-{name}.png"));
    browser.picture(&picture).await;
    let size = picture.metadata().unwrap().len();
    assert!(size <= PICTURE_MAX, "{}: {size} bytes", picture.display());
}
