//! Log content at the most verbose level: no secrets and no personal data.

use std::cell::{Cell, RefCell};
use std::io;
use std::sync::Once;

use tracing_subscriber::filter::{LevelFilter, dynamic_filter_fn};
use tracing_subscriber::prelude::*;

use crate::prelude::*;

thread_local! {
    static LISTENING: Cell<bool> = const { Cell::new(false) };
    static LINES: RefCell<Vec<u8>> = const { RefCell::new(Vec::new()) };
}

/// Records the log of this thread. A test's own thread runs everything that its service does, except SQLite's work.
struct Listener;

impl io::Write for Listener {
    fn write(&mut self, line: &[u8]) -> io::Result<usize> {
        LINES.with_borrow_mut(|lines| lines.extend_from_slice(line));
        Ok(line.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Starts recording. One subscriber serves the process: with one per thread, a callsite that another test reaches first
/// would be disabled for all.
pub(crate) fn listen() {
    static INSTALLED: Once = Once::new();
    INSTALLED.call_once(|| {
        let listening = dynamic_filter_fn(|_, _| LISTENING.get()).with_max_level_hint(LevelFilter::TRACE);
        let lines = tracing_subscriber::fmt::layer().with_ansi(false).with_writer(|| Listener);
        tracing_subscriber::registry().with(lines.with_filter(listening)).init();
    });
    LISTENING.set(true);
}

/// Returns the log since [`listen`].
pub(crate) fn heard() -> String {
    String::from_utf8(LINES.take()).unwrap()
}

#[tokio::test]
async fn secrets_and_personal_data_are_not_logged() {
    listen();
    let app = TestApp::start_with_chains().await;
    let stranger = unknown_key();
    app.get_as(&stranger, "/merchants").await.assert_problem(401, "api_key_unknown");
    let hook = json!({ "webhook_url": "http://127.0.0.1:9/hooks?token=hook-token" });
    let set = app.patch("/api/v1/set_webhook", &hook).await;
    let body = json!({ "merchant_id": app.add_merchant().await, "amount": "10", "currency": "USDC", "chain": "base",
        "metadata": { "buyer": "Jane Roe" }, "reference": "INV-77" });
    let made = app.post_keyed("idem-77", "/payments/initiate", &body).await;
    let link = made.page_path();
    app.open(link).await;
    app.request(Method::POST, "/payments/initiate").bytes("{\"card\": \"4111 1111 1111 1111\", ").send().await;
    app.pay(&made, "10").await;
    app.payment_when(&made, "settled").await;
    app.request(Method::POST, "/api/v1/webhook/rotate").send().await;
    app.state.database().clone().close().await.unwrap();
    let failed = app.get("/payments?reference=secret-query").await;
    failed.assert_problem(503, "database_unavailable");

    let log = heard();
    let request_id = failed.header("x-request-id").unwrap();
    let mut lines = log.lines();
    let failure = lines.find(|line| line.contains(request_id) && line.contains("failed with 503"));
    assert!(failure.unwrap().contains("/payments failed"), "the log contains the failure");
    assert!(log.contains("TRACE") && log.contains(&app.psp_id.to_string()));
    let secret = |key: &str| key[key.len() - 72..].to_owned();
    let signing = set["signing_secret"].as_str().unwrap().strip_prefix("whsec_").unwrap();
    for hidden in [
        &secret(&app.key),
        &secret(&stranger),
        signing,
        link.strip_prefix("/pay/").unwrap(),
        "hook-token",
        "Jane Roe",
        "INV-77",
        "idem-77",
        "owner@shop.example",
        "4111 1111",
        "secret-query",
    ] {
        if let Some(at) = log.find(hidden) {
            let line = log[..at].rfind('\n').map_or(0, |start| start + 1);
            panic!("{hidden} is logged: {}", &log[line..(at + hidden.len())]);
        }
    }
}
