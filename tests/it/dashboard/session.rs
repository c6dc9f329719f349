//! Sign-in, sessions, and the rules that every page and form has in common.

use payferry_dashboard::SESSION_SECS;
use payferry_httpkit::Limits;
use payferry_runtime::seal::Sealer;

use super::{ORIGIN, SignedIn, location, post, sign_in};
use crate::app::forged;
use crate::http::logs::{heard, listen};
use crate::prelude::*;

/// Pages that every session may open.
const PAGES: [&str; 6] = [
    "/dashboard",
    "/dashboard/payments",
    "/dashboard/webhooks",
    "/dashboard/balances",
    "/dashboard/keys",
    "/dashboard/settings",
];
/// Forms.
const FORMS: [&str; 12] = [
    "/dashboard/deliveries/pay_x/whd_x/redeliver",
    "/dashboard/webhook-url",
    "/dashboard/webhooks",
    "/dashboard/webhooks/we_x",
    "/dashboard/webhooks/we_x/rotate",
    "/dashboard/webhooks/we_x/test",
    "/dashboard/webhooks/we_x/delete",
    "/dashboard/withdrawals",
    "/dashboard/keys",
    "/dashboard/keys/key_x/rotate",
    "/dashboard/keys/key_x/revoke",
    "/dashboard/settings",
];

shared!(#[tokio::test] sessions, app = TestApp::start().await, app.renew_psp() =>
    a_key_is_exchanged_for_a_session, wrong_keys_are_refused_and_not_repeated, sessions_end,
    forged_sessions_are_refused, every_page_needs_a_session_and_has_strict_headers, forms_of_other_sites_are_refused,
    scopes_are_those_of_the_key);

async fn a_key_is_exchanged_for_a_session(app: &TestApp) {
    let form = app.open("/dashboard/login").await.ok(200);
    form.assert_shows(&["name=\"key\"", "type=\"password\""]);
    let asked = app.open("/dashboard/payments?status=%3Cb%3E").await.ok(401);
    asked.assert_shows(&["value=\"/dashboard/payments?status=%3Cb%3E\""]);

    let entered = sign_in(app, &format!(" {} ", app.key), "/dashboard/payments?status=pending").await;
    assert_eq!(location(&entered), (303, "/dashboard/payments?status=pending"));
    let (session, attributes) = entered.header("set-cookie").unwrap().split_once(';').unwrap();
    assert_eq!(
        attributes.trim(),
        format!("Path=/dashboard; Max-Age={SESSION_SECS}; HttpOnly; SameSite=Strict"),
        "over plain HTTP in a sandbox"
    );
    assert!(!session.contains(&app.key[40..]) && session.starts_with("payferry_dashboard=v1."), "{session}");
    for elsewhere in ["https://evil.example/dashboard", "//evil.example", "/ops", "/dashboardx", ""] {
        assert_eq!(location(&sign_in(app, &app.key, elsewhere).await), (303, "/dashboard"), "{elsewhere}");
    }
    let tls = post(app, "/dashboard/login", &[("key", &app.key)]).header("origin", "https://psp.test").send().await;
    assert!(tls.header("set-cookie").unwrap().ends_with("; Secure"));

    let signed_in = SignedIn::with(app, &app.key).await;
    let overview = signed_in.open("/dashboard").await.ok(200);
    overview.assert_shows(&[&app.psp_id.to_string(), "Sign out", "sandbox"]);
    for page in PAGES {
        signed_in.open(page).await.ok(200).assert_hides(&[&app.key[40..]]);
    }
    let left = post(app, "/dashboard/logout", &[]).header("cookie", &signed_in.cookie).send().await;
    assert_eq!(location(&left), (303, "/dashboard/login"));
    assert!(left.header("set-cookie").unwrap().starts_with("payferry_dashboard=; Path=/dashboard; Max-Age=0"));
}

