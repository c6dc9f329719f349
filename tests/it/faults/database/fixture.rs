//! Test environment: a sandbox in this process over a database that the test can disturb.

use std::sync::Arc;
use std::time::Duration;

use payferry::sandbox::{Sandbox, SandboxEnv as Chains};
use payferry_entities::payments;
use payferry_harness::database::TestDatabase;
use payferry_harness::proxy::Proxy;
use payferry_harness::psp::Psp;
use payferry_harness::receiver::Receiver;
use payferry_harness::{eventually, expect};
use sea_orm::{EntityTrait, PaginatorTrait};

use super::load::Made;
use crate::stage::sandbox_over;
use crate::stories::many_payments::check_balances;

const BLOCK_TIME: Duration = Duration::from_millis(200);

/// The service, its database and the proxy between them, if any.
pub struct Fixture {
    sandbox: Sandbox,
    pub psp: Psp,
    receiver: Receiver,
    proxy: Option<Proxy>,
    pub database: TestDatabase,
}

impl Fixture {
    /// Creates a site without a proxy.
    pub async fn on(database: TestDatabase) -> Self {
        let url = database.url().to_owned();
        Self::at(url, None, database).await
    }

    /// Creates a site with a proxy between the service and a PostgreSQL server.
    pub async fn behind_proxy() -> Self {
        let database = TestDatabase::postgres().await;
        let proxy = Proxy::start(database.url()).await;
        let url = proxy.url(database.url());
        Self::at(url, Some(proxy), database).await
    }

    async fn at(url: String, proxy: Option<Proxy>, database: TestDatabase) -> Self {
        let sandbox = sandbox_over(url, BLOCK_TIME).await;
        let receiver = Receiver::start().await;
        let psp = Psp::connect(&sandbox.ready().api_url, &sandbox.ready().api_key, &receiver).await;
        Self { sandbox, psp, receiver, proxy, database }
    }

    /// Returns the proxy.
    pub fn proxy(&self) -> &Proxy {
        self.proxy.as_ref().unwrap()
    }

    /// Returns the chains, for direct access.
    pub fn chains(&self) -> Arc<Chains> {
        Arc::clone(self.sandbox.env())
    }

    /// Waits until `readyz` reports this readiness.
    pub async fn until_ready(&self, ready: bool) {
        let url = format!("{}/readyz", self.sandbox.ready().operator_url);
        let wanted = if ready { 200 } else { 503 };
        let look = async || expect(reqwest::get(&url).await.unwrap().status(), |status| *status == wanted);
        eventually(format!("readyz answers {wanted}"), look).await;
    }

    /// Asserts that everything acknowledged exists once, settled and announced, and that nothing else exists.
    pub async fn check(&self, made: &Made) {
        let rows = payments::Entity::find().count(self.sandbox.system().database().reader()).await.unwrap();
        assert_eq!(rows, made.made.len() as u64, "each key created one payment");
        for (id, _, _) in &made.made {
            self.psp.until_status(id, "settled").await;
        }
        let holdings = async |chain, token| self.psp.sandbox_holdings(chain, token).await;
        check_balances(&self.psp, holdings, &self.receiver, &made.made).await;
    }

    pub async fn stop(self) {
        self.sandbox.stop().await;
        drop(self.database);
    }
}
