//! Terms, transfers and verdicts for the tests of this crate and of others.
#![allow(clippy::unwrap_used)]

use ulid::Ulid;

use super::{
    BlockRef, ChainChoice, Command, Decision, ObservedTransfer, OfferedChain, OverpaymentPolicy, PayerRefunds,
    Presence, Purpose, Terms, TransferFinality, TransferKey, Verdict,
};
use crate::chain::{Address, Chain, Finality, FinalityPolicy, Hash32};
use crate::ids::{MerchantId, PaymentId, PspId};
use crate::money::{Amount, FeeBps, Token, Tolerance};
use crate::time::Timestamp;

/// Time of the initiation.
pub const START: Timestamp = Timestamp(1_732_000_000_000);
/// Seconds after which a payment expires.
pub const EXPIRY_SECS: i64 = 1_200;
/// Contract of USDC on Base.
pub const USDC: Address = Address([0xaa; 20]);
/// Wallet of the payment.
pub const WALLET: Address = Address([0x77; 20]);
/// Sender of the transfers.
pub const PAYER: Address = Address([0x11; 20]);

/// Parses an amount in tokens.
pub fn amount(text: &str) -> Amount {
    text.parse().unwrap()
}

/// Returns a time in seconds after initiation.
pub fn at(secs: i64) -> Timestamp {
    START.plus_secs(secs)
}

/// Returns a hash whose bytes are all `n`.
pub fn hash(n: u8) -> Hash32 {
    Hash32([n; 32])
}

/// 10.00 USDC on Base, two blocks, fee 1 %, no tolerance, overpayment policy hold.
pub fn terms() -> Terms {
    Terms {
        id: PaymentId::from_ulid(Ulid(42)),
        psp_id: PspId::from_ulid(Ulid(1)),
        purpose: Purpose::PayIn,
        merchant_id: Some(MerchantId::from_ulid(Ulid(2))),
        customer_id: None,
        reference: Some("order 7".to_owned()),
        description: None,
        metadata: None,
        amount: amount("10.00"),
        token: Token::Usdc,
        token_address: USDC,
        chain: Chain::Base,
        chain_choice: ChainChoice::Asked,
        wallet: WALLET,
        link_token: "unguessable".to_owned(),
        fee_bps: FeeBps::DEFAULT,
        tolerance: Tolerance::default(),
        overpayment_tolerance: Tolerance::default(),
        overpayment: OverpaymentPolicy::Hold,
        refund_to_sender: false,
        payer_refunds: PayerRefunds::Off,
        dust_floor: amount("0.001"),
        finality: FinalityPolicy::sandbox(),
        traceparent: None,
        created_at: START,
    }
}

/// The same, but the payer chooses between Base and Polygon, with three blocks on Polygon.
pub fn terms_of_choice() -> Terms {
    let offer = |chain, finality| OfferedChain { chain, token_address: USDC, finality };
    let three = FinalityPolicy::flat(Finality::Blocks(3));
    let offered = vec![offer(Chain::Base, FinalityPolicy::sandbox()), offer(Chain::Polygon, three)];
    Terms { chain_choice: ChainChoice::Payer { offered }, ..terms() }
}

/// A verdict of the provider on a plain account.
pub fn verdict(decision: Decision) -> Verdict {
    Verdict {
        decision,
        by_operator: false,
        risk_level: None,
        score: None,
        flags: Vec::new(),
        provider: "list".to_owned(),
        provider_ref: None,
        list_version: None,
        plain_sender: Some(true),
        checked_at: START,
    }
}

/// A transfer of the payer, as in the watcher's row.
#[derive(Debug, Clone, Copy)]
pub struct Tx(pub ObservedTransfer);

/// Transaction `n`: 10.00 of the due token, 60 s after the start.
pub fn tx(n: u8) -> Tx {
    let key = TransferKey { chain: Chain::Base, block_hash: hash(200), tx_hash: hash(n), log_index: 0 };
    let block = BlockRef { number: 100, time: at(60) };
    Tx(ObservedTransfer {
        key,
        revision: 1,
        block,
        first_block_time: None,
        from: PAYER,
        token_address: USDC,
        token: Some(Token::Usdc),
        amount: amount("10.00"),
        presence: Presence::Present,
    })
}

impl Tx {
    /// Sets the amount.
    pub fn of(mut self, text: &str) -> Self {
        self.0.amount = amount(text);
        self
    }

    /// Moves it into a separate block at this time.
    pub fn at(mut self, secs: i64) -> Self {
        let [low, high, ..] = secs.to_le_bytes();
        let mut block_hash = hash(low);
        block_hash.0[0] = high;
        self.0.key.block_hash = block_hash;
        self.0.block = BlockRef { number: secs.unsigned_abs(), time: at(secs) };
        self
    }

    /// Sets the log index.
    pub fn log(mut self, index: u32) -> Self {
        self.0.key.log_index = index;
        self
    }

    /// Sets the revision of the row.
    pub fn rev(mut self, revision: u32) -> Self {
        self.0.revision = revision;
        self
    }

    /// Sets the sender.
    pub fn from(mut self, from: Address) -> Self {
        self.0.from = from;
        self
    }

    /// Its block was orphaned.
    pub fn gone(mut self) -> Self {
        self.0.presence = Presence::Orphaned;
        self
    }

    /// Makes it a transfer of a worthless token.
    pub fn look_alike(mut self) -> Self {
        (self.0.token_address, self.0.token) = (Address([0xbb; 20]), None);
        self
    }

    /// Moves it to another chain.
    pub fn on(mut self, chain: Chain) -> Self {
        self.0.key.chain = chain;
        self
    }

    /// The watcher has read it.
    pub fn seen(self) -> Command {
        Command::ObserveTransfer(self.0)
    }

    /// Its block is final.
    pub fn finalised(self) -> Command {
        let ObservedTransfer { key, revision, .. } = self.0;
        Command::FinaliseTransfers(vec![TransferFinality { key, revision, reached: Finality::Finalized }])
    }

    /// The provider has decided.
    pub fn screened(self, decision: Decision) -> Command {
        Command::ScreenTransfer { key: self.0.key, verdict: verdict(decision) }
    }

    /// The operator has decided.
    pub fn decided(self, decision: Decision) -> Command {
        let verdict = Verdict { by_operator: true, ..verdict(decision) };
        Command::ScreenTransfer { key: self.0.key, verdict }
    }
}
