//! `four_eyes`: actions that one operator proposes and another approves.

use payferry::sandbox::Payer;
use payferry_accounts::operators::OperatorRole;
use payferry_accounts::tenants::{self, LimitChange};
use payferry_domain::Address;
use payferry_evm::wallet::checksummed;
use payferry_journal::psps::PspPolicies;
use payferry_operator::psps::withdrawal;
use payferry_operator::{APPROVAL_SECS, resume_approvals};

use super::admission::{create, session};
use super::{TOKEN, reply};
use crate::http::mismatches::set_policies;
use crate::prelude::*;

const ADA: &str = "0x000000000000000000000000000000000000ada5";

/// A service that needs two operators, and some.
struct Operators {
    service: ServiceFixture,
    alice: String,
    bob: String,
}

impl Operators {
    async fn over(app: TestApp) -> Self {
        let service = ServiceFixture::serve(app, true).await;
        let alice = create(&service, "alice", OperatorRole::Admin).await;
        let bob = create(&service, "bob", OperatorRole::Admin).await;
        Self { service, alice, bob }
    }

    async fn post(&self, token: &str, path: &str, body: &Value) -> Reply {
        reply(self.service.bare(Method::POST, path).bearer_auth(token).json(body)).await
    }

    async fn form(&self, token: &str, path: &str, fields: &[(&str, &str)]) -> Reply {
        let body = url::form_urlencoded::Serializer::new(String::new()).extend_pairs(fields).finish();
        let call = self.service.bare(Method::POST, path).bearer_auth(token);
        reply(call.header("content-type", "application/x-www-form-urlencoded").body(body)).await
    }

    async fn approve(&self, token: &str, id: &str) -> Reply {
        self.post(token, &format!("/ops/approvals/{id}/approve"), &json!({})).await
    }

    async fn reject(&self, token: &str, id: &str) -> Reply {
        self.post(token, &format!("/ops/approvals/{id}/reject"), &json!({ "reason": "not needed" })).await
    }

    async fn read(&self, id: &str) -> Reply {
        self.service.get(&format!("/ops/approvals/{id}")).await.ok(200)
    }

    /// Returns true if the list of approvals with this status has this one.
    async fn lists(&self, status: &str, id: &str) -> bool {
        let list = self.service.get(&format!("/ops/approvals?status={status}")).await.ok(200);
        list["approvals"].as_array().unwrap().iter().any(|approval| approval["id"] == id)
    }

    /// Leaves an approval as a process does that ends after the approval and before its effect.
    async fn approve_and_crash(&self, id: &str) {
        let sql =
            format!("UPDATE approvals SET status = 'approved', decided_by = 'bob', decided_at = 1 WHERE id = '{id}'");
        self.service.execute(&[sql]).await;
    }

    /// Audit entries about approvals, with their actors.
    async fn log(&self, subject: &str) -> Vec<String> {
        let page = self.service.get(&format!("/ops/audit?subject={subject}&limit=500")).await.ok(200);
        let line =
            |entry: &Value| format!("{} {}", entry["actor"].as_str().unwrap(), entry["action"].as_str().unwrap());
        page["entries"].as_array().unwrap().iter().filter(|entry| entry["actor_kind"] != "api_key").map(line).collect()
    }

    fn psp(&self) -> String {
        format!("/ops/psps/{}", self.service.app.psp_id)
    }

    async fn send_max(&self) -> String {
        self.service.get(&self.psp()).await.string("send_max").to_owned()
    }

    /// Alice proposes a higher limit.
    async fn raise(&self, to: &str) -> Reply {
        let request = self.service.bare(Method::PATCH, &self.psp()).bearer_auth(&self.alice);
        reply(request.json(&json!({ "send_max": to }))).await
    }
}

/// Id of the approval in the answer to a proposal.
fn id_of(proposed: &Reply) -> String {
    assert_eq!(proposed.status, 202, "{}", proposed.text());
    proposed["approval"]["id"].as_str().unwrap().to_owned()
}

