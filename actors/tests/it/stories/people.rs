//! Actions of the PSP, its customers and the operator, through the same calls as the HTTP handlers.

use std::collections::BTreeMap;

use payferry_actors::pauses;
use payferry_actors::payment::ResultRows;
use payferry_actors::{ChainChoiceRequest, InitiateError, InitiatePayment, OrderError};
use payferry_domain::customer::{self, IdentityVerdict};
use payferry_domain::outbound::{self, OutboundId, OutboundKind, OutboundTransfer};
use payferry_domain::payment::{Command, Payment, Purpose};
use payferry_domain::{Address, Amount, Chain, CommandError, CustomerId, PaymentId, PayoutId, Token, WithdrawalId};
use payferry_entities::{balances, payment_details};
use payferry_journal::audit::Actor;
use payferry_journal::psps::wallets;
use payferry_journal::psps::wallets::WalletChange;
use payferry_runtime::seal::Sealer;
use sea_orm::{ActiveModelTrait, EntityTrait, IntoActiveModel};
use serde_json::json;

use super::env::Env;
use super::outcome::Subject;
use crate::env::{Coin, MASTER, account};

/// The interface's error code of a refusal.
pub type Refused = String;

/// Request for a payment or for a transfer to a customer.
#[derive(Debug, Clone)]
pub struct PaymentOrder {
    pub amount: Amount,
    pub token: Token,
    /// `None`: the service chooses.
    pub chain: Option<Chain>,
    pub expires_in_secs: i64,
    /// For a transfer: the customer and the wallet.
    pub payee: Option<(CustomerId, Address)>,
}

/// A request of the PSP or the operator.
pub enum Request {
    Command(PaymentId, Command),
    Decide(OutboundId, outbound::Command),
    /// A payout to this customer and wallet, or without them a withdrawal to the PSP's registered wallet; with its name.
    Send {
        name: String,
        amount: Amount,
        chain: Chain,
        payee: Option<(CustomerId, Address)>,
    },
}

/// Customers of a story, by name. Each is approved and has the wallet of the account with the same name.
#[derive(Default)]
pub struct Customers(BTreeMap<String, (CustomerId, Address)>);

impl Customers {
    /// Returns a customer, created on first use.
    pub async fn get(&mut self, env: &Env, name: &str) -> (CustomerId, Address) {
        if let Some(known) = self.0.get(name) {
            return *known;
        }
        let made = env.customer(name).await;
        self.0.insert(name.to_owned(), made);
        made
    }
}

impl Env {
    pub async fn initiate(&self, asked: PaymentOrder) -> Result<Payment, Refused> {
        let PaymentOrder { amount, token, chain, expires_in_secs, payee } = asked;
        let request = InitiatePayment {
            purpose: payee.map_or(Purpose::PayIn, |(_, to)| Purpose::Transfer { to }),
            merchant_id: payee.is_none().then_some(self.merchant),
            customer_id: payee.map(|(customer, _)| customer),
            amount,
            token,
            chain: chain.map_or(ChainChoiceRequest::Best, ChainChoiceRequest::Named),
            expires_in_secs,
            ..self.request("1")
        };
        self.system().initiate(request).await.map_err(|error| match error {
            InitiateError::TokenUnavailable { .. } => "token_unavailable".to_owned(),
            InitiateError::ChainAway => "chain_away".to_owned(),
            InitiateError::ChainPaused(_) => "chain_paused".to_owned(),
            InitiateError::PspPaused => "psp_paused".to_owned(),
            InitiateError::CustomerRequired => "customer_required".to_owned(),
            InitiateError::AboveSendLimit(_) => "above_send_limit".to_owned(),
            InitiateError::RecipientBlocked => "wallet_blocked".to_owned(),
            InitiateError::RecipientInReview => "wallet_in_review".to_owned(),
            other => other.to_string(),
        })
    }

    /// Makes a request; returns the outbound transfer that it creates.
    pub async fn perform(&self, request: Request) -> Result<Option<(String, Subject)>, Refused> {
        match request {
            Request::Command(id, command) => self.command(id, command).await.map(|()| None),
            Request::Decide(id, decided) => self.decide_outbound(id, decided).await.map(|()| None),
            Request::Send { name, amount, chain, payee } => {
                let sent = match payee {
                    Some((customer_id, to)) => {
                        let id = OutboundId::Payout(PayoutId::generate());
                        self.send(id, amount, chain, Some(customer_id), to).await?
                    }
                    None => self.withdraw(amount, chain).await?,
                };
                Ok(Some((name, Subject::OutboundTransfer(sent.id()))))
            }
        }
    }

