//! Property test: the order of facts does not matter. All facts of a scenario, shuffled and repeated, lead to the
//! result of the interface's table. The oracle has no states; it only sums up the final chain.

use super::*;
use proptest::prelude::*;

/// Outcome of one transaction on the chain.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Fate {
    /// Stays in its block.
    Stays,
    /// Orphaned and mined again under the same log index, a minute later.
    ReMined,
    /// Orphaned and mined again under another log index, 20 minutes later.
    Renumbered,
    /// Permanently orphaned.
    Gone,
}

#[derive(Debug, Clone, Copy)]
struct Part {
    tx: Tx,
    fate: Fate,
    clean: bool,
    reviewed: bool,
    /// The transfer was set aside when it was seen, and the operator lists it.
    aside: bool,
}

/// Returns the facts of one transaction in their natural order.
fn facts(part: &Part, counted_before: bool) -> Vec<Command> {
    let decision = if part.clean { Decision::Allow } else { Decision::Block };
    let secs = part.tx.0.block.time.millis_since(START) / 1_000;
    let first = if part.aside { Command::TakeIn { observed: vec![part.tx.0] } } else { part.tx.seen() };
    let mut facts = vec![first];
    if part.reviewed {
        facts.push(part.tx.screened(Decision::Review));
    }
    let mut end = part.tx;
    if part.fate != Fate::Stays {
        if counted_before {
            facts.extend([part.tx.screened(decision), part.tx.finalised()]);
        }
        facts.push(part.tx.rev(2).gone().seen());
        end = match part.fate {
            Fate::ReMined => part.tx.rev(3).at(secs + 60),
            Fate::Renumbered => part.tx.log(7).at(secs + 1_200),
            Fate::Stays | Fate::Gone => part.tx,
        };
        facts.push(end.seen());
    }
    if part.fate != Fate::Gone {
        facts.extend([end.screened(decision), end.finalised()]);
    }
    facts
}

/// Funds on the final chain, by kind. The oracle uses nothing else.
#[derive(Debug, Default)]
struct Held {
    clean: i64,
    blocked: i64,
    late: i64,
    wrong: bool,
}

fn held(parts: &[Part]) -> Held {
    let mut held = Held::default();
    for part in parts.iter().filter(|part| part.fate != Fate::Gone) {
        let ObservedTransfer { amount, block, token_address, key, .. } = part.tx.0;
        if amount < terms().dust_floor {
            continue;
        }
        let in_time = block.time < at(EXPIRY_SECS);
        let right = token_address == USDC && key.chain == Chain::Base;
        match (right, in_time, part.clean) {
            (false, true, _) => held.wrong = true,
            (true, true, true) => held.clean += amount.units(),
            (true, true, false) => held.blocked += amount.units(),
            (true, false, true) => held.late += amount.units(),
            _ => {}
        }
    }
    held
}

#[derive(Debug, PartialEq)]
struct End {
    status: Status,
    reason: Option<FailureReason>,
    underpaid: bool,
    overpaid: bool,
    late: bool,
    received: i64,
    excess: i64,
}

fn table_says(held: &Held, terms: &Terms) -> End {
    let (due, late) = (terms.amount.units(), held.late > 0);
    let least = terms.tolerance.least_for(terms.amount).units();
    let mut end = End {
        status: Status::Mismatched,
        reason: None,
        underpaid: false,
        overpaid: false,
        late,
        received: held.clean + held.late,
        excess: 0,
    };
    let accepts = terms.overpayment == OverpaymentPolicy::Accept;
    if held.clean > due && !accepts {
        end.overpaid = true;
    } else if held.clean >= least {
        end.overpaid = held.clean > due;
        (end.status, end.late, end.received, end.excess) = (Status::Confirmed, false, held.clean, held.late);
    } else if held.clean > 0 {
        end.underpaid = !late || held.clean + held.late < least;
    } else if held.blocked >= least {
        (end.status, end.reason, end.late) = (Status::Failed, Some(FailureReason::KytBlocked), false);
    } else if !late && !held.wrong {
        (end.status, end.reason) = (Status::Failed, Some(FailureReason::Expired));
    }
    end
}

fn ended(payment: &Payment) -> End {
    End {
        status: payment.status,
        reason: payment.failure_reason,
        underpaid: payment.labels.contains(Label::Underpaid),
        overpaid: payment.labels.contains(Label::Overpaid),
        late: payment.labels.contains(Label::Late),
        received: payment.amount_received().units(),
        excess: payment.excess_received().units(),
    }
}

