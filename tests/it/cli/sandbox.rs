//! `payferry sandbox` as a process: ready, stopped, restarted, killed.

use std::io::Read;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use reqwest::{Method, StatusCode};
use serde_json::{Value, json};

use super::controls::NOBODY;
use super::{Home, Running, complaint, payferry, run};

use crate::call::{assert_has, until};

#[tokio::test]
async fn ready_line_has_working_urls_and_keys() {
    let home = Home::new().await;
    std::fs::write(home.path().join("notes.txt"), "mine").unwrap();
    let sandbox = Running::start(&home);
    let ready = sandbox.ready.as_object().unwrap();
    let mut keys: Vec<_> = ready.keys().map(String::as_str).collect();
    keys.sort_unstable();
    assert_eq!(keys, ["api_key", "api_url", "operator_token", "operator_url", "pid", "psp_id", "rpc"]);
    assert_eq!(sandbox.ready["pid"], sandbox.process.id());

    let facts = sandbox.ok(Method::GET, "/sandbox", None).await;
    assert_eq!(facts["psp_id"], sandbox.ready["psp_id"]);
    let http = reqwest::Client::new();
    for (chain, id) in [("base", 7_700_008_453_u64), ("polygon", 7_700_000_137), ("arbitrum", 7_700_042_161)] {
        let call = json!({"jsonrpc": "2.0", "id": 1, "method": "eth_chainId", "params": []});
        let url = sandbox.ready["rpc"][chain].as_str().unwrap();
        let answer: Value = http.post(url).json(&call).send().await.unwrap().json().await.unwrap();
        assert_eq!(answer["result"], format!("{id:#x}"), "{answer}");
        assert_eq!(facts["chains"][chain]["chain_id"], id);
        assert_eq!(facts["chains"][chain]["rpc_url"], url);
    }
    let operator = sandbox.text("operator_url");
    assert_eq!(http.get(format!("{operator}/healthz")).send().await.unwrap().status(), StatusCode::OK);
    let is_ready = async || {
        let status = http.get(format!("{operator}/readyz")).send().await.unwrap().status();
        (status == StatusCode::OK).then_some(())
    };
    until("every chain is read", is_ready).await;
    let actors = format!("{operator}/ops/actors");
    assert_eq!(http.get(&actors).send().await.unwrap().status(), StatusCode::UNAUTHORIZED);
    let wrong = http.get(&actors).bearer_auth(sandbox.text("api_key")).send().await.unwrap();
    assert_eq!(wrong.status(), StatusCode::UNAUTHORIZED);
    let (_, view) = sandbox.operator(Method::GET, "/ops/actors", None).await;
    assert_eq!(view["ready"], true);
    sandbox.stop();
    assert_eq!(std::fs::read_to_string(home.path().join("notes.txt")).unwrap(), "mine");
}

#[tokio::test]
async fn folder_survives_a_stop_and_a_kill() {
    let home = Home::new().await;
    let first = Running::start(&home);
    let merchant = first.merchant().await;
    let payment = first.settled_payment().await;
    let before = payment["payment_id"].as_str().unwrap();
    let moved = first.ok(Method::POST, "/sandbox/clock/advance", Some(json!({"seconds": 7_200}))).await;
    assert_eq!(moved["offset_seconds"], 7_200);
    let facts = first.ok(Method::GET, "/sandbox", None).await;
    let kept = |ready: &Value| [ready["psp_id"].clone(), ready["api_key"].clone(), ready["operator_token"].clone()];
    let (keys, head) = (kept(&first.ready), facts["chains"]["base"]["head"].clone());

    let refused = run(&["sandbox", "--data-dir", home.path().to_str().unwrap(), "--listen", "127.0.0.1:0"]);
    assert_eq!(refused.status.code(), Some(1));
    assert!(complaint(&refused).contains("in use by another process"), "{}", complaint(&refused));
    first.stop();

    for end in [Running::kill as fn(Running), Running::stop] {
        let again = Running::start(&home);
        assert_eq!(kept(&again.ready), keys);
        let facts = again.ok(Method::GET, "/sandbox", None).await;
        assert_eq!(facts["clock"]["offset_seconds"], 7_200);
        let number = head["number"].as_u64().unwrap();
        assert!(facts["chains"]["base"]["head"]["number"].as_u64().unwrap() >= number);
        let block = json!({
            "jsonrpc": "2.0", "id": 1, "method": "eth_getBlockByNumber", "params": [format!("{number:#x}"), false],
        });
        let block = again.ok(Method::POST, "/sandbox/rpc/base", Some(block)).await;
        assert_eq!(block["result"]["hash"], head["hash"], "the chain is the same");
        let merchants = again.ok(Method::GET, "/merchants", None).await;
        assert_eq!(merchants["merchants"][0]["merchant_id"], *merchant);
        let read = again.ok(Method::GET, &format!("/payments/{before}"), None).await;
        assert_has(&read, json!({ "status": "settled", "amount_received": "10.00" }));
        end(again);
    }
}

#[tokio::test]
async fn payment_made_just_before_a_kill_settles_after_it() {
    let home = Home::new().await;
    let first = Running::start(&home);
    let id = first.payment().await;
    first.pay(&id).await;
    first.kill();
    let again = Running::start(&home);
    let settled = again.until_settled(&id).await;
    assert_eq!(settled["amount_received"], "10.00");
    assert_eq!(settled["transfers"].as_array().unwrap().len(), 1);
}