/// A failed payment that holds 10 USDC of a sanctioned payer.
async fn blocked() -> (Operators, Reply) {
    let operators = Operators::over(TestApp::start_with_chains().await).await;
    let app = &operators.service.app;
    let made = app.add_payment().await;
    app.send(&made, Payer::Sanctioned, Chain::Base, Token::Usdc, "10").await;
    app.payment_when(&made, "failed").await;
    (operators, made)
}

fn refund_blocked(payment: &Reply) -> String {
    format!("/ops/payments/{}/refund_blocked", payment.id())
}

/// The refunds of a payment after every one of them was sent.
async fn sent(app: &TestApp, payment: &Reply) -> usize {
    let all = |listed: &Reply| column(&listed["refunds"], "status").iter().all(|status| status == "sent");
    let listed = app.get_until(&format!("{}/refunds", payment.path()), all).await;
    listed["refunds"].as_array().unwrap().len()
}

#[tokio::test]
async fn blocked_money_is_sent_once_after_a_second_operator_approves() {
    let (operators, made) = blocked().await;
    let Operators { service, alice, bob } = &operators;
    let body = json!({ "address": ADA, "amount": "4", "reason": "ordered by the court" });
    let too_much = with(&body, &json!({ "amount": "11" }));
    operators.post(alice, &refund_blocked(&made), &too_much).await.assert_problem(409, "refund_too_large");
    let proposed = operators.post(alice, &refund_blocked(&made), &body).await;
    let id = id_of(&proposed);
    insta::assert_json_snapshot!("four_eyes_proposed", redact(&proposed.json));
    assert_eq!(service.app.get(&format!("{}/refunds", made.path())).await["refunds"], json!([]), "nothing is sent");
    operators.post(bob, &refund_blocked(&made), &body).await.assert_problem(409, "approval_open");

    let item = service.stuck("kind=approval_open").await["items"][0].clone();
    let path = format!("/ops/approvals/{id}/approve");
    assert_has(&item, json!({ "id": id, "payment_id": made.id(), "can/0": { "action": "approve", "path": path } }));
    let reason =
        format!("send 4.00 of blocked money on base to {}: proposed by alice", checksummed(ADA.parse().unwrap()));
    assert_eq!(item["reason"], reason);
    service.get("/ops/view/stuck").await.assert_shows(&[&format!("/ops/view/approvals/{id}")]);

    // The proposer cannot approve: neither with the token nor in a session.
    operators.approve(alice, &id).await.assert_problem(409, "own_approval");
    let origin = format!("http://{}", service.address);
    let own = service.bare(Method::POST, &path).header("cookie", session(service, alice).await);
    reply(own.header("origin", origin).json(&json!({}))).await.assert_problem(409, "own_approval");
    let viewer = create(service, "vic", OperatorRole::Viewer).await;
    operators.approve(&viewer, &id).await.assert_problem(403, "operator_role_missing");
    assert_eq!(operators.read(&id).await["status"], "proposed");

    let approved = operators.approve(bob, &id).await;
    approved.assert(200, json!({ "status": "carried_out", "proposed_by": "alice", "decided_by": "bob" }));
    assert_eq!(sent(&service.app, &made).await, 1);
    assert_eq!(operators.approve(bob, &id).await.ok(200).json, approved.json, "a repetition changes nothing");
    operators.approve(TOKEN, &id).await.assert_problem(409, "approval_closed");
    operators.reject(bob, &id).await.assert_problem(409, "approval_closed");
    assert_eq!(sent(&service.app, &made).await, 1);
    assert_eq!(balance(&service.app, Chain::Base, Token::Usdc, ADA).await, 4_000_000);
    assert_eq!(service.stuck("kind=approval_open").await, Value::Null);
    let expected = [
        "alice approval.proposed",
        "bob approval.approved",
        "bob payment.blocked_money_refunded",
        "bob approval.carried_out",
    ];
    assert_eq!(operators.log(made.id()).await, expected);
}

