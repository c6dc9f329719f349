//! Invariants at the end of every story.

use std::collections::{BTreeMap, BTreeSet};

use payferry_actors::reconcile::{self, Options};
use payferry_domain::payment::{EventName, Payment, RefundState, SettlementState, Status, TransferStatus, Vault};
use payferry_domain::{Account, Address, Amount, Asset, Chain, PostingKind, Token, invariants};
use payferry_entities::{deliveries, delivery_attempts, events, ledger_postings, operations, payments, sendings};
use payferry_journal::psps::PspPolicies;
use sea_orm::{ColumnTrait, EntityTrait, QueryFilter, QueryOrder};
use serde_json::Value;

use super::env::Env;
use super::people::PaymentOrder;
use crate::env::{ChainEnv, Coin};

/// Accounts between which each kind of posting moves money.
const MOVEMENTS: [(PostingKind, &[Account], &[Account]); 14] = {
    use Account as A;
    use PostingKind as K;
    [
        (K::Received, &[A::External], &[A::Payment]),
        (K::Orphaned, &[A::Payment], &[A::External]),
        (K::Dust, &[A::External], &[A::Suspense]),
        (K::DustOrphaned, &[A::Suspense], &[A::External]),
        (K::Settled, &[A::Payment], &[A::Psp]),
        (K::Fee, &[A::Payment], &[A::Treasury]),
        (K::Delivered, &[A::Payment], &[A::External]),
        (K::SettlementReversed, &[A::Psp], &[A::Payment]),
        (K::FeeReversed, &[A::Treasury], &[A::Payment]),
        (K::DeliveryReversed, &[A::External], &[A::Payment]),
        (K::Reserved, &[A::Psp], &[A::InFlight]),
        (K::Sent, &[A::Payment, A::InFlight, A::Psp], &[A::External]),
        (K::Returned, &[A::InFlight], &[A::Psp]),
        (K::SentReversed, &[A::External], &[A::Psp, A::Payment]),
    ]
};

/// Account balances by subject (a payment or empty), chain, token and account.
type Balances = BTreeMap<(String, String, Address, Account), i64>;

/// Returns all violated invariants of a story that has finished.
pub async fn check(env: &Env) -> Vec<String> {
    let mut wrong = Vec::new();
    let reader = env.database.reader();
    let postings =
        ledger_postings::Entity::find().order_by_asc(ledger_postings::Column::Position).all(reader).await.unwrap();
    let rows = payments::Entity::find().all(reader).await.unwrap();
    let payments: Vec<Payment> = rows.iter().map(|row| payferry_journal::payments::payment_of(row).unwrap()).collect();
    let sums = balances_of(&postings, &mut wrong);
    for payment in &payments {
        if let Err(violated) = invariants::check(invariants::INVARIANTS, payment) {
            wrong.push(format!("{}: {violated}", payment.id()));
        }
        accounts_of(payment, &sums, &mut wrong);
        let (subject, found) = (payment.terms.public_id(), wrong.len());
        let own = |asset| [Account::Payment, Account::Suspense].map(|account| stands(&sums, &subject, asset, account));
        let who = format!("the vault of {subject}");
        held_as_booked(env, &who, |_| payment.terms.wallet, |asset| own(asset).iter().sum(), &mut wrong).await;
        wrong.extend((wrong.len() > found).then(|| format!("{payment:#?}")));
        is_explained(env, payment, &mut wrong);
    }
    let booked = |asset, account| stands(&sums, "", asset, account);
    let of_psp = |asset| booked(asset, Account::Psp) + booked(asset, Account::InFlight);
    held_as_booked(env, "the PSP's vault", |_| env.psp_vault(), of_psp, &mut wrong).await;
    let of_treasury = |asset| booked(asset, Account::Treasury);
    held_as_booked(env, "the treasury", |story| story.spec.treasury, of_treasury, &mut wrong).await;
    // Must hold at all times, because postings are made in the commit of their cause; checking only at the end could
    // miss violations.
    env.record_imbalances();
    wrong.extend(env.imbalances.lock().iter().map(|imbalance| format!("the auditor reported: {imbalance}")));
    executed_once(env, &mut wrong).await;
    notified(env, &mut wrong).await;
    let specs: Vec<_> =
        env.chains.values().map(|chain| (chain.spec.clone(), chain.client(env.options.timeout))).collect();
    let options = Options { thorough: true, pause: std::time::Duration::from_millis(50), ..Options::default() };
    let report = reconcile::reconcile(&env.database, &specs, env.clock(), options, |_| {}).await.unwrap();
    if !report.is_clean() {
        wrong.push(format!("reconcile reported {report:#?}"));
    }
    for row in sendings::Entity::find().all(reader).await.unwrap() {
        if row.live && !row.in_review {
            wrong.push(format!("{} is {} without a reason", row.id, row.status));
        }
    }
    wrong
}

