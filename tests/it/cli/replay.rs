//! `payferry replay`: stored histories of the real service, and planted changes.

use std::collections::BTreeSet;

use payferry_entities::{Database, ledger_postings, payment_transitions, payments};
use payferry_harness::short_or_long;
use reqwest::Method;
use sea_orm::{ConnectionTrait, EntityTrait, IdenStatic, Iterable};
use serde_json::{Value, json};

use super::{Home, Running, complaint, payferry, run};

use crate::call::assert_has;

/// Runs the command, and returns its lines of JSON.
#[track_caller]
fn replay(home: &Home, more: &[&str], code: i32) -> Vec<Value> {
    let output = run(&[["replay", "--json"].as_slice(), more, &home.args()].concat());
    assert_eq!(output.status.code(), Some(code), "{} {}", String::from_utf8_lossy(&output.stdout), complaint(&output));
    let lines = String::from_utf8(output.stdout).unwrap();
    lines.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

async fn change(home: &Home, sql: &str) {
    let database = Database::open(&home.database_url()).await.unwrap();
    assert_eq!(database.writer().execute_unprepared(sql).await.unwrap().rows_affected(), 1, "{sql}");
    database.close().await.unwrap();
}

#[tokio::test]
async fn every_stored_history_leads_to_what_is_stored() {
    let home = Home::new().await;
    let sandbox = Running::start(&home);
    let settled = sandbox.settled_payment().await;
    let id = settled["payment_id"].as_str().unwrap();
    let body = json!({ "amount": "2.5", "address": format!("0x{}", "ad".repeat(20)), "metadata": { "name": "Ada" },
        "reference": "order 7" });
    let refund = sandbox.ok(Method::POST, &format!("/payments/{id}/refunds"), Some(body)).await;
    let refund = format!("/payments/{id}/refunds/{}", refund["refund_id"].as_str().unwrap());
    sandbox.until(&refund, |refund| refund["status"] == "sent").await;
    let cancelled = sandbox.payment().await;
    sandbox.ok(Method::POST, &format!("/payments/{cancelled}/cancel"), None).await;

    // Beside the service.
    let lines = replay(&home, &["--all"], 0);
    let [end] = &lines[..] else { panic!("{lines:?}") };
    assert_has(end, json!({ "payments": 2, "differences": 0, "accepted": 0 }));
    let (transitions, decided) = (end["transitions"].as_u64().unwrap(), end["decided"].as_u64().unwrap());
    assert_eq!(transitions, decided + 2, "only the initiations have no command");

    let steps = replay(&home, &[id], 0);
    assert_has(&steps[0], json!({ "version": 1, "command": null, "events": ["initiated"], "status": "pending" }));
    let commands: Vec<_> = steps.iter().map(|step| step["command"].as_str().unwrap_or_default()).collect();
    for command in
        ["observe_transfer", "finalise_transfers", "screen_transfer", "complete_settlement", "request_refund"]
    {
        assert!(commands.contains(&command), "{commands:?}");
    }
    assert!(steps[1..].iter().all(|step| step["decided_us"].as_u64().is_some() && step["differs"] == false));

    // The command has no data of the PSP.
    let database = Database::open(&home.database_url()).await.unwrap();
    let rows = payment_transitions::Entity::find().all(database.reader()).await.unwrap();
    database.close().await.unwrap();
    let stored: String = rows.iter().filter_map(|row| row.command.as_deref()).collect();
    assert!(stored.contains("request_refund") && !stored.contains("Ada") && !stored.contains("order 7"), "{stored}");
    sandbox.stop();
    replay(&home, &["--all"], 0);
}

#[tokio::test]
async fn names_each_payment_that_comes_out_differently() {
    let home = Home::new().await;
    let sandbox = Running::start(&home);
    let settled = sandbox.settled_payment().await["payment_id"].as_str().unwrap().to_owned();
    let cancelled = sandbox.payment().await;
    sandbox.ok(Method::POST, &format!("/payments/{cancelled}/cancel"), None).await;
    sandbox.stop();
    let of = |id: &str| format!("WHERE payment_id = '{id}'");

    // A command that leads to something else.
    change(
        &home,
        &format!("UPDATE payment_transitions SET command = '{{\"accept\":{{}}}}' {} AND version = 2", of(&cancelled)),
    )
    .await;
    let lines = replay(&home, &["--all"], 1);
    assert_has(
        &lines[0],
        json!({ "payment_id": cancelled, "version": 2, "part": "decision", "command": "accept",
        "stored": "failed", "now": "rejected: the payment is pending, not mismatched", "accepted": null }),
    );
    assert_eq!(lines.len(), 2, "{lines:?}");

    // Accepted by a file, which may also contain an entry that is not needed.
    let file = home.path().join("accepted.toml");
    let entry = |fields: &str| format!("[[accepted]]\nreason = \"reviewed\"\n{fields}\n");
    std::fs::write(&file, [entry("command = \"accept\""), entry("part = \"postings\"")].concat()).unwrap();
    let lines = replay(&home, &["--all", "--accept", file.to_str().unwrap()], 0);
    assert_eq!(lines[0]["accepted"], "reviewed");
    assert_has(&lines[1], json!({ "differences": 0, "accepted": 1, "unused": ["reviewed"] }));
    std::fs::write(&file, entry("part = \"postings\"")).unwrap();
    replay(&home, &["--all", "--accept", file.to_str().unwrap()], 1);

    // Everything else that is compared.
    change(
        &home,
        &format!(
            "UPDATE payments SET state = REPLACE(state, '\"version\":2', '\"version\":3') WHERE id = '{cancelled}'"
        ),
    )
    .await;
    change(&home, &format!("UPDATE events SET name = 'payment.settled' {} AND sequence = 1", of(&settled))).await;
    change(&home, &format!("UPDATE payment_transitions SET events = '[]' {} AND version = 2", of(&settled))).await;
    let lines = replay(&home, &["--all"], 1);
    let parts = |id: &str| -> BTreeSet<&str> {
        let of_it = lines.iter().filter(|line| line["payment_id"] == id);
        of_it.map(|line| line["part"].as_str().unwrap()).collect()
    };
    assert_eq!(parts(&cancelled), BTreeSet::from(["decision", "state"]));
    assert!(
        parts(&settled).is_superset(&BTreeSet::from(["decision", "announcements", "state", "postings"])),
        "{lines:?}"
    );
    let printed = String::from_utf8(run(&[["replay", "--all"].as_slice(), &home.args()].concat()).stdout).unwrap();
    assert!(printed.contains(&format!("differs  {cancelled}: state: stored version: 3; now version: 2")), "{printed}");
    change(&home, &format!("DELETE FROM payment_transitions {} AND version = 2", of(&settled))).await;
    let steps = replay(&home, &[&settled], 1);
    assert_eq!(steps.last().unwrap(), &json!({ "stopped": "version 3: version 2 is missing: the next is 3" }));
}

/// Copies the rows of a table with other ids. Ids have 26 characters after their prefix; the last eight become the number.
async fn copy<E: EntityTrait>(database: &Database, id: &str, copies: usize) {
    let table = E::default();
    let key = match table.table_name() {
        "payments" => "id",
        "ledger_postings" => "subject",
        _ => "payment_id",
    };
    let number = "substr(CAST(100000000 + n AS TEXT), 2)";
    let names: Vec<&str> = E::Column::iter().map(|column| column.as_str()).filter(|name| *name != "position").collect();
    let values = names.iter().map(|name| match *name {
        name if name == key => format!("substr({name}, 1, 22) || {number}"),
        "wallet" => format!("'0x' || '{}' || {number}", "0".repeat(32)),
        "link_token" => format!("link_token || {number}"),
        "state" | "events" | "command" => {
            format!("replace({name}, substr({key}, 5), substr({key}, 5, 18) || {number})")
        }
        name => name.to_owned(),
    });
    let sql = format!(
        "WITH RECURSIVE numbers(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM numbers WHERE n < {copies}) \
         INSERT INTO {table} ({names}) SELECT {values} FROM {table}, numbers WHERE {key} = '{id}'",
        table = table.table_name(),
        names = names.iter().map(|name| format!("\"{name}\"")).collect::<Vec<_>>().join(", "),
        values = values.collect::<Vec<_>>().join(", "),
    );
    database.writer().execute_unprepared(&sql).await.unwrap();
}

#[tokio::test]
async fn finds_a_planted_rule_change_among_many_histories() {
    let copies = short_or_long(2_000, 100_000);
    let home = Home::new().await;
    let sandbox = Running::start(&home);
    let settled = sandbox.settled_payment().await["payment_id"].as_str().unwrap().to_owned();
    sandbox.stop();
    let database = Database::open(&home.database_url()).await.unwrap();
    copy::<payments::Entity>(&database, &settled, copies).await;
    copy::<payment_transitions::Entity>(&database, &settled, copies).await;
    copy::<ledger_postings::Entity>(&database, &settled, copies).await;
    database.close().await.unwrap();
    let clean = replay(&home, &["--all"], 0);
    assert_has(&clean[0], json!({ "payments": copies + 1, "differences": 0 }));

    // As if an earlier version had called the exact amount an overpayment.
    let changed = format!("{}{:08}", &settled[..22], copies / 2);
    let as_before =
        |column: &str| format!("{column} = REPLACE({column}, '\"reason\":\"paid\"', '\"reason\":\"overpaid\"')");
    let confirmed = "events LIKE '%\"type\":\"confirmed\"%'";
    change(
        &home,
        &format!(
            "UPDATE payment_transitions SET {} WHERE payment_id = '{changed}' AND {confirmed}",
            as_before("events")
        ),
    )
    .await;
    change(&home, &format!("UPDATE payments SET {} WHERE id = '{changed}'", as_before("state"))).await;
    let lines = replay(&home, &["--all", "--workers", "2"], 1);
    let named: BTreeSet<_> = lines.iter().filter_map(|line| line["payment_id"].as_str()).collect();
    assert_eq!(named, BTreeSet::from([changed.as_str()]), "{lines:?}");
    let decision = lines.iter().find(|line| line["part"] == "decision").unwrap();
    assert!(decision["now"].as_str().unwrap().ends_with("reason: \"paid\""), "{decision}");
}

#[tokio::test]
async fn a_wrong_request_is_refused() {
    let home = Home::new().await;
    Running::start(&home).stop();
    let refused = |args: &[&str]| {
        let output = payferry().arg("replay").args(args).args(home.args()).output().unwrap();
        assert!(!output.status.success() && output.stdout.is_empty());
        complaint(&output)
    };
    let unknown = format!("pay_{}", "0".repeat(26));
    assert!(refused(&[&unknown]).contains(&format!("no payment {unknown} exists")));
    assert!(refused(&[]).contains("<PAYMENT>"));
    assert!(refused(&[&unknown, "--all"]).contains("cannot be used with"));
    assert!(refused(&["--all", "--workers", "0"]).contains("--workers"));
    assert!(refused(&["--all", "--accept", "/nowhere.toml"]).contains("cannot be read"));
}
