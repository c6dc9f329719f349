//! A chain with the factory and both tokens, and helper functions. Each test has its own.

use alloy::primitives::{Address, B256, Bytes, Log, TxKind, U256};
use alloy::sol;
use alloy::sol_types::{SolCall, SolError, SolEvent};
use payferry_contracts::{
    CREATE2_DEPLOYER, CREATE2_DEPLOYER_CODE, PAYFERRY_DEPLOY_GAS_MAX, Payferry, SendItem, SettleItem, TX_GAS_MAX,
    Token, batch_gas_limit, create2_deploy_input, payferry_address, payferry_init_code, salt_of, test_usdc_init_code,
    test_usdt_init_code, vault_address,
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

sol! {
    #[derive(Debug, PartialEq, Eq)]
    contract HostileToken {
        enum Mode { Honest, ReturnFalse, ReturnTwo, ReturnBomb, RevertBomb, BurnGas, Reenter }
        function reentered() external view returns (bool);
        function reentries() external view returns (uint256);
        function answer() external view returns (bytes);
        function mint(address to, uint256 value) external;
        function setMode(Mode mode_) external;
        function setReenter(address target_, bytes calldata payload_) external;
        function run(address target_, bytes calldata data) external;
    }
}

#[derive(Clone)]
pub struct Env {
    db: CacheDB<EmptyDB>,
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
    pub fn new() -> Self {
        let mut db = CacheDB::new(EmptyDB::default());
        let code = Bytecode::new_raw(CREATE2_DEPLOYER_CODE);
        db.insert_account_info(CREATE2_DEPLOYER, AccountInfo::from_bytecode(code));
        let init_code = payferry_init_code(ADMIN, SETTLER, SENDER, TREASURY);
        let factory = payferry_address(&init_code, B256::ZERO);
        let mut env = Self { db, now: 1_800_000_000, factory, usdc: Address::ZERO, usdt: Address::ZERO };
        let input = create2_deploy_input(B256::ZERO, &init_code);
        let deployed = env.transact(STRANGER, TxKind::Call(CREATE2_DEPLOYER), input, PAYFERRY_DEPLOY_GAS_MAX);
        assert!(deployed.ok, "the factory deploys: {deployed:?}");
        assert_eq!(deployed.output, Bytes::copy_from_slice(factory.as_slice()));
        env.usdc = env.create(test_usdc_init_code(MINTER));
        env.usdt = env.create(test_usdt_init_code(MINTER));
        env
    }

    pub fn create(&mut self, init_code: Bytes) -> Address {
        let made = self.transact(MINTER, TxKind::Create, init_code, TX_GAS_MAX);
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
        let now = self.now;
        let mut evm = Context::mainnet()
            .modify_cfg_chained(|cfg| {
                cfg.set_spec_and_mainnet_gas_params(SpecId::OSAKA);
                cfg.disable_nonce_check = true;
            })
            .modify_block_chained(|block| {
                block.number = U256::from(1);
                block.timestamp = U256::from(now);
            })
            .with_db(&mut self.db)
            .build_mainnet();
        let tx = TxEnv::builder().caller(from).kind(kind).data(data).gas_limit(gas_limit).build().unwrap();
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
        let gas_limit = batch_gas_limit(items.len());
        self.settle_with_gas(items, gas_limit)
    }

    pub fn settle_with_gas(&mut self, items: Vec<SettleItem>, gas_limit: u64) -> Outcome {
        let data = Payferry::settleCall { items }.abi_encode().into();
        self.transact(SETTLER, TxKind::Call(self.factory), data, gas_limit)
    }

    pub fn send(&mut self, items: Vec<SendItem>) -> Outcome {
        let gas_limit = batch_gas_limit(items.len());
        let data = Payferry::sendCall { items }.abi_encode().into();
        self.transact(SENDER, TxKind::Call(self.factory), data, gas_limit)
    }

    pub fn vault(&self, id: &str) -> Address {
        vault_address(self.factory, salt_of(id))
    }

    /// Shorthand for a transfer of a payer.
    pub fn fund(&mut self, token: Address, id: &str, amount: u64) {
        let to = self.vault(id);
        self.mint(token, to, amount);
    }

    pub fn mint(&mut self, token: Address, to: Address, amount: u64) {
        let minted = self.call(MINTER, token, &Token::mintCall { to, value: U256::from(amount) });
        assert!(minted.ok, "mints: {minted:?}");
    }

    pub fn balance(&mut self, token: Address, account: Address) -> u64 {
        self.read(token, &Token::balanceOfCall { account }).to()
    }

    pub fn vault_balance(&mut self, token: Address, id: &str) -> u64 {
        let vault = self.vault(id);
        self.balance(token, vault)
    }

    pub fn is_done(&mut self, number: u64) -> bool {
        self.read(self.factory, &Payferry::isDoneCall { number: U256::from(number) })
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

    /// Returns (number, reason) of every failed settlement.
    pub fn settle_failures(&self) -> Vec<(u64, Bytes)> {
        self.events::<Payferry::SettleFailed>().into_iter().map(|e| (e.number.to(), e.reason)).collect()
    }

    /// Returns the numbers of the settlements that succeeded.
    pub fn settled(&self) -> Vec<u64> {
        self.events::<Payferry::Settled>().into_iter().map(|e| e.number.to()).collect()
    }

    #[track_caller]
    pub fn assert_reverted_with<E: SolError>(&self) {
        assert!(!self.ok, "should have reverted with {}: {self:?}", E::SIGNATURE);
        assert!(E::abi_decode(&self.output).is_ok(), "should be {}: {self:?}", E::SIGNATURE);
    }
}

pub fn settle_item(number: u64, id: &str, token: Address, psp: &str, psp_amount: u64, fee: u64) -> SettleItem {
    SettleItem {
        number: U256::from(number),
        vaultSalt: salt_of(id),
        token,
        pspSalt: salt_of(psp),
        pspAmount: U256::from(psp_amount),
        treasuryFee: U256::from(fee),
    }
}

pub fn send_item(number: u64, id: &str, token: Address, to: Address, amount: u64) -> SendItem {
    SendItem { number: U256::from(number), vaultSalt: salt_of(id), token, to, amount: U256::from(amount) }
}
