//! Audit of a run: reads every payment back and compares it with the transfer or authorization that was sent, the webhooks, the chain
//! and the service's ledger. A difference becomes a fault of the payment.

pub mod answers;
pub mod behaviour;
pub mod clock;
pub mod customers;
pub mod disturbance;
pub mod expect;
pub mod findings;
pub mod heat;
mod lateness;
pub mod outbound;
mod postings;
pub mod reception;
pub mod record;
pub mod session;
pub mod settings;
pub mod stages;
pub mod state;
pub mod tally;

use std::collections::{BTreeMap, HashMap, HashSet};

use crate::wire::Status;
use crate::wire::{Amount, Chain, PaymentId, Token};
use alloy::primitives::Address;
use serde::{Deserialize, Serialize};

use crate::ledger::LedgerReading;
use crate::movements::{SettledAmounts, VaultAmounts, holdings, movements};
use crate::psp::Psp;
use crate::sandbox::{ChainInfo, SandboxInfo};
use behaviour::Behaviour;
use outbound::SentTransfers;
use postings::{ExpectedOutbound, ExpectedPostings, LedgerTraits, Posted, Postings};
use record::{Record, ReportedSettlement};
use session::Session;
use state::Inner;

/// Status of a transfer whose block was removed.
const ORPHANED: &str = "orphaned";

/// A payment as the service shows it, as far as the audit compares it.
#[derive(Debug, Clone, Deserialize)]
pub struct AuditedPayment {
    payment_id: PaymentId,
    /// Status.
    pub status: String,
    reference: Option<String>,
    amount: String,
    amount_received: String,
    excess_received: String,
    currency: String,
    chain: String,
    intermediary_wallet: Address,
    labels: Vec<String>,
    failure_reason: Option<String>,
    transfers: Vec<AuditedTransfer>,
    settlement: Option<AuditedSettlement>,
}

#[derive(Debug, Clone, Deserialize)]
struct AuditedTransfer {
    tx_hash: String,
    amount: String,
    status: String,
    counted: bool,
}

#[derive(Debug, Clone, Deserialize)]
struct AuditedSettlement {
    status: String,
    amount: String,
    psp_amount: String,
    treasury_fee: String,
    tx_hash: Option<String>,
}

/// Change of both balances during a run, compared with the payments of the run.
#[derive(Debug, Clone, Serialize)]
pub struct Holding {
    /// The PSP; absent if there is only one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub psp_id: Option<String>,
    /// The chain.
    pub chain: Chain,
    /// The token.
    pub token: Token,
    /// Increase of the PSP's vault during the run.
    pub vault_grew: String,
    /// Increase of the treasury.
    pub treasury_grew: String,
    /// Expected increase of the vault: settled by the run's payments, plus transfers of other payments, minus outgoing
    /// transfers.
    pub vault_expected: String,
    /// Expected increase of the treasury.
    pub treasury_expected: String,
    /// True if increase and expected increase are equal.
    pub equal: bool,
    /// Increase of the PSP's balance including reserved money; null if it was not compared.
    pub balance_grew: Option<String>,
    /// Increase according to all postings in the ledger.
    pub postings_say: Option<String>,
}

impl Holding {
    /// Returns true if all comparisons are equal.
    pub fn is_ok(&self) -> bool {
        self.equal && self.balance_grew == self.postings_say
    }

    /// Returns true if both balances grew by what is expected and at most `late` more.
    fn is_within(&self, late: &VaultAmounts) -> bool {
        let beyond = |grew: &str, expected: &str| {
            Some(grew.parse::<Amount>().ok()?.units().saturating_sub(expected.parse::<Amount>().ok()?.units()))
        };
        let is_up_to =
            |beyond: Option<i64>, most: Amount| beyond.is_some_and(|units| (0..=most.units()).contains(&units));
        is_up_to(beyond(&self.vault_grew, &self.vault_expected), late.vault)
            && is_up_to(beyond(&self.treasury_grew, &self.treasury_expected), late.treasury)
    }
}

/// Results of the audit, besides the faults of single payments.
#[derive(Debug, Default)]
pub struct Audit {
    /// Payments that were read back, by number, as one line of text.
    pub shown: HashMap<u32, String>,
    /// Faults that belong to no payment of the run.
    pub unassigned: Vec<String>,
    /// Differences of amounts on-chain that late payments may explain.
    pub maybe_late: Vec<String>,
    /// Amounts on-chain and balances.
    pub holdings: Vec<Holding>,
    /// Omitted comparisons, with the reasons.
    pub notes: Vec<String>,
}

