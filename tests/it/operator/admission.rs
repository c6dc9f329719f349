//! Authentication of the operator's listener.

use std::time::Duration;

use payferry_accounts::operators::{self, OperatorRole, SESSION_SECS};
use payferry_operator::{Access, FAILED_ATTEMPTS_PER_MINUTE_MAX, Route, RouteQuery, table};
use reqwest::RequestBuilder;

use super::{TOKEN, concrete, reply};
use crate::prelude::*;

/// Every route with a concrete path.
fn routes() -> impl Iterator<Item = (Access, Method, String)> {
    table().into_iter().map(|route| (route.access, route.method, concrete(&route.path)))
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

    let login = |token: &str, next: &str| login(&service, token, next);
    reply(login("wrong", "/ops/stuck")).await.ok(401).assert_shows(&["role=\"alert\"", "value=\"/ops/stuck\""]);
    let elsewhere = reply(login(TOKEN, "https://evil.example/ops")).await;
    assert_eq!((elsewhere.status.as_u16(), elsewhere.header("location")), (303, Some("/ops")));
    let entered = reply(login(TOKEN, "/ops/actors")).await;
    assert_eq!((entered.status.as_u16(), entered.header("location")), (303, Some("/ops/actors")));
    let cookie = entered.header("set-cookie").unwrap();
    let (session, attributes) = cookie.split_once(';').unwrap();
    assert_eq!(attributes.trim(), format!("Path=/ops; Max-Age={SESSION_SECS}; HttpOnly; SameSite=Strict"));
    assert!(!session.contains(TOKEN));
    let tls = login(TOKEN, "/ops").header("host", "ops.example").header("origin", "https://ops.example");
    let tls = reply(tls).await;
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
    let ended = reply(with(Method::GET, "/ops/actors").header("accept", "text/html")).await.ok(401);
    assert!(ended.header("set-cookie").unwrap().contains("Max-Age=0"), "the browser deletes the cookie");
    reply(with(Method::GET, "/ops/actors")).await.assert_problem(401, "operator_session_over");
    let forged = session.replacen(char::is_numeric, "x", 1);
    let forged = reply(service.bare(Method::GET, "/ops/actors").header("cookie", forged)).await;
    forged.assert_problem(401, "operator_token_wrong");
}

/// Submits the login form.
fn login(service: &ServiceFixture, token: &str, next: &str) -> RequestBuilder {
    let fields =
        url::form_urlencoded::Serializer::new(String::new()).extend_pairs([("token", token), ("next", next)]).finish();
    let request = service.bare(Method::POST, "/ops/login").header("accept", "text/html");
    request.header("content-type", "application/x-www-form-urlencoded").body(fields)
}

/// Logs in and returns the session's cookie.
pub(super) async fn session(service: &ServiceFixture, token: &str) -> String {
    let entered = reply(login(service, token, "/ops")).await;
    assert_eq!(entered.status, 303, "{}", entered.text());
    entered.header("set-cookie").unwrap().split(';').next().unwrap().to_owned()
}

/// Creates an operator and returns the token.
pub(super) async fn create(service: &ServiceFixture, name: &str, role: OperatorRole) -> String {
    let system = &service.app.state.system;
    operators::create(system.database(), system.sealer(), name.parse().unwrap(), role, system.clock().real_now())
        .await
        .unwrap()
}

/// Entries about operators: actor, action, subject, attempts.
async fn entries(service: &ServiceFixture) -> Vec<String> {
    let page = service.get("/ops/audit?limit=500").await.ok(200);
    let entries = page["entries"].as_array().unwrap().iter().map(|entry| {
        let text = |name: &str| entry[name].as_str().unwrap().to_owned();
        let attempts = entry["detail"]["attempts"].as_u64().map_or_else(String::new, |count| format!(" {count}"));
        format!("{} {} {} {}{attempts}", text("actor_kind"), text("actor"), text("action"), text("subject"))
    });
    entries.filter(|entry| entry.contains("operator.")).collect()
}

