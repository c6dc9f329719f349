//! Property tests with any commands in any order: no invariant is violated, known facts change nothing, a replay ends
//! in the same state, and `resume` returns every effect again.

use super::*;
use proptest::prelude::*;

/// Generates facts about a few transactions, under two log indexes, in a few blocks, on two chains, in two tokens.
fn observed() -> impl Strategy<Value = Tx> {
    let place = (1..5u8, 0..2u32, prop::sample::select(vec![60, 61, 1_190, 1_250, 3_000]), 0..4u8);
    (place, 1..6u32, prop::bool::weighted(0.25)).prop_map(|((n, log, secs, fork), revision, gone)| {
        let mut tx = tx(n).log(log).rev(revision).at(secs);
        tx.0.key.block_hash.0[1] = fork;
        // The content of a transfer follows from its key.
        let content =
            usize::from(n) * 31 + usize::try_from(i64::from(log) * 17 + secs).unwrap() + usize::from(fork) * 7;
        let tx = tx.of(["10", "4", "6", "3", "0.5", "0.0005", "12"][content % 7]);
        let tx = match content % 10 {
            0 => tx.look_alike(),
            1 => tx.on(Chain::Polygon),
            2 => tx.from(ELSEWHERE),
            _ => tx,
        };
        if gone { tx.gone() } else { tx }
    })
}

/// The operator lists some of them, each transfer once.
fn taking_in() -> impl Strategy<Value = Command> {
    prop::collection::vec(observed(), 1..4).prop_map(|txs| {
        let mut observed: Vec<ObservedTransfer> = Vec::new();
        for Tx(tx) in txs {
            if observed.iter().all(|other| other.key != tx.key) {
                observed.push(tx);
            }
        }
        Command::TakeIn { observed }
    })
}

fn wish() -> impl Strategy<Value = Command> {
    let some_amount = prop::option::of(prop::sample::select(vec!["1", "2", "4", "10", "13"]));
    let requester = prop::sample::select(Requester::ALL.to_vec());
    let address = || prop::option::of(prop::sample::select(vec![PAYER, ELSEWHERE]));
    let recipient = (address(), address());
    prop_oneof![
        1 => Just(Command::Cancel),
        1 => prop::sample::select(Chain::ALL.to_vec()).prop_map(|chain| Command::ChooseChain { chain }),
        2 => some_amount.clone().prop_map(|text| Command::Accept { expected_received: text.map(amount) }),
        3 => (1..6u128, some_amount, recipient, prop::sample::select(Funds::ALL.to_vec()), requester.clone(), prop::bool::ANY)
            .prop_map(|(n, text, (to, plain), funds, by, hold)| {
                let asset = (funds == Funds::Misdirected).then_some(Asset { chain: Chain::Polygon, address: USDC });
                let amount = text.map(amount);
                let order = RefundOrder { amount, to, funds, asset, plain, hold, ..RefundOrder::new(refund_id(n), by) };
                Command::RequestRefund(Box::new(order))
            }),
        2 => (1..6u128, prop::bool::ANY).prop_map(|(n, approve)| {
            Command::DecideRefund { refund_id: refund_id(n), approve }
        }),
        2 => requester.prop_map(|by| Command::RetrySettlement { by }),
        2 => taking_in(),
        4 => payer_wish(),
    ]
}

/// Requests of payers, and decisions about them.
fn payer_wish() -> impl Strategy<Value = Command> {
    let id = || (1..6u128).prop_map(request_id);
    let text = prop::sample::select(vec!["0.5", "1", "2", "3", "10"]);
    let (to, proof) = (prop::sample::select(vec![PAYER, ELSEWHERE]), prop::sample::select(AddressProof::ALL.to_vec()));
    let elsewhere =
        prop::bool::weighted(0.3).prop_map(|is| is.then_some(Asset { chain: Chain::Polygon, address: USDC }));
    let ask = (id(), text, to, elsewhere, proof, prop::bool::ANY, prop::bool::ANY);
    let asks = ask.prop_map(|(id, text, to, asset, proof, at_once, hold)| {
        let plain = (proof == AddressProof::Signature).then_some(to);
        let amount = amount(text);
        Command::AskRefund(Box::new(RefundAsk { id, amount, to, asset, proof, at_once, plain, hold, note: None }))
    });
    prop_oneof![5 => asks, 1 => id().prop_map(|request_id| Command::DeclineRefundRequest { request_id })]
}

