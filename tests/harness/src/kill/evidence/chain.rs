//! What one chain says: who settled, who sent, every movement of the tokens, and what is held.

use std::collections::{BTreeMap, HashMap};

use alloy::primitives::{Address, B256, U256};
use alloy::rpc::types::Filter;
use alloy::sol_types::{SolEvent, SolInterface};
use payferry_contracts::{Payferry, Token as TokenContract, Vault, describe_reason, vault_address};
use payferry_domain::Token;

use crate::deployment::Deployment;

/// What one chain says.
#[derive(Debug, Clone, Default)]
pub struct ChainEvidence {
    /// Every settlement that succeeded.
    pub settled: Vec<SettledLog>,
    /// Settlements that failed there, and why.
    pub failed: Vec<String>,
    /// Every sending that succeeded.
    pub sent: Vec<SentLog>,
    /// Sendings that failed there.
    pub refused: Vec<RefusedLog>,
    /// Every movement of our tokens.
    pub movements: Vec<Movement>,
    /// What each account holds by the tokens' logs, base units.
    pub balances: HashMap<(Token, Address), i64>,
    /// Where the PSP's vault is.
    pub psp_vault: Address,
    /// What the PSP's vault holds.
    pub vault: BTreeMap<Token, i64>,
    /// Where the treasury is.
    pub treasury_at: Address,
    /// What the treasury holds.
    pub treasury: BTreeMap<Token, i64>,
    /// The operator's next nonce as of the newest block, and with what waits.
    pub nonces: (u64, u64),
}

/// A `Settled` event.
#[derive(Debug, Clone)]
pub struct SettledLog {
    /// The payment's salt.
    pub vault_salt: B256,
    /// The payment's wallet.
    pub vault: Address,
    /// The PSP's salt.
    pub psp_salt: B256,
    /// Which token; none if it is none of ours.
    pub token: Option<Token>,
    /// To the PSP's vault, base units.
    pub psp_amount: i64,
    /// To the treasury, base units.
    pub treasury_fee: i64,
    /// In which transaction.
    pub tx_hash: B256,
}

/// A `Sent` event.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct SentLog {
    /// Out of which vault.
    pub vault: Address,
    /// Which token; none if it is none of ours.
    pub token: Option<Token>,
    /// To whom.
    pub to: Address,
    /// How much, base units.
    pub units: i64,
    /// In which transaction.
    pub tx_hash: B256,
}

/// A `SendFailed` event.
#[derive(Debug, Clone)]
pub struct RefusedLog {
    /// To whom the token refused to go; none if it failed for another reason.
    pub to: Option<Address>,
    /// The reason in words.
    pub why: String,
}

/// A token's `Transfer` event.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Movement {
    /// Which token.
    pub token: Token,
    /// From whom.
    pub from: Address,
    /// To whom.
    pub to: Address,
    /// How much, base units.
    pub units: i64,
    /// In which transaction.
    pub tx_hash: B256,
}

impl ChainEvidence {
    /// Reads a chain from its first block on.
    pub(super) async fn of(deployment: &Deployment, psp_id: &str, operator: Address, treasury_at: Address) -> Self {
        let node = &deployment.node;
        let mut evidence = Self { psp_vault: deployment.vault(psp_id), treasury_at, ..Self::default() };
        let from_start = || Filter::new().from_block(0);
        let named = |address: Address| deployment.tokens.iter().find(|(_, known)| **known == address).map(|(t, _)| *t);
        for log in node.logs(&from_start().address(deployment.contract)).await {
            let tx_hash = log.transaction_hash.unwrap_or_default();
            if let Ok(settled) = Payferry::Settled::decode_log(&log.inner) {
                evidence.settled.push(SettledLog {
                    vault_salt: settled.vaultSalt,
                    vault: vault_address(deployment.contract, settled.vaultSalt),
                    psp_salt: settled.pspSalt,
                    token: named(settled.token),
                    psp_amount: units(settled.pspAmount),
                    treasury_fee: units(settled.treasuryFee),
                    tx_hash,
                });
            } else if let Ok(sent) = Payferry::Sent::decode_log(&log.inner) {
                evidence.sent.push(SentLog {
                    vault: vault_address(deployment.contract, sent.vaultSalt),
                    token: named(sent.token),
                    to: sent.to,
                    units: units(sent.amount),
                    tx_hash,
                });
            } else if let Ok(failed) = Payferry::SettleFailed::decode_log(&log.inner) {
                evidence.failed.push(format!("settlement {}: {}", failed.number, describe_reason(&failed.reason)));
            } else if let Ok(failed) = Payferry::SendFailed::decode_log(&log.inner) {
                let to = match Vault::VaultErrors::abi_decode(&failed.reason) {
                    Ok(Vault::VaultErrors::TransferFailed(refused)) => Some(refused.to),
                    _ => None,
                };
                let why = format!("sending {}: {}", failed.number, describe_reason(&failed.reason));
                evidence.refused.push(RefusedLog { to, why });
            }
        }
        for (token, contract) in &deployment.tokens {
            let transfers = from_start().address(*contract).event_signature(TokenContract::Transfer::SIGNATURE_HASH);
            for log in node.logs(&transfers).await {
                let transfer = TokenContract::Transfer::decode_log(&log.inner).unwrap();
                evidence.moved(Movement {
                    token: *token,
                    from: transfer.from,
                    to: transfer.to,
                    units: units(transfer.value),
                    tx_hash: log.transaction_hash.unwrap_or_default(),
                });
            }
            let (vault, treasury) = deployment.holdings(psp_id, *token).await;
            evidence.vault.insert(*token, vault);
            evidence.treasury.insert(*token, treasury);
        }
        evidence.nonces = (node.nonce(operator, "latest").await, node.nonce(operator, "pending").await);
        evidence
    }

    /// A token moved.
    pub fn moved(&mut self, movement: Movement) {
        let Movement { token, from, to, units, .. } = movement;
        *self.balances.entry((token, from)).or_default() -= units;
        *self.balances.entry((token, to)).or_default() += units;
        self.movements.push(movement);
    }

    /// What an account holds by the tokens' logs, base units.
    pub fn held(&self, token: Token, account: Address) -> i64 {
        self.balances.get(&(token, account)).copied().unwrap_or_default()
    }
}

fn units(value: U256) -> i64 {
    i64::try_from(value).unwrap_or(i64::MAX)
}
