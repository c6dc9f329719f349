//! Runbook scenarios from the alarm to its end. The operator follows only the entry, its runbook and the pages and forms that
//! they lead to; other people do what the entry asks of them.
//!
//! A frozen node is in `cli::nodes`, and a missed transfer in `reconcile`.

use std::time::{Duration, Instant};

use alloy::primitives::U256;
use payferry::sandbox::{Accounts, Payer};
use payferry_devchain::Dropped;
use payferry_domain::Amount;
use payferry_domain::customer::Command;
use payferry_domain::payment::Decision;
use payferry_harness::database::Lock;
use payferry_harness::endpoint::{Fault, ReportedHead, What};
use payferry_harness::receiver::{Receiver, ReceiverBehaviour};
use payferry_webhook::BreakerState;

use super::attention::set_contract_paused;
use super::decisions::ADA;
use crate::http::compliance::{Fixture, change, ready};
use crate::prelude::*;

/// Longest time from the moment at which the service raises an alarm until the feed lists it.
const LISTED_WITHIN: Duration = Duration::from_secs(2);

const FEED: &str = "/ops/view/stuck";

/// A page as the operator reads it, or a part of one.
pub(crate) struct Seen<'a> {
    service: &'a ServiceFixture,
    html: String,
}

/// Waits until the service raises an alarm, and then for the section of the feed that lists it.
pub(crate) async fn alarm<'a>(service: &'a ServiceFixture, kind: &str, is_raised: impl AsyncFn() -> bool) -> Seen<'a> {
    until(&format!("{kind} is raised"), async || is_raised().await.then_some(())).await;
    let raised_at = Instant::now();
    let section = format!("<section class=\"panel alarm\" id=\"{kind}\"");
    let listed = async || {
        let page = service.get(FEED).await.ok(200);
        let (_, rest) = page.text().split_once(&section)?;
        Some(rest.split("</section>").next().unwrap().to_owned())
    };
    let html = until(&format!("{kind} is listed"), listed).await;
    assert!(raised_at.elapsed() < LISTED_WITHIN, "{kind} was listed after {:?}", raised_at.elapsed());
    Seen { service, html }
}

/// Waits until the feed lists nothing.
pub(crate) async fn until_calm(service: &ServiceFixture) {
    let is_calm = |page: &Reply| page.text().contains("Nothing needs attention.");
    service.get_until(FEED, is_calm).await;
}

impl Seen<'_> {
    pub(crate) fn says(&self, texts: &[&str]) -> &Self {
        for text in texts {
            assert!(self.html.contains(text), "{text:?} in {}", self.html);
        }
        self
    }

    /// Section of the runbook that the entry links to. It must say all of these.
    pub(crate) async fn runbook(&self, texts: &[&str]) -> &Self {
        let link = self.link("Runbook");
        let (page, heading) = link.split_once('#').unwrap();
        let book = self.service.get(page).await.ok(200);
        let (_, rest) = book.text().split_once(&format!("id=\"{heading}\"")).unwrap();
        let html = rest.split("<h2").next().unwrap().replace('\n', " ");
        Seen { service: self.service, html }.says(texts);
        self
    }

    /// Target of the link with this text.
    fn link(&self, text: &str) -> String {
        let before = self.html.split(&format!(">{text}</a>")).next().unwrap();
        assert_ne!(before.len(), self.html.len(), "a link {text:?} in {}", self.html);
        let (_, target) = before.rsplit_once("href=\"").unwrap();
        target.split('"').next().unwrap().replace("&amp;", "&")
    }

    /// Page behind the link with this text.
    async fn follow(&self, text: &str) -> Self {
        Self { service: self.service, html: main_of(&self.service.get(&self.link(text)).await.ok(200)) }
    }

    /// Fills in the form with this button, and sends it with a reason and the confirmation.
    async fn submit(&self, button: &str, filled_in: &[(&str, &str)]) {
        let forms = self.html.split("<form").skip(1).map(|rest| rest.split("</form>").next().unwrap());
        let mut forms = forms.filter(|form| form.rsplit("<button").next().unwrap().contains(&format!(">{button}")));
        let form = forms.next().unwrap_or_else(|| panic!("a form {button:?} in {}", self.html));
        let mut fields: Vec<(&str, &str)> = Vec::new();
        for tag in form.split('<').filter(|tag| tag.starts_with("input ") || tag.starts_with("select ")) {
            let name = attribute(tag, "name").unwrap();
            let given = filled_in.iter().find(|(one, _)| *one == name).map(|(_, value)| *value);
            let shown = attribute(tag, "value").filter(|_| tag.contains("type=\"hidden\""));
            fields.extend(given.or(shown).map(|value| (name, value)));
        }
        for (name, _) in filled_in {
            assert!(fields.iter().any(|(field, _)| field == name), "a field {name:?} in {form}");
        }
        fields.extend(super::SIGNED);
        let answer = self.service.form(attribute(form, "action").unwrap(), &fields).await;
        assert_eq!(answer.status, 303, "{}", main_of(&answer));
    }
}

