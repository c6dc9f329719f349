//! The payer chooses the chain.

use super::*;

const POLYGON: Command = Command::ChooseChain { chain: Chain::Polygon };

fn offered() -> Story {
    given(terms_of_choice())
}

#[test]
fn choice_fixes_chain_finality_and_deadline() {
    let story = offered().also(|payment| {
        assert_eq!((payment.chain(), payment.awaits_chain()), (None, true));
        assert_eq!(payment.amount_to_authorize(AuthorizationKind::Receive), None);
    });
    let waits = Effect::AwaitDeadline { chain: Chain::Polygon, at: at(EXPIRY_SECS) };
    let story = story.when(POLYGON).asks_for(&waits).is(Status::Pending, &[]).notified(&[]).also(|payment| {
        assert_eq!((payment.chain(), payment.required_finality()), (Some(Chain::Polygon), Finality::Blocks(3)));
        assert_eq!(payment.history.last().unwrap().reason, Reason::ChainChosen);
        assert!(payment.amount_to_authorize(AuthorizationKind::Receive).is_some());
    });
    let story = story.arrives(tx(1).on(Chain::Polygon)).is(Status::Confirmed, &[]).notified(CONFIRMED);
    story.settled(1).is(Status::Settled, &[]).notified(SETTLED);
}

#[test]
fn choice_is_made_once_and_among_the_offers() {
    let base = Command::ChooseChain { chain: Chain::Base };
    offered().refused(&Command::ChooseChain { chain: Chain::Arbitrum }, "chain_not_offered");
    offered().when(POLYGON).unchanged(&POLYGON).refused(&base, "chain_fixed");
    given(terms()).unchanged(&base).refused(&POLYGON, "chain_fixed");
    offered().expired().refused(&POLYGON, "payment_not_pending");
    offered().when(Command::Cancel).refused(&POLYGON, "payment_not_pending");
}

#[test]
fn transfer_on_an_offered_chain_is_the_choice() {
    for chain in [Chain::Base, Chain::Polygon] {
        let story = offered().arrives(tx(1).on(chain)).is(Status::Confirmed, &[]).notified(CONFIRMED);
        assert_eq!(story.payment.chain(), Some(chain));
        let queued = story.last.as_ref().unwrap().operations[0];
        assert_eq!(queued.chain, chain, "it is settled there");
        story.refused(&Command::ChooseChain { chain: Chain::Arbitrum }, "chain_fixed");
    }
}

#[test]
fn second_transfer_on_another_chain_is_on_the_wrong_chain() {
    let story = offered().when(tx(1).on(Chain::Polygon).of("4").seen()).arrives(tx(2).on(Chain::Base));
    let story = story.is(Status::Pending, &[Label::WrongChain]);
    let rest = tx(3).on(Chain::Polygon).of("6").log(1);
    let first = tx(1).on(Chain::Polygon).of("4");
    let story = story.when(first.screened(Decision::Allow)).when(rest.seen()).when(rest.screened(Decision::Allow));
    let story = story.when(first.finalised()).when(rest.finalised());
    story.is(Status::Confirmed, &[Label::Multiple, Label::WrongChain]);
}

#[test]
fn only_money_that_could_pay_is_a_choice() {
    let others = [
        tx(1).on(Chain::Arbitrum),
        tx(1).on(Chain::Polygon).look_alike(),
        tx(1).on(Chain::Polygon).of("0.0005"),
        tx(1).on(Chain::Polygon).gone(),
    ];
    for other in others {
        assert_eq!(offered().when(other.seen()).payment.chain(), None, "{other:?}");
    }
}

#[test]
fn late_transfer_is_a_choice_so_that_it_can_be_accepted() {
    let story = offered().expired().failed(FailureReason::Expired);
    let story = story.arrives(tx(1).on(Chain::Polygon).at(EXPIRY_SECS + 60)).is(Status::Mismatched, &[Label::Late]);
    let story = story.when(Command::Accept { expected_received: None }).is(Status::Confirmed, &[Label::Late]);
    assert_eq!(story.last.as_ref().unwrap().operations[0].chain, Chain::Polygon);
}

#[test]
fn transfer_that_a_reorganisation_removes_leaves_the_choice() {
    let transfer = tx(1).on(Chain::Polygon);
    let story = offered().when(transfer.seen()).when(transfer.rev(2).gone().seen());
    assert_eq!(story.payment.chain(), Some(Chain::Polygon));
    story.refused(&Command::ChooseChain { chain: Chain::Base }, "chain_fixed");
}

#[test]
fn authorization_needs_a_choice() {
    let order = AuthorizationOrder {
        operation: OperationId::from_ulid(Ulid(7)),
        kind: AuthorizationKind::Receive,
        attempt: 1,
        from: PAYER,
        value: amount("10.00"),
        valid_before: at(EXPIRY_SECS),
        nonce: hash(9),
    };
    offered().refused(&Command::Authorize(order), "chain_not_chosen");
}

/// An outage of the first chain has moved the deadline. It stays, and outages of the chosen chain move it further.
#[test]
fn outages_of_both_chains_move_the_deadline() {
    let outage = |id, from, to| Command::MoveDeadline { outage: OutageId(id), from: at(from), to: at(to) };
    let story = offered().when(outage(1, 100, 160)).when(POLYGON);
    assert_eq!(story.payment.expires_at, at(EXPIRY_SECS + 60));
    let story = story.when(outage(1, 300, 310));
    assert_eq!(story.payment.expires_at, at(EXPIRY_SECS + 70));
}

#[test]
fn event_before_the_choice_names_no_chain() {
    let story = offered().expired();
    let body = |story: &Story| {
        let announced = payload(&story.payment, &story.notified[0], EventId::from_ulid(Ulid(1))).unwrap();
        serde_json::from_str::<serde_json::Value>(&announced).unwrap()["chain"].clone()
    };
    assert_eq!(body(&story), serde_json::Value::Null);
    assert_eq!(body(&offered().arrives(tx(1).on(Chain::Polygon))), "polygon");
}
