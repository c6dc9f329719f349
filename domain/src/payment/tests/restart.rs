//! Simulates the environment of a payment. With the effects of each commit, or with those of `resume` after a crash at
//! any point, the payment reaches the same final state and is then not live.

use super::properties::any_terms;
use super::*;
use proptest::prelude::*;
use std::collections::VecDeque;

/// One transaction, with its screening result and its reorganisation.
#[derive(Debug, Clone, Copy)]
struct Part {
    tx: Tx,
    decision: Decision,
    reorg: Reorg,
}

#[derive(Debug, Clone, Copy, PartialEq)]
enum Reorg {
    Never,
    ReMined,
    Gone,
}

/// The environment: chains, screening, and the settler. It answers every effect, however often it is requested.
struct Env {
    parts: Vec<Part>,
    settler_revision: u32,
    settlement_failures: u32,
}

impl Env {
    fn decision(&self, key: TransferKey) -> Decision {
        self.parts.iter().find(|part| part.tx.0.key.tx_hash == key.tx_hash).unwrap().decision
    }

    /// Returns the fact that answers an effect. Notifications and alarms have no answer.
    fn answer(&mut self, effect: &Effect, operation: OperationId) -> Option<Command> {
        Some(match *effect {
            Effect::AwaitFinality { key, revision, finality, .. } => {
                Command::FinaliseTransfers(vec![TransferFinality { key, revision, reached: finality }])
            }
            Effect::Screen { key, .. } => {
                let decision = self.decision(key);
                Command::ScreenTransfer { key, verdict: verdict(decision) }
            }
            Effect::AwaitReview { key, .. } => {
                let verdict = Verdict { by_operator: true, ..verdict(Decision::Allow) };
                Command::ScreenTransfer { key, verdict }
            }
            Effect::AwaitDeadline { at, .. } => Command::PassDeadline { chain_time: at },
            Effect::Settle { .. } => {
                self.settler_revision += 1;
                let revision = self.settler_revision;
                if self.settlement_failures > 0 {
                    self.settlement_failures -= 1;
                    Command::FailSettlement { operation, revision, reason: "reverted".to_owned() }
                } else {
                    let amount = amount("10");
                    Command::CompleteSettlement { operation, revision, amount, tx_hash: hash(90), block_time: at(99) }
                }
            }
            Effect::AwaitRetry { .. } => Command::RetrySettlement { by: Requester::Schedule },
            Effect::Send { refund_id, .. } => Command::CompleteRefund { refund_id, revision: 1, tx_hash: hash(91) },
            Effect::ScreenRefund { refund_id, .. } => {
                Command::ScreenRefund { refund_id, verdict: verdict(Decision::Allow) }
            }
            Effect::AwaitRefundReview { refund_id, .. } => {
                let verdict = Verdict { by_operator: true, ..verdict(Decision::Allow) };
                Command::ScreenRefund { refund_id, verdict }
            }
            Effect::ScreenAuthorization { .. } | Effect::Collect { .. } => unreachable!("no payer signs here"),
            Effect::CancelSettlement { .. } | Effect::DeliverWebhooks | Effect::Passivate | Effect::Alarm(_) => {
                return None;
            }
        })
    }
}