/// The page without its head, script and navigation.
fn main_of(page: &Reply) -> String {
    let (_, rest) = page.text().split_once("<main").unwrap();
    rest.split("</main>").next().unwrap().to_owned()
}

/// Value of an attribute in a tag.
fn attribute<'a>(tag: &'a str, name: &str) -> Option<&'a str> {
    tag.split_once(&format!("{name}=\""))?.1.split('"').next()
}

#[tokio::test]
async fn panic_is_in_the_supervision_log_and_the_payment_continues() {
    let service = ServiceFixture::start_with_chains().await;
    let made = service.app.add_payment().await;
    service.panic(made.id().parse::<PaymentId>().unwrap()).await;
    let overview = Seen { service: &service, html: main_of(&service.get("/ops").await.ok(200)) };
    let payment = overview.says(&["panic"]).follow(made.id()).await;
    payment.says(&["panicked on purpose for a test", "actors/src/aggregate/actor.rs:"]);
    let book = service.get("/ops/view/runbooks/payments").await.ok(200);
    book.assert_shows(&["id=\"actors-restart\"", "report the"]);
    service.app.pay(&made, "10").await;
    service.app.payment_when(&made, "settled").await;
    until_calm(&service).await;
}

#[tokio::test]
async fn quarantined_payment_is_released_and_settled() {
    let service = ServiceFixture::start_with_chains().await;
    let made = service.app.add_payment().await;
    service.quarantine(made.id().parse::<PaymentId>().unwrap()).await;
    let is_raised = async || service.app.state.system.quarantine_counts().payments == 1;
    let entry = alarm(&service, "quarantined", is_raised).await;
    entry.says(&[made.id(), "panic", "fix the cause, then release it"]);
    entry.runbook(&["After the cause is gone", "release"]).await.submit("Release", &[]).await;
    until_calm(&service).await;
    service.app.pay(&made, "10").await;
    service.app.payment_when(&made, "settled").await;
}

#[tokio::test]
async fn dead_and_lagging_endpoints_are_listed_until_they_recover() {
    let config = TestConfig { chains: true, agree_from: Some(Amount::from_tokens(10)), ..TestConfig::default() };
    let service = ServiceFixture::over(TestApp::start_with(config).await).await;
    let endpoint = &service.app.endpoints[0];
    let is_raised = async || !service.app.state.system.endpoint_problems().is_empty();
    let faults = [(What::Closed, "base endpoint 0"), (What::Head(ReportedHead::Behind(40)), "blocks behind")];
    for (what, shown) in faults {
        endpoint.show([Fault::of(what)]);
        let entry = alarm(&service, "endpoint", is_raised).await;
        entry.says(&[shown, "The other endpoints are used.", "Check the provider"]);
        entry.runbook(&["A second endpoint takes over meanwhile"]).await;
        let made = service.app.initiate(&json!({ "amount": "5" })).await.ok(201);
        service.app.pay(&made, "5").await;
        service.app.payment_when(&made, "settled").await;
        endpoint.behave();
        until_calm(&service).await;
    }
}

#[tokio::test]
async fn dead_receiver_is_listed_until_it_answers() {
    let service = ServiceFixture::start_with_chains().await;
    let receiver = Receiver::start().await;
    receiver.behave(ReceiverBehaviour::Status(500));
    let hook = service.app.patch("/api/v1/set_webhook", &json!({ "webhook_url": receiver.url() })).await.ok(200);
    receiver.verify_with(hook.string("signing_secret"));
    for _ in 0..6 {
        service.app.paid("10", "settled").await;
    }
    let is_raised = async || {
        let lane = service.app.state.system.webhooks().observe_one(service.app.psp_id).await;
        lane.is_some_and(|(_, view)| view.is_some_and(|view| view.breaker != BreakerState::Closed))
    };
    let entry = alarm(&service, "breaker_open", is_raised).await;
    entry.says(&["the last failure was", "500", "Inform the PSP."]);
    entry.runbook(&["Ask the PSP to fix its receiver"]).await;
    let psp = service.app.psp_id.to_string();
    entry.follow(&psp).await.says(&["500"]);
    receiver.behave(ReceiverBehaviour::Well);
    until_calm(&service).await;
    receiver.until(24).await;
}

