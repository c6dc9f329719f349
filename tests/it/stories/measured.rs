//! What `/metrics` says of a service to which something happened.
#![allow(clippy::float_cmp, reason = "counts are whole numbers")]

use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

use payferry_domain::{Chain, Token};

use crate::stage::{OnSandbox, Stage, Transfer, story_with_receiver};

/// Labels whose values may be any number or version; all others are words.
const FREE_LABELS: [&str; 5] = ["le", "endpoint", "status", "version", "quantile"];

/// The samples of an exposition by name and labels, and the names that have HELP and TYPE.
struct Exposed {
    samples: Vec<(String, BTreeMap<String, String>, f64)>,
    helped: BTreeSet<String>,
    typed: BTreeSet<String>,
}

impl Exposed {
    fn now() -> Self {
        Self::parse(&payferry::telemetry::metrics().render())
    }

    fn parse(text: &str) -> Self {
        let (mut samples, mut helped, mut typed) = (Vec::new(), BTreeSet::new(), BTreeSet::new());
        for line in text.lines().filter(|line| !line.is_empty()) {
            if let Some(rest) = line.strip_prefix("# HELP ") {
                let (name, help) = rest.split_once(' ').unwrap();
                assert!(help.len() > 5, "{line}");
                helped.insert(name.to_owned());
            } else if let Some(rest) = line.strip_prefix("# TYPE ") {
                typed.insert(rest.split_once(' ').unwrap().0.to_owned());
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

    /// The sum of all samples of a name with these labels; `None` if there is no such sample.
    fn sum(&self, name: &str, labels: &[(&str, &str)]) -> Option<f64> {
        let fits = |of: &BTreeMap<String, String>| {
            labels.iter().all(|(label, value)| of.get(*label).is_some_and(|is| is == value))
        };
        let fitting = self.samples.iter().filter(|(of, has, _)| of == name && fits(has)).map(|(_, _, value)| *value);
        fitting.reduce(|sum, value| sum + value)
    }
}

/// The metric that a sample belongs to: those of a histogram have endings.
fn family<'a>(name: &'a str, typed: &BTreeSet<String>) -> &'a str {
    let bare = ["_bucket", "_sum", "_count"].iter().find_map(|ending| name.strip_suffix(ending));
    bare.filter(|bare| typed.contains(*bare)).unwrap_or(name)
}

/// Waits until the exposition shows it; what is not counted as it happens is shown within a second.
async fn until_exposed(name: &str, labels: &[(&str, &str)], holds: impl Fn(f64) -> bool) {
    let since = Instant::now();
    loop {
        let sum = Exposed::now().sum(name, labels);
        if sum.is_some_and(&holds) {
            return;
        }
        assert!(since.elapsed() < Duration::from_secs(40), "{name} {labels:?} stays at {sum:?}");
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn what_happened_is_measured_explained_and_labelled_with_words_only() {
    let (stage, psp, _receiver) = story_with_receiver::<OnSandbox>().await;
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
    until_exposed("process_cpu_seconds_total", &[], |seconds| seconds > 0.0).await;
    until_exposed("payferry_uptime_seconds", &[], |seconds| seconds > 0.0).await;

    let exposed = Exposed::now();
    let sum = |name: &str, labels: &[(&str, &str)]| {
        exposed.sum(name, labels).unwrap_or_else(|| panic!("{name} {labels:?} is not shown"))
    };
    assert_eq!(sum("payferry_actor_restarts_total", &[("kind", "payment"), ("cause", "panic")]), 4.0);
    assert_eq!(sum("payferry_payments_quarantined_total", &[("cause", "panic")]), 1.0);
    assert_eq!(sum("payferry_payments_initiated_total", &[("chain", "base"), ("token", "USDC")]), 1.0);
    assert_eq!(sum("payferry_payment_events_total", &[("event", "settled")]), 1.0);
    assert_eq!(sum("payferry_payment_transition_seconds_count", &[("from", "pending"), ("to", "confirmed")]), 1.0);
    assert_eq!(sum("payferry_payment_transition_seconds_count", &[("from", "confirmed"), ("to", "settled")]), 1.0);
    assert_eq!(sum("payferry_build_info", &[("version", env!("CARGO_PKG_VERSION"))]), 1.0);
    for at_least_one in [
        "payferry_actor_messages_total",
        "payferry_actor_mailbox_wait_seconds_count",
        "payferry_actor_handling_seconds_count",
        "payferry_journal_group_units_count",
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
        assert!(shown.contains(also), "{also} is not shown");
    }

    // Waits are told apart below a millisecond, transitions above a minute, and groups by units.
    let ends = |name: &str| -> BTreeSet<String> {
        exposed.samples.iter().filter(|(of, _, _)| of == name).map(|(_, labels, _)| labels["le"].clone()).collect()
    };
    assert!(ends("payferry_actor_mailbox_wait_seconds_bucket").contains("0.00005"));
    assert!(ends("payferry_payment_transition_seconds_bucket").contains("1800"));
    assert!(ends("payferry_journal_group_units_bucket").contains("256"));

    for (name, labels, _) in &exposed.samples {
        let family = family(name, &exposed.typed);
        assert!(exposed.helped.contains(family), "{family} has no HELP");
        assert!(exposed.typed.contains(family), "{family} has no TYPE");
        for (label, value) in labels.iter().filter(|(label, _)| !FREE_LABELS.contains(&label.as_str())) {
            // Route templates have braces; an id has digits, and is long.
            assert!(value.len() <= 60, "{name} has {label}={value}");
            assert!(
                label == "route" || !value.chars().any(|letter| letter.is_ascii_digit()),
                "{name} has {label}={value}"
            );
        }
    }
    // More of the same makes no more series of what is shown already.
    for _ in 0..10 {
        let another = psp.payment("10", Token::Usdc, Chain::Base).await;
        psp.read(&another).await;
    }
    let known: BTreeSet<_> = exposed.samples.iter().map(|(name, labels, _)| (name, labels)).collect();
    let now = Exposed::now();
    let is_new = |name: &String, labels| shown.contains(name.as_str()) && !known.contains(&(name, labels));
    let grown: Vec<_> = now.samples.iter().filter(|(name, labels, _)| is_new(name, labels)).collect();
    assert!(grown.is_empty(), "{grown:?}");
    stage.stop().await;
}
