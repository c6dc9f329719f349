//! `migrate`, `psp`, `key` and `operator` on a database file and on a sandbox's folder.

use std::process::Stdio;

use super::{Home, Running, complaint, payferry, printed, run};
use payferry_harness::database::TestDatabase;
use reqwest::{Method, StatusCode};
use sea_orm::{ConnectionTrait, DbBackend, Statement};
use serde_json::json;

use crate::call::until;

/// A database with an unknown migration is refused by every command, unless that migration permits this version.
async fn refuses_another_version(database: &TestDatabase, url: &str) {
    let connection = database.connect().await;
    let execute = async |sql: &str| connection.execute_unprepared(sql).await.unwrap();
    execute("INSERT INTO seaql_migrations (version, applied_at) VALUES ('m9999_later', 0)").await;
    // A later version that only added something permits this one.
    assert_eq!(printed(&run(&["migrate", "--database-url", url])), "the tables are up to date");
    printed(&run(&["psp", "list", "--database-url", url]));
    execute("UPDATE schema_floor SET migration = 'm9999_later'").await;
    for command in [&["migrate"][..], &["migrate", "--check"], &["psp", "list"]] {
        let refused = run(&[command, &["--database-url", url]].concat());
        assert_eq!(refused.status.code(), Some(1), "{command:?}");
        let error = complaint(&refused);
        assert!(error.contains("another version of Payferry made this database (migration m9999_later)"), "{error}");
    }
    execute("DELETE FROM seaql_migrations WHERE version = 'm9999_later'").await;
    execute("UPDATE schema_floor SET migration = 'm0002_nodes'").await;
    connection.close().await.unwrap();
}

#[tokio::test]
async fn a_migration_that_fails_leaves_nothing() {
    let database = TestDatabase::empty().await;
    let connection = database.connect().await;
    connection.execute_unprepared("CREATE TABLE quarantines (id BIGINT)").await.unwrap();
    let failed = run(&["migrate", "--database-url", database.url()]);
    assert_eq!(failed.status.code(), Some(1));
    assert!(complaint(&failed).contains("quarantines"), "{}", complaint(&failed));
    // m0001 has no such table, and was applied before m0002 failed.
    connection.execute_unprepared("DROP TABLE quarantines").await.unwrap();
    connection.execute_unprepared("SELECT 1 FROM payments").await.unwrap_err();
    connection.close().await.unwrap();
    let migrated = printed(&run(&["migrate", "--database-url", database.url()]));
    assert_eq!(
        migrated,
        "applied m0001_schema\napplied m0002_nodes\napplied m0003_leases\napplied m0004_customer_search\napplied m0005_console\napplied m0006_left_nodes\napplied m0007_traces\napplied m0008_checkout\napplied m0009_refund_requests"
    );
}

#[tokio::test]
async fn two_processes_that_migrate_at_once_apply_each_migration_once() {
    let database = TestDatabase::empty().await;
    let start =
        || payferry().args(["migrate", "--database-url", database.url()]).stdout(Stdio::piped()).spawn().unwrap();
    let mut printed: Vec<_> =
        [start(), start()].into_iter().map(|process| printed(&process.wait_with_output().unwrap())).collect();
    printed.sort();
    assert_eq!(
        printed,
        [
            "applied m0001_schema\napplied m0002_nodes\napplied m0003_leases\napplied m0004_customer_search\napplied m0005_console\napplied m0006_left_nodes\napplied m0007_traces\napplied m0008_checkout\napplied m0009_refund_requests",
            "the tables are up to date"
        ]
    );
}

