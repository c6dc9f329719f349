//! Final checks: all webhooks arrived and verify, and the balances on-chain equal the amounts of the payments.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::time::{Duration, Instant};

use anyhow::{Context, bail, ensure};
use payferry_testkit::movements::{VaultAmounts, holdings};
use payferry_testkit::psp::Psp;
use payferry_testkit::rpc::Rpc;
use payferry_testkit::wire::{Chain, Token};
use serde_json::Value;

use super::shop::{amount, text};

/// Longest wait for the last webhooks.
const PATIENCE: Duration = Duration::from_mins(1);
const POLL: Duration = Duration::from_millis(100);

pub(super) struct Audit {
    pub(super) webhooks: usize,
    pub(super) holdings: Vec<(Chain, Token, VaultAmounts)>,
}

/// Checks webhooks and balances of these payments. The error names the first difference.
pub(super) async fn audit(psp: &Psp, inbox: &str, payments: &[Value]) -> anyhow::Result<Audit> {
    let webhooks = webhooks(psp, inbox, payments).await?;
    let holdings = compared_holdings(psp, payments).await?;
    Ok(Audit { webhooks, holdings })
}

/// Checks that every event of the feed arrived as a webhook and verified, and that no payment's sequence has a gap.
async fn webhooks(psp: &Psp, inbox: &str, payments: &[Value]) -> anyhow::Result<usize> {
    let mut sequences: HashMap<String, Vec<u64>> = HashMap::new();
    let mut expected = HashSet::new();
    for event in psp.events().await? {
        let event: Value = serde_json::from_str(event.get())?;
        expected.insert(text(&event, "/event_id")?);
        let sequence = event["sequence"].as_u64().context("an event has no sequence")?;
        sequences.entry(text(&event, "/payment_id")?).or_default().push(sequence);
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

/// Checks that the PSP's vault and the treasury hold, of each token on each chain, the sum of the payments' shares.
async fn compared_holdings(psp: &Psp, payments: &[Value]) -> anyhow::Result<Vec<(Chain, Token, VaultAmounts)>> {
    let mut sums: BTreeMap<(Chain, Token), VaultAmounts> = BTreeMap::new();
    for payment in payments.iter().filter(|payment| payment["status"] == "settled") {
        let (psp_amount, fee) =
            (amount(payment, "/settlement/psp_amount")?, amount(payment, "/settlement/treasury_fee")?);
        ensure!(
            psp_amount.saturating_add(fee) == amount(payment, "/amount_received")?,
            "the shares of {} are not what was received",
            payment["payment_id"]
        );
        let asset = (text(payment, "/chain")?.parse()?, text(payment, "/currency")?.parse()?);
        sums.entry(asset).or_default().add(psp_amount, fee);
    }
    let mut compared = Vec::new();
    for (chain, info) in psp.sandbox().await?.chains {
        let (_, held) = holdings(&Rpc::of_sandbox(psp.side(), chain), &info).await?;
        for ((_, token), sum) in sums.iter().filter(|((of, _), _)| *of == chain) {
            let held = held.get(token).copied().unwrap_or_default();
            let [holds, say] = [held, *sum].map(|of| format!("{} and {}", of.vault, of.treasury));
            ensure!(held == *sum, "{token} on {chain}: vault and treasury hold {holds}, the payments say {say}");
            compared.push((chain, *token, held));
        }
    }
    Ok(compared)
}
