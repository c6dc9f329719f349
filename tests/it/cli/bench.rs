//! `payferry bench`, small and short: that its figures are of something, and that nothing stays behind.

use serde_json::{Value, json};

use crate::process::payferry;

/// What a quick run of these rows says, after success; nothing is wrong, and nothing stays behind.
fn measured(rows: &str) -> Vec<Value> {
    let folder = tempfile::tempdir().unwrap();
    let mut command = payferry();
    // Below where it is called, as ./check has it.
    command.args(["bench", "--quick", "--json", "--only", rows, "--folder", "below"]);
    let output = command.current_dir(folder.path()).output().unwrap();
    let error = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{}: {error} {}", output.status, String::from_utf8_lossy(&output.stdout));
    let lines: Vec<Value> = serde_json::from_slice(&output.stdout).unwrap();
    for line in &lines {
        assert_eq!(line["wrong"], json!([]), "{line}");
        assert_compared(line);
    }
    let left: Vec<_> = std::fs::read_dir(folder.path().join("below")).unwrap().collect();
    assert!(left.is_empty(), "{left:?}");
    lines
}

/// A bound that was measured, and the ratio to it: of the figures, or of what was measured in pairs.
fn assert_compared(line: &Value) {
    let (figure, bound) = (line["figure"].as_f64().unwrap(), line["bound"]["figure"].as_f64().unwrap());
    let is_in_pairs = line["bound"]["what"].as_str().unwrap().contains("in turns");
    let ratio = line["ratio"].as_f64().unwrap();
    assert!(figure > 0.0 && bound > 0.0 && ratio > 0.0, "{line}");
    assert!(is_in_pairs || (ratio - figure / bound).abs() < 1e-9, "{line}");
}

fn names(lines: &[Value]) -> Vec<&str> {
    lines.iter().map(|line| line["what"].as_str().unwrap()).collect()
}

/// All notes of a line.
fn notes(line: &Value) -> String {
    line["notes"].as_array().unwrap().iter().map(|note| note.as_str().unwrap()).collect::<Vec<_>>().join("\n")
}

/// As notes show it.
fn rounded(figure: f64) -> f64 {
    format!("{figure:.1}").parse().unwrap()
}

/// The figures in a text that have this unit.
fn figures(text: &str, unit: &str) -> Vec<f64> {
    let spaced = text.replace(unit, &format!(" {unit} "));
    let words: Vec<&str> = spaced.split_whitespace().collect();
    words.windows(2).filter(|two| two[1] == unit).filter_map(|two| two[0].parse().ok()).collect()
}

#[test]
fn a_quick_run_has_a_length_of_its_own() {
    let output = payferry().args(["bench", "--quick", "--seconds", "30"]).output().unwrap();
    let error = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(2), "{error}");
    assert!(
        error.contains("--seconds") && error.contains("--quick") && error.contains("cannot be used with"),
        "{error}"
    );
}

#[test]
fn a_quick_run_measures_checks_and_cleans_up() {
    let lines = measured("initiate,complete,webhooks,customers-create,customers-list");
    let wanted = [
        "payments initiated, SQLite",
        "p99 at 200/s, SQLite",
        "complete payments",
        "webhooks delivered",
        "customers made, SQLite",
        "customers searched by email, 300, SQLite",
        "first pages of 300 customers, SQLite",
    ];
    assert_eq!(names(&lines), wanted);
    for line in &lines {
        assert!(line["figure"].as_f64().unwrap() > 0.0 && line["bound"].is_object(), "{line}");
    }
    let [throughput, latency, complete, webhooks, ..] = &lines[..] else { panic!("{lines:?}") };
    // Both count: the figure, and its share of the bound.
    let (figure, goal) = (throughput["figure"].as_f64().unwrap(), throughput["goal"]["at_least"].as_f64().unwrap());
    assert_eq!(throughput["ratio_goal"], json!({"at_least": 0.3}), "{throughput}");
    let ratio = throughput["ratio"].as_f64().unwrap();
    // The temporary folder may be memory: then it says so, and does not hold.
    let lacks = throughput["lacks"].as_array().unwrap();
    assert_eq!(throughput["holds"], figure >= goal && ratio >= 0.3 && lacks.is_empty(), "{throughput}");
    assert!(
        notes(throughput).contains("the database says journal_mode = wal, synchronous = 2, file_system = "),
        "{throughput}"
    );
    assert!(notes(throughput).contains("take 3 turns each, who has none is held"), "{throughput}");
    assert!(notes(latency).starts_with("200 asked for at a steady rate, 3 times"), "{latency}");
    let times: Vec<f64> = figures(&notes(latency), "ms");
    assert!(times.contains(&rounded(latency["figure"].as_f64().unwrap())), "one of three: {latency}");
    // As many connections as the service may have.
    assert!(notes(webhooks).contains("have up to 256 under way"), "{webhooks}");
    assert!(notes(complete).contains("in all of them: 20 were settled and told"), "{complete}");
    assert!(latency["figure"].as_f64().unwrap() < 20_000.0, "no answer may take longer: {latency}");
}

