//! A chain with the contract and both tokens, and helper functions. Each test has its own.

use alloy::primitives::{Address, B256, Bytes, Log, TxKind, U256, keccak256};
use alloy::sol;
use alloy::sol_types::{SolCall, SolError, SolEvent};
use payferry_contracts::{
    CREATE2_DEPLOYER, CREATE2_DEPLOYER_CODE, CollectGroup, DepositItem, ITEM_GAS, ITEM_GAS_AMSTERDAM, OperationKind,
    PAYFERRY_DEPLOY_GAS_MAX, Payferry, Role, SendItem, SettleItem, TX_GAS_MAX, Token, batch_gas_limit,
    collect_gas_limit, create2_deploy_input, payferry_address, payferry_init_code, payment_salt, psp_salt,
    test_usdc_init_code, test_usdt_init_code, vault_address,
};
use revm::context::result::{ExecutionResult, Output};
use revm::context::{Context, TxEnv};
use revm::database::{CacheDB, EmptyDB};
use revm::primitives::hardfork::SpecId;
use revm::state::{AccountInfo, Bytecode};
use revm::{ExecuteCommitEvm, MainBuilder, MainContext};

pub const ADMIN: Address = Address::with_last_byte(0xa1);
pub const SETTLER: Address = Address::with_last_byte(0xa2);
pub const SENDER: Address = Address::with_last_byte(0xa3);
pub const TREASURY: Address = Address::with_last_byte(0xa4);
pub const MINTER: Address = Address::with_last_byte(0xa5);
pub const STRANGER: Address = Address::with_last_byte(0xa6);
pub const PAYEE: Address = Address::with_last_byte(0xa7);
pub const GUARDIAN: Address = Address::with_last_byte(0xa8);

/// Maximum fee of the payments: 1 %.
pub const BPS: u16 = 100;
/// Limit of each token in 24 hours, in base units.
pub const LIMIT: u64 = 2_000_000_000_000;
pub const DAY_SECS: u64 = 24 * 60 * 60;
pub const CHAIN_ID: u64 = 1;

sol! {
    #[derive(Debug, PartialEq, Eq)]
    contract HostileToken {
        enum Mode { Honest, ReturnFalse, ReturnTwo, ReturnBomb, RevertBomb, BurnGas, Reenter, TakeFee, Ignore }
        function reentered() external view returns (bool);
        function reentries() external view returns (uint256);
        function answer() external view returns (bytes);
        function mint(address to, uint256 value) external;
        function setMode(Mode mode_) external;
        function setAuthorizationMode(Mode mode_) external;
        function setReenter(address target_, bytes calldata payload_) external;
        function run(address target_, bytes calldata data) external;
    }
}

#[derive(Clone)]
pub struct Env {
    db: CacheDB<EmptyDB>,
    pub spec: SpecId,
    pub now: u64,
    pub factory: Address,
    pub usdc: Address,
    pub usdt: Address,
}

/// Result of a transaction.
#[derive(Debug)]
pub struct Outcome {
    pub ok: bool,
    pub gas_used: u64,
    pub output: Bytes,
    pub logs: Vec<Log>,
}

impl Env {
    /// The roles, the treasury and the limits of both tokens are granted.
    pub fn new() -> Self {
        Self::with_rules(SpecId::OSAKA)
    }

    pub fn with_rules(spec: SpecId) -> Self {
        let mut env = Self::deployed(spec);
        for (role, key) in [(Role::Settler, SETTLER), (Role::Sender, SENDER), (Role::Guardian, GUARDIAN)] {
            env.admin(&Payferry::grantCall { role, key });
        }
        env.admin(&Payferry::setTreasuryCall { treasury_: TREASURY });
        for token in [env.usdc, env.usdt] {
            env.admin(&Payferry::setLimitCall { token, limit: U256::from(LIMIT) });
        }
        env
    }

