//! Cursors, transfers, operations, and their transactions.

use payferry_entities::chain_outages;

use super::*;
use crate::writer::{MovedAmounts, OperationChange, OperationRefusal, RefusedOperation};

fn write(batch: ChainBatch) -> JournalWrite {
    JournalWrite::ChainBatch(lease(), Box::new(batch))
}

#[tokio::test]
async fn a_cursor_moves_only_from_its_expected_position() {
    let env = Env::running().await;
    env.submit(write(batch(None, "0xa", 1))).await.unwrap();
    assert!(matches!(env.submit(write(batch(None, "0xb", 1))).await, Err(JournalError::Conflict)));
    env.submit(write(batch(Some("0xa"), "0xb", 2))).await.unwrap();
    assert!(matches!(env.submit(write(batch(Some("0xa"), "0xc", 2))).await, Err(JournalError::Conflict)));

    let mut newer = batch(Some("0xb"), "0xd", 3);
    newer.cursor.epoch = 5;
    env.submit(write(newer)).await.unwrap();
    let older = batch(Some("0xd"), "0xe", 4);
    assert!(matches!(env.submit(write(older)).await, Err(JournalError::Conflict)), "another node has the lease");
    let cursors = env.all::<chain_cursors::Entity>().await;
    assert_eq!((cursors[0].block_number, cursors[0].epoch), (3, 5));
}

#[tokio::test]
async fn headers_follow_a_reorganisation() {
    let env = Env::running().await;
    let mut first = batch(None, "0x3", 3);
    first.headers = (1..=3).map(|n| header(&format!("0x{n}"), n)).collect();
    env.submit(write(first)).await.unwrap();
    let mut reorged = batch(Some("0x3"), "0x4b", 4);
    reorged.orphaned_blocks = vec!["0x3".to_owned()];
    reorged.headers = vec![header("0x3b", 3), header("0x4b", 4)];
    reorged.headers_keep_from = 2;
    env.submit(write(reorged)).await.unwrap();
    let hashes: Vec<_> = env.all::<chain_headers::Entity>().await.into_iter().map(|row| row.hash).collect();
    assert_eq!(hashes, ["0x2", "0x3b", "0x4b"]);
}

#[tokio::test]
async fn a_transfer_in_another_block_is_another_row() {
    let env = Env::running().await;
    let payment = env.payment("1").await;
    let other = env.payment("2").await;
    let found = |before, after, number, rows| ChainBatch { transfers: rows, ..batch(before, after, number) };

    let seen = vec![transfer("0x1", &payment, "0xa", 1), transfer("0x2", &other, "0xa", 1)];
    let receipt = env.submit(write(found(None, "0xa", 1, seen.clone()))).await.unwrap();
    assert_eq!(receipt.transfers.len(), 2);
    assert!(receipt.transfers.iter().all(|row| (row.revision, row.applied_revision, row.applied_version) == (1, 0, 0)));

    let receipt = env.submit(write(found(Some("0xa"), "0xb", 2, seen.clone()))).await.unwrap();
    assert!(receipt.transfers.is_empty(), "already known");

    // The block is orphaned. One transfer is mined again immediately in another block, the other later.
    let mut reorged = found(Some("0xb"), "0xc", 2, vec![transfer("0x1", &payment, "0xc", 2)]);
    reorged.orphaned_blocks = vec!["0xa".to_owned()];
    let receipt = env.submit(write(reorged)).await.unwrap();
    let notified: Vec<_> = receipt
        .transfers
        .iter()
        .map(|row| (row.tx_hash.as_str(), row.presence.as_str(), row.block_hash.as_str()))
        .collect();
    let orphaned = [("0x1", "orphaned", "0xa"), ("0x2", "orphaned", "0xa")];
    assert_eq!((&notified[..2], notified[2]), (&orphaned[..], ("0x1", "present", "0xc")));
    assert_eq!(receipt.transfers.iter().map(|row| row.revision).collect::<Vec<_>>(), [2, 2, 1]);

    let again = found(Some("0xc"), "0xd", 3, vec![transfer("0x2", &other, "0xa", 1)]);
    let receipt = env.submit(write(again)).await.unwrap();
    assert_eq!((receipt.transfers[0].presence.as_str(), receipt.transfers[0].revision), ("present", 3));
}

