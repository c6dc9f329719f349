//! Appearance of the payer's page: its settings, the logo, and their effect on the page.

use std::io::Cursor;

use image::{DynamicImage, ImageFormat, Rgb, RgbImage};
use payferry_accounts::logos::{LOGO_BYTES_MAX, LOGO_PIXELS_MAX};
use payferry_domain::CustomerId;
use payferry_domain::payment::Purpose;
use payferry_entities::{audit_log, checkout_logos};

use crate::prelude::*;

const SETTINGS: &str = "/api/v1/settings";
const LOGO: &str = "/api/v1/settings/logo";

/// A picture: a bright ring on a dark ground.
pub(crate) fn picture(side: u32, format: ImageFormat) -> Vec<u8> {
    let (middle, mut content) = (i64::from(side / 2), Cursor::new(Vec::new()));
    let pixel = |x: u32, y: u32| {
        let [x, y] = [x, y].map(|place| i64::from(place) - middle);
        let distance = x * x + y * y;
        let is_ring = (middle * middle / 5..middle * middle * 7 / 10).contains(&distance);
        if is_ring { Rgb([255, 212, 0]) } else { Rgb([20, 44, 66]) }
    };
    DynamicImage::ImageRgb8(RgbImage::from_fn(side, side, pixel)).write_to(&mut content, format).unwrap();
    content.into_inner()
}

/// A PNG of this size in pixels that does not compress.
fn noise(side: u32) -> Vec<u8> {
    let (mut content, mut state) = (Cursor::new(Vec::new()), 1_u32);
    let mut next = || {
        state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        state.to_be_bytes()[0]
    };
    let picture = RgbImage::from_fn(side, side, |_, _| Rgb([next(), next(), next()]));
    DynamicImage::ImageRgb8(picture).write_to(&mut content, ImageFormat::Png).unwrap();
    content.into_inner()
}

async fn upload(app: &TestApp, content: Vec<u8>) -> Reply {
    app.request(Method::PUT, LOGO).bytes(content).header("content-type", "application/octet-stream").send().await
}

/// Path of a logo from its URL in the settings.
fn path_of(settings: &Value) -> String {
    let url = settings["checkout"]["logo_url"].as_str().unwrap();
    url.strip_prefix("https://pay.example").unwrap().to_owned()
}

shared!(#[tokio::test] checkout, app = TestApp::start_with_chains().await, app.renew_psp() =>
    values_are_set_removed_and_audited, invalid_values_are_named, logos_are_verified_served_and_deleted,
    the_page_has_the_appearance_of_its_psp, the_link_back_is_shown_at_the_end, names_have_defaults,
    texts_of_psps_cannot_contain_markup);

async fn values_are_set_removed_and_audited(app: &TestApp) {
    let none = json!({ "name": null, "color": null, "return_url": null, "logo_url": null });
    assert_eq!(app.get(SETTINGS).await["checkout"], none);
    let url = "https://shop.example/orders/{payment_id}?from=pay";
    let body = json!({ "checkout": { "name": "Ferry Shop", "color": "#FFD400", "return_url": url } });
    let set = app.patch(SETTINGS, &body).await;
    let expected = json!({ "name": "Ferry Shop", "color": "#ffd400", "return_url": url, "logo_url": null });
    set.assert(200, json!({ "message": "Settings changed", "checkout": expected, "settings/checkout": expected }));
    // Omitted and null values stay, and an empty one is removed.
    for same in [json!({}), json!({ "checkout": {} }), json!({ "checkout": { "name": null, "color": "#ffd400" } })] {
        app.patch(SETTINGS, &same).await.assert(200, json!({ "message": "Settings unchanged", "checkout": expected }));
    }
    let removed = app.patch(SETTINGS, &json!({ "checkout": { "name": "", "return_url": "" } })).await;
    let left = json!({ "name": null, "color": "#ffd400", "return_url": null, "logo_url": null });
    removed.assert(200, json!({ "checkout": left, "tolerance": "0.00" }));

    let entries = audit_log::Entity::find().filter(audit_log::Column::Subject.eq(app.psp_id.to_string()));
    let entries = entries.order_by_asc(audit_log::Column::Number).all(app.reader()).await.unwrap();
    let details: Vec<Value> = entries.iter().map(|entry| serde_json::from_str(&entry.detail).unwrap()).collect();
    let all = json!({ "name": "Ferry Shop", "color": "#ffd400", "return_url": url });
    let some = json!({ "color": "#ffd400" });
    let changes =
        [json!({ "checkout": { "from": {}, "to": all } }), json!({ "checkout": { "from": all, "to": some } })];
    assert_eq!(details, changes);
}