#[tokio::test]
async fn correct_tokens_and_sessions_are_accepted_while_wrong_ones_are_throttled() {
    let service = ServiceFixture::start().await;
    let named = create(&service, "alice", OperatorRole::Viewer).await;
    let cookie = session(&service, TOKEN).await;
    for guess in 0..FAILED_ATTEMPTS_PER_MINUTE_MAX {
        let refused = reply(service.bare(Method::GET, "/ops/actors").bearer_auth(format!("guess {guess}"))).await;
        refused.assert_problem(401, "operator_token_wrong");
    }
    let held = reply(service.bare(Method::GET, "/ops/actors").bearer_auth("guess")).await;
    held.assert_problem(401, "operator_token_attempts");
    assert_eq!(held.header("retry-after"), Some("60"));
    let held = reply(login(&service, "guess", "/ops")).await;
    assert_eq!((held.status.as_u16(), held.header("retry-after")), (401, Some("60")));

    service.get("/ops/actors").await.ok(200);
    reply(service.bare(Method::GET, "/ops/actors").bearer_auth(&named)).await.ok(200);
    reply(service.bare(Method::GET, "/ops/actors").header("cookie", cookie)).await.ok(200);
    session(&service, TOKEN).await;
    session(&service, &named).await;
}

#[tokio::test]
async fn login_from_another_site_is_refused() {
    let service = ServiceFixture::start().await;
    let here = format!("http://{}", service.address);
    for foreign in ["https://evil.example", "null", ""] {
        let refused = reply(login(&service, TOKEN, "/ops").header("origin", foreign)).await;
        refused.assert_problem(403, "foreign_origin");
        assert_eq!(refused.header("set-cookie"), None);
    }
    assert_eq!(reply(login(&service, TOKEN, "/ops").header("origin", here)).await.status, 303);
    assert_eq!(entries(&service).await, ["operator admin operator.logged_in admin"]);
}

#[tokio::test]
async fn sessions_are_on_the_server_and_end_with_logout_expiry_or_a_new_token() {
    let service = ServiceFixture::start().await;
    let [left, stays, over] =
        [session(&service, TOKEN).await, session(&service, TOKEN).await, session(&service, TOKEN).await];
    let with = |cookie: &str| service.bare(Method::GET, "/ops/actors").header("cookie", cookie);
    let hash = |cookie: &str| {
        let id = cookie.split_once('=').unwrap().1;
        operators::OperatorCredential::Session.hash(id, service.app.state.system.sealer())
    };
    let ended = format!("UPDATE operator_sessions SET ends_at = 1 WHERE session_hash = '{}'", hash(&over));
    service.execute(&[ended]).await;
    reply(with(&over)).await.assert_problem(401, "operator_session_over");
    let origin = format!("http://{}", service.address);
    let logout = service.bare(Method::POST, "/ops/logout").header("cookie", &left).header("origin", origin);
    assert_eq!(reply(logout).await.status, 303);
    reply(with(&left)).await.assert_problem(401, "operator_session_over");
    reply(with(&stays)).await.ok(200);

    // A listener that starts later has no memory of the sessions.
    let ServiceFixture { app, .. } = service;
    let service = ServiceFixture::over(app).await;
    let with = |cookie: &str| service.bare(Method::GET, "/ops/actors").header("cookie", cookie);
    reply(with(&stays)).await.ok(200);
    for cookie in [&left, &over] {
        reply(with(cookie)).await.assert_problem(401, "operator_session_over");
    }
    let other = "UPDATE operator_sessions SET token_hash = 'of another token'".to_owned();
    service.execute(&[other]).await;
    reply(with(&stays)).await.assert_problem(401, "operator_session_over");
}

