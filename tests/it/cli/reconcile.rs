//! `payferry reconcile` on a sandbox's folder, running or stopped.

use std::process::Output;
use std::sync::Arc;
use std::time::Duration;

use payferry::sandbox::{Folder, Payer, SandboxEnv};
use payferry_domain::{Address, Chain, Token};
use payferry_entities::{Database, chain_cursors, transfers};
use payferry_harness::process::Starting;
use reqwest::{Method, StatusCode};
use sea_orm::{ConnectionTrait, EntityTrait, PaginatorTrait};
use serde_json::{Value, json};

use super::{Home, Running, complaint, payferry, run};

use crate::call::{assert_has, column, until};

fn reconcile(home: &Home, more: &[&str]) -> Output {
    run(&[["reconcile", "--pause-secs", "1"].as_slice(), more, &home.args()].concat())
}

/// Returns the JSON report, with this exit code.
#[track_caller]
pub(super) fn report(home: &Home, code: i32) -> Value {
    let output = reconcile(home, &["--json"]);
    let said: Value = serde_json::from_slice(&output.stdout).unwrap_or_else(|_| panic!("{}", complaint(&output)));
    assert_eq!(output.status.code(), Some(code), "{said:#}");
    assert_eq!(said["is_clean"], code == 0, "{said:#}");
    said
}

/// Sends money while no sandbox runs: 2.5 USDC on Base.
async fn pay_while_closed(home: &Home, wallet: Address) {
    let folder = Folder::open(home.path()).unwrap();
    let env = SandboxEnv::open(&folder, Duration::from_hours(24)).await.unwrap();
    let chain = env.chain(Chain::Base);
    chain.transfer(Payer::Clean, Token::Usdc, wallet, "2.5".parse().unwrap()).await.unwrap();
    chain.devchain().mine(3).await.unwrap();
    env.close().await;
}

async fn change(home: &Home, sql: &str) {
    let database = Database::open(&home.database_url()).await.unwrap();
    assert_eq!(database.writer().execute_unprepared(sql).await.unwrap().rows_affected(), 1, "{sql}");
    database.close().await.unwrap();
}

#[tokio::test]
async fn report_is_clean_or_names_the_payment_of_a_difference() {
    let home = Home::new().await;
    let sandbox = Running::start(&home);
    let payment = sandbox.settled_payment().await;
    let id = payment["payment_id"].as_str().unwrap();
    let psp = sandbox.text("psp_id").to_owned();

    // While the sandbox runs, through its own JSON-RPC.
    let clean = report(&home, 0);
    assert_has(&clean, json!({ "payments": 1, "sums/base USDC/psps_on_chain": 9_900_000 }));
    // A balance that differs from the postings.
    change(&home, "UPDATE balances SET available = available + 1").await;
    let found = report(&home, 1);
    assert_has(&found["unbalanced"][0], json!({ "psp_id": psp, "balance": 9_900_001 }));
    change(&home, "UPDATE balances SET available = available - 1").await;
    sandbox.stop();

    // Stopped, directly from its folder; and a transfer that arrived meanwhile.
    report(&home, 0);
    pay_while_closed(&home, payment["intermediary_wallet"].as_str().unwrap().parse().unwrap()).await;
    let found = report(&home, 1);
    assert_eq!(found["differences_total"], 1, "{found:#}");
    assert_has(&found["differences"][0], json!({ "payment_id": id, "on_chain": 2_500_000 }));
    let printed = String::from_utf8(reconcile(&home, &[]).stdout).unwrap();
    let line = printed.lines().find(|line| line.starts_with("differs")).unwrap();
    assert!(line.contains(id) && line.contains("the ledger has 0.00 USDC, the chain has 2.50"), "{printed}");

    // After a restart the sandbox reads the missed blocks, and the report is clean.
    let sandbox = Running::start(&home);
    sandbox.until(&format!("/payments/{id}"), |payment| payment["excess_received"] == "2.50").await;
    report(&home, 0);
}