#[tokio::test]
async fn approved_action_is_carried_out_once_after_a_crash() {
    let (operators, made) = blocked().await;
    let Operators { service, alice, .. } = &operators;
    let body = json!({ "address": ADA, "amount": "4", "reason": "ordered by the court" });
    let id = id_of(&operators.post(alice, &refund_blocked(&made), &body).await);
    operators.approve_and_crash(&id).await;
    let item = service.stuck("kind=approval_open").await["items"][0].clone();
    assert!(item["reason"].as_str().unwrap().ends_with("approved and not carried out yet"), "{item}");
    resume_approvals(&service.operator).await.unwrap();
    assert_eq!(operators.read(&id).await["status"], "carried_out");
    assert_eq!(sent(&service.app, &made).await, 1);

    // The process ended after the effect and before its result was recorded.
    operators.approve_and_crash(&id).await;
    for _ in 0..2 {
        resume_approvals(&service.operator).await.unwrap();
        assert_eq!(operators.read(&id).await["status"], "carried_out");
    }
    assert_eq!(sent(&service.app, &made).await, 1);
    assert_eq!(balance(&service.app, Chain::Base, Token::Usdc, ADA).await, 4_000_000);
    let sent = operators.log(made.id()).await;
    assert_eq!(sent.iter().filter(|line| *line == "bob payment.blocked_money_refunded").count(), 1, "{sent:?}");

    // A quarantined payment keeps its approval until it is released.
    let payment: PaymentId = made.id().parse().unwrap();
    let more = json!({ "address": ADA, "amount": "5", "reason": "ordered by the court", "idempotency_key": "second" });
    let id = id_of(&operators.post(alice, &refund_blocked(&made), &more).await);
    service.quarantine(payment).await;
    let approved = operators.approve(&operators.bob, &id).await;
    approved.assert(202, json!({ "status": "approved" }));
    service.post(&format!("/ops/actors/{payment}/release"), &Value::Null).await.ok(200);
    operators.approve_and_crash(&id).await;
    resume_approvals(&service.operator).await.unwrap();
    assert_eq!(operators.read(&id).await["status"], "carried_out");
    let arrived = async || (balance(&service.app, Chain::Base, Token::Usdc, ADA).await == 9_000_000).then_some(());
    until("the second refund has arrived", arrived).await;
}

#[tokio::test]
async fn refund_above_the_limit_needs_a_second_operator() {
    let operators = Operators::over(TestApp::start_with_chains().await).await;
    let Operators { service, alice, bob } = &operators;
    let app = &service.app;
    let limit = Some("3".parse().unwrap());
    set_policies(app, &PspPolicies { refund_elsewhere_daily_max: limit, ..PspPolicies::default() }).await;
    let made = app.paid("10", "settled").await;
    let refunds = format!("{}/refunds", made.path());
    let held = async |amount: &str| {
        let asked = app.post(&refunds, &json!({ "amount": amount, "address": ADA })).await.ok(202);
        let one = format!("{refunds}/{}", asked.string("refund_id"));
        app.get_until(&one, |read| read["kyt_verdict"] == "allow").await
    };
    let path = format!("/ops/payments/{}/approve_refund", made.id());
    let decision = |refund: &Reply, decision: &str| json!({ "refund_id": refund["refund_id"], "decision": decision, "reason": "called back" });

    let first = held("4").await;
    let id = id_of(&operators.post(alice, &path, &decision(&first, "approve")).await);
    operators.approve(alice, &id).await.assert_problem(409, "own_approval");
    operators.approve(bob, &id).await.assert(200, json!({ "status": "carried_out" }));
    app.when(&format!("{refunds}/{}", first.string("refund_id")), "sent").await;
    operators.approve_and_crash(&id).await;
    resume_approvals(&service.operator).await.unwrap();
    assert_eq!(operators.read(&id).await["status"], "carried_out", "the refund was approved before");
    operators.post(alice, &path, &decision(&first, "approve")).await.assert_problem(409, "not_awaiting_approval");

    // A rejected proposal changes nothing; the proposer may withdraw one.
    let second = held("5").await;
    for by in [bob, alice] {
        let id = id_of(&operators.post(alice, &path, &decision(&second, "approve")).await);
        operators.reject(by, &id).await.assert(200, json!({ "status": "rejected", "decision_reason": "not needed" }));
        operators.approve(bob, &id).await.assert_problem(409, "approval_closed");
    }
    let one = format!("{refunds}/{}", second.string("refund_id"));
    assert_eq!(app.get(&one).await["status"], "pending_approval");
    // Rejecting a refund needs one operator. The proposal to approve it is then out of date.
    let id = id_of(&operators.post(alice, &path, &decision(&second, "approve")).await);
    operators.post(alice, &path, &decision(&second, "reject")).await.ok(200);
    operators.approve(bob, &id).await.assert_problem(409, "approval_out_of_date");
    assert_eq!(operators.read(&id).await["status"], "out_of_date");
    app.when(&one, "failed").await;
    assert_eq!(balance(app, Chain::Base, Token::Usdc, ADA).await, 4_000_000);
}