async fn invalid_values_are_named(app: &TestApp) {
    let before = app.get(SETTINGS).await.json;
    let cases = [
        (json!({ "name": "x".repeat(81) }), "checkout.name: too_long"),
        (json!({ "name": " " }), "checkout.name: empty"),
        (json!({ "name": "a\nb" }), "checkout.name: invalid_characters"),
        (json!({ "name": 1 }), "checkout.name: wrong_type"),
        (json!({ "color": "red" }), "checkout.color: invalid_color"),
        (json!({ "color": "#fff}" }), "checkout.color: invalid_color"),
        (json!({ "color": ["#ffffff"] }), "checkout.color: wrong_type"),
        (json!({ "return_url": "http://shop.example" }), "checkout.return_url: invalid_url"),
        (json!({ "return_url": "javascript:alert(1)" }), "checkout.return_url: invalid_url"),
        (json!({ "return_url": "https://user:pass@shop.example" }), "checkout.return_url: invalid_url"),
        (json!({ "return_url": "https://{payment_id}.example" }), "checkout.return_url: invalid_url"),
        (json!({ "return_url": format!("https://shop.example/{}", "x".repeat(240)) }), "checkout.return_url: too_long"),
        (json!({ "logo": "x" }), "checkout.logo: read_only"),
        (json!({ "style": "x" }), "checkout.style: unknown_field"),
    ];
    let cases = cases.map(|(checkout, fault)| (json!({ "checkout": checkout }), fault));
    assert_refused(&cases, async |body| app.patch(SETTINGS, body).await).await;
    assert_refused(&[(json!({ "checkout": "x" }), "checkout: wrong_type")], async |body| {
        app.patch(SETTINGS, body).await
    })
    .await;
    assert_eq!(app.get(SETTINGS).await.json, before);
}

async fn logos_are_verified_served_and_deleted(app: &TestApp) {
    for (format, media_type) in
        [(ImageFormat::Png, "image/png"), (ImageFormat::Jpeg, "image/jpeg"), (ImageFormat::WebP, "image/webp")]
    {
        let content = picture(48, format);
        let set = upload(app, content.clone()).await.ok(200);
        let served = app.open(&path_of(&set)).await;
        assert_eq!((served.status.as_u16(), served.header("content-type")), (200, Some(media_type)));
        assert_eq!(served.bytes, content, "as uploaded");
        assert_eq!(served.header("cache-control"), Some("public, max-age=31536000, immutable"));
        assert_eq!(served.header("content-security-policy"), Some("default-src 'none'; sandbox"));
        assert_eq!(served.header("x-content-type-options"), Some("nosniff"));
    }
    let psp = app.psp_id.to_string();
    let stored = || checkout_logos::Entity::find_by_id(psp.clone()).one(app.reader());
    assert_eq!(stored().await.unwrap().unwrap().media_type, "image/webp", "each replaced the previous one");

    let before = app.get(SETTINGS).await.json;
    let text = |text: &str| text.as_bytes().to_vec();
    for bad in [
        Vec::new(),
        text("<svg xmlns='http://www.w3.org/2000/svg'><script>alert(1)</script></svg>"),
        text("GIF89a"),
        picture(48, ImageFormat::Png)[..60].to_vec(),
        picture(LOGO_PIXELS_MAX + 1, ImageFormat::Png),
    ] {
        upload(app, bad).await.assert_invalid("logo: invalid_image");
    }
    let large = noise(256);
    assert!(large.len() > LOGO_BYTES_MAX);
    upload(app, large).await.assert_problem(413, "body_too_large");
    let narrow = app.add_key(app.psp_id, &[Scope::Payments, Scope::Money]).await;
    let refused = app.request(Method::PUT, LOGO).key(&narrow).bytes(picture(8, ImageFormat::Png)).send().await;
    refused.assert_problem(403, "missing_scope");
    app.request(Method::DELETE, LOGO).key(&narrow).send().await.assert_problem(403, "missing_scope");
    assert_eq!(app.get(SETTINGS).await.json, before, "nothing was changed");

    // The same image of another PSP stays when this one deletes it. Neither was read before, so none is cached.
    let path = path_of(&upload(app, picture(20, ImageFormat::Png)).await.ok(200));
    let other = app.stranger().await;
    app.request(Method::PUT, LOGO).key(&other).bytes(picture(20, ImageFormat::Png)).send().await.ok(200);
    for message in ["Settings changed", "Settings unchanged"] {
        let deleted = app.request(Method::DELETE, LOGO).send().await;
        deleted.assert(200, json!({ "message": message, "checkout/logo_url": null }));
    }
    assert_eq!(stored().await.unwrap(), None);
    app.open(&path).await.ok(200);
    let gone = path_of(&upload(app, picture(24, ImageFormat::Png)).await.ok(200));
    app.request(Method::DELETE, LOGO).send().await.ok(200);
    for unknown in [gone.as_str(), "/checkout/logos/x", "/checkout/logos/%00", "/checkout/logos/..%2f"] {
        app.open(unknown).await.assert_problem(404, "logo_not_found");
    }
}

