//! `payferry reconcile` on a sandbox's folder: while it runs, and when it does not.

use std::process::Output;
use std::time::Duration;

use payferry::sandbox::{Folder, Payer, World};
use payferry_domain::{Address, Chain, Token};
use payferry_entities::Database;
use reqwest::Method;
use sea_orm::ConnectionTrait;
use serde_json::Value;

use super::{Home, Running, complaint, run};

fn reconcile(home: &Home, more: &[&str]) -> Output {
    run(&[["reconcile", "--pause-secs", "1"].as_slice(), more, &home.args()].concat())
}

/// What it says as JSON, with this exit code.
#[track_caller]
fn report(home: &Home, code: i32) -> Value {
    let output = reconcile(home, &["--json"]);
    let said: Value = serde_json::from_slice(&output.stdout).unwrap_or_else(|_| panic!("{}", complaint(&output)));
    assert_eq!(output.status.code(), Some(code), "{said:#}");
    assert_eq!(said["is_clean"], code == 0, "{said:#}");
    said
}

async fn change(home: &Home, sql: &str) {
    let database = Database::open(&home.database_url()).await.unwrap();
    assert_eq!(database.writer().execute_unprepared(sql).await.unwrap().rows_affected(), 1, "{sql}");
    database.close().await.unwrap();
}

#[tokio::test]
async fn what_is_right_is_clean_and_what_is_not_is_named_with_its_payment() {
    let home = Home::new().await;
    let sandbox = Running::start(&home);
    let merchant = sandbox.merchant().await;
    let id = sandbox.payment(&merchant).await;
    sandbox.ok(Method::POST, &format!("/sandbox/payments/{id}/pay"), None).await;
    let payment = sandbox.until(&format!("/payments/{id}"), |payment| payment["status"] == "settled").await;
    let psp = sandbox.text("psp_id").to_owned();

    // While it runs, over its own JSON-RPC.
    let clean = report(&home, 0);
    assert_eq!((&clean["payments"], &clean["sums"]["base USDC"]["psps_on_chain"]), (&1.into(), &9_900_000.into()));
    // A balance that is not what was posted.
    change(&home, "UPDATE balances SET available = available + 1").await;
    let found = report(&home, 1);
    assert_eq!(
        (&found["unbalanced"][0]["psp_id"], &found["unbalanced"][0]["balance"]),
        (&psp.into(), &9_900_001.into())
    );
    change(&home, "UPDATE balances SET available = available - 1").await;
    sandbox.stop();

    // Closed, straight from its folder; and money that came while nobody looked.
    report(&home, 0);
    let folder = Folder::open(home.path()).unwrap();
    let world = World::open(&folder, Duration::from_hours(24)).await.unwrap();
    let wallet: Address = payment["intermediary_wallet"].as_str().unwrap().parse().unwrap();
    let chain = world.chain(Chain::Base);
    chain.transfer(Payer::Clean, Token::Usdc, wallet, "2.5".parse().unwrap()).await.unwrap();
    chain.devchain().mine(3).await.unwrap();
    world.close().await;
    drop((world, folder));
    let found = report(&home, 1);
    assert_eq!(found["differences_total"], 1, "{found:#}");
    let difference = &found["differences"][0];
    assert_eq!(
        (&difference["payment_id"], &difference["on_chain"]),
        (&id.clone().into(), &2_500_000.into()),
        "{found:#}"
    );
    let printed = String::from_utf8(reconcile(&home, &[]).stdout).unwrap();
    let line = printed.lines().find(|line| line.starts_with("differs")).unwrap();
    assert!(line.contains(&id) && line.contains("the ledger says 0.00 USDC, there are 2.50"), "{printed}");

    // Running again it reads what it missed, and all is right.
    let sandbox = Running::start(&home);
    sandbox.until(&format!("/payments/{id}"), |payment| payment["excess_received"] == "2.50").await;
    report(&home, 0);
    sandbox.stop();
}