fn balances_of(postings: &[ledger_postings::Model], wrong: &mut Vec<String>) -> Balances {
    let mut sums = Balances::new();
    for row in postings {
        let (kind, debit, credit): (PostingKind, Account, Account) =
            (row.kind.parse().unwrap(), row.debit.parse().unwrap(), row.credit.parse().unwrap());
        let (_, from, to) = MOVEMENTS.iter().find(|(known, ..)| *known == kind).expect("every kind is listed");
        if row.amount <= 0 || !from.contains(&debit) || !to.contains(&credit) {
            wrong.push(format!("invalid posting: {row:?}"));
        }
        let asset: (String, Address) = (row.chain.clone(), row.token_address.parse().unwrap());
        for (account, change) in [(debit, -row.amount), (credit, row.amount)] {
            let is_own = matches!(account, Account::Payment | Account::Suspense);
            let of = if is_own { row.subject.clone() } else { String::new() };
            *sums.entry((of, asset.0.clone(), asset.1, account)).or_default() += change;
        }
    }
    if sums.values().sum::<i64>() != 0 {
        wrong.push(format!("debits and credits do not balance: {sums:?}"));
    }
    sums
}

fn stands(sums: &Balances, of: &str, asset: Asset, account: Account) -> i64 {
    sums.get(&(of.to_owned(), asset.chain.as_str().to_owned(), asset.address, account)).copied().unwrap_or(0)
}

/// Checks that the balances of a payment's accounts match its state.
fn accounts_of(payment: &Payment, sums: &Balances, wrong: &mut Vec<String>) {
    let subject = payment.terms.public_id();
    let sent =
        payment.refunds.iter().filter(|refund| refund.state == RefundState::Sent && refund.source == Vault::Payment);
    let own = payment.asset();
    let mut assets: BTreeSet<Asset> = payment.transfers.iter().map(|transfer| payment.asset_of(transfer)).collect();
    assets.insert(own);
    for asset in assets {
        let of = |status| {
            let of = payment.transfers.iter().filter(move |t| t.status == status && payment.asset_of(t) == asset);
            of.map(|transfer| transfer.amount.units()).sum::<i64>()
        };
        let refunded: i64 = sent.clone().filter(|r| r.asset.unwrap_or(own) == asset).map(|r| r.amount.units()).sum();
        let settled = payment.settlement.as_deref().filter(|s| s.state == SettlementState::Settled && asset == own);
        let settled = settled.map_or(0, |settlement| settlement.amount.units());
        let expected = of(TransferStatus::Final) - refunded - settled;
        let found = stands(sums, &subject, asset, Account::Payment);
        if expected != found {
            wrong.push(format!("{subject} should have {expected} on its account but has {found}: {payment:#?}"));
        }
        let (expected, found) = (of(TransferStatus::Ignored), stands(sums, &subject, asset, Account::Suspense));
        if expected != found {
            wrong.push(format!("{subject} should have {expected} in suspense but has {found}"));
        }
    }
}

/// Checks on every chain and in every coin that the balance of an account matches the ledger.
async fn held_as_booked(
    env: &Env,
    who: &str,
    address: impl Fn(&ChainEnv) -> Address,
    booked: impl Fn(Asset) -> i64,
    wrong: &mut Vec<String>,
) {
    for (chain, story) in &env.chains {
        for coin in Coin::ALL {
            let booked = booked(Asset { chain: *chain, address: story.coin(coin) });
            let held = story.balance(coin, address(story)).await;
            if held != booked {
                wrong.push(format!("{who} holds {held} {} on {chain}, booked {booked}", coin.as_str()));
            }
        }
    }
}