    async fn command(&self, id: PaymentId, command: Command) -> Result<(), Refused> {
        self.system().command_or_hold(id, command, ResultRows::default).await.map(drop).map_err(|error| match error {
            CommandError::Rejected(rejection) => rejection.code().to_owned(),
            CommandError::InsufficientBalance => "insufficient_balance".to_owned(),
            CommandError::Quarantined => "payment_quarantined".to_owned(),
            other => other.to_string(),
        })
    }

    async fn decide_outbound(&self, id: OutboundId, decided: outbound::Command) -> Result<(), Refused> {
        self.system().command_outbound(id, decided, None).await.map(drop).map_err(|error| match error {
            CommandError::Rejected(rejection) => rejection.code().to_owned(),
            other => other.to_string(),
        })
    }

    /// Orders a withdrawal to the PSP's registered wallet.
    async fn withdraw(&self, amount: Amount, chain: Chain) -> Result<OutboundTransfer, Refused> {
        let wallet = wallets::withdrawal_wallet(&self.database, self.psp, chain, self.clock().now()).await.unwrap();
        let to = wallet.ok_or("withdrawal_wallet_missing")?;
        self.send(OutboundId::Withdrawal(WithdrawalId::generate()), amount, chain, None, to).await
    }

    async fn send(
        &self,
        id: OutboundId,
        amount: Amount,
        chain: Chain,
        customer_id: Option<CustomerId>,
        to: Address,
    ) -> Result<OutboundTransfer, Refused> {
        self.order(id, amount, chain, customer_id, to).await.map_err(|error| match error {
            OrderError::InsufficientBalance => "insufficient_balance".to_owned(),
            OrderError::AboveSendLimit(_) => "above_send_limit".to_owned(),
            OrderError::AboveDailyLimit => "above_daily_limit".to_owned(),
            other => other.to_string(),
        })
    }

    /// Available USDC balance of the PSP on a chain.
    pub async fn balance_of_psp(&self, chain: Chain) -> Amount {
        let rows = balances::Entity::find().all(self.database.reader()).await.unwrap();
        let usdc = self.chains[&chain].coin(Coin::Usdc).to_string();
        let row = rows.into_iter().find(|row| row.chain == chain.as_str() && row.token_address == usdc);
        Amount(row.map_or(0, |row| row.available))
    }

    /// Adds an account to USDC's blacklist on every chain, or removes it.
    pub async fn blacklist(&self, address: Address, is_listed: bool) {
        for chain in self.chains.values() {
            chain.blacklist(address, is_listed).await;
        }
    }

    /// Registers the PSP's withdrawal wallet as the operator; effective immediately, as in the sandbox.
    pub async fn register_wallet(&self, address: Address) {
        let (transaction, now) = (self.system().database().begin().await.unwrap(), self.clock().now());
        let change = WalletChange { chain: None, address: Some(address), delay_secs: 0 };
        wallets::change(&transaction, self.psp, change, &Actor::Operator, now).await.unwrap();
        transaction.commit().await.unwrap();
    }

    /// Sets or lifts a pause as the operator.
    pub async fn pause(&self, scope: pauses::Scope, is_held: bool) {
        let (transaction, now) = (self.system().database().begin().await.unwrap(), self.clock().now());
        if is_held {
            pauses::set(&transaction, scope, "a story", &Actor::Operator, now).await.unwrap();
        } else {
            pauses::lift(&transaction, scope, &Actor::Operator, now).await.unwrap();
        }
        transaction.commit().await.unwrap();
        self.system().refresh_pauses().await.unwrap();
    }

    /// Creates an approved customer whose wallet is the account of this name.
    async fn customer(&self, name: &str) -> (CustomerId, Address) {
        let wallet = account(name);
        let id = self.create_customer(&format!("{name}@example.com"), &json!({})).await;
        let details = payment_details::Model {
            customer_id: id.to_string(),
            wallet_address: Some(wallet.to_string()),
            details: Sealer::new(&MASTER).seal(&["customers", &id.to_string(), "details"], b"{}"),
            created_at: 0,
            updated_at: 0,
        };
        details.into_active_model().insert(self.system().database().writer()).await.unwrap();
        self.change_customer(id, customer::Command::Decide(IdentityVerdict::Approved)).await;
        (id, wallet)
    }
}

/// Default name of an outbound transfer in a story.
pub const fn kind_of(id: OutboundId) -> &'static str {
    match id.kind() {
        OutboundKind::Payout => "payout",
        OutboundKind::Withdrawal => "withdrawal",
    }
}