    /// As after the deployment: no role, treasury or limit was ever granted.
    pub fn deployed(spec: SpecId) -> Self {
        let mut db = CacheDB::new(EmptyDB::default());
        let code = Bytecode::new_raw(CREATE2_DEPLOYER_CODE);
        db.insert_account_info(CREATE2_DEPLOYER, AccountInfo::from_bytecode(code));
        let init_code = payferry_init_code(ADMIN);
        let factory = payferry_address(&init_code, B256::ZERO);
        let mut env = Self { db, spec, now: 1_800_000_000, factory, usdc: Address::ZERO, usdt: Address::ZERO };
        let input = create2_deploy_input(B256::ZERO, &init_code);
        let gas_limit = env.deploy_gas();
        let deployed = env.transact(STRANGER, TxKind::Call(CREATE2_DEPLOYER), input, gas_limit);
        assert!(deployed.ok, "the contract deploys: {deployed:?}");
        assert_eq!(deployed.output, Bytes::copy_from_slice(factory.as_slice()));
        env.usdc = env.create(test_usdc_init_code(MINTER));
        env.usdt = env.create(test_usdt_init_code(MINTER));
        env
    }

    fn is_amsterdam(&self) -> bool {
        self.spec == SpecId::AMSTERDAM
    }

    /// Under Amsterdam rules, the gas of new state is beyond the cap of a transaction's regular gas (EIP-8037).
    fn deploy_gas(&self) -> u64 {
        if self.is_amsterdam() { 80_000_000 } else { PAYFERRY_DEPLOY_GAS_MAX }
    }

    /// Gas limit that is sufficient to deploy any contract.
    pub fn create_gas(&self) -> u64 {
        if self.is_amsterdam() { self.deploy_gas() } else { TX_GAS_MAX }
    }

    /// Gas limit of an item that callers pass under these rules.
    pub fn item_gas(&self) -> u64 {
        if self.is_amsterdam() { ITEM_GAS_AMSTERDAM } else { ITEM_GAS }
    }

    pub fn create(&mut self, init_code: Bytes) -> Address {
        let made = self.transact(MINTER, TxKind::Create, init_code, self.create_gas());
        assert!(made.ok, "deploys: {made:?}");
        Address::from_slice(&made.output)
    }

    /// Deploys a contract from `artifacts/test/`.
    pub fn create_test_contract(&mut self, artifact: &str, arguments: &[u8]) -> Address {
        let artifact: serde_json::Value = serde_json::from_str(artifact).unwrap();
        let code = alloy::hex::decode(artifact["bytecode"].as_str().unwrap()).unwrap();
        self.create([code.as_slice(), arguments].concat().into())
    }

    pub fn hostile_token(&mut self) -> Address {
        self.create_test_contract(include_str!("../../artifacts/test/HostileToken.json"), &[])
    }

    pub fn transact(&mut self, from: Address, kind: TxKind, data: Bytes, gas_limit: u64) -> Outcome {
        self.transact_with_value(from, kind, data, gas_limit, 0)
    }

    pub fn transact_with_value(
        &mut self,
        from: Address,
        kind: TxKind,
        data: Bytes,
        gas_limit: u64,
        value: u64,
    ) -> Outcome {
        let (now, spec) = (self.now, self.spec);
        let mut evm = Context::mainnet()
            .modify_cfg_chained(|cfg| {
                cfg.set_spec_and_mainnet_gas_params(spec);
                cfg.disable_nonce_check = true;
            })
            .modify_block_chained(|block| {
                block.number = U256::from(1);
                block.timestamp = U256::from(now);
            })
            .with_db(&mut self.db)
            .build_mainnet();
        let tx = TxEnv::builder()
            .caller(from)
            .kind(kind)
            .data(data)
            .gas_limit(gas_limit)
            .value(U256::from(value))
            .build()
            .unwrap();
        let result = evm.transact_commit(tx).unwrap();
        let gas_used = result.tx_gas_used();
        match result {
            ExecutionResult::Success { logs, output, .. } => {
                let output = match output {
                    Output::Call(bytes) => bytes,
                    Output::Create(_, address) => Bytes::copy_from_slice(address.unwrap().as_slice()),
                };
                Outcome { ok: true, gas_used, output, logs }
            }
            ExecutionResult::Revert { output, .. } => Outcome { ok: false, gas_used, output, logs: Vec::new() },
            ExecutionResult::Halt { .. } => Outcome { ok: false, gas_used, output: Bytes::new(), logs: Vec::new() },
        }
    }