/// Checks that the contract executed every completed operation once, and no other.
async fn executed_once(env: &Env, wrong: &mut Vec<String>) {
    let rows = operations::Entity::find().order_by_asc(operations::Column::Id).all(env.database.reader()).await;
    let rows = rows.unwrap();
    for (chain, story) in &env.chains {
        let of_chain = rows.iter().filter(|row| row.chain == chain.as_str());
        let done = of_chain.clone().filter(|row| row.status.is_done());
        let mut expected: Vec<String> = done.map(|row| row.id.clone()).collect();
        expected.sort_unstable();
        let executed = story.executed().await;
        if executed != expected {
            let rows: Vec<_> = of_chain.collect();
            wrong.push(format!("operations {executed:?} were executed on {chain}, not {expected:?}: {rows:#?}"));
        }
    }
}

/// Checks that every event was delivered, in a gapless sequence, with the same body each time.
async fn notified(env: &Env, wrong: &mut Vec<String>) {
    let reader = env.database.reader();
    let in_order = events::Entity::find().order_by_asc(events::Column::Position).all(reader).await.unwrap();
    let mut last: BTreeMap<&str, i64> = BTreeMap::new();
    for event in &in_order {
        let last = last.entry(&event.payment_id).or_default();
        *last += 1;
        if event.sequence != *last {
            wrong.push(format!("{} of {} is number {}, not {last}", event.name, event.payment_id, event.sequence));
        }
    }
    let mut received: BTreeMap<String, Vec<Value>> = BTreeMap::new();
    for delivery in env.receiver.deliveries() {
        received.entry(delivery.webhook_id.clone()).or_default().push(delivery.json());
    }
    let rows = deliveries::Entity::find().all(reader).await.unwrap();
    for event in &in_order {
        let rows: Vec<_> = rows.iter().filter(|row| row.event_id == event.id).collect();
        let payload: Value = serde_json::from_str(&event.payload).unwrap();
        let bodies = received.remove(&event.id).unwrap_or_default();
        for missing in unsaid(event, &payload) {
            wrong.push(format!("{} {} has no {missing}: {payload:#}", event.name, event.id));
        }
        if !is_wanted(env, event, &in_order) {
            if !rows.is_empty() || !bodies.is_empty() {
                wrong.push(format!("{} {} was sent although the PSP does not want it: {rows:?}", event.name, event.id));
            }
            continue;
        }
        let is_delivered = rows.len() == 1 && rows[0].status.as_str() == "delivered" && !bodies.is_empty();
        if !is_delivered || bodies.iter().any(|body| *body != payload) {
            wrong.push(format!("{} {} was delivered as {rows:?} and received as {bodies:?}", event.name, event.id));
        }
    }
    in_order_of_sequence(env, wrong);
    if !received.is_empty() || !env.receiver.unverified().is_empty() {
        wrong.push(format!("unknown events were received: {received:?}, {:?}", env.receiver.unverified()));
    }
}

/// Fields that the interface promises for an event and its body lacks.
fn unsaid(event: &events::Model, body: &Value) -> Vec<&'static str> {
    let text = |field: &str| body[field].as_str().filter(|text| !text.is_empty());
    let is_amount = |field: &str| text(field).is_some_and(|text| text.parse::<Amount>().is_ok());
    let (family, what) = event.name.split_once('.').expect("a family and an action");
    let is_of_payment = !matches!(family, "payout" | "withdraw");
    let has_reason = text("failure_reason").is_some() && text("failure").is_some();
    let promised = [
        ("event", text("event") == Some(event.name.as_str())),
        ("payment_id", text("payment_id") == Some(event.payment_id.as_str())),
        ("timestamp", text("timestamp").is_some()),
        ("event_id", text("event_id") == Some(event.id.as_str())),
        ("id", text("id") == Some(event.id.as_str())),
        ("sequence", body["sequence"].as_i64() == Some(event.sequence)),
        ("status", text("status").is_some()),
        ("token", text("token").is_some()),
        ("chain", text("chain").is_some()),
        ("amount", is_amount("amount")),
        ("amount_received", !is_of_payment || is_amount("amount_received")),
        ("tx_hash", !matches!(what, "confirmed" | "settled" | "sent") || text("tx_hash").is_some()),
        ("psp_amount", !matches!(family, "payment" | "payin") || what != "settled" || is_amount("psp_amount")),
        ("treasury_fee", !matches!(family, "payment" | "payin") || what != "settled" || is_amount("treasury_fee")),
        ("refund_id", family != "refund" || text("refund_id").is_some()),
        (
            "failure_reason",
            match (family, what) {
                ("payment" | "payin" | "payout" | "withdraw" | "transfer", "failed") => has_reason,
                _ => true,
            },
        ),
    ];
    promised.into_iter().filter(|(_, is_said)| !is_said).map(|(field, _)| field).collect()
}

