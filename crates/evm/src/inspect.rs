//! Checks of a chain for operators: every start-up check with its own result, and the further needs of the watcher and
//! the settler.

use std::fmt::Write as _;
use std::time::Instant;

use alloy::primitives::U256;
use alloy::rpc::types::Filter;
use alloy::sol_types::{SolCall, SolEvent};
use payferry_contracts::{Payferry, Role, Token as TokenContract, batch_gas_limit};
use payferry_domain::money::AMOUNT_MAX;
use payferry_domain::{Address, Amount, Timestamp};

use super::client::{ChainClient, ClientError};
use super::config::{CONTRACT_VERSION, ChainSpec, TOKEN_DECIMALS};
use super::eip3009;
use super::fees::Fees;
use crate::wallet::{alloy_address, checksummed};

/// A head older than this many seconds gets a warning.
const HEAD_AGE_SECS_MAX: i64 = 30;
/// A gas balance for fewer full batches than this gets a warning.
const GAS_BATCHES_MIN: u64 = 20;
/// Wei per millionth of a coin.
const WEI_PER_MICRO_COIN: u128 = 1_000_000_000_000;

/// Result of one check.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EndpointFinding {
    /// Checked item.
    pub what: String,
    /// Grade.
    pub grade: Grade,
    /// Explanation.
    pub detail: String,
}

/// Grade of a check.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Grade {
    /// Correct.
    Good,
    /// The chain works, but the operator should know this.
    Doubtful,
    /// The chain cannot run like this.
    Bad,
}

/// Checks one endpoint: reachability, chain id, age of the head, supported methods.
pub async fn inspect_endpoint(spec: &ChainSpec, endpoint: &ChainClient, now: Timestamp) -> Vec<EndpointFinding> {
    let mut report = Report::default();
    let since = Instant::now();
    match endpoint.chain_id().await {
        Err(error) => return report.with("answers", Grade::Bad, error.to_string()),
        Ok(found) if found != spec.chain_id => {
            let detail = format!("it serves chain {found}, expected chain id {}", spec.chain_id);
            return report.with("chain id", Grade::Bad, detail);
        }
        Ok(found) => report.add("chain id", Grade::Good, format!("{found}, in {} ms", since.elapsed().as_millis())),
    }
    match endpoint.heads(spec.has_safe, spec.has_finalized, None, 0).await {
        Err(error) => report.add("head", Grade::Bad, error.to_string()),
        Ok(heads) => {
            let age = now.millis_since(heads.latest.time) / 1_000;
            let grade = if age > HEAD_AGE_SECS_MAX { Grade::Doubtful } else { Grade::Good };
            report.add("head", grade, format!("block {}, {} s old", heads.latest.number, age.max(0)));
            for (tag, asked, header) in
                [("safe", spec.has_safe, heads.safe), ("finalized", spec.has_finalized, heads.finalized)]
            {
                match header {
                    _ if !asked => {}
                    Some(header) => report.add(tag, Grade::Good, format!("block {}", header.number)),
                    None => {
                        let detail = format!("not supported; set has_{tag} = false to count blocks instead");
                        report.add(tag, Grade::Bad, detail);
                    }
                }
            }
            report.logs(spec, endpoint, heads.latest.number).await;
            match endpoint.logs_of_receipts(heads.latest.hash).await {
                Ok(_) => report.add("block receipts", Grade::Good, "known".to_owned()),
                Err(error) => {
                    let detail = format!("omitted logs are found late only: {error}");
                    report.add("block receipts", Grade::Doubtful, detail);
                }
            }
        }
    }
    report.findings
}

/// Accounts of the service in the contract's roles.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RoleKeys {
    /// Signs settlements.
    pub settler: Address,
    /// Signs outbound transfers.
    pub sender: Address,
}

