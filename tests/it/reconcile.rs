//! Reconciliation of vaults, treasury and ledger, and rereads for missed transfers.

use std::time::Duration;

use payferry::sandbox::Payer;
use payferry_actors::chain::{RereadError, reread};
use payferry_actors::reconcile::watch::VaultsView;
use payferry_actors::reconcile::{Difference, Options, Owner, ReconcileReport, reconcile};
use payferry_domain::Address;
use payferry_entities::{balances, chain_cursors, deposits, ledger_postings};
use payferry_evm::wallet::Vaults;
use payferry_evm::{ChainClient, ChainSpec};
use payferry_runtime::clock::Clock;

use crate::operator::walks::{alarm, until_calm};
use crate::prelude::*;

fn chains(app: &TestApp) -> Vec<(ChainSpec, ChainClient)> {
    app.env().setups().unwrap().into_iter().map(|setup| (setup.spec, setup.client)).collect()
}

async fn report(app: &TestApp) -> ReconcileReport {
    let options = Options { thorough: true, pause: Duration::from_millis(500), ..Options::default() };
    reconcile(app.state.database(), &chains(app), &Clock::default(), options, |_| {}).await.unwrap()
}

/// Sends USDC on Base that no payment expects.
async fn send(app: &TestApp, to: Address, amount: &str) {
    let chain = app.env().chain(Chain::Base);
    chain.transfer(Payer::Clean, Token::Usdc, to, amount.parse().unwrap()).await.unwrap();
    chain.devchain().mine(1).await.unwrap();
}

/// Waits until this many transfers from outside to vaults of PSPs are posted.
async fn until_deposits_are_posted(app: &TestApp, count: usize) {
    let chain = app.env().chain(Chain::Base).devchain();
    let posted = async || {
        chain.mine(1).await.unwrap();
        let rows = deposits::Entity::find().all(app.reader()).await.unwrap();
        (rows.len() == count && rows.iter().all(|row| row.posted)).then_some(())
    };
    until("the deposits are posted", posted).await;
}

/// Waits until the background run reports one difference.
async fn until_found(app: &TestApp) -> VaultsView {
    let found = async || Some(app.state.system.vaults()).filter(|view| view.differences.len() == 1);
    until("the difference is found", found).await
}

/// Creates a cancelled payment on Base with a missed transfer: its wallet was unknown when it was paid and when its
/// block was rescanned. Also returns the last block by then, far above the transfer's.
async fn missed(app: &TestApp, spec: &ChainSpec) -> (Reply, u64) {
    let late = app.add_payment().await;
    app.post(&format!("/payments/{}/cancel", late.id()), &serde_json::json!({})).await;
    let wallet = late.wallet().to_lowercase();
    let rename = async |wallet: &str| {
        let sql = format!("UPDATE payments SET wallet = '{wallet}' WHERE id = '{}'", late.id());
        app.writer().execute_unprepared(&sql).await.unwrap();
    };
    let gone = async || app.state.system.observe_payment(late.id().parse().unwrap()).await.is_none().then_some(());
    until("the actor has left", gone).await;
    app.state.system.retire_wallets().await.unwrap();
    rename("0x00000000000000000000000000000000000000aa").await;
    app.pay(&late, "10").await;
    let chain = app.env().chain(Chain::Base).devchain();
    let mined = chain.mine(2 * spec.second_look_blocks + 64).await.unwrap().last().unwrap().number;
    let passed = async || {
        let cursor = chain_cursors::Entity::find_by_id("base").one(app.reader()).await.unwrap().unwrap();
        (cursor.second_look_from > i64::try_from(mined - spec.second_look_blocks - 32).unwrap()).then_some(())
    };
    until("its block was rescanned", passed).await;
    rename(&wallet).await;
    (late, mined)
}

