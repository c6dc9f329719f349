//! Steps of the ledger check on manually written ledgers.
#![allow(clippy::unwrap_used)]

use payferry_domain::ledger::{Account, Asset};
use payferry_domain::outbound::{Order, OutboundId, OutboundStatus, OutboundTransfer, accept};
use payferry_domain::{Address, Amount, Chain, FinalityPolicy, MerchantId, PspId, Timestamp, Token, WithdrawalId};
use payferry_entities::{Database, balances, ledger_postings, sendings};
use payferry_harness::database::TestDatabase;
use payferry_migration::migrate;
use sea_orm::{ActiveModelTrait, ConnectionTrait, EntityTrait, IntoActiveModel};

use super::check_progress::CheckProgress;
use super::sums::STEP;
use super::{Findings, ImbalanceKind};

const USDC: Address = Address([0xaa; 20]);
/// Rows per INSERT.
const ROWS: i64 = 500;

struct Env {
    database: Database,
    _test_database: TestDatabase,
    psp: PspId,
    findings: Findings,
    check_progress: CheckProgress,
}

impl Env {
    async fn new() -> Self {
        let test_database = TestDatabase::create().await;
        let database = Database::open(test_database.url()).await.unwrap();
        migrate(&database.long_timeout()).await.unwrap();
        let psp = PspId::generate();
        test_database.add_psp(&psp.to_string(), &MerchantId::generate().to_string()).await;
        let (findings, check_progress) = (Findings::default(), CheckProgress::default());
        Self { database, _test_database: test_database, psp, findings, check_progress }
    }

    fn posting(&self, position: i64, kind: &str, debit: &str, credit: &str, amount: i64) -> ledger_postings::Model {
        ledger_postings::Model {
            position,
            // A subject without a state, so that only the sums are checked.
            subject: format!("x_{position}"),
            version: 1,
            line: 0,
            psp_id: self.psp.to_string(),
            kind: kind.to_owned(),
            debit: debit.to_owned(),
            credit: credit.to_owned(),
            chain: "base".to_owned(),
            token_address: USDC.to_string(),
            amount,
            reference: "0xhash".to_owned(),
            at: 0,
        }
    }

    async fn post(&self, rows: Vec<ledger_postings::Model>) {
        let rows: Vec<_> = rows.into_iter().map(IntoActiveModel::into_active_model).collect();
        ledger_postings::Entity::insert_many(rows).exec_without_returning(self.database.writer()).await.unwrap();
    }

    /// Creates a withdrawal of this amount in status sent, at version 3; returns its id.
    async fn sent_withdrawal(&self, amount: i64) -> String {
        let id = OutboundId::Withdrawal(WithdrawalId::generate());
        let order = Order {
            id,
            psp_id: self.psp,
            customer_id: None,
            reference: None,
            metadata: None,
            amount: Amount(amount),
            token: Token::Usdc,
            asset: Asset { chain: Chain::Base, address: USDC },
            to: Address([0x33; 20]),
            finality: FinalityPolicy::sandbox(),
            traceparent: None,
            created_at: Timestamp(0),
        };
        let outbound = OutboundTransfer { status: OutboundStatus::Sent, version: 3, ..accept(order).unwrap().outbound };
        let row = sendings::Model {
            id: id.to_string(),
            psp_id: self.psp.to_string(),
            kind: "withdrawal".to_owned(),
            customer_id: None,
            reference: None,
            chain: "base".to_owned(),
            token: "USDC".to_owned(),
            amount,
            recipient: outbound.order.to.to_string(),
            version: 3,
            status: "sent".to_owned(),
            live: false,
            in_review: false,
            created_at: 0,
            updated_at: 0,
            state: serde_json::to_string(&outbound).unwrap(),
        };
        row.into_active_model().insert(self.database.writer()).await.unwrap();
        id.to_string()
    }

    async fn balance(&self, available: i64, reserved: i64) {
        self.database.writer().execute_unprepared("DELETE FROM balances").await.unwrap();
        let row = balances::Model {
            psp_id: self.psp.to_string(),
            chain: "base".to_owned(),
            token_address: USDC.to_string(),
            available,
            reserved,
            updated_at: 0,
        };
        row.into_active_model().insert(self.database.writer()).await.unwrap();
    }

    /// Runs steps until the end is reached. Returns the number of steps, and the imbalances of the PSP's accounts:
    /// kind, account, and difference.
    async fn looks(&mut self) -> (usize, Vec<(ImbalanceKind, Account, u64)>) {
        let mut times = 1;
        while !self.check_progress.once_more(&self.database, &self.findings, Timestamp(1)).await.unwrap() {
            times += 1;
        }
        let imbalances = self.findings.view().imbalances.into_iter();
        let of_accounts = imbalances.filter(|one| one.subject.is_none());
        (times, of_accounts.map(|one| (one.kind, one.account, one.units())).collect())
    }
}

