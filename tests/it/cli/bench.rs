//! `payferry bench`, small and short: its rows have figures, and nothing stays behind.

use serde_json::{Value, json};

use crate::process::payferry;

/// Returns the lines of a successful quick run of these rows, without wrong results and without remains in the folder.
fn measured(rows: &str, further: &[&str]) -> Vec<Value> {
    let folder = tempfile::tempdir().unwrap();
    let mut command = payferry();
    // A relative folder, as `./check` uses.
    command.args(["bench", "--quick", "--json", "--only", rows, "--folder", "below"]).args(further);
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

/// Rows without a bound: exact costs.
const UNBOUND: [&str; 1] = ["transitions replayed"];

/// Checks the bound and the ratio to it: of the two figures, or of paired measurements.
fn assert_compared(line: &Value) {
    if UNBOUND.iter().any(|row| line["what"].as_str().unwrap().starts_with(row)) {
        assert!(line["figure"].as_f64().unwrap() > 0.0 && line["bound"].is_null(), "{line}");
        return;
    }
    let (figure, bound) = (line["figure"].as_f64().unwrap(), line["bound"]["figure"].as_f64().unwrap());
    let is_in_pairs = line["bound"]["what"].as_str().unwrap().contains("in turns");
    let ratio = line["ratio"].as_f64().unwrap();
    assert!(figure > 0.0 && bound > 0.0 && ratio > 0.0, "{line}");
    assert!(is_in_pairs || (ratio - figure / bound).abs() < 1e-9, "{line}");
}

fn names(lines: &[Value]) -> Vec<&str> {
    lines.iter().map(|line| line["what"].as_str().unwrap()).collect()
}

/// Returns all notes of a line.
fn notes(line: &Value) -> String {
    line["notes"].as_array().unwrap().iter().map(|note| note.as_str().unwrap()).collect::<Vec<_>>().join("\n")
}

/// Rounds a figure as notes do.
fn rounded(figure: f64) -> f64 {
    format!("{figure:.1}").parse().unwrap()
}

/// Returns the figures with this unit in a text.
fn figures(text: &str, unit: &str) -> Vec<f64> {
    let spaced = text.replace(unit, &format!(" {unit} "));
    let words: Vec<&str> = spaced.split_whitespace().collect();
    words.windows(2).filter(|two| two[1] == unit).filter_map(|two| two[0].parse().ok()).collect()
}

#[test]
fn quick_and_seconds_exclude_each_other() {
    let output = payferry().args(["bench", "--quick", "--seconds", "30"]).output().unwrap();
    let error = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(2), "{error}");
    for word in ["--seconds", "--quick", "cannot be used with"] {
        assert!(error.contains(word), "{error}");
    }
}

#[test]
fn a_quick_run_measures_and_cleans_up() {
    let lines = measured("initiate,complete,webhooks,customers-create,customers-list", &[]);
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
        assert_eq!(line["profile"], if cfg!(debug_assertions) { "debug" } else { "release" }, "{line}");
    }
    let [throughput, latency, complete, webhooks, ..] = &lines[..] else { panic!("{lines:?}") };
    // Figure and ratio have goals.
    let (figure, goal) = (throughput["figure"].as_f64().unwrap(), throughput["goal"]["at_least"].as_f64().unwrap());
    assert_eq!(throughput["ratio_goal"], json!({"at_least": 0.3}), "{throughput}");
    let ratio = throughput["ratio"].as_f64().unwrap();
    // The temporary folder may be in memory. Then the line says so and does not hold.
    let lacks = throughput["lacks"].as_array().unwrap();
    assert_eq!(throughput["holds"], figure >= goal && ratio >= 0.3 && lacks.is_empty(), "{throughput}");
    let says = "the database says journal_mode = wal, synchronous = 2, file_system = ";
    assert!(notes(throughput).contains(says), "{throughput}");
    assert!(notes(throughput).contains("bound and service alternate, 3 turns each"), "{throughput}");
    assert!(notes(latency).starts_with("200 initiations at a steady rate, 3 runs"), "{latency}");
    let times: Vec<f64> = figures(&notes(latency), "ms");
    assert!(times.contains(&rounded(latency["figure"].as_f64().unwrap())), "one of three runs: {latency}");
    // The largest number of deliveries in progress that the service allows.
    assert!(notes(webhooks).contains("have up to 256 in progress"), "{webhooks}");
    // The search tries two rates, of which a busy machine may not sustain the second one.
    assert!(notes(complete).starts_with("sustained at "), "{complete}");
    for part in ["/s sustained", "the search ended because ", " payments in all, and ", "the bare pipeline: "] {
        assert!(notes(complete).contains(part), "{part} {complete}");
    }
    assert!(latency["figure"].as_f64().unwrap() < 20_000.0, "above the timeout: {latency}");
}

