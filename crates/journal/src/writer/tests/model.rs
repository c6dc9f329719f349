//! Random writes compared with a model without groups: the result of each write must not depend on the other writes in
//! its commit.

use std::collections::{BTreeMap, BTreeSet, HashSet};

use payferry_entities::deliveries;
use proptest::prelude::*;

use super::*;
use crate::writer::{AppliedTransfer, OperationChange};

/// A write in a small model: six payments, three keys, four transactions.
#[derive(Clone, Debug)]
enum Step {
    Initiate {
        payment: u8,
        key: Option<u8>,
        bad: bool,
    },
    Advance {
        payment: u8,
        ahead: i64,
        announced: i64,
        key: Option<u8>,
        change: Option<Change>,
        bad: bool,
        state: String,
    },
    Read {
        stale: bool,
        orphaning: bool,
        found: Vec<(u8, u8)>,
        bad: bool,
    },
    Deliver {
        payment: u8,
        ahead: i64,
    },
}

#[derive(Clone, Copy, Debug)]
enum Change {
    Queue,
    Cancel,
}

/// Any text without U+0000, which PostgreSQL cannot store.
fn text() -> impl Strategy<Value = String> {
    any::<String>().prop_map(|text| text.replace('\u{0}', ""))
}

fn step() -> impl Strategy<Value = Step> {
    let key = || proptest::option::weighted(0.4, 0..3_u8);
    let bad = || proptest::bool::weighted(0.1);
    let change = proptest::option::of(prop_oneof![Just(Change::Queue), Just(Change::Cancel)]);
    prop_oneof![
        2 => (0..6_u8, key(), bad()).prop_map(|(payment, key, bad)| Step::Initiate { payment, key, bad }),
        4 => (0..6_u8, prop_oneof![4 => Just(0_i64), 1 => -1..3_i64], 0..3_i64, key(), change, bad(), text())
            .prop_map(|(payment, ahead, announced, key, change, bad, state)| {
                Step::Advance { payment, ahead, announced, key, change, bad, state }
            }),
        2 => (proptest::bool::weighted(0.2), any::<bool>(), proptest::collection::vec((0..4_u8, 0..6_u8), 0..4), bad())
            .prop_map(|(stale, orphaning, found, bad)| Step::Read { stale, orphaning, found, bad }),
        1 => (0..6_u8, prop_oneof![3 => Just(0_i64), 1 => Just(-1_i64)])
            .prop_map(|(payment, ahead)| Step::Deliver { payment, ahead }),
    ]
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fate {
    Written,
    Conflict,
    KeyTaken,
    Refused,
}

impl From<&Result<Receipt, JournalError>> for Fate {
    fn from(answer: &Result<Receipt, JournalError>) -> Self {
        match answer {
            Ok(_) => Self::Written,
            Err(JournalError::Conflict) => Self::Conflict,
            Err(JournalError::IdempotencyKeyTaken) => Self::KeyTaken,
            Err(JournalError::Refused(_)) => Self::Refused,
            Err(other) => panic!("{other}"),
        }
    }
}

/// Expected content of the database.
#[derive(Clone, Default)]
struct Model {
    payments: BTreeMap<String, (i64, String)>,
    keys: BTreeSet<String>,
    events: BTreeMap<String, i64>,
    attempts: BTreeMap<String, i64>,
    operations: BTreeMap<String, (String, i64)>,
    cursor: Option<String>,
    transfers: BTreeMap<(String, String), (String, String, i64, i64)>,
    blocks: i64,
}

impl Model {
    /// Returns the write of `step`, given the current model; `None` if it is not applicable.
    fn write_of(&mut self, step: &Step, advanced: &mut HashSet<u8>, begun: &mut HashSet<u8>) -> Option<JournalWrite> {
        match step {
            Step::Initiate { payment, key, bad } => {
                // The order of a transition and the initiation of the same payment in a group is undefined.
                if advanced.contains(payment) {
                    return None;
                }
                begun.insert(*payment);
                let key = key.map(|key| format!("initiate{key}"));
                let JournalWrite::Initiation(mut write) = initiation(&payment.to_string(), key.as_deref()) else {
                    return None;
                };
                if *bad {
                    write.payment.merchant_id = Some("merch_unknown".to_owned());
                }
                Some(JournalWrite::Initiation(write))
            }
            Step::Advance { payment, ahead, announced, key, change, bad, state } => {
                if begun.contains(payment) {
                    return None;
                }
                advanced.insert(*payment);
                let mut before = payment_row(&payment.to_string());
                before.version = self.payments.get(&before.id).map_or(1, |(version, _)| *version) + ahead;
                let mut write = transition(&before, *announced);
                write.payment.state.clone_from(state);
                write.consequences.idempotency = key.map(|key| key_row(&format!("advance{key}")));
                let id = format!("op_{}", before.id);
                write.consequences.operations.extend(change.map(|change| match change {
                    Change::Queue => OperationChange::Queue(Box::new(operation(&id, &before))),
                    Change::Cancel => OperationChange::Cancel { id },
                }));
                if *bad {
                    write.consequences.announcements.push(event(&payment_row("seed"), 100));
                }
                let of_payment = self.transfers.iter().filter(|(_, row)| row.0 == before.id);
                write.applied = of_payment
                    .map(|((tx_hash, block_hash), row)| AppliedTransfer {
                        chain: "base".to_owned(),
                        block_hash: block_hash.clone(),
                        tx_hash: tx_hash.clone(),
                        log_index: 0,
                        revision: row.2,
                    })
                    .collect();
                Some(boxed(write))
            }
            Step::Read { stale, orphaning, found, bad } => {
                self.blocks += 1;
                let before = if *stale { Some("0xelsewhere".to_owned()) } else { self.cursor.clone() };
                let hash = format!("0xblock{}", self.blocks);
                let mut write = batch(before.as_deref(), &hash, self.blocks);
                write.orphaned_blocks.extend(before.filter(|_| *orphaning));
                let known = found.iter().filter(|(_, payment)| self.payments.contains_key(&format!("pay_{payment}")));
                write.transfers = known
                    .map(|(tx, payment)| transfer(&format!("0x{tx}"), &payment_row(&payment.to_string()), &hash, 1))
                    .collect();
                if *bad {
                    write.transfers.push(transfer("0xbad", &payment_row("unknown"), &hash, 1));
                }
                Some(JournalWrite::ChainBatch(lease(), Box::new(write)))
            }
            Step::Deliver { payment, ahead } => {
                let of_payment = |id: &&String| id.starts_with(&format!("evt_pay_{payment}_"));
                let event = self.events.keys().find(of_payment)?;
                let id = event.replace("evt", "whd");
                let number = self.attempts.get(&id).copied().unwrap_or(0) + 1 + ahead;
                (number > 0).then(|| delivery(&id, number))
            }
        }
    }

    /// Applies a write as if it were alone, and returns its result.
    fn write(&mut self, write: &JournalWrite) -> Fate {
        let key = write.idempotency().map(|row| row.key.clone());
        if key.as_ref().is_some_and(|key| self.keys.contains(key)) {
            return Fate::KeyTaken;
        }
        let mut next = self.clone();
        next.keys.extend(key);
        let fate = next.write_without_key(write);
        if fate == Fate::Written {
            *self = next;
        }
        fate
    }

    fn write_without_key(&mut self, write: &JournalWrite) -> Fate {
        match write {
            JournalWrite::Initiation(write) => {
                let payment = &write.payment;
                if self.payments.contains_key(&payment.id) || payment.merchant_id.as_deref() != Some("merch_1") {
                    return Fate::Refused;
                }
                self.payments.insert(payment.id.clone(), (1, payment.state.clone()));
            }
            JournalWrite::Transition(write) => {
                let payment = &write.payment;
                let Some(row) = self.payments.get_mut(&payment.id) else { return Fate::Conflict };
                if row.0 != payment.version - 1 {
                    return Fate::Conflict;
                }
                *row = (payment.version, payment.state.clone());
                for NewEvent { event, .. } in &write.consequences.announcements {
                    if self.events.insert(event.id.clone(), event.sequence).is_some() {
                        return Fate::Refused;
                    }
                }
                for change in &write.consequences.operations {
                    let row = self.operations.get_mut(change.id());
                    match (change, row) {
                        (OperationChange::Queue(_), Some((status, revision))) => {
                            "queued".clone_into(status);
                            *revision += 1;
                        }
                        (OperationChange::Queue(_), None) => {
                            self.operations.insert(change.id().to_owned(), ("queued".to_owned(), 1));
                        }
                        (OperationChange::Cancel { .. }, Some((status, revision))) if status == "queued" => {
                            "cancelled".clone_into(status);
                            *revision += 1;
                        }
                        _ => {}
                    }
                }
                for applied in &write.applied {
                    let key = (applied.tx_hash.clone(), applied.block_hash.clone());
                    if let Some(row) = self.transfers.get_mut(&key) {
                        row.3 = row.3.max(applied.revision);
                    }
                }
            }
            JournalWrite::ChainBatch(_, write) => {
                if self.cursor != write.cursor_before {
                    return Fate::Conflict;
                }
                self.cursor = Some(write.cursor.block_hash.clone());
                let elsewhere = |tx_hash: &str, block_hash: &str| {
                    write.transfers.iter().any(|found| found.tx_hash == tx_hash && found.block_hash != block_hash)
                };
                let present = self.transfers.iter().filter(|(_, row)| row.1 == "present");
                let left: Vec<String> = present
                    .filter(|((tx_hash, block_hash), _)| elsewhere(tx_hash, block_hash))
                    .map(|((_, block_hash), _)| block_hash.clone())
                    .collect();
                for ((_, block_hash), row) in &mut self.transfers {
                    let is_orphaned = write.orphaned_blocks.contains(block_hash) || left.contains(block_hash);
                    if is_orphaned && row.1 == "present" {
                        "orphaned".clone_into(&mut row.1);
                        row.2 += 1;
                    }
                }
                let last: BTreeMap<_, _> = write.transfers.iter().map(|row| (row.tx_hash.clone(), row)).collect();
                for (tx_hash, found) in last {
                    if found.payment_id == "pay_unknown" {
                        return Fate::Refused;
                    }
                    let new = (found.payment_id.clone(), String::new(), 0, 0);
                    let row = self.transfers.entry((tx_hash, found.block_hash.clone())).or_insert(new);
                    if row.1 != found.presence {
                        row.1.clone_from(&found.presence);
                        row.2 += 1;
                    }
                }
            }
            JournalWrite::Deliveries(outcomes) => {
                for DeliveryOutcome { attempt, .. } in outcomes.iter() {
                    let made = self.attempts.entry(attempt.delivery_id.clone()).or_default();
                    *made = attempt.number.max(*made);
                }
            }
            other => panic!("no step makes {other:?}"),
        }
        Fate::Written
    }

    /// Asserts that the database contains exactly this.
    async fn check(&self, env: &Env) {
        let payments = env.all::<payments::Entity>().await.into_iter().map(|row| (row.id, (row.version, row.state)));
        assert_eq!(payments.collect::<BTreeMap<_, _>>(), self.payments);
        let versions: i64 = self.payments.values().map(|(version, _)| version).sum();
        assert_eq!(env.count::<payment_transitions::Entity>().await, u64::try_from(versions).unwrap());
        let keys = env.all::<idempotency_keys::Entity>().await.into_iter().map(|row| row.key);
        assert_eq!(keys.collect::<BTreeSet<_>>(), self.keys);

        let mut feed = env.all::<events::Entity>().await;
        feed.sort_by_key(|event| event.position);
        assert_eq!(feed.iter().map(|row| (row.id.clone(), row.sequence)).collect::<BTreeMap<_, _>>(), self.events);
        // A PostgreSQL sequence does not release the values of a rolled-back group.
        assert!(!env.is_sqlite() || feed.iter().zip(1..).all(|(event, position)| event.position == position));
        let mut last: BTreeMap<&str, i64> = BTreeMap::new();
        for event in &feed {
            assert!(last.insert(&event.payment_id, event.sequence).is_none_or(|before| before < event.sequence));
        }
        let deliveries = env.all::<deliveries::Entity>().await;
        assert_eq!(deliveries.len(), feed.len());
        for row in deliveries {
            assert_eq!(row.attempt_count, self.attempts.get(&row.id).copied().unwrap_or(0));
            assert!(feed.iter().any(|event| event.id == row.event_id && event.position == row.position));
        }

        let operations = env.all::<operations::Entity>().await;
        let found = operations.into_iter().map(|row| (row.id, (row.status.to_string(), row.revision)));
        assert_eq!(found.collect::<BTreeMap<_, _>>(), self.operations);

        let cursor = env.all::<chain_cursors::Entity>().await.pop().map(|row| row.block_hash);
        assert_eq!(cursor, self.cursor);
        let transfers = env.all::<transfers::Entity>().await.into_iter().map(|row| {
            ((row.tx_hash, row.block_hash), (row.payment_id, row.presence, row.revision, row.applied_revision))
        });
        assert_eq!(transfers.collect::<BTreeMap<_, _>>(), self.transfers);
    }
}

async fn play(rounds: Vec<Vec<Step>>) {
    let env = Env::running().await;
    let mut model = Model::default();
    let seed = env.payment("seed").await;
    env.submit(boxed(transition(&seed, 1))).await.unwrap();
    model.write(&initiation("seed", None));
    model.write(&boxed(transition(&seed, 1)));

    for steps in rounds {
        let (mut advanced, mut begun) = (HashSet::new(), HashSet::new());
        let made: Vec<JournalWrite> =
            steps.iter().filter_map(|step| model.write_of(step, &mut advanced, &mut begun)).collect();
        // The journal writes initiations last.
        let (initiations, others): (Vec<_>, Vec<_>) =
            made.into_iter().partition(|write| matches!(write, JournalWrite::Initiation(_)));
        let writes: Vec<JournalWrite> = others.into_iter().chain(initiations).collect();
        let expected: Vec<Fate> = writes.iter().map(|write| model.write(write)).collect();
        let answers = answers(env.queue(writes).await).await;
        assert_eq!(answers.iter().map(Fate::from).collect::<Vec<_>>(), expected);
    }
    model.check(&env).await;
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 32, ..ProptestConfig::default() })]

    #[test]
    fn grouped_writes_have_the_same_results_as_single_writes(
        rounds in proptest::collection::vec(proptest::collection::vec(step(), 0..24), 1..10)
    ) {
        tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(play(rounds));
    }
}
