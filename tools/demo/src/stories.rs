//! What may happen to a payment, each as a story with its expected end.

use std::time::{Duration, Instant};

use anyhow::{Context, ensure};
use payferry_testkit::wire::{Amount, Token};
use serde_json::{Value, json};

use payferry_testkit::client::{PaymentLine, Psp, text};

/// Seconds until a payment expires, unless the story is about that.
const EXPIRES_SECS: u32 = 1_200;
const EXPIRES_SOON_SECS: u32 = 60;

/// A payment that is paid with these transfers, and how it ends.
pub(super) struct Story {
    pub(super) name: &'static str,
    pub(super) chain: &'static str,
    pub(super) token: Token,
    pub(super) due: Amount,
    /// Bodies of `pay`.
    pub(super) pays: Vec<Value>,
    /// Whether the payment's actor panics in between.
    pub(super) panics: bool,
    pub(super) ends: Ends,
}

/// How a payment ends.
#[derive(Clone, Copy)]
pub(super) struct Ends {
    pub(super) status: &'static str,
    /// Labels that it has then, others aside.
    pub(super) labels: &'static [&'static str],
    pub(super) received: Amount,
}

/// How it ended.
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

/// The stories that can be played side by side.
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
            pays: vec![json!({"amount": "100.01"})],
            ends: Ends { status: "mismatched", labels: &["OVERPAID"], received: Amount(100_010_000) },
            ..exact("arbitrum", usdt, due)
        },
        Story {
            name: "sanctioned sender",
            pays: vec![json!({"from": "sanctioned"})],
            ends: Ends { status: "failed", labels: &["FUNDS_BLOCKED"], received: Amount::ZERO },
            ..exact("polygon", usdt, due)
        },
        Story { name: "its actor panics", panics: true, ..exact("arbitrum", usdc, tokens(64)) },
    ]
}

impl Story {
    /// Plays it to its end.
    pub(super) async fn play(&self, psp: &Psp) -> anyhow::Result<Outcome> {
        let since = Instant::now();
        let made = psp.initiate(self.due, self.token, self.chain, EXPIRES_SECS).await?;
        let id = text(&made, "/payment_id")?;
        ensure!(made["status"] == "pending", "{id} began as {}", made["status"]);
        if self.chain == "best" {
            let chain = text(&made, "/chain")?;
            ensure!(["base", "polygon", "arbitrum"].contains(&chain.as_str()), "best became {chain}");
        }
        if self.panics {
            psp.post(&format!("/sandbox/payments/{id}/panic"), json!({})).await?;
        }
        for body in &self.pays {
            psp.pay(&id, body.clone()).await?;
        }
        self.ends.reached(psp, self.name, &id, since).await
    }
}

impl Ends {
    async fn reached(self, psp: &Psp, name: &'static str, id: &str, since: Instant) -> anyhow::Result<Outcome> {
        let payment = psp.until(id, |payment| self.fits(payment)).await.with_context(|| {
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

/// The chain takes the payer's transfer back before it is final; he pays again.
pub(super) async fn reorganised(psp: &Psp) -> anyhow::Result<Outcome> {
    let (since, chain, due) = (Instant::now(), "/sandbox/chains/arbitrum", tokens(77));
    let id = text(&psp.initiate(due, Token::Usdc, "arbitrum", EXPIRES_SECS).await?, "/payment_id")?;
    psp.post(&format!("{chain}/mining"), json!({"paused": true})).await?;
    psp.pay(&id, json!({})).await?;
    psp.post(&format!("{chain}/mine"), json!({"blocks": 1})).await?;
    psp.until(&id, |payment| payment["transfers"][0]["status"] == "seen").await.context("reorganisation: seen")?;
    psp.post(&format!("{chain}/reorg"), json!({"depth": 1, "dropped": "discard"})).await?;
    let back = psp.until(&id, |payment| payment["transfers"][0]["status"] == "orphaned").await;
    let back = back.context("reorganisation: orphaned")?;
    psp.post(&format!("{chain}/mining"), json!({"paused": false})).await?;
    ensure!(back["status"] == "pending", "a payment whose transfer was taken back became {}", back["status"]);
    psp.pay(&id, json!({})).await?;
    let ends = Ends { labels: &["REORGED"], ..settled(due) };
    ends.reached(psp, "transfer taken back, paid again", &id, since).await
}

/// One payment nobody pays, and one that is paid after its time. Moves the clock.
pub(super) async fn expired(psp: &Psp) -> anyhow::Result<[Outcome; 2]> {
    let (since, due) = (Instant::now(), tokens(10));
    let initiate = || psp.initiate(due, Token::Usdc, "base", EXPIRES_SOON_SECS);
    let unpaid = text(&initiate().await?, "/payment_id")?;
    let late = text(&initiate().await?, "/payment_id")?;
    psp.post("/sandbox/clock/advance", json!({"seconds": EXPIRES_SOON_SECS + 1})).await?;
    let failed = Ends { status: "failed", labels: &[], received: Amount::ZERO };
    let unpaid = failed.reached(psp, "nobody pays", &unpaid, since).await?;
    failed.reached(psp, "paid too late", &late, since).await?;
    psp.pay(&late, json!({})).await?;
    let mismatched = Ends { status: "mismatched", labels: &["LATE"], received: due };
    Ok([unpaid, mismatched.reached(psp, "paid too late", &late, since).await?])
}