shared!(#[tokio::test] settings_of_psps, operators = Operators::over(TestApp::start().await).await,
    operators.service.app.renew_psp() =>
    raised_limit_waits_and_the_rest_of_the_change_does_not, raised_limit_is_out_of_date_after_another_change,
    approved_limit_is_raised_after_a_crash, withdrawal_wallet_needs_a_second_operator, proposal_expires,
    operator_without_the_role_cannot_approve, page_proposes_and_approves, approvals_are_listed);

async fn raised_limit_waits_and_the_rest_of_the_change_does_not(operators: &Operators) {
    let Operators { service, alice, bob } = operators;
    let patch =
        async |body: Value| reply(service.bare(Method::PATCH, &operators.psp()).bearer_auth(alice).json(&body)).await;
    let lowered = patch(json!({ "send_max": "500", "send_daily_max": "default" })).await.ok(200);
    assert_eq!((lowered["send_max"].as_str(), lowered.json.get("approval")), (Some("500.00"), None));
    let raise = json!({ "name": "Renamed", "send_max": "default", "send_daily_max": "40000",
        "refund_elsewhere_daily_max": "1000.01" });
    let proposed = patch(raise).await;
    let id = id_of(&proposed);
    let expected = json!({ "name": "Renamed", "send_max": "500.00", "send_daily_max": "40000.00",
        "refund_elsewhere_daily_max": "1000.00", "approval/action":
        { "send_max": "default", "refund_elsewhere_daily_max": "1000.01" } });
    assert_has(&proposed, expected);
    patch(json!({ "send_max": "501" })).await.assert_problem(409, "approval_open");
    operators.approve(alice, &id).await.assert_problem(409, "own_approval");
    assert_eq!(operators.send_max().await, "500.00");
    operators.approve(bob, &id).await.assert(200, json!({ "status": "carried_out" }));
    operators.approve(bob, &id).await.ok(200);
    let raised = service.get(&operators.psp()).await;
    assert_has(&raised, json!({ "send_max": "10000.00", "refund_elsewhere_daily_max": "1000.01" }));
    let ceilings = service.app.state.system.psps().get(service.app.psp_id).await.unwrap().ceilings;
    assert_eq!(ceilings.send_max.to_string(), "10000.00", "the actors apply it immediately");
    let log = operators.log(&service.app.psp_id.to_string()).await;
    let expected = [
        "alice psp.changed",
        "alice psp.changed",
        "alice approval.proposed",
        "bob approval.approved",
        "bob approval.carried_out",
        "bob psp.changed",
    ];
    assert_eq!(log, expected);
    // A new PSP starts with the configured limits at most.
    let new = |limit: &str| json!({ "name": "Southern Pay", "send_daily_max": limit });
    operators.post(alice, "/ops/psps", &new("50000.01")).await.assert_problem(409, "approval_required");
    operators.post(alice, "/ops/psps", &new("50000")).await.ok(201);
}