/// Checks the deployed contracts, the roles, and the gas balances.
pub async fn inspect_contracts(spec: &ChainSpec, client: &ChainClient, keys: RoleKeys) -> Vec<EndpointFinding> {
    let mut report = Report::default();
    for (token, address) in &spec.tokens {
        match token_facts(client, *address).await {
            Ok(Some((_, TOKEN_DECIMALS))) => {
                report.add(token.as_str(), Grade::Good, format!("{}, 6 decimals", checksummed(*address)));
            }
            Ok(Some((name, decimals))) => {
                let detail = format!("{name} at {} has {decimals} decimals, not 6", checksummed(*address));
                report.add(token.as_str(), Grade::Bad, detail);
            }
            Ok(None) => {
                let detail = format!("no contract at {}", checksummed(*address));
                report.add(token.as_str(), Grade::Bad, detail);
            }
            Err(error) => report.add(token.as_str(), Grade::Bad, format!("{}: {error}", checksummed(*address))),
        }
    }
    if spec.tokens.is_empty() {
        report.add("tokens", Grade::Bad, "none is configured".to_owned());
    }
    report.eip3009(spec, client).await;
    for address in &spec.lookalikes {
        if matches!(client.has_code(*address).await, Ok(false)) {
            let detail = format!("no contract at {}", checksummed(*address));
            report.add("look-alike", Grade::Doubtful, detail);
        }
    }
    match client.has_code(spec.contract).await {
        Ok(true) => report.contract(spec, client, keys).await,
        Ok(false) => {
            let detail = format!("no contract at {}; run `payferry deploy`", checksummed(spec.contract));
            report.add("contract", Grade::Bad, detail);
        }
        Err(error) => report.add("contract", Grade::Bad, error.to_string()),
    }
    let mut accounts = vec![keys.settler, keys.sender];
    accounts.dedup();
    for account in accounts {
        report.gas(spec, client, account).await;
    }
    report.findings
}

/// Symbol and decimals; `None` if there is no contract.
async fn token_facts(client: &ChainClient, address: Address) -> Result<Option<(String, u8)>, ClientError> {
    if !client.has_code(address).await? {
        return Ok(None);
    }
    let decimals = read::<TokenContract::decimalsCall>(client, address, &TokenContract::decimalsCall {}).await?;
    let symbol = read::<TokenContract::symbolCall>(client, address, &TokenContract::symbolCall {}).await;
    Ok(Some((symbol.unwrap_or_else(|_| "the token".to_owned()), decimals)))
}

pub(crate) async fn read<C: SolCall>(client: &ChainClient, at: Address, call: &C) -> Result<C::Return, ClientError> {
    let answer = client.call(at, call.abi_encode()).await?;
    C::abi_decode_returns(&answer).map_err(|error| ClientError::Malformed(error.to_string()))
}

fn words(items: impl Iterator<Item = String>) -> String {
    let items: Vec<_> = items.collect();
    if items.is_empty() { "no key".to_owned() } else { items.join(", ") }
}

/// Base units as tokens.
fn tokens(units: U256) -> String {
    i64::try_from(units)
        .map_or_else(|_| "more than any amount".to_owned(), |units| Amount::from_units(units).to_string())
}

#[derive(Default)]
struct Report {
    findings: Vec<EndpointFinding>,
}

impl Report {
    fn add(&mut self, what: &str, grade: Grade, detail: String) {
        self.findings.push(EndpointFinding { what: what.to_owned(), grade, detail });
    }

    fn with(mut self, what: &str, grade: Grade, detail: String) -> Vec<EndpointFinding> {
        self.add(what, grade, detail);
        self.findings
    }

    async fn logs(&mut self, spec: &ChainSpec, endpoint: &ChainClient, head: u64) {
        let contracts: Vec<_> = spec.watched_contracts().map(alloy_address).collect();
        let from = head.saturating_sub(spec.range_blocks_max.saturating_sub(1));
        let filter = Filter::new().address(contracts).event_signature(TokenContract::Transfer::SIGNATURE_HASH);
        match endpoint.logs(&filter.from_block(from).to_block(head)).await {
            Ok(logs) => {
                self.add("logs", Grade::Good, format!("{} transfers in {} blocks", logs.len(), head + 1 - from));
            }
            Err(error @ ClientError::RangeTooLarge(_)) => {
                self.add("logs", Grade::Doubtful, format!("{error}; blocks will be read in smaller steps"));
            }
            Err(error) => self.add("logs", Grade::Bad, error.to_string()),
        }
    }

