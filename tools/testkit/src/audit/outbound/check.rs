//! Comparison of the outbound transfers at the end of a run: the service's lists, and the transfers out of the PSP's
//! vault.
//!
//! The ledger is compared in `postings`.

use std::collections::HashMap;

use alloy::primitives::{Address, B256};
use serde::Deserialize;

use super::{Outbound, OutboundOrder};
use crate::audit::record::Record;
use crate::audit::state::{Inner, RunState};
use crate::movements::SentTransfer;
use crate::psp::Psp;
use crate::wire::{Amount, Chain, Token};

/// Status of an outbound transfer that is on its way, and of one that is final.
const PENDING: &str = "pending";
const SENT: &str = "sent";

/// An outbound transfer as the service lists it.
#[derive(Debug, Clone, Deserialize)]
pub struct Listed {
    id: String,
    status: String,
    /// Payment of a refund.
    payment_id: Option<String>,
    reference: Option<String>,
    amount: String,
    currency: Option<String>,
    chain: String,
    address: Address,
    tx_hash: Option<String>,
    failure: Option<String>,
}

/// Reads the outbound transfers of the run, by the number of their payment.
pub async fn read_listed(psp: &Psp, state: &RunState) -> anyhow::Result<HashMap<u32, Vec<Listed>>> {
    let mut listed: HashMap<u32, Vec<Listed>> = HashMap::new();
    for list in ["refunds", "payouts", "withdrawals"] {
        psp.list(list, |one: Listed| {
            if let Some(number) = one.reference.as_deref().and_then(|reference| state.number(reference)) {
                listed.entry(number).or_default().push(one);
            }
        })
        .await?;
    }
    Ok(listed)
}

/// Compares the outbound transfer of each payment with the lists. Differences become faults of the payment.
pub fn compare_listed(inner: &mut Inner, listed: &HashMap<u32, Vec<Listed>>) {
    for (number, record) in (0..).zip(&mut inner.records) {
        let found = listed.get(&number).map_or(&[][..], Vec::as_slice);
        for fault in differences(record, found) {
            record.is_late = false;
            record.fault(fault);
        }
    }
}

fn differences(record: &mut Record, listed: &[Listed]) -> Vec<String> {
    let (chain, token) = (record.intent.chain, record.intent.token);
    let payment_id = record.id().map(|id| id.to_string());
    let is_behind = record.is_late;
    let surplus = |one: &Listed, why: &str| format!("{} of {} to {} exists {why}", one.id, one.amount, one.address);
    let Some(outbound) = record.outbound.as_deref_mut() else {
        return listed.iter().map(|one| surplus(one, "and was not requested")).collect();
    };
    if let Some(why) = outbound.refusal() {
        return listed.iter().map(|one| surplus(one, &format!("although it was refused ({why})"))).collect();
    }
    let Some((one, others)) = listed.split_first() else {
        outbound.is_lost = outbound.id.is_some();
        return Vec::new();
    };
    let mut differences: Vec<String> = others.iter().map(|other| surplus(other, "besides")).collect();
    // The answer to its request was lost.
    let id = outbound.id.get_or_insert_with(|| one.id.clone());
    let OutboundOrder { kind, amount, to } = outbound.order;
    let mut same = |what: &str, found: &str, wanted: &str| {
        if found != wanted {
            differences.push(format!("its {kind} shows {what} `{found}`, not `{wanted}`"));
        }
    };
    same("id", &one.id, id);
    same("amount", &one.amount, &amount.to_string());
    same("currency", one.currency.as_deref().unwrap_or("-"), token.as_str());
    same("chain", &one.chain, chain.as_str());
    same("address", &one.address.to_string(), &to.to_string());
    if let Some(of) = &one.payment_id {
        same("payment_id", of, payment_id.as_deref().unwrap_or("-"));
    }
    // The service has not finished a late one.
    if !(is_behind && one.status == PENDING) {
        let why = one.failure.as_deref().map(|why| format!(" ({why})")).unwrap_or_default();
        same("status", &format!("{}{why}", one.status), SENT);
        let announced = outbound.tx_hash.as_deref().filter(|_| outbound.sent.is_some());
        if let Some(announced) = announced {
            same("tx_hash", one.tx_hash.as_deref().unwrap_or("-"), announced);
        }
    }
    outbound.tx_hash = one.tx_hash.clone().or(outbound.tx_hash.take());
    differences
}

/// Transfers out of the PSP's vault on one chain.
#[derive(Debug)]
pub struct SentTransfers(HashMap<(Token, Address, Amount), Vec<B256>>);

impl SentTransfers {
    /// Collects the transfers.
    pub fn of(sent: &[SentTransfer]) -> Self {
        let mut of: HashMap<_, Vec<B256>> = HashMap::new();
        for SentTransfer { token, to, amount, tx_hash } in sent {
            of.entry((*token, *to, *amount)).or_default().push(*tx_hash);
        }
        Self(of)
    }

    /// Assigns each to the outbound transfer of a payment on this chain, one to one. A missing or repeated transfer
    /// becomes a fault of the payment. Returns the others, in words.
    pub fn assign(mut self, inner: &mut Inner, chain: Chain) -> Vec<String> {
        let mut owners: HashMap<(Token, Address, Amount), usize> = HashMap::new();
        for (index, record) in inner.records.iter_mut().enumerate().filter(|(_, one)| one.intent.chain == chain) {
            let token = record.intent.token;
            let Some(outbound) = record.outbound.as_deref().filter(|outbound| outbound.refusal().is_none()) else {
                continue;
            };
            let OutboundOrder { kind, amount, to } = outbound.order;
            owners.insert((token, to, amount), index);
            let Some(hash) = outbound.tx_hash.clone() else { continue };
            let hashes = self.0.entry((token, to, amount)).or_default();
            match hashes.iter().position(|found| found.to_string() == hash) {
                Some(place) => drop(hashes.swap_remove(place)),
                None => record.fault(format!("its {kind} of {amount} to {to} in {hash} is not on-chain")),
            }
        }
        let mut others = Vec::new();
        for ((token, to, amount), hashes) in self.0 {
            for hash in hashes {
                match owners.get(&(token, to, amount)).and_then(|index| inner.records.get_mut(*index)) {
                    Some(record) if !record.is_late => {
                        record.fault(format!("{amount} went to {to} in {hash}, which no webhook and no list reports"));
                    }
                    Some(_) => {}
                    None => others.push(format!("{amount} {token} on {chain} left the vault for {to} in {hash}")),
                }
            }
        }
        others
    }
}

/// Returns the outbound transfer of a payment that must be in the ledger: its id, its amount, and true if it may still be
/// on its way.
pub fn owed(record: &Record) -> Option<(&str, Amount, bool)> {
    let outbound: &Outbound = record.outbound.as_deref()?;
    Some((outbound.id.as_deref()?, outbound.order.amount, record.is_late))
}