fn outcome() -> impl Strategy<Value = Command> {
    let operation = OperationId::settlement_of(terms().id);
    prop_oneof![
        3 => (1..8u32, 90..93u8, prop::sample::select(vec!["10", "10", "7"])).prop_map(move |(revision, n, text)| {
            let (amount, tx_hash, block_time) = (amount(text), hash(n), at(100));
            Command::CompleteSettlement { operation, revision, amount, tx_hash, block_time }
        }),
        2 => (1..8u32).prop_map(move |revision| Command::FailSettlement { operation, revision, reason: "no".to_owned() }),
        1 => (1..8u32).prop_map(move |revision| Command::OrphanSettlement { operation, revision }),
        2 => (1..6u128, 1..6u32).prop_map(|(n, revision)| Command::CompleteRefund {
            refund_id: refund_id(n), revision, tx_hash: hash(91),
        }),
        1 => (1..6u128, 1..6u32).prop_map(|(n, revision)| Command::FailRefund {
            refund_id: refund_id(n), revision, reason: "no".to_owned(),
        }),
        1 => (0..3usize, 1..6u32).prop_map(|(n, revision)| Command::CompleteRefund {
            refund_id: RefundId::automatic(terms().id, n), revision, tx_hash: hash(91),
        }),
    ]
}

fn command() -> impl Strategy<Value = Command> {
    let decision = prop::sample::select(vec![Decision::Allow, Decision::Allow, Decision::Review, Decision::Block]);
    let times = prop::sample::select(vec![1_100i64, 1_200, 1_300, 1_900, 9_000]);
    prop_oneof![
        6 => observed().prop_map(Tx::seen),
        5 => (observed(), prop::sample::select(vec![Finality::Blocks(2), Finality::Safe, Finality::Finalized])).prop_map(
            |(Tx(ObservedTransfer { key, revision, .. }), reached)| {
                Command::FinaliseTransfers(vec![TransferFinality { key, revision, reached }])
            }
        ),
        5 => (observed(), decision.clone()).prop_map(|(tx, decision)| tx.screened(decision)),
        1 => (observed(), decision).prop_map(|(tx, decision)| tx.decided(decision)),
        2 => times.prop_map(|secs| Command::PassDeadline { chain_time: at(secs) }),
        1 => (0..3u64, 0..1_300i64, 0..900i64).prop_map(|(n, from, long)| Command::MoveDeadline {
            outage: OutageId(n), from: at(from), to: at(from + long),
        }),
        2 => (1..6u128, prop::sample::select(Decision::ALL.to_vec()), prop::bool::ANY).prop_map(|(n, decision, by_operator)| {
            let verdict = Verdict { by_operator, ..verdict(decision) };
            Command::ScreenRefund { refund_id: refund_id(n), verdict }
        }),
        3 => wish(),
        4 => outcome(),
    ]
}

/// Mostly complete arrivals, to reach deep states, mixed with other commands.
fn commands() -> impl Strategy<Value = Vec<Command>> {
    let arrival = observed().prop_map(|tx| vec![tx.seen(), tx.screened(Decision::Allow), tx.finalised()]);
    let steps = prop_oneof![2 => arrival, 5 => command().prop_map(|command| vec![command])];
    prop::collection::vec(steps, 1..40).prop_map(|steps| steps.concat())
}

pub(super) fn any_terms() -> impl Strategy<Value = Terms> {
    let policy =
        prop::sample::select(vec![OverpaymentPolicy::Hold, OverpaymentPolicy::Accept, OverpaymentPolicy::RefundExcess]);
    let finality = prop::sample::select(vec![
        FinalityPolicy::sandbox(),
        FinalityPolicy { small_below: amount("11"), ..FinalityPolicy::default_for(Chain::Base) },
    ]);
    let payer_refunds = prop::sample::select(PayerRefunds::ALL.to_vec());
    let base = prop_oneof![4 => Just(terms()), 1 => Just(terms_of_choice())];
    (base, policy, finality, (prop::bool::ANY, payer_refunds), 0..3_000u16, 0..3i64).prop_map(
        |(base, overpayment, finality, (refund_to_sender, payer_refunds), fee, absolute)| Terms {
            overpayment,
            finality,
            refund_to_sender,
            payer_refunds,
            fee_bps: FeeBps::new(fee).unwrap(),
            tolerance: Tolerance { absolute: Amount::from_tokens(absolute), bps: 0 },
            ..base
        },
    )
}

fn is_fact(command: &Command) -> bool {
    !matches!(
        command,
        Command::Cancel
            | Command::ChooseChain { .. }
            | Command::Accept { .. }
            | Command::RequestRefund(_)
            | Command::DecideRefund { .. }
            | Command::AskRefund(_)
            | Command::DeclineRefundRequest { .. }
            | Command::TakeIn { .. }
    ) && !matches!(command, Command::RetrySettlement { by } if *by != Requester::Schedule)
        && !matches!(command, Command::ScreenTransfer { verdict, .. } | Command::ScreenRefund { verdict, .. } if verdict.by_operator)
}

