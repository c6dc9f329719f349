//! Stories: what can happen to a payment, each with its expected end.

use std::time::{Duration, Instant};

use anyhow::{Context, ensure};
use payferry_testkit::wire::{Amount, Token};
use serde_json::{Value, json};

use super::shop::{PaymentLine, Shop, text};

/// Seconds until a payment expires, and in the stories about expiry.
const EXPIRES_SECS: u32 = 1_200;
const EXPIRES_SOON_SECS: u32 = 60;

/// A payment, its transfers and its expected end.
pub(super) struct Story {
    pub(super) name: &'static str,
    pub(super) chain: &'static str,
    pub(super) token: Token,
    pub(super) due: Amount,
    /// Request bodies of `pay`.
    pub(super) pays: Vec<Value>,
    /// True if the actor of the payment panics before it is paid.
    pub(super) panics: bool,
    pub(super) ends: Ends,
}

#[derive(Clone, Copy)]
pub(super) struct Ends {
    pub(super) status: &'static str,
    /// Labels that it must have; others are allowed.
    pub(super) labels: &'static [&'static str],
    pub(super) received: Amount,
}

pub(super) struct Outcome {
    pub(super) name: &'static str,
    pub(super) payment: Value,
    pub(super) took: Duration,
}

const fn tokens(tokens: i64) -> Amount {
    Amount::from_tokens(tokens)
}

const fn settled(received: Amount) -> Ends {
    Ends { status: "settled", labels: &[], received }
}

/// Returns the stories that can be played concurrently.
pub(super) fn side_by_side() -> Vec<Story> {
    let exact = |chain, token, due| Story {
        name: "exact amount",
        chain,
        token,
        due,
        pays: vec![json!({})],
        panics: false,
        ends: settled(due),
    };
    let (usdc, usdt, due) = (Token::Usdc, Token::Usdt, tokens(100));
    vec![
        exact("base", usdc, due),
        exact("base", usdt, tokens(20)),
        exact("polygon", usdc, tokens(31)),
        exact("polygon", usdt, tokens(42)),
        exact("arbitrum", usdc, tokens(53)),
        exact("arbitrum", usdt, Amount(12_345_678)),
        Story { name: "chain left to the service", chain: "best", ..exact("base", usdc, due) },
        Story {
            name: "two transfers that sum",
            pays: vec![json!({"amount": "60"}), json!({"amount": "40"})],
            ends: Ends { labels: &["MULTIPLE"], ..settled(due) },
            ..exact("polygon", usdc, due)
        },
        Story {
            name: "too little",
            pays: vec![json!({"amount": "99.99"})],
            ends: Ends { status: "mismatched", labels: &["UNDERPAID"], received: Amount(99_990_000) },
            ..exact("base", usdc, due)
        },
        Story {
            name: "too much",
            pays: vec![json!({"amount": "101"})],
            ends: Ends { status: "mismatched", labels: &["OVERPAID"], received: Amount(101_000_000) },
            ..exact("arbitrum", usdt, due)
        },
        Story {
            name: "sanctioned sender",
            pays: vec![json!({"from": "sanctioned"})],
            ends: Ends { status: "failed", labels: &["FUNDS_BLOCKED"], received: Amount::ZERO },
            ..exact("polygon", usdt, due)
        },
        Story {
            name: "signed, without gas",
            pays: vec![json!({"method": "authorization"})],
            ends: Ends { labels: &["AUTHORIZED"], ..settled(due) },
            ..exact("base", usdc, due)
        },
        Story { name: "its actor panics", panics: true, ..exact("arbitrum", usdc, tokens(64)) },
    ]
}

impl Story {
    pub(super) async fn play(&self, shop: &Shop) -> anyhow::Result<Outcome> {
        let since = Instant::now();
        let made = shop.initiate(self.due, self.token, self.chain, EXPIRES_SECS).await?;
        let id = text(&made, "/payment_id")?;
        ensure!(made["status"] == "pending", "{id} began as {}", made["status"]);
        if self.chain == "best" {
            let chain = text(&made, "/chain")?;
            ensure!(["base", "polygon", "arbitrum"].contains(&chain.as_str()), "best became {chain}");
        }
        if self.panics {
            shop.psp.post(&format!("/sandbox/payments/{id}/panic"), &json!({})).await?;
        }
        for body in &self.pays {
            shop.pay(&id, body).await?;
        }
        self.ends.reached(shop, self.name, &id, since).await
    }
}

impl Ends {
    async fn reached(self, shop: &Shop, name: &'static str, id: &str, since: Instant) -> anyhow::Result<Outcome> {
        let payment = shop.until(id, |payment| self.fits(payment)).await.with_context(|| {
            format!("{name}: expected {} {} with {} received", self.status, self.labels.join(" "), self.received)
        })?;
        Ok(Outcome { name, payment, took: since.elapsed() })
    }

    fn fits(&self, payment: &Value) -> bool {
        let PaymentLine { labels, received, .. } = PaymentLine::of(payment);
        payment["status"] == self.status
            && self.labels.iter().all(|label| labels.split(' ').any(|has| has == *label))
            && received == self.received.to_string()
    }
}

/// A reorganisation removes the payer's transfer before it is final. The payer pays again.
pub(super) async fn reorganised(shop: &Shop) -> anyhow::Result<Outcome> {
    let (since, chain, due) = (Instant::now(), "/sandbox/chains/arbitrum", tokens(77));
    let id = text(&shop.initiate(due, Token::Usdc, "arbitrum", EXPIRES_SECS).await?, "/payment_id")?;
    shop.psp.post(&format!("{chain}/mining"), &json!({"paused": true})).await?;
    shop.pay(&id, &json!({})).await?;
    shop.psp.post(&format!("{chain}/mine"), &json!({"blocks": 1})).await?;
    shop.until(&id, |payment| payment["transfers"][0]["status"] == "seen").await.context("reorganisation: seen")?;
    shop.psp.post(&format!("{chain}/reorg"), &json!({"depth": 1, "dropped": "discard"})).await?;
    let back = shop.until(&id, |payment| payment["transfers"][0]["status"] == "orphaned").await;
    let back = back.context("reorganisation: orphaned")?;
    shop.psp.post(&format!("{chain}/mining"), &json!({"paused": false})).await?;
    ensure!(back["status"] == "pending", "a payment whose transfer was orphaned became {}", back["status"]);
    shop.pay(&id, &json!({})).await?;
    let ends = Ends { labels: &["REORGED"], ..settled(due) };
    ends.reached(shop, "transfer orphaned, paid again", &id, since).await
}

/// One payment expires unpaid, and one is paid after it expired. Moves the clock.
pub(super) async fn expired(shop: &Shop) -> anyhow::Result<[Outcome; 2]> {
    let (since, due) = (Instant::now(), tokens(10));
    let initiate = || shop.initiate(due, Token::Usdc, "base", EXPIRES_SOON_SECS);
    let unpaid = text(&initiate().await?, "/payment_id")?;
    let late = text(&initiate().await?, "/payment_id")?;
    shop.psp.post("/sandbox/clock/advance", &json!({"seconds": EXPIRES_SOON_SECS + 1})).await?;
    let failed = Ends { status: "failed", labels: &[], received: Amount::ZERO };
    let unpaid = failed.reached(shop, "not paid", &unpaid, since).await?;
    failed.reached(shop, "paid too late", &late, since).await?;
    shop.pay(&late, &json!({})).await?;
    let mismatched = Ends { status: "mismatched", labels: &["LATE"], received: due };
    Ok([unpaid, mismatched.reached(shop, "paid too late", &late, since).await?])
}
