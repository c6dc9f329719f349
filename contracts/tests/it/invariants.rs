//! Random calls by all roles and by attackers, with random gas, money and forced coin. After each call, a model that knows
//! only what the contract promises checks the balances:
//!
//! 1. Each operation succeeds at most once.
//! 2. Tokens are conserved, and only `send` takes any from a PSP's vault, the treasury's recipient or the contract.
//! 3. `settle` and `collect` credit only the vault of the payment's PSP and the treasury, with at most the committed fee.
//! 4. No native coin is trapped: what is anywhere can be swept.
//! 5. A batch reports each of its items, or it reverts and changes nothing.
//! 6. `send` moves at most the limit in 24 hours.

use std::collections::{HashMap, HashSet};

use alloy::primitives::{Address, B256, U256};
use alloy::sol_types::SolCall;
use payferry_contracts::{
    CollectItem, DepositItem, Erc3009, MULTICALL3_JSON, Multicall3, Payferry, Role, SendItem, SettleItem, TestUSDC,
    Token, collect_nonce, payment_salt, psp_salt,
};

use crate::env::{
    ADMIN, BPS, CHAIN_ID, DAY_SECS, Env, GUARDIAN, LIMIT, MINTER, Outcome, PAYEE, SENDER, SETTLER, STRANGER, TREASURY,
    send_item, ulid,
};
use crate::payer::{Payer, group};
use crate::random::Random;

const PAYMENTS: [&str; 4] = ["pay_0", "pay_1", "pay_2", "pay_3"];
const PSPS: [&str; 3] = ["psp_0", "psp_1", "psp_2"];
const CALLERS: [Address; 6] = [SETTLER, SENDER, GUARDIAN, ADMIN, STRANGER, MINTER];
const STEPS: usize = 250;

/// Balances of every account that can hold tokens.
type Balances = HashMap<(Address, Address), u64>;

