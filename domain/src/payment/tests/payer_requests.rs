//! Requests of payers: the money that they may ask for, those that are carried out at once, and the PSP's decisions.

use super::OperationAction::Queue;
use super::*;
use Label::*;
use Status::{Confirmed, Failed, Mismatched, Pending, Settled};

const POLYGON: Asset = Asset { chain: Chain::Polygon, address: USDC };
const REQUESTED: &[&str] = &["refund.requested"];

/// Terms of a PSP that carries out signed requests at once, and holds overpayments.
fn offering() -> Terms {
    Terms { payer_refunds: PayerRefunds::Sender, ..terms() }
}

/// The payment expired and then received 10 from `PAYER`.
fn late() -> Story {
    given(offering()).expired().arrives(tx(1).at(1_250))
}

fn settled() -> Story {
    given(offering()).arrives(tx(1)).settled(1)
}

/// Request `n` without a signature, to `ELSEWHERE`.
fn claim(n: u128, text: &str) -> RefundAsk {
    RefundAsk {
        id: request_id(n),
        amount: amount(text),
        to: ELSEWHERE,
        asset: None,
        proof: AddressProof::Claimed,
        at_once: true,
        plain: None,
        hold: false,
        note: Some("paid from an exchange".to_owned()),
    }
}

/// Request `n` that `PAYER` signed.
fn signed(n: u128, text: &str) -> RefundAsk {
    RefundAsk { to: PAYER, proof: AddressProof::Signature, plain: Some(PAYER), note: None, ..claim(n, text) }
}

fn asks(ask: RefundAsk) -> Command {
    Command::AskRefund(Box::new(ask))
}

fn approves(story: &Story, n: u128) -> Command {
    let request = story.payment.refund_requests.iter().find(|request| request.id == request_id(n)).unwrap();
    Command::RequestRefund(Box::new(request.order(Requester::Psp)))
}

fn declines(n: u128) -> Command {
    Command::DeclineRefundRequest { request_id: request_id(n) }
}

fn clears(n: u128) -> Command {
    Command::ScreenRefund { refund_id: RefundId::of_request(request_id(n)), verdict: verdict(Decision::Allow) }
}

fn sent(n: u128) -> Command {
    Command::CompleteRefund { refund_id: RefundId::of_request(request_id(n)), revision: 1, tx_hash: hash(91) }
}

fn state_of(payment: &Payment, n: u128) -> RefundRequestState {
    payment.refund_requests.iter().find(|request| request.id == request_id(n)).unwrap().state
}

/// Asserts the money that payers may ask for, in the due token and on Polygon.
fn returnable(due: &'static str, polygon: &'static str) -> impl FnOnce(&Payment) {
    move |payment| {
        let now = [payment.returnable_in(None), payment.returnable_in(Some(POLYGON))];
        assert_eq!(now.map(|amount| amount.to_string()), [due, polygon]);
        let all: Amount = payment.returnable().iter().map(|(_, amount)| *amount).sum();
        assert_eq!(all, now[0].saturating_add(now[1]));
    }
}

#[test]
fn only_late_misdirected_and_excess_money_is_returnable() {
    let misdirected = |story: Story| story.arrives(tx(9).of("3").on(Chain::Polygon));
    // Misdirected money at any time, also while the payment is pending.
    misdirected(given(offering())).is(Pending, &[WrongChain]).also(returnable("0.00", "3.00"));
    misdirected(given(offering())).expired().is(Mismatched, &[WrongChain]).also(returnable("0.00", "3.00"));
    // Late money: everything that arrived after the end.
    late().is(Mismatched, &[Late]).also(returnable("10.00", "0.00"));
    let cancelled = given(offering()).when(Command::Cancel);
    cancelled.arrives(tx(1).of("4")).is(Mismatched, &[Late]).also(returnable("4.00", "0.00"));
    // Money that was in time, but too little, is the PSP's to decide, also when late money follows.
    given(offering()).arrives(tx(1).of("4")).also(returnable("0.00", "0.00"));
    let short = given(offering()).arrives(tx(1).of("4")).expired();
    short.also(returnable("0.00", "0.00")).arrives(tx(2).of("5").at(1_250)).also(returnable("5.00", "0.00"));
    // The part above the amount due.
    given(offering()).arrives(tx(1).of("12.5")).is(Mismatched, &[Overpaid]).also(returnable("2.50", "0.00"));
    // Excess, once the settlement is done. The settled money stays with the PSP.
    let settling = given(offering()).arrives(tx(1)).arrives(tx(2).of("4").at(70)).is(Confirmed, &[Multiple, Excess]);
    settling.also(returnable("0.00", "0.00")).settled(1).also(returnable("4.00", "0.00"));
    settled().also(returnable("0.00", "0.00"));
    let failing = given(offering()).arrives(tx(1)).settlement_fails(1).arrives(tx(2).of("4").at(70));
    failing.also(returnable("4.00", "0.00"));
    // A surplus that the policy settles is the PSP's; one within the tolerance is excess.
    let accepting = Terms { overpayment: OverpaymentPolicy::Accept, ..offering() };
    given(accepting).arrives(tx(1).of("12.5")).settled(1).also(returnable("0.00", "0.00"));
    let tolerant = Terms { overpayment_tolerance: Tolerance { absolute: amount("1"), bps: 0 }, ..offering() };
    given(tolerant.clone()).arrives(tx(1).of("10.5")).settled(1).also(returnable("0.50", "0.00"));
    given(tolerant).arrives(tx(1).of("10.0005")).settled(1).also(returnable("0.00", "0.00"));
}