/// Returns `true` if the PSP wants an event: all events, unless its policy excludes one of two names of the same
/// change.
fn is_wanted(env: &Env, event: &events::Model, all: &[events::Model]) -> bool {
    let together =
        |other: &&events::Model| (&other.payment_id, other.created_at) == (&event.payment_id, event.created_at);
    let is_told = |name: EventName| all.iter().filter(together).any(|other| other.name == name.as_str());
    env.options.policies.event_families.send(event.name.parse().unwrap(), is_told)
}

/// Checks that first attempts at the events of one subject arrived in order.
fn in_order_of_sequence(env: &Env, wrong: &mut Vec<String>) {
    let mut last: BTreeMap<String, i64> = BTreeMap::new();
    let mut seen = BTreeSet::new();
    for delivery in env.receiver.deliveries() {
        let body = delivery.json();
        let (of, sequence) = (body["payment_id"].as_str().unwrap().to_owned(), body["sequence"].as_i64().unwrap());
        if seen.insert(delivery.webhook_id) {
            let last = last.entry(of.clone()).or_default();
            if sequence < *last {
                wrong.push(format!("event {sequence} of {of} arrived after event {last}"));
            }
            *last = sequence;
        }
    }
}

/// Checks that an unfinished payment has a reason.
fn is_explained(env: &Env, payment: &Payment, wrong: &mut Vec<String>) {
    let id = payment.id();
    let waits = payment.awaits_deadline() && payment.deadline() > env.clock().now();
    let is_quarantined = env.system().is_quarantined(id);
    if payment.is_live() && !waits && payment.attention().is_none() && !is_quarantined {
        wrong.push(format!("{id} is live without a reason: {payment:#?}"));
    }
    let refunding = payment.refunds.iter().any(payferry_domain::payment::Refund::is_cleared);
    if refunding {
        wrong.push(format!("{id} has a refund in progress at the end: {payment:#?}"));
    }
}

/// The invariants can fail: an unexpected unit or a missing event is detected.
#[tokio::test(flavor = "multi_thread")]
async fn unbooked_money_and_missing_events_are_detected() {
    let env = Env::new(&[Chain::Base], &PspPolicies::default()).await;
    let (amount, token, chain) = (Amount::from_tokens(10), Token::Usdc, Some(Chain::Base));
    let payment = env.initiate(PaymentOrder { amount, token, chain, expires_in_secs: 600, payee: None }).await.unwrap();
    let base = &env.chains[&Chain::Base];
    base.transfer("payer", Coin::Usdc, payment.terms.wallet, amount).await;
    let settled = async || match env.load(payment.id()).await.status {
        Status::Settled => Ok(()),
        other => Err(other.to_string()),
    };
    env.wait(true, settled).await.unwrap();
    env.rest().await.unwrap();
    assert_eq!(check(&env).await, Vec::<String>::new());

    base.transfer("payer", Coin::Usdc, env.psp_vault(), Amount(1)).await;
    base.transfer("payer", Coin::Usdt, base.spec.treasury, Amount(1)).await;
    env.mine(1).await;
    let writer = env.system().database().writer();
    let notified = events::Column::Name.eq("payin.confirmed");
    events::Entity::delete_many().filter(notified).exec(writer).await.unwrap();
    let missing = events::Entity::find().filter(events::Column::Name.eq("payin.settled"));
    let missing = missing.one(env.database.reader()).await.unwrap().unwrap();
    let of_it = deliveries::Entity::find().filter(deliveries::Column::EventId.eq(&missing.id));
    let of_it = of_it.one(env.database.reader()).await.unwrap().unwrap();
    let attempts = delivery_attempts::Column::DeliveryId.eq(&of_it.id);
    delivery_attempts::Entity::delete_many().filter(attempts).exec(writer).await.unwrap();
    deliveries::Entity::delete_by_id(of_it.id).exec(writer).await.unwrap();
    env.receiver.forget(&missing.id);
    let wrong = check(&env).await.join("\n");
    let undelivered = format!("payin.settled {} was delivered as [] and received as []", missing.id);
    for expected in [
        "the PSP's vault holds 9900001 usdc",
        "the treasury holds 1 usdt",
        "payment.settled of",
        "unknown events were",
        &undelivered,
    ] {
        assert!(wrong.contains(expected), "{expected} is not in:\n{wrong}");
    }
}
