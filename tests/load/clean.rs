//! Runs without faults.

use reqwest::Method;
use serde_json::{Value, json};

use super::{MIX, against, complaint, report, run, stage};
use crate::call::assert_has;
use crate::process::Running;

/// Checks the report of this number of payments of the mixture and of held payments.
fn assert_whole(report: &Value, payments: u64, held: u64) {
    assert_has(report, json!({ "findings": [], "errors": {} }));
    let counted = &report["counted"];
    let tenth = payments / 10;
    let paid = payments - tenth;
    // exact 4, under 3, over 2, late 4, never 2.
    let webhooks = 6 * tenth * 4 + tenth * (3 + 2 + 4 + 2);
    for (what, wanted) in [
        ("due", payments),
        ("accepted", payments),
        ("complete", payments),
        ("held", held),
        ("sent", paid),
        ("mined", paid),
        ("confirmed", 6 * tenth),
        ("settled", 6 * tenth),
        ("repeated", 0),
        ("forged", 0),
        ("refused", 0),
        ("unanswered", 0),
        ("turned_away", 0),
    ] {
        assert_eq!(counted[what], wanted, "{what}: {counted:#}");
    }
    let ours = counted["webhooks"].as_u64().unwrap() - counted["foreign"].as_u64().unwrap();
    assert_eq!(ours, webhooks, "{counted:#}");
    assert_eq!(report["read_back"], payments + held);
    let stages: Vec<&str> =
        report["stages"].as_array().unwrap().iter().map(|one| one["stage"].as_str().unwrap()).collect();
    let all = ["begun", "accepted", "sent", "mined", "seen", "confirmed", "settled", "webhook", "complete"];
    assert_eq!(stages, all);
    assert_stages(report, tenth);
    for stage in report["stages"].as_array().unwrap() {
        let figure = |name: &str| stage["from_intended"][name].as_f64().unwrap();
        assert!(figure("p50_ms") <= figure("p99_ms") && figure("p99_ms") <= figure("max_ms"), "{stage:#}");
        assert!(figure("max_ms") < 120_000.0, "{stage:#}");
    }
    let holdings = report["holdings"].as_array().unwrap();
    assert_eq!(holdings.len(), 6, "three chains, two tokens");
    assert!(
        holdings.iter().all(|holding| holding["equal"] == true && holding["vault_grew"] != "0.00"),
        "{holdings:#?}"
    );
    for holding in holdings {
        assert_ne!(holding["balance_grew"], "0.00", "{holding:#}");
        assert!(holding["balance_grew"].is_string(), "ledger and balances were compared: {holding:#}");
        assert_eq!(holding["balance_grew"], holding["postings_say"], "{holding:#}");
    }
    assert_has(report, json!({ "audited": true, "notes": [] }));
    let course = report["course"].as_array().unwrap();
    let due: u64 = course.iter().map(|second| second["counted"]["due"].as_u64().unwrap()).sum();
    assert_eq!(due, payments, "every payment is in some second");
    let period: f64 = course.iter().map(|second| second["period_secs"].as_f64().unwrap()).sum();
    let end = course.last().unwrap()["at_secs"].as_f64().unwrap();
    assert!((period - end).abs() < 0.1, "seconds leave no gap: {period} of {end}");
}

