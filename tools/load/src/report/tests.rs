//! Tests of the report's pages and tables.

use std::time::Duration;

use payferry_testkit::wire::{Chain, Token};

use super::html::page;
use super::terminal::Terminal;
use super::*;
use payferry_testkit::audit::behaviour::Behaviour;
use payferry_testkit::audit::stages::{Stage, Stages};

const PAYMENT: &str = "pay_01J9Z3K4M5N6P7Q8R9S0T1V2W3";

/// Returns a course of three seconds, of which the second lasted four, and a last one that is too short for a rate.
fn course() -> Vec<Second> {
    [(1.0, 1.0), (5.0, 4.0), (6.0, 1.0), (6.01, 0.01)]
        .map(|(at_secs, period_secs)| Second {
            at_secs,
            period_secs,
            counted: Counted { due: 40, accepted: 40, webhooks: 100, ..Counted::default() },
            in_flight: 7,
            open: 9,
            errors: 2,
            accepted_p50_ms: 3.0,
            accepted_p99_ms: 30.0,
            service_cores: Some(0.5),
            service_bytes: Some(50 << 20),
            own_cores: Some(0.25),
            ..Second::default()
        })
        .to_vec()
}

fn finding(kind: FindingKind, payment_id: Option<&str>, found: &str) -> Finding {
    Finding {
        payment_id: payment_id.map(str::to_owned),
        kind,
        payer: payment_id.map(|_| Behaviour::Exact),
        expected: "settled, 5.05 of 5.05 received".to_owned(),
        found: found.to_owned(),
        lacks_webhooks: false,
    }
}

fn holding(balance_grew: &str) -> Holding {
    let [grew, fee] = ["10.00", "0.10"].map(str::to_owned);
    Holding {
        chain: Chain::Base,
        token: Token::Usdc,
        vault_grew: grew.clone(),
        treasury_grew: fee.clone(),
        vault_expected: grew.clone(),
        treasury_expected: fee,
        equal: true,
        balance_grew: Some(balance_grew.to_owned()),
        postings_say: Some(grew),
    }
}

fn report() -> Report {
    Report {
        version: "0.0.0",
        run: "0a1b2c3d".to_owned(),
        began_at: "2026-01-01T00:00:00.000Z".to_owned(),
        asked: LoadRequest {
            rate: Rate::per_second(40.0).expect("a rate"),
            payments: 160,
            pacing: "constant",
            seed: None,
            mix: "exact=100".to_owned(),
            hold: 20,
            in_flight_max: 10,
            settle_timeout_secs: 60,
            target: "a new sandbox".to_owned(),
        },
        achieved: Achieved {
            arrivals_secs: 6.0,
            total_secs: 8.0,
            steady_secs: 6.0,
            accepted_per_sec: 20.0,
            complete_per_sec: 20.0,
            webhooks_per_sec: 50.0,
            in_flight_most: 7,
            open_most: 9,
        },
        counted: Counted { held: 20, due: 160, accepted: 160, ..Counted::default() },
        stages: Vec::new(),
        curves: vec![("accepted", vec![(0.0, 1.0), (50.0, 3.0), (99.0, 30.0), (100.0, 300.0)])],
        machine: Machine::default(),
        errors: BTreeMap::new(),
        holdings: vec![holding("10.00")],
        read_back: 180,
        audited: true,
        notes: Vec::new(),
        interrupted: false,
        not_made_percent: 0.0,
        not_held_percent: 0.0,
        not_made_percent_max: 0.0,
        findings: Vec::new(),
        service_log: Vec::new(),
        course: course(),
    }
}

/// Returns the report with findings, errors and a note.
fn ill() -> Report {
    Report {
        errors: [("initiate: 503 overloaded".to_owned(), 7), ("webhook: the timestamp is not now".to_owned(), 1)]
            .into(),
        findings: vec![
            finding(FindingKind::Lost, Some(PAYMENT), "the service no longer has this payment"),
            finding(FindingKind::Wrong, None, "a webhook <evt_1>: the timestamp is not now"),
        ],
        holdings: vec![holding("12.50")],
        notes: vec!["Its balances were not compared.".to_owned()],
        ..report()
    }
}

