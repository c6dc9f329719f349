//! Property test: the order of facts does not matter. All facts of a scenario, shuffled and repeated, lead to the
//! result of the interface's table. The oracle has no states; it only sums up the final chain.

use super::*;
use proptest::prelude::*;

/// Outcome of one transaction of an orphaned block.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Fate {
    /// Orphaned and mined again a minute later, under the same log index.
    ReMined,
    /// Orphaned and mined again under another log index, 20 minutes later.
    Renumbered,
    /// Permanently orphaned.
    Gone,
}

#[derive(Debug, Clone, Copy)]
struct Part {
    tx: Tx,
    /// `None`: stays in its block.
    fate: Option<Fate>,
    clean: bool,
    reviewed: bool,
    /// The transfer was set aside when it was seen, and the operator lists it.
    aside: bool,
}

impl Part {
    fn secs(&self) -> i64 {
        self.tx.0.block.time.millis_since(START) / 1_000
    }

    /// The transfer on the final chain.
    fn end(&self) -> Option<Tx> {
        match self.fate {
            None => Some(self.tx),
            Some(Fate::ReMined) => Some(self.tx.at(self.secs() + 60)),
            Some(Fate::Renumbered) => Some(self.tx.log(7).at(self.secs() + 1_200)),
            Some(Fate::Gone) => None,
        }
    }

    fn decision(&self) -> Decision {
        if self.clean { Decision::Allow } else { Decision::Block }
    }
}

/// The facts of a chain, in three steps. The watcher reads blocks in order, and a payment knows everything that was read
/// before it takes a transfer as final. So only the facts of one step are delivered in any order.
#[derive(Debug, Clone, Default)]
struct Facts {
    first_branch: Vec<Command>,
    reorganisation: Vec<Command>,
    last_branch: Vec<Command>,
}

fn facts(parts: &[Part], counted_before: bool) -> Facts {
    let mut facts = Facts::default();
    let mut first_final = Vec::new();
    for part in parts {
        let first = if part.aside { Command::TakeIn { observed: vec![part.tx.0] } } else { part.tx.seen() };
        facts.first_branch.push(first);
        if part.reviewed {
            facts.first_branch.push(part.tx.screened(Decision::Review));
        }
        if part.fate.is_some() {
            facts.reorganisation.push(part.tx.rev(2).gone().seen());
            facts.reorganisation.extend(part.end().map(Tx::seen));
        }
        if counted_before {
            first_final.extend([part.tx.screened(part.decision()), part.tx.finalised()]);
        }
        let last = part.end().into_iter().flat_map(|end| [end.screened(part.decision()), end.finalised()]);
        facts.last_branch.extend(last);
    }
    // Everything was read before the first transfer was final.
    facts.reorganisation.splice(0..0, first_final);
    facts
}

/// Funds on the final chain, by kind. The oracle uses nothing else.
#[derive(Debug, Default)]
struct Held {
    /// Clean in-time amounts of the right token, in the order of the chain.
    clean: Vec<i64>,
    blocked: i64,
    late: i64,
    wrong: bool,
}