async fn raised_limit_is_out_of_date_after_another_change(operators: &Operators) {
    let Operators { service, bob, .. } = operators;
    let id = id_of(&operators.raise("20000").await);
    service.patch(&operators.psp(), &json!({ "send_max": "5" })).await.ok(200);
    operators.approve(bob, &id).await.assert_problem(409, "approval_out_of_date");
    assert_eq!(operators.read(&id).await["status"], "out_of_date");
    assert_eq!(operators.send_max().await, "5.00");
    let id = id_of(&operators.raise("20000").await);
    operators.approve(bob, &id).await.ok(200);
    assert_eq!(operators.send_max().await, "20000.00");
}

async fn approved_limit_is_raised_after_a_crash(operators: &Operators) {
    let Operators { service, .. } = operators;
    let (first, psp) = (id_of(&operators.raise("20000").await), service.app.psp_id);
    operators.approve_and_crash(&first).await;
    for _ in 0..2 {
        resume_approvals(&service.operator).await.unwrap();
        operators.read(&first).await.assert(200, json!({ "status": "carried_out", "decided_by": "bob" }));
    }
    assert_eq!(operators.send_max().await, "20000.00");
    let log = operators.log(&psp.to_string()).await;
    assert_eq!(log, ["alice approval.proposed", "bob approval.carried_out", "bob psp.changed"]);

    // The limit was lowered between the approval and its effect.
    let second = id_of(&operators.raise("30000").await);
    operators.approve_and_crash(&second).await;
    service.patch(&operators.psp(), &json!({ "send_max": "5" })).await.ok(200);
    resume_approvals(&service.operator).await.unwrap();
    let failed = operators.read(&second).await;
    failed.assert(200, json!({ "status": "failed", "failure_reason": "approval_out_of_date" }));
    assert_eq!(operators.send_max().await, "5.00");

    // The database refuses an approval by the proposer.
    let own = "UPDATE approvals SET decided_by = proposed_by WHERE status = 'carried_out'";
    let refused = service.app.writer().execute_unprepared(own).await;
    assert!(refused.is_err_and(|error| error.to_string().to_lowercase().contains("check constraint")));
}

async fn withdrawal_wallet_needs_a_second_operator(operators: &Operators) {
    let Operators { service, alice, bob } = operators;
    let path = format!("{}/withdrawal-wallets", operators.psp());
    let wallets = async || service.get(&path).await["wallets"].clone();
    let address = |byte: u8| Address([byte; 20]);
    let body = |byte: u8| json!({ "address": address(byte).to_string(), "chain": "base" });
    let zero = operators.post(alice, &path, &json!({ "address": Address([0; 20]).to_string() })).await;
    assert_eq!(zero.faults(), "address: zero_address");
    let nobody = "/ops/psps/psp_01J9Z3K4M5N6P7Q8R9S0T1V2W3/withdrawal-wallets";
    operators.post(alice, nobody, &body(1)).await.assert_problem(404, "psp_not_found");
    let id = id_of(&operators.post(alice, &path, &body(1)).await);
    assert_eq!(wallets().await, json!([]));
    operators.approve(alice, &id).await.assert_problem(409, "own_approval");
    operators.approve(bob, &id).await.assert(200, json!({ "status": "carried_out" }));
    operators.approve(bob, &id).await.ok(200);
    assert_has(&wallets().await, json!({ "0/address": checksummed(address(1)), "0/chain": "base" }));
    // The same wallet changes nothing and needs no approval.
    operators.post(alice, &path, &body(1)).await.ok(200);

    let id = id_of(&operators.post(bob, &path, &body(2)).await);
    operators.reject(alice, &id).await.ok(200);
    let id = id_of(&operators.post(bob, &path, &json!({ "address": "none", "chain": "base" })).await);
    let system = &service.app.state.system;
    let (specs, now) = (Vec::new(), system.clock().real_now());
    let mode = service.app.state.config.environment.key_mode();
    let other = (Some(Chain::Base), Some(address(3)));
    withdrawal::set(system.database(), &specs, mode, service.app.psp_id, other, now).await.unwrap();
    operators.approve(alice, &id).await.assert_problem(409, "approval_out_of_date");
    assert_has(&wallets().await, json!({ "0/address": checksummed(address(3)) }));
}