/// Runs a payment to its final state. It receives everything that the chain shows, in order, and the answers to its
/// effects. Without `turns`, the chain comes first; otherwise each `true` puts an answer before the next block. A crash
/// after `crash_after` commits drops all unanswered effects.
fn live(terms: Terms, parts: &[Part], failures: u32, crash_after: Option<usize>, turns: &[bool]) -> (Story, bool) {
    let mut story = given(terms);
    let mut env = Env { parts: parts.to_vec(), settler_revision: 0, settlement_failures: failures };
    let mut owed: VecDeque<Effect> = VecDeque::new();
    let first = story.last.take().unwrap();
    owed.extend(first.effects);
    let mut shown: VecDeque<Command> = parts.iter().map(|part| part.tx.seen()).collect();
    let moved = parts.iter().filter(|part| part.reorg != Reorg::Never);
    shown.extend(moved.map(|part| part.tx.rev(2).gone().seen()));
    let again = parts.iter().filter(|part| part.reorg == Reorg::ReMined);
    shown.extend(again.map(|part| part.tx.log(9).at(70).seen()));
    let mut crashed = false;
    let mut turns = turns.iter().copied().chain(std::iter::repeat(false));
    for _ in 0..500 {
        let deadline = |effect: &Effect| matches!(effect, Effect::AwaitDeadline { .. });
        let answer_first = turns.next() == Some(true) && !owed.is_empty();
        let next = if let Some(command) = (!answer_first).then(|| shown.pop_front()).flatten() {
            command
        } else if let Some(place) = owed.iter().position(|effect| !deadline(effect)).or((!owed.is_empty()).then_some(0))
        {
            let Some(answer) = env.answer(&owed.remove(place).unwrap(), story.operation()) else { continue };
            answer
        } else {
            return (story, crashed);
        };
        if story.run(&next).unwrap() {
            let step = story.last.take().unwrap();
            owed.extend(step.effects);
        }
        if crash_after.is_some_and(|commits| story.commits.len() > commits) && !crashed {
            crashed = true;
            owed = resume(&story.payment).into();
        }
    }
    panic!("no final state after 500 steps: {:?}", story.payment.history);
}

fn part(n: u8) -> impl Strategy<Value = Part> {
    let decisions = vec![Decision::Allow, Decision::Allow, Decision::Allow, Decision::Review, Decision::Block];
    let units = prop::sample::select(vec!["0.0005", "2", "4", "6", "10", "13"]);
    let kind = prop_oneof![8 => Just(0u8), 1 => Just(1), 1 => Just(2)];
    let reorgs = prop::sample::select(vec![Reorg::Never, Reorg::Never, Reorg::ReMined, Reorg::Gone]);
    (units, prop::sample::select(decisions), kind, reorgs).prop_map(move |(text, decision, kind, reorg)| {
        let tx = match kind {
            1 => tx(n).look_alike(),
            2 => tx(n).on(Chain::Arbitrum),
            _ => tx(n),
        };
        Part { tx: tx.of(text), decision, reorg }
    })
}

fn parts() -> impl Strategy<Value = Vec<Part>> {
    (0..4u8).prop_flat_map(|count| (1..=count).map(part).collect::<Vec<_>>())
}

fn received(payment: &Payment) -> Amount {
    payment.amount_received().saturating_add(payment.excess_received())
}

fn rest(payment: &Payment) -> impl PartialEq + std::fmt::Debug {
    (payment.status == Status::Pending, received(payment), payment.settlement.is_some(), payment.is_live())
}

proptest! {
    #![proptest_config(cases(800))]

    #[test]
    fn a_crash_does_not_change_the_final_state(terms in any_terms(), parts in parts(), failures in 0..3u32) {
        let (whole, _) = live(terms.clone(), &parts, failures, None, &[]);
        prop_assert!(!whole.payment.is_live(), "final state is live: {:?}", whole.payment.history);
        prop_assert!(resume(&whole.payment).contains(&Effect::Passivate));
        for commits in 1..=whole.commits.len() {
            let (broken, crashed) = live(terms.clone(), &parts, failures, Some(commits), &[]);
            prop_assert!(crashed || commits == whole.commits.len());
            prop_assert_eq!(rest(&broken.payment), rest(&whole.payment), "after a crash at {}", commits);
        }
    }

    #[test]
    fn every_payment_reaches_a_final_state(
        terms in any_terms(),
        parts in parts(),
        failures in 0..3u32,
        turns in prop::collection::vec(prop::bool::ANY, 40),
        crash_after in prop::option::of(1..20usize),
    ) {
        let floor = terms.dust_floor;
        let (story, _) = live(terms, &parts, failures, crash_after, &turns);
        prop_assert!(!story.payment.is_live(), "final state is live: {:?}", story.payment);
        let clean = parts.iter().filter(|part| part.reorg != Reorg::Gone && part.decision != Decision::Block);
        let right = clean.map(|part| part.tx.0).filter(|o| o.token_address == USDC && o.key.chain == Chain::Base);
        let sum: Amount = right.map(|o| o.amount).filter(|amount| *amount >= floor).sum();
        prop_assert_eq!(received(&story.payment), sum, "{:?}", story.payment);
    }
}