#[tokio::test]
async fn migrates_a_database_and_creates_psps_and_keys() {
    let (temp, database) = (tempfile::tempdir().unwrap(), TestDatabase::empty().await);
    let file = database.file();
    // A path works like a URL.
    let url = file.as_deref().map_or(database.url(), |file| file.to_str().unwrap());
    if let Some(file) = &file {
        let refused = run(&["psp", "list", "--database-url", url]);
        assert!(complaint(&refused).contains("there is no database at"), "{}", complaint(&refused));
        assert!(!file.exists(), "reading creates no database");
    }

    let missing = run(&["migrate", "--check", "--database-url", url]);
    assert_eq!(missing.status.code(), Some(1), "{}", complaint(&missing));
    let refused = run(&["psp", "list", "--database-url", url]);
    assert!(complaint(&refused).contains("run `payferry migrate`"), "{}", complaint(&refused));
    assert!(printed(&run(&["migrate", "--database-url", url])).starts_with("applied m0001"));
    assert_eq!(printed(&run(&["migrate", "--database-url", url])), "the tables are up to date");
    assert_eq!(printed(&run(&["migrate", "--check", "--database-url", url])), "the tables are up to date");

    refuses_another_version(&database, url).await;

    let psp = printed(&run(&["psp", "create", "--name", "Northern Pay", "--fee-bps", "80", "--database-url", url]));
    assert!(psp.starts_with("psp_"), "{psp}");
    run(&["psp", "set", &psp, "--tolerance", "0.05", "--overpayment", "refund-excess", "--database-url", url]);
    let more = ["--event-families", "payin", "--send-max", "500", "--send-daily-max", "default"];
    printed(&run(&[&["psp", "set", &psp, "--database-url", url], more.as_slice()].concat()));
    let unknown = run(&["psp", "set", &psp, "--withdrawal-wallet", "none", "--database-url", url]);
    assert!(complaint(&unknown).contains("`contracts.address` is not set"), "{}", complaint(&unknown));
    let listed = printed(&run(&["psp", "list", "--database-url", url]));
    for wanted in [
        &psp,
        "Northern Pay",
        "\"fee_bps\":80",
        "\"absolute\":50000",
        "refund_excess",
        "payin",
        "\"send_max\":500000000",
    ] {
        assert!(listed.contains(wanted), "{wanted} in {listed}");
    }
    for bad in [
        ["--fee-bps", "10001"],
        ["--tolerance", "1e3"],
        ["--overpayment", "keep"],
        ["--dust-floor", "2"],
        ["--send-max", "all"],
    ] {
        let output = run(&["psp", "set", &psp, bad[0], bad[1], "--database-url", url]);
        assert_eq!(output.status.code(), Some(2), "{bad:?}: {}", complaint(&output));
    }
    // A second operator cannot approve on the command line.
    let four_eyes = |arguments: &[&str]| {
        let command = [&["psp"], arguments, &["--database-url", url]].concat();
        payferry().args(command).env("PAYFERRY_OPERATORS__FOUR_EYES", "true").output().unwrap()
    };
    let page = format!("on the operator's page /ops/view/psps/{psp}");
    for raised in [["--send-max", "501"], ["--send-max", "default"], ["--withdrawal-wallet", "none"]] {
        let refused = four_eyes(&["set", &psp, raised[0], raised[1]]);
        let said = complaint(&refused);
        assert!(said.contains("`operators.four_eyes` is true") && said.contains(&page), "{said}");
    }
    let refused = four_eyes(&["create", "--name", "Southern Pay", "--refund-elsewhere-daily-max", "1001"]);
    assert!(complaint(&refused).contains("/ops/view/psps"), "{}", complaint(&refused));
    let listed = printed(&run(&["psp", "list", "--database-url", url]));
    assert!(listed.contains("\"send_max\":500000000") && !listed.contains("Southern Pay"), "{listed}");
    printed(&four_eyes(&["set", &psp, "--send-max", "500", "--send-daily-max", "40000"]));
    let stranger = "psp_01J9Z3K4M5N6P7Q8R9S0T1V2W3";
    let refused = run(&["psp", "set", stranger, "--fee-bps", "1", "--database-url", url]);
    assert!(complaint(&refused).contains("there is no PSP"), "{}", complaint(&refused));

    for given in [&["--scope", "read"][..], &["--expires", "never"], &[]] {
        let refused = run(&[&["key", "create", "--psp", &psp, "--database-url", url], given].concat());
        assert_eq!(refused.status.code(), Some(2), "{given:?}: {}", complaint(&refused));
        let named = ["--scope", "--expires"].map(|option| complaint(&refused).contains(&format!("\n  {option} <")));
        assert_eq!(named, ["--scope", "--expires"].map(|option| !given.contains(&option)), "{}", complaint(&refused));
    }
    for days in ["0", "soon"] {
        let refused =
            run(&["key", "create", "--psp", &psp, "--scope", "read", "--expires", days, "--database-url", url]);
        assert!(complaint(&refused).contains("`never` or a number of days"), "{}", complaint(&refused));
    }
    let create = ["key", "create", "--psp", &psp, "--scope", "full", "--expires", "never", "--database-url", url];
    let unsealed = run(&create);
    assert!(complaint(&unsealed).contains("secrets.master_key_file"), "{}", complaint(&unsealed));
    let master = temp.path().join("master");
    std::fs::write(&master, format!("{}\n", "ab".repeat(32))).unwrap();
    let created = payferry()
        .args(["key", "create", "--psp", &psp, "--name", "reports", "--scope", "read,webhooks"])
        .args(["--expires", "90", "--database-url", url])
        .env("PAYFERRY_SECRETS__MASTER_KEY_FILE", &master)
        .output()
        .unwrap();
    let key = printed(&created);
    assert!(key.starts_with("sk_live_"), "{key}");
    let listed = printed(&run(&["key", "list", "--psp", &psp, "--database-url", url]));
    assert!(listed.contains("active") && listed.contains("[\"read\",\"webhooks\"]"), "{listed}");
    assert!(!listed.contains(&key), "a key is shown once");
    let id = listed.split_whitespace().next().unwrap().to_owned();
    for _ in 0..2 {
        printed(&run(&["key", "revoke", &id, "--database-url", url]));
    }
    assert!(printed(&run(&["key", "list", "--database-url", url])).contains("revoked"));
    let kept = if let Some(file) = file {
        [&file, &file.with_extension("db-wal")].map(|file| std::fs::read(file).unwrap_or_default()).concat()
    } else {
        let rows = "SELECT string_agg(api_keys::text, ' ') FROM api_keys";
        let rows = database.connect().await.query_one_raw(Statement::from_string(DbBackend::Postgres, rows)).await;
        rows.unwrap().unwrap().try_get_by_index::<String>(0).unwrap().into_bytes()
    };
    let has = |text: &[u8]| kept.windows(text.len()).any(|window| window == text);
    assert!(has(id.as_bytes()) && !has(&key.as_bytes()[40..80]), "the key itself is not stored");
}