#[tokio::test]
async fn a_batch_with_an_outdated_cursor_writes_no_transfer() {
    let env = Env::running().await;
    let payment = env.payment("1").await;
    let mut stale = batch(Some("0xnone"), "0xa", 1);
    stale.transfers = vec![transfer("0x1", &payment, "0xa", 1)];
    assert!(matches!(env.submit(write(stale)).await, Err(JournalError::Conflict)));
    assert_eq!(env.count::<transfers::Entity>().await, 0);
    assert_eq!(env.count::<chain_headers::Entity>().await, 0);
}

#[tokio::test]
async fn a_deposit_is_posted_once_when_its_block_is_final() {
    let env = Env::running().await;
    let payment = env.payment("1").await;
    let deposit = |block_hash: &str, block_number| deposits::Model {
        chain: "base".to_owned(),
        tx_hash: "0x1".to_owned(),
        log_index: 4,
        block_hash: block_hash.to_owned(),
        psp_id: payment.psp_id.clone(),
        token_address: "0xusdc".to_owned(),
        from_address: "0xstranger".to_owned(),
        amount: 1,
        block_number,
        posted: false,
        created_at: 5,
    };
    let rows = async || {
        let rows = env.all::<deposits::Entity>().await;
        rows.into_iter().map(|row| (row.block_hash, row.posted)).collect::<Vec<_>>()
    };
    let row = |block_hash: &str, posted| (block_hash.to_owned(), posted);
    let found = |before, after, number, keep_from, deposits| ChainBatch {
        deposits,
        headers_keep_from: keep_from,
        ..batch(before, after, number)
    };
    let posted_before = env.count::<ledger_postings::Entity>().await;
    env.submit(write(found(None, "0xa", 1, 1, vec![deposit("0xa", 1)]))).await.unwrap();
    // Its block is orphaned, and it is mined again.
    let mut reorged = found(Some("0xa"), "0xb", 2, 1, vec![deposit("0xb", 2)]);
    reorged.orphaned_blocks = vec!["0xa".to_owned()];
    env.submit(write(reorged)).await.unwrap();
    assert_eq!(rows().await, [row("0xb", false)]);
    assert_eq!(env.count::<ledger_postings::Entity>().await, posted_before);

    env.submit(write(found(Some("0xb"), "0xc", 3, 3, Vec::new()))).await.unwrap();
    // A rescan finds it again.
    env.submit(write(found(Some("0xc"), "0xd", 4, 4, vec![deposit("0xb", 2)]))).await.unwrap();
    assert_eq!(rows().await, [row("0xb", true)]);
    let postings = env.all::<ledger_postings::Entity>().await;
    let posted: Vec<_> = postings.iter().filter(|posting| posting.kind == "deposited").collect();
    let [posting] = posted.as_slice() else { panic!("{postings:?}") };
    let accounts = (posting.debit.as_str(), posting.credit.as_str(), posting.amount);
    assert_eq!((accounts, posting.subject.as_str()), (("external", "suspense", 1), "dep_base_0x1_4"));
    assert_eq!((&posting.psp_id, posting.reference.as_str()), (&payment.psp_id, "0x1"));

    // A reorganisation below the remembered blocks: only the block that now has the transaction shows that 0xb is gone.
    env.submit(write(found(Some("0xd"), "0xe", 5, 4, vec![deposit("0xe", 5)]))).await.unwrap();
    assert_eq!(rows().await, [row("0xe", false)]);
    env.submit(write(found(Some("0xe"), "0xf", 6, 6, Vec::new()))).await.unwrap();
    assert_eq!(rows().await, [row("0xe", true)]);
    let mut postings = env.all::<ledger_postings::Entity>().await;
    postings.retain(|posting| posting.kind == "deposited");
    let versions: Vec<_> = postings.iter().map(|posting| (posting.version, posting.credit.as_str())).collect();
    assert_eq!(versions, [(1, "suspense"), (2, "external"), (3, "suspense")]);
}

