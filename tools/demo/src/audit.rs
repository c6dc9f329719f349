//! Afterwards: are the webhooks all there and genuine, and does the money lie where the answers say?

use std::collections::{BTreeMap, HashMap, HashSet};
use std::time::{Duration, Instant};

use anyhow::{Context, bail, ensure};
use payferry_testkit::wire::{Amount, Chain};
use serde_json::Value;

use payferry_testkit::client::{Psp, amount, text};

/// How long the last webhooks may take.
const PATIENCE: Duration = Duration::from_mins(1);
const POLL: Duration = Duration::from_millis(100);

/// What was found.
pub(super) struct Audit {
    pub(super) webhooks: usize,
    /// Chain, token, the PSP's vault, the treasury: as on-chain, equal to what was reported.
    pub(super) holdings: Vec<(Chain, String, Amount, Amount)>,
}

/// Checks webhooks and balances of these payments; an error says what does not hold.
pub(super) async fn audit(psp: &Psp, inbox: &str, payments: &[Value]) -> anyhow::Result<Audit> {
    let webhooks = webhooks(psp, inbox, payments).await?;
    let holdings = holdings(psp, payments).await?;
    Ok(Audit { webhooks, holdings })
}

/// Every event of the feed arrived, verified, and no payment's sequence has a gap.
async fn webhooks(psp: &Psp, inbox: &str, payments: &[Value]) -> anyhow::Result<usize> {
    let feed = psp.feed().await?;
    let mut sequences: HashMap<String, Vec<u64>> = HashMap::new();
    let mut expected = HashSet::new();
    for event in &feed {
        expected.insert(text(event, "/event_id")?);
        let sequence = event["sequence"].as_u64().context("an event has no sequence")?;
        sequences.entry(text(event, "/payment_id")?).or_default().push(sequence);
    }
    for payment in payments {
        let id = text(payment, "/payment_id")?;
        let mut sequence = sequences.remove(&id).with_context(|| format!("the feed has nothing of {id}"))?;
        sequence.sort_unstable();
        let gapless = sequence.iter().zip(1..).all(|(found, wanted)| *found == wanted);
        ensure!(gapless, "the sequence of {id} is {sequence:?}");
    }
    let since = Instant::now();
    loop {
        let received = psp.inbox(inbox).await?;
        if let Some(forged) = received.iter().find(|webhook| webhook["verified"] != true) {
            bail!("a webhook did not verify: {}", forged["reason"]);
        }
        let arrived: HashSet<&str> = received.iter().filter_map(|webhook| webhook["webhook_id"].as_str()).collect();
        let missing = expected.iter().filter(|id| !arrived.contains(id.as_str())).count();
        if missing == 0 {
            return Ok(expected.len());
        }
        ensure!(since.elapsed() < PATIENCE, "{missing} of {} webhooks never arrived", expected.len());
        tokio::time::sleep(POLL).await;
    }
}

/// The PSP's vault and the treasury hold, on each chain and in each token, the sum of what the payments report.
async fn holdings(psp: &Psp, payments: &[Value]) -> anyhow::Result<Vec<(Chain, String, Amount, Amount)>> {
    let mut sums: BTreeMap<(Chain, String), (Amount, Amount)> = BTreeMap::new();
    for payment in payments.iter().filter(|payment| payment["status"] == "settled") {
        let chain: Chain = text(payment, "/chain")?.parse()?;
        let (psp_amount, fee) =
            (amount(payment, "/settlement/psp_amount")?, amount(payment, "/settlement/treasury_fee")?);
        ensure!(
            psp_amount.saturating_add(fee) == amount(payment, "/amount_received")?,
            "the shares of {} are not what was received",
            payment["payment_id"]
        );
        let sum = sums.entry((chain, text(payment, "/currency")?)).or_default();
        *sum = (sum.0.saturating_add(psp_amount), sum.1.saturating_add(fee));
    }
    let facts = psp.get("/sandbox").await?;
    let mut holdings = Vec::new();
    for ((chain, token), (psp_amount, fee)) in sums {
        let at = |what: &str| text(&facts, &format!("/chains/{chain}/{what}"));
        let contract = at(&format!("tokens/{token}"))?;
        let vault = psp.balance(chain, &contract, &at("psp_vault")?).await?;
        let treasury = psp.balance(chain, &contract, &at("treasury")?).await?;
        ensure!(
            (vault, treasury) == (psp_amount, fee),
            "{token} on {chain}: vault and treasury hold {vault} and {treasury}, the payments say {psp_amount} and {fee}"
        );
        holdings.push((chain, token, vault, treasury));
    }
    Ok(holdings)
}
