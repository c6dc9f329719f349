//! Metrics of endpoints: every name with its unit and meaning. Labels are chains, endpoints by their place in the
//! configuration, and kinds of trouble; never an address or a URL.

use std::time::Duration;

use metrics::{Unit, counter, describe_counter, describe_gauge, describe_histogram, gauge, histogram};
use payferry_domain::Chain;

use super::wire::Degradation;

const REQUESTS: &str = "payferry_chain_requests_total";
const REQUEST_ERRORS: &str = "payferry_chain_request_errors_total";
const REQUEST_SECONDS: &str = "payferry_chain_request_seconds";
const ENDPOINT_USABLE: &str = "payferry_chain_endpoint_usable";
const ENDPOINT_WRONG_CHAIN: &str = "payferry_chain_endpoint_wrong_chain";

/// Registers the help texts of the metrics.
pub fn describe() {
    describe_counter!(REQUESTS, "Exchanges with an endpoint (a batch is one), by chain and endpoint.");
    describe_counter!(REQUEST_ERRORS, "Exchanges that an endpoint failed, by chain, endpoint and kind of error.");
    describe_histogram!(REQUEST_SECONDS, Unit::Seconds, "Time an endpoint took for an exchange.");
    describe_gauge!(ENDPOINT_USABLE, "1 while an endpoint is used in its turn, 0 while it is passed over.");
    describe_gauge!(ENDPOINT_WRONG_CHAIN, "1 while an endpoint answers for another chain than configured.");
}

/// Exports every counter of a chain with this number of endpoints as 0: an alert on an increase does not fire if a
/// counter first appears at 1.
pub fn register(chain: Chain, endpoints: usize) {
    for index in 0..endpoints {
        let endpoint = EndpointLabels { chain: Some(chain), index };
        counter!(REQUESTS, &endpoint.labels()).increment(0);
        for kind in Degradation::ALL {
            counter!(REQUEST_ERRORS, &endpoint.labels_of(kind.as_str())).increment(0);
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
        counter!(REQUESTS, &self.labels()).increment(1);
        histogram!(REQUEST_SECONDS, &self.labels()).record(took.as_secs_f64());
    }

    pub(super) fn failed(self, kind: &'static str) {
        counter!(REQUEST_ERRORS, &self.labels_of(kind)).increment(1);
    }

    pub(super) fn usable(self, usable: bool) {
        gauge!(ENDPOINT_USABLE, &self.labels()).set(f64::from(u8::from(usable)));
    }

    pub(super) fn wrong_chain(self, wrong: bool) {
        gauge!(ENDPOINT_WRONG_CHAIN, &self.labels()).set(f64::from(u8::from(wrong)));
    }
}