#[tokio::test]
async fn slow_receiver_is_listed_until_its_events_are_delivered() {
    let service = ServiceFixture::start_with_chains().await;
    let receiver = Receiver::start().await;
    receiver.behave(ReceiverBehaviour::Slow(Duration::from_mins(10)));
    let hook = service.app.patch("/api/v1/set_webhook", &json!({ "webhook_url": receiver.url() })).await.ok(200);
    receiver.verify_with(hook.string("signing_secret"));
    service.app.paid("10", "settled").await;
    // Its events have waited for an hour.
    let hour_ago = "created_at = created_at - 3600000, updated_at = updated_at - 3600000";
    service.execute(&[format!("UPDATE deliveries SET {hour_ago}")]).await;
    let entry = alarm(&service, "webhooks_delayed", async || true).await;
    entry.says(&["queued", "Otherwise check the PSP's receiver"]);
    entry.runbook(&["Ask the PSP to fix its receiver"]).await;
    receiver.behave(ReceiverBehaviour::Well);
    // The PSP names the URL of a faster receiver.
    let faster = Receiver::start().await;
    faster.verify_with(hook.string("signing_secret"));
    service.app.patch("/api/v1/set_webhook", &json!({ "webhook_url": faster.url() })).await.ok(200);
    faster.until(4).await;
    until_calm(&service).await;
}

#[tokio::test]
async fn exhausted_deliveries_are_delivered_again() {
    let service = ServiceFixture::start_with_chains().await;
    service.app.paid("10", "settled").await;
    service.execute(&["UPDATE deliveries SET status = 'exhausted'".to_owned()]).await;
    let entry = alarm(&service, "webhooks_exhausted", async || true).await;
    entry.says(&["exhausted", "ask the PSP to redeliver"]);
    entry.runbook(&["After its receiver works"]).await;
    let receiver = Receiver::start().await;
    let hook = service.app.patch("/api/v1/set_webhook", &json!({ "webhook_url": receiver.url() })).await.ok(200);
    receiver.verify_with(hook.string("signing_secret"));
    let bulk = entry.follow("All at once").await;
    bulk.submit("Redeliver", &[]).await;
    receiver.until(4).await;
    until_calm(&service).await;
}

#[tokio::test]
async fn money_of_a_sanctioned_payer_is_sent_where_compliance_decides() {
    let service = ServiceFixture::start_with_chains().await;
    let made = service.app.add_payment().await;
    service.app.send(&made, Payer::Sanctioned, Chain::Base, Token::Usdc, "10").await;
    let is_raised = async || service.app.get(&made.path()).await["status"] == "failed";
    let entry = alarm(&service, "funds_blocked", is_raised).await;
    entry.says(&[made.id(), "10.00 USDC", "Decide with compliance where the money goes"]);
    entry.runbook(&["held until an operator decides"]).await;
    entry.follow("Decide").await.submit("Send", &[("address", ADA)]).await;
    let sent = async || (balance(&service.app, Chain::Base, Token::Usdc, ADA).await == 10_000_000).then_some(());
    until("the money is sent", sent).await;
    until_calm(&service).await;
}

#[tokio::test]
async fn money_in_review_is_allowed_and_settled() {
    let screener = FixedScreener::new(Some(Decision::Review));
    let service = ServiceFixture::over(TestApp::start_with_screener(&screener).await).await;
    let made = service.app.add_payment().await;
    service.app.pay(&made, "10").await;
    let is_raised = async || has_label(&service.app.get(&made.path()).await.json, "IN_REVIEW");
    let entry = alarm(&service, "in_review", is_raised).await;
    entry.says(&[made.id(), "doubtful says mixer", "then allow or block it"]);
    entry.runbook(&["sender, verdict, risk level and categories"]).await;
    entry.follow("Decide").await.says(&["From", "mixer"]).submit("Decide", &[("decision", "allow")]).await;
    service.app.payment_when(&made, "settled").await;
    until_calm(&service).await;
}

#[tokio::test]
async fn settler_without_gas_is_funded() {
    let service = ServiceFixture::start_with_chains().await;
    let chain = service.app.env().chain(Chain::Base).devchain();
    let settler = Accounts::known().settler.address();
    chain.set_balance(settler, U256::ZERO).await.unwrap();
    let made = service.app.paid("10", "confirmed").await;
    let is_raised = async || service.app.state.system.chains().settler(Chain::Base).unwrap().blocked_reason().is_some();
    let entry = alarm(&service, "settler", is_raised).await;
    entry.says(&["cannot pay", &settler.to_string().to_lowercase(), "fund it"]);
    entry.runbook(&["See <a", "Gas money runs out"]).await;
    chain.set_balance(settler, U256::from(10).pow(U256::from(20))).await.unwrap();
    service.app.payment_when(&made, "settled").await;
    until_calm(&service).await;
}

