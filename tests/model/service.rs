//! Everything that can happen next in a state, and the state after it.

use std::collections::{BTreeMap, BTreeSet};

use stateright::{Model, Property};

use crate::chain::{Amount, Call, Chain, Effect, Event, FINALIZED_BLOCKS, Number, Operation, Script, Tx};
use crate::payment::{Command, DUE, Outcome, Payment, PaymentRules, SettlementState, Status, TransferState};
use crate::properties;
use crate::scenario::{PAYOUT, Pause, Rules, Scenario};
use crate::settler::{OperationRow, OperationStatus, Settler};
use crate::state::{Action, Database, Message, Payout, PayoutState, State};
use crate::watcher::Watcher;

/// The model of one scenario.
#[derive(Clone, Debug)]
pub struct Service {
    /// Scenario.
    pub scenario: Scenario,
    /// Content of the chain.
    pub script: Script,
}

impl Service {
    /// Model of a scenario.
    pub fn new(scenario: Scenario) -> Self {
        let script = Script {
            payers: scenario.payers.clone(),
            psp_balance: scenario.psp_balance,
            valid_before: scenario.valid_before,
            once_only: scenario.rules.once_only,
        };
        Self { scenario, script }
    }

    fn payment_rules(&self) -> PaymentRules {
        let Rules { final_together, waits_for_collection, .. } = self.scenario.rules;
        PaymentRules { holds_back: final_together, waits_for_collection, screens: self.scenario.screens }
    }

    /// Depth of a block in which an operation fails for good.
    fn failure_depth(&self) -> u8 {
        if self.scenario.rules.fails_when_finalized { FINALIZED_BLOCKS } else { self.scenario.tier_blocks }
    }

    /// True if no payouts are accepted or sent.
    pub fn is_paused(&self, state: &State) -> bool {
        match self.scenario.rules.pause {
            Pause::Never => false,
            Pause::UnknownTransaction => state.database.settler.unknown(&state.chain).next().is_some(),
        }
    }

    fn command(&self, database: &mut Database, payment: u8, command: &Command) {
        let rules = self.payment_rules();
        for change in database.payments[usize::from(payment)].apply(rules, command) {
            database.settler.change(Operation::Settle(payment), change);
        }
        if let Command::Observe(observed) = command {
            database.watcher.mark_applied(payment, *observed);
        }
    }

    fn deliver(&self, database: &mut Database, message: &Message) {
        match message {
            Message::Observed(payment, observed) => self.command(database, *payment, &Command::Observe(*observed)),
            Message::Final(payment, reached) => {
                self.apply_recorded(database, *payment);
                self.command(database, *payment, &Command::Finalise(reached.clone()));
            }
            Message::Outcome(operation, revision, outcome) => {
                match *operation {
                    Operation::Settle(id) => self.command(database, id, &Command::Settlement(*revision, *outcome)),
                    Operation::Collect(id, attempt) => {
                        self.command(database, id, &Command::Collection(attempt, *revision, *outcome));
                    }
                    Operation::Send(id) => apply_to_payout(database, id, *revision, *outcome),
                }
                if matches!(outcome, Outcome::Completed(_)) {
                    database.settler.succeeded(*operation, *revision);
                }
            }
        }
    }

    /// Applies the recorded rows that the payment has not applied.
    fn apply_recorded(&self, database: &mut Database, payment: u8) {
        if self.scenario.rules.reads_recorded {
            let recorded: Vec<_> = database.watcher.unapplied().filter(|(owner, _)| *owner == payment).collect();
            for (_, observed) in recorded {
                self.command(database, payment, &Command::Observe(observed));
            }
        }
    }

