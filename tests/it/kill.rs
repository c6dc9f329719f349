//! The real binary is killed at random times and after every step of a settlement, under load.
//!
//! Longer runs: `cargo run -p payferry-harness --bin kill -- --help`.

use payferry_harness::database::TestDatabase;
use payferry_harness::kill::Run;
use payferry_harness::kill::kill_log::{KillKind, STEPS};
use payferry_harness::nodes::{NodeFault, NodesPlan};
use payferry_harness::process::Binary;
use payferry_harness::short_or_long;

async fn survives(kills: usize, database: TestDatabase) {
    let run = Run::new(Binary::at(env!("CARGO_BIN_EXE_payferry")), kills, database.url());
    let report = run.report().await;
    println!("{report}");
    assert!(report.findings.is_empty(), "{report}");
    assert_eq!(report.kills as usize, kills);
    for step in STEPS {
        let after = KillKind::After(step, 1).to_string();
        assert!(report.kills_by_kind.contains_key(&after), "never killed {after}");
    }
    // A run without activity proves nothing.
    assert!(report.settlements > 0 && report.requests_retried > 0 && report.payments_by_status.len() == 3, "{report}");
    for kind in ["refund", "payout", "withdrawal", "transfer"] {
        assert!(report.moved_out.contains_key(kind), "no {kind} was sent: {report}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn kills_on_sqlite_lose_nothing() {
    survives(short_or_long(10, 20), TestDatabase::sqlite()).await;
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "long"]
async fn kills_on_postgres_lose_nothing() {
    survives(20, TestDatabase::postgres().await).await;
}

/// Several nodes, of which one at a time is killed, frozen or restarted.
#[tokio::test(flavor = "multi_thread")]
async fn faults_of_nodes_lose_nothing() {
    let database = TestDatabase::postgres().await;
    let faults = |short, long| short_or_long(short, long);
    let plan = NodesPlan {
        nodes: 3,
        faults: [
            (NodeFault::Killed, faults(2, 50)),
            (NodeFault::Gone, faults(1, 50)),
            (NodeFault::Frozen, faults(3, 20)),
            (NodeFault::Restarted, faults(1, 10)),
        ]
        .into(),
    };
    let mut run = Run::new(Binary::at(env!("CARGO_BIN_EXE_payferry")), 0, database.url());
    run.nodes = Some(plan);
    let report = run.report().await;
    println!("{report}");
    assert!(report.findings.is_empty(), "{report}");
    assert!(report.settlements > 0 && report.requests_retried > 0 && report.payments_by_status.len() == 3, "{report}");
}
