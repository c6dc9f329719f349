//! Metrics of endpoints: every name with its unit and meaning. Labels are chains, endpoints by their place in the
//! configuration, and kinds of errors; never an address or a URL.

use std::time::Duration;

use metrics::{counter, gauge, histogram};
use payferry_domain::Chain;

use super::wire::Degradation;

payferry_runtime::metrics! {
    Counter REQUESTS = "payferry_chain_requests_total",
        "Exchanges with an endpoint (a batch is one), by chain and endpoint.";
    Counter REQUEST_ERRORS = "payferry_chain_request_errors_total",
        "Exchanges that an endpoint failed, by chain, endpoint and kind of error.";
    Histogram(Seconds) REQUEST_SECONDS = "payferry_chain_request_seconds", "Time an endpoint took for an exchange.";
    Gauge ENDPOINT_USABLE = "payferry_chain_endpoint_usable",
        "1 while an endpoint is used in its turn, 0 while it is passed over.";
    Gauge ENDPOINT_WRONG_CHAIN = "payferry_chain_endpoint_wrong_chain",
        "1 while an endpoint answers for another chain than configured.";
}

/// Exports every counter of a chain with this number of endpoints as 0: an alert on an increase does not fire if a
/// counter first appears at 1.
pub fn register(chain: Chain, endpoints: usize) {
    for index in 0..endpoints {
        let endpoint = EndpointLabels { chain: Some(chain), index };
        counter!(REQUESTS.name, &endpoint.labels()).increment(0);
        for kind in Degradation::ALL {
            counter!(REQUEST_ERRORS.name, &endpoint.labels_of(kind.as_str())).increment(0);
        }
    }
}

/// Labels of one endpoint.
#[derive(Clone, Copy, Debug)]
pub(super) struct EndpointLabels {
    pub(super) chain: Option<Chain>,
    pub(super) index: usize,
}

impl std::fmt::Display for EndpointLabels {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.chain.map_or("unknown", Chain::as_str))
    }
}

impl EndpointLabels {
    fn labels(self) -> [(&'static str, String); 2] {
        let chain = self.chain.map_or("unknown", Chain::as_str);
        [("chain", chain.to_owned()), ("endpoint", self.index.to_string())]
    }

    fn labels_of(self, kind: &str) -> [(&'static str, String); 3] {
        let [chain, endpoint] = self.labels();
        [chain, endpoint, ("kind", kind.to_owned())]
    }

    pub(super) fn exchanged(self, took: Duration) {
        counter!(REQUESTS.name, &self.labels()).increment(1);
        histogram!(REQUEST_SECONDS.name, &self.labels()).record(took.as_secs_f64());
    }

    pub(super) fn failed(self, kind: &'static str) {
        counter!(REQUEST_ERRORS.name, &self.labels_of(kind)).increment(1);
    }

    pub(super) fn usable(self, usable: bool) {
        gauge!(ENDPOINT_USABLE.name, &self.labels()).set(f64::from(u8::from(usable)));
    }

    pub(super) fn wrong_chain(self, wrong: bool) {
        gauge!(ENDPOINT_WRONG_CHAIN.name, &self.labels()).set(f64::from(u8::from(wrong)));
    }
}
