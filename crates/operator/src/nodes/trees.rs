//! The supervision trees of all nodes: the page of one node asks the others.

use std::time::Duration;

use axum::http::header::{AUTHORIZATION, COOKIE};
use axum::http::{HeaderMap, HeaderName};
use futures::future::join_all;
use payferry_entities::nodes;
use serde_json::Value;

/// Time limit for the answer of another node.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(1);
/// Headers with which the operator's request is repeated at another node.
const FORWARDED: [HeaderName; 2] = [AUTHORIZATION, COOKIE];

/// The tree of a node, as its `/ops/actors` returns it, or the reason why it is missing.
pub(super) type Tree = Result<Value, String>;

/// Asks nodes for their trees, as the operator with these credentials.
pub(super) async fn of(nodes: &[nodes::Model], credentials: &HeaderMap) -> Vec<Tree> {
    let Ok(client) = reqwest::Client::builder().timeout(ANSWER_TIMEOUT).build() else {
        return nodes.iter().map(|_| Err("there is no HTTP client".to_owned())).collect();
    };
    join_all(nodes.iter().map(|node| ask(&client, node, credentials))).await
}

async fn ask(client: &reqwest::Client, node: &nodes::Model, credentials: &HeaderMap) -> Tree {
    let mut request = client.get(format!("{}/ops/actors", node.operator_url.trim_end_matches('/')));
    for name in FORWARDED {
        if let Some(value) = credentials.get(&name) {
            request = request.header(name, value);
        }
    }
    let answer = request.send().await.map_err(|error| reason(&error))?;
    if !answer.status().is_success() {
        return Err(format!("it answered {}", answer.status()));
    }
    answer.json().await.map_err(|error| reason(&error))
}

/// The reason without the URL.
fn reason(error: &reqwest::Error) -> String {
    if error.is_timeout() {
        format!("no answer within {} s", ANSWER_TIMEOUT.as_secs())
    } else if error.is_connect() {
        "it cannot be reached".to_owned()
    } else {
        "its answer cannot be read".to_owned()
    }
}