    /// Steps of the environment.
    fn environment(&self, state: &State, actions: &mut Vec<Action>) {
        let State { chain, database, left, .. } = state;
        if left.blocks > 0 {
            for txs in chain.minable() {
                let sends =
                    |tx: &Tx| matches!(tx, Tx::Signed { call, .. } if matches!(call.operation, Operation::Send(_)));
                if txs.iter().any(sends) {
                    actions.push(Action::Mine(txs.clone(), true));
                }
                actions.push(Action::Mine(txs, false));
            }
        }
        if left.reorgs > 0 {
            for depth in 1..=self.scenario.reorg_blocks_max.min(chain.len() - 1) {
                let replacements = chain.replacements(depth);
                actions.extend(replacements.into_iter().map(|replacement| Action::Reorganise(depth, replacement)));
            }
        }
        if left.crashes > 0 && !state.messages.is_empty() {
            actions.push(Action::Crash);
        }
        if left.losses > 0 {
            actions.extend(state.messages.iter().cloned().map(Action::Lose));
        }
        if left.restores > 0 {
            actions.push(if state.backup.is_none() { Action::BackUp } else { Action::Restore });
        }
        if left.authorizations > 0 {
            let payments =
                (0..self.scenario.payments).filter(|payment| Self::accepts_authorization(database, *payment));
            actions.extend(payments.map(Action::Authorize));
        }
        if left.payouts > 0 && !self.is_paused(state) && self.available(database) >= PAYOUT {
            actions.push(Action::RequestPayout);
        }
    }

    /// True if the payment accepts an authorization, and the settler may submit one: no transfer awaits a decision.
    fn may_collect(database: &Database, payment: u8) -> bool {
        let payment = &database.payments[usize::from(payment)];
        payment.status == Status::Pending && !payment.awaits_transfer() && payment.counted() == 0
    }

    fn accepts_authorization(database: &Database, payment: u8) -> bool {
        use OperationStatus::{Failed, Succeeded};
        let is_open = |(operation, row): (&Operation, &OperationRow)| {
            matches!(operation, Operation::Collect(of, _) if *of == payment)
                && !matches!(row.status, Failed | Succeeded)
        };
        Self::may_collect(database, payment) && !database.settler.operations.iter().any(is_open)
    }

    /// Balance of the PSP in the ledger.
    fn available(&self, database: &Database) -> Amount {
        let is_used = |payout: &&Payout| payout.state != PayoutState::Failed;
        let used = database.payouts.values().filter(is_used).count();
        self.scenario.psp_balance.saturating_sub(PAYOUT * Amount::try_from(used).unwrap_or(Amount::MAX))
    }

    /// Steps of the service.
    pub fn service(&self, state: &State, actions: &mut Vec<Action>) {
        self.watcher_steps(state, actions);
        if self.scenario.settles {
            self.settler_steps(state, actions);
        }
        actions.extend(state.messages.iter().cloned().map(Action::Deliver));
    }

    fn watcher_steps(&self, state: &State, actions: &mut Vec<Action>) {
        let State { chain, database, messages, .. } = state;
        let watcher = &database.watcher;
        if let Some(fork) = watcher.fork(chain) {
            actions.push(Action::Unwind(fork));
        } else {
            // The next block, or all of them.
            let (next, all) = (watcher.len() + 1, chain.len());
            actions.extend((next <= all).then_some(Action::Read(next)));
            actions.extend((next < all).then_some(Action::Read(all)));
        }
        let lost = watcher.unapplied().filter(|(owner, row)| !messages.contains(&Message::Observed(*owner, *row)));
        actions.extend(lost.map(Action::Sweep));
        for (id, payment) in (0..).zip(&database.payments) {
            let awaits = |message: &Message| matches!(message, Message::Final(of, _) if *of == id);
            // Waits know the number of the block only. The block itself may be orphaned.
            let is_reached = |number: Number| watcher.reached(number, self.scenario.tier_blocks);
            let transfers = payment.transfers.iter();
            let reached = transfers.filter(|(_, t)| t.state == TransferState::Seen && is_reached(t.number));
            let reached: Vec<_> = reached.map(|(key, transfer)| (*key, transfer.revision)).collect();
            if self.scenario.rules.final_together {
                if !reached.is_empty() && !messages.iter().any(awaits) {
                    actions.push(Action::ReportFinal(id, reached));
                }
            } else {
                let each = reached.into_iter().map(|one| vec![one]);
                let each = each.filter(|one| !messages.contains(&Message::Final(id, one.clone())));
                actions.extend(each.map(|one| Action::ReportFinal(id, one)));
            }
            let unscreened = payment.transfers.iter().filter(|(_, t)| t.is_present() && !t.is_screened);
            actions.extend(unscreened.map(|(key, _)| Action::Screen(id, *key)));
        }
    }

