//! The audit of a run: every payment is read back and held against what was paid, what webhooks told, and what the chain
//! and the service's own books say. What does not fit becomes a fault of the payment that it is about.

mod books;

use std::collections::{BTreeMap, HashMap, HashSet};

use alloy::primitives::Address;
use payferry_domain::payment::Status;
use payferry_domain::{Amount, Chain, MerchantId, PaymentId, Token};
use serde::Deserialize;

use super::api::Api;
use super::behaviour::Behaviour;
use super::book::{Book, Inner};
use super::expect;
use super::ground::{ChainGround, Ground};
use super::ledger::Stand;
use super::moved::{Holding, Holds, Moved, holdings, movements};
use super::record::Record;
use super::rpc::Rpc;
use books::{Owed, Posted, Postings};

/// A payment as the service shows it, as far as it is compared.
#[derive(Debug, Clone, Deserialize)]
pub struct Shown {
    payment_id: PaymentId,
    /// Where it stands.
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
    transfers: Vec<ShownTransfer>,
    settlement: Option<ShownSettlement>,
}

#[derive(Debug, Clone, Deserialize)]
struct ShownTransfer {
    tx_hash: String,
    amount: String,
    status: String,
    counted: bool,
}

#[derive(Debug, Clone, Deserialize)]
struct ShownSettlement {
    status: String,
    amount: String,
    psp_amount: String,
    treasury_fee: String,
    tx_hash: Option<String>,
}

/// What was found, besides the faults of single payments.
#[derive(Debug, Default)]
pub struct Audit {
    /// Payments that were read back, by their number in the book.
    pub shown: HashMap<u32, String>,
    /// What is wrong and belongs to no payment of the book.
    pub homeless: Vec<String>,
    /// What chains and balances hold.
    pub holdings: Vec<Holding>,
    /// What was not compared, and why.
    pub notes: Vec<String>,
}

/// Where everything stood when the run began.
#[derive(Debug)]
pub struct Beginning {
    /// The newest block of each chain, and what vault and treasury held there.
    pub chains: BTreeMap<Chain, (u64, HashMap<Token, Holds>)>,
    /// The service's books.
    pub books: Stand,
}

/// Where everything stands now.
pub async fn beginning(api: &Api, ground: &Ground) -> anyhow::Result<Beginning> {
    let mut chains = BTreeMap::new();
    for (chain, place) in &ground.chains {
        chains.insert(*chain, holdings(&Rpc::of_sandbox(api.side(), *chain), place).await?);
    }
    Ok(Beginning { chains, books: Stand::now(api).await? })
}

