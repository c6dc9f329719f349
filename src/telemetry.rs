//! Logs, and the metrics of this process. Deliberately absent for now: OpenTelemetry.

use std::io::IsTerminal;
use std::sync::OnceLock;
use std::time::{Duration, Instant};

use metrics::{Unit, describe_gauge, gauge};
use metrics_exporter_prometheus::{Matcher, PrometheusBuilder, PrometheusHandle};
use metrics_process::Collector;
use payferry_actors::observe::BUCKETS;
use tokio_util::task::AbortOnDropHandle;
use tracing_subscriber::EnvFilter;

use crate::config::{Log, LogFormat};

/// Sends logs to standard error: what `RUST_LOG` says, else the configuration, else `usual`. Does nothing the second
/// time.
pub fn init(log: &Log, usual: &str) {
    let configured = if log.filter.is_empty() { usual } else { &log.filter };
    let filter = EnvFilter::try_from_default_env().unwrap_or_else(|_| EnvFilter::new(configured));
    let builder = tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_ansi(std::io::stderr().is_terminal())
        .with_writer(std::io::stderr);
    let _ = match log.format {
        LogFormat::Text => builder.try_init(),
        LogFormat::Json => builder.json().try_init(),
    };
}

/// Upper ends of the buckets of histograms of requests, ours and those to others, seconds.
const REQUEST_BUCKETS_SECS: [f64; 15] =
    [0.000_5, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0];
const UPTIME: &str = "payferry_uptime_seconds";
const BUILD: &str = "payferry_build_info";
/// How often what was recorded is put into buckets, so that it does not pile up where nobody scrapes, and how often the
/// process is looked at.
const UPKEEP_EVERY: Duration = Duration::from_secs(5);

/// The metrics of this process: there is one set, however many services run in it.
pub fn metrics() -> &'static PrometheusHandle {
    static METRICS: OnceLock<PrometheusHandle> = OnceLock::new();
    METRICS.get_or_init(|| {
        let usual = PrometheusBuilder::new().set_buckets(&REQUEST_BUCKETS_SECS);
        let builder = BUCKETS.iter().fold(usual.expect("there are buckets"), |builder, (name, ends)| {
            let matcher = Matcher::Full((*name).to_owned());
            builder.set_buckets_for_metric(matcher, ends).expect("there are buckets")
        });
        let recorder = builder.build_recorder();
        let handle = recorder.handle();
        if metrics::set_global_recorder(recorder).is_err() {
            tracing::warn!("metrics are recorded elsewhere in this process; /metrics stays empty");
        }
        handle
    })
}

/// Keeps the metrics in order, and shows those of the process, until it is dropped.
pub fn keep_metrics() -> AbortOnDropHandle<()> {
    let (metrics, process) = (metrics(), Collector::default());
    process.describe();
    describe_gauge!(UPTIME, Unit::Seconds, "Time since the service was started in this process.");
    describe_gauge!(BUILD, "Always 1; its label says which version runs.");
    gauge!(BUILD, "version" => env!("CARGO_PKG_VERSION")).set(1.0);
    let started = Instant::now();
    AbortOnDropHandle::new(tokio::spawn(async move {
        let mut ticks = tokio::time::interval(UPKEEP_EVERY);
        loop {
            ticks.tick().await;
            metrics.run_upkeep();
            process.collect();
            gauge!(UPTIME).set(started.elapsed().as_secs_f64());
        }
    }))
}
