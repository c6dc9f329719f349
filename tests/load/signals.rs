//! Interruptions: a load tester never leaves a sandbox behind.

use std::io::{BufRead, BufReader, Read};
use std::process::{Child, Command, Stdio};

use payferry_entities::{Database, payments};
use sea_orm::{EntityTrait, PaginatorTrait};
use serde_json::{Value, json};
use tempfile::TempDir;

use crate::call::{assert_has, until};
use crate::process::payferry;

/// Payments that are made before the interruption.
const MADE_BEFORE: u64 = 20;

/// Starts a long load with its own sandbox, and a database in this folder.
async fn start(folder: &TempDir) -> (Child, u32) {
    let mut load = payferry();
    load.args(["load", "--rate", "50/s", "--payments", "100000", "--block-time-ms", "100", "--json"]);
    load.arg("--database-url").arg(folder.path().join("own.db"));
    let load = load.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let sandbox = until("it has started a sandbox", async || child_of(load.id())).await;
    (load, sandbox)
}

/// Waits until payments are under way. Drains standard error.
async fn under_way(load: &mut Child, folder: &TempDir) {
    let mut lines = BufReader::new(load.stderr.take().unwrap()).lines().map_while(Result::ok);
    assert!(lines.any(|line| line.contains("start payments")), "it ended before payments arrived");
    std::thread::spawn(move || lines.for_each(drop));
    let database = Database::open(&format!("sqlite://{}/own.db", folder.path().display())).await.unwrap();
    let made = async || payments::Entity::find().count(database.reader()).await.ok();
    until("payments are under way", async || made().await.filter(|made| *made >= MADE_BEFORE)).await;
}

fn child_of(parent: u32) -> Option<u32> {
    let processes = std::fs::read_dir("/proc").unwrap().flatten();
    let mut ids = processes.filter_map(|entry| entry.file_name().to_str()?.parse::<u32>().ok());
    ids.find(|pid| parent_of(*pid) == Some(parent))
}

fn parent_of(pid: u32) -> Option<u32> {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    stat.rsplit_once(')')?.1.split_whitespace().nth(1)?.parse().ok()
}

/// Returns true if a process runs. A zombie does not.
fn runs(pid: u32) -> bool {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat"));
    stat.is_ok_and(|stat| !stat.rsplit_once(')').is_some_and(|(_, rest)| rest.trim_start().starts_with('Z')))
}

/// Parses the printed report.
fn printed(load: &mut Child) -> Value {
    let mut printed = String::new();
    load.stdout.take().unwrap().read_to_string(&mut printed).unwrap();
    serde_json::from_str(&printed).unwrap()
}

#[tokio::test]
async fn ctrl_c_prints_a_report() {
    let folder = tempfile::tempdir().unwrap();
    let (mut load, sandbox) = start(&folder).await;
    under_way(&mut load, &folder).await;
    assert!(Command::new("kill").args(["-INT", &load.id().to_string()]).status().unwrap().success());
    let status = until("it has ended", async || load.try_wait().unwrap()).await;
    assert_eq!(status.code(), Some(130));
    let report = printed(&mut load);
    assert_has(&report, json!({ "interrupted": true, "audited": false }));
    assert!(report["counted"]["accepted"].as_u64().unwrap() > 0, "{:#}", report["counted"]);
    assert!(report["counted"]["due"].as_u64().unwrap() < 100_000);
    assert!(!runs(sandbox), "the sandbox was stopped");
}

#[tokio::test]
async fn a_sandbox_ends_if_the_load_tester_is_killed() {
    let folder = tempfile::tempdir().unwrap();
    let (mut load, sandbox) = start(&folder).await;
    load.kill().unwrap();
    load.wait().unwrap();
    until("the sandbox has ended", async || (!runs(sandbox)).then_some(())).await;
}

#[tokio::test]
async fn reports_a_service_that_ends_under_load() {
    let folder = tempfile::tempdir().unwrap();
    let (mut load, sandbox) = start(&folder).await;
    under_way(&mut load, &folder).await;
    assert!(Command::new("kill").args(["-KILL", &sandbox.to_string()]).status().unwrap().success());
    let status = until("it has ended", async || load.try_wait().unwrap()).await;
    assert_eq!(status.code(), Some(1));
    let report = printed(&mut load);
    assert_has(&report, json!({ "interrupted": false, "audited": false }));
    let found = report["findings"].as_array().unwrap();
    let says = |words: &str| found.iter().any(|finding| finding["found"].as_str().unwrap().contains(words));
    assert!(says("the service ended under load"), "{found:#?}");
    assert!(report["counted"]["accepted"].as_u64().unwrap() > 0, "{:#}", report["counted"]);
}