#[tokio::test]
async fn operators_are_created_listed_and_revoked_beside_a_running_service() {
    let sandbox = Running::new().await;
    let status = async |token: &str| {
        let url = format!("{}/ops/overview", sandbox.text("operator_url"));
        reqwest::Client::new().get(url).bearer_auth(token).send().await.unwrap().status()
    };
    assert_eq!(sandbox.beside(&["operator", "list"]), "");
    let token = sandbox.beside(&["operator", "create", "alice", "--role", "viewer"]);
    assert!(token.starts_with("op_") && token.lines().count() == 1, "{token}");
    assert_eq!(status(&token).await, StatusCode::OK, "without a restart");
    let listed = sandbox.beside(&["operator", "list"]);
    assert!(listed.starts_with("alice  viewer  created ") && listed.ends_with("  active"), "{listed}");
    assert!(!listed.contains(&token), "a token is shown once");

    let refused =
        |args: &[&str]| complaint(&payferry().arg("operator").args(args).args(sandbox.home.args()).output().unwrap());
    let twice = refused(&["create", "alice", "--role", "admin"]);
    assert!(twice.contains("there is already an operator alice"), "{twice}");
    for (args, expected) in [
        (vec!["create", "bob"], "--role <ROLE>"),
        (vec!["create", "bob", "--role", "root"], "possible values: viewer, operator, admin"),
        (vec!["create", "Bob B", "--role", "viewer"], "must be 1 to 40 of the characters"),
        (vec!["create", "admin", "--role", "viewer"], "the holder of the shared token"),
        (vec!["revoke", "bob"], "there is no operator bob"),
    ] {
        let error = refused(&args);
        assert!(error.contains(expected), "{args:?}: {error}");
    }
    for _ in 0..2 {
        assert!(sandbox.beside(&["operator", "revoke", "alice"]).starts_with("alice is revoked"));
    }
    assert_eq!(status(&token).await, StatusCode::UNAUTHORIZED, "at once");
    assert!(sandbox.beside(&["operator", "list"]).contains("revoked 2"));
    let audit = sandbox.beside(&["audit", "--subject", "alice", "--json"]);
    let actions = ["operator.created", "operator.revoked"];
    assert!(audit.lines().count() == 2 && actions.iter().all(|action| audit.contains(action)), "{audit}");
}

