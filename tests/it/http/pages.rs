//! Payers' pages.

use axum::http::Method;
use payferry_domain::Amount;
use serde_json::json;

use crate::app::{Reply, TestApp};

/// Opens the page of a magic link.
async fn open(app: &TestApp, link: &str) -> Reply {
    let path = link.strip_prefix("https://pay.example").unwrap();
    app.request(Method::GET, path).without_key().send().await
}

/// Decodes the QR code of the page.
fn scanned(page: &str) -> String {
    /// Pixels per module of the decoded picture.
    const DOTS: usize = 3;

    let (_, svg) = page.split_once("<svg class=\"qr\"").unwrap();
    let (_, side) = svg.split_once("viewBox=\"0 0 ").unwrap();
    let side: usize = side.split(' ').next().unwrap().parse().unwrap();
    let (_, path) = svg.split_once("<path d=\"").unwrap();
    let (path, _) = path.split_once('"').unwrap();
    let mut dark = vec![vec![false; side]; side];
    for run in path.split('M').skip(1) {
        let numbers = run.split(|c: char| !c.is_ascii_digit()).filter_map(|number| number.parse::<usize>().ok());
        let [x, y, length, ..] = numbers.collect::<Vec<_>>()[..] else { panic!("{run}") };
        dark[y][x..x + length].fill(true);
    }
    let mut picture =
        rqrr::PreparedImage::prepare_from_bitmap(side * DOTS, side * DOTS, |x, y| dark[y / DOTS][x / DOTS]);
    picture.detect_grids()[0].decode().unwrap().1
}

#[tokio::test]
async fn page_shows_the_payment_and_no_personal_data() {
    let app = TestApp::start_with_chains().await;
    let merchant = app.add_merchant().await;
    let body = json!({ "merchant_id": merchant, "amount": "12.5", "currency": "USDT", "chain": "arbitrum",
        "metadata": { "buyer": "Jane Roe" }, "reference": "INV-1" });
    let made = app.post("/payments/initiate", &body).await;
    let link = made.json["magic_link"].as_str().unwrap();
    assert_eq!(link.strip_prefix("https://pay.example/pay/").unwrap().len(), 40);
    let page = open(&app, link).await;
    assert_eq!((page.status.as_u16(), page.header("content-type")), (200, Some("text/html; charset=utf-8")));
    let text = page.text();
    let uri = made.json["payment_uri"].as_str().unwrap().replace('&', "&amp;");
    for shown in [
        "12.50 USDT",
        "Arbitrum One",
        "pending",
        made.json["intermediary_wallet"].as_str().unwrap(),
        made.json["token_address"].as_str().unwrap(),
        made.json["expires_at"].as_str().unwrap(),
        &uri,
    ] {
        assert!(text.contains(shown), "{shown} is missing");
    }
    assert!(text.contains("<svg class=\"qr\" role=\"img\""));
    assert_eq!(scanned(text), made.json["payment_uri"].as_str().unwrap(), "the QR code contains the payment URI");
    assert!(text.contains("<noscript><meta http-equiv=\"refresh\""), "it refreshes without JavaScript");
    for hidden in ["Jane", "INV-1", "owner@shop.example", &merchant, "psp_", "src=", "url(", "@import", "style="] {
        assert!(!text.contains(hidden), "{hidden} is shown");
    }
    let policy = page.header("content-security-policy").unwrap();
    for part in ["default-src 'none';", "script-src 'sha256-", "style-src 'sha256-", "frame-ancestors 'none'"] {
        assert!(policy.contains(part), "{policy}");
    }
    assert!(!policy.contains("unsafe"));
    assert_eq!(page.header("referrer-policy"), Some("no-referrer"));
    assert_eq!(page.header("cache-control"), Some("no-store"));

    app.pay(&made, "12.5").await;
    app.payment_when(&made, "settled").await;
    let text = open(&app, link).await.text().to_owned();
    assert!(text.contains("Payment complete") && !text.contains("ethereum:"), "no second payment is requested");
    assert!(!text.contains("http-equiv=\"refresh\""), "the page does not refresh any more");
}

#[tokio::test]
async fn incomplete_payment_asks_for_the_rest_and_cancelled_for_nothing() {
    let app = TestApp::start_with_chains().await;
    let merchant = app.add_merchant().await;
    let made = app.add_payment(&merchant).await;
    app.pay(&made, "4").await;
    app.payment_when(&made, "mismatched").await;
    let page = open(&app, made.json["magic_link"].as_str().unwrap()).await;
    assert!(page.text().contains("Payment incomplete") && page.text().contains("6.00 USDC"));
    let rest = format!("uint256={}", Amount::from_tokens(6).units());
    assert!(page.text().contains(&rest) && scanned(page.text()).ends_with(&rest), "the QR code asks for the rest");

    let other = app.add_payment(&merchant).await;
    let path = format!("/payments/{}/cancel", other.json["payment_id"].as_str().unwrap());
    assert_eq!(app.request(Method::POST, &path).send().await.status, 200);
    let page = open(&app, other.json["magic_link"].as_str().unwrap()).await;
    assert!(page.text().contains("Payment cancelled") && !page.text().contains("ethereum:"));
    assert!(!page.text().contains(other.json["intermediary_wallet"].as_str().unwrap()));
}

#[tokio::test]
async fn unknown_link_returns_a_page() {
    let app = TestApp::start().await;
    for token in ["x", &"x".repeat(500), "..%2f..", "%00"] {
        let page = open(&app, &format!("https://pay.example/pay/{token}")).await;
        assert_eq!(page.status, 404, "{token}");
        assert!(page.text().contains("No such payment"));
    }
}

#[tokio::test]
async fn pages_are_rate_limited_per_address() {
    let app = TestApp::start().await;
    for _ in 0..50 {
        assert_eq!(open(&app, "https://pay.example/pay/x").await.status, 404);
    }
    let refused = open(&app, "https://pay.example/pay/x").await;
    assert_eq!(refused.status, 429);
    let wait: u64 = refused.header("retry-after").unwrap().parse().unwrap();
    assert!((1..=2).contains(&wait), "{wait}");
    assert_eq!(app.get("/merchants").await.status, 200, "keys have a separate limit");
}
