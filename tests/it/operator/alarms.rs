//! Counters with documented alerts exist from the start: a counter that first appears as 1 does not rise.

use payferry_runtime::observe::{ActorKind, Cause};

use crate::prelude::*;

const GUIDE: &str = include_str!("../../../docs/src/operate/alerts.md");

/// The counters of the guide's table with an alert on their increase, as named at `/metrics`.
fn documented() -> Vec<String> {
    let rows = GUIDE.lines().filter_map(|line| line.strip_prefix("| ")?.split_once(" | "));
    let counters = rows.filter(|(_, condition)| condition.starts_with("increases"));
    let names = counters.flat_map(|(names, _)| names.split('`').skip(1).step_by(2));
    names.map(str::to_owned).collect()
}

/// Returns `true` if the line belongs to this counter, with these labels if any are named.
fn is_of(line: &str, name: &str) -> bool {
    let (name, labels) = name.split_once('{').unwrap_or((name, ""));
    let Some(rest) = line.strip_prefix(name) else { return false };
    rest.starts_with(['{', ' ']) && rest.contains(labels.trim_end_matches('}'))
}

#[tokio::test]
async fn every_counter_with_an_alert_exists_from_the_start() {
    // Like the service: before anything is counted.
    let _metrics = payferry::telemetry::metrics();
    let service = ServiceFixture::start_with_chains().await;
    let metrics = service.get("/metrics").await;
    let lines: Vec<&str> = metrics.text().lines().collect();
    let names = documented();
    for known in [
        "payferry_actor_restarts_total",
        "payferry_chain_logs_left_out_total",
        "payferry_identity_callbacks_total{outcome=\"forged\"}",
        "payferry_sanctions_file_errors_total",
        "payferry_settler_operations_failed_total",
        "payferry_webhook_attempts_total{outcome=\"exhausted\"}",
    ] {
        assert!(names.iter().any(|name| name == known), "{known} in {names:?}");
    }
    for name in &names {
        let of: Vec<&str> = lines.iter().copied().filter(|line| is_of(line, name)).collect();
        assert!(!of.is_empty(), "{name} in {}", metrics.text());
        if name.starts_with("payferry_chain_") || name.starts_with("payferry_settler_") {
            for chain in Chain::ALL {
                let label = format!("chain=\"{chain}\"");
                assert!(of.iter().any(|line| line.contains(&label)), "{name} of {chain} in {of:?}");
            }
        }
    }
    // Every combination of labels exists.
    let of = |name: &str| lines.iter().filter(|line| is_of(line, name)).count();
    assert_eq!(of("payferry_actor_restarts_total"), ActorKind::ALL.len() * Cause::ALL.len());
    assert_eq!(of("payferry_sanctions_file_errors_total"), 4);
    assert_eq!(of("payferry_payments_quarantined_total"), Cause::ALL.len());
    assert_eq!(of("payferry_sendings_quarantined_total"), Cause::ALL.len());
    // The signer's gas balance is shown.
    let is_read = |overview: &Reply| {
        let chains = overview["chains"].as_array().unwrap();
        chains.iter().all(|chain| chain["settler"]["gas_balance_wei"].is_string())
    };
    let overview = service.get_until("/ops/overview", is_read).await;
    let held = column(&json!(column(&overview["chains"], "settler")), "gas_balance_wei");
    assert!(held.iter().all(|wei| wei.as_str().unwrap().parse::<u128>().unwrap() > 0), "{held:?}");
    let metrics = service.get("/metrics").await;
    let gauges = metrics.text().lines().filter(|line| is_of(line, "payferry_settler_gas_balance_gwei"));
    let gauges: Vec<f64> = gauges.map(|line| line.rsplit(' ').next().unwrap().parse().unwrap()).collect();
    assert!(gauges.len() == Chain::ALL.len() && gauges.iter().all(|gwei| *gwei > 0.0), "{gauges:?}");
    let page = service.get("/ops/view/chains/base").await;
    let (_, shown) = page.text().split_once("id=\"gas-money\">").unwrap();
    assert!(shown.split('<').next().unwrap().ends_with(" coins"), "{}", page.text());
}

#[tokio::test]
async fn metrics_are_compressed_if_the_client_accepts_it() {
    // Like the service: before anything is counted.
    let _metrics = payferry::telemetry::metrics();
    let service = ServiceFixture::start_with_chains().await;
    let get = |accepted: &str| service.bare(Method::GET, "/metrics").header("accept-encoding", accepted).send();
    let plain = get("identity").await.unwrap();
    assert_eq!(plain.headers().get("content-encoding"), None);
    let plain = plain.text().await.unwrap();
    assert!(plain.contains("payferry_"), "{plain}");
    for accepted in ["gzip", "br;q=1.0, gzip;q=0.8"] {
        let packed = get(accepted).await.unwrap();
        assert_eq!(packed.headers()["content-encoding"], "gzip", "{accepted}");
        assert_eq!(packed.headers()["content-type"], "text/plain; version=0.0.4; charset=utf-8");
        assert_eq!(packed.headers()["vary"], "accept-encoding");
        let packed = packed.bytes().await.unwrap();
        let mut text = String::new();
        std::io::Read::read_to_string(&mut flate2::read::GzDecoder::new(&packed[..]), &mut text).unwrap();
        assert!(text.contains("payferry_") && packed.len() < text.len() / 2, "{} of {}", packed.len(), text.len());
    }
    // Other routes are not compressed.
    let health = service.bare(Method::GET, "/healthz").header("accept-encoding", "gzip").send().await.unwrap();
    assert_eq!(health.headers().get("content-encoding"), None);
}
