//! Random stories: a seed generates a plan ([`super::plan`]), the plan is played on the real parts, everything comes to
//! rest, and then the invariants must hold.
//!
//! A failure prints its seed and plan. `PAYFERRY_STORIES_SEED=<seed>` plays that story again: the acts are the same,
//! but their timing depends on the machine. `PAYFERRY_STORIES_SECS=<secs>` plays stories for this long.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use futures::StreamExt;
use payferry_devchain::{Dropped, Faults};
use payferry_domain::payment::{Command, Decision, Funds, Label, Payment, Reason, Requester, Status};
use payferry_domain::{Amount, Chain, PaymentId, RefundId, customer};
use payferry_entities::{balances, sendings};
use payferry_harness::receiver::ReceiverBehaviour;
use payferry_harness::short_or_long;
use sea_orm::EntityTrait;

use super::env::Env;
use super::people::{Customers, PaymentOrder, Refused};
use super::plan::{Act, CHAINS, PEOPLE, Plan};
use super::table::within;
use super::truths;
use crate::env::{Coin, PAYERS, account, verdict};

/// Seed of the only story to play.
const SEED: &str = "PAYFERRY_STORIES_SEED";
/// Number of stories.
const CASES: &str = "PAYFERRY_STORIES_CASES";
/// Plays stories until this many seconds have passed.
const SECS: &str = "PAYFERRY_STORIES_SECS";
const CASES_DEFAULT: u64 = 8;
const CASES_SHORT: u64 = 3;
/// Number of concurrent stories.
const STORIES_AT_ONCE: usize = 2;
/// Longer than every deadline and retry delay.
const LONG_SECS: u64 = 3 * 3_600;
/// Time between blocks.
const BLOCK_TIME: Duration = Duration::from_millis(40);
/// Account that receives withdrawals.
const PURSE: &str = "purse";
/// Timeout of one story.
const STORY_TIME_MAX: Duration = Duration::from_mins(8);
/// From this number of stories on, every important outcome must occur.
const TELLING_MIN: usize = 8;
/// Outcomes that must occur in some story; the invariants hold trivially if nothing happens.
const HAPPENS: [&str; 4] = ["payments settled", "refunds sent", "payouts sent", "payments reorged"];

/// Number of outcomes, by name.
type Counts = BTreeMap<String, usize>;

/// End of a story: violated invariants and outcomes.
struct Ended {
    wrong: Vec<String>,
    counts: Counts,
}

#[tokio::test(flavor = "multi_thread")]
async fn random_stories_satisfy_all_invariants() {
    let number = |name: &str| std::env::var(name).ok().map(|text| text.parse::<u64>().unwrap());
    let first = number(SEED).unwrap_or_else(|| rand::random::<u32>().into());
    let count = match (number(SEED), number(SECS)) {
        (Some(_), _) => 1,
        (None, Some(_)) => u64::from(u32::MAX),
        (None, None) => number(CASES).unwrap_or_else(|| short_or_long(CASES_SHORT, CASES_DEFAULT)),
    };
    let seeds = first..first + count;
    let (since, until) = (Instant::now(), number(SECS).map(Duration::from_secs));
    let in_time = |_: &u64| until.is_none_or(|until| since.elapsed() < until);
    let played = futures::stream::iter(seeds.take_while(in_time)).map(|seed| async move {
        let began = Instant::now();
        let ended = within(STORY_TIME_MAX, Box::pin(play(seed))).await;
        let Ended { wrong, counts } =
            ended.unwrap_or_else(|wrong| Ended { wrong: vec![wrong], counts: Counts::default() });
        println!(
            "{:5.1} s  seed {seed}{}",
            began.elapsed().as_secs_f32(),
            if wrong.is_empty() { "" } else { "  FAIL" }
        );
        if !wrong.is_empty() {
            // Printed immediately, because a long soak test may be aborted.
            println!("{SEED}={seed}\n{}\n{:#?}", wrong.join("\n"), Plan::of(seed));
        }
        ((!wrong.is_empty()).then(|| format!("{SEED}={seed}\n{}", wrong.join("\n"))), counts)
    });
    let played: Vec<(Option<String>, Counts)> = played.buffer_unordered(STORIES_AT_ONCE).collect().await;
    let failed: Vec<&str> = played.iter().filter_map(|(failed, _)| failed.as_deref()).collect();
    assert!(failed.is_empty(), "{} stories:\n\n{}", failed.len(), failed.join("\n\n"));
    if played.len() >= TELLING_MIN {
        let sum = |what: &str| played.iter().filter_map(|(_, counts)| counts.get(what)).sum::<usize>();
        let missing: Vec<&str> = HAPPENS.into_iter().filter(|what| sum(what) == 0).collect();
        assert!(missing.is_empty(), "{} stories had no {}", played.len(), missing.join(", no "));
    }
}