/// Checks conditions between two steps, in addition to the invariants (which `transition` checks).
fn follows(before: &Payment, step: &Transition, command: &Command) {
    let after = &step.payment;
    assert!(after.transfers.len() >= before.transfers.len() && after.refunds.len() >= before.refunds.len());
    for (old, new) in before.refunds.iter().zip(&after.refunds) {
        let same = (old.id, old.amount, old.to, old.source, old.funds, old.operation);
        assert_eq!(same, (new.id, new.amount, new.to, new.source, new.funds, new.operation), "refunds never change");
    }
    if let Command::AskRefund(ask) = command {
        asked(before, step, ask);
    }
    if let Command::TakeIn { observed } = command {
        let (known, listed) = after.transfers.split_at(before.transfers.len());
        for (old, new) in before.transfers.iter().zip(known) {
            let same = (old.key, old.revision, old.amount, old.status, &old.verdict);
            assert_eq!(same, (new.key, new.revision, new.amount, new.status, &new.verdict), "listed ones stay");
            // The first block time of any part of a transaction counts.
            assert!(new.first_block_time <= old.first_block_time);
        }
        assert!(!listed.is_empty());
        for transfer in listed {
            let of_it = observed.iter().find(|tx| tx.key == transfer.key).expect("observed transfer");
            assert!(before.sets_aside(of_it) && of_it.presence == Presence::Present);
            assert_eq!((transfer.status, transfer.counted), (TransferStatus::Seen, false), "it is processed normally");
        }
        if let [only] = observed.as_slice() {
            let notified = Command::ObserveTransfer(*only);
            let notified = transition(before, &notified, after.updated_at).unwrap().expect("the list has room");
            assert_eq!(notified.payment, *after, "the result is the same as with room at first sight");
        }
    }
    let reorganised = matches!(command, Command::ObserveTransfer(_));
    let carried = if let Command::CompleteSettlement { amount, .. } = command { Some(*amount) } else { None };
    let frozen = |payment: &Payment| matches!(payment.status, Status::Confirmed | Status::Settled);
    if frozen(before) && frozen(after) && !reorganised {
        let settled = |payment: &Payment| payment.settlement.as_ref().map(|s| s.amount);
        // Either the amount that the chain reports, or the rest for another attempt after the chain had moved more.
        let undone = matches!(command, Command::FailSettlement { .. }).then(|| after.settleable());
        let is_lowered = settled(after) < settled(before) && settled(after) == undone;
        let expected = if settled(before) == settled(after) || is_lowered { settled(after) } else { carried };
        assert_eq!(expected, settled(after), "the settled amount is frozen unless the chain reports another");
        assert_eq!(before.amount_received(), after.amount_received(), "the amount received is frozen");
    }
    for operation in &step.operations {
        if let OperationBody::Settle { amount, psp_amount, treasury_fee } = operation.body {
            assert_eq!(operation.id, OperationId::settlement_of(after.id()), "the settlement operation never changes");
            assert_eq!(psp_amount.checked_add(treasury_fee), Some(amount));
        }
    }
    for refund in &after.refunds {
        let is_queued = step.operations.iter().any(|operation| operation.id == refund.operation);
        assert!(!is_queued || refund.is_cleared(), "nothing is sent before it is screened and approved");
        let is_back = after.sole_sender(refund.asset) == Some(refund.to);
        let is_new = before.refunds.len() < after.refunds.len() && after.refunds.last() == Some(refund);
        if is_new && refund.requested_by == Requester::Psp && refund.limit == RefundLimit::None {
            assert!(is_back, "only a refund to the only sender has no limit");
        }
        if refund.awaits_approval() {
            assert_eq!(after.attention(), Some(Label::RefundApproval));
        }
    }
    let owed = resume(after);
    for effect in step.effects.iter().filter(|effect| !matches!(effect, Effect::Alarm(_))) {
        assert!(owed.contains(effect), "{effect:?} is not returned by resume: {owed:?}");
    }
    let notified: Vec<_> = step.events.iter().map(Event::name).collect();
    for announcement in &step.announcements {
        let body = payload(after, announcement, EventId::from_ulid(Ulid(1))).unwrap();
        assert!(body.contains(announcement.name.as_str()), "{notified:?}: {body}");
    }
}