#[tokio::test]
async fn report_is_clean_or_names_the_owner_of_a_difference() {
    let app = TestApp::start_with_chains().await;
    let (settled, short) = (app.add_payment().await, app.add_payment().await);
    app.pay(&settled, "10").await;
    app.pay(&short, "4").await;
    app.payment_when(&settled, "settled").await;
    app.payment_when(&short, "mismatched").await;
    let clean = report(&app).await;
    assert!(clean.is_clean(), "{clean:#?}");
    assert_eq!(clean.payments, 2);
    let sums = clean.sums["base USDC"];
    assert_eq!((sums.payments_ledger, sums.payments_on_chain), (4_000_000, 4_000_000));
    assert_eq!((sums.psps_ledger, sums.psps_on_chain), (9_900_000, 9_900_000));
    assert_eq!((sums.treasury_ledger, sums.treasury_on_chain), (100_000, 100_000));

    // A transfer directly to the PSP's vault is posted.
    let spec = app.env().chain(Chain::Base).spec().clone();
    let vault: Address = Vaults::new(spec.contract).of_psp(app.psp_id);
    send(&app, vault, "1").await;
    until_deposits_are_posted(&app, 1).await;
    let found = report(&app).await;
    assert!(found.is_clean(), "{found:#?}");
    let sums = found.sums["base USDC"];
    assert_eq!((sums.psps_ledger, sums.psps_on_chain), (10_900_000, 10_900_000));

    // One to the treasury is reported where the configuration says that nothing else moves its money.
    let treasury = spec.treasury;
    send(&app, treasury, "2").await;
    assert_eq!(report(&app).await.differences_total, 0);
    let options = Options { treasury_kept: true, pause: Duration::from_millis(100), ..Options::default() };
    let kept = reconcile(app.state.database(), &chains(&app), &Clock::default(), options, |_| {}).await.unwrap();
    let at_treasury = |difference: &&Difference| difference.place.owner == Owner::Treasury;
    let found: Vec<_> = kept.differences.iter().filter(at_treasury).map(|one| (one.ledger, one.on_chain)).collect();
    assert_eq!((kept.differences_total, found), (1, vec![(100_000, 2_100_000)]));
}

#[tokio::test]
async fn shortage_is_reported_with_its_sign() {
    let app = TestApp::start_with_chains().await;
    let spec = app.env().chain(Chain::Base).spec().clone();
    let (psp_id, token_address) = (app.psp_id.to_string(), spec.token_address(Token::Usdc).unwrap());
    let look = async |whole_ledger: bool| {
        let options = Options { whole_ledger, pause: Duration::from_millis(100), ..Options::default() };
        reconcile(app.state.database(), &chains(&app), &Clock::default(), options, |_| {}).await.unwrap()
    };
    let row = balances::Model {
        psp_id: psp_id.clone(),
        chain: "base".to_owned(),
        token_address: token_address.to_string(),
        available: 0,
        reserved: 0,
        updated_at: 0,
    };
    app.insert(row).await;
    assert!(look(true).await.is_clean() && look(false).await.is_clean());

    // An unposted balance: the postings agree with the empty vault and contradict the balance.
    app.writer().execute_unprepared("UPDATE balances SET available = available + 5").await.unwrap();
    let short = |report: &ReconcileReport| {
        let difference = &report.differences[0];
        assert_eq!(difference.place.owner, Owner::Psp { psp_id: psp_id.clone() });
        assert_eq!((report.differences_total, difference.ledger, difference.on_chain), (1, 5, 0), "{report:#?}");
        let words = difference.words(Some(Token::Usdc));
        assert!(words.ends_with("the ledger has 0.000005 USDC, the chain has 0.00"), "{words}");
    };
    let whole = look(true).await;
    assert_eq!((whole.differences_total, whole.unbalanced.len()), (0, 1), "{whole:#?}");
    assert_eq!((whole.unbalanced[0].posted, whole.unbalanced[0].balance), (0, 5));
    short(&look(false).await);

    // Posted, but missing on the chain.
    let posting = ledger_postings::Model {
        position: 1,
        subject: "x_1".to_owned(),
        version: 1,
        line: 0,
        psp_id: psp_id.clone(),
        kind: "settled".to_owned(),
        debit: "payment".to_owned(),
        credit: "psp".to_owned(),
        chain: "base".to_owned(),
        token_address: token_address.to_string(),
        amount: 5,
        reference: "0xhash".to_owned(),
        at: 0,
    };
    app.insert(posting).await;
    let whole = look(true).await;
    assert!(whole.unbalanced.is_empty() && !whole.is_clean(), "{whole:#?}");
    short(&whole);
}

