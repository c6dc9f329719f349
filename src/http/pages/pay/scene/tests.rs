//! Scenarios of one payment, run through the domain, and the resulting content of the page.
#![allow(clippy::unwrap_used)]

use payferry_domain::payment::fixtures::{self, EXPIRY_SECS, START, Tx, amount, terms, verdict};
use payferry_domain::payment::{Command, Purpose, RefundOrder, Requester, Terms, initiate, transition};
use payferry_domain::{Address, Chain, FeeBps, Hash32, OperationId, RefundId, Token, Tolerance};

use super::super::texts::Language;
use super::*;

fn tx(number: u8, text: &str, secs: i64) -> Tx {
    fixtures::tx(number).of(text).at(secs)
}

/// A transfer of the due amount on another chain.
fn elsewhere(number: u8) -> Tx {
    let mut elsewhere = tx(number, "10", 60);
    (elsewhere.0.key.chain, elsewhere.0.token_address) = (Chain::Polygon, Address([0xcc; 20]));
    elsewhere
}

/// Commands for a transfer that is seen, final and allowed.
fn whole(tx: Tx) -> [Command; 3] {
    [tx.seen(), tx.finalised(), tx.screened(Decision::Allow)]
}

/// The payment after these commands.
fn after(terms: Terms, commands: impl IntoIterator<Item = Command>) -> Payment {
    let fresh = initiate(terms, START.plus_secs(EXPIRY_SECS)).unwrap().payment;
    commands.into_iter().fold(fresh, |payment, command| then(&payment, &command))
}

/// The payment after one more command.
fn then(payment: &Payment, command: &Command) -> Payment {
    let step = transition(payment, command, START.plus_secs(60)).unwrap();
    step.unwrap_or_else(|| panic!("{command:?} changes nothing")).payment
}

fn deadline() -> Command {
    Command::PassDeadline { chain_time: START.plus_secs(EXPIRY_SECS) }
}

/// The scene in English.
fn scene_of(payment: &Payment, secs: i64) -> Scene {
    Scene::of(payment, START.plus_secs(secs), Language::English.texts())
}

/// Asserts headline, requested amount and step at a time in seconds.
#[track_caller]
fn notified(payment: &Payment, secs: i64, headline: &str, to_pay: Option<&str>, step: Option<Step>) -> Scene {
    let scene = scene_of(payment, secs);
    assert_eq!((scene.headline, scene.to_pay, scene.step), (headline, to_pay.map(amount), step), "{scene:#?}");
    for word in ["screen", "sanction", "KYT", "block", "risk"] {
        let said = scene.notices.iter().chain([&scene.explanation]).any(|text| text.contains(word));
        assert!(!said || word == "block" && scene.headline == "Waiting for the chain", "{word}: {scene:#?}");
    }
    scene
}

#[test]
fn an_exact_payment_passes_four_steps() {
    let paid = tx(1, "10", 60);
    notified(&after(terms(), []), 10, "Waiting for your payment", Some("10"), Some(Step::Waiting));
    notified(&after(terms(), [paid.seen()]), 70, "Payment seen", None, Some(Step::Seen));
    notified(&after(terms(), [paid.seen(), paid.finalised()]), 70, "Payment seen", None, Some(Step::Seen));
    let confirmed = after(terms(), whole(paid));
    notified(&confirmed, 70, "Payment confirmed", None, Some(Step::Confirmed));
    let settled = Payment { status: Status::Settled, ..confirmed };
    notified(&settled, 5_000, "Payment complete", None, Some(Step::Complete));
}

#[test]
fn money_on_its_way_is_not_requested_again() {
    let (most, rest) = (tx(1, "6", 60), tx(2, "4", 90));
    let seen = after(terms(), [most.seen()]);
    let scene = notified(&seen, 70, "Part of the payment seen", Some("4"), Some(Step::Seen));
    assert!(scene.explanation.contains("6.00 USDC of 10.00 USDC"), "{}", scene.explanation);
    let short = after(terms(), whole(most));
    notified(&short, 70, "Payment incomplete", Some("4"), Some(Step::Seen));
    notified(&short, EXPIRY_SECS, "Payment incomplete", None, None);
    let topped_up = after(terms(), whole(most).into_iter().chain([rest.seen()]));
    notified(&topped_up, 100, "Payment seen", None, Some(Step::Seen));
    let tolerant = Terms { tolerance: Tolerance { absolute: amount("5"), bps: 0 }, ..terms() };
    notified(&after(tolerant, [most.seen()]), 70, "Payment seen", None, Some(Step::Seen));
}

