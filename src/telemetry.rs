//! Logs, metrics and traces of this process.

use std::backtrace::{Backtrace, BacktraceStatus};
use std::io::IsTerminal;
use std::panic::PanicHookInfo;
use std::path::Path;
use std::sync::OnceLock;
use std::time::{Duration, Instant};

use anyhow::Context as _;
use metrics_exporter_prometheus::{Matcher, PrometheusBuilder, PrometheusHandle};
use metrics_process::Collector;
use opentelemetry::KeyValue;
use opentelemetry::trace::TracerProvider as _;
use opentelemetry_otlp::{Protocol, SpanExporter, WithExportConfig};
use opentelemetry_sdk::Resource;
use opentelemetry_sdk::trace::{BatchConfigBuilder, BatchSpanProcessor, Sampler, SdkTracerProvider};
use payferry_actors::observe::BUCKETS;
use payferry_runtime::trace;
use tokio_util::task::AbortOnDropHandle;
use tracing_subscriber::EnvFilter;

use crate::config::{LogFormat, LogSection, TracesSection};

/// Writes logs to standard error, filtered by `RUST_LOG`, else by the configuration, else by `usual`. Later calls have
/// no effect.
pub fn init(log: &LogSection, usual: &str) {
    let configured = if log.filter.is_empty() { usual } else { &log.filter };
    let filter = EnvFilter::try_from_default_env().unwrap_or_else(|_| EnvFilter::new(configured));
    let builder = tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_ansi(std::io::stderr().is_terminal())
        .with_writer(std::io::stderr);
    let _ = match log.format {
        LogFormat::Text => builder.try_init(),
        LogFormat::Json => {
            std::panic::set_hook(Box::new(log_panic));
            builder.json().try_init()
        }
    };
}

/// Logs a panic: the usual hook writes lines that are not JSON. With the backtrace if `RUST_BACKTRACE` asks for it.
fn log_panic(info: &PanicHookInfo<'_>) {
    let backtrace = Backtrace::capture();
    let is_captured = backtrace.status() == BacktraceStatus::Captured;
    tracing::error!(
        panic.location = info.location().map(tracing::field::display),
        panic.thread = std::thread::current().name(),
        panic.backtrace = is_captured.then(|| backtrace.to_string()),
        "a thread panicked: {}",
        info.payload_as_str().unwrap_or("without a message"),
    );
}

/// Spans that wait for their export. Further ones are dropped.
const SPANS_QUEUED_MAX: usize = 16_384;
/// Spans of one request to the collector.
const SPANS_TOGETHER_MAX: usize = 1_024;
/// Time limit of a request to the collector, and of the last export at the end of the process.
const EXPORT_TIMEOUT: Duration = Duration::from_secs(5);

/// Export of spans, until it is dropped.
#[derive(Debug)]
pub struct Traces(SdkTracerProvider);

impl Drop for Traces {
    fn drop(&mut self) {
        if let Err(error) = self.0.shutdown_with_timeout(EXPORT_TIMEOUT) {
            tracing::warn!(%error, "the last spans were not exported");
        }
    }
}

/// Exports the spans of this process to the configured collector, over OTLP; `None` without one. A trace that began elsewhere
/// is exported if its context says so. Must be called outside of a runtime.
pub fn export_traces(traces: &TracesSection, node: &str) -> anyhow::Result<Option<Traces>> {
    let Some(endpoint) = &traces.endpoint else { return Ok(None) };
    let exporter = SpanExporter::builder()
        .with_http()
        .with_protocol(Protocol::HttpBinary)
        .with_endpoint(endpoint.as_str())
        .with_timeout(EXPORT_TIMEOUT)
        .build()
        .context("traces cannot be exported")?;
    let batches = BatchConfigBuilder::default()
        .with_max_queue_size(SPANS_QUEUED_MAX)
        .with_max_export_batch_size(SPANS_TOGETHER_MAX)
        .build();
    let service = [("service.version", env!("CARGO_PKG_VERSION")), ("service.instance.id", node)];
    let service = service.into_iter().filter(|(_, value)| !value.is_empty());
    let resource = Resource::builder()
        .with_service_name("payferry")
        .with_attributes(service.map(|(name, value)| KeyValue::new(name, value.to_owned())));
    let provider = SdkTracerProvider::builder()
        .with_span_processor(BatchSpanProcessor::builder(exporter).with_batch_config(batches).build())
        .with_sampler(Sampler::ParentBased(Box::new(Sampler::TraceIdRatioBased(traces.sample_ratio))))
        .with_resource(resource.build())
        .build();
    trace::export_to(provider.tracer("payferry"));
    Ok(Some(Traces(provider)))
}