/// PSP and amounts that a payer signed with a nonce.
type Terms = HashMap<(Address, B256), (&'static str, Vec<u64>)>;

struct Model {
    env: Env,
    random: Random,
    multicall: Address,
    payers: Vec<Payer>,
    accounts: Vec<Address>,
    settled: HashSet<u128>,
    sent: HashSet<(u8, u128)>,
    collected: HashSet<(Address, B256)>,
    /// (time, token, amount) of each outbound transfer.
    moved: Vec<(u64, Address, u64)>,
    successes: [usize; 3],
}

impl Model {
    fn new(seed: u64) -> Self {
        let mut env = Env::new();
        let payers: Vec<_> = (0..3).map(|n| Payer::new(&format!("payer_{n}"))).collect();
        let mut accounts = vec![env.factory, TREASURY, PAYEE, STRANGER];
        accounts.extend(payers.iter().map(|payer| payer.address));
        for psp in PSPS {
            accounts.push(env.psp_vault(psp));
            accounts.extend(PAYMENTS.map(|payment| env.vault_of(payment_salt(ulid(payment), ulid(psp), BPS))));
        }
        for token in [env.usdc, env.usdt] {
            for account in &accounts[4..] {
                env.mint(token, *account, 1_000_000);
            }
            let factory = env.factory;
            env.mint(token, factory, 777);
        }
        // A small limit, so that it is reached. (A first limit of the test's own would be no change of the real one.)
        for token in [env.usdc, env.usdt] {
            env.admin(&Payferry::setLimitCall { token, limit: U256::from(400_000) });
        }
        let multicall = env.create_test_contract(MULTICALL3_JSON, &[]);
        Self {
            env,
            random: Random::new(seed),
            multicall,
            payers,
            accounts,
            settled: HashSet::new(),
            sent: HashSet::new(),
            collected: HashSet::new(),
            moved: Vec::new(),
            successes: [0; 3],
        }
    }

    fn balances(&mut self) -> Balances {
        let (usdc, usdt, accounts) = (self.env.usdc, self.env.usdt, self.accounts.clone());
        let holders: Vec<_> =
            [usdc, usdt].into_iter().flat_map(|token| accounts.iter().map(move |a| (token, *a))).collect();
        let calls = holders.iter().map(|(token, account)| Multicall3::Call {
            target: *token,
            callData: Token::balanceOfCall { account: *account }.abi_encode().into(),
        });
        let call = Multicall3::aggregateCall { calls: calls.collect() };
        let balances = self.env.read(self.multicall, &call).returnData;
        holders.into_iter().zip(balances).map(|(holder, data)| (holder, U256::from_be_slice(&data).to())).collect()
    }

    fn token(&mut self) -> Address {
        *self.random.pick(&[self.env.usdc, self.env.usdc, self.env.usdt])
    }

    fn caller(&mut self, role: Address) -> Address {
        if self.random.below(8) == 0 { *self.random.pick(&CALLERS) } else { role }
    }

    fn gas(&mut self) -> u64 {
        if self.random.below(6) == 0 { 200_000 + self.random.next() % 900_000 } else { 16_000_000 }
    }

    fn settle(&mut self) {
        let items: Vec<_> = (0..=self.random.below(4)).map(|_| self.settle_item()).collect();
        let call = Payferry::settleCall { items: items.clone(), itemGas: self.env.item_gas() };
        let (caller, gas) = (self.caller(SETTLER), self.gas());
        let (before, outcome) = self.transact(caller, &call, gas);
        let mut expected = before;
        let mut done = 0;
        for event in outcome.events::<Payferry::Settled>() {
            assert_eq!(caller, SETTLER);
            assert!(self.settled.insert(event.id), "settled twice");
            let item = items.iter().find(|item| item.id == event.id && self.is_of(item, &event)).expect("is an item");
            let (share, fee): (u64, u64) = (event.pspAmount.to(), event.treasuryFee.to());
            assert!(fee <= (share + fee) * u64::from(item.maxFeeBps) / 10_000, "a fee above the committed one");
            let vault = self.env.vault_of(payment_salt(item.paymentId, item.pspId, item.maxFeeBps));
            let psp_vault = self.env.vault_of(psp_salt(item.pspId));
            take(&mut expected, item.token, vault, share + fee);
            give(&mut expected, item.token, psp_vault, share);
            give(&mut expected, item.token, TREASURY, fee);
            done += 1;
        }
        self.successes[0] += done;
        self.check(&outcome, &expected, done + outcome.settle_failures().len(), items.len());
    }

    fn is_of(&self, item: &SettleItem, event: &Payferry::Settled) -> bool {
        item.token == event.token
            && U256::from(item.amount) == event.pspAmount + event.treasuryFee
            && self.env.vault_of(payment_salt(item.paymentId, item.pspId, item.maxFeeBps)) == event.vault
    }

    fn settle_item(&mut self) -> SettleItem {
        let amount = self.random.below(3_000) as u128;
        let payment = *self.random.pick(&PAYMENTS);
        let psp = *self.random.pick(&PSPS);
        let swap = self.random.below(10) == 0;
        SettleItem {
            id: self.random.below(200) as u128,
            // Sometimes a PSP's id as a payment's, to reach its vault.
            paymentId: ulid(if swap { psp } else { payment }),
            pspId: ulid(psp),
            maxFeeBps: *self.random.pick(&[BPS, BPS, BPS, 0, 10_000, u16::MAX]),
            token: self.token(),
            amount,
            fee: *self.random.pick(&[0, amount / 100, amount / 100, amount / 99, amount, amount + 1]),
        }
    }

    fn send(&mut self) {
        let items: Vec<_> = (0..=self.random.below(3)).map(|_| self.send_item()).collect();
        let call = Payferry::sendCall { items: items.clone(), itemGas: self.env.item_gas() };
        let (caller, gas) = (self.caller(SENDER), self.gas());
        let (before, outcome) = self.transact(caller, &call, gas);
        let mut expected = before;
        let mut done = 0;
        for event in outcome.events::<Payferry::Sent>() {
            assert_eq!(caller, SENDER);
            assert!(event.kind != 0 && self.sent.insert((event.kind, event.id)), "sent twice, or a settlement");
            let amount = event.amount.to();
            take(&mut expected, event.token, event.vault, amount);
            give(&mut expected, event.token, event.to, amount);
            self.moved.push((self.env.now, event.token, amount));
            done += 1;
        }
        for token in [self.env.usdc, self.env.usdt] {
            let recent = self.moved.iter().filter(|(at, of, _)| *of == token && at + DAY_SECS >= self.env.now);
            let window: u64 = recent.map(|(_, _, amount)| amount).sum();
            assert!(window <= 400_000.min(LIMIT), "{window} in 24 hours");
        }
        self.successes[1] += done;
        self.check(&outcome, &expected, done + outcome.send_failures().len(), items.len());
    }

    fn send_item(&mut self) -> SendItem {
        let (psp, payment) = (ulid(PSPS[self.random.below(3)]), ulid(PAYMENTS[self.random.below(4)]));
        let salt = *self.random.pick(&[psp_salt(psp), psp_salt(psp), payment_salt(payment, psp, BPS), B256::ZERO]);
        let (token, amount) = (self.token(), [0, 1, 900, 90_000, 250_000][self.random.below(5)]);
        let to = *self.random.pick(&[PAYEE, PAYEE, STRANGER, Address::ZERO, self.env.factory]);
        let kind = self.random.below(6).try_into().unwrap();
        SendItem { kind, ..send_item(self.random.below(100) as u128, salt, token, to, amount) }
    }

    fn collect(&mut self) {
        let (token, mut groups, mut deposits) = (self.env.usdc, Vec::new(), Vec::<DepositItem>::new());
        let mut terms = Terms::new();
        for _ in 0..=self.random.below(2) {
            let psp = *self.random.pick(&PSPS);
            let items: Vec<_> = (0..self.random.below(4)).map(|_| self.collect_item(token, psp, &mut terms)).collect();
            let signed_for = *self.random.pick(&[psp, psp, psp, "psp_0"]);
            groups.push(group(signed_for, token, items));
        }
        if self.random.below(3) == 0 {
            let payer = self.random.below(self.payers.len());
            let payment = *self.random.pick(&PAYMENTS);
            let terms = self.payers[payer].terms(&self.env, 50);
            let nonce = B256::from(U256::from(self.random.below(40)));
            deposits.push(self.payers[payer].deposits(&mut self.env, token, payment, nonce, terms));
        }
        let count = groups.iter().map(|group| group.items.len()).sum();
        let call = Payferry::collectCall { groups, deposits: deposits.clone(), itemGas: self.env.item_gas() };
        let (caller, gas) = (self.caller(SETTLER), self.gas());
        let (before, outcome) = self.transact(caller, &call, gas);
        let mut expected = before;
        let mut done = 0;
        for event in outcome.events::<Payferry::Collected>() {
            assert_eq!(caller, SETTLER);
            assert!(self.collected.insert((event.payer, event.nonce)), "collected twice");
            // Only what the payer signed with this nonce, and for this PSP.
            let (psp, values) = &terms[&(event.payer, event.nonce)];
            let (share, fee): (u64, u64) = (event.pspAmount.to(), event.treasuryFee.to());
            let value = share + fee;
            assert!(values.contains(&value) && fee <= value * u64::from(BPS) / 10_000);
            take(&mut expected, token, event.payer, value);
            let psp_vault = self.env.psp_vault(psp);
            give(&mut expected, token, psp_vault, share);
            give(&mut expected, token, TREASURY, fee);
            done += 1;
        }
        let failed: Vec<_> = outcome.events::<Payferry::CollectFailed>();
        if outcome.ok {
            for deposit in &deposits {
                if failed.iter().all(|event| event.nonce != deposit.nonce) {
                    let vault = self.env.vault_of(payment_salt(deposit.paymentId, deposit.pspId, BPS));
                    take(&mut expected, token, deposit.authorization.from, 50);
                    give(&mut expected, token, vault, 50);
                }
            }
        }
        let failed = failed.iter().filter(|event| deposits.iter().all(|deposit| deposit.nonce != event.nonce)).count();
        self.successes[2] += done;
        self.check(&outcome, &expected, done + failed, count);
    }

    fn collect_item(&mut self, token: Address, psp: &'static str, terms: &mut Terms) -> CollectItem {
        let payer = self.random.below(self.payers.len());
        let payment = *self.random.pick(&PAYMENTS);
        let value = 100 + self.random.below(900) as u64;
        let attempt = u16::try_from(self.random.below(50)).unwrap();
        let signed = self.payers[payer].terms(&self.env, value.into());
        let mut item = self.payers[payer].pays_on(&mut self.env, token, payment, psp, attempt, signed);
        let nonce = collect_nonce(CHAIN_ID, self.env.factory, item.paymentId, self.env.psp_vault(psp), BPS, attempt);
        terms.entry((signed.from, nonce)).or_insert((psp, Vec::new())).1.push(value);
        match self.random.below(12) {
            0 => item.fee += 1,
            1 => item.maxFeeBps = 10_000,
            2 => item.authorization.value += 1,
            3 => item.paymentId ^= 1,
            4 => item.fee = 0,
            // The payer cancels the nonce first, if it is unused.
            5 if !self.env.read(token, &Erc3009::authorizationStateCall { authorizer: signed.from, nonce }) => {
                self.payers[payer].cancels(&mut self.env, token, nonce);
            }
            _ => {}
        }
        item
    }

    /// Anything else that can happen: money and coin arrive, accounts are blacklisted, roles and pauses change, attackers
    /// call everything.
    fn disturb(&mut self) {
        let (token, account) = (self.token(), *self.random.pick(&self.accounts.clone()));
        match self.random.below(7) {
            // Fails if the account is blacklisted.
            0 => drop(self.env.call(MINTER, token, &Token::mintCall { to: account, value: U256::from(5_000) })),
            1 => {
                let usdc = self.env.usdc;
                if account != self.env.factory {
                    self.env.call(MINTER, usdc, &TestUSDC::blacklistCall { account });
                }
            }
            2 => self.env.force_coin(account, 3),
            3 => {
                let (settle_, send_) = (self.random.below(2) == 0, self.random.below(2) == 0);
                let factory = self.env.factory;
                assert!(self.env.call(GUARDIAN, factory, &Payferry::pauseCall { settle_, send_ }).ok);
            }
            4 => self.env.now += [1, 3_600, DAY_SECS / 2][self.random.below(3)],
            _ => self.attack(account),
        }
        if self.random.below(2) == 0 {
            for account in self.accounts.clone() {
                let usdc = self.env.usdc;
                self.env.call(MINTER, usdc, &TestUSDC::unBlacklistCall { account });
            }
            self.env.admin(&Payferry::unpauseCall { settle_: true, send_: true });
        }
    }

    fn attack(&mut self, target: Address) {
        let (factory, attacker) = (self.env.factory, *self.random.pick(&[STRANGER, MINTER, SENDER, SETTLER, GUARDIAN]));
        let before = self.balances();
        let item = self.settle_item();
        let send = SendItem { to: attacker, ..self.send_item() };
        let calls: [Vec<u8>; 6] = [
            Payferry::settleItemCall { item }.abi_encode(),
            Payferry::sendItemCall { item: send }.abi_encode(),
            Payferry::grantCall { role: Role::Sender, key: attacker }.abi_encode(),
            Payferry::setTreasuryCall { treasury_: attacker }.abi_encode(),
            Payferry::unpauseCall { settle_: true, send_: true }.abi_encode(),
            Payferry::sweepNativeCall { vaultSalt: B256::ZERO }.abi_encode(),
        ];
        for data in calls {
            assert!(!self.env.transact(attacker, factory.into(), data.into(), 1_000_000).ok);
        }
        let pay = payferry_contracts::Vault::payCall {
            token: self.env.usdc,
            first: attacker,
            firstAmount: U256::from(1),
            second: attacker,
            secondAmount: U256::ZERO,
        };
        self.env.call(attacker, target, &pay);
        let from = self.env.usdc;
        let transfer = Token::transferFromCall { from: target, to: attacker, value: U256::from(1) };
        assert!(!self.env.call(attacker, from, &transfer).ok);
        assert_eq!(self.balances(), before);
    }

    fn transact(&mut self, caller: Address, call: &impl SolCall, gas: u64) -> (Balances, Outcome) {
        let before = self.balances();
        let factory = self.env.factory;
        (before, self.env.transact(caller, factory.into(), call.abi_encode().into(), gas))
    }

    #[track_caller]
    fn check(&mut self, outcome: &Outcome, expected: &Balances, reported: usize, items: usize) {
        assert_eq!(reported, if outcome.ok { items } else { 0 }, "each item is reported: {outcome:?}");
        assert_eq!(self.balances(), *expected, "only what the events say moves");
    }

    /// Sweeps everything.
    fn check_coin(&mut self) {
        let forced: u64 = self.accounts.clone().into_iter().map(|account| self.env.coin(account)).sum();
        let mut salts = vec![B256::ZERO];
        for psp in PSPS {
            salts.push(psp_salt(ulid(psp)));
            salts.extend(PAYMENTS.map(|payment| payment_salt(ulid(payment), ulid(psp), BPS)));
        }
        for salt in salts {
            self.env.admin(&Payferry::sweepNativeCall { vaultSalt: salt });
            let vault = if salt.is_zero() { self.env.factory } else { self.env.vault_of(salt) };
            assert_eq!(self.env.coin(vault), 0);
        }
        let after: u64 = self.accounts.clone().into_iter().map(|account| self.env.coin(account)).sum();
        assert_eq!(after, forced);
    }
}

fn take(balances: &mut Balances, token: Address, from: Address, amount: u64) {
    *balances.get_mut(&(token, from)).expect("a known source") -= amount;
}

fn give(balances: &mut Balances, token: Address, to: Address, amount: u64) {
    *balances.get_mut(&(token, to)).expect("a known recipient") += amount;
}

#[test]
fn random_calls_keep_the_promises_of_the_contract() {
    let mut successes = [0; 3];
    let long = std::env::var_os("PAYFERRY_CHECK_LONG").is_some();
    for seed in 0..if long { 60 } else { 2 } {
        let mut model = Model::new(seed);
        for _ in 0..STEPS {
            match model.random.below(8) {
                0..3 => model.settle(),
                3..5 => model.send(),
                5..7 => model.collect(),
                _ => model.disturb(),
            }
        }
        model.check_coin();
        for (total, of_model) in successes.iter_mut().zip(model.successes) {
            *total += of_model;
        }
    }
    println!("settled, sent, collected: {successes:?}");
    assert!(successes.iter().all(|count| *count > 50), "{successes:?}");
}
