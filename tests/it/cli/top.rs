//! `payferry top`, beside a running service.

use std::io::{Read as _, Write as _};
use std::process::{Command, Stdio};
use std::sync::{Arc, Mutex};

use payferry_harness::eventually;
use reqwest::Method;
use serde_json::json;

use super::{Running, complaint, payferry, printed};

/// The command for this service, with its token in a file of the folder.
fn top(service: &Running, folder: &tempfile::TempDir) -> Command {
    let token = folder.path().join("token");
    std::fs::write(&token, service.text("operator_token")).unwrap();
    let mut command = payferry();
    command.args(["top", "--url", service.text("operator_url"), "--token-file", token.to_str().unwrap()]);
    command
}

#[tokio::test]
async fn every_screen_is_printed_once() {
    let service = Running::new().await;
    let folder = tempfile::tempdir().unwrap();
    let payment = service.payment().await;
    service.ok(Method::POST, &format!("/sandbox/payments/{payment}/panic"), Some(json!({ "times": 10 }))).await;
    let printed_by =
        |screen: &str| printed(&top(&service, &folder).args(["--once", "--screen", screen]).output().unwrap());
    eventually("the payment is quarantined", async || {
        let shown = printed_by("attention");
        if shown.contains(&payment) && shown.contains("quarantined") { Ok(()) } else { Err(shown) }
    })
    .await;
    for (screen, wanted) in [
        (
            "overview",
            vec![
                "webhooks retrying            0",
                "Chains",
                "polygon",
                "Payments",
                "pending",
                "journal writes",
                "1 need attention",
            ],
        ),
        ("attention", vec!["Needs attention: 1", "on purpose"]),
        ("actors", vec!["Actors by mailbox", "watcher base", "running"]),
        ("messages", vec!["outside", "payment", "messages"]),
        ("log", vec!["Supervision log", "quarantined", "actor.rs:"]),
    ] {
        let shown = printed_by(screen);
        for wanted in wanted {
            assert!(shown.contains(wanted), "{wanted} on the screen {screen}:\n{shown}");
        }
    }
}

#[tokio::test]
async fn errors_name_their_reason() {
    let service = Running::new().await;
    let folder = tempfile::tempdir().unwrap();
    let once = |command: &mut Command| command.arg("--once").output().unwrap();
    let wrong =
        once(payferry().args(["top", "--url", service.text("operator_url")]).env("PAYFERRY_OPERATOR_TOKEN", "op_x"));
    assert_eq!(wrong.status.code(), Some(1));
    assert!(String::from_utf8(wrong.stdout).unwrap().contains("the token is not valid"));
    let none = once(payferry().args(["top", "--url", service.text("operator_url")]));
    assert!(complaint(&none).contains("PAYFERRY_OPERATOR_TOKEN"), "{}", complaint(&none));
    let mut missing = payferry();
    let missing = missing.args(["top", "--url", "http://127.0.0.1:1"]).env("PAYFERRY_OPERATOR_TOKEN", "op_x");
    assert!(String::from_utf8(once(missing).stdout).unwrap().contains("the listener cannot be reached"));
    // Without a terminal, it must be asked to print.
    let piped = top(&service, &folder).output().unwrap();
    assert!(complaint(&piped).contains("--once"), "{}", complaint(&piped));
}

#[tokio::test]
async fn keys_select_screens_in_a_terminal() {
    let service = Running::new().await;
    let folder = tempfile::tempdir().unwrap();
    let command = top(&service, &folder);
    let words = std::iter::once(command.get_program()).chain(command.get_args());
    let line = words.map(|word| word.to_str().unwrap()).collect::<Vec<_>>().join(" ");
    let line = format!("stty rows 40 cols 140; exec {line}");
    let mut terminal = Command::new("script")
        .args(["--quiet", "--return", "--flush", "--command", &line, "/dev/null"])
        .env("TERM", "xterm")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut keys = terminal.stdin.take().unwrap();
    let mut output = terminal.stdout.take().unwrap();
    let shown = Arc::new(Mutex::new(String::new()));
    let seen = Arc::clone(&shown);
    std::thread::spawn(move || {
        let mut bytes = [0; 4096];
        while let Ok(count @ 1..) = output.read(&mut bytes) {
            seen.lock().unwrap().push_str(&String::from_utf8_lossy(&bytes[..count]));
        }
    });
    let until = async |wanted: &str| {
        eventually("the screen is shown", async || {
            let shown = shown.lock().unwrap();
            if shown.contains(wanted) { Ok(()) } else { Err(shown.clone()) }
        })
        .await;
    };
    until("polygon").await;
    keys.write_all(b"3").unwrap();
    until("watcher").await;
    keys.write_all(b"q").unwrap();
    let status = terminal.wait().unwrap();
    assert!(status.success(), "{status}");
    // It leaves the alternate screen.
    until("\u{1b}[?1049l").await;
}