payferry_runtime::metrics! {
    Gauge(Seconds) UPTIME = "payferry_uptime_seconds", "Time since the service started in this process.";
    Gauge UNSAFE_SETTING = "payferry_unsafe_setting", "Always 1 for each unsafe setting that `[unsafe] allow` names and \
        the configuration uses, by setting.";
    Gauge(Bytes) MEMORY_LIMIT = "payferry_memory_limit_bytes", "Memory that this process may use, in bytes: that of the machine, or the limit of \
        its control group if that is lower.";
    Gauge BUILD = "payferry_build_info", "Always 1; the label is the running version.";
}

/// Upper bounds of the histogram buckets of incoming and outgoing requests, seconds.
const REQUEST_BUCKETS_SECS: [f64; 15] =
    [0.000_5, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0];
/// Interval at which recorded values are put into buckets, so that they do not accumulate in a process that is never
/// scraped, and at which process metrics are read.
const UPKEEP_EVERY: Duration = Duration::from_secs(5);

/// Metrics of this process. All services in the process share them.
pub fn metrics() -> &'static PrometheusHandle {
    static METRICS: OnceLock<PrometheusHandle> = OnceLock::new();
    METRICS.get_or_init(|| {
        let usual = PrometheusBuilder::new().set_buckets(&REQUEST_BUCKETS_SECS);
        let builder = BUCKETS.iter().fold(usual.expect("the bucket list is not empty"), |builder, (name, ends)| {
            let matcher = Matcher::Full((*name).to_owned());
            builder.set_buckets_for_metric(matcher, ends).expect("the bucket list is not empty")
        });
        let recorder = builder.build_recorder();
        let handle = recorder.handle();
        if metrics::set_global_recorder(recorder).is_err() {
            tracing::warn!("another metrics recorder is installed in this process; /metrics stays empty");
        }
        handle
    })
}

/// Maintains the metrics and reports those of the process, until the handle is dropped.
pub fn keep_metrics() -> AbortOnDropHandle<()> {
    let (metrics, process) = (metrics(), Collector::default());
    process.describe();
    describe();
    BUILD.set(&[("version", env!("CARGO_PKG_VERSION"))], 1.0);
    if let Some(bytes) = memory_limit_bytes() {
        MEMORY_LIMIT.set_count(&[], bytes);
    }
    let started = Instant::now();
    AbortOnDropHandle::new(tokio::spawn(async move {
        let mut ticks = tokio::time::interval(UPKEEP_EVERY);
        loop {
            ticks.tick().await;
            metrics.run_upkeep();
            process.collect();
            UPTIME.set(&[], started.elapsed().as_secs_f64());
        }
    }))
}

/// The lowest limit of the process's control group and its ancestors, or the memory of the machine. `None` where the system does not
/// say it.
fn memory_limit_bytes() -> Option<u64> {
    let machine = std::fs::read_to_string("/proc/meminfo").ok()?;
    let total_kib: u64 = machine.strip_prefix("MemTotal:")?.split_whitespace().next()?.parse().ok()?;
    let group = std::fs::read_to_string("/proc/self/cgroup").unwrap_or_default();
    let path = group.lines().find_map(|line| line.strip_prefix("0::/")).unwrap_or_default();
    let limits = Path::new(path).ancestors().filter_map(|group| {
        let limit = std::fs::read_to_string(Path::new("/sys/fs/cgroup").join(group).join("memory.max")).ok()?;
        limit.trim().parse().ok()
    });
    Some(limits.fold(total_kib * 1_024, u64::min))
}
