//! The demonstration: the whole story of the service, played against a fresh sandbox over real HTTP.
//!
//! It is a check, too: whatever does not end as expected is an error.

mod audit;
mod client;
mod stories;

use std::time::{Duration, Instant};

use anyhow::Context;
use futures::stream::{self, FuturesUnordered, StreamExt, TryStreamExt};
use indicatif::{ProgressBar, ProgressStyle};
use payferry_testkit::wire::{Amount, Chain, Token};
use serde_json::{Value, json};

use crate::sandbox::Ready;
use client::{PaymentLine, Psp, text};
use stories::Outcome;

/// Where the demonstration's webhooks go.
const INBOX: &str = "demo";
/// Requests at once that make and pay the crowd's payments.
const PAYING: usize = 64;
/// Payments of the crowd that are asked after at once.
const WATCHING: usize = 16;
/// What each of the crowd pays.
const CROWD_AMOUNT: Amount = Amount(7_770_000);
const EXPIRES_SECS: u32 = 3_600;

/// Plays everything against a running sandbox and prints how it went. `crowd`: payments at once at the end.
pub async fn play(ready: &Ready, crowd: usize) -> anyhow::Result<()> {
    let began = Instant::now();
    let stories = stories::side_by_side();
    let steps = stories.len() + 3 + 2 * crowd + 1;
    let bar = Progress::new(steps);

    bar.say("a PSP syncs its merchant and sets its webhook");
    let psp = Psp::set_up(ready, INBOX).await?;

    bar.say("payers pay on every chain, too little, too much, from a sanctioned account");
    let mut outcomes = Vec::new();
    let mut playing: FuturesUnordered<_> =
        stories.iter().enumerate().map(async |(n, story)| (n, story.play(&psp).await)).collect();
    while let Some((n, outcome)) = playing.next().await {
        outcomes.push((n, outcome?));
        bar.step();
    }
    drop(playing);
    outcomes.sort_by_key(|(n, _)| *n);
    let mut outcomes: Vec<Outcome> = outcomes.into_iter().map(|(_, outcome)| outcome).collect();

    bar.say("the chain takes a transfer back");
    outcomes.push(stories::reorganised(&psp).await?);
    bar.step();

    bar.say("time passes");
    outcomes.extend(stories::expired(&psp).await?);
    bar.step();
    bar.step();

    bar.say(&format!("{crowd} payments at once"));
    let (crowd_payments, crowd_took) = play_crowd(&psp, crowd, &bar).await?;

    bar.say("webhooks and balances are compared");
    let mut payments: Vec<Value> = outcomes.iter().map(|outcome| outcome.payment.clone()).collect();
    payments.extend(crowd_payments);
    let audit = audit::audit(&psp, INBOX, &payments).await?;
    bar.step();
    bar.done();

    print_outcomes(&outcomes);
    println!();
    if crowd > 0 {
        let rate = f64::from(u32::try_from(crowd)?) / crowd_took.as_secs_f64();
        let secs = crowd_took.as_secs_f64();
        println!("{crowd} payments at once: initiated, paid and settled on-chain in {secs:.1} s ({rate:.0}/s)");
    }
    println!("{} webhooks received, every signature verified, no gap in any payment's sequence", audit.webhooks);
    println!("on-chain, each equal to the sum of what the payments report:");
    for (chain, token, vault, treasury) in &audit.holdings {
        println!(
            "  {:<9} {token}  PSP's vault {:>14}  treasury {:>10}",
            chain.as_str(),
            vault.to_string(),
            treasury.to_string()
        );
    }
    println!("\nAll as expected, in {:.0} s.", began.elapsed().as_secs_f64());
    Ok(())
}

/// Many payments at once, over all chains and tokens: all are paid before the first is asked after.
async fn play_crowd(psp: &Psp, size: usize, bar: &Progress) -> anyhow::Result<(Vec<Value>, Duration)> {
    let since = Instant::now();
    let pay = async |n: usize| -> anyhow::Result<String> {
        let (chain, token) = (Chain::ALL[n % Chain::ALL.len()], Token::ALL[n / Chain::ALL.len() % Token::ALL.len()]);
        let made = psp.initiate(CROWD_AMOUNT, token, chain.as_str(), EXPIRES_SECS).await?;
        let id = text(&made, "/payment_id")?;
        psp.pay(&id, json!({})).await?;
        bar.step();
        Ok(id)
    };
    let paid: Vec<String> = stream::iter(0..size).map(pay).buffer_unordered(PAYING).try_collect().await?;
    let settle = async |id: String| -> anyhow::Result<Value> {
        let payment = psp.until(&id, |payment| payment["status"] == "settled").await.context("one of the crowd")?;
        bar.step();
        Ok(payment)
    };
    let settled: Vec<Value> = stream::iter(paid).map(settle).buffer_unordered(WATCHING).try_collect().await?;
    Ok((settled, since.elapsed()))
}

fn print_outcomes(outcomes: &[Outcome]) {
    let line = |cells: [&str; 8]| {
        let [story, chain, token, due, received, status, labels, took] = cells;
        println!("{story:<32} {chain:<9} {token:<5} {due:>10} {received:>10}  {status:<22} {took:>6}  {labels}");
    };
    println!();
    line(["story", "chain", "token", "due", "received", "status", "labels", "took"]);
    println!("{}", "-".repeat(112));
    for Outcome { name, payment, took } in outcomes {
        let word = |key: &str| payment[key].as_str().unwrap_or("-").to_owned();
        let PaymentLine { status, labels, received } = PaymentLine::of(payment);
        let took = format!("{:.1} s", took.as_secs_f64());
        line([name, &word("chain"), &word("currency"), &word("amount"), &received, &status, &labels, &took]);
    }
}

/// A bar where somebody looks, lines where it goes to a file.
struct Progress {
    bar: ProgressBar,
}

impl Progress {
    fn new(steps: usize) -> Self {
        let bar = ProgressBar::new(steps as u64);
        if let Ok(style) = ProgressStyle::with_template("{bar:30} {pos:>4}/{len} {elapsed:>4}  {msg}") {
            bar.set_style(style);
        }
        bar.enable_steady_tick(Duration::from_millis(200));
        Self { bar }
    }

    fn say(&self, what: &str) {
        if self.bar.is_hidden() {
            eprintln!("{what}");
        }
        self.bar.set_message(what.to_owned());
    }

    fn step(&self) {
        self.bar.inc(1);
    }

    fn done(&self) {
        self.bar.finish_and_clear();
    }
}
