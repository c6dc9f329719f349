//! Contracts on a test node: test tokens, funded payers and the settlement contract.
//!
//! Deliberately absent: payments. The contract may also be deployed by `payferry deploy`; the test then sets its
//! address.

use std::collections::BTreeMap;

use alloy::primitives::{Address, B256, Bytes, U256, keccak256};
use alloy::sol_types::SolCall;
use payferry_contracts::{
    CREATE2_DEPLOYER, Grants, PAYFERRY_DEPLOY_GAS_MAX, Token as TokenContract, create2_deploy_input, payferry_address,
    payferry_init_code, psp_salt, test_usdc_init_code, test_usdt_init_code, vault_address,
};
use payferry_devchain::DevWallet;
use payferry_domain::{Chain, PspId, Token};

use crate::node::Node;
use crate::payers::send_as;

/// Initial balance of each payer in each token, in base units.
pub const PAYER_FUNDS: u64 = 1_000_000_000_000_000;
/// Gas limit of minting to all payers.
const MINT_GAS: u64 = 8_000_000;
/// Gas limit of a grant of the admin.
const GRANT_GAS: u64 = 300_000;
/// Limit of outbound transfers of each token in 24 hours, in base units: more than a test ever moves.
const SEND_LIMIT: u64 = 1 << 62;
/// Initial balance for gas of every account, in whole coins.
const GAS_COINS: u64 = 1_000_000;

/// Accounts of the test chains: keys derived from names, without value anywhere else.
#[derive(Debug)]
pub struct Accounts {
    /// Deploys contracts and owns the test tokens.
    pub deployer: DevWallet,
    /// Admin of the contract: grants the roles.
    pub admin: DevWallet,
    /// Settles, and pays for the gas of it.
    pub settler: DevWallet,
    /// Sends outbound transfers, and pays for the gas of it.
    pub sender: DevWallet,
    /// Payers whose funds are clean.
    pub payers: Vec<DevWallet>,
    /// A payer for the sanctions list.
    pub sanctioned: DevWallet,
}

impl Accounts {
    /// Returns the same accounts each time.
    pub fn known(payers: usize) -> Self {
        Self {
            deployer: wallet("deployer"),
            admin: wallet("admin"),
            settler: wallet("settler"),
            sender: wallet("sender"),
            payers: (0..payers).map(|n| wallet(&format!("payer {n}"))).collect(),
            sanctioned: wallet("sanctioned payer"),
        }
    }

    /// Account that receives the fees.
    pub fn treasury() -> Address {
        wallet("treasury").address()
    }

    /// All payers, the sanctioned one last.
    pub fn all_payers(&self) -> impl Iterator<Item = &DevWallet> {
        self.payers.iter().chain([&self.sanctioned])
    }
}

fn wallet(name: &str) -> DevWallet {
    DevWallet::from_seed(&format!("payferry test {name}"))
}

/// Contracts on one node.
#[derive(Clone, Debug)]
pub struct Deployment {
    /// The service's name of the chain.
    pub chain: Chain,
    /// The node.
    pub node: Node,
    /// The test tokens.
    pub tokens: BTreeMap<Token, Address>,
    /// The settlement contract, once it is deployed.
    pub contract: Address,
}

impl Deployment {
    /// Funds the accounts, deploys the tokens and the settlement contract, and mints to the payers.
    pub async fn new(chain: Chain, node: Node, accounts: &Accounts) -> Self {
        let mut deployment = Self::tokens_only(chain, node, accounts).await;
        deployment.deploy_payferry(accounts).await;
        deployment
    }