#[tokio::test]
async fn missed_transfer_is_found_by_a_reread() {
    let app = TestApp::start_with_chains().await;
    app.paid("10", "settled").await;
    let (spec, client) = chains(&app).into_iter().find(|(spec, _)| spec.chain == Chain::Base).unwrap();
    let database = app.state.database();
    let read = async |to| reread(&spec, &client, database, &Clock::default(), (0, to), |_| {}).await;
    app.env().chain(Chain::Base).devchain().mine(20).await.unwrap();
    let view = async || {
        let view = app.state.system.chain_view(Chain::Base).unwrap();
        view.finalized.filter(|finalized| *finalized > 0).map(|finalized| (finalized, view.read_number))
    };
    let (last_final, head) = until("blocks are final", view).await;
    let again = read(last_final).await.unwrap();
    let counts = (again.blocks, again.recorded.len(), again.otherwise.len());
    assert_eq!(counts, (last_final + 1, 0, 0), "all transfers are known");
    let ahead = read(head + 1_000_000).await.unwrap_err();
    assert!(matches!(ahead, RereadError::Unread(_)), "unread blocks belong to the watcher: {ahead}");

    let (late, mined) = missed(&app, &spec).await;
    let unseen = app.get(&format!("/payments/{}", late.id())).await;
    assert_eq!((&unseen["status"], &unseen["transfers"]), (&"failed".into(), &serde_json::json!([])));
    let found = report(&app).await;
    assert_eq!(found.differences_total, 1, "{found:#?}");
    assert_eq!((found.differences[0].ledger, found.differences[0].on_chain), (0, 10_000_000));
    assert!(matches!(&found.differences[0].place.owner, Owner::Payment { payment_id, .. } if payment_id == late.id()));

    // The transfer is far below.
    let mined = mined - 32;
    let again = read(mined).await.unwrap();
    assert_eq!(again.recorded.iter().map(|row| row.payment_id.as_str()).collect::<Vec<_>>(), [late.id()]);
    let late = app.payment_when(&late, "mismatched").await;
    assert_eq!(late["labels"], serde_json::json!(["LATE"]));
    assert!(report(&app).await.is_clean());
    assert_eq!(read(mined).await.unwrap().recorded.len(), 0, "no transfer is recorded twice");
}

/// Configuration with constant reconciliation of the vaults.
fn looking() -> TestConfig {
    TestConfig { chains: true, vaults_interval: Some(Duration::from_millis(300)), ..TestConfig::default() }
}

#[tokio::test]
async fn background_run_reports_a_difference_until_resolved() {
    let service = ServiceFixture::over(TestApp::start_with(looking()).await).await;
    let app = &service.app;
    app.paid("10", "settled").await;
    let run = async || app.state.system.vaults().checked_at.map(|_| app.state.system.vaults());
    let clean = until("it has run", run).await;
    assert_eq!((clean.differences.len(), clean.unread.len()), (0, 0), "{clean:?}");

    app.writer().execute_unprepared("UPDATE balances SET available = available - 1000000").await.unwrap();
    let found = until_found(app).await;
    assert!(found.differences[0].since <= found.checked_at.unwrap());
    let listed = service.get("/ops/stuck?kind=vault_difference").await;
    insta::assert_json_snapshot!("vault_difference", listed.redacted());
    let item = &listed["kinds"][0]["items"][0];
    assert_has(item, json!({ "id": app.psp_id.to_string(), "psp_id": app.psp_id.to_string() }));
    let shown = async || {
        let metrics = service.get("/metrics").await;
        metrics.text().lines().any(|line| line == "payferry_reconcile_differences 1").then_some(())
    };
    until("the gauge shows it", shown).await;

    // The background check uses the running balances.
    app.writer().execute_unprepared("UPDATE balances SET available = available + 1000000").await.unwrap();
    let gone = async || app.state.system.vaults().differences.is_empty().then_some(());
    until("the difference has disappeared", gone).await;
}