async fn wrong_keys_are_refused_and_not_repeated(app: &TestApp) {
    let unknown = unknown_key();
    let (_, expired) = app.add_key_as(app.psp_id, &[Scope::Full], |row| row.expires_at = Some(1)).await;
    let unreading = app.add_key(app.psp_id, &[Scope::Money, Scope::Webhooks]).await;
    for (key, status, said) in [
        ("", 401, "not a valid API key"),
        ("not a key", 401, "not a valid API key"),
        ("schlüssel\u{7}", 401, "not a valid API key"),
        (&unknown, 401, "There is no such API key."),
        (&forged(&app.key), 401, "There is no such API key."),
        (&expired, 401, "has expired"),
        (&unreading, 403, "lacks the scope `read`"),
    ] {
        let refused = sign_in(app, key, "/dashboard/keys").await.ok(status);
        refused.assert_shows(&["role=\"alert\"", said, "value=\"/dashboard/keys\""]);
        assert_eq!(refused.header("set-cookie"), None, "{key}");
        if key.len() > 20 {
            refused.assert_hides(&[&key[20..]]);
        }
    }
    post(app, "/dashboard/login", &[]).send().await.ok(422).assert_shows(&["Enter an API key."]);
}

async fn sessions_end(app: &TestApp) {
    let (id, key) = app.add_key_as(app.psp_id, &[Scope::Full], |_| {}).await;
    let signed_in = SignedIn::with(app, &key).await;
    signed_in.open("/dashboard").await.ok(200);
    let over = |page: Reply, said: &str| {
        let page = page.ok(401);
        page.assert_shows(&[said, "action=\"/dashboard/login\""]);
        assert!(page.header("set-cookie").unwrap().contains("Max-Age=0"), "the browser deletes the cookie");
        assert_eq!(page.header("www-authenticate"), Some("Bearer realm=\"payferry\""));
    };
    app.post(&format!("/api/v1/keys/{id}/revoke"), &json!({})).await.ok(200);
    over(signed_in.open("/dashboard/payments").await, "was revoked");
    over(signed_in.confirm("/dashboard/keys", &[("scopes", "read"), ("expires_days", "1")]).await, "was revoked");

    // A session has its own expiry, whatever the browser makes of the cookie's age.
    let now: Timestamp = app.state.clock().real_now();
    for (until, status) in [(now.plus_secs(60), 200), (now, 401), (now.plus_secs(-1), 401)] {
        let session = format!("{} {}", until.as_millis(), app.key);
        let cookie = Sealer::new(&MASTER_KEY).seal(&["dashboard", "session"], session.as_bytes());
        let signed_in = SignedIn { app, cookie: format!("payferry_dashboard={cookie}") };
        let page = signed_in.open("/dashboard").await.ok(status);
        if status == 401 {
            over(page, "The session is no longer valid");
        }
    }
}

async fn forged_sessions_are_refused(app: &TestApp) {
    let genuine = SignedIn::with(app, &app.key).await.cookie;
    let session = |now: Timestamp| format!("{} {}", now.plus_secs(600).as_millis(), app.key);
    let session = session(app.state.clock().real_now());
    let sealed =
        |sealer: Sealer, place: &[&str]| format!("payferry_dashboard={}", sealer.seal(place, session.as_bytes()));
    let flipped = |at: usize| {
        let mut bytes = genuine.clone().into_bytes();
        bytes[at] = if bytes[at] == b'A' { b'B' } else { b'A' };
        String::from_utf8(bytes).unwrap()
    };
    for forged in [
        format!("payferry_dashboard={session}"),
        format!("payferry_dashboard={}", app.key),
        "payferry_dashboard=".to_owned(),
        "payferry_dashboard=v1.AAAA.AAAA".to_owned(),
        flipped(25),
        flipped(genuine.len() - 9),
        genuine[..genuine.len() - 4].to_owned(),
        // Another service's key, and values that this service sealed for something else.
        sealed(Sealer::new(&[9; 32]), &["dashboard", "session"]),
        sealed(Sealer::new(&MASTER_KEY), &["webhook_endpoints", "x", "secret"]),
    ] {
        let signed_in = SignedIn { app, cookie: forged.clone() };
        signed_in.open("/dashboard").await.ok(401).assert_shows(&["The session is no longer valid"]);
        signed_in.confirm("/dashboard/keys", &[]).await.ok(401);
    }
    // The cookie of the operator's listener is another one.
    let other = SignedIn { app, cookie: genuine.replace("dashboard", "operator") };
    other.open("/dashboard").await.ok(401).assert_hides(&["no longer valid"]);
}