/// Reads everything back and compares it.
pub async fn audit(
    api: &Api,
    merchant: MerchantId,
    ground: &Ground,
    beginning: &Beginning,
    book: &Book,
) -> anyhow::Result<Audit> {
    let mut audit = Audit::default();
    let mut settled: HashMap<(Chain, Token), Holds> = HashMap::new();
    let mut owed = Vec::new();
    let mut listed = HashSet::new();
    api.payments(merchant, |shown: Shown| {
        if !listed.insert(shown.payment_id) {
            audit.homeless.push(format!("{} is listed twice", shown.payment_id));
        }
        let number = shown.reference.as_deref().and_then(|reference| book.number(reference));
        let mut inner = book.read();
        let Some(record) = number.and_then(|number| inner.record(number)) else {
            audit.homeless.push(format!("{} is there, and nobody asked for it", shown.payment_id));
            return;
        };
        record.is_over();
        for fault in differences(record, &shown) {
            record.fault(fault);
        }
        let asset = (record.intent.chain, record.intent.token);
        let shares = shares(&shown).unwrap_or_default();
        let sum = settled.entry(asset).or_default();
        sum.vault = sum.vault.saturating_add(shares.vault);
        sum.treasury = sum.treasury.saturating_add(shares.treasury);
        owed.push(Owed {
            number: number.unwrap_or_default(),
            id: shown.payment_id,
            asset,
            posted: posted(record, &shown),
        });
        audit.shown.insert(number.unwrap_or_default(), line(&shown));
    })
    .await?;
    let books = compare_books(api, ground, &beginning.books, &owed, book).await?;
    audit.homeless.extend(books.homeless);
    audit.notes.extend(books.notes);
    for (chain, place) in &ground.chains {
        let rpc = Rpc::of_sandbox(api.side(), *chain);
        let (head, now) = holdings(&rpc, place).await?;
        let Some((above, before)) = beginning.chains.get(chain) else { continue };
        let moved = movements(&rpc, place, *above, head).await?;
        let strangers = held_against(&mut book.read(), *chain, moved);
        for token in place.tokens.keys() {
            let of = |holdings: &HashMap<Token, Holds>| holdings.get(token).copied().unwrap_or_default();
            let ours = settled.get(&(*chain, *token)).copied().unwrap_or_default();
            let mut holding = holding(*chain, *token, [of(before), of(&now)], [ours, of(&strangers)]);
            if let Some(grew) = books.balances.get(&(*chain, *token)) {
                holding.balance_grew = Some(Amount(grew.balance).to_string());
                holding.postings_say = Some(Amount(grew.ledger).to_string());
            }
            audit.holdings.push(holding);
        }
    }
    let unequal = audit.holdings.iter().filter(|holding| !holding.equal).map(|holding| {
        let Holding { chain, token, vault_grew, vault_expected, treasury_grew, treasury_expected, .. } = holding;
        format!(
            "{token} on {chain}: the vault grew by {vault_grew} and the treasury by {treasury_grew}, the payments say {vault_expected} and {treasury_expected}"
        )
    });
    let unequal: Vec<String> = unequal.collect();
    audit.homeless.extend(unequal);
    Ok(audit)
}

/// Reads the service's books and compares them; what is wrong with a payment becomes a fault of it.
async fn compare_books(
    api: &Api,
    ground: &Ground,
    before: &Stand,
    owed: &[Owed],
    book: &Book,
) -> anyhow::Result<books::Compared> {
    let of_chain = |(chain, place): (&Chain, &ChainGround)| {
        let chain = *chain;
        place.tokens.iter().map(move |(token, contract)| ((chain, *token), *contract)).collect::<Vec<_>>()
    };
    let contracts: HashMap<(Chain, Token), Address> = ground.chains.iter().flat_map(of_chain).collect();
    let asset = |owed: &Owed| Some((owed.id, (owed.asset.0, *contracts.get(&owed.asset)?)));
    let mut postings = Postings::of(owed.iter().filter_map(asset));
    let now = before.since(api, |entry| postings.add(entry)).await?;
    let mut compared = books::compare(owed, &postings, [before, &now], &contracts);
    let mut inner = book.read();
    for (number, fault) in compared.faults.drain(..) {
        if let Some(record) = inner.record(number) {
            record.fault(fault);
        }
    }
    drop(inner);
    Ok(compared)
}