#[test]
fn money_in_review_blocked_or_decided_is_not_returnable() {
    let seen = given(offering()).expired().when(tx(1).at(1_250).seen()).when(tx(1).at(1_250).finalised());
    seen.also(returnable("0.00", "0.00"));
    let reviewed = given(offering()).when(tx(9).on(Chain::Polygon).seen());
    let reviewed = reviewed.when(tx(9).on(Chain::Polygon).screened(Decision::Review));
    reviewed.when(tx(9).on(Chain::Polygon).finalised()).also(returnable("0.00", "0.00"));
    given(offering()).tainted(tx(9).on(Chain::Polygon)).also(returnable("0.00", "0.00"));
    given(offering()).tainted(tx(1)).failed(FailureReason::KytBlocked).also(returnable("0.00", "0.00"));
    // The PSP accepted the late money.
    let accepted = late().when(Command::Accept { expected_received: None });
    accepted.is(Confirmed, &[Late]).also(returnable("0.00", "0.00")).settled(1).also(returnable("0.00", "0.00"));
    // The PSP refunded it.
    let refunded = late().when(refund_of(1, Some("7"), Funds::Received, None, Requester::Psp));
    refunded.also(returnable("3.00", "0.00"));
}

#[test]
fn a_signed_request_is_carried_out_at_once() {
    let story = late().notified(&[FAILED, MISMATCHED].concat()).when(asks(signed(1, "10")));
    story
        .notified(REQUESTED)
        .queues(&[])
        .money("10.00", "0.00", "10.00", "0.00")
        .also(|payment| {
            let refund = &payment.refunds[0];
            assert_eq!(state_of(payment, 1), RefundRequestState::Approved);
            assert_eq!((refund.to, refund.requested_by, refund.limit), (PAYER, Requester::Payer, RefundLimit::None));
            assert_eq!(refund.source, Vault::Payment);
        })
        .refused(&asks(signed(2, "0.5")), "nothing_to_refund")
        .when(clears(1))
        .queues(&[(Queue, "10.00")])
        .when(sent(1))
        .notified(&["refund.sent"])
        .is(Mismatched, &[Late]);
}

#[test]
fn the_same_request_twice_is_one_refund() {
    let story = late().when(asks(signed(1, "4"))).unchanged(&asks(signed(1, "4"))).when(clears(1)).when(sent(1));
    story.unchanged(&asks(signed(1, "4"))).also(|payment| assert_eq!(payment.refunds.len(), 1));
    // After a failure, the amount is available again, to a new signature only.
    let failed =
        Command::FailRefund { refund_id: RefundId::of_request(request_id(1)), revision: 1, reason: "no".to_owned() };
    let story = late().when(asks(signed(1, "10"))).when(clears(1)).when(failed);
    story.also(returnable("10.00", "0.00")).unchanged(&asks(signed(1, "10"))).when(asks(signed(2, "10")));
    // Without a signature, the same open request is the same, whatever its id.
    let story = late().when(asks(claim(1, "4"))).unchanged(&asks(claim(2, "4"))).when(asks(claim(3, "5")));
    story.also(|payment| assert_eq!(payment.refund_requests.len(), 2));
}