#[test]
fn overpaid_late_expired_and_cancelled_payments() {
    let much = after(terms(), whole(tx(1, "12", 60)));
    let scene = notified(&much, 70, "More than the amount arrived", None, None);
    assert!(scene.explanation.contains("12.00 USDC arrived instead of 10.00"), "{}", scene.explanation);

    let waiting = after(terms(), []);
    notified(&waiting, EXPIRY_SECS, "Time is up", None, Some(Step::Waiting));
    notified(&after(terms(), [deadline()]), EXPIRY_SECS, "Payment expired", None, None);
    notified(&after(terms(), [Command::Cancel]), 20, "Payment cancelled", None, None);
    let late = tx(1, "10", EXPIRY_SECS + 60);
    let came_late = after(terms(), [deadline()].into_iter().chain(whole(late)));
    notified(&came_late, EXPIRY_SECS + 100, "Payment arrived late", None, None);

    let again = after(terms(), whole(tx(1, "10", 60)).into_iter().chain(whole(tx(2, "3", 90))));
    let scene = notified(&again, 100, "Payment confirmed", None, Some(Step::Confirmed));
    assert!(scene.notices[0].starts_with("3.00 USDC arrived after"), "{:?}", scene.notices);
}

/// The outcome of the settlement does not affect the payer, who has paid.
#[test]
fn a_failed_settlement_asks_nothing_of_the_payer() {
    let confirmed = after(terms(), whole(tx(1, "10", 60)));
    let operation = OperationId::settlement_of(confirmed.id());
    let failing = then(&confirmed, &Command::FailSettlement { operation, revision: 1, reason: "reverted".to_owned() });
    assert_eq!((failing.status, failing.labels.contains(Label::SettlementFailed)), (Status::Confirmed, true));
    for secs in [70, EXPIRY_SECS + 5] {
        let scene = notified(&failing, secs, "Payment confirmed", None, Some(Step::Confirmed));
        assert!(scene.explanation.contains("nothing more to do") && scene.notices.is_empty(), "{scene:#?}");
    }

    let (refund_id, to) = (RefundId::generate(), Some(Address([0x11; 20])));
    let order = RefundOrder { to, ..RefundOrder::new(refund_id, Requester::Psp) };
    let held = then(&failing, &Command::RequestRefund(Box::new(RefundOrder { hold: true, ..order.clone() })));
    let scene = notified(&held, 70, "Payment confirmed", None, Some(Step::Confirmed));
    assert_eq!(scene.notices, ["10.00 USDC is sent back after a check."]);
    let back = Command::RequestRefund(Box::new(order));
    let cleared = Command::ScreenRefund { refund_id, verdict: verdict(Decision::Allow) };
    let going = then(&then(&failing, &back), &cleared);
    let scene = notified(&going, 70, "Payment confirmed", None, Some(Step::Confirmed));
    assert_eq!(scene.notices, ["10.00 USDC is on its way back."]);
    let gone = then(&going, &Command::CompleteRefund { refund_id, revision: 1, tx_hash: Hash32([9; 32]) });
    assert_eq!(gone.failure_reason, Some(FailureReason::SettlementFailed));
    for secs in [70, EXPIRY_SECS + 5] {
        let scene = notified(&gone, secs, "Payment sent back", None, None);
        assert!(scene.explanation.contains("Contact the merchant before you pay again"), "{}", scene.explanation);
        assert_eq!(scene.notices, ["10.00 USDC was sent back."]);
    }
}

#[test]
fn screening_is_only_called_checking() {
    let paid = tx(1, "10", 60);
    let review = after(terms(), [paid.seen(), paid.screened(Decision::Review)]);
    notified(&review, 70, "Payment being checked", None, Some(Step::Seen));
    notified(&review, EXPIRY_SECS + 5, "Payment being checked", None, Some(Step::Seen));
    let blocked = after(terms(), [paid.seen(), paid.finalised(), paid.screened(Decision::Block)]);
    assert_eq!(blocked.failure_reason, Some(FailureReason::KytBlocked));
    notified(&blocked, 70, "Payment being checked", None, None);
    let dust = tx(1, "1", 60);
    let spoiled = after(terms(), [dust.seen(), dust.finalised(), dust.screened(Decision::Block)]);
    let scene = notified(&spoiled, 70, "Waiting for your payment", Some("10"), Some(Step::Waiting));
    assert!(scene.notices[0].contains("being checked"), "{:?}", scene.notices);
}

