//! Content of `/metrics` after known events.
#![allow(clippy::float_cmp, reason = "counts are whole numbers")]

use std::collections::{BTreeMap, BTreeSet};
use std::time::Instant;

use payferry_harness::eventually;
use payferry_harness::receiver::ReceiverBehaviour;
use payferry_runtime::observe::ActorKind;

use crate::http::customers::individual;
use crate::prelude::*;
use crate::stage::{OnSandbox, Stage, Transfer, story_on};

/// Labels whose values may contain any number or version, or the fixed number of an invariant; all others are words.
const FREE_LABELS: [&str; 6] = ["le", "endpoint", "status", "version", "quantile", "invariant"];

/// Prefixes of the HELP of a time; exactly these metrics have names that end in `_seconds`.
const TIMES: [&str; 3] = ["Time ", "Age ", "From "];
/// Metrics whose series may appear later: those of closed sets of events and errors, and each chain's at its first
/// rescan.
const ANY_TIME: [&str; 4] = [
    "payferry_payment_events_total",
    "payferry_chain_request_errors_total",
    "payferry_chain_looks_failed_total",
    "payferry_chain_second_look_number",
];

/// Name, labels and value.
type Sample = (String, BTreeMap<String, String>, f64);

/// Samples of an exposition, and each metric's HELP and TYPE.
struct Exposed {
    samples: Vec<Sample>,
    helped: BTreeMap<String, String>,
    typed: BTreeMap<String, String>,
}

impl Exposed {
    fn now() -> Self {
        Self::parse(&payferry::telemetry::metrics().render())
    }

    fn parse(text: &str) -> Self {
        let (mut samples, mut helped, mut typed) = (Vec::new(), BTreeMap::new(), BTreeMap::new());
        for line in text.lines().filter(|line| !line.is_empty()) {
            if let Some(rest) = line.strip_prefix("# HELP ") {
                let (name, help) = rest.split_once(' ').unwrap();
                assert!(help.len() > 5, "{line}");
                helped.insert(name.to_owned(), help.to_owned());
            } else if let Some(rest) = line.strip_prefix("# TYPE ") {
                let (name, kind) = rest.split_once(' ').unwrap();
                typed.insert(name.to_owned(), kind.to_owned());
            } else {
                let (key, value) = line.rsplit_once(' ').unwrap();
                let (name, labels) = key.split_once('{').unwrap_or((key, "}"));
                let labels = labels.trim_end_matches('}').split("\",").filter(|label| !label.is_empty());
                let labels = labels.map(|label| label.split_once("=\"").unwrap());
                let labels = labels.map(|(key, value)| (key.to_owned(), value.trim_end_matches('"').to_owned()));
                samples.push((name.to_owned(), labels.collect(), value.parse().unwrap()));
            }
        }
        Self { samples, helped, typed }
    }

    /// Sum of all samples of a name with these labels; `None` if there is none.
    fn sum(&self, name: &str, labels: &[(&str, &str)]) -> Option<f64> {
        let fits = |of: &BTreeMap<String, String>| {
            labels.iter().all(|(label, value)| of.get(*label).is_some_and(|is| is == value))
        };
        let fitting = self.samples.iter().filter(|(of, has, _)| of == name && fits(has)).map(|(_, _, value)| *value);
        fitting.reduce(|sum, value| sum + value)
    }

    /// New series of metrics that already existed in `before`.
    fn grown_since(&self, before: &Self) -> Vec<&Sample> {
        let shown: BTreeSet<&str> = before.samples.iter().map(|(name, _, _)| name.as_str()).collect();
        let known: BTreeSet<_> = before.samples.iter().map(|(name, labels, _)| (name, labels)).collect();
        let is_new = |name: &String, labels| shown.contains(name.as_str()) && !known.contains(&(name, labels));
        self.samples.iter().filter(|(name, labels, _)| is_new(name, labels)).collect()
    }

