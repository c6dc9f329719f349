//! Cursors of the operator's lists. Those of `/ops/stuck` are tested with its pages.

use payferry_accounts::operators::OperatorRole;

use super::admission::create;
use super::reply;
use crate::http::cursors::assert_walk;
use crate::http::customers::paid_out::{register, withdrawal};
use crate::http::customers::{add, individual};
use crate::prelude::*;

#[tokio::test]
async fn every_list_has_cursors_that_neither_repeat_nor_skip() {
    let app = TestApp::start_with_chains().await;
    app.paid("10", "settled").await;
    register(&app).await;
    let service = ServiceFixture::serve(app, true).await;
    let get = async |path: &str| service.get(path).await;
    let create_psp = async || service.post("/ops/psps", &json!({ "name": "Northern Pay" })).await.ok(201);
    assert_walk(&get, "/ops/psps", "psps", async || drop(create_psp().await)).await;
    assert_walk(&get, "/ops/audit", "entries", async || drop(create_psp().await)).await;
    let keys = format!("/ops/psps/{}/keys", service.app.psp_id);
    let key = json!({ "scopes": ["read"], "expires_days": 1 });
    assert_walk(&get, &keys, "keys", async || drop(service.post(&keys, &key).await.ok(201))).await;
    assert_walk(&get, "/ops/customers", "customers", async || drop(add(&service.app, &individual()).await)).await;
    let alice = create(&service, "alice", OperatorRole::Admin).await;
    let propose = async || {
        let path = format!("/ops/psps/{}", create_psp().await.string("id"));
        let raise = service.bare(Method::PATCH, &path).bearer_auth(&alice).json(&json!({ "send_max": "900000" }));
        reply(raise).await.ok(202);
    };
    assert_walk(&get, "/ops/approvals", "approvals", propose).await;
    let hold = async || drop(service.hold(&format!("psp:{}", create_psp().await.string("id"))).await);
    assert_walk(&get, "/ops/pauses", "pauses", hold).await;
    service.hold("sending").await;
    let withdraw = async || drop(service.app.post("/withdrawals", &withdrawal("0.01")).await.ok(202));
    assert_walk(&get, "/ops/sendings", "sendings", withdraw).await;

    let wallets = format!("psps/{}/withdrawal-wallets", service.app.psp_id);
    let lists = ["psps", "audit", "customers", "approvals", "pauses", "sendings", "shards/0", "stuck?kind=paused"];
    for path in lists.into_iter().chain([wallets.as_str()]) {
        let and = if path.contains('?') { '&' } else { '?' };
        let refused = service.get(&format!("/ops/{path}{and}cursor=x")).await;
        assert_eq!(refused.faults(), "cursor: invalid_cursor", "{path}");
    }
    let unowned = service.get("/ops/stuck?cursor=x").await;
    assert_eq!(unowned.faults(), "cursor: invalid_cursor, cursor: invalid_cursor");
    let refused = service.get("/ops/sendings?cursor=x&after=po_1").await;
    assert_eq!(refused.faults_sorted(), "after: invalid_id, cursor: invalid_cursor");
}

#[tokio::test]
async fn pages_of_a_shard_follow_each_other() {
    let service = ServiceFixture::start_with_chains().await;
    let mut made = Vec::new();
    for _ in 0..12 {
        made.push(service.app.add_payment().await.id().to_owned());
    }
    let (mut walked, mut shard) = (Vec::new(), 0);
    loop {
        let mut path = format!("/ops/shards/{shard}?limit=1");
        let mut page = service.get(&path).await;
        if page.status == 404 {
            break;
        }
        loop {
            walked.extend(column(&page["payments"], "id").iter().map(|id| id.as_str().unwrap().to_owned()));
            let Some(cursor) = page["next_cursor"].as_str() else { break };
            path = format!("/ops/shards/{shard}?limit=1&cursor={cursor}");
            page = service.get(&path).await.ok(200);
        }
        shard += 1;
    }
    made.sort_unstable();
    walked.sort_unstable();
    assert_eq!(walked, made);
}