/// A third party cannot block a payment by sending a suspicious transfer.
#[test]
fn a_transfer_under_review_does_not_block_paying_the_rest() {
    const CHECKED: &str = "A received transfer is being checked and does not count until then.";
    let doubtful = tx(1, "0.01", 60);
    let spoiled = after(terms(), [doubtful.seen(), doubtful.screened(Decision::Review)]);
    assert!(spoiled.labels.contains(Label::InReview));
    let scene = notified(&spoiled, 70, "Part of the payment seen", Some("9.99"), Some(Step::Seen));
    assert_eq!(scene.notices, [CHECKED]);
    notified(&spoiled, EXPIRY_SECS, "Time is up", None, Some(Step::Waiting));
    // After a second, sufficient transfer, the payer only has to wait.
    let paid = tx(2, "9.99", 90);
    let both = after(terms(), [doubtful.seen(), doubtful.screened(Decision::Review), paid.seen()]);
    let scene = notified(&both, 100, "Payment being checked", None, Some(Step::Seen));
    assert!(scene.notices.is_empty(), "the explanation says it already: {:?}", scene.notices);

    // A partial transfer whose screening has no result yet.
    let part = tx(1, "4", 60);
    let waiting = after(terms(), [part.seen(), part.finalised(), part.screened(Decision::Review)]);
    let scene = notified(&waiting, 70, "Part of the payment seen", Some("6"), Some(Step::Seen));
    assert_eq!(scene.notices, [CHECKED]);
    // One counted transfer and one under review.
    let counted = tx(2, "3", 90);
    let short = after(terms(), [part.seen(), part.screened(Decision::Review)].into_iter().chain(whole(counted)));
    let scene = notified(&short, 100, "Part of the payment seen", Some("3"), Some(Step::Seen));
    assert_eq!(scene.notices, [CHECKED]);
    // An excess transfer under review does not undo the payment.
    let more = tx(2, "1", 90);
    let paid = tx(1, "10", 60);
    let excess = after(terms(), whole(paid).into_iter().chain([more.seen(), more.screened(Decision::Review)]));
    let scene = notified(&excess, 100, "Payment confirmed", None, Some(Step::Confirmed));
    assert_eq!(scene.notices, [CHECKED]);
}

#[test]
fn a_stray_transfer_under_review_is_not_waited_for() {
    let elsewhere = elsewhere(1);
    let review = after(terms(), [elsewhere.seen(), elsewhere.screened(Decision::Review)]);
    assert!(review.labels.contains(Label::InReview));
    let scene = notified(&review, 70, "Waiting for your payment", Some("10"), Some(Step::Waiting));
    assert_eq!(scene.notices.len(), 1, "{:?}", scene.notices);
    assert!(scene.notices[0].contains("on another chain than Base"), "{:?}", scene.notices);
    let blocked = [elsewhere.seen(), elsewhere.finalised(), elsewhere.screened(Decision::Block)];
    let scene = notified(&after(terms(), blocked), 70, "Waiting for your payment", Some("10"), Some(Step::Waiting));
    assert_eq!(scene.notices.len(), 1, "one notice is enough: {:?}", scene.notices);
}

#[test]
fn an_orphaned_part_does_not_block_paying_the_rest() {
    let part = tx(1, "4", 60);
    let gone = after(terms(), [part.seen(), part.gone().rev(2).seen()]);
    let scene = notified(&gone, 70, "Part of the payment seen", Some("6"), Some(Step::Seen));
    assert!(scene.explanation.contains("does not count yet"), "{}", scene.explanation);
    let rest = tx(2, "6", 90);
    let whole = after(terms(), [part.seen(), part.gone().rev(2).seen(), rest.seen()]);
    notified(&whole, 100, "Waiting for the chain", None, Some(Step::Seen));
    let all = tx(2, "10", 90);
    let paid_anew = after(terms(), [part.seen(), part.gone().rev(2).seen(), all.seen()]);
    notified(&paid_anew, 100, "Payment seen", None, Some(Step::Seen));
}