#[tokio::test]
async fn a_transaction_in_a_new_block_orphans_its_earlier_block() {
    let env = Env::running().await;
    let (payment, other) = (env.payment("1").await, env.payment("2").await);
    let found = |before, after, number, transfers| ChainBatch { transfers, ..batch(before, after, number) };
    let both = vec![transfer("0x1", &payment, "0xa", 1), transfer("0x2", &other, "0xa", 1)];
    env.submit(write(found(None, "0xa", 1, both))).await.unwrap();
    // Nothing says that 0xa is orphaned: it was forgotten long ago.
    let again = found(Some("0xa"), "0xb", 2, vec![transfer("0x1", &payment, "0xb", 2)]);
    let receipt = env.submit(write(again)).await.unwrap();
    let notified: Vec<_> = receipt
        .transfers
        .iter()
        .map(|row| (row.tx_hash.as_str(), row.presence.as_str(), row.block_hash.as_str()))
        .collect();
    assert_eq!(notified, [("0x1", "orphaned", "0xa"), ("0x2", "orphaned", "0xa"), ("0x1", "present", "0xb")]);
}

async fn queue_operations(env: &Env, names: &[&str]) {
    let mut writes = Vec::new();
    for name in names {
        let payment = env.payment(name).await;
        let mut write = transition(&payment, 0);
        write.consequences.operations =
            vec![OperationChange::Queue(Box::new(operation(&format!("op_{name}"), &payment)))];
        writes.push(boxed(write));
    }
    let submitting = env.queue(writes).await;
    assert!(answers(submitting).await.iter().all(Result::is_ok));
}

async fn change(env: &Env, name: &str, version: i64, change: OperationChange) {
    let mut write = transition(&payments::Model { version, ..payment_row(name) }, 0);
    write.consequences.operations = vec![change];
    env.submit(boxed(write)).await.unwrap();
}

#[tokio::test]
async fn an_operation_is_queued_again_with_other_amounts() {
    let env = Env::running().await;
    queue_operations(&env, &["1", "2"]).await;
    change(&env, "2", 2, OperationChange::Cancel { id: "op_2".to_owned() }).await;
    let mut again = operation("op_2", &payment_row("2"));
    (again.amount, again.psp_amount, again.treasury_fee) = (20, 18, 2);
    change(&env, "2", 3, OperationChange::Queue(Box::new(again))).await;
    let rows = operations_by_id(&env).await;
    let found: Vec<_> = rows.iter().map(|row| (row.id.as_str(), row.amount, row.revision)).collect();
    assert_eq!(found, [("op_1", 10_000_000, 1), ("op_2", 20, 3)]);
    assert_eq!(rows[1].status.as_str(), "queued");
}

/// Returns the ids, statuses and revisions of the operations in the receipt.
fn notified(receipt: &Receipt) -> Vec<(&str, &str, i64)> {
    let operations = receipt.operations.iter();
    let mut notified: Vec<_> = operations.map(|row| (row.id.as_str(), row.status.as_str(), row.revision)).collect();
    notified.sort_unstable();
    notified
}

async fn operations_by_id(env: &Env) -> Vec<operations::Model> {
    let mut rows = env.all::<operations::Entity>().await;
    rows.sort_by(|a, b| a.id.cmp(&b.id));
    rows
}

/// Amounts that the chain reports of the mined operations.
const CARRIED: Option<MovedAmounts> =
    Some(MovedAmounts { amount: 90, psp_amount: 80, treasury_fee: 10, log_index: None });