    /// Without EIP-3009, a token is paid by transfer only.
    async fn eip3009(&mut self, spec: &ChainSpec, client: &ChainClient) {
        let addresses: Vec<Address> = spec.tokens.iter().map(|(_, address)| *address).collect();
        match eip3009::detect(client, spec.chain_id, &addresses).await {
            Ok(found) => {
                for ((token, _), support) in spec.tokens.iter().zip(found) {
                    let detail = match support {
                        Ok(domain) => format!("yes ({domain})"),
                        Err(gap) => format!("no: {gap}"),
                    };
                    self.add(&format!("{token} EIP-3009"), Grade::Good, detail);
                }
            }
            Err(error) => self.add("EIP-3009", Grade::Doubtful, format!("not known: {error}")),
        }
    }

    async fn contract(&mut self, spec: &ChainSpec, client: &ChainClient, keys: RoleKeys) {
        let at = spec.contract;
        let version = read::<Payferry::VERSIONCall>(client, at, &Payferry::VERSIONCall {}).await;
        if version.as_ref().ok() != Some(&U256::from(CONTRACT_VERSION)) {
            let found = version.map_or_else(|error| error.to_string(), |version| format!("it is version {version}"));
            let detail = format!("no Payferry of version {CONTRACT_VERSION} at {}: {found}", checksummed(at));
            return self.add("contract", Grade::Bad, detail);
        }
        self.add("contract", Grade::Good, checksummed(at));
        let inspected = async {
            self.roles(client, at, keys).await?;
            self.treasury_and_pauses(spec, client).await?;
            self.limits(spec, client).await?;
            self.proposals(client, at).await
        };
        if let Err(error) = inspected.await {
            self.add("roles", Grade::Bad, error.to_string());
        }
    }

    async fn roles(&mut self, client: &ChainClient, at: Address, keys: RoleKeys) -> Result<(), ClientError> {
        let admin = read::<Payferry::adminCall>(client, at, &Payferry::adminCall {}).await?;
        self.add("admin", Grade::Good, admin.to_string());
        let ours = [("settler", Role::Settler, Some(keys.settler)), ("sender", Role::Sender, Some(keys.sender))];
        for (name, role, key) in ours.into_iter().chain([("guardian", Role::Guardian, None)]) {
            let holders = read::<Payferry::keysOfCall>(client, at, &Payferry::keysOfCall { role }).await?;
            let has = key.is_none_or(|key| holders.contains(&alloy_address(key)));
            let holders = words(holders.iter().map(ToString::to_string));
            match key {
                Some(key) if !has => {
                    let detail = format!(
                        "{} has no role as {name} (granted to: {holders}); run `payferry contract grant`",
                        checksummed(key)
                    );
                    self.add(name, Grade::Bad, detail);
                }
                _ => self.add(name, Grade::Good, holders),
            }
        }
        Ok(())
    }

    async fn treasury_and_pauses(&mut self, spec: &ChainSpec, client: &ChainClient) -> Result<(), ClientError> {
        let at = spec.contract;
        let treasury = read::<Payferry::treasuryCall>(client, at, &Payferry::treasuryCall {}).await?;
        if treasury == alloy_address(spec.treasury) {
            self.add("treasury", Grade::Good, checksummed(spec.treasury));
        } else {
            let detail =
                format!("the contract pays {treasury}, but the configured treasury is {}", checksummed(spec.treasury));
            self.add("treasury", Grade::Bad, detail);
        }
        let settle = read::<Payferry::settlePausedCall>(client, at, &Payferry::settlePausedCall {}).await?;
        let send = read::<Payferry::sendPausedCall>(client, at, &Payferry::sendPausedCall {}).await?;
        for (what, _) in [("settling", settle), ("sending", send)].into_iter().filter(|(_, paused)| *paused) {
            self.add(what, Grade::Doubtful, "paused on-chain; the admin can resume it".to_owned());
        }
        Ok(())
    }