    fn settler_steps(&self, state: &State, actions: &mut Vec<Action>) {
        let State { chain, database, messages, .. } = state;
        let Database { watcher, settler, .. } = database;
        let events = chain.events(&self.script);
        for (&nonce, row) in &settler.txs {
            let unsent = settler.unsent(chain, nonce);
            if unsent.is_none() && row.attempts < self.scenario.attempts_max && chain.next_nonce() == nonce {
                actions.push(Action::Replace(nonce));
            }
            actions.extend(unsent.map(|tx| Action::Broadcast(nonce, tx)));
            actions.extend(settler.can_see_mined(chain, nonce).then_some(Action::SeeMined(nonce)));
            actions.extend(settler.can_see_orphaned(chain, watcher, nonce).then_some(Action::SeeOrphaned(nonce)));
            actions.extend(settler.is_taken(chain, watcher, nonce).then_some(Action::GiveUp(nonce)));
            let failed = settler.failed(watcher, &events, nonce, self.failure_depth());
            // An authorization fails by its own rule below.
            let failed = failed.filter(|operation| !matches!(operation, Operation::Collect(..)));
            actions.extend(failed.map(Action::Fail));
        }
        for (&operation, row) in &settler.operations {
            let may_sign = match operation {
                Operation::Settle(_) => true,
                Operation::Send(_) => !self.is_paused(state),
                Operation::Collect(payment, _) => Self::may_collect(database, payment),
            };
            let call = Call { operation, amount: row.amount };
            if row.status == OperationStatus::Queued && may_sign && chain.simulate(&self.script, call).is_ok() {
                actions.push(Action::Sign(operation));
            }
            if let Operation::Collect(payment, attempt) = operation
                && self.authorization_failed(watcher, settler, &events, payment, attempt)
            {
                actions.push(Action::Fail(operation));
            }
            let done = settler.done_elsewhere(watcher, &events, operation);
            actions.extend(done.map(|_| Action::FindDone(operation)));
            let report = self.report(database, operation);
            let report = report.map(|(revision, outcome)| (operation, revision, outcome));
            let is_new = |(operation, revision, outcome): &(Operation, u8, Outcome)| {
                !messages.contains(&Message::Outcome(*operation, *revision, *outcome))
            };
            actions.extend(report.filter(is_new).map(|(op, revision, outcome)| Action::Report(op, revision, outcome)));
        }
        for (id, payment) in (0..).zip(&database.payments) {
            let is_failed = payment.settlement.as_ref().is_some_and(|one| one.state == SettlementState::Failed);
            actions.extend((is_failed && payment.status == Status::Confirmed).then_some(Action::Retry(id)));
        }
        let is_final = |number, block| watcher.stands(number, block) && watcher.reached(number, FINALIZED_BLOCKS);
        let unknown = settler.unknown(chain).filter(|(_, _, number, block)| is_final(*number, *block));
        actions.extend(unknown.map(|(nonce, ..)| Action::Reconcile(nonce)));
    }