#[test]
fn database_without_its_keys_is_not_opened() {
    let home = Home::embedded();
    Running::start(&home).stop();
    std::fs::remove_file(home.path().join("keys.json")).unwrap();
    let refused = run(&["sandbox", "--data-dir", home.path().to_str().unwrap(), "--listen", "127.0.0.1:0"]);
    assert!(complaint(&refused).contains("has a database but no keys.json"), "{}", complaint(&refused));
}

#[test]
fn ephemeral_sandbox_leaves_no_files_and_a_used_port_is_named() {
    let temp = tempfile::tempdir().unwrap();
    let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = taken.local_addr().unwrap().to_string();
    let ephemeral = || {
        let mut command = payferry();
        command.args(["sandbox", "--ephemeral", "--operator-listen", "127.0.0.1:0"]).env("TMPDIR", temp.path());
        command
    };
    let refused = ephemeral().args(["--listen", &address]).output().unwrap();
    assert!(complaint(&refused).contains(&format!("cannot listen on {address}")), "{}", complaint(&refused));

    let mut child = ephemeral().args(["--listen", "127.0.0.1:0"]).stdout(Stdio::piped()).spawn().unwrap();
    let mut said = String::new();
    let mut out = child.stdout.take().unwrap();
    while !said.contains("Stop with ctrl-c") {
        let mut some = [0; 4_096];
        let read = out.read(&mut some).unwrap();
        assert!(read > 0, "ended early: {said}");
        said.push_str(&String::from_utf8_lossy(&some[..read]));
    }
    assert!(said.contains("curl http://127.0.0.1:") && said.contains("removed at exit"), "{said}");
    assert_eq!(std::fs::read_dir(temp.path()).unwrap().count(), 1);
    Command::new("kill").args(["-INT", &child.id().to_string()]).status().unwrap();
    let since = Instant::now();
    while child.try_wait().unwrap().is_none() {
        assert!(since.elapsed() < payferry_harness::process::STOP_PATIENCE, "did not stop in time");
        std::thread::sleep(Duration::from_millis(20));
    }
    assert!(child.wait().unwrap().success());
    assert_eq!(std::fs::read_dir(temp.path()).unwrap().count(), 0, "the temporary folder is removed");
}

#[tokio::test]
async fn invalid_controls_are_refused_and_block_answers_contain_their_duration() {
    let sandbox = Running::new().await;
    for (path, body, field) in [
        ("/sandbox/clock/advance", json!({"seconds": -1}), "seconds"),
        ("/sandbox/clock/advance", json!({"seconds": 1e12}), "seconds"),
        ("/sandbox/clock/advance", json!({}), "seconds"),
        ("/sandbox/faucet", json!({"address": NOBODY}), "chain"),
        ("/sandbox/faucet", json!({"chain": "base", "address": "0x1"}), "address"),
        ("/sandbox/faucet", json!({"chain": "base", "address": NOBODY, "amount": "1e9"}), "amount"),
        ("/sandbox/chains/base/reorg", json!({"depth": 1_000_000_000}), "depth"),
        ("/sandbox/chains/base/reorg", json!({"depth": 1, "dropped": "burn"}), "dropped"),
        ("/sandbox/chains/base/mine", json!({"blocks": 0}), "blocks"),
        ("/sandbox/chains/base/mining", json!({"paused": "yes"}), "paused"),
        ("/sandbox/chains/base/faults", json!({"latency": 1}), "faults"),
        ("/sandbox/chains/base/faults", json!({"error_rate": 2.0}), "error_rate"),
    ] {
        let (status, problem) = sandbox.call(Method::POST, path, Some(body.clone())).await;
        assert_eq!(status, StatusCode::UNPROCESSABLE_ENTITY, "{path} {body}: {problem:#}");
        assert_eq!(problem["errors"][0]["field"], field, "{path} {body}: {problem:#}");
    }
    let payment = "/sandbox/payments/pay_01J9Z3K4M5N6P7Q8R9S0T1V2W3/pay";
    for path in [payment, "/sandbox/payments/pay_1/pay", "/sandbox/chains/doge/mine"] {
        let (status, _) = sandbox.call(Method::POST, path, None).await;
        assert_eq!(status, StatusCode::NOT_FOUND, "{path}");
    }
    // The answer to a mined block contains its duration.
    let mine = reqwest::Client::new().post(format!("{}/sandbox/chains/base/mine", sandbox.text("api_url")));
    let mine = mine.bearer_auth(sandbox.text("api_key")).json(&json!({"blocks": 20}));
    let asked = Instant::now();
    let answer = mine.send().await.unwrap();
    let took = asked.elapsed().as_secs_f64() * 1_000.0;
    let timing = answer.headers()["server-timing"].to_str().unwrap();
    let millis: f64 = timing.strip_prefix("block;dur=").unwrap().parse().unwrap();
    assert!(0.0 < millis && millis < took, "{timing} of {took} ms");
    for dropped in ["remine", "discard"] {
        let reorg = json!({"depth": 1, "dropped": dropped});
        sandbox.ok(Method::POST, "/sandbox/chains/base/reorg", Some(reorg)).await;
    }
}