/// Returns the path of a line of a plot.
fn path_of<'a>(page: &'a str, plot: &str, line: &str) -> &'a str {
    let from = page.find(&format!("aria-label=\"{plot}\"")).unwrap_or_else(|| panic!("no plot {plot}"));
    let svg = page[from..].split("</svg>").next().expect("it ends");
    let path = svg.split("<path").find(|path| path.contains(&format!("<title>{line}</title>"))).expect("the line");
    path.split("d=\"").nth(1).and_then(|rest| rest.split('"').next()).expect("its path")
}

/// Returns the points of a plot's lines, with the names of the lines.
fn lines_of<'a>(page: &'a str, plot: &str) -> Vec<(&'a str, Vec<&'a str>)> {
    let from = page.find(&format!("aria-label=\"{plot}\"")).unwrap_or_else(|| panic!("no plot {plot}"));
    let svg = page[from..].split("</svg>").next().expect("it ends");
    let path = |text: &'a str| {
        let d = text.split("d=\"").nth(1).and_then(|rest| rest.split('"').next()).unwrap_or_default();
        let name = text.split("<title>").nth(1).and_then(|rest| rest.split('<').next()).unwrap_or_default();
        (name, d.split(['M', 'L']).skip(1).collect())
    };
    svg.split("<path").skip(1).map(path).collect()
}

#[test]
fn a_page_shows_findings_errors_and_notes() {
    let page = page(&ill());
    for shown in [
        "Failed: 1 lost, 1 wrong.",
        PAYMENT,
        "the service no longer has this payment",
        "settled, 5.05 of 5.05 received",
        "a webhook &lt;evt_1&gt;: the timestamp is not now",
        "Errors by kind",
        "initiate: 503 overloaded",
        "Its balances were not compared.",
        "<strong>differs</strong>",
        "12.50",
    ] {
        assert!(page.contains(shown), "{shown}");
    }
    let well = self::page(&report());
    for not_shown in ["Errors by kind", "Findings", "differs", "verdict ill"] {
        assert!(!well.contains(not_shown), "{not_shown}");
    }
    assert!(well.contains("verdict well") && well.contains("All 180 payments are as expected"));
}

#[test]
fn a_page_limits_the_listed_findings() {
    let findings = (0..1_003).map(|_| finding(FindingKind::Lost, Some(PAYMENT), "gone")).collect();
    let page = page(&Report { findings, ..report() });
    assert_eq!(page.matches(PAYMENT).count(), 1_000);
    assert!(page.contains("... and 3 more, see the JSON."));
}

#[test]
fn plots_have_a_point_per_second_and_rates_by_real_time() {
    let page = page(&report());
    let throughput = lines_of(&page, "Throughput");
    let names: Vec<&str> = throughput.iter().map(|(name, _)| *name).collect();
    assert_eq!(names, ["due", "accepted", "settled", "complete", "webhooks"]);
    for (name, points) in &throughput {
        assert_eq!(points.len(), 3, "{name}: the last second is too short for a rate");
    }
    let height = |point: &str| point.split(' ').nth(1).and_then(|y| y.parse::<f64>().ok()).expect("a point");
    let webhooks: Vec<f64> = throughput[4].1.iter().map(|point| height(point)).collect();
    // 100 in one second and 100 in four: a quarter of the rate.
    let base = throughput[2].1.iter().map(|point| height(point)).fold(f64::MIN, f64::max);
    let [first, long, last] = webhooks.as_slice() else { panic!("{webhooks:?}") };
    assert!((first - last).abs() < 0.2, "{webhooks:?}");
    assert!(((base - long) * 4.0 - (base - first)).abs() < 0.5, "{webhooks:?} above {base}");
    for (plot, lines, points) in [
        ("Latency by second", 4, 4),
        ("Initiations in flight", 1, 4),
        ("Payments accepted and not complete", 1, 4),
        ("Errors", 1, 3),
        ("Busy cores", 2, 3),
        ("Memory of the service", 1, 4),
        ("From the scheduled start to each stage", 1, 4),
    ] {
        let drawn = lines_of(&page, plot);
        assert_eq!((drawn.len(), drawn[0].1.len()), (lines, points), "{plot}: {drawn:?}");
    }
    let latency = lines_of(&page, "Latency by second");
    assert!(latency[2].1.is_empty(), "nothing was complete: {latency:?}");
    assert_eq!(path_of(&page, "Latency by second", "accepted p50").matches('M').count(), 1);
    assert!(!page.contains("NaN"));
}