/// A request of a payer moves nothing that another rule may use, and no more than the account sent.
fn asked(before: &Payment, step: &Transition, ask: &RefundAsk) {
    let after = &step.payment;
    assert_eq!(after.refund_requests.len(), before.refund_requests.len() + 1);
    assert!(ask.amount <= before.returnable_in(ask.asset), "within the limit");
    assert_ne!(before.terms.payer_refunds, PayerRefunds::Off);
    let is_carried_out = after.refunds.len() > before.refunds.len();
    assert_eq!(is_carried_out, ask.at_once && ask.proof == AddressProof::Signature);
    let settled = |payment: &Payment| payment.settlement.as_deref().map(|it| (it.state, it.amount));
    assert_eq!((settled(before), before.status), (settled(after), after.status), "no settlement is withdrawn");
    assert!(step.postings.is_empty() && step.operations.is_empty(), "no money moves before screening");
    if ask.proof == AddressProof::Signature {
        let from = |t: &&Transfer| {
            t.from == ask.to
                && t.status == TransferStatus::Final
                && after.asset_of(t) == ask.asset.unwrap_or(after.asset())
        };
        let sent: Amount = after.transfers.iter().filter(from).map(|t| t.amount).sum();
        let to_it = |r: &&Refund| {
            r.requested_by == Requester::Payer
                && r.to == ask.to
                && r.asset == ask.asset
                && r.state != RefundState::Failed
        };
        let back: Amount = after.refunds.iter().filter(to_it).map(|refund| refund.amount).sum();
        let is_upset = after.labels.contains(Label::Reorged);
        assert!(is_upset || back <= sent, "{back} of {sent}");
    }
}

/// Returns the payment that these commits make when they are stored and replayed, and their postings. The rules decide the same
/// again.
fn replayed(commits: &[(Vec<Event>, Timestamp)], commands: &[&Command]) -> (Payment, Vec<Posting>) {
    let (mut payment, mut posted) = (None, Vec::new());
    let commands = std::iter::once(None).chain(commands.iter().map(Some));
    for (version, ((events, at), command)) in (1..).zip(commits.iter().zip(commands)) {
        let stored = |command: &&Command| serde_json::to_string(command).unwrap();
        let read = |text: String| serde_json::from_str::<Command>(&text).unwrap().completed_from(events);
        let command = command.map(stored).map(read);
        let stored = StoredTransition { version, at: *at, events: events.clone(), command };
        let Replayed { transition, difference, violated } = replay(payment, &stored).unwrap();
        assert_eq!((difference, violated), (None, None));
        posted.extend(transition.postings);
        payment = Some(transition.payment);
    }
    (payment.unwrap(), posted)
}

proptest! {
    #![proptest_config(cases(1_500))]

    #[test]
    fn random_commands_keep_every_invariant(terms in any_terms(), commands in commands()) {
        let mut story = given(terms);
        let mut effective = Vec::new();
        for command in &commands {
            let before = story.payment.clone();
            let changed = story.run(command);
            effective.extend((changed == Ok(true)).then_some(command));
            match (&changed, &story.last) {
                (Ok(true), Some(step)) => follows(&before, step, command),
                (Err(_), _) => prop_assert!(!is_fact(command), "a fact was rejected: {:?}", command),
                _ => prop_assert_eq!(&story.payment, &before),
            }
            if matches!((command, &changed), (Command::TakeIn { .. }, Ok(true))) {
                prop_assert_eq!(story.run(command), Err(Rejection::NothingSetAside), "no transfer is listed twice");
            }
            if is_fact(command) && !matches!(command, Command::RetrySettlement { .. }) {
                prop_assert_eq!(story.run(command), Ok(false), "a known fact changed the payment: {:?}", command);
            }
        }
        let (replayed, posted) = replayed(&story.commits, &effective);
        prop_assert_eq!(&replayed, &story.payment);
        prop_assert_eq!(&posted, &story.posted);
        let stored = serde_json::to_string(&story.payment).unwrap();
        prop_assert_eq!(&serde_json::from_str::<Payment>(&stored).unwrap(), &story.payment);
        let events: Vec<&Event> = story.commits.iter().flat_map(|(events, _)| events).collect();
        let stored = serde_json::to_string(&events).unwrap();
        let read: Vec<Event> = serde_json::from_str(&stored).unwrap();
        prop_assert_eq!(read.iter().collect::<Vec<_>>(), events);
    }
}

#[test]
fn a_payment_is_small() {
    assert!(size_of::<Payment>() <= 832, "{} bytes", size_of::<Payment>());
    let stored = serde_json::to_string(&given(terms()).payment).unwrap();
    assert!(stored.len() <= 1_200, "{} bytes: {stored}", stored.len());
}

#[test]
fn reads_rows_of_newer_and_older_versions() {
    let story = paid().settlement_fails(1);
    let mut row = serde_json::to_value(&story.payment).unwrap();
    row["from_the_future"] = 1.into();
    row["labels"] = serde_json::json!(["SETTLEMENT_FAILED", "FROM_THE_FUTURE"]);
    row["history"][1]["reason"] = "from_the_future".into();
    let read: Payment = serde_json::from_value(row.clone()).unwrap();
    assert_eq!(read.labels, story.payment.labels);
    assert_eq!(read.history[1].reason, Reason::Unknown);
    for field in ["sequence", "labels", "refunds", "outages", "passed_at", "remine_until"] {
        row.as_object_mut().unwrap().remove(field);
        serde_json::from_value::<Payment>(row.clone()).unwrap();
    }
}