#[tokio::test]
async fn contract_that_is_paused_on_chain_is_unpaused_by_its_admin() {
    let service = ServiceFixture::start_with_chains().await;
    set_contract_paused(&service, true).await;
    let made = service.app.paid("10", "confirmed").await;
    let is_raised = async || service.app.state.system.chains().settler(Chain::Base).unwrap().blocked_reason().is_some();
    let entry = alarm(&service, "settler", is_raised).await;
    entry.says(&["settling is paused on-chain: the admin"]);
    entry.runbook(&["The admin calls <code>unpause</code>"]).await;
    set_contract_paused(&service, false).await;
    service.app.payment_when(&made, "settled").await;
    until_calm(&service).await;
}

#[tokio::test]
async fn locked_database_is_listed_until_it_accepts_writes() {
    let service = ServiceFixture::start_with_chains().await;
    let made = service.app.add_payment().await;
    let held = service.app.database.lock(Lock::Writes).await;
    let is_raised = async || service.app.state.system.journal().commit_blocker().is_some();
    let entry = alarm(&service, "journal_hindered", is_raised).await;
    entry.says(&["the last groups could not be written", "no lock is held"]);
    entry.runbook(&["end the session that holds the lock", "continues without a restart"]).await;
    held.release().await;
    until_calm(&service).await;
    service.app.pay(&made, "10").await;
    service.app.payment_when(&made, "settled").await;
}

#[tokio::test]
async fn money_that_a_deep_reorganisation_dropped_is_acknowledged_or_paid_again() {
    let service = ServiceFixture::start_with_chains().await;
    service.hold("settlement:base").await;
    let pause = service.stuck("kind=paused").await["items"][0]["item"].clone();
    let known = json!({ "kind": "paused", "item": pause, "reason": "of this test" });
    service.post("/ops/stuck/acknowledge", &known).await.ok(200);
    let made = [service.app.paid("10", "confirmed").await, service.app.paid("10", "confirmed").await];
    let chain = service.app.env().chain(Chain::Base).devchain();
    let block = service.app.get(&made[0].path()).await["transfers"][0]["block_number"].as_u64().unwrap();
    chain.reorg_from(block, Dropped::Discard).await.unwrap();
    let is_raised = async || {
        let read = [service.app.get(&made[0].path()).await, service.app.get(&made[1].path()).await];
        read.iter().all(|payment| payment["status"] == "pending")
    };
    let entry = alarm(&service, "received_money_orphaned", is_raised).await;
    entry.says(&[made[0].id(), made[1].id(), "10.00 USDC", "The PSP may have delivered already. Inform it"]);
    entry.runbook(&["notify the PSP, then acknowledge the entry with the agreed outcome"]).await;
    entry.follow(made[0].id()).await.says(&["orphaned"]);
    // The first payer pays again; the PSP bears the loss of the other.
    service.app.pay(&made[0], "10").await;
    service.app.payment_when(&made[0], "confirmed").await;
    let rest = async || {
        let entry = alarm(&service, "received_money_orphaned", async || true).await;
        (!entry.html.contains(made[0].id())).then_some(entry)
    };
    until("only one entry is left", rest).await.submit("Acknowledge", &[]).await;
    until_calm(&service).await;
    service.get(FEED).await.assert_shows(&["Acknowledged", "ticket 17", made[1].id()]);
}

#[tokio::test]
async fn unreachable_identity_provider_is_listed_until_it_answers() {
    let fixture = Fixture::new().await;
    let remote = fixture.remote;
    let service = ServiceFixture::over(fixture.app).await;
    remote.set_down(true);
    let customer = ready(&service.app).await;
    change(&service.app, customer, &Command::RequestCheck(CheckId::generate())).await;
    let is_raised = async || service.app.state.system.compliance().outage().is_some();
    let entry = alarm(&service, "identity_provider", is_raised).await;
    entry.says(&["sumsub", "Checks continue automatically"]);
    entry.runbook(&["called again automatically"]).await;
    remote.set_down(false);
    until_calm(&service).await;
}

#[tokio::test]
async fn transfer_that_a_quarantined_payment_has_not_applied_is_applied_after_its_release() {
    let service = ServiceFixture::start_with_chains().await;
    let made = service.app.add_payment().await;
    service.quarantine(made.id().parse::<PaymentId>().unwrap()).await;
    service.app.pay(&made, "10").await;
    // It has waited for two minutes.
    let aged = async || {
        let sql = format!("UPDATE transfers SET created_at = created_at - 120000 WHERE payment_id = '{}'", made.id());
        (service.app.writer().execute_unprepared(&sql).await.unwrap().rows_affected() == 1).then_some(())
    };
    until("its transfer is recorded", aged).await;
    let entry = alarm(&service, "transfer_unapplied", async || true).await;
    entry.says(&[made.id(), "is recorded, revision 0 was applied"]);
    entry.runbook(&["Payments without an actor"]).await;
    alarm(&service, "quarantined", async || true).await.submit("Release", &[]).await;
    service.app.payment_when(&made, "settled").await;
    until_calm(&service).await;
}