/// State at the beginning of the run.
#[derive(Debug)]
pub struct Baseline {
    /// Newest block of each chain, and the amounts in vault and treasury at it.
    pub chains: BTreeMap<Chain, (u64, HashMap<Token, VaultAmounts>)>,
    /// Balances and ledger position.
    pub ledger: LedgerReading,
}

/// Reads the current state.
pub async fn baseline(psp: &Psp, sandbox: &SandboxInfo) -> anyhow::Result<Baseline> {
    let mut chains = BTreeMap::new();
    for (chain, place) in &sandbox.chains {
        chains.insert(*chain, holdings(&place.rpc(psp.side(), *chain), place).await?);
    }
    Ok(Baseline { chains, ledger: LedgerReading::now(psp).await? })
}

/// Part of a payment that was read back and is compared with the chain.
struct ChainSide {
    wallet: Address,
    settlement: Option<ReportedSettlement>,
}

/// Reads everything back and compares it. `is_alone` is true if only this run uses the service.
pub async fn audit(session: &Session, is_alone: bool) -> anyhow::Result<Audit> {
    let Session { psp, merchant, sandbox, baseline, state, .. } = session;
    let mut audit = Audit::default();
    let mut settled: HashMap<(Chain, Token), VaultAmounts> = HashMap::new();
    // Amounts that late payments may have settled since they were read.
    let mut late: HashMap<(Chain, Token), VaultAmounts> = HashMap::new();
    let mut owed = Vec::new();
    let mut ids = HashSet::new();
    let mut listed = HashMap::new();
    psp.payments(&format!("merchant_id={merchant}"), |shown: AuditedPayment| {
        if !ids.insert(shown.payment_id) {
            audit.unassigned.push(format!("{} is listed twice", shown.payment_id));
        }
        let number = shown.reference.as_deref().and_then(|reference| state.number(reference));
        let mut inner = state.read();
        let Some(record) = number.and_then(|number| inner.record(number)) else {
            audit.unassigned.push(format!("{} exists and was not requested", shown.payment_id));
            return;
        };
        record.close();
        record.reported_id = Some(shown.payment_id);
        record.is_late = lateness::is_behind(record, &shown);
        for fault in differences(record, &shown) {
            record.fault(fault);
        }
        let asset = (record.intent.chain, record.intent.token);
        let settlement = settlement(&shown);
        if let Some(ReportedSettlement { psp_amount, treasury_fee, .. }) = &settlement {
            settled.entry(asset).or_default().add(*psp_amount, *treasury_fee);
        } else if record.is_late {
            let full = full(record);
            late.entry(asset).or_default().add(Amount(full.psp), Amount(full.treasury));
        }
        listed.insert(number.unwrap_or_default(), ChainSide { wallet: shown.intermediary_wallet, settlement });
        owed.push(ExpectedPostings {
            number: number.unwrap_or_default(),
            id: shown.payment_id,
            asset,
            posted: posted(record, &shown),
            // The service may have gone on since it was read.
            most: if record.is_late { full(record) } else { posted(record, &shown) },
        });
        audit.shown.insert(number.unwrap_or_default(), line(&shown));
    })
    .await?;
    let outbound = outbound::read_listed(psp, state).await?;
    outbound::compare_listed(&mut state.read(), &outbound);
    if state.read().records.iter().any(|record| record.customer.is_some()) {
        let listed = psp.customers(&state.reference_prefix()).await?;
        audit.unassigned.extend(customers::compare_listed(state, &listed));
    }
    let traits = LedgerTraits { has_ledger: sandbox.keeps_ledger, is_alone };
    let ledger = compare_ledger(session, traits, &owed).await?;
    audit.unassigned.extend(ledger.unassigned);
    audit.notes.extend(ledger.notes);
    for (chain, place) in &sandbox.chains {
        let rpc = place.rpc(psp.side(), *chain);
        let (head, now) = holdings(&rpc, place).await?;
        let Some((above, before)) = baseline.chains.get(chain) else { continue };
        let moved = movements(&rpc, place, (sandbox.psp_id, state.fee_bps()), *above, head).await?;
        let others = compare_with_chain(&mut state.read(), *chain, moved.came, &listed);
        let not_ours = SentTransfers::of(&moved.sent).assign(&mut state.read(), *chain);
        audit.unassigned.extend(not_ours.into_iter().filter(|_| is_alone));
        for token in place.tokens.keys() {
            let of = |holdings: &HashMap<Token, VaultAmounts>| holdings.get(token).copied().unwrap_or_default();
            let ours = settled.get(&(*chain, *token)).copied().unwrap_or_default();
            let moved = [ours, of(&others), of(&moved.left)];
            let mut holding = holding(*chain, *token, [of(before), of(&now)], moved);
            if let Some(grew) = ledger.balances.get(&(*chain, *token)) {
                holding.balance_grew = Some(Amount(grew.balance).to_string());
                holding.postings_say = Some(Amount(grew.ledger).to_string());
            }
            audit.holdings.push(holding);
        }
    }
    for holding in audit.holdings.iter().filter(|holding| !holding.equal) {
        let Holding { chain, token, vault_grew, vault_expected, treasury_grew, treasury_expected, .. } = holding;
        let what = format!(
            "{token} on {chain}: the vault grew by {vault_grew} and the treasury by {treasury_grew}, the payments sum to {vault_expected} and {treasury_expected}"
        );
        let may_be_late = late.get(&(*chain, *token)).is_some_and(|late| holding.is_within(late));
        if may_be_late { &mut audit.maybe_late } else { &mut audit.unassigned }.push(what);
    }
    Ok(audit)
}