#[tokio::test]
async fn sessions_stay_valid_during_a_database_outage() {
    let service = ServiceFixture::start().await;
    let (used, unused) = (session(&service, TOKEN).await, session(&service, TOKEN).await);
    let with = |cookie: &str| service.bare(Method::GET, "/ops/overview").header("cookie", cookie);
    reply(with(&used)).await.ok(200);
    service.app.state.system.database().clone().close().await.unwrap();
    reply(with(&used)).await.ok(200);
    assert_eq!(reply(with(&unused)).await.status, 503, "the session is unknown");
    service.get("/ops/overview").await.ok(200);
}

#[tokio::test]
async fn logins_and_logouts_are_in_the_audit_log_and_guesses_cannot_fill_it() {
    let service = ServiceFixture::start().await;
    let token = create(&service, "alice", OperatorRole::Viewer).await;
    reply(login(&service, "guess", "/ops")).await.ok(401);
    let cookie = session(&service, &token).await;
    for _ in 0..2 * FAILED_ATTEMPTS_PER_MINUTE_MAX {
        reply(service.bare(Method::GET, "/ops").bearer_auth("guess")).await.ok(401);
    }
    let origin = format!("http://{}", service.address);
    let logout = service.bare(Method::POST, "/ops/logout").header("cookie", cookie).header("origin", origin);
    assert_eq!(reply(logout).await.status, 303);
    let expected = [
        "operator  operator.created alice",
        "service  operator.login_failed login 1",
        "operator alice operator.logged_in alice",
        "operator alice operator.logged_out alice",
    ];
    assert_eq!(entries(&service).await, expected);
    let page = service.get("/ops/audit?action=operator.logged_in").await;
    assert_eq!(page["entries"][0]["address"], "127.0.0.1");
    assert!(page["entries"][0]["request_id"].is_string());
}

#[test]
fn every_route_has_a_role() {
    let line = |route: Route| {
        let access = match route.access {
            Access::Open => "open",
            Access::Role(role) => role.as_str(),
        };
        format!("{access:<9}{:<6}{}", route.method.as_str(), route.path)
    };
    insta::assert_snapshot!("roles", table().into_iter().map(line).collect::<Vec<_>>().join("\n"));
}

#[tokio::test]
async fn unknown_query_parameters_are_refused_except_by_pages() {
    let service = ServiceFixture::start().await;
    for Route { method, path, query, .. } in table() {
        let path = concrete(&path);
        if path == "/ops/events" {
            continue;
        }
        let answer = reply(service.call(method.clone(), &format!("{path}?nope=1&zero="))).await;
        let RouteQuery::Names(known) = query else {
            assert!(!answer.text().contains("unknown_parameter"), "{method} {path}: {}", answer.text());
            continue;
        };
        answer.assert_problem(400, "invalid_parameters");
        let faults = "nope: unknown_parameter, zero: unknown_parameter";
        assert!(answer.faults().ends_with(faults), "{method} {path}: {}", answer.faults());
        for name in known {
            let answer = reply(service.call(method.clone(), &format!("{path}?{name}="))).await;
            assert!(!answer.text().contains("unknown_parameter"), "{method} {path} {name}: {}", answer.text());
        }
    }
    let events = reply(service.call(Method::GET, "/ops/events?nope=1")).await;
    assert_eq!(events.faults(), "nope: unknown_parameter");
    let bad = service.get("/ops/psps?limit=0&page=2").await;
    assert_eq!(bad.faults_sorted(), "limit: out_of_range, page: unknown_parameter");
}

#[tokio::test]
async fn operators_use_only_the_routes_of_their_role() {
    let service = ServiceFixture::start().await;
    for role in OperatorRole::ALL {
        let token = create(&service, &format!("one-{role}"), role).await;
        for (access, method, path) in routes() {
            let Access::Role(needed) = access else { continue };
            if path == "/ops/events" {
                continue;
            }
            let answer = reply(service.bare(method.clone(), &path).bearer_auth(&token)).await;
            if needed > role {
                answer.assert_problem(403, "operator_role_missing");
            } else {
                assert!(![401, 403].contains(&answer.status.as_u16()), "{role} {method} {path}: {}", answer.text());
            }
        }
        let page = service.bare(Method::POST, "/ops/view/psps").bearer_auth(&token).header("accept", "text/html");
        if role < OperatorRole::Admin {
            reply(page).await.ok(403).assert_shows(&["This needs the role admin"]);
        }
    }
}

