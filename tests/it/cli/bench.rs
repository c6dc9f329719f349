//! `payferry bench`, small and short: that its figures are of something, and that nothing stays behind.

use serde_json::Value;

use crate::process::payferry;

#[test]
fn a_quick_run_measures_checks_and_cleans_up() {
    let folder = tempfile::tempdir().unwrap();
    let mut command = payferry();
    command.args([
        "bench",
        "--quick",
        "--json",
        "--only",
        "initiate,complete,memory,rehydration,webhooks,customers-create,customers-list",
    ]);
    let output = command.arg("--folder").arg(folder.path()).output().unwrap();
    let error = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{}: {error}", output.status);

    let lines: Vec<Value> = serde_json::from_slice(&output.stdout).unwrap();
    let names: Vec<&str> = lines.iter().map(|line| line["what"].as_str().unwrap()).collect();
    let wanted = [
        "payments initiated, SQLite",
        "p99 at 200/s, SQLite",
        "complete payments",
        "memory of a live payment, of 2000",
        "payments live again after a kill",
        "webhooks delivered",
        "customers made, SQLite",
        "customers searched by email, 300, SQLite",
        "first pages of 300 customers, SQLite",
    ];
    assert_eq!(names, wanted);
    for line in &lines {
        assert!(line["figure"].as_f64().unwrap() > 0.0, "{line}");
        assert_eq!(line["wrong"], serde_json::json!([]), "{line}");
    }
    let [throughput, latency, complete, memory, ..] = &lines[..] else { panic!("{lines:?}") };
    let bound = throughput["bound"]["figure"].as_f64().unwrap();
    let ratio = throughput["figure"].as_f64().unwrap() / bound;
    assert!(bound > 0.0 && (throughput["ratio"].as_f64().unwrap() - ratio).abs() < 1e-9, "{throughput}");
    // Both count: the figure, and its share of the bound.
    let goal = throughput["goal"]["at_least"].as_f64().unwrap();
    assert_eq!(throughput["ratio_least"], 0.3, "{throughput}");
    assert_eq!(throughput["holds"], throughput["figure"].as_f64().unwrap() >= goal && ratio >= 0.3, "{throughput}");
    assert!(complete["notes"][0].as_str().unwrap().starts_with("counted: the 20 that were settled"), "{complete}");
    assert!(latency["figure"].as_f64().unwrap() < 20_000.0, "no answer may take longer: {latency}");
    // A process with so few payments holds more for itself than for them, and no gigabyte.
    assert!(memory["figure"].as_f64().unwrap() < 1_000.0, "{memory}");
    let left: Vec<_> = std::fs::read_dir(folder.path()).unwrap().collect();
    assert!(left.is_empty(), "{left:?}");
}

#[test]
fn what_the_ledger_costs_and_how_long_reconciling_takes_are_measured_on_settled_payments() {
    let folder = tempfile::tempdir().unwrap();
    let output = payferry()
        .args(["bench", "--quick", "--json", "--only", "postings,reconcile", "--folder"])
        .arg(folder.path())
        .output()
        .unwrap();
    let error = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{}: {error} {}", output.status, String::from_utf8_lossy(&output.stdout));
    let lines: Vec<Value> = serde_json::from_slice(&output.stdout).unwrap();
    let names: Vec<&str> = lines.iter().map(|line| line["what"].as_str().unwrap()).collect();
    let wanted = [
        "postings' cost in CPU of a settled payment",
        "postings' cost in throughput",
        "reconcile over 500 settled payments, less the endpoint's time",
    ];
    assert_eq!(names, wanted);
    assert!(lines.iter().all(|line| line["wrong"] == serde_json::json!([])), "{lines:#?}");
}

#[test]
fn what_cannot_be_measured_is_said() {
    let output = payferry().args(["bench", "--quick", "--only", "initiate-postgres"]).output().unwrap();
    assert_eq!(output.status.code(), Some(1));
    assert_eq!(
        String::from_utf8_lossy(&output.stderr).lines().last(),
        Some("error: initiate-postgres needs --postgres URL")
    );
    let output = payferry().args(["bench", "--only", "everything"]).output().unwrap();
    assert_eq!(output.status.code(), Some(2));
}
