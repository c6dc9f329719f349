//! A service whose settler signs remotely.

use payferry_domain::{Chain, Token};
use payferry_harness::payers::{Payer, Payers};
use payferry_harness::psp::Psp;
use payferry_harness::receiver::Receiver;
use payferry_harness::signer::RemoteSigner;
use payferry_harness::{PATIENCE, eventually};
use serde_json::Value;

use super::serve::{Outside, binary};

/// The reason why the settler of the first chain is delayed, as the operator sees it.
async fn trouble(url: &str, token: &str) -> Value {
    let request = reqwest::Client::new().get(format!("{url}/ops/overview")).bearer_auth(token);
    let overview: Value = request.send().await.unwrap().json().await.unwrap();
    overview["chains"][0]["settler"]["trouble"].clone()
}

#[tokio::test(flavor = "multi_thread")]
async fn settles_again_after_the_signer_was_down() {
    let mut outside = Outside::with(&[Chain::Base]).await;
    let server = RemoteSigner::start(outside.accounts.settler.signer().clone(), outside.folder.path()).await;
    outside.folder.settings["signer"]["settler"] = server.settings().into();
    outside.folder.write();
    // The deployment, too, is signed remotely.
    let admin = outside.accounts.admin.address().to_string();
    let printed: toml::Table = binary().run(&outside.folder, &["deploy", "--admin", &admin]).parse().unwrap();
    assert!(server.signed() > 0);
    outside.folder.settings["contracts"]["address"] = printed["contracts"]["address"].clone();
    outside.folder.write();
    outside.chains[0].contract = printed["contracts"]["address"].as_str().unwrap().parse().unwrap();
    outside.chains[0].grant(&outside.accounts).await;

    let line_of = |what: &str| {
        let (lines, code) = outside.check();
        let line = lines.iter().find(|line| line.0 == what).unwrap_or_else(|| panic!("{lines:#?}")).clone();
        (line.1, line.2, code)
    };
    let host = format!("localhost:{}", server.url().port().unwrap());
    let (_, kinds, _) = line_of("service: signers");
    assert!(kinds.contains("(remote signer), sender 0x") && kinds.ends_with("(key file)"), "{kinds}");
    let expected = ("ok".to_owned(), format!("{host} responds and has the key"), Some(0));
    assert_eq!(line_of("service: settler's signer"), expected);
    assert_eq!(line_of("base: USDC EIP-3009").1, r#"yes (name "USD Coin", version "2")"#);
    assert_eq!(line_of("base: USDT EIP-3009").1, "no: the token has no `authorizationState`");

    let (_, key) = binary().make_psp(&outside.folder, "Northern Pay");
    let (served, receiver) = (binary().serve(&outside.folder), Receiver::start().await);
    let psp = Psp::connect(served.api_url(), &key, &receiver).await;
    let payers = Payers::new(&outside.chains[0], &outside.accounts);
    let pay = async |key: &str| {
        let order = psp.initiation("10", Token::Usdc, "base");
        let (made, _) = psp.post_until_accepted("/payments/initiate", &order, key, PATIENCE).await.unwrap();
        let wallet = made["intermediary_wallet"].as_str().unwrap().parse().unwrap();
        payers.transfer(Payer::Clean, Token::Usdc, wallet, 10_000_000).await;
        made["payment_id"].as_str().unwrap().to_owned()
    };
    let before = server.signed();
    psp.until_status(&pay("first").await, "settled").await;
    assert!(server.signed() > before);

    // Without the signer, the operation stays queued, and the operator sees the cause.
    server.shut_down();
    let id = pay("second").await;
    psp.until_status(&id, "confirmed").await;
    let cause = async || {
        let found = trouble(served.operator_url(), &outside.folder.operator_token).await;
        if found.as_str().is_some_and(|text| text.contains(&host)) { Ok(()) } else { Err(found) }
    };
    eventually("the cause is shown", cause).await;
    let (grade, detail, code) = line_of("service: settler's signer");
    assert_eq!((grade.as_str(), code), ("wrong", Some(1)));
    assert!(detail.starts_with(&format!("remote signer {host}: cannot be reached: ")), "{detail}");

    server.listen_again().await;
    psp.until_status(&id, "settled").await;
    let over = async || {
        let found = trouble(served.operator_url(), &outside.folder.operator_token).await;
        if found.is_null() { Ok(()) } else { Err(found) }
    };
    eventually("nothing is shown", over).await;
    served.stop();
}