    /// The same without the settlement contract, for `payferry deploy`: set `contract` to the printed address.
    pub async fn tokens_only(chain: Chain, node: Node, accounts: &Accounts) -> Self {
        let gas_price_cache = U256::from(GAS_COINS) * U256::from(10).pow(U256::from(18));
        for wallet in [&accounts.deployer, &accounts.admin, &accounts.settler, &accounts.sender]
            .into_iter()
            .chain(accounts.all_payers())
        {
            node.set_balance(wallet.address(), gas_price_cache).await;
        }
        let owner = accounts.deployer.address();
        let codes = [(Token::Usdc, test_usdc_init_code(owner)), (Token::Usdt, test_usdt_init_code(owner))];
        let mut tokens = BTreeMap::new();
        for (token, code) in codes {
            let salt = keccak256(format!("payferry test {token} on {chain}"));
            let address = deploy(&node, &accounts.deployer, salt, &code).await;
            tokens.insert(token, address);
        }
        let deployment = Self { chain, node, tokens, contract: Address::ZERO };
        for token in deployment.tokens.values() {
            deployment.mint(accounts, *token).await;
        }
        deployment
    }

    /// Deploys the settlement contract as `payferry deploy` does, and grants the roles.
    pub async fn deploy_payferry(&mut self, accounts: &Accounts) {
        let code = payferry_init_code(accounts.admin.address());
        self.contract = deploy(&self.node, &accounts.deployer, B256::ZERO, &code).await;
        assert_eq!(self.contract, payferry_address(&code, B256::ZERO));
        self.grant(accounts).await;
    }

    /// Grants the roles, the treasury and the limits, as `payferry contract grant` does.
    pub async fn grant(&self, accounts: &Accounts) {
        let (settler, sender) = (accounts.settler.address(), accounts.sender.address());
        let limits = self.tokens.values().map(|token| (*token, U256::from(SEND_LIMIT))).collect();
        let grants = Grants { settler, sender, treasury: Accounts::treasury(), limits };
        for call in grants.calls() {
            send_as(&self.node, &accounts.admin, self.contract, call, GRANT_GAS).await;
        }
        self.node.mine(1).await;
    }

    /// A token's contract.
    pub fn token(&self, token: Token) -> Address {
        self.tokens[&token]
    }

    /// Address of the vault of a PSP, deployed or not.
    pub fn psp_vault(&self, psp_id: &str) -> Address {
        vault_address(self.contract, psp_salt(psp_id.parse::<PspId>().unwrap().ulid().0))
    }

    /// Balance of an account, in base units.
    pub async fn balance(&self, token: Token, account: Address) -> i64 {
        self.node.balance_of(self.token(token), account).await.to()
    }

    /// Balances of the PSP's vault and of the treasury, in base units.
    pub async fn holdings(&self, psp_id: &str, token: Token) -> (i64, i64) {
        (self.balance(token, self.psp_vault(psp_id)).await, self.balance(token, Accounts::treasury()).await)
    }

    /// Funds all payers in one transaction.
    async fn mint(&self, accounts: &Accounts, token: Address) {
        let to: Vec<Address> = accounts.all_payers().map(DevWallet::address).collect();
        let last = accounts.sanctioned.address();
        let values = vec![U256::from(PAYER_FUNDS); to.len()];
        let call = TokenContract::mintBatchCall { to, values };
        send_as(&self.node, &accounts.deployer, token, call.abi_encode().into(), MINT_GAS).await;
        self.node.mine(1).await;
        assert!(!self.node.balance_of(token, last).await.is_zero(), "the tokens were not minted");
    }
}

/// Deploys through the canonical CREATE2 deployer. Returns the address.
async fn deploy(node: &Node, deployer: &DevWallet, salt: B256, init_code: &[u8]) -> Address {
    let address = CREATE2_DEPLOYER.create2_from_code(salt, init_code);
    if !node.has_code(address).await {
        let input: Bytes = create2_deploy_input(salt, init_code);
        send_as(node, deployer, CREATE2_DEPLOYER, input, PAYFERRY_DEPLOY_GAS_MAX).await;
        node.mine(1).await;
        assert!(node.has_code(address).await, "no code at {address} after the deployment");
    }
    address
}
