//! Withdrawal wallets: set by the operator, visible to the PSP, effective after a day in production.

use payferry_domain::Address;
use payferry_evm::wallet::{Vaults, checksummed};
use payferry_journal::psps::wallets::{WALLET_DELAY_SECS, withdrawal_wallet};

use crate::prelude::*;

fn address(byte: u8) -> Address {
    Address([byte; 20])
}

fn path(service: &ServiceFixture) -> String {
    format!("/ops/psps/{}/withdrawal-wallets", service.app.psp_id)
}

/// Withdrawal wallet of the PSP this many seconds from now.
async fn withdraws_to(service: &ServiceFixture, chain: Chain, in_secs: i64) -> Option<Address> {
    let system = &service.app.state.system;
    let at = system.clock().real_now::<Timestamp>().plus_secs(in_secs);
    withdrawal_wallet(system.database(), service.app.psp_id, chain, at).await.unwrap()
}

#[tokio::test]
async fn production_wallet_takes_effect_after_a_day() {
    let config = TestConfig { is_production: true, ..TestConfig::default() };
    let service = ServiceFixture::over(TestApp::start_with(config).await).await;
    let set = async |body: Value| service.post(&path(&service), &body).await;
    let first = set(json!({ "address": address(1).to_string() })).await;
    first.assert(200, json!({ "wallets/0/status": "pending" }));
    assert_eq!(withdraws_to(&service, Chain::Base, 0).await, None);
    assert_eq!(withdraws_to(&service, Chain::Base, WALLET_DELAY_SECS - 60).await, None);
    assert_eq!(withdraws_to(&service, Chain::Base, WALLET_DELAY_SECS).await, Some(address(1)));
    let shown = service.app.get("/api/v1/settings").await;
    assert_eq!(shown["settings"]["withdrawal_wallets"], first["wallets"]);
    insta::assert_json_snapshot!("wallet_pending", redact(&first.json));

    // The same wallet changes nothing; another one restarts the delay.
    assert_eq!(set(json!({ "address": address(1).to_string() })).await.json, first.json);
    set(json!({ "address": address(2).to_string() })).await;
    assert_eq!(withdraws_to(&service, Chain::Base, WALLET_DELAY_SECS).await, Some(address(2)));
    assert_eq!(set(json!({ "address": "none" })).await["wallets"], json!([]));
    assert_eq!(withdraws_to(&service, Chain::Base, 2 * WALLET_DELAY_SECS).await, None);

    let log = service.get("/ops/audit?action=psp.withdrawal_wallet_set").await.json;
    let notified: Vec<_> =
        log["entries"].as_array().unwrap().iter().map(|entry| entry["detail"]["to"].clone()).collect();
    assert_eq!(notified, [json!(address(1).to_string()), json!(address(2).to_string()), Value::Null]);
}

shared!(#[tokio::test] wallets, service = ServiceFixture::start_with_chains().await, service.app.renew_psp() =>
    chain_may_have_its_own_wallet, wallet_is_set_on_the_page);

