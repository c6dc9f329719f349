//! Demonstration: the stories of the service, played against a new sandbox over HTTP.
//!
//! It is also a check: an unexpected outcome is an error.

mod audit;
pub mod command;
mod shop;
mod stories;

use std::time::{Duration, Instant};

use anyhow::Context;
use futures::future::try_join_all;
use futures::stream::{self, StreamExt, TryStreamExt};
use payferry_testkit::movements::VaultAmounts;
use payferry_testkit::progress::Progress;
use payferry_testkit::service::Ready;
use payferry_testkit::wire::{Amount, Chain, Token};
use serde_json::{Value, json};

use shop::{PaymentLine, Shop, text};
use stories::{Outcome, Story};

/// Inbox of the sandbox that gets the webhooks.
const INBOX: &str = "demo";
/// Requests at once that make and pay the payments of the burst.
const PAYING: usize = 64;
/// Payments of the burst that are polled at once.
const WATCHING: usize = 16;
const BURST_AMOUNT: Amount = Amount(7_770_000);
const EXPIRES_SECS: u32 = 3_600;

/// Plays all stories against a running sandbox and prints the outcomes. `burst` is the number of payments at once at
/// the end.
pub async fn play(ready: &Ready, burst: usize) -> anyhow::Result<()> {
    let began = Instant::now();
    let stories = stories::side_by_side();
    let steps = stories.len() + 3 + 2 * burst + 1;
    let bar = Progress::shown();

    bar.begin("a PSP syncs its merchant and sets its webhook", steps as u64);
    let shop = Shop::set_up(ready, INBOX).await?;

    bar.say("payers pay on every chain, too little, too much, from a sanctioned account");
    let play = async |story: &Story| story.play(&shop).await.inspect(|_| bar.step());
    let mut outcomes: Vec<Outcome> = try_join_all(stories.iter().map(play)).await?;

    bar.say("a reorganisation removes a transfer");
    outcomes.push(stories::reorganised(&shop).await?);
    bar.step();

    bar.say("time passes");
    outcomes.extend(stories::expired(&shop).await?);
    bar.step();
    bar.step();

    bar.say(&format!("{burst} payments at once"));
    let (burst_payments, burst_took) = play_burst(&shop, burst, &bar).await?;

    bar.say("webhooks and balances are compared");
    let mut payments: Vec<Value> = outcomes.iter().map(|outcome| outcome.payment.clone()).collect();
    payments.extend(burst_payments);
    let audit = audit::audit(&shop.psp, INBOX, &payments).await?;
    bar.step();
    bar.done();

    print_outcomes(&outcomes);
    println!();
    if burst > 0 {
        let rate = f64::from(u32::try_from(burst)?) / burst_took.as_secs_f64();
        let secs = burst_took.as_secs_f64();
        println!("{burst} payments at once: initiated, paid and settled on-chain in {secs:.1} s ({rate:.0}/s)");
    }
    println!("{} webhooks received, every signature verified, no gap in any payment's sequence", audit.webhooks);
    println!("on-chain, each equal to the sum of what the payments report:");
    for (chain, token, VaultAmounts { vault, treasury }) in &audit.holdings {
        println!("  {chain:<9} {token}  PSP's vault {vault:>14}  treasury {treasury:>10}");
    }
    println!("\nAll as expected, in {:.0} s.", began.elapsed().as_secs_f64());
    Ok(())
}

/// Plays many payments at once, over all chains and tokens. All are paid before the first is polled.
async fn play_burst(shop: &Shop, size: usize, bar: &Progress) -> anyhow::Result<(Vec<Value>, Duration)> {
    let since = Instant::now();
    let pay = async |n: usize| -> anyhow::Result<String> {
        let (chain, token) = (Chain::ALL[n % Chain::ALL.len()], Token::ALL[n / Chain::ALL.len() % Token::ALL.len()]);
        let made = shop.initiate(BURST_AMOUNT, token, chain.as_str(), EXPIRES_SECS).await?;
        let id = text(&made, "/payment_id")?;
        shop.pay(&id, &json!({})).await?;
        bar.step();
        Ok(id)
    };
    let paid: Vec<String> = stream::iter(0..size).map(pay).buffer_unordered(PAYING).try_collect().await?;
    let settle = async |id: String| -> anyhow::Result<Value> {
        let payment =
            shop.until(&id, |payment| payment["status"] == "settled").await.context("a payment of the burst")?;
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
