//! What the operator sees beside a crowd of live payments: how long the slowest of the pages takes.

use std::time::Instant;

use anyhow::ensure;
use axum::http::StatusCode;

use super::drive::percentile_us;
use super::service::{CALL_DEADLINE, Service};
use super::table::{Goal, Line};
use payferry_testkit::client::Client;

/// The pages, and something that each must hold.
const PAGES: [(&str, &str); 5] = [
    ("/ops", "<main"),
    ("/ops/view/shards/0", "/ops/view/payments/pay_"),
    ("/ops/view/stuck", "<main"),
    ("/ops/view/customers", "<main"),
    ("/metrics", "payferry_"),
];
/// Answers at once, over the same listener.
const BARE: (&str, &str) = ("/healthz", "ok");
/// How often each is read, one read after the other; the first, too, counts.
const READS: usize = 20;
/// The longest that any of these reads may take.
const GOAL_MS: f64 = 50.0;

/// How long reads of one page took, and its length.
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
            ensure!(String::from_utf8_lossy(&answer.body).contains(holds), "{path} does not hold {holds}");
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

/// Measures beside so many live payments.
pub(super) async fn measure(service: &Service, live: usize) -> anyhow::Result<Line> {
    let operator = Client::new(&service.ready.operator_url, 1, CALL_DEADLINE)?.bearer(&service.ready.operator_token)?;
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
