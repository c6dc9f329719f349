//! Tests of the operator's listener over real HTTP.

mod actors;
mod admin;
mod admission;
mod alarms;
mod approvals;
mod aside;
mod attention;
mod bulk;
mod cursors;
mod customers;
mod decisions;
mod events;
mod feed;
mod four_eyes;
mod health;
mod ledger;
mod lists;
mod openapi;
mod outage;
mod overload;
mod pages;
mod pauses;
mod sendings;
mod unknown;
pub(crate) mod walks;
mod wallets;

use std::net::SocketAddr;
use std::time::Duration;

use payferry_actors::observe::ActorSubject;
use payferry_httpkit::serve;
use payferry_operator::{Operator, OperatorConfig, router};
use reqwest::{Client, RequestBuilder};
use tokio::net::TcpListener;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

use crate::call::get_until;
use crate::conformance;
use crate::prelude::*;

/// Operator token of every test's listener.
const TOKEN: &str = "op_test_correct_horse_battery";

/// The fields that every form of a page ends with.
const SIGNED: [(&str, &str); 2] = [("reason", "ticket 17"), ("confirm", "true")];

/// A service with an operator's listener.
pub(crate) struct ServiceFixture {
    pub(crate) app: TestApp,
    /// State behind the listener.
    operator: Operator,
    address: SocketAddr,
    closing: CancellationToken,
    serving: JoinHandle<()>,
    client: Client,
}

impl ServiceFixture {
    pub(crate) async fn start() -> Self {
        Self::over(TestApp::start().await).await
    }

    pub(crate) async fn start_with_chains() -> Self {
        Self::over(TestApp::start_with_chains().await).await
    }

    pub(crate) async fn over(app: TestApp) -> Self {
        Self::serve(app, false).await
    }

    /// A listener with or without `four_eyes`.
    async fn serve(app: TestApp, four_eyes: bool) -> Self {
        let closing = CancellationToken::new();
        let key_mode = app.state.config.environment.key_mode();
        let documents = app.state.config.documents.clone();
        let metrics = || payferry::telemetry::metrics().render();
        let unsafe_settings = Vec::new();
        let closed = closing.clone();
        let (limits, serve_config) = (app.state.config.limits.edge, app.state.config.limits.serve_config());
        let config = OperatorConfig {
            token: TOKEN.to_owned().into(),
            key_mode,
            four_eyes,
            revoked_keys: app.state.config.revoked_keys.clone(),
            documents,
            unsafe_settings,
            limits,
            metrics,
            draining: app.state.config.draining.clone(),
            closing: closed,
        };
        let operator = Operator::new(app.state.system.clone(), config);
        let router = router(operator.clone());
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let serving = tokio::spawn(serve(listener, router, serve_config, closing.clone().cancelled_owned()));
        let client = Client::builder().redirect(reqwest::redirect::Policy::none()).build().unwrap();
        Self { app, operator, address, closing, serving, client }
    }

    /// Creates a request without credentials.
    pub(crate) fn bare(&self, method: Method, path: &str) -> RequestBuilder {
        self.client.request(method, format!("http://{}{path}", self.address))
    }

    /// Creates a request with the token.
    pub(crate) fn call(&self, method: Method, path: &str) -> RequestBuilder {
        self.bare(method, path).bearer_auth(TOKEN)
    }

    pub(crate) async fn get(&self, path: &str) -> Reply {
        reply(self.call(Method::GET, path)).await
    }

    /// Repeats the read until the answer is as wanted.
    pub(crate) async fn get_until(&self, path: &str, wanted: impl Fn(&Reply) -> bool) -> Reply {
        get_until(path, async || self.get(path).await, wanted).await
    }

    pub(crate) async fn post(&self, path: &str, body: &Value) -> Reply {
        reply(self.call(Method::POST, path).json(body)).await
    }

    pub(crate) async fn patch(&self, path: &str, body: &Value) -> Reply {
        reply(self.call(Method::PATCH, path).json(body)).await
    }