fn part(n: u8, clean: bool) -> impl Strategy<Value = Part> {
    let units = prop::sample::select(vec!["0.0005", "0.5", "2", "3", "4"]);
    let fates = prop::sample::select(vec![Fate::Stays, Fate::Stays, Fate::ReMined, Fate::Renumbered, Fate::Gone]);
    let kind = prop_oneof![6 => Just(0u8), 1 => Just(1), 1 => Just(2)];
    let (reviewed, aside) = (prop::bool::weighted(0.2), prop::bool::weighted(0.2));
    (units, fates, kind, reviewed, aside, 60..1_100i64).prop_map(move |(text, fate, kind, reviewed, aside, secs)| {
        let tx = tx(n).of(text).at(secs);
        let tx = match kind {
            1 => tx.look_alike(),
            2 => tx.on(Chain::Polygon),
            _ => tx,
        };
        Part { tx, fate, clean, reviewed, aside }
    })
}

/// Clean in-time funds: up to two parts that are never too much together, or one part of any size.
fn clean_parts() -> impl Strategy<Value = Vec<Part>> {
    let one =
        (part(1, true), prop::sample::select(vec!["9", "9.5", "10", "10.000001", "14"])).prop_map(|(part, text)| {
            let whole = Part { tx: part.tx.of(text), ..part };
            vec![whole]
        });
    let exact = (part(1, true), part(2, true)).prop_map(|(a, b)| {
        vec![Part { tx: a.tx.of("4"), fate: stays(a.fate), ..a }, Part { tx: b.tx.of("6"), fate: stays(b.fate), ..b }]
    });
    prop_oneof![
        Just(Vec::new()),
        part(1, true).prop_map(|part| vec![part]),
        one,
        exact,
        (part(1, true), part(2, true)).prop_map(|(a, b)| vec![a, b])
    ]
}

fn stays(fate: Fate) -> Fate {
    if fate == Fate::Gone { Fate::Stays } else { fate }
}

/// Adds late, blocked, and dust funds. Blocked funds that would pay the payment are generated alone, because the order
/// of blocked and clean funds matters according to the table.
fn parts() -> impl Strategy<Value = (Vec<Part>, bool)> {
    let late = || {
        prop::option::of((part(5, true), 1_200..3_000i64).prop_map(|(part, secs)| Part {
            tx: part.tx.at(secs),
            fate: stays(part.fate),
            ..part
        }))
    };
    let beside = prop::option::of(part(6, false));
    let paying = (part(7, false), late()).prop_map(|(part, late)| {
        let tainted = Part { tx: part.tx.of("10"), fate: stays(part.fate), ..part };
        ([tainted].into_iter().chain(late).collect(), false)
    });
    let clean = (clean_parts(), late(), beside).prop_map(|(mut parts, late, beside)| {
        let counted_before = late.is_none();
        parts.extend(late);
        parts.extend(beside);
        (parts, counted_before)
    });
    prop_oneof![5 => clean, 1 => paying]
}

/// Shuffles the facts, so that each transaction is known before it is final. The watcher reads past the deadline at any
/// time after it reported everything before the deadline.
fn orders(facts: Vec<Command>) -> impl Strategy<Value = Vec<Command>> {
    let repeated: Vec<Command> = facts.iter().chain(&facts).cloned().collect();
    (Just(repeated).prop_shuffle(), Just(facts), 0..=1_000usize).prop_map(|(mut order, facts, place)| {
        let notified = facts.iter().filter(|fact| matches!(fact, Command::ObserveTransfer(_) | Command::TakeIn { .. }));
        let last =
            notified.filter_map(|fact| order.iter().position(|other| other == fact)).max().map_or(0, |last| last + 1);
        let place = last + place * (order.len() - last) / 1_000;
        order.insert(place, Command::PassDeadline { chain_time: at(1_000_000) });
        // Facts that open waits requested again.
        order.extend(facts);
        order.push(Command::PassDeadline { chain_time: at(1_000_000) });
        order
    })
}

fn story() -> impl Strategy<Value = (Vec<Part>, Vec<Command>)> {
    parts().prop_flat_map(|(parts, counted_before)| {
        let facts = parts.iter().flat_map(|part| facts(part, counted_before)).collect();
        (Just(parts), orders(facts))
    })
}

proptest! {
    #![proptest_config(cases(3_000))]

    #[test]
    fn the_order_of_facts_does_not_matter(
        (parts, order) in story(),
        tolerance in 0..2i64,
        accepts in prop::bool::ANY,
    ) {
        let tolerance = Tolerance { absolute: Amount::from_tokens(tolerance), bps: 0 };
        let overpayment = if accepts { OverpaymentPolicy::Accept } else { OverpaymentPolicy::Hold };
        let terms = Terms { tolerance, overpayment, ..terms() };
        let mut story = given(terms.clone());
        for fact in &order {
            let taken = story.run(fact);
            // A transfer that is already listed, or is dust, is not set aside.
            let is_known = matches!(fact, Command::TakeIn { .. }) && taken == Err(Rejection::NothingSetAside);
            prop_assert!(is_known || taken.is_ok(), "{:?}: {:?}", fact, taken);
        }
        prop_assert_eq!(ended(&story.payment), table_says(&held(&parts), &terms), "{:?}", story.payment.history);
    }
}