#[test]
fn measures_memory_pages_cpu_and_rehydration_of_many_payments() {
    let lines = measured("memory,pages,cpu,rehydration", &[]);
    let wanted = [
        "memory of a live payment, of 2000",
        "the operator's slowest page beside 2000 live",
        "CPU of the idle service and an open console beside 2000 live, of all cores",
        "CPU of a payment beside 2000 live",
        "payments live again after a kill",
    ];
    assert_eq!(names(&lines), wanted);
    let [memory, pages, console, cpu, back] = &lines[..] else { panic!("{lines:?}") };
    // With so few payments, most of the memory is the process's own; it is less than a gigabyte.
    assert!(memory["figure"].as_f64().unwrap() < 1_000.0, "{memory}");
    for page in ["/ops: ", "/ops/view/shards/0: ", "/ops/view/stuck: ", "/metrics: "] {
        assert!(notes(pages).lines().any(|note| note.starts_with(page) && note.contains(" bytes, ")), "{page} {pages}");
    }
    assert_eq!(pages["goal"], json!({"at_most": 50.0}), "{pages}");
    assert_eq!(console["goal"], json!({"at_most": 3.0}), "{console}");
    assert!(notes(console).starts_with("events once a second ("), "{console}");
    // 20 in each turn of two services: once to warm up and once to measure.
    let payments = "complete payments, 20 a second: initiated, paid, confirmed, settled, webhooks received; 80 in all";
    assert!(notes(cpu).contains(payments) && notes(cpu).contains("idle CPU time: "), "{cpu}");
    assert!(notes(cpu).contains("1 alternating rounds: ") && notes(cpu).contains("middle half of the rounds"), "{cpu}");
    assert_eq!(cpu["ratio_goal"], json!({"at_most": 1.1}), "{cpu}");
    assert!(back["figure"].as_f64().unwrap() > 0.0 && notes(back).starts_with("2000 in "), "{back}");
}

#[test]
fn measures_settled_payments() {
    let lines = measured("finality,reconcile,replay", &[]);
    let wanted = [
        "final block to first webhook, p50",
        "final block to first webhook, p99",
        "reconcile over 500 settled payments, less the endpoint's time",
        "transitions replayed per CPU second, 500 histories",
    ];
    assert_eq!(names(&lines), wanted);
    let [p50, p99, _, _] = &lines[..] else { panic!("{lines:?}") };
    let [middle, late] = [p50, p99].map(|line| line["figure"].as_f64().unwrap());
    assert!(middle > 0.0 && middle <= late, "{p50} {p99}");
}

#[test]
fn compares_two_binaries_in_alternating_rounds() {
    let lines = measured("initiate,complete", &["--against", env!("CARGO_BIN_EXE_payferry")]);
    let wanted = [
        ("payments initiated, SQLite", "/s", json!({"at_least": 0.8})),
        ("CPU of a payment initiated, SQLite", "µs", json!({"at_most": 1.1})),
        ("complete payments", "/s", json!({"at_least": 0.9})),
        ("CPU of a complete payment", "µs", json!({"at_most": 1.1})),
    ];
    assert_eq!(lines.len(), wanted.len());
    for (line, (what, unit, goal)) in lines.iter().zip(wanted) {
        assert_eq!((&line["what"], &line["unit"], &line["ratio_goal"]), (&json!(what), &json!(unit), &goal), "{line}");
        assert!(notes(line).starts_with("2 paired rounds with 1 pairs of services: "), "{line}");
    }
}

#[test]
fn a_missing_binary_is_a_wrong_result() {
    let args = ["bench", "--quick", "--only", "initiate", "--against", "/nowhere/payferry"];
    let output = payferry().args(args).output().unwrap();
    let printed = String::from_utf8_lossy(&output.stdout);
    assert_eq!(output.status.code(), Some(1), "{printed}");
    assert!(printed.contains("WRONG: the sandbox cannot be started"), "{printed}");
    let output = payferry().args(["bench", "--quick", "--only", "webhooks", "--against", "x"]).output().unwrap();
    let error = String::from_utf8_lossy(&output.stderr);
    assert!(error.contains("--against measures initiate, initiate-postgres, complete only, not webhooks"), "{error}");
}

#[test]
fn a_strict_run_fails_and_names_missed_goals() {
    // A quick run tries 40 payments per second at most, and the goal is 300.
    let output = payferry().args(["bench", "--quick", "--strict", "--only", "complete"]).output().unwrap();
    let (told, error) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert_eq!(output.status.code(), Some(1), "{told}{error}");
    let row = told.lines().find(|line| line.starts_with("complete payments"));
    assert!(row.is_some_and(|row| row.contains("≥ 300 ✗")) && !told.contains("WRONG"), "{told}");
    let missed: Vec<&str> = error.lines().filter(|line| line.starts_with("missed: ")).collect();
    assert!(matches!(missed[..], [line] if line.starts_with("missed: complete payments: ")), "{error}");
}

#[test]
fn rejects_rows_that_cannot_be_measured() {
    let output = payferry().args(["bench", "--quick", "--only", "initiate-postgres"]).output().unwrap();
    assert_eq!(output.status.code(), Some(1));
    let error = String::from_utf8_lossy(&output.stderr);
    assert_eq!(error.lines().last(), Some("error: initiate-postgres needs --postgres URL"));
    let output = payferry().args(["bench", "--only", "everything"]).output().unwrap();
    assert_eq!(output.status.code(), Some(2));
}