#[test]
fn seeds_reproduce_their_plans() {
    let notified = |seed| format!("{:?}", Plan::of(seed));
    assert_eq!(notified(7), notified(7));
    assert_ne!(notified(7), notified(8));
}

/// Plays the story of a seed and returns violated invariants and outcomes.
async fn play(seed: u64) -> Ended {
    let plan = Plan::of(seed);
    let env = Env::new(&CHAINS, &plan.policies).await;
    env.register_wallet(account(PURSE)).await;
    let mut customers = Customers::default();
    for name in PEOPLE {
        customers.get(&env, name).await;
    }
    let mut story = Story { env, customers, payments: Vec::new() };
    for act in &plan.acts {
        // Requests are often refused, correctly.
        let _: Result<(), Refused> = story.run_step(act).await;
    }
    story.calm_down(plan.ends_well).await;
    let mut wrong = Vec::new();
    if let Err(busy) = story.env.rest().await {
        wrong.push(format!("it never came to rest: {busy}"));
    }
    story.env.advance(LONG_SECS).await;
    if let Err(busy) = story.env.rest().await {
        wrong.push(format!("it never came to rest after a long time: {busy}"));
    }
    wrong.extend(truths::check(&story.env).await);
    let counts = story.outcome_counts().await;
    let notified: Vec<String> = counts.iter().map(|(what, count)| format!("{count} {what}")).collect();
    println!("        seed {seed}: {}", notified.join(", "));
    story.env.stop(true).await;
    Ended { wrong, counts }
}

struct Story {
    env: Env,
    customers: Customers,
    payments: Vec<PaymentId>,
}

impl Story {
    /// Counts outcomes, to show that the stories exercise the service.
    async fn outcome_counts(&self) -> Counts {
        let reader = self.env.database().reader();
        let mut counts = Counts::new();
        let mut count = |what: String| *counts.entry(what).or_default() += 1;
        for id in &self.payments {
            let payment = self.env.payment(*id).await;
            count(format!("payments {}", payment.status));
            payment.refunds.iter().for_each(|refund| count(format!("refunds {}", refund.state)));
            payment
                .history
                .iter()
                .filter(|entry| entry.reason == Reason::Reorged)
                .for_each(|_| count("reorged".to_owned()));
            // Includes transfers that were reorged before they counted.
            if payment.labels.contains(Label::Reorged) {
                count("payments reorged".to_owned());
            }
        }
        for row in sendings::Entity::find().all(reader).await.unwrap() {
            count(format!("{}s {}", row.kind, row.status));
        }
        counts
    }

    fn numbered(&self, payment: usize) -> Result<PaymentId, Refused> {
        let count = self.payments.len();
        self.payments.get(payment % count.max(1)).copied().ok_or_else(|| "no payment exists yet".to_owned())
    }

    /// Returns the payment with this number among those that fit a request, or among all if none fits.
    async fn fitting(&self, payment: usize, fits: impl Fn(&Payment) -> bool) -> Result<Payment, Refused> {
        let mut all = Vec::with_capacity(self.payments.len());
        for id in &self.payments {
            all.push(self.env.payment(*id).await);
        }
        if all.iter().any(&fits) {
            all.retain(&fits);
        }
        let count = all.len();
        all.into_iter().nth(payment % count.max(1)).ok_or_else(|| "no payment exists yet".to_owned())
    }