#[tokio::test]
async fn pauses_and_wallets_set_by_the_cli_survive_a_restart() {
    let home = Home::new().await;
    let sandbox = Running::start(&home);
    let merchant = sandbox.merchant().await;
    let body = json!({"merchant_id": merchant, "amount": "10", "currency": "USDC", "chain": "base"});
    let initiate = async |sandbox: &Running| {
        let (status, answer) = sandbox.call(Method::POST, "/payments/initiate", Some(body.clone())).await;
        (status.as_u16(), answer["code"].as_str().unwrap_or_default().to_owned())
    };
    let until_answered = async |sandbox: &Running, status: u16| {
        until("it is answered so", async || Some(initiate(sandbox).await).filter(|answer| answer.0 == status)).await.1
    };
    assert_eq!(sandbox.beside(&["pause", "list"]), "nothing is paused");
    let paused = sandbox.beside(&["pause", "set", "chain:base", "--reason", "to see"]);
    assert!(paused.starts_with("chain:base is paused since "), "{paused}");
    assert!(sandbox.beside(&["pause", "list"]).ends_with("to see"));
    assert_eq!(until_answered(&sandbox, 503).await, "chain_paused");
    let metrics =
        reqwest::get(format!("{}/metrics", sandbox.text("operator_url"))).await.unwrap().text().await.unwrap();
    assert!(metrics.contains("payferry_paused{scope=\"chain\"} 1"), "{metrics}");

    sandbox.stop();
    let sandbox = Running::start(&home);
    assert_eq!(initiate(&sandbox).await, (503, "chain_paused".to_owned()), "it survives a restart");
    assert!(sandbox.beside(&["pause", "lift", "chain:base"]).starts_with("chain:base is resumed"));
    assert_eq!(sandbox.beside(&["pause", "lift", "chain:base"]), "chain:base was not paused");
    until_answered(&sandbox, 201).await;
    for bad in [["chain:doge", "x"], ["sending", " "]] {
        let refused = run(&["pause", "set", bad[0], "--reason", bad[1]]);
        assert_eq!(refused.status.code(), Some(2), "{}", complaint(&refused));
    }

    let psp = sandbox.text("psp_id").to_owned();
    let wallet = "0x833589fCD6eDb6E08f4c7C32D4f71b54bdA02913";
    let set = sandbox.beside(&["psp", "set", &psp, "--withdrawal-wallet", wallet]);
    assert!(set.contains(&format!("withdraws on all to {wallet}, effective from ")), "{set}");
    let settings = sandbox.ok(Method::GET, "/api/v1/settings", None).await;
    assert_eq!(settings["settings"]["withdrawal_wallets"][0]["address"], wallet);
    for bad in [format!("0x{}", "0".repeat(40)), sandbox_treasury()] {
        let args =
            [&["psp", "set", &psp, "--withdrawal-wallet", &bad, "--fee-bps", "7"], home.args().as_slice()].concat();
        assert_eq!(run(&args).status.code(), Some(1), "{bad}");
    }
    let settings = sandbox.ok(Method::GET, "/api/v1/settings", None).await;
    assert_eq!(settings["settings"]["fee_bps"], 100, "nothing was changed");
}

/// Treasury of the sandbox.
fn sandbox_treasury() -> String {
    payferry::sandbox::known_spec(payferry_domain::Chain::Base).treasury.to_string()
}

#[tokio::test]
async fn cli_creates_and_revokes_keys_of_a_running_sandbox() {
    let home = Home::new().await;
    let mut sandbox = Running::start(&home);
    let psp = sandbox.text("psp_id").to_owned();
    let key = sandbox.beside(&["key", "create", "--psp", &psp, "--scope", "read", "--expires", "never"]);
    assert!(key.starts_with("sk_test_"), "{key}");
    sandbox.ready["api_key"] = key.into();
    sandbox.ok(Method::GET, "/merchants", None).await;
    let (status, problem) = sandbox.call(Method::POST, "/sandbox/clock/advance", None).await;
    assert_eq!((status, problem["code"].as_str()), (StatusCode::FORBIDDEN, Some("missing_scope")));
    let listed = sandbox.beside(&["key", "list"]);
    let line = listed.lines().find(|line| line.contains("[\"read\"]")).unwrap();
    sandbox.beside(&["key", "revoke", line.split_whitespace().next().unwrap()]);
    let refused = async || {
        let (status, problem) = sandbox.call(Method::GET, "/merchants", None).await;
        (status == StatusCode::UNAUTHORIZED).then_some(problem)
    };
    assert_eq!(until("the key is refused", refused).await["code"], "api_key_revoked");
    let elsewhere = tempfile::tempdir().unwrap();
    let refused = run(&["psp", "list", "--data-dir", elsewhere.path().to_str().unwrap()]);
    assert!(complaint(&refused).contains("there is no sandbox in"), "{}", complaint(&refused));
}

#[tokio::test]
async fn audit_entries_of_commands_name_the_user_of_the_machine() {
    let database = TestDatabase::empty().await;
    let file = database.file();
    let url = file.as_deref().map_or(database.url(), |file| file.to_str().unwrap());
    run(&["migrate", "--database-url", url]);
    for (user, named) in [("alice", "cli:alice"), ("", "cli"), ("a b\n", "cli:ab")] {
        let mut create = payferry();
        create.env("USER", user).args(["psp", "create", "--name", "Northern Pay", "--database-url", url]);
        let psp = printed(&create.output().unwrap());
        let listed = printed(&run(&["audit", "--subject", &psp, "--json", "--database-url", url]));
        let entry: serde_json::Value = serde_json::from_str(listed.lines().next().unwrap()).unwrap();
        assert_eq!((&entry["actor_kind"], &entry["actor"]), (&json!("operator"), &json!(named)));
        assert_eq!((&entry["request_id"], &entry["address"]), (&json!(null), &json!(null)));
    }
}