/// Reads balances and ledger and compares them. Differences of a payment become faults of it.
async fn compare_ledger(
    Session { psp, sandbox, baseline, state, .. }: &Session,
    traits: LedgerTraits,
    owed: &[ExpectedPostings],
) -> anyhow::Result<postings::Compared> {
    let of_chain = |(chain, place): (&Chain, &ChainInfo)| {
        let chain = *chain;
        place.tokens.iter().map(move |(token, contract)| ((chain, *token), *contract)).collect::<Vec<_>>()
    };
    let contracts: HashMap<(Chain, Token), Address> = sandbox.chains.iter().flat_map(of_chain).collect();
    let asset = |owed: &ExpectedPostings| Some((owed.id, (owed.asset.0, *contracts.get(&owed.asset)?)));
    let outbound: Vec<ExpectedOutbound> = {
        let inner = state.read();
        let owed = (0..).zip(&inner.records).filter_map(|(number, record)| Some((number, outbound::owed(record)?)));
        let expected = |(number, (id, amount, is_late)): (u32, (&str, Amount, bool))| ExpectedOutbound {
            number,
            id: id.to_owned(),
            amount,
            is_late,
        };
        owed.map(expected).collect()
    };
    let mut postings = Postings::of(owed.iter().filter_map(asset), &outbound);
    let before = &baseline.ledger;
    let now = before.since(psp, |entry| postings.add(entry)).await?;
    let mut compared = postings::compare(owed, &postings, [before, &now], &contracts, traits);
    compared.faults.extend(postings::compare_outbound(&outbound, &postings));
    let mut inner = state.read();
    for (number, fault) in compared.faults.drain(..) {
        if let Some(record) = inner.record(number) {
            // The comparison allows for a late payment.
            record.is_late = false;
            record.fault(fault);
        }
    }
    drop(inner);
    Ok(compared)
}

/// Compares the increase of vault and treasury with the expected one. Both are negative if more left than arrived.
fn holding(
    chain: Chain,
    token: Token,
    [before, now]: [VaultAmounts; 2],
    [ours, others, left]: [VaultAmounts; 3],
) -> Holding {
    let less = |all: Amount, part: Amount| Amount(all.units().saturating_sub(part.units()));
    let grew = VaultAmounts { vault: less(now.vault, before.vault), treasury: less(now.treasury, before.treasury) };
    let expected = VaultAmounts {
        vault: less(ours.vault.saturating_add(others.vault), left.vault),
        treasury: less(ours.treasury.saturating_add(others.treasury), left.treasury),
    };
    Holding {
        psp_id: None,
        chain,
        token,
        vault_grew: grew.vault.to_string(),
        treasury_grew: grew.treasury.to_string(),
        vault_expected: expected.vault.to_string(),
        treasury_expected: expected.treasury.to_string(),
        equal: grew == expected,
        balance_grew: None,
        postings_say: None,
    }
}