/// Texts for a transfer to a customer mention no merchant.
#[test]
fn a_transfer_to_a_customer_mentions_no_merchant() {
    let purpose = Purpose::Transfer { to: Address([0x99; 20]) };
    let terms = || Terms { purpose, merchant_id: None, fee_bps: FeeBps::new(0).unwrap(), ..terms() };
    let paid = tx(1, "10", 60);
    let elsewhere = elsewhere(2);
    let confirmed = after(terms(), whole(paid));
    let stands = [
        after(terms(), [elsewhere.seen()]),
        Payment { status: Status::Settled, ..confirmed.clone() },
        confirmed,
        after(terms(), whole(tx(1, "12", 60))),
        after(terms(), whole(tx(1, "4", 60))),
        after(terms(), [deadline()]),
        after(terms(), [Command::Cancel]),
        after(terms(), [deadline()].into_iter().chain(whole(tx(1, "10", EXPIRY_SECS + 60)))),
        after(terms(), [paid.seen(), paid.finalised(), paid.screened(Decision::Block)]),
    ];
    for payment in &stands {
        let scene = scene_of(payment, EXPIRY_SECS + 100);
        let mut said = scene.notices.iter().chain([&scene.explanation]);
        assert!(said.all(|text| !text.to_lowercase().contains("merchant")), "{scene:#?}");
    }
    let late = scene_of(&stands[7], EXPIRY_SECS + 100);
    assert!(late.explanation.contains("Contact the sender of this link"), "{}", late.explanation);
}

#[test]
fn stray_money_is_named_and_refers_to_the_merchant() {
    let mut other = tx(1, "10", 60);
    (other.0.token_address, other.0.token) = (Address([0xbb; 20]), Some(Token::Usdt));
    let wrong_token = after(terms(), [other.seen()]);
    let scene = notified(&wrong_token, 70, "Waiting for your payment", Some("10"), Some(Step::Waiting));
    assert!(scene.notices[0].contains("not the USDC asked for"), "{:?}", scene.notices);
    let expired = after(terms(), [other.seen(), other.finalised(), deadline()]);
    notified(&expired, EXPIRY_SECS, "Payment does not match", None, None);

    let elsewhere = elsewhere(1);
    let scene = scene_of(&after(terms(), [elsewhere.seen()]), 70);
    assert!(scene.notices[0].contains("on another chain than Base"), "{:?}", scene.notices);
}

#[test]
fn an_orphaned_transfer_is_waited_for() {
    let paid = tx(1, "10", 60);
    let orphaned = after(terms(), [paid.seen(), paid.gone().rev(2).seen()]);
    notified(&orphaned, 70, "Waiting for the chain", None, Some(Step::Seen));
}

/// Only the words depend on the language.
#[test]
fn scenes_are_the_same_in_every_language() {
    let (paid, part) = (tx(1, "10", 60), tx(1, "6", 60));
    let stands = [
        after(terms(), []),
        after(terms(), [part.seen()]),
        after(terms(), whole(part)),
        after(terms(), [paid.seen()]),
        after(terms(), [paid.seen(), paid.gone().rev(2).seen()]),
        after(terms(), whole(paid)),
        after(terms(), whole(tx(1, "12", 60))),
        after(terms(), [deadline()]),
        after(terms(), [Command::Cancel]),
        after(terms(), [elsewhere(2).seen()]),
        after(terms(), whole(paid).into_iter().chain(whole(tx(2, "3", 90)))),
    ];
    let mut headlines = std::collections::BTreeSet::new();
    for payment in &stands {
        let [first, others @ ..] = Language::ALL.map(|one| (one, Scene::of(payment, START.plus_secs(70), one.texts())));
        let amounts = |scene: &Scene| {
            let said = scene.notices.iter().chain([&scene.explanation]);
            let words = said.flat_map(|text| text.split(|c: char| !c.is_ascii_digit() && c != '.'));
            let mut amounts: Vec<_> = words.filter(|word| word.ends_with(".00")).map(str::to_owned).collect();
            amounts.sort();
            amounts
        };
        headlines.insert(first.1.headline);
        for (language, scene) in others {
            let facts =
                |scene: &Scene| (scene.state_colour, scene.step, scene.to_pay, scene.notices.len(), amounts(scene));
            assert_eq!(facts(&scene), facts(&first.1), "{language}: {scene:#?}");
            headlines.insert(scene.headline);
        }
    }
    assert_eq!(headlines.len(), 9 * Language::ALL.len(), "{headlines:#?}");
}