#[tokio::test]
async fn an_operation_passes_through_its_states() {
    let env = Env::running().await;
    queue_operations(&env, &["1", "2"]).await;
    let receipt = env.submit(submission(0, &[("op_1", 1), ("op_2", 1)])).await.unwrap();
    let chain_tx_id = receipt.chain_tx_id.unwrap();
    let rows = env.all::<operations::Entity>().await;
    assert!(rows.iter().all(|row| row.status.as_str() == "submitted" && row.attempts == 1));
    assert!(rows.iter().all(|row| row.chain_tx_id == Some(chain_tx_id)));
    assert_eq!(env.count::<chain_tx_attempts::Entity>().await, 1);

    // A submitted operation can be neither cancelled nor queued again.
    change(&env, "1", 2, OperationChange::Cancel { id: "op_1".to_owned() }).await;
    change(&env, "1", 3, OperationChange::Queue(Box::new(operation("op_1", &payment_row("1"))))).await;
    change(&env, "1", 4, OperationChange::Succeeded { id: "op_1".to_owned(), revision: 1 }).await;
    let row = operations_by_id(&env).await.remove(0);
    assert_eq!((row.status.as_str(), row.revision), ("submitted", 1));

    let receipt =
        env.submit(outcome(chain_tx_id, "mined", &[("op_1", "mined"), ("op_2", "queued")], CARRIED)).await.unwrap();
    assert_eq!(notified(&receipt), [("op_1", "mined", 2), ("op_2", "queued", 2)]);
    let tx = &env.all::<chain_txs::Entity>().await[0];
    assert_eq!((tx.status.as_str(), tx.tx_hash.as_deref(), tx.block_number), ("mined", Some("0xmined"), Some(9)));

    // A success at an earlier revision was orphaned, so it does not match the current one.
    change(&env, "1", 5, OperationChange::Succeeded { id: "op_1".to_owned(), revision: 1 }).await;
    let row = operations_by_id(&env).await.remove(0);
    assert_eq!(row.status.as_str(), "mined");
    assert_eq!((row.amount, row.psp_amount, row.treasury_fee), (90, 80, 10), "the amounts that the chain reports");
    change(&env, "1", 6, OperationChange::Succeeded { id: "op_1".to_owned(), revision: 2 }).await;
    change(&env, "2", 2, OperationChange::Cancel { id: "op_2".to_owned() }).await;
    // The transaction is orphaned: the succeeded operation is submitted again, the cancelled one does not change.
    let receipt = env
        .submit(outcome(chain_tx_id, "submitted", &[("op_1", "submitted"), ("op_2", "submitted")], CARRIED))
        .await
        .unwrap();
    assert_eq!(receipt.operations.len(), 1);
    assert_eq!((receipt.operations[0].status.as_str(), receipt.operations[0].revision), ("submitted", 3));
    assert_eq!(receipt.operations[0].tx_hash, None);
    // The transaction is mined in another block. The cancelled operation becomes mined too, because its funds have
    // moved.
    let receipt =
        env.submit(outcome(chain_tx_id, "mined", &[("op_1", "mined"), ("op_2", "mined")], CARRIED)).await.unwrap();
    assert_eq!(notified(&receipt), [("op_1", "mined", 4), ("op_2", "mined", 4)]);

    assert!(matches!(env.submit(outcome(999, "mined", &[], CARRIED)).await, Err(JournalError::Conflict)));
}

#[tokio::test]
async fn signed_bytes_require_a_free_nonce_and_unchanged_operations() {
    let env = Env::running().await;
    queue_operations(&env, &["1", "2"]).await;
    env.submit(submission(0, &[("op_1", 1)])).await.unwrap();
    for (nonce, signed, why) in [
        (0, &[("op_2", 1)][..], "nonce"),
        (1, &[("op_1", 1)], "not queued"),
        (1, &[("op_2", 7)], "changed"),
        (1, &[("op_2", 1), ("op_1", 1)], "all or none"),
    ] {
        assert!(matches!(env.submit(submission(nonce, signed)).await, Err(JournalError::Conflict)), "{why}");
    }
    assert_eq!(env.count::<chain_txs::Entity>().await, 1);
    assert_eq!(env.count::<chain_tx_attempts::Entity>().await, 1);
    env.submit(submission(1, &[("op_2", 1)])).await.unwrap();

    let JournalWrite::Submission(_, first) = submission(0, &[]) else { unreachable!() };
    let dearer = chain_tx_attempts::Model { tx_hash: "0xdearer".to_owned(), ..first.attempt };
    env.submit(JournalWrite::Attempt(lease(), Box::new(dearer.clone()))).await.unwrap();
    env.submit(JournalWrite::Attempt(lease(), Box::new(dearer))).await.unwrap();
    assert_eq!(env.count::<chain_tx_attempts::Entity>().await, 3, "the same bytes are stored once");
}