/// Checks the counts of the stages for ten times `tenth` payments, and the order of the stages.
fn assert_stages(report: &Value, tenth: u64) {
    let stages = report["stages"].as_array().unwrap();
    let of = |name: &str| stages.iter().find(|stage| stage["stage"] == name).unwrap();
    // Payments that are meant to expire take long by intent: exact, under and over remain, and of webhooks only the
    // step.
    for (stage, payments, steps) in [
        ("begun", 10, 10),
        ("accepted", 10, 10),
        ("sent", 8, 8),
        ("mined", 8, 8),
        ("confirmed", 6, 6),
        ("settled", 6, 6),
        ("webhook", 6 * 4 + 3 + 2, 6 * 4 + 3 + 2 + 4 + 2),
        ("complete", 8, 8),
    ] {
        let found = of(stage);
        assert_eq!(found["from_intended"]["count"], payments * tenth, "{found:#}");
        let counted = found["step"]["count"].as_u64().unwrap();
        // A step whose beginning was seen too late is not counted, which happens on a busy machine.
        let least = if ["confirmed", "settled"].contains(&stage) { steps * tenth * 9 / 10 } else { steps * tenth };
        assert!((least..=steps * tenth).contains(&counted), "{found:#}");
        assert_eq!(found["in_vain"], 0, "{found:#}");
    }
    let sample = of("seen")["from_intended"]["count"].as_u64().unwrap();
    assert!((1..=8 * tenth).contains(&sample), "{sample}");

    let figure = |stage: &str, name: &str| of(stage)["from_intended"][name].as_f64().unwrap();
    // Every payment reaches the first stage before the second.
    for [earlier, later] in [["begun", "accepted"], ["confirmed", "settled"]] {
        for name in ["min_ms", "p50_ms", "p99_ms", "max_ms"] {
            assert!(figure(earlier, name) <= figure(later, name), "{name} of {earlier} and {later}: {stages:#?}");
        }
    }
    // A stage that some payments reach is not before the first stage of all, and the last stage is not before the
    // others.
    for later in ["sent", "seen", "confirmed", "settled", "complete"] {
        assert!(figure("accepted", "min_ms") <= figure(later, "min_ms"), "{later}: {stages:#?}");
    }
    assert!(figure("settled", "max_ms") <= figure("complete", "max_ms"), "{stages:#?}");
}

#[tokio::test]
async fn loads_a_new_sandbox_and_reports() {
    let temp = tempfile::tempdir().unwrap();
    let file = temp.path().join("report.html");
    let args = format!("--rate 100/s --payments 200 --hold 20 --mix {MIX} --block-time-ms 100 --json");
    let [csv, prometheus] = ["course.csv", "load.prom"].map(|name| temp.path().join(name));
    let files = format!("--report {} --csv {} --prometheus {}", file.display(), csv.display(), prometheus.display());
    let output = run(&format!("{args} {files}")).await;
    let report = report(&output, 0);
    assert_whole(&report, 200, 20);
    assert_has(&report, json!({ "asked/hold": 20, "not_held_percent": 0.0 }));
    assert!(report["machine"]["service_cores"].as_f64().unwrap() > 0.0, "{:#}", report["machine"]);
    assert!(report["machine"]["service_bytes_most"].as_u64().unwrap() > 10_000_000);
    let (version, machine) = (env!("CARGO_PKG_VERSION"), &report["machine"]);
    assert_has(&report, json!({ "version": version, "service_version": version }));
    assert!(machine["memory_bytes"].as_u64().unwrap() > 1 << 28 && machine["os"].is_string(), "{machine:#}");
    assert!(complaint(&output).contains("start payments"), "lines without a terminal: {}", complaint(&output));

    let [csv, prometheus] = [csv, prometheus].map(|file| std::fs::read_to_string(file).unwrap());
    assert_eq!(csv.lines().count(), report["course"].as_array().unwrap().len() + 1, "{csv}");
    let columns: Vec<usize> = csv.lines().map(|line| line.split(',').count()).collect();
    assert!(
        csv.starts_with("at_secs,period_secs,held,due,") && columns.iter().all(|count| *count == columns[0]),
        "{csv}"
    );
    for line in ["payferry_load_passed 1\n", "payferry_load_payments{kind=\"accepted\"} 200\n"] {
        assert!(prometheus.contains(line), "{line}: {prometheus}");
    }

    let page = std::fs::read_to_string(&file).unwrap();
    for outside in ["src=", "href=", "url(", "@import", "<link", "<script", "http://", "https://"] {
        assert!(!page.contains(outside), "the report needs another resource: {outside}");
    }
    for inside in ["<svg", "All 220 payments are as expected", "Latency", "prefers-color-scheme: dark"] {
        assert!(page.contains(inside), "{inside}");
    }
}

#[tokio::test]
async fn authorized_payments_are_collected_and_compared() {
    let args = "--rate 100/s --payments 100 --mix exact=50,authorized=50 --block-time-ms 100 --json";
    let report = report(&run(args).await, 0);
    assert_has(&report, json!({ "findings": [], "errors": {}, "notes": [], "audited": true, "read_back": 100 }));
    for count in ["accepted", "sent", "mined", "confirmed", "settled", "complete"] {
        assert_eq!(report["counted"][count], 100, "{count}: {:#}", report["counted"]);
    }
    assert_eq!(report["counted"]["webhooks"], 4 * 100);
    // The transaction that confirms half of the payments is also their settlement.
    assert_eq!(stage(&report, "mined")["from_intended"]["count"], 100);
    assert!(stage(&report, "settled")["step"]["count"].as_u64().unwrap() <= 50, "{:#}", stage(&report, "settled"));
    let usdc = report["holdings"].as_array().unwrap().iter().filter(|holding| holding["token"] == "USDC");
    assert!(usdc.clone().all(|holding| holding["equal"] == true && holding["vault_grew"] != "0.00"));
    assert_eq!(usdc.count(), 3, "on every chain");
}