fn holding(chain: Chain, token: Token, [before, now]: [Holds; 2], [ours, strangers]: [Holds; 2]) -> Holding {
    let grew =
        Holds { vault: now.vault.saturating_sub(before.vault), treasury: now.treasury.saturating_sub(before.treasury) };
    let expected = Holds {
        vault: ours.vault.saturating_add(strangers.vault),
        treasury: ours.treasury.saturating_add(strangers.treasury),
    };
    Holding {
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

/// How a payment stands, in a line.
fn line(shown: &Shown) -> String {
    let mut line = shown.status.clone();
    if let Some(reason) = &shown.failure_reason {
        line = format!("{line} ({reason})");
    }
    if !shown.labels.is_empty() {
        line = format!("{line} {}", shown.labels.join(" "));
    }
    format!("{line}, {} of {} received", shown.amount_received, shown.amount)
}

/// What the payment says that it settled.
fn shares(shown: &Shown) -> Option<Holds> {
    let settlement = shown.settlement.as_ref().filter(|settlement| settlement.status == "settled")?;
    Some(Holds { vault: settlement.psp_amount.parse().ok()?, treasury: settlement.treasury_fee.parse().ok()? })
}

/// What the ledger must have of a payment: what it says that it received, and of what it says that it settled the shares
/// that the PSP's settings say, whatever it says of them itself.
fn posted(record: &Record, shown: &Shown) -> Posted {
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

/// What of a payment is not as it must be, having been paid as it was.
fn differences(record: &Record, shown: &Shown) -> Vec<String> {
    let intent = &record.intent;
    let mut differences = Vec::new();
    let mut same = |what: &str, found: &str, wanted: &str| {
        if found != wanted {
            differences.push(format!("reads back with {what} `{found}`, not `{wanted}`"));
        }
    };
    let Some(made) = &record.made else { return Vec::new() };
    same("payment_id", &shown.payment_id.to_string(), &made.id.to_string());
    same("intermediary_wallet", &shown.intermediary_wallet.to_string(), &made.wallet.to_string());
    same("amount", &shown.amount, &intent.amount.to_string());
    same("currency", &shown.currency, intent.token.as_str());
    same("chain", &shown.chain, intent.chain.as_str());
    if record.unsent.is_some() || (record.sent.is_none() && intent.behaviour == Behaviour::Late) {
        // It was not paid, so that it cannot end as it was meant to.
        return differences;
    }
    let ends = expect::ends(intent.behaviour);
    let labels: Vec<&str> = ends.labels.iter().map(|label| label.as_str()).collect();
    let paid = intent.pays().unwrap_or_default();
    let received = paid.to_string();
    same("status", &shown.status, ends.status.as_str());
    let reason = ends.failure_reason.map_or("-", |reason| reason.as_str());
    same("failure_reason", shown.failure_reason.as_deref().unwrap_or("-"), reason);
    same("labels", &shown.labels.join(" "), &labels.join(" "));
    same("amount_received", &shown.amount_received, &received);
    same("excess_received", &shown.excess_received, &Amount::ZERO.to_string());
    let sent = record.sent.map(|(hash, _)| format!("{hash} of {received}, final, counted"));
    let transfers = shown.transfers.iter().map(|ShownTransfer { tx_hash, amount, status, counted }| {
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
            if let Some(told) = &record.told {
                same("settlement.psp_amount", &settlement.psp_amount, &told.psp_amount.to_string());
                same("settlement.treasury_fee", &settlement.treasury_fee, &told.treasury_fee.to_string());
                same("settlement.tx_hash", settlement.tx_hash.as_deref().unwrap_or("-"), &told.tx_hash);
            }
        }
    }
    differences
}

/// Holds each payment of a chain against what left its wallet; answers what strangers moved, by token.
fn held_against(inner: &mut Inner, chain: Chain, mut moved: HashMap<(Token, Address), Moved>) -> HashMap<Token, Holds> {
    for record in inner.records.iter_mut().filter(|record| record.intent.chain == chain) {
        let Some(made) = record.made else { continue };
        let moved = moved.remove(&(record.intent.token, made.wallet)).unwrap_or_default();
        let told = record.told.clone();
        let wanted = told.as_ref().map_or_else(Default::default, |told| (told.psp_amount, told.treasury_fee));
        if (moved.to_vault, moved.to_treasury) != wanted {
            record.fault(format!(
                "on-chain, {} went to the PSP's vault and {} to the treasury; webhooks tell of {} and {}",
                moved.to_vault, moved.to_treasury, wanted.0, wanted.1
            ));
        }
        if let ([hash], Some(told)) = (moved.tx_hashes.as_slice(), told)
            && told.tx_hash != hash.to_string()
        {
            record.fault(format!("was settled on-chain in {hash}, webhooks tell of {}", told.tx_hash));
        }
    }
    let mut strangers: HashMap<Token, Holds> = HashMap::new();
    for ((token, _), moved) in moved {
        let holds = strangers.entry(token).or_default();
        holds.vault = holds.vault.saturating_add(moved.to_vault);
        holds.treasury = holds.treasury.saturating_add(moved.to_treasury);
    }
    strangers
}

#[cfg(test)]
mod tests;