async fn proposal_expires(operators: &Operators) {
    let Operators { service, bob, .. } = operators;
    let first = operators.raise("20000").await;
    let id = id_of(&first);
    let at = |name: &str| first["approval"][name].as_str().unwrap().parse::<chrono::DateTime<chrono::Utc>>().unwrap();
    assert_eq!((at("expires_at") - at("created_at")).num_seconds(), APPROVAL_SECS);
    let expire = |id: &str| format!("UPDATE approvals SET expires_at = 1 WHERE id = '{id}'");
    service.execute(&[expire(&id)]).await;
    assert_eq!(operators.read(&id).await["status"], "expired");
    assert!(operators.lists("expired", &id).await && !operators.lists("proposed", &id).await);
    assert_eq!(service.stuck("kind=approval_open").await, Value::Null);
    operators.approve(bob, &id).await.assert_problem(409, "approval_expired");
    operators.reject(bob, &id).await.assert_problem(409, "approval_expired");
    assert_eq!(operators.send_max().await, "10000.00");
    // An expired proposal does not keep another one out.
    let next = id_of(&operators.raise("30000").await);
    service.execute(&[expire(&next)]).await;
    resume_approvals(&service.operator).await.unwrap();
    let log = operators.log(&service.app.psp_id.to_string()).await;
    assert_eq!(log, ["alice approval.proposed", " approval.expired", "alice approval.proposed", " approval.expired"]);
}

async fn operator_without_the_role_cannot_approve(operators: &Operators) {
    let Operators { service, .. } = operators;
    let id = id_of(&operators.raise("20000").await);
    let name = format!("erin-{}", id[4..].to_lowercase());
    let erin = create(service, &name, OperatorRole::Operator).await;
    for refused in [operators.approve(&erin, &id).await, operators.reject(&erin, &id).await] {
        refused.assert_problem(403, "operator_role_missing");
    }
    let page = format!("/ops/view/approvals/{id}");
    let shown = reply(service.bare(Method::GET, &page).bearer_auth(&erin)).await.ok(200);
    assert!(shown.text().contains("role admin") && !shown.text().contains("<form class=\"stack\""), "{}", shown.text());
    operators.form(&erin, &format!("{page}/approve"), &super::SIGNED).await.ok(403);

    // The shared token is one operator, however often it is used.
    operators.approve(TOKEN, &id).await.ok(200);
    let shared = service.patch(&operators.psp(), &json!({ "send_max": "30000" })).await;
    operators.approve(TOKEN, &id_of(&shared)).await.assert_problem(409, "own_approval");
    let unknown = "apr_01J9Z3K4M5N6P7Q8R9S0T1V2W3";
    operators.approve(TOKEN, unknown).await.assert_problem(404, "approval_not_found");
    operators.approve(TOKEN, "x").await.assert_problem(400, "invalid_parameters");
    let bad = operators.post(TOKEN, &format!("/ops/approvals/{unknown}/approve"), &json!({ "why": 1 })).await;
    assert_eq!(bad.faults(), "why: unknown_field");
    operators.reject(TOKEN, &id_of(&shared)).await.ok(200);
}