#[tokio::test]
async fn one_base_unit_sent_to_a_psp_does_not_hide_a_difference() {
    let service = ServiceFixture::over(TestApp::start_with(looking()).await).await;
    let app = &service.app;
    app.paid("10", "settled").await;
    let spec = app.env().chain(Chain::Base).spec().clone();
    let vault: Address = Vaults::new(spec.contract).of_psp(app.psp_id);
    send(app, vault, "0.000001").await;
    until_deposits_are_posted(app, 1).await;
    let mut clean = app.state.system.vaults();
    // The first one may have begun before the posting.
    for _ in 0..2 {
        let since = clean.checked_at;
        let view = async || Some(app.state.system.vaults()).filter(|view| view.checked_at > since);
        clean = until("a run has completed", view).await;
    }
    assert!(clean.differences.is_empty(), "{clean:?}");
    // It is on no account of the PSP.
    let ledger = app.get("/ledger/entries?limit=10").await;
    let posting =
        json!({ "entries/3/kind": "deposited", "entries/3/credit": "suspense", "entries/3/amount": "0.000001" });
    assert_has(&ledger, posting);
    app.get("/balances").await.assert(200, json!({ "balances/0/available": "9.90" }));

    app.writer().execute_unprepared("UPDATE balances SET available = available + 5").await.unwrap();
    let found = until_found(app).await;
    let difference = &found.differences[0].difference;
    assert_eq!((difference.ledger, difference.on_chain), (9_900_006, 9_900_001));
}

#[tokio::test]
async fn background_run_names_the_payment_of_a_missed_transfer() {
    let service = ServiceFixture::over(TestApp::start_with(looking()).await).await;
    let app = &service.app;
    let spec = app.env().chain(Chain::Base).spec().clone();
    let (late, mined) = missed(app, &spec).await;
    let is_raised = async || !app.state.system.vaults().differences.is_empty();
    let entry = alarm(&service, "vault_difference", is_raised).await;
    entry.says(&[late.id(), "the ledger has 0.00 USDC, the chain has 10.00", "read the blocks again"]);
    entry.runbook(&["payferry reconcile --chain base --from-block N --to-block M"]).await;
    let listed = service.get("/ops/stuck?kind=vault_difference").await;
    let item = &listed["kinds"][0]["items"][0];
    assert_has(item, json!({ "payment_id": late.id(), "psp_id": app.psp_id.to_string() }));
    // As the command does.
    let (_, client) = chains(app).into_iter().find(|(spec, _)| spec.chain == Chain::Base).unwrap();
    reread(&spec, &client, app.state.database(), &Clock::default(), (0, mined - 32), |_| {}).await.unwrap();
    until_calm(&service).await;
    app.payment_when(&late, "mismatched").await;
}

#[tokio::test]
async fn background_run_includes_the_treasury_if_configured() {
    for treasury_kept in [true, false] {
        let service = ServiceFixture::over(TestApp::start_with(TestConfig { treasury_kept, ..looking() }).await).await;
        let app = &service.app;
        app.paid("10", "settled").await;
        let looked = async |since: Option<Timestamp>| {
            let view = async || Some(app.state.system.vaults()).filter(|view| view.checked_at > since);
            until("a run has completed", view).await
        };
        let clean = looked(None).await;
        assert!(clean.differences.is_empty() && clean.unread.is_empty(), "{clean:?}");

        let spec = app.env().chain(Chain::Base).spec().clone();
        send(app, spec.treasury, "2").await;
        if !treasury_kept {
            // The run in progress, and a complete one.
            let next = looked(clean.checked_at).await;
            let after = looked(next.checked_at).await;
            assert!(after.differences.is_empty(), "the operator may move it: {after:?}");
            service.stop().await;
            continue;
        }
        let found = until_found(app).await;
        let difference = &found.differences[0].difference;
        assert_eq!(difference.place.owner, Owner::Treasury);
        assert_eq!((difference.ledger, difference.on_chain), (100_000, 2_100_000));
        let listed = service.get("/ops/stuck?kind=vault_difference").await;
        let item = &listed["kinds"][0]["items"][0];
        assert_eq!((&item["id"], &item["psp_id"]), (&"treasury".into(), &serde_json::Value::Null), "{}", listed.text());
        service.stop().await;
    }
}