#[test]
fn a_second_without_latencies_is_a_gap_in_the_line() {
    let mut course = course();
    let (second, silent) = (course[0], Second { accepted_p50_ms: 0.0, accepted_p99_ms: 0.0, ..course[0] });
    course = [second, second, silent, second, second, silent, second, silent].to_vec();
    (1..).zip(&mut course).for_each(|(at, second)| second.at_secs = f64::from(at));
    let page = page(&Report { course, ..report() });
    let path = path_of(&page, "Latency by second", "accepted p99");
    let runs: Vec<usize> = path.split('M').skip(1).map(|run| run.split('L').count()).collect();
    assert_eq!(runs, [2, 2, 1], "{path}");
    // A single point between two gaps is a dot.
    assert!(path.ends_with("h0") && path.matches("h0").count() == 1, "{path}");
    // A value that is not of this second only has no gap.
    let open = path_of(&page, "Payments accepted and not complete", "open");
    assert_eq!((open.matches('M').count(), open.matches('L').count()), (1, 7), "{open}");
}

#[test]
fn a_report_without_accepted_payments_is_drawn() {
    let course = course().into_iter();
    let silent = |second: Second| Second {
        counted: Counted { due: 40, refused: 40, ..Counted::default() },
        accepted_p50_ms: 0.0,
        accepted_p99_ms: 0.0,
        ..second
    };
    let report = Report {
        curves: Vec::new(),
        counted: Counted { due: 160, refused: 160, ..Counted::default() },
        not_made_percent: 100.0,
        errors: [("initiate: 503 overloaded".to_owned(), 160)].into(),
        holdings: Vec::new(),
        course: course.map(silent).collect(),
        ..report()
    };
    let page = page(&report);
    for drawn in ["Throughput", "Initiations in flight", "Errors"] {
        assert!(!lines_of(&page, drawn)[0].1.is_empty(), "{drawn}");
    }
    for no_lines in ["From the scheduled start to each stage", "Latency by second"] {
        assert!(!page.contains(no_lines), "{no_lines}");
    }
    assert!(!page.contains("\"inf") && !page.contains("\"-inf") && !page.contains("NaN"), "{page}");
    assert!(page.contains("Failed: 160 not made (100.00 %)."), "{page}");
    let text = Terminal(&report).to_string();
    assert!(text.contains("made      0 of 160 due (160 refused,") && !text.contains("NaN"), "{text}");
}

#[test]
fn shows_the_seed_of_arrivals() {
    let seeded = |seed| {
        let pacing = if seed == Some(7) { "poisson" } else { "constant" };
        Report { asked: LoadRequest { pacing, seed, ..report().asked }, ..report() }
    };
    for (seed, says) in [(Some(7), "(poisson (seed 7)), exact=100"), (None, "(constant), exact=100")] {
        let text = Terminal(&seeded(seed)).to_string();
        assert!(text.contains(says), "{text}");
    }
    assert!(page(&seeded(Some(7))).contains("poisson (seed 7) arrivals"));
    assert_eq!(serde_json::to_value(seeded(Some(7))).expect("JSON")["asked"]["seed"], 7);
}