async fn page_proposes_and_approves(operators: &Operators) {
    let Operators { service, alice, bob } = operators;
    let psp = format!("/ops/view/psps/{}", service.app.psp_id);
    let limits = [("send_max", "20000"), ("send_daily_max", "default"), ("refund_elsewhere_daily_max", "default")];
    let policies = [("name", "Northern Pay"), ("fee_bps", "100"), ("overpayment", "hold"), ("tolerance", "0")];
    let others = [("tolerance_bps", "0"), ("dust_floor", "0.001"), ("event_families", "both")];
    let proposed = operators.form(alice, &psp, &[&limits[..], &policies, &others, &super::SIGNED].concat()).await;
    assert_eq!(proposed.status, 303, "{}", proposed.text());
    let location = proposed.header("location").unwrap();
    let page = location.strip_suffix("?done=proposed").unwrap().to_owned();
    let get = async |token: &str, path: &str| reply(service.bare(Method::GET, path).bearer_auth(token)).await.ok(200);
    let own = get(alice, location).await;
    own.assert_shows(&[
        "raise send_max to 20000.00",
        "Nothing is changed yet",
        "another operator has to approve it",
        "Withdraw",
    ]);
    assert!(!own.text().contains("approve-it"), "{}", own.text());
    operators.form(alice, &format!("{page}/approve"), &super::SIGNED).await.ok(409);
    get(bob, &page).await.assert_shows(&["id=\"approve-it\"", "id=\"reject-it\"", "10000.00"]);
    operators.form(bob, &format!("{page}/approve"), &[]).await.ok(422).assert_shows(&["<code>confirm</code>"]);
    assert_eq!(operators.send_max().await, "10000.00");
    let approved = operators.form(bob, &format!("{page}/approve"), &[("confirm", "true"), ("reason", "checked")]).await;
    let done = format!("{page}?done=decided");
    assert_eq!((approved.status.as_u16(), approved.header("location")), (303, Some(&*done)));
    get(bob, &done).await.assert_shows(&["carried out", ": checked", "The decision is recorded"]);
    assert_eq!(operators.send_max().await, "20000.00");
    get(bob, "/ops/view/approvals").await.assert_shows(&["raise send_max to 20000.00"]);
    reply(service.bare(Method::GET, "/ops/view/approvals/apr_1").bearer_auth(bob)).await.ok(404);

    let wallet = [("chain", "all"), ("address", "0x0707070707070707070707070707070707070707")];
    let proposed =
        operators.form(alice, &format!("{psp}/withdrawal-wallets"), &[&wallet[..], &super::SIGNED].concat()).await;
    let page = proposed.header("location").unwrap().strip_suffix("?done=proposed").unwrap().to_owned();
    get(bob, &page)
        .await
        .assert_shows(&["set the withdrawal wallet on all to 0x0707070707070707070707070707070707070707"]);
    assert_eq!(operators.form(bob, &format!("{page}/reject"), &super::SIGNED).await.status, 303);
    assert!(!service.get(&psp).await.text().contains("0x07070707"));
}

async fn approvals_are_listed(operators: &Operators) {
    let Operators { service, alice, .. } = operators;
    let first = id_of(&operators.raise("20000").await);
    operators.reject(alice, &first).await.ok(200);
    let second = id_of(&operators.raise("20000").await);
    let ids =
        async |query: &str| column(&service.get(&format!("/ops/approvals?{query}")).await.ok(200)["approvals"], "id");
    assert_eq!(ids("limit=2").await, [json!(second), json!(first)]);
    assert_eq!(ids("status=proposed&limit=1").await, [json!(second)]);
    assert_eq!(ids("status=rejected&limit=1").await, [json!(first)]);
    let bad = service.get("/ops/approvals?status=open&limit=0").await;
    bad.assert_problem(400, "invalid_parameters");
    assert_eq!(bad.faults(), "status: unknown_value, limit: out_of_range");
    operators.reject(alice, &second).await.ok(200);
}

#[tokio::test]
async fn nothing_is_proposed_unless_it_is_switched_on() {
    let service = ServiceFixture::start().await;
    let psp = format!("/ops/psps/{}", service.app.psp_id);
    let raised = service.patch(&psp, &json!({ "send_max": "20000" })).await.ok(200);
    assert_eq!(raised["send_max"], "20000.00");
    let change = LimitChange { send_max: Some("30000".parse().unwrap()), ..LimitChange::default() };
    let system = &service.app.state.system;
    let now = system.clock().real_now();
    tenants::change_psp(system.database(), service.app.psp_id, None, change.into(), now).await.unwrap();
    assert_eq!(
        service.get("/ops/approvals").await.ok(200).json,
        json!({ "total": 0, "next_cursor": null, "approvals": [] })
    );
}