#[tokio::test]
async fn rereads_final_blocks_and_applies_missed_transfers() {
    let home = Home::new().await;
    let sandbox = Running::start(&home);
    let payment = sandbox.settled_payment().await;
    let id = payment["payment_id"].as_str().unwrap();
    sandbox.stop();

    // Really missed: the wallet was unknown at the first scan and at the rescan.
    let wallet = payment["intermediary_wallet"].as_str().unwrap().to_lowercase();
    pay_while_closed(&home, wallet.parse().unwrap()).await;
    let rename = async |wallet: &str| change(&home, &format!("UPDATE payments SET wallet = '{wallet}'")).await;
    rename("0x00000000000000000000000000000000000000aa").await;
    let sandbox = Running::start(&home);
    let database = Database::open(&home.database_url()).await.unwrap();
    let cursor = async || chain_cursors::Entity::find_by_id("base").one(database.reader()).await.unwrap().unwrap();
    let paid = cursor().await.block_number + 10;
    sandbox.ok(Method::POST, "/sandbox/chains/base/mine", Some(json!({"blocks": 200}))).await;
    let passed = async || (cursor().await.second_look_from > paid).then_some(());
    until("the block was rescanned", passed).await;
    sandbox.stop();
    rename(&wallet).await;
    let found = report(&home, 1);
    assert_eq!(found["differences"][0]["on_chain"], 2_500_000, "{found:#}");

    let recorded = async || transfers::Entity::find().count(database.reader()).await.unwrap();
    let head = cursor().await.block_number;
    let again = |from: i64, to: i64| {
        let (from, to) = (from.to_string(), to.to_string());
        reconcile(&home, &["--json", "--chain", "base", "--from-block", &from, "--to-block", &to])
    };
    for (from, to, why) in [(0, head, "are final"), (0, head + 1, "the watcher has read up to"), (5, 4, "is after")] {
        let refused = again(from, to);
        assert!(!refused.status.success() && complaint(&refused).contains(why), "{}", complaint(&refused));
        assert!(refused.stdout.is_empty());
    }
    assert_eq!(recorded().await, 1, "a refusal changes nothing");
    assert!(!reconcile(&home, &["--from-block", "1", "--to-block", "2"]).status.success(), "the chain is missing");

    let found = again(0, head - 20);
    let said: Value = serde_json::from_slice(&found.stdout).unwrap_or_else(|_| panic!("{}", complaint(&found)));
    let missed = said["reread"]["recorded"].as_array().unwrap();
    assert_eq!(said["reread"]["blocks"], head - 19);
    assert_eq!((missed.len(), &missed[0]["payment_id"], &missed[0]["amount"]), (1, &id.into(), &"2.50".into()));
    assert_eq!(found.status.code(), Some(0), "{said:#}");
    assert_eq!(said["under_way"], 1, "recorded, and not yet reported: {said:#}");
    assert_eq!(recorded().await, 2);
    database.close().await.unwrap();

    let sandbox = Running::start(&home);
    sandbox.until(&format!("/payments/{id}"), |payment| payment["excess_received"] == "2.50").await;
    report(&home, 0);
}

/// A refund of this payment, with its own id as the idempotency key.
async fn refund(sandbox: &Running, payment: &str, amount: &str) -> (StatusCode, Value) {
    let body = json!({ "amount": amount, "address": format!("0x{}", "ad".repeat(20)) });
    sandbox.psp().try_call(Method::POST, &format!("/payments/{payment}/refunds"), &body, Some(payment)).await.unwrap()
}

pub(super) async fn refunded(sandbox: &Running, payment: &str, amount: &str) {
    let (status, asked) = refund(sandbox, payment, amount).await;
    assert_eq!(status, StatusCode::ACCEPTED, "{asked:#}");
    let path = format!("/payments/{payment}/refunds/{}", asked["refund_id"].as_str().unwrap());
    sandbox.until(&path, |refund| refund["status"] == "sent").await;
}

/// Refunds 2.5 of a settled payment and 1 of another one, restores a database that was copied before, and returns the
/// sandbox and both payments.
async fn restored_without_refunds(home: &Arc<Home>) -> (Running, String, String) {
    let sandbox = Running::start(home);
    let settled = sandbox.settled_payment().await["payment_id"].as_str().unwrap().to_owned();
    let short = sandbox.payment().await;
    sandbox.ok(Method::POST, &format!("/sandbox/payments/{short}/pay"), Some(json!({ "amount": "4" }))).await;
    sandbox.until(&format!("/payments/{short}"), |payment| payment["status"] == "mismatched").await;
    sandbox.stop();
    let copy = home.copy_database().await;
    let sandbox = Running::start(home);
    refunded(&sandbox, &settled, "2.5").await;
    refunded(&sandbox, &short, "1").await;
    sandbox.stop();
    home.restore_database(copy).await;
    (Running::start(home), settled, short)
}

/// Waits until the service has paused outbound transfers; returns the pause.
pub(super) async fn until_paused(sandbox: &Running) -> Value {
    let listed = async || {
        let (_, listed) = sandbox.operator(Method::GET, "/ops/stuck?kind=paused", None).await;
        listed["kinds"][0]["items"][0]["id"].is_string().then_some(listed)
    };
    until("outbound transfers are paused", listed).await["kinds"][0]["items"][0].clone()
}

/// Runs `reconcile` until it lifts the pause; returns its last report. The first runs may post and still wait, until the
/// watcher has read the blocks. `posted` becomes the amounts that they post.
pub(super) async fn reconcile_until_lifted(home: &Home, posted: &mut Vec<Value>) -> Value {
    let finished = async || {
        let output = reconcile(home, &["--json"]);
        let said: Value = serde_json::from_slice(&output.stdout).unwrap_or_else(|_| panic!("{}", complaint(&output)));
        posted.extend(column(&said["unknown_sent"][0]["posted"], "amount"));
        said["unknown_sent"][0]["waits"].is_null().then_some((output.status.code(), said))
    };
    let (code, said) = until("it is reconciled", finished).await;
    assert_eq!((code, said["is_clean"].as_bool()), (Some(0), Some(true)), "{said:#}");
    posted.sort_by_key(Value::to_string);
    said
}

