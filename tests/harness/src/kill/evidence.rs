//! What can be known in the end, from outside: the PSP's view of every payment, the feed, what was delivered, and the
//! chains themselves.

use std::collections::{BTreeMap, HashMap};
use std::time::{Duration, Instant};

use alloy::primitives::{Address, B256, U256};
use alloy::rpc::types::Filter;
use alloy::sol_types::SolEvent;
use futures::StreamExt;
use payferry_contracts::{Payferry, Token as TokenContract, describe_reason};
use payferry_domain::{Chain, Token};
use reqwest::Method;
use serde_json::Value;

use super::behaviour::{Behaviour, EXPIRES_SOON_SECS};
use super::load::Story;
use crate::deployment::{Accounts, Deployment};
use crate::psp::Psp;
use crate::receiver::{Delivery, Receiver};

/// Rest is waited for as long as something still happens at least this often.
const STILL_MAX: Duration = Duration::from_secs(45);
/// How often it is looked.
const POLL: Duration = Duration::from_millis(200);
/// Requests of the gathering at once.
const IN_FLIGHT: usize = 16;

/// All that the audit goes by.
#[derive(Debug, Clone, Default)]
pub struct Evidence {
    /// The PSP.
    pub psp_id: String,
    /// What was asked, acknowledged, paid and read again.
    pub stories: Vec<Story>,
    /// The ids of all payments that the service lists.
    pub listed: Vec<String>,
    /// Every event that it announced.
    pub feed: Vec<Value>,
    /// Every delivery that verified.
    pub deliveries: Vec<Delivery>,
    /// The `webhook-id`s of those that did not.
    pub unverified: Vec<String>,
    /// The chains.
    pub chains: BTreeMap<Chain, ChainEvidence>,
}

/// What one chain says.
#[derive(Debug, Clone, Default)]
pub struct ChainEvidence {
    /// Every settlement that succeeded.
    pub settled: Vec<SettledLog>,
    /// Settlements that failed there, and why.
    pub failed: Vec<String>,
    /// What each account holds by the tokens' logs, base units.
    pub balances: HashMap<(Token, Address), i64>,
    /// What the PSP's vault holds.
    pub vault: BTreeMap<Token, i64>,
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
    /// The PSP's.
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

/// Waits until every payment has come to its end and every event was delivered, or nothing moves any more.
pub async fn rest(psp: &Psp, deployments: &[Deployment], stories: &[Story]) {
    let count = |meant: Behaviour| stories.iter().filter(|story| story.intent.behaviour == meant).count() as u64;
    let mismatched = count(Behaviour::Over);
    at_rest(psp, count(Behaviour::NeverPays), mismatched).await;
    // Then the others may expire.
    for deployment in deployments {
        deployment.node.advance_time(EXPIRES_SOON_SECS + 15).await;
    }
    at_rest(psp, 0, mismatched).await;
}

/// Goes by totals, which cost the service little; the audit looks at each payment.
async fn at_rest(psp: &Psp, pending_max: u64, mismatched: u64) {
    let total = async |path: &str| {
        let page = psp.ok(Method::GET, path, Value::Null).await;
        page["total"].as_u64().unwrap_or_else(|| panic!("{path} has no total: {page}"))
    };
    let (mut last, mut since) = ([u64::MAX; 4], Instant::now());
    loop {
        let now = [
            total("/payments?status=pending&limit=1").await,
            total("/payments?status=confirmed&limit=1").await,
            total("/payments?status=mismatched&limit=1").await,
            total("/api/v1/webhook/undelivered?limit=1").await,
        ];
        if now[0] <= pending_max && now[1..] == [0, mismatched, 0] {
            return;
        }
        if now != last {
            (last, since) = (now, Instant::now());
        }
        if since.elapsed() > STILL_MAX {
            return;
        }
        tokio::time::sleep(POLL).await;
    }
}

/// Reads everything again, and repeats every request with its key.
pub async fn gather(
    psp: &Psp,
    psp_id: &str,
    receiver: &Receiver,
    deployments: &[Deployment],
    accounts: &Accounts,
    stories: Vec<Story>,
) -> Evidence {
    // First: a repeated request that makes something must show in all that follows.
    let stories = futures::stream::iter(stories).map(|story| read_again(psp, story));
    let stories = stories.buffer_unordered(IN_FLIGHT).collect().await;
    let mut chains = BTreeMap::new();
    for deployment in deployments {
        chains.insert(deployment.chain, of_chain(deployment, psp_id, accounts.operator.address()).await);
    }
    let listed = psp.payments().await;
    Evidence {
        psp_id: psp_id.to_owned(),
        stories,
        listed: listed.iter().filter_map(|payment| payment["payment_id"].as_str().map(str::to_owned)).collect(),
        feed: psp.feed().await,
        deliveries: receiver.deliveries(),
        unverified: receiver.unverified(),
        chains,
    }
}

async fn read_again(psp: &Psp, mut story: Story) -> Story {
    let Some(id) = story.payment_id() else { return story };
    let (status, read) = psp.call(Method::GET, &format!("/payments/{id}"), Value::Null).await;
    let key = Some(story.intent.key.as_str());
    let replayed = psp.try_call(Method::POST, "/payments/initiate", &story.request, key).await;
    story.read = status.is_success().then_some(read);
    story.replayed = replayed.ok().filter(|(status, _)| status.is_success()).map(|(_, answer)| answer);
    story
}

async fn of_chain(deployment: &Deployment, psp_id: &str, operator: Address) -> ChainEvidence {
    let node = &deployment.node;
    let mut evidence = ChainEvidence::default();
    let from_start = || Filter::new().from_block(0);
    for log in node.logs(&from_start().address(deployment.contract)).await {
        if let Ok(settled) = Payferry::Settled::decode_log(&log.inner) {
            let token = deployment.tokens.iter().find(|(_, address)| **address == settled.token);
            evidence.settled.push(SettledLog {
                vault_salt: settled.vaultSalt,
                psp_salt: settled.pspSalt,
                token: token.map(|(token, _)| *token),
                psp_amount: units(settled.pspAmount),
                treasury_fee: units(settled.treasuryFee),
                tx_hash: log.transaction_hash.unwrap_or_default(),
            });
        } else if let Ok(failed) = Payferry::SettleFailed::decode_log(&log.inner) {
            evidence.failed.push(format!("settlement {}: {}", failed.number, describe_reason(&failed.reason)));
        }
    }
    for (token, contract) in &deployment.tokens {
        let transfers = from_start().address(*contract).event_signature(TokenContract::Transfer::SIGNATURE_HASH);
        for log in node.logs(&transfers).await {
            let transfer = TokenContract::Transfer::decode_log(&log.inner).unwrap();
            *evidence.balances.entry((*token, transfer.from)).or_default() -= units(transfer.value);
            *evidence.balances.entry((*token, transfer.to)).or_default() += units(transfer.value);
        }
        let (vault, treasury) = deployment.holdings(psp_id, *token).await;
        evidence.vault.insert(*token, vault);
        evidence.treasury.insert(*token, treasury);
    }
    evidence.nonces = (node.nonce(operator, "latest").await, node.nonce(operator, "pending").await);
    evidence
}

fn units(value: U256) -> i64 {
    i64::try_from(value).unwrap_or(i64::MAX)
}