    /// Submits a form of a page.
    async fn form(&self, path: &str, fields: &[(&str, &str)]) -> Reply {
        let body = url::form_urlencoded::Serializer::new(String::new()).extend_pairs(fields).finish();
        let call = self.call(Method::POST, path).header("content-type", "application/x-www-form-urlencoded");
        reply(call.body(body)).await
    }

    /// First kind of `/ops/stuck` with this query; `null` if nothing needs attention.
    async fn stuck(&self, query: &str) -> Value {
        self.get(&format!("/ops/stuck?{query}")).await["kinds"][0].clone()
    }

    /// Pauses a scope.
    pub(crate) async fn hold(&self, scope: &str) -> Reply {
        self.post("/ops/pauses", &json!({ "scope": scope, "reason": "to see what happens" })).await.ok(200)
    }

    /// Lifts a pause; returns `false` if there was none.
    pub(crate) async fn lift(&self, scope: &str) -> bool {
        let lifted = self.post(&format!("/ops/pauses/{scope}/lift"), &json!({})).await.ok(200);
        let was_paused = lifted["was_paused"].as_bool().unwrap();
        assert_eq!(lifted.json, json!({ "scope": scope, "was_paused": was_paused }));
        was_paused
    }

    /// Makes the actor of a payment, a payout or a withdrawal panic, and waits until its supervisor has seen it.
    async fn panic(&self, of: impl Into<ActorSubject>) {
        let system = &self.app.state.system;
        let before = *system.log().watch().borrow();
        system.inject_panic(of);
        until("the panic is seen", async || (*system.log().watch().borrow() > before).then_some(())).await;
    }

    /// Makes the actor panic until its supervisor gives up.
    async fn quarantine(&self, of: impl Into<ActorSubject> + Copy) {
        for _ in 0..4 {
            self.panic(of).await;
        }
    }

    /// Changes rows as if something had happened.
    async fn execute(&self, statements: &[String]) {
        for sql in statements {
            self.app.writer().execute_unprepared(sql).await.unwrap();
        }
    }

    /// Stops the listener, which must end promptly.
    pub(crate) async fn stop(self) {
        self.closing.cancel();
        tokio::time::timeout(Duration::from_secs(30), self.serving).await.unwrap().unwrap();
    }
}

/// A route's path with ids of objects that do not exist.
fn concrete(path: &str) -> String {
    let parts = path.split('/').map(|part| match part {
        "{payment_id}" => "pay_01J9Z3K4M5N6P7Q8R9S0T1V2W3",
        "{psp_id}" => "psp_01J9Z3K4M5N6P7Q8R9S0T1V2W3",
        "{customer_id}" => "cr_01J9Z3K4M5N6P7Q8R9S0T1V2W3",
        "{sending_id}" => "po_01J9Z3K4M5N6P7Q8R9S0T1V2W3",
        "{key_id}" => "key_01J9Z3K4M5N6P7Q8R9S0T1V2W3",
        "{node_id}" => "node_01J9Z3K4M5N6P7Q8R9S0T1V2W3",
        "{job_id}" => "blk_01J9Z3K4M5N6P7Q8R9S0T1V2W3",
        "{approval_id}" => "apr_01J9Z3K4M5N6P7Q8R9S0T1V2W3",
        parameter if parameter.starts_with('{') => "1",
        part => part,
    });
    parts.collect::<Vec<_>>().join("/")
}

async fn reply(request: RequestBuilder) -> Reply {
    let (client, request) = request.build_split();
    let request = request.unwrap();
    let (method, path) = (request.method().clone(), request.url().path().to_owned());
    let response = client.execute(request).await.unwrap();
    let (status, headers) = (response.status(), response.headers().clone());
    let bytes = response.bytes().await.unwrap().to_vec();
    let json = serde_json::from_slice(&bytes).unwrap_or(Value::Null);
    let reply = Reply { status, headers, bytes, json };
    if reply.header("content-type").is_some_and(|sort| sort.starts_with("text/html")) {
        pages::assert_sound(&method, &reply);
    } else {
        conformance::assert_conforms(openapi::document(), (&method, &path), &reply);
    }
    reply
}