    /// True if an attempt has failed: in the finalized blocks its nonce is used elsewhere, or the time is up, and it
    /// was not collected.
    fn authorization_failed(
        &self,
        watcher: &Watcher,
        settler: &Settler,
        events: &[Event],
        payment: u8,
        attempt: u8,
    ) -> bool {
        use OperationStatus::{Queued, Submitted};
        let operation = Operation::Collect(payment, attempt);
        let finalized = watcher.len().saturating_sub(FINALIZED_BLOCKS - 1);
        let is_final = |event: &&Event| event.number < finalized && watcher.stands(event.number, event.block);
        let used = Effect::UsedElsewhere(payment, attempt);
        let is_used = events.iter().filter(is_final).any(|event| event.effect == used);
        let is_collected = events.iter().filter(is_final).any(|event| event.paid(operation).is_some());
        let is_over = finalized > self.scenario.valid_before;
        matches!(settler.status(operation), Some(Queued | Submitted)) && !is_collected && (is_used || is_over)
    }

    /// The outcome that the owner of an operation has not applied.
    fn report(&self, database: &Database, operation: Operation) -> Option<(u8, Outcome)> {
        let row = database.settler.row(operation)?;
        let outcome = match (row.status, row.block) {
            (OperationStatus::Failed, _) => Outcome::Failed,
            (OperationStatus::Mined, Some((number, block))) => {
                let stands = database.watcher.stands(number, block);
                let is_final = database.watcher.reached(number, self.scenario.tier_blocks);
                (stands && is_final).then_some(Outcome::Completed(row.amount))?
            }
            _ => return None,
        };
        let is_applied = match operation {
            Operation::Settle(id) => {
                database.payments[usize::from(id)].settlement.as_ref().is_none_or(|one| one.revision >= row.revision)
            }
            Operation::Collect(id, attempt) => {
                database.payments[usize::from(id)].collection >= Some((attempt, row.revision))
            }
            Operation::Send(id) => database.payouts.get(&id).is_none_or(|payout| payout.revision >= row.revision),
        };
        (!is_applied).then_some((row.revision, outcome))
    }

    fn reconcile(&self, chain: &Chain, database: &mut Database, nonce: u8) {
        let events = chain.events(&self.script);
        let unknown: Vec<_> = database.settler.unknown(chain).filter(|(n, ..)| *n == nonce).collect();
        for (_, call, number, block) in unknown {
            let paid = events
                .iter()
                .any(|event| (event.number, event.block) == (number, block) && event.paid(call.operation).is_some());
            if let Operation::Send(id) = call.operation
                && paid
            {
                database.payouts.entry(id).or_insert(Payout { state: PayoutState::Sent, revision: 0 });
            }
            database.settler.reconciled.push(nonce);
        }
    }
}

fn apply_to_payout(database: &mut Database, id: u8, revision: u8, outcome: Outcome) {
    let Some(payout) = database.payouts.get_mut(&id).filter(|payout| payout.revision < revision) else { return };
    payout.revision = revision;
    match outcome {
        Outcome::Completed(_) => payout.state = PayoutState::Sent,
        Outcome::Failed => payout.state = PayoutState::Failed,
        // The settler sends it again.
        Outcome::Orphaned => {}
    }
}

impl Model for Service {
    type State = State;
    type Action = Action;

    fn init_states(&self) -> Vec<State> {
        let payments = vec![Payment::default(); usize::from(self.scenario.payments)];
        let (watcher, settler, payouts) = (Watcher::default(), Settler::default(), BTreeMap::new());
        vec![State {
            chain: Chain::new(&self.script),
            database: Database { watcher, payments, settler, payouts },
            backup: None,
            messages: BTreeSet::new(),
            accepted: 0,
            signed: 0,
            left: self.scenario.budget,
        }]
    }

    fn actions(&self, state: &State, actions: &mut Vec<Action>) {
        self.environment(state, actions);
        self.service(state, actions);
    }

