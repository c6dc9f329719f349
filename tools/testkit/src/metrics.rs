//! Metrics of a service, read from its operator listener.

use anyhow::ensure;
use axum::http::Method;
use hyper::body::Bytes;

use crate::client::{Client, request};

/// Metrics of defects: violated invariants, journal writes that the database refused, an unbalanced ledger.
const MUST_BE_ZERO: [&str; 3] =
    ["payferry_invariant_violations_total", "payferry_journal_refused_total", "payferry_ledger_imbalance"];

/// End of the words about a metric that the service does not have.
pub const MISSING: &str = "is missing";

/// Reads a metric, summed over its labels. `operator` is a client of the operator listener.
pub async fn metric(operator: &Client, name: &str) -> anyhow::Result<Option<f64>> {
    Ok(sum(&read(operator).await?, name))
}

/// Returns the metrics that show a defect of the service, independent of the load.
pub async fn defects(operator: &Client) -> anyhow::Result<Vec<String>> {
    let text = read(operator).await?;
    let found = MUST_BE_ZERO.into_iter().filter_map(|name| match sum(&text, name) {
        Some(0.0) => None,
        Some(count) => Some(format!("{name} is {count}")),
        None => Some(format!("{name} {MISSING}")),
    });
    Ok(found.collect())
}

async fn read(operator: &Client) -> anyhow::Result<String> {
    let answer = operator.read(|| request(Method::GET, "/metrics", Bytes::new())).await?;
    ensure!(answer.status.is_success(), "GET /metrics answered {}", answer.status);
    Ok(String::from_utf8_lossy(&answer.body).into_owned())
}

fn sum(text: &str, name: &str) -> Option<f64> {
    let samples = text.lines().filter_map(|line| {
        let rest = line.strip_prefix(name)?;
        (rest.starts_with(['{', ' '])).then(|| rest.rsplit(' ').next()?.parse::<f64>().ok()).flatten()
    });
    samples.fold(None, |sum, value| Some(sum.unwrap_or(0.0) + value))
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use axum::Router;
    use axum::routing::get;

    use super::*;
    use crate::stub::serve;

    const EVEN: &str = "# HELP payferry_ledger_imbalance Base units.\n\
        payferry_ledger_imbalance{chain=\"base\",token=\"USDC\"} 0\n\
        payferry_ledger_imbalance{chain=\"base\",token=\"USDT\"} 0\n\
        payferry_ledger_imbalance_age 7\n";

    async fn operator(metrics: String) -> Client {
        let router = Router::new().route("/metrics", get(move || async move { metrics }));
        Client::new(&serve(router).await, 1, Duration::from_secs(5)).unwrap()
    }

    #[tokio::test]
    async fn reports_defects_and_missing_metrics() {
        let sound =
            format!("{EVEN}payferry_journal_refused_total 0\npayferry_invariant_violations_total{{name=\"A\"}} 0\n");
        let operator_of_sound = operator(sound.clone()).await;
        assert_eq!(defects(&operator_of_sound).await.unwrap(), Vec::<String>::new());
        assert_eq!(metric(&operator_of_sound, "payferry_ledger_imbalance_age").await.unwrap(), Some(7.0));
        let broken = sound.replace("refused_total 0", "refused_total 2").replace("USDT\"} 0", "USDT\"} 5");
        let found = defects(&operator(broken).await).await.unwrap();
        assert_eq!(found, ["payferry_journal_refused_total is 2", "payferry_ledger_imbalance is 5"]);
        let found = defects(&operator(EVEN.to_owned()).await).await.unwrap();
        assert_eq!(
            found,
            ["payferry_invariant_violations_total is missing", "payferry_journal_refused_total is missing"]
        );
    }
}
