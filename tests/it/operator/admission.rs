//! Authentication of the operator's listener.

use payferry_operator::{Access, FAILED_ATTEMPTS_PER_MINUTE_MAX, SESSION_SECS, table};

use super::{TOKEN, concrete, reply};
use crate::prelude::*;

/// Every route with a concrete path.
fn routes() -> impl Iterator<Item = (Access, Method, String)> {
    table().into_iter().map(|route| (route.access, route.method, concrete(route.path)))
}

#[tokio::test]
async fn everything_except_health_metrics_and_login_requires_the_token() {
    let open = ["GET /healthz", "GET /readyz", "GET /metrics", "GET /ops/login", "POST /ops/login"];
    let is_open =
        |(access, method, path): (Access, Method, String)| (access == Access::Open).then(|| format!("{method} {path}"));
    assert_eq!(routes().filter_map(is_open).collect::<Vec<_>>(), open);
    let mut service = ServiceFixture::start().await;
    let mut wrong = 0;
    for (access, method, path) in routes() {
        let bare = reply(service.bare(method.clone(), &path)).await;
        for (name, value) in [
            ("x-frame-options", "DENY"),
            ("x-content-type-options", "nosniff"),
            ("cache-control", "no-store"),
            ("referrer-policy", "same-origin"),
        ] {
            assert_eq!(bare.header(name), Some(value), "{method} {path}");
        }
        let policy = bare.header("content-security-policy").unwrap();
        assert!(policy.starts_with("default-src 'none'; ") && policy.ends_with("frame-ancestors 'none'"), "{policy}");
        if access == Access::Open {
            assert_ne!(bare.status, 401, "{method} {path}");
            continue;
        }
        bare.assert_problem(401, "operator_token_missing");
        assert_eq!(bare.header("www-authenticate"), Some("Bearer realm=\"payferry operator\""));
        wrong += 1;
        if wrong % FAILED_ATTEMPTS_PER_MINUTE_MAX == 0 {
            service = ServiceFixture::start().await;
        }
        reply(service.bare(method.clone(), &path).bearer_auth("wrong"))
            .await
            .assert_problem(401, "operator_token_wrong");
        let with_key = reply(service.bare(method.clone(), &path).basic_auth("operator", Some(TOKEN))).await;
        with_key.assert_problem(401, "operator_token_missing");
        let page = reply(service.bare(method.clone(), &path).header("accept", "text/html,*/*;q=0.8")).await;
        assert_eq!((page.status.as_u16(), page.header("content-type")), (401, Some("text/html; charset=utf-8")));
        page.assert_shows(&["action=\"/ops/login\""]);
    }
    assert!(wrong > 1);
    // Unknown paths are not disclosed without a token either.
    reply(service.bare(Method::GET, "/ops/nowhere")).await.assert_problem(401, "operator_token_missing");
    service.get("/ops/nowhere").await.assert_problem(404, "route_not_found");
}

#[tokio::test]
async fn browser_logs_in_and_out() {
    let service = ServiceFixture::start().await;
    let form = reply(service.bare(Method::GET, "/ops/login")).await.ok(200);
    assert!(form.text().contains("name=\"token\"") && !form.text().contains("<script"), "{}", form.text());
    let asked = reply(service.bare(Method::GET, "/ops/actors?kind=<b>").header("accept", "text/html")).await;
    asked.assert_shows(&["value=\"/ops/actors?kind=%3Cb%3E\""]);

    let login = |token: &str, next: &str| {
        let fields = url::form_urlencoded::Serializer::new(String::new())
            .extend_pairs([("token", token), ("next", next)])
            .finish();
        let request = service.bare(Method::POST, "/ops/login").header("accept", "text/html");
        request.header("content-type", "application/x-www-form-urlencoded").body(fields)
    };
    reply(login("wrong", "/ops/stuck")).await.ok(401).assert_shows(&["role=\"alert\"", "value=\"/ops/stuck\""]);
    let elsewhere = reply(login(TOKEN, "https://evil.example/ops")).await;
    assert_eq!((elsewhere.status.as_u16(), elsewhere.header("location")), (303, Some("/ops")));
    let entered = reply(login(TOKEN, "/ops/actors")).await;
    assert_eq!((entered.status.as_u16(), entered.header("location")), (303, Some("/ops/actors")));
    let cookie = entered.header("set-cookie").unwrap();
    let (session, attributes) = cookie.split_once(';').unwrap();
    assert_eq!(attributes.trim(), format!("Path=/ops; Max-Age={SESSION_SECS}; HttpOnly; SameSite=Strict"));
    assert!(!session.contains(TOKEN));
    let tls = reply(login(TOKEN, "/ops").header("origin", "https://ops.example")).await;
    assert!(tls.header("set-cookie").unwrap().ends_with("; Secure"));

    let with = |method, path: &str| service.bare(method, path).header("cookie", session);
    assert_eq!(reply(with(Method::GET, "/ops/actors")).await.status, 200);
    let release = "/ops/actors/pay_01J9Z3K4M5N6P7Q8R9S0T1V2W3/release";
    let origin = format!("http://{}", service.address);
    reply(with(Method::POST, release)).await.assert_problem(403, "foreign_origin");
    let foreign = reply(with(Method::POST, release).header("origin", "https://evil.example")).await;
    foreign.assert_problem(403, "foreign_origin");
    reply(with(Method::POST, release).header("origin", &origin)).await.assert_problem(409, "payment_not_quarantined");
    // A program that sends the token needs no origin.
    service.post(release, &json!({})).await.assert_problem(409, "payment_not_quarantined");

    let left = reply(with(Method::POST, "/ops/logout").header("origin", &origin)).await;
    assert_eq!((left.status.as_u16(), left.header("location")), (303, Some("/ops/login")));
    assert!(left.header("set-cookie").unwrap().contains("Max-Age=0"));
    let forged = session.replacen(char::is_numeric, "9", 1);
    let forged = reply(service.bare(Method::GET, "/ops/actors").header("cookie", forged).header("accept", "text/html"))
        .await
        .ok(401);
    assert!(forged.header("set-cookie").unwrap().contains("Max-Age=0"), "the browser deletes the cookie");
}

#[tokio::test]
async fn token_guesses_are_rate_limited() {
    let service = ServiceFixture::start().await;
    for guess in 0..FAILED_ATTEMPTS_PER_MINUTE_MAX {
        let refused = reply(service.bare(Method::GET, "/ops/actors").bearer_auth(format!("guess {guess}"))).await;
        refused.assert_problem(401, "operator_token_wrong");
    }
    let held = service.get("/ops/actors").await;
    held.assert_problem(401, "operator_token_attempts");
    assert_eq!(held.header("retry-after"), Some("60"));
    assert_eq!(reply(service.bare(Method::GET, "/healthz")).await.status, 200);
}