#[tokio::test]
async fn revoked_operator_has_no_access_from_then_on() {
    let service = ServiceFixture::start().await;
    let (token, other) =
        (create(&service, "alice", OperatorRole::Admin).await, create(&service, "bob", OperatorRole::Admin).await);
    let (cookie, of_other) = (session(&service, &token).await, session(&service, &other).await);
    let by_token = |token: &str| service.bare(Method::GET, "/ops/actors").bearer_auth(token);
    let by_session = |cookie: &str| service.bare(Method::GET, "/ops/actors").header("cookie", cookie);
    reply(by_token(&token)).await.ok(200);
    reply(by_session(&cookie)).await.ok(200);
    let stream = service.bare(Method::GET, "/ops/events").header("cookie", &cookie).send().await.unwrap();
    assert_eq!(stream.status(), 200);

    let system = &service.app.state.system;
    let alice = || "alice".parse().unwrap();
    for _ in 0..2 {
        operators::revoke(system.database(), alice(), system.clock().real_now()).await.unwrap();
    }
    reply(by_token(&token)).await.assert_problem(401, "operator_token_wrong");
    reply(by_session(&cookie)).await.assert_problem(401, "operator_session_over");
    tokio::time::timeout(Duration::from_secs(30), stream.bytes()).await.expect("the stream ends").unwrap();
    reply(by_token(&other)).await.ok(200);
    reply(by_session(&of_other)).await.ok(200);

    // The name can be used again; the old token and its sessions stay revoked.
    let again = create(&service, "alice", OperatorRole::Viewer).await;
    reply(by_token(&again)).await.ok(200);
    reply(by_token(&token)).await.assert_problem(401, "operator_token_wrong");
    reply(by_session(&cookie)).await.assert_problem(401, "operator_session_over");
    let taken = operators::create(system.database(), system.sealer(), alice(), OperatorRole::Admin, Timestamp(0)).await;
    assert!(taken.unwrap_err().to_string().contains("there is already an operator alice"));
}

#[tokio::test]
async fn audit_entries_of_the_listener_name_the_operator() {
    let service = ServiceFixture::start().await;
    let token = create(&service, "alice", OperatorRole::Admin).await;
    let pause = json!({ "scope": "chain:base", "reason": "to see" });
    let call = |path: &str, body: &Value| service.bare(Method::POST, path).bearer_auth(&token).json(body);
    reply(call("/ops/pauses", &pause)).await.ok(200);
    service.lift("chain:base").await;
    let psp = reply(call("/ops/psps", &json!({ "name": "Northern Pay" }))).await.ok(201);
    let keys = format!("/ops/psps/{}/keys", psp["psp_id"].as_str().unwrap());
    reply(call(&keys, &json!({ "scopes": ["read"], "expires_days": 90 }))).await.ok(201);
    let page = service.get("/ops/audit?limit=500").await;
    let named: Vec<String> = page["entries"]
        .as_array()
        .unwrap()
        .iter()
        .map(|entry| {
            assert!(
                entry["actor_kind"] != "operator" || entry["actor"] != "" || entry["request_id"].is_null(),
                "{entry}"
            );
            format!("{} {}", entry["actor"].as_str().unwrap(), entry["action"].as_str().unwrap())
        })
        .collect();
    for wanted in ["alice pause.set", "admin pause.lifted", "alice psp.created", "alice key.created"] {
        assert!(named.iter().any(|one| one == wanted), "{wanted} in {named:?}");
    }
}