async fn every_page_needs_a_session_and_has_strict_headers(app: &TestApp) {
    let signed_in = SignedIn::with(app, &app.key).await;
    let strict = |page: &Reply| {
        let policy = page.header("content-security-policy").unwrap();
        let (style, rest) =
            policy.strip_prefix("default-src 'none'; style-src 'sha256-").unwrap().split_once("'; ").unwrap();
        assert_eq!(style.len(), 44, "{policy}");
        assert_eq!(rest, "img-src 'self' data:; form-action 'self'; base-uri 'none'; frame-ancestors 'none'");
        for (name, value) in [
            ("x-frame-options", "DENY"),
            ("x-content-type-options", "nosniff"),
            ("cache-control", "no-store"),
            ("referrer-policy", "same-origin"),
            ("x-robots-tag", "noindex, nofollow"),
            ("cross-origin-opener-policy", "same-origin"),
            ("content-type", "text/html; charset=utf-8"),
        ] {
            assert_eq!(page.header(name), Some(value));
        }
        page.assert_hides(&["<script", "javascript:", " style=\"", " onclick", "src=\"http"]);
    };
    strict(&app.open("/dashboard/login").await);
    for path in PAGES {
        strict(&signed_in.open(path).await.ok(200));
    }
    for path in
        PAGES.iter().copied().chain(["/dashboard/payments/pay_x", "/dashboard/webhooks/we_x", "/dashboard/nowhere"])
    {
        let bare = app.open(path).await.ok(401);
        strict(&bare);
        bare.assert_shows(&["action=\"/dashboard/login\""]);
    }
    for path in FORMS {
        post(app, path, &[("confirm", "true")]).send().await.ok(401).assert_shows(&["action=\"/dashboard/login\""]);
        // An API key in a header is no session.
        post(app, path, &[("confirm", "true")]).key(&app.key).send().await.ok(401);
    }
    for missing in ["/dashboard/nowhere", "/dashboard/payments/pay_x", "/dashboard/payments/..%2fbalances"] {
        strict(&signed_in.open(missing).await.ok(404));
    }
    let moved = signed_in.request(Method::POST, "/dashboard/payments").send().await.ok(405);
    assert_eq!(moved.header("allow"), Some("GET,HEAD"));
}

async fn forms_of_other_sites_are_refused(app: &TestApp) {
    let signed_in = SignedIn::with(app, &app.key).await;
    let fields = [("webhook_url", "http://127.0.0.1:9/hooks"), ("confirm", "true"), ("form_id", "f-1")];
    let form = |origin: Option<&str>| {
        let form = post(app, "/dashboard/webhook-url", &fields).header("cookie", &signed_in.cookie);
        match origin {
            Some(origin) => form.header("origin", origin),
            None => form.without("origin"),
        }
    };
    for origin in
        [None, Some("null"), Some("https://evil.example"), Some("http://psp.test.evil"), Some("http://psp.test:81")]
    {
        let refused = form(origin).send().await.ok(403);
        refused.assert_shows(&["The form was sent by a page of another site."]);
        let sign_in = post(app, "/dashboard/login", &[("key", &app.key)]);
        let sign_in = match origin {
            Some(origin) => sign_in.header("origin", origin),
            None => sign_in.without("origin"),
        };
        assert_eq!(sign_in.send().await.ok(403).header("set-cookie"), None, "{origin:?}");
        let sign_out = post(app, "/dashboard/logout", &[]).header("origin", origin.unwrap_or("null")).send().await;
        assert_eq!(sign_out.ok(403).header("set-cookie"), None, "{origin:?}");
    }
    assert_eq!(app.get("/api/v1/webhook").await["webhook_url"], Value::Null);
    // A proxy may put another host into the request; the browser sends the public origin.
    form(Some("https://pay.example")).send().await.ok(200);
    assert_eq!(app.get("/api/v1/webhook").await["webhook_url"], "http://127.0.0.1:9/hooks");
    form(Some(ORIGIN)).send().await.ok(200);
}