fn held(parts: &[Part]) -> Held {
    let mut held = Held::default();
    let mut on_chain: Vec<(&Part, Tx)> = parts.iter().filter_map(|part| Some((part, part.end()?))).collect();
    on_chain.sort_by_key(|(_, Tx(end))| (end.block.number, end.key.log_index, end.key));
    for (part, _) in on_chain {
        let ObservedTransfer { amount, block, token_address, key, .. } = part.tx.0;
        if amount < terms().dust_floor {
            continue;
        }
        let in_time = block.time < at(EXPIRY_SECS);
        let right = token_address == USDC && key.chain == Chain::Base;
        match (right, in_time, part.clean) {
            (false, true, _) => held.wrong = true,
            (true, true, true) => held.clean.push(amount.units()),
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

/// Judges after each transfer, in the order of the chain.
fn table_says(held: &Held, terms: &Terms) -> End {
    let (late, total) = (held.late > 0, held.clean.iter().sum::<i64>());
    let least = terms.tolerance.least_for(terms.amount).units();
    let most = terms.overpayment_tolerance.most_for(terms.amount).units();
    let mut end = End {
        status: Status::Mismatched,
        reason: None,
        underpaid: false,
        overpaid: false,
        late,
        received: total + held.late,
        excess: 0,
    };
    let accepts = terms.overpayment == OverpaymentPolicy::Accept;
    let sums = held.clean.iter().scan(0, |sum, units| {
        *sum += units;
        Some(*sum)
    });
    match sums.into_iter().find(|sum| *sum >= least) {
        Some(sum) if sum > most && !accepts => end.overpaid = true,
        Some(sum) => {
            end.overpaid = sum > most;
            end.received = if accepts { sum } else { sum.min(terms.amount.units()) };
            (end.status, end.late) = (Status::Confirmed, false);
            end.excess = total + held.late - end.received;
        }
        None if total > 0 => end.underpaid = !late || total + held.late < least,
        None if held.blocked >= least => {
            (end.status, end.reason, end.late) = (Status::Failed, Some(FailureReason::KytBlocked), false);
        }
        None if !late && !held.wrong => (end.status, end.reason) = (Status::Failed, Some(FailureReason::Expired)),
        None => {}
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
    let units = prop::sample::select(vec!["0.0005", "0.001", "0.5", "2", "3", "4", "6", "9.5", "10", "14"]);
    let kind = prop_oneof![6 => Just(0u8), 1 => Just(1), 1 => Just(2)];
    let (reviewed, aside) = (prop::bool::weighted(0.2), prop::bool::weighted(0.2));
    (units, kind, reviewed, aside, 60..1_100i64).prop_map(move |(text, kind, reviewed, aside, secs)| {
        let tx = tx(n).of(text).at(secs);
        let tx = match kind {
            1 => tx.look_alike(),
            2 => tx.on(Chain::Polygon),
            _ => tx,
        };
        Part { tx, fate: None, clean, reviewed, aside }
    })
}

/// Clean in-time funds. A review lets later transfers pass, so only funds without others beside them are reviewed.
fn clean_parts() -> impl Strategy<Value = Vec<Part>> {
    let several = (part(1, true), part(2, true), part(3, true), 0..=3usize).prop_map(|(a, b, c, count)| {
        let reviewed = |part: Part| Part { reviewed: part.reviewed && count == 1, ..part };
        [a, b, c].map(reviewed)[..count].to_vec()
    });
    let exact = (part(1, true), part(2, true)).prop_map(|(a, b)| {
        let of = |part: Part, text| Part { tx: part.tx.of(text), reviewed: false, ..part };
        vec![of(a, "4"), of(b, "6")]
    });
    prop_oneof![4 => several, 1 => exact]
}

/// Orphans every block from some time on. A transaction of a later block is not mined before one of an earlier block.
fn reorganised(mut parts: Vec<Part>, fork: Option<(i64, Fate)>, gone: &[bool]) -> Vec<Part> {
    if let Some((from, fate)) = fork {
        for (part, gone) in parts.iter_mut().zip(gone).filter(|(part, _)| part.secs() >= from) {
            let is_late = part.secs() >= EXPIRY_SECS;
            part.fate = Some(if *gone && !is_late { Fate::Gone } else { fate });
        }
    }
    parts
}

/// Adds late, blocked, and dust funds. Blocked funds that would pay the payment are generated alone, because the order
/// of blocked and clean funds matters according to the table.
fn parts() -> impl Strategy<Value = (Vec<Part>, bool)> {
    let late = || {
        prop::option::of((part(5, true), 1_200..3_000i64).prop_map(|(part, secs)| Part {
            tx: part.tx.at(secs),
            reviewed: false,
            ..part
        }))
    };
    let beside =
        prop::option::of(part(6, false).prop_map(|part| Part {
            tx: if part.tx.0.amount >= amount("6") { part.tx.of("4") } else { part.tx },
            ..part
        }));
    let paying = (part(7, false), late()).prop_map(|(part, late)| {
        let tainted = Part { tx: part.tx.of("10"), ..part };
        ([tainted].into_iter().chain(late).collect::<Vec<_>>(), false)
    });
    let clean = (clean_parts(), late(), beside).prop_map(|(mut parts, late, beside)| {
        let counted_before = late.is_none();
        parts.extend(late);
        parts.extend(beside);
        (parts, counted_before)
    });
    let fates = prop::sample::select(vec![Fate::ReMined, Fate::Renumbered]);
    let fork = prop::option::of((60..1_500i64, fates));
    let gone = prop::collection::vec(prop::bool::weighted(0.2), 6);
    (prop_oneof![5 => clean, 1 => paying], fork, gone)
        .prop_map(|((parts, counted_before), fork, gone)| (reorganised(parts, fork, &gone), counted_before))
}

/// Shuffles the facts of each step, some of them twice, and merges any of the finalities into one command. The watcher
/// reads past the deadline at any time after it reported everything before the deadline.
fn orders(facts: Facts) -> impl Strategy<Value = Vec<Command>> {
    let Facts { first_branch, reorganisation, last_branch } = facts.clone();
    let twice = |facts: &[Command]| Just([facts, facts].concat()).prop_shuffle();
    let steps = (twice(&first_branch), twice(&reorganisation), twice(&last_branch));
    let stale = Just([first_branch, reorganisation].concat()).prop_shuffle();
    (steps, stale, 0..=1_000usize, prop::bool::ANY).prop_map(move |((first, second, last), stale, place, at_once)| {
        let mut last = if at_once { merged(last) } else { last };
        last.extend(stale);
        last.insert(place * last.len() / 1_000, Command::PassDeadline { chain_time: at(1_000_000) });
        // Facts that open waits requested again.
        let again = facts.last_branch.iter().cloned().chain([Command::PassDeadline { chain_time: at(1_000_000) }]);
        [first, second, last].concat().into_iter().chain(again).collect()
    })
}

/// One command for all finalities, at the place of the last.
fn merged(facts: Vec<Command>) -> Vec<Command> {
    let mut reached = Vec::new();
    let mut others = Vec::new();
    for fact in facts {
        match fact {
            Command::FinaliseTransfers(some) => reached.extend(some),
            other => others.push(other),
        }
    }
    others.push(Command::FinaliseTransfers(reached));
    others
}

fn story() -> impl Strategy<Value = (Vec<Part>, Vec<Command>)> {
    parts().prop_flat_map(|(parts, counted_before)| (Just(parts.clone()), orders(facts(&parts, counted_before))))
}

proptest! {
    #![proptest_config(cases(3_000))]

    #[test]
    fn the_order_of_facts_does_not_matter(
        (parts, order) in story(),
        (tolerance, surplus) in (0..2i64, prop::sample::select(vec!["0", "0.01", "1"])),
        accepts in prop::bool::ANY,
    ) {
        let tolerance = Tolerance { absolute: Amount::from_tokens(tolerance), bps: 0 };
        let overpayment_tolerance = Tolerance { absolute: amount(surplus), bps: 0 };
        let overpayment = if accepts { OverpaymentPolicy::Accept } else { OverpaymentPolicy::Hold };
        let terms = Terms { tolerance, overpayment_tolerance, overpayment, ..terms() };
        let mut story = given(terms.clone());
        for fact in &order {
            let taken = story.run(fact);
            // A transfer that is already listed, or is dust, is not set aside.
            let is_known = matches!(fact, Command::TakeIn { .. }) && taken == Err(Rejection::NothingSetAside);
            prop_assert!(is_known || taken.is_ok(), "{:?}: {:?}", fact, taken);
        }
        prop_assert_eq!(ended(&story.payment), table_says(&held(&parts), &terms), "{:?}", story.payment.history);
    }

    /// Given transfers that were seen and screened in any order, the command that makes them final has the same events,
    /// in whatever order the chain's watcher found out.
    #[test]
    fn every_order_within_one_advance_gives_the_same_events(
        (seen, finals) in prop::collection::vec(part(0, true), 1..6).prop_flat_map(|parts| {
            let numbered: Vec<Part> = (1_u8..).zip(parts)
                .map(|(n, part)| Part { tx: Tx(ObservedTransfer { key: TransferKey { tx_hash: hash(n), ..part.tx.0.key }, ..part.tx.0 }), ..part })
                .collect();
            (Just(numbered.clone()).prop_shuffle(), Just(numbered).prop_shuffle())
        }),
    ) {
        let outcome = |seen: &[Part], finals: &[Part]| {
            let story = seen.iter().fold(given(terms()), |story, part| {
                story.when(part.tx.seen()).when(part.tx.screened(part.decision()))
            });
            let mut story = story;
            story.run(&merged(finals.iter().map(|part| part.tx.finalised()).collect())[0]).unwrap();
            let names: Vec<_> = story.notified.iter().map(|notified| (notified.name, notified.sequence)).collect();
            (story.last.map(|step| step.events.iter().map(Event::name).collect::<Vec<_>>()), names, ended(&story.payment))
        };
        let mut sorted = seen.clone();
        sorted.sort_by_key(|part| part.tx.0.key);
        prop_assert_eq!(outcome(&seen, &finals), outcome(&sorted, &sorted));
    }
}