#[test]
fn a_signer_gets_at_most_what_it_sent() {
    let other = Address([0x33; 20]);
    let two = || late().arrives(tx(2).of("3").at(1_260).from(other));
    two().also(returnable("13.00", "0.00")).refused(&asks(signed(1, "10.5")), "refund_too_large");
    let third = Address([0x44; 20]);
    two().refused(&asks(RefundAsk { to: third, ..signed(1, "1") }), "refund_not_sender");
    let story = two().when(asks(signed(1, "10"))).refused(&asks(signed(2, "1")), "refund_not_sender");
    // Another account may hold the money of several payers, so the limit of refunds to other addresses applies.
    story.when(asks(RefundAsk { to: other, plain: Some(other), ..signed(3, "3") })).also(|payment| {
        assert_eq!(payment.refunds.iter().map(|refund| refund.limit).collect::<Vec<_>>(), [RefundLimit::Elsewhere; 2]);
    });
    // The PSP sent money to an address that sent nothing: it may have been of any sender.
    let story = two().when(refund_of(1, Some("2"), Funds::Received, None, Requester::Psp));
    story.refused(&asks(signed(1, "8.5")), "refund_too_large").when(asks(signed(2, "8")));
    // Of an overpayment, the surplus came from the last sender.
    let story = given(offering()).arrives(tx(1).of("9").at(60)).arrives(tx(2).of("4").at(70).from(other));
    story.refused(&asks(signed(1, "1")), "refund_not_sender");
}

#[test]
fn money_on_another_chain_goes_back_there() {
    let story = given(offering()).arrives(tx(9).of("3").on(Chain::Polygon));
    let ask = || RefundAsk { asset: Some(POLYGON), ..signed(1, "3") };
    story.refused(&asks(signed(1, "3")), "payment_pending").when(asks(ask())).also(|payment| {
        assert_eq!((payment.refunds[0].asset, payment.refunds[0].funds), (Some(POLYGON), Funds::Misdirected));
        assert_eq!(payment.status, Pending);
    });
}

#[test]
fn other_requests_wait_for_the_psp() {
    let waiting = || late().when(asks(claim(1, "10")));
    let story = waiting().notified(&[FAILED, MISMATCHED, REQUESTED].concat());
    // Nothing is reserved.
    let story = story.also(returnable("10.00", "0.00"));
    let approval = approves(&story, 1);
    story
        .when(approval.clone())
        .also(|payment| {
            assert_eq!(state_of(payment, 1), RefundRequestState::Approved);
            assert_eq!(
                (payment.refunds[0].requested_by, payment.refunds[0].limit),
                (Requester::Psp, RefundLimit::Elsewhere)
            );
        })
        .unchanged(&approval)
        .refused(&declines(1), "refund_request_closed")
        .when(clears(1))
        .queues(&[(Queue, "10.00")]);
    let story = waiting().when(declines(1)).refused(&declines(1), "refund_request_closed");
    let approval = approves(&story, 1);
    story.refused(&approval, "refund_request_closed").also(returnable("10.00", "0.00")).when(asks(claim(2, "10")));
    waiting().refused(&declines(7), "refund_request_closed");
}

#[test]
fn an_approval_never_takes_settled_money() {
    let story = settled().arrives(tx(2).of("4").at(70)).when(asks(claim(1, "4")));
    let approval = approves(&story, 1);
    let story = story.when(refund_of(1, Some("4"), Funds::Received, None, Requester::Psp));
    // The settled 10 are refundable by the PSP, but the payer did not ask for them.
    story.refused(&approval, "nothing_to_refund").is(Settled, &[Multiple, Excess]);
}

#[test]
fn the_policy_of_the_psp_decides() {
    let with = |payer_refunds| given(Terms { payer_refunds, ..terms() }).expired().arrives(tx(1).at(1_250));
    with(PayerRefunds::Off).refused(&asks(signed(1, "10")), "payer_refunds_off");
    let approve = RefundAsk { at_once: false, ..signed(1, "10") };
    let story = with(PayerRefunds::Approve).when(asks(approve));
    let approval = approves(&story, 1);
    story.also(|payment| assert_eq!(state_of(payment, 1), RefundRequestState::Requested)).when(approval).also(
        |payment| {
            assert_eq!((payment.refunds[0].requested_by, payment.refunds[0].to), (Requester::Psp, PAYER));
        },
    );
    // A request without a signature is never carried out at once.
    late().when(asks(claim(1, "10"))).also(|payment| assert!(payment.refunds.is_empty()));
    // Above the limit of refunds to other addresses, the operator approves.
    let contract = RefundAsk { plain: None, ..signed(1, "10") };
    let held = asks(contract).held().unwrap();
    late()
        .when(held.clone())
        .also(|payment| assert!(payment.refunds[0].awaits_approval()))
        .is(Mismatched, &[Late, RefundApproval]);
    assert_eq!((held.held(), asks(RefundAsk { at_once: false, ..claim(1, "1") }).held()), (None, None));
}

