//! Plan of a random story: steps in the language of the rows, generated from a seed alone, so that the seed reproduces
//! it.

use payferry_actors::chain::Step;
use payferry_actors::pauses::Scope;
use payferry_domain::payment::OverpaymentPolicy;
use payferry_domain::{Amount, Chain};
use payferry_journal::psps::PspPolicies;
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

/// A whole story.
#[derive(Debug, Clone)]
pub struct Plan {
    pub policies: PspPolicies,
    /// Acts, one after the other. The steps of an act happen at the same time.
    pub acts: Vec<Vec<String>>,
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
        let mut acts: Vec<Vec<String>> = (0..first).map(|_| vec![initiate(&mut dice)]).collect();
        let more = dice.random_range(ACTS);
        // Most stories have a balance to send from.
        acts.extend((0..first).step_by(2).map(|payment| vec![pay(&mut dice, payment)]));
        acts.push(vec![format!("blocks {}", dice.random_range(0..20))]);
        acts.extend((0..more).map(|_| act(&mut dice)));
        Self { policies, acts, ends_well: dice.random_bool(0.7) }
    }
}

fn one<T: Clone>(dice: &mut StdRng, of: &[T]) -> T {
    of[dice.random_range(0..of.len())].clone()
}

/// Returns the text with this probability.
fn maybe(dice: &mut StdRng, probability: f64, text: impl FnOnce(&mut StdRng) -> String) -> String {
    if dice.random_bool(probability) { text(dice) } else { String::new() }
}

fn initiate(dice: &mut StdRng) -> String {
    let amount = Amount(dice.random_range(10_000..50_000_000));
    let token = one(dice, &["usdc", "usdc", "usdt"]);
    let chain = one(dice, &[Chain::Base, Chain::Base, Chain::Polygon]);
    let expires_in_secs = one(dice, &[300, 1_200, 3_600]);
    let payee = maybe(dice, 0.2, |dice| format!(" to {}", one(dice, &PEOPLE)));
    format!("initiate {amount} {token} {chain} expires {expires_in_secs}{payee}")
}

fn pay(dice: &mut StdRng, payment: usize) -> String {
    let percent = one(dice, &[100, 100, 100, 40, 60, 130, 1]);
    let coin = maybe(dice, 0.1, |dice| format!(" {}", one(dice, &Coin::ALL).as_str()));
    let chain = maybe(dice, 0.1, |dice| format!(" on {}", one(dice, &CHAINS)));
    let from = one(dice, &[PAYERS[0], PAYERS[0], PAYERS[0], PAYERS[0], PAYERS[1], PAYERS[2]]);
    let unmined = maybe(dice, 0.3, |_| " unmined".to_owned());
    format!("#{payment}: pay {percent}%{coin}{chain} from {from}{unmined}")
}

fn act(dice: &mut StdRng) -> Vec<String> {
    let payment = dice.random_range(0..100);
    let chain = one(dice, &CHAINS);
    let step = match dice.random_range(0..100) {
        0..26 => pay(dice, payment),
        26..34 => format!("mine {} {chain}", dice.random_range(1..5)),
        38..42 => initiate(dice),
        42..49 => {
            let discard = maybe(dice, 0.25, |_| " discard".to_owned());
            format!("reorg {} {chain}{discard}", dice.random_range(1..=REORG_MAX))
        }
        49..52 => {
            let decision = one(dice, &["allow", "allow", "review", "block"]);
            format!("kyt {} {decision}", one(dice, &["payer", "other", "ada", "eve", "crook"]))
        }
        52..54 => format!("kyt {}", one(dice, &["away", "back"])),
        54..70 => wish(dice),
        70..74 => {
            let count = dice.random_range(2..6);
            // Several requests, or one repeated.
            let same = dice.random_bool(0.4).then(|| wish(dice));
            return (0..count).map(|_| same.clone().unwrap_or_else(|| wish(dice))).collect();
        }
        74..75 => format!("customer {} deactivate", one(dice, &PEOPLE)),
        34..38 | 75..79 => format!("blocks {}", dice.random_range(4..16)),
        79..82 => {
            let who = one(dice, &["ada", "crook", "crook", "treasury", "psp"]);
            format!("{} {who}", if dice.random_bool(0.6) { "blacklist" } else { "unblacklist" })
        }
        82..84 => {
            let scope = one(dice, &[Scope::Settlement(None), Scope::OutboundTransfer(None), Scope::Chain(chain)]);
            format!("{} {scope}", one(dice, &["pause", "lift"]))
        }
        84..87 => format!("faults {} {chain}", faults(dice)),
        87..88 => format!("receiver hesitant {}", dice.random_range(0..3)),
        88..91 => {
            let actors = ["watcher", "settler", "screening", "shard", "webhooks", "sendings"];
            format!("kill {}", one(dice, &actors))
        }
        91..92 => format!("#{payment}: panic"),
        92..94 => format!("die-after {}", one(dice, &Step::ALL[..Step::Posted as usize]).as_str()),
        94..96 => format!("restart{}", one(dice, &["", " gently"])),
        96..97 => format!("advance {}", one(dice, &[60, 400, 1_500])),
        _ => format!("sleep {}", dice.random_range(1..300)),
    };
    vec![step]
}

/// A request of the PSP or the operator.
fn wish(dice: &mut StdRng) -> String {
    let payment = dice.random_range(0..100);
    let chain = one(dice, &[Chain::Base, Chain::Base, Chain::Polygon]);
    let who = one(dice, &PEOPLE);
    match dice.random_range(54..79) {
        54..56 => format!("#{payment}: cancel"),
        56..60 => format!("#{payment}: accept"),
        60..62 => format!("#{payment}: retry"),
        62..67 => {
            let part = one(dice, &["", "", " 30%"]);
            let to = maybe(dice, 0.8, |_| format!(" to {who}"));
            format!("#{payment}: refund{part}{to}")
        }
        67..69 => format!("#{payment}: refund misdirected to {who}"),
        69..70 => format!("#{payment}: operator refund-blocked to {who}"),
        70..71 => format!("#{payment}: operator refund {}", one(dice, &["approve", "reject"])),
        71..73 => format!("#{payment}: operator transfer {}", one(dice, &["allow", "block"])),
        73..77 => format!("payout {}% {chain} to {who}", dice.random_range(1..=110)),
        _ => format!("withdraw {}% {chain}", dice.random_range(1..=110)),
    }
}

/// Faults of an endpoint that the service cannot distinguish from correct answers; all are temporary. Each call of a
/// batch fails independently, and a batch has a hundred calls.
fn faults(dice: &mut StdRng) -> &'static str {
    one(dice, &["errors 0.005", "lost 0.005", "limited 0.005", "ranges 2", "lag 2", "duplicate 0.5", "none"])
}