fn line(shown: &AuditedPayment) -> String {
    let state = expect::state(&shown.status, shown.failure_reason.as_deref(), shown.labels.iter().map(String::as_str));
    format!("{state}, {} of {} received", shown.amount_received, shown.amount)
}

/// Returns the final settlement that the payment shows.
fn settlement(shown: &AuditedPayment) -> Option<ReportedSettlement> {
    let settlement = shown.settlement.as_ref().filter(|settlement| settlement.status == "settled")?;
    Some(ReportedSettlement {
        psp_amount: settlement.psp_amount.parse().ok()?,
        treasury_fee: settlement.treasury_fee.parse().ok()?,
        tx_hash: settlement.tx_hash.clone().unwrap_or_else(|| "-".to_owned()),
    })
}

/// Returns the postings that the ledger must have for a payment: the received amount that it shows, and the shares of
/// the settled amount by the PSP's settings, whatever shares the payment shows.
fn posted(record: &Record, shown: &AuditedPayment) -> Posted {
    let parsed = |text: &str| text.parse::<Amount>().unwrap_or_default();
    let settlement = shown.settlement.as_ref().filter(|settlement| settlement.status == "settled");
    let settled = settlement.map_or(Amount::ZERO, |settlement| parsed(&settlement.amount));
    let treasury = expect::treasury_fee(settled, record.fee_bps);
    Posted {
        received: parsed(&shown.amount_received).units(),
        psp: settled.saturating_sub(treasury).units(),
        treasury: treasury.units(),
    }
}

/// Returns the postings that the ledger must have for a payment at its end.
fn full(record: &Record) -> Posted {
    let received = record.intent.paid_amount().unwrap_or_default();
    let settles = expect::ends(record.intent.behaviour).status == Status::Settled;
    let settled = if settles { received } else { Amount::ZERO };
    let treasury = expect::treasury_fee(settled, record.fee_bps);
    let psp = settled.saturating_sub(treasury).units();
    Posted { received: received.units(), psp, treasury: treasury.units() }
}

/// Returns the differences between a payment and its expected state.
fn differences(record: &Record, shown: &AuditedPayment) -> Vec<String> {
    let intent = &record.intent;
    let mut differences = Vec::new();
    let mut same = |what: &str, found: &str, wanted: &str| {
        if found != wanted {
            differences.push(format!("shows {what} `{found}`, not `{wanted}`"));
        }
    };
    same("amount", &shown.amount, &intent.amount.to_string());
    same("currency", &shown.currency, intent.token.as_str());
    same("chain", &shown.chain, intent.chain.as_str());
    let Some(made) = &record.made else {
        // The payer never learned the address of this payment.
        let statuses = expect::unpaid(intent.behaviour).iter().map(|status| status.as_str());
        if !statuses.clone().any(|status| status == shown.status) {
            same("status", &shown.status, &statuses.collect::<Vec<_>>().join(" or "));
        }
        same("amount_received", &shown.amount_received, &Amount::ZERO.to_string());
        same("a settlement", if shown.settlement.is_some() { "one" } else { "none" }, "none");
        return differences;
    };
    same("payment_id", &shown.payment_id.to_string(), &made.id.to_string());
    same("intermediary_wallet", &shown.intermediary_wallet.to_string(), &made.wallet.to_string());
    if record.unsent.is_some() || (record.sent.is_none() && intent.behaviour == Behaviour::Late) {
        // It was not paid, so it cannot end as intended.
        return differences;
    }
    let ends = expect::ends(intent.behaviour);
    let labels: Vec<&str> = ends.labels.iter().map(|label| label.as_str()).collect();
    let paid = intent.paid_amount().unwrap_or_default();
    let received = paid.to_string();
    same("status", &shown.status, ends.status.as_str());
    let reason = ends.failure_reason.unwrap_or("-");
    same("failure_reason", shown.failure_reason.as_deref().unwrap_or("-"), reason);
    same("labels", &record.own_labels(&shown.labels), &labels.join(" "));
    same("amount_received", &shown.amount_received, &received);
    same("excess_received", &shown.excess_received, &Amount::ZERO.to_string());
    let paid_in = match intent.behaviour {
        // The collection confirms and settles.
        Behaviour::Authorized => shown.settlement.as_ref().and_then(|settlement| settlement.tx_hash.clone()),
        _ => record.sent.map(|(hash, _)| hash.to_string()),
    };
    let sent = paid_in.map(|hash| format!("{hash} of {received}, final, counted"));
    // After a reorganisation the payment also shows the transfer in the block that was removed.
    let is_removed =
        |transfer: &AuditedTransfer| record.may_be_reorged() && transfer.status == ORPHANED && !transfer.counted;
    let transfers = shown.transfers.iter().filter(|transfer| !is_removed(transfer));
    let transfers = transfers.map(|AuditedTransfer { tx_hash, amount, status, counted }| {
        let counted = if *counted { "counted" } else { "not counted" };
        format!("{tx_hash} of {amount}, {status}, {counted}")
    });
    same("transfers", &transfers.collect::<Vec<_>>().join("; "), &sent.unwrap_or_default());
    let settles = ends.status == Status::Settled;
    match (&shown.settlement, settles) {
        (None, false) => {}
        (None, true) | (Some(_), false) => {
            same("a settlement", if settles { "none" } else { "one" }, if settles { "one" } else { "none" });
        }
        (Some(settlement), true) => {
            same("settlement.status", &settlement.status, "settled");
            same("settlement.amount", &settlement.amount, &received);
            let split = format!("{} and {}", settlement.psp_amount, settlement.treasury_fee);
            same(expect::SPLIT, &split, &expect::split(paid, record.fee_bps));
            if let Some(reported) = &record.reported {
                same("settlement.psp_amount", &settlement.psp_amount, &reported.psp_amount.to_string());
                same("settlement.treasury_fee", &settlement.treasury_fee, &reported.treasury_fee.to_string());
                same("settlement.tx_hash", settlement.tx_hash.as_deref().unwrap_or("-"), &reported.tx_hash);
            }
        }
    }
    differences
}

