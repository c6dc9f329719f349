//! Tests of the combined providers: the oracle on a real chain, and the screening actor with failing providers.
#![allow(clippy::unwrap_used)]

mod chainalysis;

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use alloy::primitives::{Bytes, bytes};
use parking_lot::Mutex;
use payferry_devchain::{ChainConfig, Devchain, Faults, GenesisAccount};
use payferry_domain::outbound::{self, OutboundId};
use payferry_domain::payment::{Command, Decision, TransferKey, Verdict};
use payferry_domain::{Address, Amount, Chain, Hash32, PaymentId, Timestamp};
use payferry_evm::ChainClient;
use payferry_evm::wallet::alloy_address;
use payferry_runtime::clock::Clock;
use payferry_runtime::observe::{ActorRegistry, Mailbox, ROOT_NAME};
use payferry_runtime::supervise::{Root, RootMessage};

use super::verdict::bare;
use super::{
    AllowAll, ChainalysisOracle, KytError, KytScreener, KytSubject, ListScreener, ScreenRequest, Screening,
    ScreeningConfig, Strictest,
};
use crate::inbox::PaymentInbox;

const PATIENCE: Duration = Duration::from_mins(1);
const PAUSE: Duration = Duration::from_millis(20);
const OUTLAW: Address = Address([0xbb; 20]);
const HONEST: Address = Address([0xcc; 20]);
const ORACLE: Address = Address([0x0a; 20]);

/// A transfer from this sender, on Base.
pub(super) fn request_from(address: Address) -> ScreenRequest {
    ScreenRequest { address, ..request() }
}

/// Any transfer.
pub(super) fn request() -> ScreenRequest {
    ScreenRequest {
        subject: KytSubject::Transfer {
            payment_id: PaymentId::generate(),
            key: TransferKey {
                chain: Chain::Base,
                block_hash: Hash32([2; 32]),
                tx_hash: Hash32([1; 32]),
                log_index: 0,
            },
        },
        chain: Chain::Base,
        address: HONEST,
        amount: Amount::from_units(1_000_000),
        wants_sender_kind: false,
    }
}

