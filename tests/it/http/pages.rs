//! Payers' pages.

use payferry_domain::Amount;

use crate::prelude::*;

/// Decodes both QR codes of the page: the payment URI and the address.
fn scanned(page: &str) -> [String; 2] {
    let codes: Vec<_> = page.split("<svg class=\"qr\"").skip(1).map(decoded).collect();
    codes.try_into().unwrap()
}

/// Decodes the QR code at the beginning of the text.
fn decoded(svg: &str) -> String {
    /// Pixels per module of the decoded picture.
    const DOTS: usize = 3;

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

shared!(#[tokio::test] pages, app = TestApp::start_with_chains().await, app.renew_psp() =>
    page_shows_the_payment_and_no_personal_data, incomplete_cancelled_and_unknown_payments_have_pages,
    pages_are_in_the_language_of_the_payer);

async fn pages_are_in_the_language_of_the_payer(app: &TestApp) {
    let made = app.add_payment().await;
    let open = async |path: &str, languages: &str| {
        app.request(Method::GET, path).without_key().header("accept-language", languages).send().await
    };
    for (languages, language, waiting, unknown) in [
        ("en-GB", "en", "Waiting for your payment", "No such payment"),
        ("de-CH,de;q=0.9,en;q=0.8", "de", "Warten auf Ihre Zahlung", "Zahlung nicht gefunden"),
        ("es-MX", "es", "Esperando su pago", "No existe ese pago"),
        ("nl, fr;q=0.5, en;q=0.4", "fr", "En attente de votre paiement", "Paiement introuvable"),
        ("pt-BR", "pt", "Aguardando o seu pagamento", "Pagamento não encontrado"),
        ("ja", "ja", "お支払いをお待ちしています", "お支払いが見つかりません"),
        ("nl", "en", "Waiting for your payment", "No such payment"),
    ] {
        let lang = format!("<html lang=\"{language}\">");
        let page = open(made.page_path(), languages).await.ok(200);
        page.assert_shows(&[
            &lang,
            &format!("<h1 id=\"headline\">{waiting}</h1>"),
            &format!("<title>{waiting}</title>"),
        ]);
        page.assert_shows(&["10.00 USDC", made.wallet()]);
        assert_eq!(page.header("vary"), Some("accept-language"));
        let missing = open("/pay/x", languages).await.ok(404);
        missing.assert_shows(&[&lang, unknown]);
        assert_eq!(missing.header("vary"), Some("accept-language"));
    }
}

async fn page_shows_the_payment_and_no_personal_data(app: &TestApp) {
    let merchant = app.add_merchant().await;
    let changes = json!({ "amount": "12.5", "currency": "USDT", "chain": "arbitrum",
        "metadata": { "buyer": "Jane Roe" }, "reference": "INV-1" });
    let made = app.initiate(&changes).await;
    assert_eq!(made.page_path().strip_prefix("/pay/").unwrap().len(), 40);
    let page = app.open(made.page_path()).await;
    assert_eq!((page.status.as_u16(), page.header("content-type")), (200, Some("text/html; charset=utf-8")));
    let uri = made["payment_uri"].as_str().unwrap().replace('&', "&amp;");
    page.assert_shows(&["12.50 USDT", "Arbitrum One", "pending", made.wallet(), made.string("token_address")]);
    page.assert_shows(&[made.string("expires_at"), &uri, "<svg class=\"qr\" role=\"img\""]);
    assert_eq!(scanned(page.text()), [made.string("payment_uri"), made.wallet()]);
    page.assert_shows(&["<strong>TEST</strong>"]);
    // It refreshes without JavaScript.
    page.assert_shows(&["<noscript><meta http-equiv=\"refresh\""]);
    page.assert_hides(&["Jane", "INV-1", "owner@shop.example", &merchant, "psp_", "src=", "url(", "@import", "style="]);
    let policy = page.header("content-security-policy").unwrap();
    for part in ["default-src 'none';", "script-src 'sha256-", "style-src 'sha256-", "frame-ancestors 'none'"] {
        assert!(policy.contains(part), "{policy}");
    }
    assert!(!policy.contains("unsafe"));
    assert_eq!(page.header("referrer-policy"), Some("no-referrer"));
    assert_eq!(page.header("cache-control"), Some("no-store"));

    app.pay(&made, "12.5").await;
    app.payment_when(&made, "settled").await;
    let ended = app.open(made.page_path()).await;
    ended.assert_shows(&["Payment complete"]);
    // No second payment is requested, and the page does not refresh any more.
    ended.assert_hides(&["ethereum:", "http-equiv=\"refresh\""]);
}

async fn incomplete_cancelled_and_unknown_payments_have_pages(app: &TestApp) {
    let made = app.paid("4", "mismatched").await;
    let page = app.open(made.page_path()).await;
    let rest = format!("uint256={}", Amount::from_tokens(6).units());
    page.assert_shows(&["Payment incomplete", "6.00 USDC", &rest]);
    assert!(scanned(page.text())[0].ends_with(&rest), "the QR code asks for the rest");

    let other = app.add_payment().await;
    assert_eq!(app.request(Method::POST, &format!("{}/cancel", other.path())).send().await.status, 200);
    let page = app.open(other.page_path()).await;
    page.assert_shows(&["Payment cancelled"]);
    page.assert_hides(&["ethereum:", other.wallet()]);
    // An unknown link returns a page.
    for token in ["x", &"x".repeat(500), "..%2f..", "%00"] {
        app.open(&format!("/pay/{token}")).await.ok(404).assert_shows(&["No such payment"]);
    }
}

/// Unlike those of a sandbox, which the tests above check.
#[tokio::test]
async fn pages_of_production_have_no_badge() {
    let app = TestApp::start_with(TestConfig { is_production: true, chains: true, ..TestConfig::default() }).await;
    let made = app.add_payment().await;
    let page = app.open(made.page_path()).await.ok(200);
    page.assert_shows(&["Waiting for your payment"]);
    page.assert_hides(&["id=\"test\"", "TEST", "real money"]);
}

#[tokio::test]
async fn pages_are_rate_limited_per_address() {
    let app = TestApp::start().await;
    for _ in 0..50 {
        assert_eq!(app.open("/pay/x").await.status, 404);
    }
    let refused = app.open("/pay/x").await.ok(429);
    refused.assert_shows(&["Too many requests"]);
    let german = app.request(Method::GET, "/pay/x").without_key().header("accept-language", "de").send().await;
    german.ok(429).assert_shows(&["<html lang=\"de\">", "Zu viele Anfragen"]);
    let wait: u64 = refused.header("retry-after").unwrap().parse().unwrap();
    assert!((1..=2).contains(&wait), "{wait}");
    assert_eq!(app.get("/merchants").await.status, 200, "keys have a separate limit");
}
