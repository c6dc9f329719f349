//! Pictures of every page at desktop and phone width, for visual review.
//!
//! They are written to the build folder; `PAYFERRY_SCREENSHOTS=docs/src/screenshots` refreshes the pictures of the
//! documentation.

use super::env::ServiceFixture;
use crate::prelude::*;

/// Payments in the pictures.
const PAYMENTS: usize = 60;

#[tokio::test(flavor = "multi_thread")]
#[ignore = "long"]
async fn takes_pictures_of_every_page_at_both_widths() {
    let service = ServiceFixture::logged_in().await;
    let browser = &service.browser;
    let (settled, quarantined) = busy(&service).await;
    let payment = format!("/ops/view/payments/{settled}");
    let replay = format!("{payment}/replay");
    let shard = shard_of(&service, &quarantined).await;
    let pages = [
        ("overview", "/ops"),
        ("payment", &payment),
        ("shard", &shard),
        ("stuck", "/ops/view/stuck"),
        ("replay", &replay),
        ("messages", "/ops/view/messages"),
        ("bulk", "/ops/view/bulk?action=release"),
        ("psps", "/ops/view/psps"),
        ("chain", "/ops/view/chains/base"),
        ("actor", "/ops/view/actors/journal/journal"),
        ("quarantined", "/ops/view/stuck?kind=quarantined"),
        ("webhooks", "/ops/view/webhooks"),
    ];
    // New incidents are highlighted for a moment.
    service.open("/ops").await;
    browser.until_count(".log .fresh", 0).await;
    for (name, path) in pages {
        service.open(path).await;
        let is_kept = matches!(name, "overview" | "payment" | "stuck" | "replay" | "messages");
        service.pictured(name, is_kept).await;
        if is_kept {
            browser.prefer_dark(true).await;
            service.pictured(&format!("{name}-dark"), true).await;
            browser.prefer_dark(false).await;
        }
    }
    service.end().await;
}

/// The dashboard's pages that the documentation shows.
#[tokio::test(flavor = "multi_thread")]
#[ignore = "long"]
async fn takes_pictures_of_the_dashboard_at_both_widths() {
    let service = ServiceFixture::start().await;
    let (settled, _) = busy(&service).await;
    service.sign_in().await;
    let payment = format!("/dashboard/payments/{settled}");
    for (name, path) in [
        ("dashboard", "/dashboard"),
        ("dashboard-payments", "/dashboard/payments"),
        ("dashboard-payment", &payment),
        ("dashboard-webhooks", "/dashboard/webhooks"),
        ("dashboard-balances", "/dashboard/balances"),
        ("dashboard-keys", "/dashboard/keys"),
        ("dashboard-settings", "/dashboard/settings"),
    ] {
        service.visit(path).await;
        service
            .pictured(name, matches!(name, "dashboard" | "dashboard-payments" | "dashboard-payment" | "dashboard-keys"))
            .await;
    }
    service.end().await;
}

/// Creates payments of every kind; returns one that was settled across a restart, and one that is quarantined.
async fn busy(service: &ServiceFixture) -> (String, String) {
    let mut ids = Vec::new();
    for (index, chain) in Chain::ALL.into_iter().cycle().take(PAYMENTS).enumerate() {
        let amount = format!("{}.50", 10 + index);
        ids.push(service.psp.payment(&amount, Token::Usdc, chain).await);
    }
    let (settled, quarantined) = (ids[0].clone(), ids[1].clone());
    service.panic(&settled, 1).await;
    for (index, id) in ids.iter().enumerate() {
        match index {
            0 => service.pay(id, None).await,
            2 => service.pay(id, Some("3")).await,
            3 => service.pay(id, Some("500")).await,
            index if index > 3 && index % 2 == 0 => service.pay(id, None).await,
            _ => {}
        }
    }
    service.psp.until_status(&settled, "settled").await;
    service.psp.until_status(&ids[2], "mismatched").await;
    for id in ids.iter().skip(4).step_by(2) {
        service.psp.until_status(id, "settled").await;
    }
    service.psp.ok(reqwest::Method::POST, &format!("/payments/{}/cancel", ids[5]), Value::Null).await;
    service.panic(&quarantined, 10).await;
    (settled, quarantined)
}

/// Opens the page of a payment's shard through the breadcrumb links.
async fn shard_of(service: &ServiceFixture, id: &str) -> String {
    service.open(&format!("/ops/view/payments/{id}")).await;
    service.browser.click(".crumbs a[href^='/ops/view/shards/']").await;
    service.browser.until("h1", |text| text.starts_with("Shard ")).await;
    service.browser.path().await
}