#[tokio::test]
async fn a_long_ledger_is_read_in_steps_and_judged_at_its_end() {
    let mut env = Env::new().await;
    let count = STEP * 2 + 10;
    for first in (1..=count).step_by(usize::try_from(ROWS).unwrap()) {
        let rows = first..(first + ROWS).min(count + 1);
        env.post(rows.map(|position| env.posting(position, "settled", "payment", "psp", 3)).collect()).await;
    }
    env.balance(count * 3, 0).await;
    assert_eq!(env.looks().await, (3, vec![]));
    assert_eq!(env.findings.view().position, count);
    env.balance(count * 3 + 1, 0).await;
    assert_eq!(env.looks().await, (1, vec![(ImbalanceKind::Balance, Account::Psp, 1)]));
    env.balance(count * 3, 2).await;
    assert_eq!(env.looks().await, (1, vec![(ImbalanceKind::Balance, Account::InFlight, 2)]));
    env.database.writer().execute_unprepared("DELETE FROM balances").await.unwrap();
    let missing = u64::try_from(count * 3).unwrap();
    assert_eq!(env.looks().await, (1, vec![(ImbalanceKind::Balance, Account::Psp, missing)]), "a deleted row");
    env.balance(count * 3, 0).await;
    assert_eq!(env.looks().await, (1, vec![]));
}

#[tokio::test]
async fn a_posting_that_becomes_visible_late_is_no_imbalance() {
    let mut env = Env::new().await;
    env.post(vec![env.posting(1, "settled", "payment", "psp", 10), env.posting(3, "settled", "payment", "psp", 5)])
        .await;
    env.balance(15, 0).await;
    assert_eq!(env.looks().await, (1, vec![]));
    // Written before the third posting, but committed after it.
    env.post(vec![env.posting(2, "settled", "payment", "psp", 7)]).await;
    env.balance(22, 0).await;
    assert_eq!(env.looks().await, (1, vec![]));
    env.post(vec![env.posting(4, "settled", "payment", "psp", 1)]).await;
    env.balance(23, 0).await;
    assert_eq!(env.looks().await, (1, vec![]), "no posting is counted twice");
}

#[tokio::test]
async fn a_negative_account_is_reported_unless_a_reorg_explains_it() {
    let mut env = Env::new().await;
    env.post(vec![env.posting(1, "settled", "payment", "psp", 10), env.posting(2, "reserved", "psp", "in_flight", 10)])
        .await;
    // The settlement was orphaned while its funds were reserved.
    env.post(vec![env.posting(3, "settlement_reversed", "psp", "payment", 10)]).await;
    env.balance(-10, 10).await;
    assert_eq!(env.looks().await, (1, vec![]));
    // More was reserved than ever existed, and more was sent than was reserved.
    env.post(vec![env.posting(4, "reserved", "psp", "in_flight", 4)]).await;
    env.post(vec![env.posting(5, "sent", "in_flight", "external", 16)]).await;
    env.balance(-14, -2).await;
    let wrong = vec![(ImbalanceKind::Negative, Account::Psp, 4), (ImbalanceKind::Negative, Account::InFlight, 2)];
    assert_eq!(env.looks().await, (1, wrong));
    env.post(vec![env.posting(6, "settled", "payment", "psp", 4), env.posting(7, "reserved", "psp", "in_flight", 2)])
        .await;
    env.post(vec![env.posting(8, "settled", "payment", "psp", 2)]).await;
    env.balance(-10, 0).await;
    assert_eq!(env.looks().await, (1, vec![]));
}

#[tokio::test]
async fn a_withdrawal_that_was_posted_twice_is_reported() {
    let mut env = Env::new().await;
    let id = env.sent_withdrawal(40).await;
    let about = |version: i64, posting: ledger_postings::Model| ledger_postings::Model {
        subject: id.clone(),
        version,
        ..posting
    };
    env.post(vec![
        env.posting(1, "settled", "payment", "psp", 100),
        about(1, env.posting(2, "reserved", "psp", "in_flight", 40)),
        about(3, env.posting(3, "sent", "in_flight", "external", 40)),
    ])
    .await;
    env.balance(60, 0).await;
    assert_eq!(env.looks().await, (1, vec![]));
    let about_it = |env: &Env| {
        let found = env.findings.view().imbalances.into_iter();
        found.filter(|one| one.subject.as_ref() == Some(&id)).collect::<Vec<_>>()
    };
    assert_eq!(about_it(&env), [], "the postings match the state");
    env.post(vec![about(4, env.posting(4, "sent", "in_flight", "external", 40))]).await;
    env.balance(60, -40).await;
    assert_eq!(env.looks().await, (1, vec![(ImbalanceKind::Negative, Account::InFlight, 40)]));
    let found = about_it(&env);
    assert!(found.iter().any(|one| one.account == Account::InFlight && one.units() == 40), "{found:#?}");
    assert!(found.iter().all(|one| one.kind == ImbalanceKind::State), "{found:#?}");
}
