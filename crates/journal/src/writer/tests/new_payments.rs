//! New payments in one round trip.

use super::*;
use crate::writer::GROUP_UNITS_MAX;
use crate::writer::write::attempt_new_payments;

/// Returns `count` payments with small differences; every third one has a key.
fn new_payments(first: usize, count: usize) -> Vec<JournalWrite> {
    let write = |n: usize| {
        let key = format!("key{n}");
        let mut write = initiation(&n.to_string(), n.is_multiple_of(3).then_some(&*key));
        let JournalWrite::Initiation(initiation) = &mut write else { unreachable!() };
        let payment = &mut initiation.payment;
        (payment.amount, payment.live) = (i64::try_from(n + 1).unwrap(), n.is_multiple_of(2));
        payment.reference = n.is_multiple_of(5).then(|| format!("reference \"{n}\""));
        payment.merchant_id = payment.merchant_id.take().filter(|_| !n.is_multiple_of(7));
        write
    };
    (first..first + count).map(write).collect()
}

async fn attempt_in_one_statement(env: &Env, writes: &[JournalWrite]) -> Option<Attempt> {
    let statements = Statements::new(env.database.backend());
    attempt_new_payments(&env.database, &statements, &writes.iter().collect::<Vec<_>>()).await
}

#[tokio::test]
async fn groups_of_any_size_are_written_unchanged() {
    let env = Env::new().await;
    let mut first = 0;
    for count in [1, 4, 5, 100, GROUP_UNITS_MAX] {
        let writes = new_payments(first, count);
        let Some(Attempt::Committed(receipts)) = attempt_in_one_statement(&env, &writes).await else {
            panic!("{count}")
        };
        assert_eq!(receipts.len(), count);
        first += count;
    }
    // Without keys.
    let bare = [initiation("bare", None)];
    assert!(matches!(attempt_in_one_statement(&env, &bare).await, Some(Attempt::Committed(_))));

    let mut written = new_payments(0, first);
    written.extend(bare);
    let (mut payments, mut transitions, mut keys) = (Vec::new(), Vec::new(), Vec::new());
    for write in written {
        let JournalWrite::Initiation(initiation) = write else { unreachable!() };
        payments.push(initiation.payment);
        transitions.push(initiation.transition);
        keys.extend(initiation.idempotency);
    }
    assert_eq!(sorted(env.all::<payments::Entity>().await, |row| &row.id), sorted(payments, |row| &row.id));
    let written = env.all::<payment_transitions::Entity>().await;
    assert_eq!(sorted(written, |row| &row.payment_id), sorted(transitions, |row| &row.payment_id));
    assert_eq!(sorted(env.all::<idempotency_keys::Entity>().await, |row| &row.key), sorted(keys, |row| &row.key));
}

fn sorted<M>(mut rows: Vec<M>, key: impl Fn(&M) -> &String) -> Vec<M> {
    rows.sort_by(|one, other| key(one).cmp(key(other)));
    rows
}

/// Returns a payment with a used key, and a payment with an unknown merchant.
fn odd_ones() -> [JournalWrite; 2] {
    let mut stranger = initiation("stranger", None);
    let JournalWrite::Initiation(refused) = &mut stranger else { unreachable!() };
    refused.payment.merchant_id = Some("merch_nobody".to_owned());
    [initiation("other", Some("key3")), stranger]
}

#[tokio::test]
async fn a_failed_payment_sends_the_group_to_the_single_preconditions() {
    let env = Env::new().await;
    let used = new_payments(3, 1);
    assert!(matches!(attempt_in_one_statement(&env, &used).await, Some(Attempt::Committed(_))));
    for odd in odd_ones() {
        let mut writes = new_payments(10, 20);
        writes.push(odd);
        assert!(attempt_in_one_statement(&env, &writes).await.is_none());
        assert_eq!(env.count::<payments::Entity>().await, 1, "nothing is stored");
    }
    // Groups with other preconditions are not accepted either.
    let mut mixed = new_payments(10, 2);
    mixed.push(boxed(transition(&payment_row("3"), 0)));
    assert!(attempt_in_one_statement(&env, &mixed).await.is_none());

    // Through the journal, only these two fail.
    let mut writes = new_payments(10, 20);
    writes.extend(odd_ones());
    let answers = env.write_queued(writes).await;
    assert!(answers[..20].iter().all(Result::is_ok), "{answers:?}");
    assert!(matches!(answers[20..], [Err(JournalError::IdempotencyKeyTaken), Err(JournalError::Refused(_))]));
    assert_eq!(env.count::<payments::Entity>().await, 21);
}
