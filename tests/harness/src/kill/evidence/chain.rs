//! Evidence from one chain: settlements, outbound transfers, token movements and balances.

use std::collections::{BTreeMap, HashMap};

use alloy::primitives::{Address, B256, U256};
use alloy::rpc::types::Filter;
use alloy::sol_types::{SolEvent, SolInterface};
use payferry_contracts::{ItemError, Payferry, Token as TokenContract, describe_reason};
use payferry_domain::Token;

use crate::deployment::{Accounts, Deployment};

#[derive(Debug, Clone, Default)]
pub struct ChainEvidence {
    pub settled: Vec<SettledLog>,
    /// Failed settlements with the reason.
    pub failed: Vec<String>,
    /// Successful outbound transfers.
    pub sent: Vec<SentLog>,
    /// Failed outbound transfers.
    pub refused: Vec<RefusedLog>,
    /// All movements of the accepted tokens.
    pub movements: Vec<Movement>,
    /// Balance of each account according to the tokens' logs, in base units.
    pub balances: HashMap<(Token, Address), i64>,
    pub psp_vault: Address,
    /// Balances of the PSP's vault.
    pub vault: BTreeMap<Token, i64>,
    pub treasury_at: Address,
    pub treasury: BTreeMap<Token, i64>,
    /// Next nonces of the settler and the sender: at the latest block, and including pending transactions.
    pub nonces: [(u64, u64); 2],
}

#[derive(Debug, Clone)]
pub struct SettledLog {
    /// The payment's wallet.
    pub vault: Address,
    pub psp_vault: Address,
    /// The token; `None` if it is not an accepted token.
    pub token: Option<Token>,
    /// Amount to the PSP's vault, in base units.
    pub psp_amount: i64,
    /// Amount to the treasury, in base units.
    pub treasury_fee: i64,
    pub tx_hash: B256,
}

#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct SentLog {
    pub vault: Address,
    /// The token; `None` if it is not an accepted token.
    pub token: Option<Token>,
    pub to: Address,
    /// Amount in base units.
    pub units: i64,
    pub tx_hash: B256,
}

/// A `SendFailed` event.
#[derive(Debug, Clone)]
pub struct RefusedLog {
    /// The recipient that the token refused; `None` if it failed for another reason.
    pub to: Option<Address>,
    pub why: String,
}

/// A token's `Transfer` event.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Movement {
    pub token: Token,
    pub from: Address,
    pub to: Address,
    /// Amount in base units.
    pub units: i64,
    pub tx_hash: B256,
}

impl ChainEvidence {
    /// Reads a chain from its first block.
    pub(super) async fn of(deployment: &Deployment, psp_id: &str, accounts: &Accounts) -> Self {
        let node = &deployment.node;
        let mut evidence =
            Self { psp_vault: deployment.psp_vault(psp_id), treasury_at: Accounts::treasury(), ..Self::default() };
        let from_start = || Filter::new().from_block(0);
        let named = |address: Address| deployment.tokens.iter().find(|(_, known)| **known == address).map(|(t, _)| *t);
        for log in node.logs(&from_start().address(deployment.contract)).await {
            let tx_hash = log.transaction_hash.unwrap_or_default();
            if let Ok(settled) = Payferry::Settled::decode_log(&log.inner) {
                evidence.settled.push(SettledLog {
                    vault: settled.vault,
                    psp_vault: settled.pspVault,
                    token: named(settled.token),
                    psp_amount: units(settled.pspAmount),
                    treasury_fee: units(settled.treasuryFee),
                    tx_hash,
                });
            } else if let Ok(sent) = Payferry::Sent::decode_log(&log.inner) {
                evidence.sent.push(SentLog {
                    vault: sent.vault,
                    token: named(sent.token),
                    to: sent.to,
                    units: units(sent.amount),
                    tx_hash,
                });
            } else if let Ok(failed) = Payferry::SettleFailed::decode_log(&log.inner) {
                evidence.failed.push(format!("settlement {}: {}", failed.id, describe_reason(&failed.reason)));
            } else if let Ok(failed) = Payferry::SendFailed::decode_log(&log.inner) {
                let to = match ItemError::abi_decode(&failed.reason) {
                    Ok(ItemError::TransferFailed(refused)) => Some(refused.to),
                    _ => None,
                };
                let why = format!("outbound transfer {}: {}", failed.id, describe_reason(&failed.reason));
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
        for (nonces, wallet) in evidence.nonces.iter_mut().zip([&accounts.settler, &accounts.sender]) {
            let account = wallet.address();
            *nonces = (node.nonce(account, "latest").await, node.nonce(account, "pending").await);
        }
        evidence
    }

    pub fn moved(&mut self, movement: Movement) {
        let Movement { token, from, to, units, .. } = movement;
        *self.balances.entry((token, from)).or_default() -= units;
        *self.balances.entry((token, to)).or_default() += units;
        self.movements.push(movement);
    }

    /// Balance of an account according to the tokens' logs, in base units.
    pub fn held(&self, token: Token, account: Address) -> i64 {
        self.balances.get(&(token, account)).copied().unwrap_or_default()
    }
}

fn units(value: U256) -> i64 {
    i64::try_from(value).unwrap_or(i64::MAX)
}
