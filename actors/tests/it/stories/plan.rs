//! Plan of a random story: a list of acts, generated from a seed alone, so that the seed reproduces it.

use payferry_actors::chain::Step;
use payferry_actors::pauses::Scope;
use payferry_devchain::Faults;
use payferry_domain::payment::{Decision, OverpaymentPolicy};
use payferry_domain::{Amount, Chain, Token};
use payferry_journal::psps::PspPolicies;
use payferry_runtime::observe::ActorKind;
use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};

use crate::env::{Coin, PAYERS};

/// Chains of every random story.
pub const CHAINS: [Chain; 2] = [Chain::Base, Chain::Polygon];
/// Customers, and recipients of refunds.
pub const PEOPLE: [&str; 4] = ["ada", "eve", "bob", "crook"];
/// Number of acts in a story.
const ACTS: std::ops::Range<usize> = 40..90;
/// Number of payments that a story starts with, before all other acts.
const PAYMENTS_FIRST: std::ops::Range<usize> = 3..8;
/// Deeper than any finality tier of these stories, so that counted transfers can be reorged.
const REORG_MAX: u64 = 6;

/// One act. A payment is identified by its number, modulo the number of payments; requests choose among the payments
/// that they fit, if there are any.
#[derive(Debug, Clone)]
pub enum Act {
    Initiate {
        amount: Amount,
        token: Token,
        chain: Chain,
        expires_in_secs: i64,
        payee: Option<&'static str>,
    },
    Pay {
        payment: usize,
        percent: i64,
        coin: Option<Coin>,
        chain: Option<Chain>,
        from: &'static str,
        is_mined: bool,
    },
    Mine {
        chain: Chain,
        blocks: u64,
    },
    /// Blocks are replaced; their transactions are mined again or dropped.
    Reorg {
        chain: Chain,
        depth: u64,
        is_gone: bool,
    },
    Say {
        who: &'static str,
        decision: Decision,
    },
    Away(bool),
    Cancel(usize),
    Accept(usize),
    Retry(usize),
    Refund {
        payment: usize,
        percent: i64,
        to: Option<&'static str>,
    },
    RefundMisdirected {
        payment: usize,
        to: &'static str,
    },
    RefundBlocked {
        payment: usize,
        to: &'static str,
    },
    Decide {
        payment: usize,
        decision: Decision,
    },
    /// This percentage of the balance.
    Payout {
        percent: i64,
        chain: Chain,
        to: &'static str,
    },
    Withdraw {
        percent: i64,
        chain: Chain,
    },
    /// Requests of the PSP and the operator, all at the same time.
    AtOnce(Vec<Act>),
    Deactivate(&'static str),
    Blacklist {
        who: &'static str,
        is_listed: bool,
    },
    Pause {
        scope: Scope,
        is_held: bool,
    },
    Faults {
        chain: Chain,
        faults: Faults,
    },
    /// The receiver rejects each event this many times before it accepts it.
    Hesitate(usize),
    Kill(ActorKind),
    Panic(usize),
    DieAfter(Step),
    Restart {
        gently: bool,
    },
    Advance(u64),
    /// Blocks one after the other, with time for the service in between.
    Flow {
        blocks: u64,
    },
    Breathe {
        millis: u64,
    },
}

/// A whole story.
#[derive(Debug, Clone)]
pub struct Plan {
    pub policies: PspPolicies,
    pub acts: Vec<Act>,
    /// `true` if screening and the token stop blocking accounts before the end.
    pub ends_well: bool,
}

impl Plan {
    /// Generates the plan of a seed.
    pub fn of(seed: u64) -> Self {
        let mut dice = StdRng::seed_from_u64(seed);
        let mut policies = PspPolicies {
            refund_to_sender: dice.random(),
            overpayment: one(
                &mut dice,
                &[OverpaymentPolicy::Hold, OverpaymentPolicy::Accept, OverpaymentPolicy::RefundExcess],
            ),
            ..PspPolicies::default()
        };
        policies.tolerance.bps = one(&mut dice, &[0, 0, 100]);
        let first = dice.random_range(PAYMENTS_FIRST);
        let mut acts: Vec<Act> = (0..first).map(|_| initiate(&mut dice)).collect();
        let more = dice.random_range(ACTS);
        // Most stories have a balance to send from.
        acts.extend((0..first).step_by(2).map(|payment| pay(&mut dice, payment)));
        acts.push(Act::Flow { blocks: dice.random_range(0..20) });
        acts.extend((0..more).map(|_| act(&mut dice)));
        Self { policies, acts, ends_well: dice.random_bool(0.7) }
    }
}

fn one<T: Clone>(dice: &mut StdRng, of: &[T]) -> T {
    of[dice.random_range(0..of.len())].clone()
}

fn initiate(dice: &mut StdRng) -> Act {
    Act::Initiate {
        amount: Amount(dice.random_range(10_000..50_000_000)),
        token: one(dice, &[Token::Usdc, Token::Usdc, Token::Usdt]),
        chain: one(dice, &[Chain::Base, Chain::Base, Chain::Polygon]),
        expires_in_secs: one(dice, &[300, 1_200, 3_600]),
        payee: dice.random_bool(0.2).then(|| one(dice, &PEOPLE)),
    }
}

fn pay(dice: &mut StdRng, payment: usize) -> Act {
    Act::Pay {
        payment,
        percent: one(dice, &[100, 100, 100, 40, 60, 130, 1]),
        coin: dice.random_bool(0.1).then(|| one(dice, &Coin::ALL)),
        chain: dice.random_bool(0.1).then(|| one(dice, &CHAINS)),
        from: one(dice, &[PAYERS[0], PAYERS[0], PAYERS[0], PAYERS[0], PAYERS[1], PAYERS[2]]),
        is_mined: dice.random_bool(0.7),
    }
}

fn act(dice: &mut StdRng) -> Act {
    let payment = dice.random_range(0..100);
    let chain = one(dice, &CHAINS);
    match dice.random_range(0..100) {
        0..26 => pay(dice, payment),
        26..34 => Act::Mine { chain, blocks: dice.random_range(1..5) },
        38..42 => initiate(dice),
        42..49 => {
            let is_gone = dice.random_bool(0.25);
            Act::Reorg { chain, depth: dice.random_range(1..=REORG_MAX), is_gone }
        }
        49..52 => {
            let decision = one(dice, &[Decision::Allow, Decision::Allow, Decision::Review, Decision::Block]);
            Act::Say { who: one(dice, &["payer", "other", "ada", "eve", "crook"]), decision }
        }
        52..54 => Act::Away(dice.random()),
        54..70 => wish(dice),
        70..74 => {
            let count = dice.random_range(2..6);
            // Several requests, or one repeated.
            let same = dice.random_bool(0.4).then(|| wish(dice));
            Act::AtOnce((0..count).map(|_| same.clone().unwrap_or_else(|| wish(dice))).collect())
        }
        74..75 => Act::Deactivate(one(dice, &PEOPLE)),
        34..38 | 75..79 => Act::Flow { blocks: dice.random_range(4..16) },
        79..82 => {
            let who = one(dice, &["ada", "crook", "crook", "treasury", "psp"]);
            Act::Blacklist { who, is_listed: dice.random_bool(0.6) }
        }
        82..84 => {
            let scope = one(dice, &[Scope::Settlement(None), Scope::OutboundTransfer(None), Scope::Chain(chain)]);
            Act::Pause { scope, is_held: dice.random() }
        }
        84..87 => Act::Faults { chain, faults: faults(dice) },
        87..88 => Act::Hesitate(dice.random_range(0..3)),
        88..91 => Act::Kill(one(
            dice,
            &[
                ActorKind::Watcher,
                ActorKind::Settler,
                ActorKind::Screening,
                ActorKind::Shard,
                ActorKind::WebhookSender,
                ActorKind::SendingDesk,
            ],
        )),
        91..92 => Act::Panic(payment),
        92..94 => Act::DieAfter(one(dice, &Step::ALL)),
        94..96 => Act::Restart { gently: dice.random() },
        96..97 => Act::Advance(one(dice, &[60, 400, 1_500])),
        _ => Act::Breathe { millis: dice.random_range(1..300) },
    }
}

/// A request of the PSP or the operator.
fn wish(dice: &mut StdRng) -> Act {
    let payment = dice.random_range(0..100);
    let chain = one(dice, &[Chain::Base, Chain::Base, Chain::Polygon]);
    match dice.random_range(54..79) {
        54..56 => Act::Cancel(payment),
        56..60 => Act::Accept(payment),
        60..62 => Act::Retry(payment),
        62..67 => Act::Refund {
            payment,
            percent: one(dice, &[100, 100, 30]),
            to: dice.random_bool(0.8).then(|| one(dice, &PEOPLE)),
        },
        67..69 => Act::RefundMisdirected { payment, to: one(dice, &PEOPLE) },
        69..70 => Act::RefundBlocked { payment, to: one(dice, &PEOPLE) },
        70..73 => Act::Decide { payment, decision: one(dice, &[Decision::Allow, Decision::Block]) },
        73..77 => Act::Payout { percent: dice.random_range(1..=110), chain, to: one(dice, &PEOPLE) },
        _ => Act::Withdraw { percent: dice.random_range(1..=110), chain },
    }
}

/// Each call of a batch fails independently, and a batch has a hundred calls.
const FAULT_RATE: f64 = 0.005;

/// Faults of an endpoint that the service cannot distinguish from correct answers; all are temporary.
fn faults(dice: &mut StdRng) -> Faults {
    let mut faults = Faults::default();
    match dice.random_range(0..7) {
        0 => faults.error_rate = FAULT_RATE,
        1 => faults.lost_answer_rate = FAULT_RATE,
        2 => faults.rate_limited_rate = FAULT_RATE,
        3 => faults.logs_range_blocks_max = 2,
        4 => faults.head_lag_blocks = 2,
        5 => faults.duplicate_log_rate = 0.5,
        _ => {}
    }
    faults
}