#[test]
fn beside_a_crowd_memory_pages_cpu_and_rehydration_are_measured() {
    let lines = measured("memory,pages,cpu,rehydration");
    let wanted = [
        "memory of a live payment, of 2000",
        "the operator's slowest page beside 2000 live",
        "CPU of a payment beside 2000 live",
        "payments live again after a kill",
    ];
    assert_eq!(names(&lines), wanted);
    let [memory, pages, cpu, back] = &lines[..] else { panic!("{lines:?}") };
    // A process with so few payments holds more for itself than for them, and no gigabyte.
    assert!(memory["figure"].as_f64().unwrap() < 1_000.0, "{memory}");
    for page in ["/ops: ", "/ops/view/shards/0: ", "/ops/view/stuck: ", "/metrics: "] {
        assert!(notes(pages).lines().any(|note| note.starts_with(page) && note.contains(" bytes, ")), "{page} {pages}");
    }
    assert_eq!(pages["goal"], json!({"at_most": 50.0}), "{pages}");
    // 20 each time, of two services: once to warm up and once to measure.
    let lives = "whole lives, 20 a second: initiated, paid, confirmed, settled and told; 80 in all";
    assert!(notes(cpu).contains(lives) && notes(cpu).contains("left alone it uses"), "{cpu}");
    assert!(notes(cpu).contains("whoever has no turn is held"), "{cpu}");
    assert_eq!(cpu["ratio_goal"], json!({"at_most": 1.25}), "{cpu}");
    assert!(back["figure"].as_f64().unwrap() > 0.0 && notes(back).starts_with("2000 in "), "{back}");
}

#[test]
fn what_settled_payments_cost_is_measured() {
    let lines = measured("finality,bookkeeping,postings,reconcile");
    let wanted = [
        "final block to first webhook, p50",
        "final block to first webhook, p99",
        "payments made and cancelled, with bookkeeping",
        "CPU of a settled payment, with postings",
        "complete payments, with postings",
        "reconcile over 500 settled payments, less the endpoint's time",
    ];
    assert_eq!(names(&lines), wanted);
    let [p50, p99, bookkeeping, postings, throughput, _] = &lines[..] else { panic!("{lines:?}") };
    let [middle, late] = [p50, p99].map(|line| line["figure"].as_f64().unwrap());
    assert!(middle > 0.0 && middle <= late, "{p50} {p99}");
    for line in [bookkeeping, postings] {
        assert!(notes(line).contains("whoever has no turn is held"), "{line}");
    }
    let wanted = [
        (bookkeeping, "/s", json!({"at_least": 0.97})),
        (postings, "µs", json!({"at_most": 1.15})),
        (throughput, "/s", json!({"at_least": 0.85})),
    ];
    for (line, unit, goal) in wanted {
        assert_eq!((line["unit"].as_str(), &line["ratio_goal"]), (Some(unit), &goal), "{line}");
        // A cost may be below nothing in so short a run.
        assert!(notes(line).contains("cost") && notes(line).contains("middle half of the rounds"), "{line}");
    }
}

#[test]
fn a_missed_goal_fails_a_strict_run_which_names_it() {
    // A quick run asks for 20 payments a second and the goal is 300: it is missed on any machine.
    let output = payferry().args(["bench", "--quick", "--strict", "--only", "complete"]).output().unwrap();
    let (told, error) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert_eq!(output.status.code(), Some(1), "{told}{error}");
    let row = told.lines().find(|line| line.starts_with("complete payments"));
    assert!(row.is_some_and(|row| row.contains("≥ 300 ✗")) && !told.contains("WRONG"), "{told}");
    let missed: Vec<&str> = error.lines().filter(|line| line.starts_with("missed: ")).collect();
    assert!(matches!(missed[..], [line] if line.starts_with("missed: complete payments: ")), "{error}");
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