#[test]
fn a_terminal_shows_the_first_findings_errors_and_notes() {
    let text = Terminal(&ill()).to_string();
    for shown in [
        "lost        pay_01J9Z3K4M5N6P7Q8R9S0T1V2W3 (payer: exact)",
        "  expected  settled, 5.05 of 5.05 received",
        "  found     the service no longer has this payment",
        "wrong       -\n",
        "errors by kind\n       7  initiate: 503 overloaded\n       1  webhook: the timestamp is not now\n",
        "12.50          10.00  differs\n",
        "Its balances were not compared.",
        "20 of 20 held",
    ] {
        assert!(text.contains(shown), "{shown}\n{text}");
    }
    assert!(text.ends_with("Failed: 1 lost, 1 wrong.\n"), "{text}");
    let findings = (0..23).map(|_| finding(FindingKind::Lost, Some(PAYMENT), "gone")).collect();
    let text = Terminal(&Report { findings, ..report() }).to_string();
    assert_eq!(text.matches(PAYMENT).count(), 20);
    assert!(text.contains("... and 3 more, see --json or --report"), "{text}");
    let well = Terminal(&report()).to_string();
    assert!(!well.contains("errors by kind") && !well.contains("differs") && !well.contains("  expected  "), "{well}");
}

#[test]
fn shows_timeouts_beside_their_stage() {
    let waited = |timed_out: u64| {
        let stages = Stages::default();
        stages.record(Stage::Accepted, Duration::from_millis(5), Duration::from_millis(5));
        for _ in 0..timed_out {
            stages.record_timed_out(Stage::Accepted, Duration::from_secs(10), Some(Duration::from_secs(10)));
        }
        Report { stages: stages.figures(), ..report() }
    };
    let (well, ill) = (waited(0), waited(3));
    let text = Terminal(&ill).to_string();
    assert!(
        text.contains("        4  3 timed out\ntimed out: the expected response, block or webhook did not arrive"),
        "{text}"
    );
    let page = page(&ill);
    assert!(
        page.contains("4, 3 timed out")
            && page.contains("Timed out: the expected response, block or webhook did not arrive"),
        "{page}"
    );
    assert_eq!(serde_json::to_value(&ill).expect("JSON")["stages"][0]["in_vain"], 3);
    let page = self::page(&well);
    assert!(!Terminal(&well).to_string().contains("timed out") && !page.to_lowercase().contains("timed out"), "{page}");
}

#[test]
fn fails_if_too_many_payments_were_not_made() {
    let missing = |accepted, held, max| Report {
        counted: Counted { due: 160, accepted, held, ..Counted::default() },
        not_made_percent: f64::from(160 - u32::try_from(accepted).expect("small")) / 1.6,
        not_held_percent: f64::from(20 - u32::try_from(held).expect("small")) * 5.0,
        not_made_percent_max: max,
        ..report()
    };
    assert!(missing(160, 20, 0.0).is_ok());
    for (accepted, held, says) in [
        (152, 20, "Failed: 8 not made (5.00 %)."),
        (160, 10, "Failed: 10 held payments not made (50.00 %)."),
        (152, 10, "Failed: 8 not made (5.00 %), 10 held payments not made (50.00 %)."),
    ] {
        let report = missing(accepted, held, 4.0);
        assert!(!report.is_ok());
        assert_eq!(report.verdict(), says);
        assert!(missing(accepted, held, 50.0).is_ok());
    }
}

#[test]
fn fails_if_payments_were_not_compared() {
    let unread = Report {
        audited: false,
        findings: vec![Finding::of_none("all payments are read back and compared", "the comparison failed".to_owned())],
        ..report()
    };
    assert!(!unread.is_ok() && !Report { findings: Vec::new(), ..unread.clone() }.is_ok());
    assert_eq!(unread.verdict(), "Payments were not compared. Failed: 1 wrong.");
    let interrupted = Report { audited: false, interrupted: true, ..report() };
    let says = "Interrupted: the report shows the state at the interruption; payments were not compared.";
    assert_eq!(interrupted.verdict(), says);
    let known = Report { findings: vec![finding(FindingKind::Wrong, Some(PAYMENT), "a fault")], ..interrupted };
    assert_eq!(known.verdict(), format!("{says} Wrong so far: 1 wrong."));
    assert!(!known.is_ok());
}
