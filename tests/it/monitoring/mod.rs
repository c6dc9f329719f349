//! The alerts, dashboards and example configurations of `ops/`, the logs, and the traces.

mod dashboards;
mod incident;
mod logs;
mod plots;
mod queries;
mod rules;
pub(crate) mod traces;

use std::path::Path;

use payferry_harness::psp::Psp;
use payferry_harness::receiver::Receiver;

use crate::prelude::*;
use crate::process::Running;

/// A sandbox in a process of its own, with one settled payment.
struct Sandbox {
    running: Running,
    psp: Psp,
    _receiver: Receiver,
}

impl Sandbox {
    async fn start() -> Self {
        let running = Running::new().await;
        let receiver = Receiver::start().await;
        let psp = Psp::connect(running.text("api_url"), running.text("api_key"), &receiver).await;
        let id = psp.payment("25", Token::Usdc, Chain::Base).await;
        psp.ok(Method::POST, &format!("/sandbox/payments/{id}/pay"), json!({})).await;
        psp.until_status(&id, "settled").await;
        Self { running, psp, _receiver: receiver }
    }

    /// Address of the operator listener, without the scheme.
    fn target(&self) -> &str {
        self.running.text("operator_url").strip_prefix("http://").unwrap()
    }

    /// A page of the operator listener, as an operator who is logged in sees it.
    async fn page(&self, path: &str) -> String {
        let url = format!("{}{path}", self.running.text("operator_url"));
        let request = reqwest::Client::new().get(url).bearer_auth(self.running.text("operator_token"));
        let answer = request.send().await.unwrap();
        assert!(answer.status().is_success(), "{path}: {}", answer.status());
        answer.text().await.unwrap()
    }
}

/// A file of the repository.
fn file(path: &str) -> String {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join(path);
    std::fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}