#[test]
fn requests_are_limited() {
    let open = (1..=3).fold(late(), |story, n| story.when(asks(claim(n, &n.to_string()))));
    let story = open.refused(&asks(claim(4, "4")), "refund_requests_open");
    // They do not stand in the way of a signature, and a decision makes room.
    story.when(asks(signed(5, "1"))).when(declines(1)).when(asks(claim(6, "6")));
    for (to, code) in [
        (Address([0; 20]), "refund_address_invalid"),
        (WALLET, "refund_address_invalid"),
        (USDC, "refund_address_invalid"),
    ] {
        late().refused(&asks(RefundAsk { to, ..claim(1, "1") }), code);
    }
    late().refused(&asks(claim(1, "10.01")), "refund_too_large").refused(&asks(claim(1, "0")), "refund_too_large");
    settled().refused(&asks(claim(1, "1")), "nothing_to_refund");
    let settling = given(offering()).arrives(tx(1)).arrives(tx(2).of("4").at(70));
    settling.refused(&asks(claim(1, "4")), "settlement_in_progress");
    given(offering()).expired().is(Failed, &[]).refused(&asks(claim(1, "4")), "nothing_to_refund");
}

#[test]
fn a_payment_takes_a_bounded_number_of_requests() {
    let asked = |story: Story, n: u128| {
        let story = story.when(asks(claim(n, "1")));
        story.when(declines(n))
    };
    let max = u128::try_from(REFUND_REQUESTS_MAX).unwrap();
    let full = (1..=max).fold(late(), asked);
    full.refused(&asks(claim(max + 1, "1")), "refund_requests_exhausted").when(asks(signed(max + 2, "1")));
}

#[test]
fn the_event_says_what_is_proven() {
    let body_of = |story: Story| {
        let body = payload(&story.payment, story.notified.last().unwrap(), EventId::from_ulid(Ulid(1))).unwrap();
        serde_json::from_str::<serde_json::Value>(&body).unwrap()
    };
    let body = body_of(late().when(asks(claim(1, "4"))));
    assert_eq!((&body["event"], &body["refund_address_proof"]), (&"refund.requested".into(), &"none".into()));
    assert_eq!((&body["refund_amount"], &body["payment_amount"]), (&"4.00".into(), &"10.00".into()));
    assert_eq!((&body["refund_request_status"], &body["refund_chain"]), (&"requested".into(), &"base".into()));
    assert_eq!(body["refund_address"], ELSEWHERE.checksummed());
    assert!(body["refund_id"].is_null());
    let story = given(offering()).arrives(tx(9).of("3").on(Chain::Polygon));
    let body = body_of(story.when(asks(RefundAsk { asset: Some(POLYGON), ..signed(1, "3") })));
    assert_eq!((&body["refund_address_proof"], &body["refund_chain"]), (&"signature".into(), &"polygon".into()));
    assert_eq!(body["refund_request_status"], "approved");
    assert_eq!(body["refund_id"], RefundId::of_request(request_id(1)).to_string());
}

#[test]
fn a_stored_request_has_no_note_and_is_completed_from_its_event() {
    let command = asks(claim(1, "4"));
    let story = late().when(command.clone());
    let stored = serde_json::to_string(&command).unwrap();
    assert!(!stored.contains("exchange"), "{stored}");
    let read: Command = serde_json::from_str(&stored).unwrap();
    assert_eq!(read.completed_from(&story.commits.last().unwrap().0), command);
    let row = serde_json::to_string(&story.payment).unwrap();
    assert_eq!(serde_json::from_str::<Payment>(&row).unwrap(), story.payment);
}

#[test]
fn the_id_of_a_signed_request_follows_from_the_message() {
    let (one, other) = (RefundRequestId::signed(START, hash(1)), RefundRequestId::signed(START, hash(2)));
    assert_ne!(one, other);
    assert_eq!(
        (one, one.ulid().timestamp_ms()),
        (RefundRequestId::signed(START, hash(1)), START.as_millis().unsigned_abs())
    );
    assert_eq!(RefundId::of_request(one).to_string().strip_prefix("rf_"), one.to_string().strip_prefix("rr_"));
}
