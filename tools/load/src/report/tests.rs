//! Tests of the report's pages and tables.

use std::time::Duration;

use payferry_testkit::wire::{Chain, Token};

use super::html::page;
use super::terminal::Terminal;
use super::*;
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
        is_late: false,
    }
}

fn holding(balance_grew: &str) -> Holding {
    let [grew, fee] = ["10.00", "0.10"].map(str::to_owned);
    Holding {
        psp_id: None,
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

fn report() -> LoadReport {
    LoadReport {
        version: "0.0.0",
        service_version: Some("0.0.1".to_owned()),
        run: "0a1b2c3d".to_owned(),
        began_at: "2026-01-01T00:00:00.000Z".to_owned(),
        request: LoadRequest {
            rate: Rate::per_second(40.0).expect("a rate"),
            payments: 160,
            stages: None,
            thresholds: Vec::new(),
            faults: FaultPlan::default(),
            receiver: Conduct::default(),
            pacing: "constant",
            seed: None,
            mix: "exact=100".parse().expect("a mixture"),
            psps: 1,
            in_turn: false,
            open_max: None,
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
        payers: Vec::new(),
        counted: Counted { held: 20, due: 160, accepted: 160, ..Counted::default() },
        stages: Vec::new(),
        answers: Vec::new(),
        outbound: Vec::new(),
        customers: None,
        thresholds: Vec::new(),
        comparison: None,
        curves: vec![("accepted", vec![(0.0, 1.0), (50.0, 3.0), (99.0, 30.0), (100.0, 300.0)])],
        machine: Machine {
            cores: 2,
            host: Host { cpu_model: Some("A CPU".to_owned()), memory_bytes: Some(4 << 30), os: "An OS 1.2".to_owned() },
            ..Machine::default()
        },
        errors: BTreeMap::new(),
        faults: Vec::new(),
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
fn ill() -> LoadReport {
    LoadReport {
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

/// Returns the markup of a page without its style, one element a line.
fn markup(report: &LoadReport) -> String {
    let page = page(report);
    let (head, rest) = page.split_once("<style>").expect("a style");
    let (_, body) = rest.split_once("</style>").expect("its end");
    format!("{head}{body}").replace("><", ">\n<")
}

/// Compares page and table with their snapshots.
fn assert_shown(name: &str, report: &LoadReport) {
    let (page, text) = (markup(report), Terminal(report).to_string());
    for shown in [&page, &text] {
        assert!(!shown.contains("NaN") && !shown.contains("inf\"") && !shown.contains("\"inf"), "{name}: {shown}");
    }
    insta::assert_snapshot!(format!("{name}_page"), page);
    insta::assert_snapshot!(format!("{name}_terminal"), text);
}

#[test]
fn pages_and_tables_show_the_run() {
    assert_shown("well", &report());
    assert_shown("findings", &ill());
}

#[test]
fn pages_and_tables_limit_the_listed_findings() {
    let findings = (0..1_003).map(|_| finding(FindingKind::Lost, Some(PAYMENT), "gone")).collect();
    let report = LoadReport { findings, ..report() };
    let (page, text) = (page(&report), Terminal(&report).to_string());
    assert_eq!([page.matches(PAYMENT).count(), text.matches(PAYMENT).count()], [1_000, 20]);
    assert!(page.contains("... and 3 more, see the JSON."));
    assert!(text.contains("... and 983 more, see --json or --report"), "{text}");
}

#[test]
fn a_second_without_latencies_is_a_gap_in_the_line() {
    let mut course = course();
    let (second, silent) = (course[0], Second { accepted_p50_ms: 0.0, accepted_p99_ms: 0.0, ..course[0] });
    course = [second, second, silent, second, second, silent, second, silent].to_vec();
    (1..).zip(&mut course).for_each(|(at, second)| second.at_secs = f64::from(at));
    assert_shown("gaps", &LoadReport { course, ..report() });
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
    let report = LoadReport {
        curves: Vec::new(),
        counted: Counted { due: 160, refused: 160, ..Counted::default() },
        not_made_percent: 100.0,
        errors: [("initiate: 503 overloaded".to_owned(), 160)].into(),
        holdings: Vec::new(),
        course: course.map(silent).collect(),
        ..report()
    };
    assert_shown("nothing_accepted", &report);
}

#[test]
fn shows_the_seed_of_arrivals() {
    let load = LoadReport { request: LoadRequest { pacing: "poisson", seed: Some(7), ..report().request }, ..report() };
    assert!(page(&load).contains("poisson (seed 7) arrivals"));
    let text = Terminal(&load).to_string();
    assert!(text.contains("(poisson (seed 7)), exact=100"), "{text}");
    assert_eq!(serde_json::to_value(&load).expect("JSON")["asked"]["seed"], 7);
}

#[test]
fn shows_the_rates_of_payers() {
    let rate = |payer, secs| PayerRate { payer, complete: 80, secs, complete_per_sec: 80.0 / secs };
    let payers = vec![rate(Behaviour::Exact, 5.0), rate(Behaviour::Authorized, 2.5)];
    let request = LoadRequest { in_turn: true, open_max: Some(30), ..report().request };
    let report = LoadReport { request, payers, ..report() };
    let text = Terminal(&report).to_string();
    assert!(text.contains("(constant, in turn, at most 30 open)"), "{text}");
    assert!(text.contains("  exact: 16.0 complete/s (80 in 5.0 s)\n"), "{text}");
    assert!(text.contains("  authorized: 32.0 complete/s (80 in 2.5 s)\n"), "{text}");
    assert!(page(&report).contains("<span>authorized complete/s</span><b>32.0</b>"));
}

#[test]
fn shows_timeouts_beside_their_stage() {
    let waited = |timed_out: u64| {
        let stages = Stages::default();
        stages.record(Stage::Accepted, Duration::from_millis(5), Duration::from_millis(5));
        for _ in 0..timed_out {
            stages.record_timed_out(Stage::Accepted, Duration::from_secs(10), Some(Duration::from_secs(10)));
        }
        LoadReport { stages: stages.figures(), ..report() }
    };
    let (well, ill) = (waited(0), waited(3));
    insta::assert_snapshot!("timeouts_terminal", Terminal(&ill).to_string());
    let page = page(&ill);
    assert!(page.contains("4, 3 timed out") && page.contains(&format!("Timed out: {TIMED_OUT_NOTE}")), "{page}");
    assert_eq!(serde_json::to_value(&ill).expect("JSON")["stages"][0]["in_vain"], 3);
    let (page, text) = (self::page(&well), Terminal(&well).to_string());
    assert!(!text.contains("timed out") && !page.to_lowercase().contains("timed out"), "{text} {page}");
}

#[test]
fn fails_if_too_many_payments_were_not_made() {
    let missing = |accepted, held, max| LoadReport {
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
fn the_verdict_has_payments_that_were_not_made_and_broken_thresholds() {
    let counted = Counted {
        due: 160,
        accepted: 60,
        complete: 60,
        refused: 92,
        overloaded: 90,
        unanswered: 5,
        turned_away: 3,
        held: 20,
        ..Counted::default()
    };
    let of = |thresholds: &[&str], not_made_percent_max| {
        let thresholds: Vec<Threshold> = thresholds.iter().map(|text| text.parse().expect("a threshold")).collect();
        let judged = thresholds.iter().map(|one| one.judge(&Stages::default(), &counted)).collect();
        let request = LoadRequest { thresholds, ..report().request };
        LoadReport { request, thresholds: judged, counted, not_made_percent_max, ..report() }
    };
    let not_made = "Not made: 100 of 160 (90 overloaded, 2 refused, 5 unanswered, 3 rejected).";
    for (thresholds, max, says) in [
        (&[][..], 50.0, "Failed: 100 not made (62.50 %)."),
        // The refusals have a threshold of their own.
        (&["refused<60%"], 5.0, "Failed: 10 not made (6.25 %)."),
        (
            &["refused<50%", "goodput>0.9"],
            7.0,
            "Failed: refused<50% is broken (56.25 %), goodput>0.9 is broken (37.50 %).",
        ),
        (&["accepted:p99<1s"], 100.0, "Failed: accepted:p99<1s is broken (nothing measured)."),
        (&["refused<60%"], 7.0, not_made),
    ] {
        let report = of(thresholds, max);
        assert!(report.verdict().ends_with(says), "{}", report.verdict());
        assert_eq!(report.is_ok(), says == not_made);
        let json: serde_json::Value = serde_json::from_str(&report.json().expect("JSON")).expect("an object");
        assert_eq!((&json["passed"], &json["counted"]["overloaded"]), (&(says == not_made).into(), &90.into()));
    }
    assert_shown("thresholds", &of(&["refused<60%", "goodput>0.9"], 7.0));
}

#[test]
fn fails_if_payments_were_not_compared() {
    let unread = LoadReport {
        audited: false,
        findings: vec![Finding::of_none("all payments are read back and compared", "the comparison failed".to_owned())],
        ..report()
    };
    assert!(!unread.is_ok() && !LoadReport { findings: Vec::new(), ..unread.clone() }.is_ok());
    assert_eq!(unread.verdict(), "Payments were not compared. Failed: 1 wrong.");
    let interrupted = LoadReport { audited: false, interrupted: true, ..report() };
    let says = "Interrupted: the report shows the state at the interruption; payments were not compared.";
    assert_eq!(interrupted.verdict(), says);
    let known = LoadReport { findings: vec![finding(FindingKind::Wrong, Some(PAYMENT), "a fault")], ..interrupted };
    assert_eq!(known.verdict(), format!("{says} Wrong so far: 1 wrong."));
    assert!(!known.is_ok());
}

#[test]
fn a_late_payment_is_no_defect_and_a_wrong_one_beside_it_is() {
    let late = Finding { is_late: true, ..finding(FindingKind::Wrong, Some(PAYMENT), "shows status `confirmed`") };
    let wrong = finding(FindingKind::Wrong, Some(PAYMENT), "event 5 is payin.settled");
    let run = |timed_out: u64, findings: &[&Finding]| {
        let stages = Stages::default();
        stages.record(Stage::Complete, Duration::from_secs(3), Duration::from_secs(3));
        for _ in 0..timed_out {
            stages.record_timed_out(Stage::Complete, Duration::from_mins(1), None);
        }
        let findings = findings.iter().copied().cloned().collect();
        LoadReport { stages: stages.figures(), findings, ..report() }.has_defect()
    };
    assert!(!run(0, &[]) && !run(2, &[&late, &late]));
    assert!(run(2, &[&late, &wrong]) && run(0, &[&late]));
}

#[test]
fn plots_and_verdict_show_the_injected_faults() {
    let text = "kill@1s; rpc-errors 0.1@2s-4s";
    let plan: FaultPlan = text.parse().expect("faults");
    let fault = |number: usize, at_secs, until_secs| InjectedFault {
        fault: plan.0[number - 1].to_string(),
        at_secs,
        until_secs,
        number,
    };
    let faults = vec![fault(1, 1.0, 1.9), fault(2, 2.0, 4.0)];
    let counted =
        Counted { due: 160, accepted: 150, unanswered: 10, excused: 10, held: 20, denied: 3, ..Counted::default() };
    let mut course = course();
    for second in &mut course {
        second.complete_heat.0[13] = 7;
    }
    let receiver = Conduct { slow: Duration::from_millis(200), fail: 0.1 };
    let request = LoadRequest { faults: plan, receiver, ..report().request };
    let report = LoadReport { request, faults, counted, course, not_made_percent: 6.25, ..report() };
    assert!(report.is_ok(), "{}", report.verdict());
    let says = "Nothing is lost: killed once, 10 % of the RPC calls failed for 2 s. All 170 payments are as expected";
    assert!(report.verdict().starts_with(says), "{}", report.verdict());
    assert!(report.verdict().ends_with("Not made: 10 of 160 (10 unanswered; 10 of them because of a fault)."));
    let unexcused = LoadReport { counted: Counted { excused: 9, ..counted }, ..report.clone() };
    assert_eq!(unexcused.verdict(), "Failed: 1 not made (0.62 %).");
    assert_shown("faults", &report);
}

#[test]
fn writes_figures_for_other_programs() {
    let stages = Stages::default();
    stages.record(Stage::Accepted, Duration::from_millis(5), Duration::from_millis(5));
    let thresholds = vec!["refused<60%".parse::<Threshold>().expect("a threshold").judge(&stages, &report().counted)];
    let report = LoadReport { stages: stages.figures(), thresholds, ..report() };
    insta::assert_snapshot!("csv", csv::course(&report.course));
    insta::assert_snapshot!("prometheus", prometheus::figures(&report));
}