    pub fn call(&mut self, from: Address, to: Address, call: &impl SolCall) -> Outcome {
        self.transact(from, TxKind::Call(to), call.abi_encode().into(), TX_GAS_MAX)
    }

    /// Makes a call that must succeed, and returns its result.
    pub fn read<C: SolCall>(&mut self, to: Address, call: &C) -> C::Return {
        let outcome = self.call(STRANGER, to, call);
        assert!(outcome.ok, "{}: {outcome:?}", C::SIGNATURE);
        C::abi_decode_returns(&outcome.output).unwrap()
    }

    pub fn settle(&mut self, items: Vec<SettleItem>) -> Outcome {
        let gas_limit = batch_gas_limit(items.len(), self.item_gas()).min(TX_GAS_MAX);
        self.settle_with_gas(items, gas_limit)
    }

    pub fn settle_with_gas(&mut self, items: Vec<SettleItem>, gas_limit: u64) -> Outcome {
        let data = Payferry::settleCall { items, itemGas: self.item_gas() }.abi_encode().into();
        self.transact(SETTLER, TxKind::Call(self.factory), data, gas_limit)
    }

    pub fn send(&mut self, items: Vec<SendItem>) -> Outcome {
        let gas_limit = batch_gas_limit(items.len(), self.item_gas()).min(TX_GAS_MAX);
        let data = Payferry::sendCall { items, itemGas: self.item_gas() }.abi_encode().into();
        self.transact(SENDER, TxKind::Call(self.factory), data, gas_limit)
    }

    pub fn collect(&mut self, groups: Vec<CollectGroup>, deposits: Vec<DepositItem>) -> Outcome {
        let items = groups.iter().map(|group| group.items.len()).sum::<usize>() + deposits.len();
        let gas_limit = collect_gas_limit(items, groups.len(), self.item_gas()).min(TX_GAS_MAX);
        self.collect_with_gas(groups, deposits, gas_limit)
    }

    pub fn collect_with_gas(
        &mut self,
        groups: Vec<CollectGroup>,
        deposits: Vec<DepositItem>,
        gas_limit: u64,
    ) -> Outcome {
        let call = Payferry::collectCall { groups, deposits, itemGas: self.item_gas() };
        self.transact(SETTLER, TxKind::Call(self.factory), call.abi_encode().into(), gas_limit)
    }

    /// Makes a call of the admin that must succeed.
    pub fn admin(&mut self, call: &impl SolCall) {
        let outcome = self.call(ADMIN, self.factory, call);
        assert!(outcome.ok, "{outcome:?}");
    }

    pub fn vault_of(&self, salt: B256) -> Address {
        vault_address(self.factory, salt)
    }

    /// Vault of a payment of `psp_1`.
    pub fn vault(&self, payment: &str) -> Address {
        self.vault_of(salt(payment))
    }

    pub fn psp_vault(&self, psp: &str) -> Address {
        self.vault_of(psp_salt(ulid(psp)))
    }

    /// Shorthand for a transfer of a payer to a payment of `psp_1`.
    pub fn fund(&mut self, token: Address, payment: &str, amount: u64) {
        let to = self.vault(payment);
        self.mint(token, to, amount);
    }

    pub fn mint(&mut self, token: Address, to: Address, amount: u64) {
        let minted = self.call(MINTER, token, &Token::mintCall { to, value: U256::from(amount) });
        assert!(minted.ok, "mints: {minted:?}");
    }

    pub fn balance(&mut self, token: Address, account: Address) -> u64 {
        self.read(token, &Token::balanceOfCall { account }).to()
    }

    pub fn vault_balance(&mut self, token: Address, payment: &str) -> u64 {
        let vault = self.vault(payment);
        self.balance(token, vault)
    }

    pub fn psp_balance(&mut self, token: Address, psp: &str) -> u64 {
        let vault = self.psp_vault(psp);
        self.balance(token, vault)
    }

    pub fn done_at(&mut self, kind: OperationKind, id: u128) -> u64 {
        self.read(self.factory, &Payferry::doneAtCall { kind: kind.number(), id }).to()
    }