async fn chain_may_have_its_own_wallet(service: &ServiceFixture) {
    let set = async |body: Value| service.post(&path(service), &body).await;
    set(json!({ "address": address(1).to_string(), "chain": "all" })).await;
    let both = set(json!({ "address": checksummed(address(0xab)), "chain": "polygon" })).await;
    insta::assert_json_snapshot!("wallets", redact(&both.json));
    for (chain, expected) in [(Chain::Base, 1), (Chain::Polygon, 0xab), (Chain::Arbitrum, 1)] {
        assert_eq!(withdraws_to(service, chain, 0).await, Some(address(expected)), "{chain}");
    }
    // In pages of one. A wallet that is removed meanwhile does not hide the next one.
    set(json!({ "address": address(9).to_string(), "chain": "base" })).await;
    let page = async |more: &str| service.get(&format!("{}?limit=1{more}", path(service))).await.ok(200);
    let first = page("").await;
    let base = page(&format!("&cursor={}", first.string("next_cursor"))).await;
    assert_eq!(page("&offset=1").await["wallets"], base["wallets"]);
    set(json!({ "address": "none", "chain": "base" })).await;
    let last = page(&format!("&cursor={}", base.string("next_cursor"))).await;
    let chains = [&first, &base, &last].map(|page| page["wallets"][0]["chain"].clone());
    assert_eq!(chains, ["all", "base", "polygon"]);
    assert_eq!((&last["total"], &last["next_cursor"]), (&json!(2), &Value::Null));
    set(json!({ "address": "none", "chain": "polygon" })).await;
    assert_eq!(withdraws_to(service, Chain::Polygon, 0).await, Some(address(1)));
    // Unsuitable addresses are refused.
    let payment = service.app.add_payment().await;
    let system = &service.app.state.system;
    let spec = system.chains().spec(Chain::Base).unwrap().clone();
    let other = service.app.add_psp().await;
    for (bad, fault) in [
        (address(0).to_string(), "zero_address"),
        (spec.tokens[0].1.to_string(), "token_contract"),
        (spec.contract.to_string(), "service_contract"),
        (spec.treasury.to_string(), "treasury_address"),
        (payment.wallet().to_owned(), "service_vault"),
        (Vaults::new(spec.contract).of_psp(service.app.psp_id).to_string(), "service_vault"),
        (Vaults::new(spec.contract).of_psp(other).to_string(), "service_vault"),
        ("0x12".to_owned(), "invalid_address"),
        (checksummed(address(0xab)).replace('B', "b"), "wrong_checksum"),
    ] {
        let refused = service.post(&path(service), &json!({ "address": bad })).await;
        refused.assert_problem(422, "validation_failed");
        assert_eq!(refused.faults(), format!("address: {fault}"), "{bad}");
    }
    let bad = service.post(&path(service), &json!({ "chain": "doge", "wallet": "x" })).await;
    assert_eq!(bad.faults(), "wallet: unknown_field, address: required, chain: unknown_value");
    let nobody = "/ops/psps/psp_01J9Z3K4M5N6P7Q8R9S0T1V2W3/withdrawal-wallets";
    service.post(nobody, &json!({ "address": address(1).to_string() })).await.assert_problem(404, "psp_not_found");
    service.get(nobody).await.assert_problem(404, "psp_not_found");
    let set = service.get(&path(service)).await;
    assert_eq!(set["wallets"].as_array().unwrap().len(), 1, "nothing else was set");
}

async fn wallet_is_set_on_the_page(service: &ServiceFixture) {
    let page = format!("/ops/view/psps/{}", service.app.psp_id);
    let form = async |fields: &[(&str, &str)]| {
        service.form(&format!("{page}/withdrawal-wallets"), &[fields, &super::SIGNED].concat()).await
    };
    form(&[("chain", "all"), ("address", &address(0).to_string())])
        .await
        .ok(422)
        .assert_shows(&["is the zero address"]);
    assert_eq!(form(&[("chain", "base"), ("address", &address(7).to_string())]).await.status, 303);
    assert!(service.get(&page).await.text().contains(&checksummed(address(7))));
    // Ceilings follow the configuration until overridden.
    let psp = format!("/ops/psps/{}", service.app.psp_id);
    let limits = async || service.app.get("/api/v1/settings").await["settings"]["limits"].clone();
    let limits_of = |once: &str, daily: &str, refunds: &str| json!({ "send_max": once, "send_daily_max": daily, "refund_elsewhere_daily_max": refunds });
    assert_eq!(limits().await, limits_of("10000.00", "50000.00", "1000.00"));
    let patch = async |body: Value| service.patch(&psp, &body).await;
    let own = json!({ "send_max": "500", "send_daily_max": "2000.5", "refund_elsewhere_daily_max": "0" });
    let changed = patch(own).await;
    assert_has(&changed, limits_of("500.00", "2000.50", "0.00"));
    assert_eq!(limits().await, limits_of("500.00", "2000.50", "0.00"));
    let ceilings = service.app.state.system.psps().get(service.app.psp_id).await.unwrap().ceilings;
    assert_eq!(ceilings.send_max.to_string(), "500.00", "the actors apply it immediately");
    assert_eq!(patch(json!({ "send_max": "default" })).await["send_max"], "10000.00");
    let faults = patch(json!({ "send_max": 5, "send_daily_max": "x" })).await.faults();
    assert_eq!(faults, "send_max: wrong_type, send_daily_max: amount_malformed");
}