    fn next_state(&self, state: &State, action: Action) -> Option<State> {
        let mut next = state.clone();
        let State { chain, database, backup, messages, accepted, signed, left } = &mut next;
        let mut undone = None;
        match action {
            Action::Mine(txs, refuses) => {
                left.blocks -= 1;
                chain.mine(txs, 0, refuses);
            }
            Action::Reorganise(depth, replacement) => {
                left.reorgs -= 1;
                chain.reorganise(depth, replacement);
            }
            Action::Crash => {
                left.crashes -= 1;
                messages.clear();
            }
            Action::Lose(message) => {
                left.losses -= 1;
                messages.remove(&message);
            }
            Action::BackUp => *backup = Some(Box::new(database.clone())),
            Action::Restore => {
                left.restores -= 1;
                messages.clear();
                *database = *backup.take()?;
            }
            Action::Authorize(payment) => {
                left.authorizations -= 1;
                let attempt = *signed;
                *signed += 1;
                database.settler.queue(Operation::Collect(payment, attempt), DUE);
                if self.scenario.elsewhere {
                    chain.waiting.insert(Tx::Elsewhere(payment, attempt));
                }
            }
            Action::RequestPayout => {
                left.payouts -= 1;
                let id = *accepted;
                *accepted += 1;
                database.payouts.insert(id, Payout { state: PayoutState::Reserved, revision: 0 });
                database.settler.queue(Operation::Send(id), PAYOUT);
            }
            Action::Unwind(fork) => {
                let changes = database.watcher.unwind(fork);
                messages.extend(changes.into_iter().map(|(payment, row)| Message::Observed(payment, row)));
            }
            Action::Read(to) => {
                let block_in_key = self.scenario.rules.block_in_key;
                let changes = database.watcher.read(chain, &self.script, to, block_in_key);
                messages.extend(changes.into_iter().map(|(payment, row)| Message::Observed(payment, row)));
            }
            Action::ReportFinal(payment, reached) => drop(messages.insert(Message::Final(payment, reached))),
            Action::Sweep((payment, row)) => drop(messages.insert(Message::Observed(payment, row))),
            Action::Screen(payment, key) => {
                let is_final = |payment: &Payment| payment.transfers[&key].state == TransferState::Final;
                if is_final(&database.payments[usize::from(payment)]) {
                    self.apply_recorded(database, payment);
                }
                self.command(database, payment, &Command::Screen(key));
            }
            Action::Deliver(message) => {
                messages.remove(&message);
                self.deliver(database, &message);
            }
            Action::Sign(operation) => {
                database.settler.sign(chain, operation);
                if let Operation::Collect(payment, _) = operation {
                    self.command(database, payment, &Command::SubmitCollection);
                }
            }
            Action::Broadcast(_, tx) => drop(chain.waiting.insert(tx)),
            Action::Replace(nonce) => database.settler.txs.get_mut(&nonce)?.attempts += 1,
            Action::SeeMined(nonce) => {
                undone = database.settler.see_mined(chain, &chain.events(&self.script), nonce);
            }
            Action::SeeOrphaned(nonce) => {
                undone = database.settler.see_orphaned(chain, &chain.events(&self.script), nonce);
            }
            Action::Fail(operation) => database.settler.fail(operation),
            Action::FindDone(operation) => {
                let events = chain.events(&self.script);
                let done = database.settler.done_elsewhere(&database.watcher, &events, operation)?;
                database.settler.record_done(&done, operation);
            }
            Action::GiveUp(nonce) => database.settler.give_up(nonce),
            Action::Report(operation, revision, outcome) => {
                messages.insert(Message::Outcome(operation, revision, outcome));
            }
            Action::Retry(payment) => self.command(database, payment, &Command::Retry),
            Action::Reconcile(nonce) => self.reconcile(chain, database, nonce),
        }
        if let Some((operation, revision)) = undone {
            next.messages.insert(Message::Outcome(operation, revision, Outcome::Orphaned));
        }
        Some(next)
    }

    fn properties(&self) -> Vec<Property<Self>> {
        let reaches = self.scenario.reaches.iter().map(|(name, condition)| Property::sometimes(name, *condition));
        properties::all().into_iter().chain(reaches).collect()
    }
}