    pub fn is_settled(&mut self, id: u128) -> bool {
        self.done_at(OperationKind::Settlement, id) != 0
    }

    /// Native coin of an account, in wei.
    pub fn coin(&mut self, account: Address) -> u64 {
        use revm::Database;
        self.db.basic(account).unwrap().map_or(0, |info| info.balance.to())
    }

    /// Adds native coin by force, as a block reward does.
    pub fn force_coin(&mut self, account: Address, amount: u64) {
        use revm::Database;
        let mut info = self.db.basic(account).unwrap().unwrap_or_default();
        info.balance += U256::from(amount);
        self.db.insert_account_info(account, info);
    }

    /// Replaces the code of an account.
    pub fn set_code(&mut self, account: Address, code: Bytecode) {
        self.db.insert_account_info(account, AccountInfo::from_bytecode(code));
    }

    pub fn code_len(&mut self, account: Address) -> usize {
        use revm::Database;
        let hash = self.db.basic(account).unwrap().map_or(revm::primitives::KECCAK_EMPTY, |info| info.code_hash);
        self.db.code_by_hash(hash).unwrap().original_bytes().len()
    }
}

impl Outcome {
    pub fn events<E: SolEvent>(&self) -> Vec<E> {
        self.logs.iter().filter_map(|log| E::decode_log(log).ok()).map(|log| log.data).collect()
    }

    /// Returns (id, reason) of every failed settlement.
    pub fn settle_failures(&self) -> Vec<(u128, Bytes)> {
        self.events::<Payferry::SettleFailed>().into_iter().map(|e| (e.id, e.reason)).collect()
    }

    /// Returns the ids of the settlements that succeeded.
    pub fn settled(&self) -> Vec<u128> {
        self.events::<Payferry::Settled>().into_iter().map(|e| e.id).collect()
    }

    /// Returns the ids of the outbound transfers that succeeded.
    pub fn sent(&self) -> Vec<u128> {
        self.events::<Payferry::Sent>().into_iter().map(|e| e.id).collect()
    }

    /// Returns (id, reason) of every failed outbound transfer.
    pub fn send_failures(&self) -> Vec<(u128, Bytes)> {
        self.events::<Payferry::SendFailed>().into_iter().map(|e| (e.id, e.reason)).collect()
    }

    /// Returns the ids of the payments that were collected.
    pub fn collected(&self) -> Vec<u128> {
        self.events::<Payferry::Collected>().into_iter().map(|e| e.paymentId).collect()
    }

    /// Returns (payment, reason) of every failed payment by signature or deposit.
    pub fn collect_failures(&self) -> Vec<(u128, Bytes)> {
        self.events::<Payferry::CollectFailed>().into_iter().map(|e| (e.paymentId, e.reason)).collect()
    }

    #[track_caller]
    pub fn assert_reverted_with<E: SolError>(&self) {
        assert!(!self.ok, "should have reverted with {}: {self:?}", E::SIGNATURE);
        assert!(E::abi_decode(&self.output).is_ok(), "should be {}: {self:?}", E::SIGNATURE);
    }
}

/// A stable id for a name such as `pay_1`.
pub fn ulid(name: &str) -> u128 {
    u128::from_be_bytes(keccak256(name)[..16].try_into().unwrap())
}

/// Salt of a payment of `psp_1`.
pub fn salt(payment: &str) -> B256 {
    payment_salt(ulid(payment), ulid("psp_1"), BPS)
}

/// A settlement of a payment of `psp`: `amount` base units, of which `fee` are the treasury's.
pub fn settle_item(id: u128, payment: &str, token: Address, psp: &str, amount: u128, fee: u128) -> SettleItem {
    SettleItem { id, paymentId: ulid(payment), pspId: ulid(psp), maxFeeBps: BPS, token, amount, fee }
}

/// A payout from the vault of `vaultSalt`.
pub fn send_item(id: u128, vault_salt: B256, token: Address, to: Address, amount: u128) -> SendItem {
    SendItem { kind: OperationKind::Payout.number(), id, vaultSalt: vault_salt, token, to, amount }
}