async fn scopes_are_those_of_the_key(app: &TestApp) {
    let reader = SignedIn::with(app, &app.add_key(app.psp_id, &[Scope::Read]).await).await;
    for page in PAGES {
        let page_of_reader = reader.open(page).await;
        page_of_reader.assert_hides(&["class=\"stack\""]);
        if page == "/dashboard/keys" {
            page_of_reader.ok(403).assert_shows(&["lacks the scope `full`"]);
        } else {
            page_of_reader.ok(200);
        }
    }
    for (path, scope) in [
        ("/dashboard/webhook-url", "webhooks"),
        ("/dashboard/webhooks", "webhooks"),
        ("/dashboard/withdrawals", "money"),
        ("/dashboard/settings", "full"),
    ] {
        let refused = reader.confirm(path, &[]).await.ok(403);
        refused.assert_shows(&["Nothing was changed", &format!("lacks the scope `{scope}`")]);
    }
    for path in ["/dashboard/keys", "/dashboard/keys/key_x/revoke"] {
        reader.confirm(path, &[]).await.ok(403).assert_shows(&["lacks the scope `full`"]);
    }
    let webhooks = SignedIn::with(app, &app.add_key(app.psp_id, &[Scope::Read, Scope::Webhooks]).await).await;
    webhooks.open("/dashboard/webhooks").await.assert_shows(&["id=\"webhook-url\""]);
    webhooks.open("/dashboard/balances").await.assert_hides(&["id=\"withdrawal\""]);
}

#[tokio::test]
async fn sessions_of_production_are_sent_over_tls_only() {
    let app = TestApp::start_with(TestConfig { is_production: true, ..TestConfig::default() }).await;
    let entered = sign_in(&app, &app.key, "").await.ok(303);
    assert!(entered.header("set-cookie").unwrap().ends_with("; HttpOnly; SameSite=Strict; Secure"));
    SignedIn::with(&app, &app.key).await.open("/dashboard").await.ok(200).assert_hides(&["sandbox"]);
}

#[tokio::test]
async fn failed_sign_ins_are_limited_per_address() {
    let limits = Some(Limits { failed_keys_per_minute: 3, ..Limits::sandbox() });
    let app = TestApp::start_with(TestConfig { limits, ..TestConfig::default() }).await;
    let from = async |address: u8, key: &str| {
        post(&app, "/dashboard/login", &[("key", key)]).client_address([192, 0, 2, address]).send().await
    };
    app.get("/merchants").await.ok(200);
    for key in ["not a key", &unknown_key(), &forged(&app.key)] {
        from(1, key).await.ok(401);
    }
    for key in ["not a key", &unknown_key(), &forged(&app.key)] {
        let refused = from(1, key).await.ok(429);
        refused.assert_shows(&["Try again in 60 s."]);
        assert_eq!(refused.header("retry-after"), Some("60"));
    }
    from(2, "not a key").await.ok(401);
    // A key in use still signs in.
    from(1, &app.key).await.ok(303);
}

/// A page sends several requests to the API; only the page itself counts and is logged.
#[tokio::test]
async fn a_page_is_one_request() {
    let limits = Some(Limits { requests_at_once: 1, ..Limits::sandbox() });
    let app = TestApp::start_with(TestConfig { limits, ..TestConfig::default() }).await;
    let signed_in = SignedIn::with(&app, &app.key).await;
    listen();
    let page = signed_in.request(Method::GET, "/dashboard").header("x-request-id", "page-1").send().await.ok(200);
    assert_eq!(page.header("x-request-id"), Some("page-1"));
    signed_in.open("/dashboard/payments/pay_01J9Z3K4M5N6P7Q8R9S0T1V2W3").await.ok(404);
    let created = signed_in.confirm("/dashboard/keys", &[("scopes", "read"), ("expires_days", "1")]).await.ok(201);
    let log = heard();
    let answered: Vec<_> = log.lines().filter(|line| line.contains(" answered ")).collect();
    let expected = [
        "GET /dashboard answered 200",
        "GET /dashboard/payments/{payment_id} answered 404",
        "POST /dashboard/keys answered 201",
    ];
    let answered: Vec<_> = answered.iter().filter(|line| !line.contains("/openapi.json")).collect();
    assert_eq!(answered.len(), expected.len(), "{answered:#?}");
    for (line, expected) in answered.iter().zip(expected) {
        assert!(line.contains(expected), "{line}");
        assert!(line.contains(&format!("psp.id={}", app.psp_id)), "{line}");
    }
    let secret = super::shown_secret(&created);
    for hidden in [&app.key[40..], &secret[40..], signed_in.cookie.rsplit('.').next().unwrap()] {
        assert!(!log.contains(hidden), "a key or a session is logged");
    }
}
