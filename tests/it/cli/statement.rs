//! `payferry statement` while a sandbox runs.

use chrono::{Days, Utc};
use reqwest::Method;
use serde_json::{Value, json};

use super::{Running, complaint, printed, run};

use crate::call::assert_has;

#[tokio::test]
async fn statement_is_written_while_the_service_runs() {
    let sandbox = Running::new().await;
    let payment = sandbox.settled_payment().await;
    let id = payment["payment_id"].as_str().unwrap();
    let psp = sandbox.text("psp_id").to_owned();
    let day = |ahead: u64| Utc::now().date_naive().checked_add_days(Days::new(ahead)).unwrap().to_string();
    let (today, tomorrow) = (day(0), day(1));
    let whose = ["statement", "--psp", psp.as_str()];
    let write = |more: &[&str]| run(&[whose.as_slice(), more, &sandbox.home.args()].concat());
    let from = ["--from", today.as_str(), "--to", tomorrow.as_str()];

    let text = printed(&write(&from));
    let lines: Vec<&str> = text.lines().collect();
    assert!(lines[0].starts_with("row,chain,currency,token_address,at,"), "{text}");
    let entries: Vec<&&str> = lines.iter().filter(|line| line.starts_with("entry,")).collect();
    assert_eq!(entries.len(), 1, "{text}");
    assert!(entries[0].contains(id) && entries[0].contains(",9.90,9.90"), "{text}");
    assert_eq!(lines.iter().filter(|line| line.starts_with("closing,")).count(), 6, "two tokens on three chains");

    let file = sandbox.home.path().join("statement.json");
    let narrow = ["--chain", "base", "--currency", "USDC", "--format", "json", "--output", file.to_str().unwrap()];
    assert_eq!(printed(&write(&[from.as_slice(), &narrow].concat())), "", "it is in the file");
    let written: Value = serde_json::from_slice(&std::fs::read(&file).unwrap()).unwrap();
    assert_eq!(written["psp_id"], psp.as_str());
    let accounts = written["accounts"].as_array().unwrap();
    assert_eq!(accounts.len(), 1);
    assert_has(&accounts[0], json!({ "closing_balance": "9.90", "totals/0/credit": "9.90" }));
    let path = format!("/ledger/statement?from={today}&to={tomorrow}&chain=base&currency=USDC");
    assert_eq!(sandbox.ok(Method::GET, &path, None).await, written, "the same as over HTTP");

    let refused = write(&["--from", &tomorrow, "--to", &today]);
    assert_eq!((refused.status.code(), complaint(&refused).as_str()), (Some(1), "error: --to must be after --from"));
    assert_eq!(write(&["--from", "soon", "--to", &today]).status.code(), Some(2));
    let stranger = ["statement", "--psp", "psp_01J9Z3K4M5N6P7Q8R9S0T1V2W3"];
    let refused = run(&[stranger.as_slice(), &from, &sandbox.home.args()].concat());
    assert!(complaint(&refused).contains("there is no PSP psp_01J9Z3K4M5N6P7Q8R9S0T1V2W3"), "{}", complaint(&refused));
}