#[tokio::test]
async fn behaviours_in_turn_are_compared() {
    let args = "--rate 1000/s --payments 50 --mix exact=40,authorized=40,never=20 --in-turn --open-max 15 \
        --block-time-ms 100 --json";
    let report = report(&run(args).await, 0);
    assert_has(&report, json!({ "findings": [], "errors": {}, "audited": true, "read_back": 50 }));
    let payers = report["payers"].as_array().unwrap();
    let rates: Vec<_> = payers.iter().map(|rate| (rate["payer"].as_str().unwrap(), &rate["complete"])).collect();
    assert_eq!(rates, [("exact", &json!(20)), ("authorized", &json!(20))]);
    assert!(report["achieved"]["open_most"].as_u64().unwrap() <= 15, "{report:#}");
    // The last turn arrives after the last completion of the first.
    let (first_secs, arrivals_secs) = (&payers[0]["secs"], &report["achieved"]["arrivals_secs"]);
    assert!(first_secs.as_f64().unwrap() < arrivals_secs.as_f64().unwrap(), "{report:#}");
    assert!(payers.iter().all(|rate| rate["complete_per_sec"].as_f64().unwrap() > 1.0), "{payers:#?}");
}

#[tokio::test]
async fn restores_the_endpoint_of_a_running_sandbox() {
    let sandbox = Running::new().await;
    let hook = format!("{}/sandbox/inbox/before", sandbox.text("api_url"));
    let set = json!({"webhook_url": hook, "events": ["payment.*"]});
    sandbox.ok(Method::PATCH, "/api/v1/set_webhook", Some(set)).await;
    // Another client pays at the same time.
    let stranger = sandbox.payment().await;
    sandbox.pay(&stranger).await;

    let further = format!("--rate 3000/min --payments 100 --mix {MIX} --poisson --advance-clock --json --seed 7");
    let output = run(&against(&sandbox, &further)).await;
    let report = report(&output, 0);
    assert_whole(&report, 100, 0);
    let asked = &report["asked"];
    assert_has(asked, json!({ "pacing": "poisson", "seed": 7, "rate": 50.0 }));

    let now = sandbox.ok(Method::GET, "/api/v1/webhook", None).await;
    assert_has(&now, json!({ "webhook_url": hook, "events": ["payment.*"] }));
    sandbox.until_settled(&stranger).await;
}

/// Withdraws 4 USDC on Base while the load runs.
async fn withdraw(sandbox: &Running) {
    let is_under_way = |list: &Value| list["payments"].as_array().unwrap().len() >= 10;
    sandbox.until("/payments?limit=200", is_under_way).await;
    let withdrawal = json!({"amount": "4", "currency": "USDC", "chain": "base"});
    let asked = sandbox.ok(Method::POST, "/withdrawals", Some(withdrawal)).await;
    let path = format!("/withdrawals/{}", asked["id"].as_str().unwrap());
    sandbox.until(&path, |withdrawal| withdrawal["status"] == "sent").await;
}

#[tokio::test]
async fn a_withdrawal_during_the_load_is_no_difference() {
    let sandbox = Running::new().await;
    sandbox.settled_payment().await;
    let wallets = format!("/ops/psps/{}/withdrawal-wallets", sandbox.text("psp_id"));
    let account = json!({"address": "0x000000000000000000000000000000000000beef"});
    let (set, answer) = sandbox.operator(Method::POST, &wallets, Some(account)).await;
    assert!(set.is_success(), "{answer}");

    // Five seconds of payments.
    let asked = against(&sandbox, "--rate 30/s --payments 150 --mix exact=100 --json");
    let (output, ()) = tokio::join!(run(&asked), withdraw(&sandbox));
    let report = report(&output, 0);
    assert_has(&report, json!({ "findings": [], "audited": true }));
}