    /// Available USDC balance of the PSP on a chain.
    async fn balance(&self, chain: Chain) -> Amount {
        let rows = balances::Entity::find().all(self.env.database().reader()).await.unwrap();
        let usdc = self.env.chains[&chain].coin(Coin::Usdc).to_string();
        let row = rows.into_iter().find(|row| row.chain == chain.as_str() && row.token_address == usdc);
        Amount(row.map_or(0, |row| row.available))
    }

    async fn run_step(&mut self, act: &Act) -> Result<(), Refused> {
        match act {
            Act::Initiate { amount, token, chain, expires_in_secs, payee } => {
                let payee = payee.map(|name| self.customers.known(name));
                let (amount, token, chain) = (*amount, *token, Some(*chain));
                let asked = PaymentOrder { amount, token, chain, expires_in_secs: *expires_in_secs, payee };
                self.payments.push(self.env.initiate(asked).await?.id());
            }
            Act::Pay { .. } => self.pay(act).await?,
            Act::Mine { chain, blocks } => self.env.chains[chain].mine(*blocks).await,
            Act::Reorg { chain, depth, is_gone } => {
                let dropped = if *is_gone { Dropped::Discard } else { Dropped::Remine };
                self.env.chains[chain].reorg(*depth, dropped).await;
            }
            Act::Blacklist { who, is_listed } => {
                let address = match *who {
                    "treasury" => self.env.chains[&Chain::Base].spec.treasury,
                    "psp" => self.env.psp_vault(),
                    name => account(name),
                };
                for chain in self.env.chains.values() {
                    chain.blacklist(address, *is_listed).await;
                }
            }
            Act::Advance(secs) => self.env.advance(*secs).await,
            Act::Flow { blocks } => {
                for _ in 0..*blocks {
                    self.env.mine(1).await;
                    tokio::time::sleep(BLOCK_TIME).await;
                }
            }
            Act::Breathe { millis } => tokio::time::sleep(Duration::from_millis(*millis)).await,
            Act::Faults { chain, faults } => self.env.chains[chain].devchain.set_faults(faults.clone()),
            Act::Say { who, decision } => self.env.judge.say(account(who), Some(*decision)),
            Act::Away(is_away) => self.env.judge.set_away(*is_away),
            Act::Hesitate(times) => self.env.receiver.behave(ReceiverBehaviour::FailThenAccept(500, *times)),
            Act::Kill(kind) => self.env.system().inject_crash(*kind),
            Act::Panic(payment) => self.env.system().inject_panic(self.numbered(*payment)?),
            Act::DieAfter(step) => self.env.settler_kill.arm(&[*step]),
            Act::Restart { gently } => {
                self.env.stop(*gently).await;
                self.env.start().await;
            }
            Act::Pause { scope, is_held } => self.env.pause(*scope, *is_held).await,
            Act::Deactivate(who) => {
                let (id, _) = self.customers.known(who);
                self.env.change_customer(id, customer::Command::Deactivate).await;
            }
            Act::AtOnce(wishes) => {
                futures::future::join_all(wishes.iter().map(|wish| self.decide(wish))).await;
            }
            decided => self.decide(decided).await?,
        }
        Ok(())
    }

    async fn pay(&self, act: &Act) -> Result<(), Refused> {
        let Act::Pay { payment, percent, coin, chain, from, is_mined } = act else { return Ok(()) };
        let terms = self.env.payment(self.numbered(*payment)?).await.terms;
        let chain = &self.env.chains[&chain.unwrap_or(terms.chain)];
        let coin = coin.unwrap_or_else(|| terms.token.into());
        chain.transfer(from, coin, terms.wallet, part(terms.amount, *percent)).await;
        if *is_mined {
            chain.mine(1).await;
        }
        Ok(())
    }

