//! Outbound transfers of the mixture: a sound service passes, and a lost, doubled or wrong one is found.

use serde_json::{Value, json};

use super::faults::{assert_found, planted, sandbox_with};
use super::{against, only_finding, report, run};
use crate::call::assert_has;

/// Behaviours with outbound transfers, among others.
const MIX: &str = "refunded=60,paid_out=20,withdrawn=20";

/// Returns the figures of a kind.
fn figures<'a>(report: &'a Value, kind: &str) -> &'a Value {
    let of = report["outbound"].as_array().unwrap().iter().find(|of| of["kind"] == kind);
    of.unwrap_or_else(|| panic!("no {kind}: {:#}", report["outbound"]))
}

#[tokio::test]
async fn passes_outbound_transfers_of_a_sound_service() {
    let temp = tempfile::tempdir().unwrap();
    let files = ["html", "prom"].map(|name| temp.path().join(name));
    let [page, metrics] = files.each_ref().map(|file| file.display());
    let args = format!("--rate 20/s --payments 100 --mix {MIX} --block-time-ms 100 --json");
    let report = report(&run(&format!("{args} --report {page} --prometheus {metrics}")).await, 0);
    assert_has(&report, json!({ "findings": [], "errors": {}, "audited": true, "notes": [] }));
    assert_has(
        &report["counted"],
        json!({ "due": 100, "accepted": 100, "complete": 100, "settled": 100, "foreign": 0 }),
    );
    for (kind, count) in [("refund", 60), ("payout", 20), ("withdrawal", 20)] {
        let of = figures(&report, kind);
        assert_has(of, json!({ "requested": count, "not_accepted": 0, "complete": count }));
        let stages = of["stages"].as_array().unwrap();
        let p50 = |place: usize| stages[place]["from_request"]["p50_ms"].as_f64().unwrap();
        assert!(stages.iter().all(|of| of["from_request"]["count"] == count && of["timed_out"] == 0), "{of:#}");
        assert!(p50(0) < p50(1) && p50(1) <= p50(2), "{of:#}");
    }
    let holdings = report["holdings"].as_array().unwrap();
    assert!(holdings.iter().all(|of| of["equal"] == true && of["balance_grew"] == of["postings_say"]), "{holdings:#?}");
    let [page, metrics] = files.map(|file| std::fs::read_to_string(file).unwrap());
    assert!(page.contains("refund complete"), "{page}");
    assert!(
        metrics.contains(r#"payferry_load_outbound_seconds{kind="refund",stage="sent",quantile="0.99"}"#),
        "{metrics}"
    );
}

#[tokio::test]
async fn kills_lose_and_double_no_outbound_transfer() {
    let args = format!("--rate 10/s --duration 12s --mix {MIX} --block-time-ms 100 --json --fault 'kill@5s; kill@9s'");
    let report = report(&run(&args).await, 0);
    assert_has(&report, json!({ "findings": [], "audited": true }));
    for kind in ["refund", "payout", "withdrawal"] {
        assert_eq!(figures(&report, kind)["not_accepted"], 0, "{:#}", report["outbound"]);
    }
}

/// Marks the webhook of one refund as delivered without sending it.
const DROP_ONE_REFUND_WEBHOOK: &str = "
    CREATE TRIGGER plant AFTER INSERT ON deliveries
    WHEN (SELECT name FROM events WHERE id = NEW.event_id) = 'refund.sent'
        AND (SELECT count(*) FROM events WHERE name = 'refund.sent') >= {nth} AND (SELECT count(*) FROM planted) = 0
    BEGIN
        UPDATE deliveries SET status = 'delivered', next_attempt_at = NULL WHERE id = NEW.id;
        INSERT INTO planted VALUES (NEW.payment_id);
    END";

/// Posts one refund to the ledger a second time. The balance is right.
const DOUBLE_ONE_REFUND_POSTING: &str = "
    CREATE TRIGGER plant AFTER INSERT ON ledger_postings
    WHEN NEW.kind = 'sent' AND NEW.subject GLOB 'pay_*' AND (SELECT count(*) FROM ledger_postings WHERE kind = 'sent') >= {nth}
        AND (SELECT count(*) FROM planted) = 0
    BEGIN
        INSERT INTO planted VALUES (NEW.subject);
        INSERT INTO ledger_postings (subject, version, line, psp_id, kind, debit, credit, chain, token_address, amount,
                reference, at)
            VALUES (NEW.subject, NEW.version, NEW.line + 100, NEW.psp_id, NEW.kind, 'psp', 'external', NEW.chain,
                NEW.token_address, NEW.amount, NEW.reference, NEW.at);
    END";

/// Loses one payout that was accepted.
const LOSE_ONE_PAYOUT: &str = "
    CREATE TRIGGER plant AFTER INSERT ON deliveries
    WHEN (SELECT name FROM events WHERE id = NEW.event_id) = 'payout.sent' AND (SELECT count(*) FROM planted) = 0
    BEGIN
        INSERT INTO planted VALUES (NEW.payment_id);
        DELETE FROM sending_transitions WHERE sending_id = NEW.payment_id;
        DELETE FROM sendings WHERE id = NEW.payment_id;
    END";

/// Puts load on a sandbox with this defect. Returns the report and the subject with the defect.
async fn load_with(defect: &str) -> (Value, String) {
    let (sandbox, database) = sandbox_with(defect).await;
    let further = format!("--rate 20/s --payments 80 --mix {MIX} --settle-timeout 15 --json");
    let report = report(&run(&against(&sandbox, &further)).await, 1);
    let [subject] = planted(&database).await.try_into().expect("the defect was planted");
    sandbox.kill();
    (report, subject)
}

#[tokio::test]
async fn finds_a_missing_event_of_a_refund() {
    let (report, payment_id) = load_with(DROP_ONE_REFUND_WEBHOOK).await;
    let finding = only_finding(&report);
    assert_eq!(finding["payment_id"], payment_id, "{finding:#}");
    assert_found(finding, "undelivered", Some("refunded"), &["missing: refund.sent (event 5)", "delivery log:"]);
    assert!(finding["expected"].as_str().unwrap().contains("; refund of "), "{finding:#}");
    let complete = &figures(&report, "refund")["stages"][2];
    assert_eq!(complete["timed_out"], 1, "{complete:#}");
}

#[tokio::test]
async fn finds_the_payment_of_a_doubled_refund_posting() {
    let (report, payment_id) = load_with(DOUBLE_ONE_REFUND_POSTING).await;
    let findings = report["findings"].as_array().unwrap().iter();
    let [finding] = findings.filter(|one| one["payment_id"] == *payment_id).collect::<Vec<_>>().try_into().unwrap();
    assert_found(finding, "wrong", Some("refunded"), &["the ledger has `reserved ", ", sent ", "` of rf_"]);
}

#[tokio::test]
async fn finds_a_lost_payout() {
    let (report, payout_id) = load_with(LOSE_ONE_PAYOUT).await;
    let finding = only_finding(&report);
    assert_found(finding, "lost", Some("paid_out"), &["the service no longer has the payout of 1.00"]);
    assert!(payout_id.starts_with("po_"), "{payout_id}");
}