fn refusal(operations: &[(&str, i64)]) -> JournalWrite {
    let refused = |(id, revision): &(&str, i64)| RefusedOperation {
        id: (*id).to_owned(),
        revision: *revision,
        failure: "given up".to_owned(),
    };
    JournalWrite::Refusal(
        lease(),
        Box::new(OperationRefusal { at: 50, operations: operations.iter().map(refused).collect() }),
    )
}

#[tokio::test]
async fn an_operation_that_was_queued_again_is_not_refused() {
    let env = Env::running().await;
    queue_operations(&env, &["1", "2", "3"]).await;
    // Between the check and the commit, a payment queues its settlement again, and another operation is submitted.
    change(&env, "1", 2, OperationChange::Queue(Box::new(operation("op_1", &payment_row("1"))))).await;
    env.submit(submission(0, &[("op_3", 1)])).await.unwrap();
    let receipt = env.submit(refusal(&[("op_1", 1), ("op_2", 1), ("op_3", 1)])).await.unwrap();
    assert_eq!(notified(&receipt), [("op_2", "failed", 2)]);
    assert_eq!(receipt.operations[0].failure.as_deref(), Some("given up"));
    let rows = operations_by_id(&env).await;
    let found: Vec<_> = rows.iter().map(|row| (row.status.as_str(), row.revision, row.failure.as_deref())).collect();
    assert_eq!(found, [("queued", 2, None), ("failed", 2, Some("given up")), ("submitted", 1, None)]);
    // The new revision can be refused, once.
    assert_eq!(env.submit(refusal(&[("op_1", 2)])).await.unwrap().operations.len(), 1);
    assert!(env.submit(refusal(&[("op_1", 2)])).await.unwrap().operations.is_empty());
}

#[tokio::test]
async fn outages_are_recorded_with_their_blocks_and_forgotten_with_them_or_with_time() {
    const DAY_MS: i64 = 86_400_000;
    let env = Env::running().await;
    let outage = |block_number: i64, ended_at: i64| chain_outages::Model {
        chain: "base".to_owned(),
        block_number,
        began_at: ended_at - 60_000,
        ended_at,
    };
    let ended = |before, after, number, days: i64, outages| {
        let batch = batch(before, after, number);
        let cursor = chain_cursors::Model { block_time: days * DAY_MS, ..batch.cursor };
        ChainBatch { cursor, outages, ..batch }
    };
    let found = async || {
        let mut rows = env.all::<chain_outages::Entity>().await;
        rows.sort_by_key(|row| row.block_number);
        rows
    };
    let first = vec![outage(4, DAY_MS), outage(5, 2 * DAY_MS)];
    env.submit(write(ended(None, "0x5", 5, 2, first.clone()))).await.unwrap();
    assert_eq!(found().await, first);
    // A lost compare-and-swap of the cursor records nothing.
    let lost = env.submit(write(ended(Some("0x4"), "0x6", 6, 3, vec![outage(6, 3 * DAY_MS)]))).await;
    assert!(matches!(lost, Err(JournalError::Conflict)), "{lost:?}");

    // Block 5 is orphaned, and the outage that it ended. The new block 5 ends none.
    let mut reorged = ended(Some("0x5"), "0x4", 4, 1, Vec::new());
    reorged.orphaned_blocks = vec!["0x5".to_owned()];
    env.submit(write(reorged)).await.unwrap();
    env.submit(write(ended(Some("0x4"), "0x5b", 5, 2, Vec::new()))).await.unwrap();
    assert_eq!(found().await, [outage(4, DAY_MS)]);

    env.submit(write(ended(Some("0x5b"), "0x7", 7, 32, vec![outage(7, 32 * DAY_MS)]))).await.unwrap();
    assert_eq!(found().await, [outage(7, 32 * DAY_MS)], "the other one is too old");
}