    /// Carries out a request of the PSP or the operator.
    async fn decide(&self, act: &Act) -> Result<(), Refused> {
        let refund = |amount, to: Option<&str>, funds, asset, by| {
            let to = to.map(account);
            Command::RequestRefund { refund_id: RefundId::generate(), amount, to, funds, asset, by }
        };
        let mismatched = |payment: &Payment| payment.status == Status::Mismatched;
        let (payment, command) = match act {
            Act::Cancel(payment) => {
                (self.fitting(*payment, |payment| payment.transfers.is_empty()).await?, Command::Cancel)
            }
            Act::Accept(payment) => {
                (self.fitting(*payment, mismatched).await?, Command::Accept { expected_received: None })
            }
            Act::Retry(payment) => {
                let payment = self.fitting(*payment, |payment| payment.attention().is_some()).await?;
                (payment, Command::RetrySettlement { by: Requester::Psp })
            }
            Act::Refund { payment, percent, to } => {
                let payment = self.fitting(*payment, |payment| !payment.refundable().is_zero()).await?;
                let amount = (*percent < 100).then(|| part(payment.refundable(), *percent));
                (payment, refund(amount, *to, Funds::Received, None, Requester::Psp))
            }
            Act::RefundMisdirected { payment, to } => {
                let wrong =
                    |payment: &Payment| payment.transfers.iter().find(|t| !t.is_right()).map(|t| payment.asset_of(t));
                let payment = self.fitting(*payment, |payment| wrong(payment).is_some()).await?;
                let asset = wrong(&payment).ok_or("no misdirected transfer")?;
                (payment, refund(None, Some(to), Funds::Misdirected, Some(asset), Requester::Psp))
            }
            Act::RefundBlocked { payment, to } => {
                let payment = self.fitting(*payment, |payment| !payment.blocked_held().is_zero()).await?;
                (payment, refund(None, Some(to), Funds::Blocked, None, Requester::Operator))
            }
            Act::Decide { payment, decision } => {
                let payment = self.fitting(*payment, |payment| payment.attention().is_some()).await?;
                let last = payment.transfers.last().ok_or("no transfer to decide about")?;
                let verdict = verdict(*decision, true, self.env.clock().now());
                let command = Command::ScreenTransfer { key: last.key, revision: last.revision, verdict };
                (payment, command)
            }
            Act::Payout { percent, chain, to } => {
                let amount = part(self.balance(*chain).await, *percent);
                return self.env.pay_out(amount, *chain, self.customers.known(to)).await.map(|_| ());
            }
            Act::Withdraw { percent, chain } => {
                let amount = part(self.balance(*chain).await, *percent);
                return self.env.withdraw(amount, *chain).await.map(|_| ());
            }
            other => unreachable!("{other:?} is not a request"),
        };
        self.env.command(payment.id(), command).await.map(|_| ())
    }

    /// Ends all pauses and faults; with `ends_well`, screening and the token also stop blocking accounts.
    async fn calm_down(&mut self, ends_well: bool) {
        for chain in self.env.chains.values() {
            chain.devchain.set_faults(Faults::default());
        }
        self.env.judge.set_away(false);
        self.env.receiver.behave(ReceiverBehaviour::Well);
        let held = self.env.system().pauses().held();
        for scope in held.keys() {
            self.env.pause(*scope, false).await;
        }
        for given_up in self.env.system().given_up(None, usize::MAX) {
            self.env.system().release(given_up.id);
        }
        if ends_well {
            let (treasury, psp) = (self.env.chains[&Chain::Base].spec.treasury, self.env.psp_vault());
            for chain in self.env.chains.values() {
                for address in [treasury, psp, account("ada"), account("crook")] {
                    chain.blacklist(address, false).await;
                }
            }
            for name in [PAYERS[0], PAYERS[1], "ada", "eve", "crook"] {
                self.env.judge.say(account(name), Some(Decision::Allow));
            }
        }
    }
}

fn part(amount: Amount, percent: i64) -> Amount {
    Amount((amount.units() * percent / 100).max(1))
}
