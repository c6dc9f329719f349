//! A service that stalls during a run: arrivals in that time count with their wait.

use std::process::Command;
use std::time::Duration;

use serde_json::{Value, json};

use super::between::{Changes, load_through};
use super::{against, report, run, stage};
use crate::call::assert_has;
use crate::process::Running;

/// Duration of the stall.
const STALL: Duration = Duration::from_secs(3);
/// Payments that are made before the stall.
const MADE_BEFORE: usize = 10;

/// Stops the service during the load, and continues it.
async fn stall_chains(sandbox: &Running) {
    let signal = |name: &str| {
        let sent = Command::new("kill").args(["-s", name, &sandbox.process.id().to_string()]).status().unwrap();
        assert!(sent.success(), "{name}");
    };
    let is_under_way = |list: &Value| list["payments"].as_array().unwrap().len() >= MADE_BEFORE;
    sandbox.until("/payments?limit=200", is_under_way).await;
    signal("STOP");
    tokio::time::sleep(STALL).await;
    signal("CONT");
}

#[tokio::test]
async fn arrivals_during_a_stall_count_with_their_wait() {
    let sandbox = Running::new().await;
    // Nine seconds of arrivals, so that a third of them, about thirty, are due during the stall. The rate is low enough
    // for any machine.
    let asked = against(&sandbox, "--rate 10/s --payments 90 --mix exact=100 --json");
    let (output, ()) = tokio::join!(run(&asked), stall_chains(&sandbox));
    let report = report(&output, 0);
    let counted = &report["counted"];
    assert_has(counted, json!({ "due": 90, "accepted": 90, "turned_away": 0, "unanswered": 0 }));

    let stages = &report["stages"];
    let figure = |name: &str, figure: &str| stage(&report, name)["from_intended"][figure].as_f64().unwrap();
    // The first of them waited for nearly the whole stall, the others for the rest of it. A closed loop would have
    // measured a handful of waits. The slowest tenth of all payments is nine of the thirty.
    assert!(figure("accepted", "max_ms") >= 2_800.0, "{stages:#?}");
    assert!(figure("accepted", "p90_ms") >= 1_500.0, "{stages:#?}");
    assert!(figure("accepted", "p50_ms") < 1_500.0, "half of them were not due then: {stages:#?}");
    // The requests were sent when they were due.
    assert!(figure("begun", "p90_ms") < 1_500.0, "{stages:#?}");
}

#[tokio::test]
async fn hundreds_of_initiations_wait_at_the_service() {
    // No response before all requests have arrived.
    let payments = 300;
    let asked = format!("--rate 300/s --payments {payments} --in-flight-max {payments}");
    let loaded =
        load_through(&Running::new().await, Changes { gathered: Some(payments), ..Changes::default() }, &asked).await;
    let report = report(&loaded.output, 0);
    let counted = &report["counted"];
    assert_has(counted, json!({ "accepted": payments, "unanswered": 0 }));
    assert_eq!((&report["achieved"]["in_flight_most"], &report["errors"]), (&payments.into(), &json!({})));
    // The first request waited a second for the last one, at the service.
    let accepted = stage(&report, "accepted");
    assert!(accepted["step"]["max_ms"].as_f64().unwrap() >= 900.0, "{accepted:#}");
}
