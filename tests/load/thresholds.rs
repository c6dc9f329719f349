//! Rates over time and thresholds: they decide the exit code, and refusals improve no figure.

use serde_json::{Value, json};

use super::between::{Changes, KeptWith, load_through};
use super::{report, run, stage};
use crate::call::assert_has;
use crate::process::Running;

shared!(#[tokio::test] judges_by_thresholds, sandbox = Running::new().await, async {} =>
    refusals_of_an_overloaded_service_are_judged_by_their_threshold);

const ASKED: &str = "--rate 50/s --payments 50";
/// Initiations that the service never gets.
const KEPT: usize = 30;

fn kept_with(with: KeptWith, number: usize) -> Changes {
    Changes { initiations_kept: number, kept_with: Some(with), ..Changes::default() }
}

/// Returns the figures of a kind of answer.
fn answer<'a>(report: &'a Value, kind: &str) -> &'a Value {
    report["answers"].as_array().unwrap().iter().find(|answer| answer["answer"] == kind).unwrap()
}

async fn refusals_of_an_overloaded_service_are_judged_by_their_threshold(sandbox: &Running) {
    for (thresholds, code) in [
        ("--threshold refused<70% --threshold accepted:p99<30s", 0),
        ("--threshold refused<50% --threshold accepted:p99<1us --threshold goodput>0.5", 1),
    ] {
        let asked = format!("{ASKED} {thresholds}");
        let loaded = load_through(sandbox, kept_with(KeptWith::Overloaded, KEPT), &asked).await;
        let report = report(&loaded.output, code);
        assert_has(&report, json!({ "passed": code == 0, "findings": [], "not_made_percent": 60.0 }));
        assert_has(&report["counted"], json!({ "accepted": 20, "refused": KEPT, "overloaded": KEPT, "complete": 20 }));
        assert_eq!(answer(&report, "overloaded")["from_intended"]["count"], KEPT, "{:#}", report["answers"]);
        // Fast refusals are in no figure of the accepted payments.
        assert_eq!(answer(&report, "accepted")["from_intended"]["count"], 20, "{:#}", report["answers"]);
        assert_eq!(stage(&report, "accepted")["from_intended"]["count"], 20);
        let judged = report["thresholds"].as_array().unwrap();
        assert_eq!(judged.len(), thresholds.matches("--threshold").count(), "{judged:#?}");
        assert!(judged.iter().all(|judged| judged["passed"] == (code == 0)), "{judged:#?}");
        assert_eq!(judged[0]["measured"], 0.6, "{judged:#?}");
    }
}

#[tokio::test]
async fn rates_change_over_time_and_runs_are_compared() {
    let stages = run("--stages 0-60/2s,20/1s,120/500ms --mix exact=100 --block-time-ms 100 --json").await;
    let before = report(&stages, 0);
    assert_has(&before["asked"], json!({ "payments": 140, "rate": 120.0, "stages": "0-60/2s,20/1s,120/500ms" }));
    assert_has(&before, json!({ "passed": true, "counted/complete": 140, "findings": [], "comparison": null }));
    let due_until = |secs: f64| -> u64 {
        let course = before["course"].as_array().unwrap().iter();
        let until = course.filter(|second| second["at_secs"].as_f64().unwrap() < secs + 0.5);
        until.map(|second| second["counted"]["due"].as_u64().unwrap()).sum()
    };
    // Ends of seconds are up to half a second late.
    let (ramp, soak) = (due_until(2.0), due_until(3.0));
    assert!((34..=75).contains(&ramp) && (60..=120).contains(&soak), "{ramp} {soak}");

    let temp = tempfile::tempdir().unwrap();
    let (old, page) = (temp.path().join("old.json"), temp.path().join("report.html"));
    std::fs::write(&old, &stages.stdout).unwrap();
    let args = "--rate 40/s --duration 2s --mix exact=100 --block-time-ms 100 --json";
    let files = format!("--compare {} --report {}", old.display(), page.display());
    let report = report(&run(&format!("{args} {files}")).await, 0);
    assert_has(&report["asked"], json!({ "payments": 80, "rate": 40.0, "stages": "40/2s" }));
    let comparison = &report["comparison"];
    assert_eq!(comparison["with"], before["run"]);
    let differs = json!([
        "rate: 120.0 before, 40.0 now",
        "payments: 140 before, 80 now",
        "stages: \"0-60/2s,20/1s,120/500ms\" before, \"40/2s\" now"
    ]);
    assert_eq!(comparison["differs"], differs, "same machine and version: {comparison:#}");
    let figures = comparison["figures"].as_array().unwrap();
    assert_eq!(figures.len(), 9, "{figures:#?}");
    // Two seconds are too short for a noise.
    assert!(
        figures.iter().all(|one| one["change"] == "unknown" && one["ratio"].as_f64().unwrap() > 0.0),
        "{figures:#?}"
    );
    assert!(std::fs::read_to_string(&page).unwrap().contains("compared with run"));
}