    /// Asserts that the unit in the name of every gauge and histogram matches its HELP.
    fn assert_units(&self) {
        for (name, help) in &self.helped {
            if self.typed.get(name).is_none_or(|kind| kind == "counter") {
                continue;
            }
            let words: BTreeSet<&str> = help.split(|letter: char| !letter.is_ascii_alphabetic()).collect();
            let is_time = TIMES.iter().any(|word| help.starts_with(*word)) || words.contains("seconds");
            let bare = name.trim_end_matches("_total");
            assert_eq!(bare.ends_with("_seconds"), is_time, "{name}: {help}");
            assert_eq!(bare.ends_with("_bytes"), words.contains("bytes"), "{name}: {help}");
        }
    }
}

/// Metric of a sample: the samples of a histogram have suffixes.
fn family<'a>(name: &'a str, typed: &BTreeMap<String, String>) -> &'a str {
    let bare = ["_bucket", "_sum", "_count"].iter().find_map(|ending| name.strip_suffix(ending));
    bare.filter(|bare| typed.contains_key(*bare)).unwrap_or(name)
}

/// Waits until the exposition shows this value; gauges that are not updated by events refresh within a second.
async fn until_exposed(name: &str, labels: &[(&str, &str)], holds: impl Fn(f64) -> bool) {
    let look = async || match Exposed::now().sum(name, labels) {
        Some(sum) if holds(sum) => Ok(()),
        sum => Err(format!("{sum:?}")),
    };
    eventually(format!("{name} {labels:?} is as wanted"), look).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn metrics_have_values_help_and_plain_labels() {
    let began = Instant::now();
    let (stage, psp) = story_on(OnSandbox::start().await).await;
    let id = psp.payment("10", Token::Usdc, Chain::Base).await;
    let idle = psp.payment("10", Token::Usdt, Chain::Polygon).await;
    stage.panic(&id).await;
    stage.pay(&id, Transfer::exact()).await;
    psp.until_status(&id, "settled").await;
    for _ in 0..4 {
        stage.panic(&idle).await;
    }

    let one = |value: f64| value >= 1.0;
    until_exposed("payferry_payments", &[("status", "settled"), ("chain", "base")], one).await;
    until_exposed("payferry_payments", &[("status", "pending"), ("chain", "polygon")], one).await;
    until_exposed("payferry_payments_quarantined", &[], one).await;
    until_exposed("payferry_webhook_attempts_total", &[("outcome", "delivered")], one).await;
    until_exposed("payferry_webhook_backlog_deliveries", &[], |waiting| waiting == 0.0).await;
    until_exposed("payferry_actors_live", &[("kind", "shard")], |live| live == 16.0).await;
    until_exposed("payferry_actors_live", &[("kind", "watcher")], |live| live == 3.0).await;
    until_exposed("process_resident_memory_bytes", &[], |bytes| bytes > 1e6).await;
    until_exposed("process_open_fds", &[], one).await;
    for pool in ["journal", "reader"] {
        until_exposed("payferry_database_statements_total", &[("pool", pool)], one).await;
    }
    until_exposed("payferry_database_commits_total", &[("pool", "journal")], one).await;
    until_exposed("process_cpu_seconds_total", &[], |seconds| seconds > 0.0).await;
    until_exposed("payferry_uptime_seconds", &[], |seconds| seconds > 0.0).await;
    // Every kind has metrics, except outbound transfers, which this story does not use.
    for kind in ActorKind::ALL.iter().filter(|kind| **kind != ActorKind::Sending) {
        let kind = [("kind", kind.as_str())];
        until_exposed("payferry_actor_messages_total", &kind, one).await;
        until_exposed("payferry_actor_mailbox_wait_seconds_count", &kind, one).await;
        until_exposed("payferry_actor_handling_seconds_count", &kind, one).await;
    }

    let exposed = Exposed::now();
    let lasted = began.elapsed().as_secs_f64();
    let sum = |name: &str, labels: &[(&str, &str)]| {
        exposed.sum(name, labels).unwrap_or_else(|| panic!("{name} {labels:?} is missing"))
    };
    assert_eq!(sum("payferry_actor_restarts_total", &[("kind", "payment"), ("cause", "panic")]), 4.0);
    assert_eq!(sum("payferry_payments_quarantined_total", &[("cause", "panic")]), 1.0);
    assert_eq!(sum("payferry_payments_initiated_total", &[("chain", "base"), ("token", "USDC")]), 1.0);
    assert_eq!(sum("payferry_payment_events_total", &[("event", "settled")]), 1.0);
    assert_eq!(sum("payferry_payment_transition_seconds_count", &[("from", "pending"), ("to", "confirmed")]), 1.0);
    assert_eq!(sum("payferry_payment_transition_seconds_count", &[("from", "confirmed"), ("to", "settled")]), 1.0);
    assert_eq!(sum("payferry_build_info", &[("version", env!("CARGO_PKG_VERSION"))]), 1.0);
    // Times are in seconds: none exceeds the story, because commits are sequential.
    for (from, to) in [("pending", "confirmed"), ("confirmed", "settled")] {
        let took = sum("payferry_payment_transition_seconds_sum", &[("from", from), ("to", to)]);
        assert!(took > 0.0 && took <= lasted, "{from} to {to} took {took} of {lasted} s");
    }
    let committing = sum("payferry_journal_commit_seconds_sum", &[]);
    assert!(committing > 0.0 && committing <= lasted, "commits took {committing} of {lasted} s");
    let (units, groups) =
        (sum("payferry_journal_group_units_sum", &[]), sum("payferry_journal_group_units_count", &[]));
    assert!(groups >= 1.0 && units >= groups, "{units} units in {groups} groups");
    for at_least_one in [
        "payferry_journal_commit_seconds_count",
        "payferry_chain_head_number",
        "payferry_settler_submitted_total",
        "payferry_settler_mined_total",
        "payferry_settler_gas_used_total",
        "payferry_settler_gas_spent_gwei_total",
        "payferry_screening_verdicts_total",
        "payferry_screening_request_seconds_count",
        "payferry_webhook_attempt_seconds_count",
        "payferry_http_requests_total",
        "payferry_http_request_duration_seconds_count",
        "process_start_time_seconds",
    ] {
        assert!(sum(at_least_one, &[]) >= 1.0, "{at_least_one} is {}", sum(at_least_one, &[]));
    }
    let shown: BTreeSet<&str> = exposed.samples.iter().map(|(name, _, _)| name.as_str()).collect();
    for also in [
        "payferry_actor_mailbox_messages",
        "payferry_chain_head_age_seconds",
        "payferry_chain_read_lag_blocks",
        "payferry_chain_wallets_watched",
        "payferry_journal_queued_units",
        "payferry_journal_conflicts_total",
        "payferry_journal_refused_total",
        "payferry_journal_hindered",
        "payferry_payments_live",
        "payferry_screening_in_flight_requests",
        "payferry_settler_queued_operations",
        "payferry_webhook_oldest_due_seconds",
        "payferry_webhook_breakers_open",
    ] {
        assert!(shown.contains(also), "{also} is missing");
    }

    // Mailbox waits need buckets below a millisecond, transitions above a minute, groups in units.
    let ends = |name: &str| -> BTreeSet<String> {
        exposed.samples.iter().filter(|(of, _, _)| of == name).map(|(_, labels, _)| labels["le"].clone()).collect()
    };
    assert!(ends("payferry_actor_mailbox_wait_seconds_bucket").contains("0.00005"));
    assert!(ends("payferry_payment_transition_seconds_bucket").contains("1800"));
    assert!(ends("payferry_journal_group_units_bucket").contains("256"));

    for (name, labels, _) in &exposed.samples {
        let family = family(name, &exposed.typed);
        assert!(exposed.helped.contains_key(family), "{family} has no HELP");
        assert!(exposed.typed.contains_key(family), "{family} has no TYPE");
        for (label, value) in labels.iter().filter(|(label, _)| !FREE_LABELS.contains(&label.as_str())) {
            // Route templates have braces; an id has digits and is long.
            assert!(value.len() <= 60, "{name} has {label}={value}");
            assert!(
                label == "route" || !value.chars().any(|letter| letter.is_ascii_digit()),
                "{name} has {label}={value}"
            );
        }
    }
    exposed.assert_units();
    // More events of the same kind create no new series of existing metrics.
    for _ in 0..10 {
        let another = psp.payment("10", Token::Usdc, Chain::Base).await;
        psp.read(&another).await;
    }
    let now = Exposed::now();
    let mut grown = now.grown_since(&exposed);
    grown.retain(|(name, _, _)| !ANY_TIME.contains(&name.as_str()));
    assert!(grown.is_empty(), "{grown:?}");
    stage.stop().await;
}

/// Creates a PSP with a key, a customer, a merchant and a settled payment, and sends requests for unknown objects.
async fn another_of_everything(app: &mut TestApp, number: usize) {
    app.psp_id = app.add_psp().await;
    app.key = app.add_key(app.psp_id, &[Scope::Full]).await;
    let customer =
        json!({ "email": format!("ada-{number}@example.com"), "government_id_number": format!("P123456{number}") });
    let customer = with(&individual(), &customer);
    app.post("/api/v1/customers", &customer).await.ok(201);
    app.paid("10", "settled").await;
    for path in [format!("/strange/{number}/path"), format!("/payments/{}", PaymentId::generate())] {
        assert_eq!(app.get(&path).await.status, 404, "{path}");
    }
    let odd = Method::from_bytes(format!("BREW{number}").as_bytes()).unwrap();
    assert_eq!(app.request(odd, "/payments/initiate").send().await.status, 405);
}

#[tokio::test(flavor = "multi_thread")]
async fn no_series_per_psp_key_customer_path_or_method() {
    // Enables counting.
    Exposed::now();
    let mut app = TestApp::start_with_chains().await;
    another_of_everything(&mut app, 0).await;
    until_exposed("payferry_payments", &[("status", "settled")], |settled| settled >= 1.0).await;
    let before = Exposed::now();
    for number in 1..6 {
        another_of_everything(&mut app, number).await;
    }
    until_exposed("payferry_payments", &[("status", "settled")], |settled| settled >= 6.0).await;
    let now = Exposed::now();
    // Unknown paths and methods are one series.
    let unmatched = [("route", "unmatched"), ("method", "other"), ("status", "404")];
    assert!(now.sum("payferry_http_requests_total", &unmatched).is_some_and(|counted| counted >= 12.0));
    assert_eq!(now.sum("payferry_http_requests_total", &[("status", "405")]), None);
    let mut grown = now.grown_since(&before);
    grown.retain(|(name, _, _)| !ANY_TIME.contains(&name.as_str()));
    assert!(grown.is_empty(), "{grown:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn waiting_deliveries_are_counted_until_the_receiver_recovers() {
    let (stage, psp) = story_on(OnSandbox::start().await).await;
    psp.receiver.behave(ReceiverBehaviour::Status(500));
    // More events than the breaker's threshold: due deliveries wait for probes.
    let mut ids = Vec::new();
    for _ in 0..6 {
        let id = psp.payment("10", Token::Usdc, Chain::Base).await;
        stage.pay(&id, Transfer::exact()).await;
        ids.push(id);
    }
    for id in &ids {
        psp.until_status(id, "settled").await;
    }
    let some = |value: f64| value > 0.0;
    until_exposed("payferry_webhook_attempts_total", &[("outcome", "failed")], some).await;
    until_exposed("payferry_webhook_backlog_deliveries", &[], |waiting| waiting >= 1.0).await;
    until_exposed("payferry_webhook_breakers_open", &[], |open| open == 1.0).await;
    until_exposed("payferry_webhook_oldest_due_seconds", &[], some).await;

    psp.receiver.behave(ReceiverBehaviour::Well);
    let none = |value: f64| value == 0.0;
    until_exposed("payferry_webhook_backlog_deliveries", &[], none).await;
    until_exposed("payferry_webhook_oldest_due_seconds", &[], none).await;
    until_exposed("payferry_webhook_breakers_open", &[], none).await;
    stage.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn paused_settlements_are_counted_until_resumed() {
    // Enables counting.
    Exposed::now();
    let service = ServiceFixture::start_with_chains().await;
    service.hold("settlement:base").await;
    let mut payments = Vec::new();
    for _ in 0..2 {
        payments.push(service.app.paid("10", "confirmed").await);
    }
    let (queue, base) = ("payferry_settler_queued_operations", [("chain", "base")]);
    until_exposed(queue, &base, |waiting| waiting >= 2.0).await;
    assert!(service.lift("settlement:base").await);
    for payment in &payments {
        service.app.payment_when(payment, "settled").await;
    }
    until_exposed(queue, &base, |waiting| waiting == 0.0).await;
}