/// Provider with this name, which answers by a function.
pub(super) struct Stub<F>(pub &'static str, pub F);

#[async_trait::async_trait]
impl<F, A> KytScreener for Stub<F>
where
    F: Fn() -> A + Send + Sync + 'static,
    A: Future<Output = Result<Verdict, KytError>> + Send + 'static,
{
    fn name(&self) -> &str {
        self.0
    }

    async fn screen(&self, _: &ScreenRequest) -> Result<Verdict, KytError> {
        (self.1)().await
    }
}

/// Verdict of a stub.
pub(super) fn says(provider: &str, decision: Decision) -> Verdict {
    bare(provider, decision, Timestamp(7))
}

/// Waits until the condition holds.
pub(super) async fn until(what: &str, mut holds: impl AsyncFnMut() -> bool) {
    let deadline = Instant::now() + PATIENCE;
    while !holds().await {
        assert!(Instant::now() < deadline, "not in time: {what}");
        tokio::time::sleep(PAUSE).await;
    }
}

/// Answers `isSanctioned` with whether the account is 0xbbbb..., and any other call with empty data.
const LISTS_THE_OUTLAW: Bytes = bytes!(
    "60003560e01c63df592f7d14601057005b" // another selector: stop
    "60043573bbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbb14" // account == outlaw
    "60005260206000f3" // as a word
);
/// Answers any call with the word 2.
const ANSWERS_TWO: Bytes = bytes!("600260005260206000f3");
/// Answers any call with `true`, twice.
const ANSWERS_TWICE: Bytes = bytes!("6001600052600160205260406000f3");
/// Reverts.
const REVERTS: Bytes = bytes!("60006000fd");

/// A chain with this code at the oracle's address.
async fn chain_with(code: Bytes) -> Devchain {
    let oracle = GenesisAccount { address: alloy_address(ORACLE), code, ..GenesisAccount::default() };
    Devchain::open(ChainConfig { genesis: vec![oracle], ..ChainConfig::default() }).await.unwrap()
}

fn oracle_on(chain: &Devchain) -> ChainalysisOracle {
    let client = ChainClient::new(chain.transport()).with_timeout(Duration::from_secs(30));
    ChainalysisOracle::new(Clock::default()).on(Chain::Base, client, ORACLE)
}

#[tokio::test(flavor = "multi_thread")]
async fn oracle_is_asked_on_the_chain_of_the_transfer() {
    let (lists, empty) = (chain_with(LISTS_THE_OUTLAW).await, chain_with(Bytes::new()).await);
    let client = ChainClient::new(empty.transport());
    let oracle = oracle_on(&lists).on(Chain::Polygon, client, ORACLE);
    let blocked = oracle.screen(&request_from(OUTLAW)).await.unwrap();
    assert_eq!((blocked.decision, blocked.provider.as_str()), (Decision::Block, "chainalysis_oracle"));
    assert_eq!(blocked.flags, ["sanctions"]);
    assert_eq!(oracle.screen(&request_from(HONEST)).await.unwrap().decision, Decision::Allow);
    oracle.check(Chain::Base).await.unwrap();

    let on = |chain| {
        let request = request_from(OUTLAW);
        ScreenRequest { chain, ..request }
    };
    let error = oracle.screen(&on(Chain::Polygon)).await.unwrap_err().to_string();
    assert!(error.contains("polygon") && error.contains("no such contract"), "{error}");
    let error = oracle.check(Chain::Arbitrum).await.unwrap_err().to_string();
    assert!(error.contains("arbitrum") && error.contains("not configured"), "{error}");
}

#[tokio::test(flavor = "multi_thread")]
async fn invalid_oracle_answers_allow_nothing() {
    for code in [ANSWERS_TWO, ANSWERS_TWICE, REVERTS] {
        let chain = chain_with(code.clone()).await;
        let error = oracle_on(&chain).screen(&request_from(HONEST)).await.unwrap_err().to_string();
        assert!(error.starts_with("the sanctions oracle on base: "), "{code}: {error}");
    }
}

#[test]
fn oracle_addresses_match_chainalysis() {
    let text = |chain| ChainalysisOracle::default_address(chain).to_string();
    assert_eq!(text(Chain::Base), "0x3a91a31cb3dc49b4db9ce721f50a9d076c8d739b");
    assert_eq!(text(Chain::Polygon), "0x40c57923924b5c5c5455c48d93317139addac8fb");
    assert_eq!(text(Chain::Arbitrum), text(Chain::Polygon));
}

#[tokio::test]
async fn allow_all_verdicts_name_their_provider() {
    let verdict = AllowAll::new(Clock::default()).screen(&request_from(OUTLAW)).await.unwrap();
    assert_eq!((verdict.decision, verdict.provider.as_str()), (Decision::Allow, "allow_everything_unscreened"));
    assert_eq!((verdict.risk_level, verdict.score), (None, None));
}

/// Records the verdicts it receives.
#[derive(Default)]
struct Inbox(Mutex<Vec<Verdict>>);

impl PaymentInbox for Inbox {
    fn notify(&self, _: PaymentId, command: Command) {
        if let Command::ScreenTransfer { verdict, .. } = command {
            self.0.lock().push(verdict);
        }
    }

    fn notify_outbound(&self, _: OutboundId, command: outbound::Command) {
        if let outbound::Command::Screen(verdict) = command {
            self.0.lock().push(verdict);
        }
    }

    fn chain_progressed(&self, _: Chain, _: Timestamp) {}

    fn chain_stalled(&self, _: Chain, _: u64, _: Timestamp, _: Timestamp) {}
}

impl Inbox {
    fn notified(&self) -> Vec<(Decision, String)> {
        self.0.lock().iter().map(|verdict| (verdict.decision, verdict.provider.clone())).collect()
    }
}

async fn screening(screener: impl KytScreener, inbox: &Arc<Inbox>) -> (Screening, Mailbox<RootMessage>) {
    let registry = ActorRegistry::default();
    let root = Root { registry: registry.clone() };
    let roof = registry.spawn(ROOT_NAME, root, (), None).await.unwrap();
    let config = ScreeningConfig { retry_min: PAUSE, retry_max: PAUSE, review_interval: PAUSE, ..Default::default() };
    let (screener, inbox) = (Arc::new(screener), Arc::clone(inbox));
    (Screening::start(roof.get_cell(), config, screener, inbox, Clock::default(), &registry).await.unwrap(), roof)
}

#[tokio::test(flavor = "multi_thread")]
async fn money_is_held_until_the_oracle_answers() {
    let chain = chain_with(LISTS_THE_OUTLAW).await;
    chain.set_faults(Faults { unavailable_rate: 1.0, ..Faults::default() });
    let list = ListScreener::new("list", "1", [], Clock::default());
    let both = Strictest::new(Arc::new(list), vec![Arc::new(oracle_on(&chain))]);
    let inbox = Arc::<Inbox>::default();
    let (screening, roof) = screening(both, &inbox).await;
    screening.screen(request_from(OUTLAW), None);
    let held = (Decision::Review, "list+chainalysis_oracle".to_owned());
    until("the payment is notified that it waits", async || inbox.notified() == [held.clone()]).await;
    assert_eq!(inbox.0.lock()[0].flags, ["provider_unavailable"]);
    chain.set_faults(Faults::default());
    let blocked = (Decision::Block, "chainalysis_oracle".to_owned());
    until("the payment receives the verdict", async || inbox.notified() == [held.clone(), blocked.clone()]).await;
    roof.stop(None);
}

#[tokio::test(flavor = "multi_thread")]
async fn money_in_review_is_screened_again_by_all_providers() {
    let lists = chain_with(LISTS_THE_OUTLAW).await;
    let asked = AtomicU32::new(0);
    let review_then_allow = Stub("hesitant", move || {
        let is_first = asked.fetch_add(1, Ordering::Relaxed) == 0;
        std::future::ready(Ok(says("hesitant", if is_first { Decision::Review } else { Decision::Allow })))
    });
    let both = Strictest::new(Arc::new(oracle_on(&lists)), vec![Arc::new(review_then_allow)]);
    let inbox = Arc::<Inbox>::default();
    let (screening, roof) = screening(both, &inbox).await;
    let request = request();
    screening.screen(request.clone(), None);
    until("the review is reported", async || inbox.notified() == [(Decision::Review, "hesitant".to_owned())]).await;
    screening.screen(request, Some(Timestamp(i64::MAX)));
    until("the second screening is reported", async || inbox.notified().len() == 2).await;
    assert_eq!(inbox.notified()[1], (Decision::Allow, "chainalysis_oracle".to_owned()));
    roof.stop(None);
}