async fn the_page_has_the_appearance_of_its_psp(app: &TestApp) {
    let made = app.initiate(&json!({ "description": "Order 7 <b>" })).await.ok(201);
    assert_eq!(app.get(&made.path()).await["description"], "Order 7 <b>");
    let plain = app.open(made.page_path()).await;
    plain.assert_shows(&["<bdi>Shop</bdi>", "<bdi>Order 7 &lt;b&gt;</bdi>"]);
    plain.assert_hides(&["<img", "--brand:#"]);

    let checkout = json!({ "checkout": { "name": "Ferry & Co", "color": "#ffd400" } });
    app.patch(SETTINGS, &checkout).await.ok(200);
    let path = path_of(&upload(app, picture(48, ImageFormat::Png)).await.ok(200));
    let page = app.open(made.page_path()).await;
    page.assert_shows(&["<bdi>Ferry &amp; Co</bdi>", ":root{--brand:#ffd400;--onbrand:#000000}"]);
    page.assert_shows(&[&format!("<img src=\"..{path}\" alt=\"\">")]);
    page.assert_hides(&["<bdi>Shop</bdi>", "style=\""]);
    let policy = page.header("content-security-policy").unwrap();
    assert_eq!(policy.matches("'sha256-").count(), 3, "two styles and the script: {policy}");
    assert!(policy.contains("img-src 'self' data:;") && !policy.contains("unsafe"), "{policy}");
}

async fn the_link_back_is_shown_at_the_end(app: &TestApp) {
    let checkout = json!({ "name": "Ferry Shop", "return_url": "https://shop.example/o/{payment_id}?a=1&b=2" });
    app.patch(SETTINGS, &json!({ "checkout": checkout })).await.ok(200);
    let link =
        |made: &Reply| format!("href=\"https://shop.example/o/{}?a=1&amp;b=2\">Return to Ferry Shop</a>", made.id());
    let paid = app.add_payment().await;
    app.open(paid.page_path()).await.assert_hides(&["shop.example"]);
    app.pay(&paid, "10").await;
    app.payment_when(&paid, "settled").await;
    app.open(paid.page_path()).await.assert_shows(&[&link(&paid)]);
    let short = app.paid("4", "mismatched").await;
    app.open(short.page_path()).await.assert_hides(&["shop.example"]);
    let over = app.paid("12", "mismatched").await;
    app.open(over.page_path()).await.assert_shows(&[&link(&over)]);
    let cancelled = app.add_payment().await;
    app.request(Method::POST, &format!("{}/cancel", cancelled.path())).send().await.ok(200);
    app.open(cancelled.page_path()).await.assert_shows(&[&link(&cancelled)]);
}

/// The merchant's name, or for a transfer the PSP's.
async fn names_have_defaults(app: &TestApp) {
    let made = app.add_payment().await;
    app.open(made.page_path()).await.assert_shows(&["<bdi>Shop</bdi>"]);
    let row = payferry_entities::payments::Entity::find_by_id(made.id()).one(app.reader()).await.unwrap().unwrap();
    let mut payment = payferry_journal::payments::payment_of(&row).unwrap();
    payment.terms.id = PaymentId::generate();
    "of-a-transfer".clone_into(&mut payment.terms.link_token);
    // A wallet has one payment.
    payment.terms.wallet = payferry_domain::Address([0x98; 20]);
    payment.terms.merchant_id = None;
    payment.terms.customer_id = Some(CustomerId::generate());
    payment.terms.purpose = Purpose::Transfer { to: payferry_domain::Address([0x99; 20]) };
    let row = payferry_journal::payments::row_of(&payment).unwrap();
    app.insert(payferry_entities::payments::Model { customer_id: None, ..row }).await;
    let page = app.open("/pay/of-a-transfer").await.ok(200);
    page.assert_shows(&["<bdi>Test</bdi>", "the sender of this link"]);
    page.assert_hides(&["Shop"]);
}

async fn texts_of_psps_cannot_contain_markup(app: &TestApp) {
    let evil = "</style><script>alert(1)</script>\"'&";
    let checkout = json!({ "name": evil, "return_url": "https://shop.example/?x='\"><script>" });
    app.patch(SETTINGS, &json!({ "checkout": checkout })).await.ok(200);
    let made = app.initiate(&json!({ "description": evil })).await.ok(201);
    app.request(Method::POST, &format!("{}/cancel", made.path())).send().await.ok(200);
    let page = app.open(made.page_path()).await.ok(200);
    page.assert_hides(&["<script>alert", "\"'&", "x='\""]);
    assert_eq!(page.text().matches("<script>").count(), 1);
    page.assert_shows(&["&lt;script&gt;alert(1)"]);
    for description in ["x".repeat(201), "a\nb".to_owned(), " ".to_owned()] {
        assert_eq!(app.initiate(&json!({ "description": description })).await.status, 422, "{description:?}");
    }
}