/// Compares each payment of a chain with the transfers that left its wallet, or with its collection. Returns the amounts of other payments by
/// token. A payment without webhooks is compared with the settlement that was read back.
fn compare_with_chain(
    inner: &mut Inner,
    chain: Chain,
    mut moved: HashMap<(Token, Address), SettledAmounts>,
    listed: &HashMap<u32, ChainSide>,
) -> HashMap<Token, VaultAmounts> {
    for (number, record) in (0..).zip(&mut inner.records).filter(|(_, record)| record.intent.chain == chain) {
        let listed = listed.get(&number);
        let wallet = record.made.map(|made| made.wallet).or_else(|| Some(listed?.wallet));
        let Some(wallet) = wallet else { continue };
        let moved = moved.remove(&(record.intent.token, wallet)).unwrap_or_default();
        let (said, by) = match &record.reported {
            Some(reported) => (Some(reported), "webhooks report"),
            None => (listed.and_then(|listed| listed.settlement.as_ref()), "the payment shows"),
        };
        let wanted = said.map_or_else(Default::default, |said| (said.psp_amount, said.treasury_fee));
        let mut faults = Vec::new();
        let full = full(record);
        let is_settled_since =
            record.is_late && (moved.to_vault, moved.to_treasury) == (Amount(full.psp), Amount(full.treasury));
        if (moved.to_vault, moved.to_treasury) != wanted && !is_settled_since {
            let SettledAmounts { to_vault, to_treasury, .. } = moved;
            let went = format!("{to_vault} went to the PSP's vault and {to_treasury} to the treasury");
            faults.push(format!("on-chain, {went}; {by} {} and {}", wanted.0, wanted.1));
        }
        if let ([hash], Some(said)) = (moved.tx_hashes.as_slice(), said)
            && said.tx_hash != hash.to_string()
        {
            faults.push(format!("was settled on-chain in {hash}, {by} {}", said.tx_hash));
        }
        for fault in faults {
            record.is_late = false;
            record.fault(fault);
        }
    }
    let mut others: HashMap<Token, VaultAmounts> = HashMap::new();
    for ((token, _), moved) in moved {
        others.entry(token).or_default().add(moved.to_vault, moved.to_treasury);
    }
    others
}

#[cfg(test)]
mod tests;
