//! Owners of wallets are found while their payments end and become live again.
#![allow(clippy::unwrap_used)]

use std::collections::HashSet;
use std::time::{Duration, Instant};

use payferry_domain::payment::{
    BlockRef, ChainChoice, Command, EventName, ObservedTransfer, OverpaymentPolicy, Payment, Presence, Purpose, Terms,
    TransferKey, initiate, transition,
};
use payferry_domain::{Amount, Chain, FeeBps, FinalityPolicy, Hash32, MerchantId, PspId, Timestamp, Token, Tolerance};
use payferry_entities::{Database, merchants, psps};
use payferry_harness::database::TestDatabase;
use payferry_journal::payments::{RequestRows, initiation_write, transition_write};
use payferry_journal::{Journal, JournalWrite};
use payferry_migration::{Migrator, MigratorTrait};
use sea_orm::{ActiveModelTrait, DbBackend, IntoActiveModel};
use tokio_util::sync::CancellationToken;

use super::*;

const START: Timestamp = Timestamp(1_800_000_000_000);
const USDC: Address = Address([0xaa; 20]);

/// A database with a PSP and its merchant.
struct Env {
    database: Database,
    journal: Journal,
    psp_id: PspId,
    merchant_id: MerchantId,
    _test_database: TestDatabase,
}

impl Env {
    async fn new() -> Self {
        let test_database = TestDatabase::create().await;
        let database = Database::open(test_database.url()).await.unwrap();
        Migrator::up(database.long_timeout(), None).await.unwrap();
        Self::over(test_database, database).await
    }

    /// Creates a PSP and its merchant in a migrated database.
    async fn over(test_database: TestDatabase, database: Database) -> Self {
        let (psp_id, merchant_id) = (PspId::generate(), MerchantId::generate());
        let psp = psps::Model {
            id: psp_id.to_string(),
            name: "PSP".to_owned(),
            settings: "{}".to_owned(),
            created_at: 0,
            updated_at: 0,
        };
        psp.into_active_model().insert(database.writer()).await.unwrap();
        let merchant = merchants::Model {
            id: merchant_id.to_string(),
            psp_id: psp_id.to_string(),
            external_id: "m".to_owned(),
            name: "Merchant".to_owned(),
            email: "m@example.com".to_owned(),
            business_id: "b".to_owned(),
            created_at: 0,
            updated_at: 0,
        };
        merchant.into_active_model().insert(database.writer()).await.unwrap();
        let (journal, task) = Journal::start(database.clone());
        tokio::spawn(task.run());
        Self { database, journal, psp_id, merchant_id, _test_database: test_database }
    }

    fn terms(&self, id: PaymentId) -> Terms {
        let mut wallet = [0; 20];
        wallet[..16].copy_from_slice(&id.to_bytes());
        Terms {
            id,
            psp_id: self.psp_id,
            purpose: Purpose::PayIn,
            merchant_id: Some(self.merchant_id),
            customer_id: None,
            reference: None,
            metadata: serde_json::from_str("{}").unwrap(),
            amount: Amount::from_tokens(10),
            token: Token::Usdc,
            token_address: USDC,
            chain: Chain::Base,
            chain_choice: ChainChoice::Asked,
            wallet: Address(wallet),
            link_token: format!("link-{id}"),
            fee_bps: FeeBps::DEFAULT,
            tolerance: Tolerance::default(),
            overpayment: OverpaymentPolicy::Hold,
            refund_to_sender: false,
            dust_floor: Amount::ZERO,
            finality: FinalityPolicy::sandbox(),
            created_at: START,
        }
    }

    /// Runs `command` and commits it; returns the payment afterwards.
    async fn notified(&self, payment: &Payment, command: &Command) -> Payment {
        let moved = transition(payment, command, START.plus_secs(90)).unwrap().expect("something follows");
        let wants = |name: EventName| name.as_str().starts_with("payment.");
        let beside = RequestRows::default();
        let write =
            transition_write(payment, &moved, command, beside, Timestamp(1_700_000_000_000), Amount::MAX, wants)
                .unwrap();
        self.journal.submit(write).await.unwrap();
        moved.payment
    }
}

fn observed(revision: u32) -> ObservedTransfer {
    ObservedTransfer {
        key: TransferKey { chain: Chain::Base, tx_hash: Hash32([7; 32]), log_index: 3 },
        revision,
        block: BlockRef { number: 100, hash: Hash32([9; 32]), time: START.plus_secs(60) },
        first_block_time: None,
        from: Address([5; 20]),
        token_address: USDC,
        token: Some(Token::Usdc),
        amount: Amount::from_tokens(10),
        presence: Presence::Present,
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn finds_a_wallet_while_its_payment_ends_and_becomes_live() {
    let env = Env::new().await;
    if env.database.backend() != DbBackend::Sqlite {
        return;
    }
    let (watchlist, stop) = (Watchlist::new(), CancellationToken::new());
    watchlist.set_whole();
    let made = initiate(env.terms(PaymentId::generate()), START.plus_secs(1_200));
    let (wallet, id) = (made.payment.terms.wallet, made.payment.id());
    watchlist.watch(wallet, id);
    env.journal.submit(JournalWrite::Initiation(Box::new(initiation_write(&made, None).unwrap()))).await.unwrap();
    let looking: Vec<_> = (0..3)
        .map(|_| {
            let (database, watchlist, stop) = (env.database.clone(), watchlist.clone(), stop.clone());
            tokio::spawn(async move {
                let mut looks = 0;
                while !stop.is_cancelled() {
                    let owners = owners(&database, &watchlist, vec![wallet]).await.unwrap();
                    assert_eq!(owners.get(&wallet), Some(&id), "after {looks} looks");
                    looks += 1;
                    // A watched wallet is found without waiting.
                    tokio::task::yield_now().await;
                }
                looks
            })
        })
        .collect();
    // Alternates between ended and live again, through late transfers that are reorged; watched as `Router` does it.
    let mut payment = env.notified(&made.payment, &Command::Cancel).await;
    for round in 0..80 {
        assert!(!payment.is_live());
        watchlist.retire(wallet);
        watchlist.unwatch(&watchlist.retired(Instant::now(), 1), &HashSet::new());
        if round % 2 == 0 {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
        watchlist.watch(wallet, id);
        payment = env.notified(&payment, &Command::ObserveTransfer(observed(2 * round + 1))).await;
        assert!(payment.is_live());
        let orphaned = ObservedTransfer { presence: Presence::Orphaned, ..observed(2 * round + 2) };
        payment = env.notified(&payment, &Command::ObserveTransfer(orphaned)).await;
    }
    stop.cancel();
    for looks in looking {
        assert!(looks.await.unwrap() > 0);
    }
}