    /// A transfer above half of the token's limit can never be sent.
    async fn limits(&mut self, spec: &ChainSpec, client: &ChainClient) -> Result<(), ClientError> {
        for (token, address) in &spec.tokens {
            let call = Payferry::limitOfCall { token: alloy_address(*address) };
            let found = read::<Payferry::limitOfCall>(client, spec.contract, &call).await?;
            let capacity = tokens(found.limit / U256::from(2));
            let detail = format!(
                "{} in 24 hours, at most {capacity} at once, {} now",
                tokens(found.limit),
                tokens(found.available)
            );
            let (grade, detail) = if found.limit.is_zero() {
                (
                    Grade::Doubtful,
                    "none: no refund, payout or withdrawal can be sent; run `payferry contract grant`".to_owned(),
                )
            } else if found.limit / U256::from(2) < U256::from(AMOUNT_MAX.units().unsigned_abs()) {
                (Grade::Doubtful, format!("{detail}: less than the largest payment, {AMOUNT_MAX}"))
            } else {
                (Grade::Good, detail)
            };
            self.add(&format!("{token} limit"), grade, detail);
        }
        Ok(())
    }

    async fn proposals(&mut self, client: &ChainClient, at: Address) -> Result<(), ClientError> {
        for change in read::<Payferry::proposalsCall>(client, at, &Payferry::proposalsCall {}).await? {
            let secs = i64::try_from(change.effectiveAt).unwrap_or(i64::MAX / 1_000);
            let due = Timestamp::from_secs(secs);
            let detail = format!(
                "{:?} {} to {}, which the admin can enact from {due}",
                change.setting, change.subject, change.value
            );
            self.add("pending change", Grade::Doubtful, detail);
        }
        Ok(())
    }

    async fn gas(&mut self, spec: &ChainSpec, client: &ChainClient, account: Address) {
        let items = spec.batch_items_max;
        let looked = async {
            let l1 = client.l1_fee_per_settlement_wei(spec.l1_data, spec.contract, items).await?;
            Ok::<_, ClientError>((client.fee_market().await?, l1, client.balance_wei(account).await?))
        };
        let (market, l1_fee_wei, held) = match looked.await {
            Ok(looked) => looked,
            Err(error) => return self.add("gas", Grade::Bad, error.to_string()),
        };
        let gas = batch_gas_limit(items, spec.item_gas);
        let l1_wei = l1_fee_wei.saturating_mul(items as u128);
        let fees = match Fees::first(market, l1_wei.div_ceil(u128::from(gas)), spec.fees) {
            Ok(fees) => fees,
            Err(dear) => return self.add("fees", Grade::Bad, dear.to_string()),
        };
        let gwei = |wei: u128| format!("{}.{:03}", wei / 1_000_000_000, wei % 1_000_000_000 / 1_000_000);
        let mut detail =
            format!("base fee {} gwei, tip {} gwei", gwei(market.base_fee_wei), gwei(fees.priority_fee_wei));
        if l1_fee_wei > 0 {
            let _ = write!(detail, ", L1 data fee of a settlement {} gwei", gwei(l1_fee_wei));
        }
        self.add("fees", Grade::Good, detail);
        let batch = u128::from(gas).saturating_mul(fees.max_fee_wei).saturating_add(l1_wei).max(1);
        let held = u128::try_from(held).unwrap_or(u128::MAX);
        let batches = u64::try_from(held / batch).unwrap_or(u64::MAX);
        let micro = held / WEI_PER_MICRO_COIN;
        let coins = format!("{}.{:06}", micro / 1_000_000, micro % 1_000_000);
        let grade = match batches {
            0 => Grade::Bad,
            few if few < GAS_BATCHES_MIN => Grade::Doubtful,
            _ => Grade::Good,
        };
        let detail = match batches {
            1_000.. => format!("{coins} coins, enough for more than 1000 full batches at the highest fee offer"),
            few => format!("{coins} coins, enough for {few} full batches at the highest fee offer"),
        };
        self.add("gas money", grade, detail);
    }
}