/// Debited account, credited account and amount of each unknown outbound transfer in the ledger.
pub(super) async fn unknown_sent(sandbox: &Running) -> Vec<Value> {
    let listed = sandbox.ok(Method::GET, "/ledger/entries?limit=50", None).await;
    let entries = listed["entries"].as_array().unwrap().iter().filter(|one| one["kind"] == "unknown_sent");
    let mut lines: Vec<_> = entries.map(|one| json!([one["debit"], one["credit"], one["amount"]])).collect();
    lines.sort_by_key(Value::to_string);
    lines
}

#[tokio::test]
async fn refunds_after_the_copy_are_posted_before_anything_else_is_sent() {
    let home = Home::new().await;
    // The PSP repeats the refunds, which the copy does not know.
    let (sandbox, settled, short) = restored_without_refunds(&home).await;
    let item = &until_paused(&sandbox).await;
    let scope = item["id"].as_str().unwrap();
    assert!(scope.starts_with("unreconciled:base:0x"), "{item:#}");
    assert!(
        item["reason"].as_str().unwrap().contains("its next nonce is 2 on the chain and 0 in the database"),
        "{item:#}"
    );
    for (payment, amount) in [(&settled, "2.5"), (&short, "1")] {
        let (status, refused) = refund(&sandbox, payment, amount).await;
        assert_eq!((status, &refused["code"]), (StatusCode::SERVICE_UNAVAILABLE, &"sending_unreconciled".into()));
    }
    let lifted = run(&[["pause", "lift", scope].as_slice(), &home.args()].concat());
    assert!(complaint(&lifted).contains("only `payferry reconcile` lifts"), "{}", complaint(&lifted));
    // Settlements continue.
    sandbox.settled_payment().await;

    sandbox.ok(Method::POST, "/sandbox/chains/base/mine", Some(json!({"blocks": 100}))).await;
    let mut posted = Vec::new();
    reconcile_until_lifted(&home, &mut posted).await;
    assert_eq!(posted, ["1.00", "2.50"]);
    let again = report(&home, 0);
    assert_eq!(again["unknown_sent"], json!([]), "the pause is lifted and nothing is posted twice");
    let lost = [json!(["payment", "external", "1.00"]), json!(["psp", "external", "2.50"])];
    assert_eq!(unknown_sent(&sandbox).await, lost);
    // Two settled payments, less what was sent from the vault.
    sandbox.until("/balances", |all| all["balances"][0]["available"] == "17.30").await;

    // Requested again, it is sent, with the next nonce.
    let accepted = async || (refund(&sandbox, &settled, "0.5").await.0 == StatusCode::ACCEPTED).then_some(());
    until("refunds are accepted again", accepted).await;
    let sent = |payment: &Value| payment["refunds"][0]["status"] == "sent";
    sandbox.until(&format!("/payments/{settled}"), sent).await;
    report(&home, 0);
    sandbox.stop();
}

/// Runs `reconcile` until it has posted one outbound transfer, and kills it. Returns `None` if it ends before.
async fn reconcile_killed(home: &Home) -> Option<()> {
    let mut command = payferry();
    command.args(["reconcile", "--json", "--pause-secs", "1"]).args(home.args());
    let mut process = Starting::spawn(command, home.path(), &[("PAYFERRY_HOLD_AFTER", "posted")]);
    until("it has posted or ended", async || {
        let is_held = process.log().contains("held after posted");
        (is_held || process.ended().is_some()).then_some(is_held.then_some(()))
    })
    .await
    .inspect(|()| process.kill())
}

#[tokio::test]
async fn killed_between_postings_it_posts_each_once_and_lifts_the_pause_at_the_end() {
    let home = Home::new().await;
    let (sandbox, settled, _) = restored_without_refunds(&home).await;
    until_paused(&sandbox).await;
    sandbox.ok(Method::POST, "/sandbox/chains/base/mine", Some(json!({"blocks": 100}))).await;
    for posted in 1..=2 {
        until("it posts another one", async || reconcile_killed(&home).await).await;
        assert_eq!(unknown_sent(&sandbox).await.len(), posted);
        let (status, refused) = refund(&sandbox, &settled, "0.5").await;
        assert_eq!((status, &refused["code"]), (StatusCode::SERVICE_UNAVAILABLE, &"sending_unreconciled".into()));
    }
    let mut posted = Vec::new();
    reconcile_until_lifted(&home, &mut posted).await;
    assert_eq!(posted, [""; 0], "both are posted");
    assert_eq!(unknown_sent(&sandbox).await.len(), 2);
    sandbox.until("/balances", |all| all["balances"][0]["available"] == "7.40").await;
    let accepted = async || (refund(&sandbox, &settled, "0.5").await.0 == StatusCode::ACCEPTED).then_some(());
    until("refunds are accepted again", accepted).await;
    sandbox.until(&format!("/payments/{settled}"), |payment| payment["refunds"][0]["status"] == "sent").await;
    report(&home, 0);
    sandbox.stop();
}
