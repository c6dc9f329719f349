//! Row `pages`: the slowest of the operator's pages beside many live payments.

use std::time::Instant;

use anyhow::ensure;
use axum::http::StatusCode;

use super::drive::percentile_us;
use super::table::{Goal, Line};
use payferry_testkit::client::Client;
use payferry_testkit::service::Service;

/// The pages, and a text that each must contain.
const PAGES: [(&str, &str); 5] = [
    ("/ops", "<main"),
    ("/ops/view/shards/0", "/ops/view/payments/pay_"),
    ("/ops/view/stuck", "<main"),
    ("/ops/view/customers", "<main"),
    ("/metrics", "payferry_"),
];
/// A route of the same listener that responds at once.
const BARE: (&str, &str) = ("/healthz", "ok");
/// Sequential reads of each page. The first one counts, too.
const READS: usize = 20;
/// Goal of the slowest read.
const GOAL_MS: f64 = 50.0;

/// Durations of the reads of one page, and its length.
struct Reads {
    sorted_us: Vec<u64>,
    bytes: usize,
}

impl Reads {
    async fn of(operator: &Client, (path, holds): (&str, &str)) -> anyhow::Result<Self> {
        let (mut sorted_us, mut bytes) = (Vec::with_capacity(READS), 0);
        for _ in 0..READS {
            let since = Instant::now();
            let answer = operator.get(path).await?;
            sorted_us.push(u64::try_from(since.elapsed().as_micros())?);
            ensure!(answer.status == StatusCode::OK, "{path} answered {}", answer.status);
            ensure!(String::from_utf8_lossy(&answer.body).contains(holds), "{path} does not contain {holds}");
            bytes = answer.body.len();
        }
        sorted_us.sort_unstable();
        Ok(Self { sorted_us, bytes })
    }

    fn slowest_ms(&self) -> f64 {
        percentile_us(&self.sorted_us, 1.0) / 1_000.0
    }

    fn middle_ms(&self) -> f64 {
        percentile_us(&self.sorted_us, 0.5) / 1_000.0
    }
}

/// Measures beside `live` payments.
pub(super) async fn measure(service: &Service, live: usize) -> anyhow::Result<Line> {
    let operator = service.operator()?;
    let bare = Reads::of(&operator, BARE).await?;
    let (mut slowest, mut notes) = (0.0_f64, Vec::new());
    for page in PAGES {
        let reads = Reads::of(&operator, page).await?;
        slowest = slowest.max(reads.slowest_ms());
        notes.push(format!(
            "{}: {} bytes, {:.1} ms, the slowest of {READS} {:.1} ms",
            page.0,
            reads.bytes,
            reads.middle_ms(),
            reads.slowest_ms(),
        ));
    }
    let line =
        Line::new(format!("the operator's slowest page beside {live} live"), slowest, "ms", Goal::AtMost(GOAL_MS))
            .beside("the slowest of as many reads of /healthz on the same listener", bare.slowest_ms());
    Ok(notes.into_iter().fold(line, Line::note))
}
