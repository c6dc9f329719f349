//! One step of the ledger check: the new postings, a part of the balances, and a part of all other rows.
//!
//! A step reads one snapshot. Related rows are committed together, so any difference in the snapshot is an error.

use std::collections::{BTreeMap, BTreeSet};

use payferry_domain::ledger::{Account, Asset, Holdings};
use payferry_domain::{Amount, Timestamp};
use payferry_entities::{Database, Transaction, find_all, payments, query_all, sendings};
use payferry_journal::chain::unknown_sent::UNKNOWN_SENT_PREFIX;
use payferry_journal::lists::{text_list, texts_of};
use payferry_journal::outbound as sending_store;
use payferry_journal::payments::{StoreError, payment_of};
use payferry_journal::postings::DEPOSIT_PREFIX;
use sea_orm::{ConnectionTrait, DbErr, FromQueryResult, QueryResult};

use super::findings::{Compared, Findings, ImbalanceKind, Where};
use super::metrics;
use super::sums::{Key, STEP, Sums};

/// Balances per step; the next step continues after them.
const BALANCES_MAX: usize = 2_000;
/// Maximum number of balances per step whose postings are summed up from the beginning, because they seem to be wrong.
const SUMS_AGAIN_MAX: usize = 20;
/// Maximum number of payments, payouts, and withdrawals with new postings that a step compares. Others are left to the
/// walk.
const TOUCHED_MAX: usize = 500;
/// Maximum number of subjects with imbalances that a step compares again.
const KNOWN_MAX: usize = 100;
/// Payments per step of the walk over all payments.
const WALK_PAYMENTS: usize = 100;
/// Payouts and withdrawals per step of the walk.
const WALK_OUTBOUND: usize = 20;

/// Progress of the ledger check.
#[derive(Default)]
pub(crate) struct CheckProgress {
    sums: Sums,
    position: i64,
    /// Postings up to this position were compared with their subjects, or left to the walk.
    touched_position: i64,
    balances_after: Key,
    payments_after: String,
    sendings_after: String,
}

/// States and postings of some payments, payouts, and withdrawals.
#[derive(Default)]
struct Subjects {
    /// By public id: the PSP, and the balances that its accounts must have.
    states: BTreeMap<String, (String, Holdings)>,
    /// Ids of rows that cannot be read, which are not checked.
    unreadable: BTreeSet<String>,
}

impl CheckProgress {
    /// Runs one step; returns true if all postings were read.
    pub(crate) async fn once_more(
        &mut self,
        database: &Database,
        findings: &Findings,
        now: Timestamp,
    ) -> Result<bool, DbErr> {
        let snapshot = database.snapshot().await?;
        let step = self.sums.step(&snapshot, self.position).await?;
        self.position = step.position;
        let caught_up = step.postings < STEP;
        if caught_up {
            self.at_balances(&snapshot, findings, now).await?;
            self.at_subjects(&snapshot, findings, now).await?;
        }
        self.touched_position = self.position;
        snapshot.rollback().await?;
        findings.at(self.position, caught_up.then_some(now));
        Ok(caught_up)
    }

    /// Compares running balances with sums, and checks that accounts are not negative.
    async fn at_balances(&mut self, snapshot: &Transaction, findings: &Findings, now: Timestamp) -> Result<(), DbErr> {
        let page = balances(snapshot, &self.balances_after).await?;
        let last = (page.len() == BALANCES_MAX).then(|| page.last_key_value()).flatten().map(|(key, _)| key.clone());
        let posted = self.sums.keys(&self.balances_after, last.as_ref()).cloned();
        let keys: BTreeSet<Key> = page.keys().cloned().chain(posted).collect();
        let (mut compared, mut checked_len, mut again) = (Vec::new(), BTreeSet::new(), 0);
        for key in keys {
            let Some(asset) = key.asset() else { continue };
            let (available, reserved) = page.get(&key).copied().unwrap_or_default();
            let doubtful = |sums: &Sums| {
                let sum = sums.of(&key);
                [(Account::Psp, sum.psp, available), (Account::InFlight, sum.in_flight, reserved)].map(
                    |(account, expected, found)| of_psp(ImbalanceKind::Balance, &key, asset, account, expected, found),
                )
            };
            let is_new = |one: &Compared| one.expected != one.found && !findings.knows(one);
            if doubtful(&self.sums).iter().any(is_new) {
                if again == SUMS_AGAIN_MAX {
                    continue;
                }
                again += 1;
                self.sums.again(snapshot, &key).await?;
            }
            compared.extend(doubtful(&self.sums));
            let sum = self.sums.of(&key);
            for (account, least, held) in [
                (Account::Psp, -sum.ungated, sum.psp),
                (Account::InFlight, 0, sum.in_flight),
                (Account::Treasury, 0, sum.treasury),
            ] {
                compared.push(of_psp(ImbalanceKind::Negative, &key, asset, account, least, held.min(least)));
            }
            checked_len.insert((key.psp_id, asset));
        }
        let about =
            |place: &Where| place.subject.is_none() && checked_len.contains(&(place.psp_id.clone(), place.asset));
        findings.take(about, compared, now);
        self.balances_after = last.unwrap_or_default();
        Ok(())
    }

    /// Compares payments, payouts, and withdrawals with their postings.
    async fn at_subjects(&mut self, snapshot: &Transaction, findings: &Findings, now: Timestamp) -> Result<(), DbErr> {
        let mut wanted: BTreeSet<String> = findings.subjects(KNOWN_MAX).into_iter().collect();
        wanted.extend(touched(snapshot, self.touched_position, self.position).await?);
        // A deposit and an unknown outbound transfer have no state beside their posting.
        wanted.retain(|subject| ![DEPOSIT_PREFIX, UNKNOWN_SENT_PREFIX].iter().any(|one| subject.starts_with(one)));
        let mut subjects = Subjects::default();
        subjects.read(snapshot, &wanted).await?;
        let payments = after::<payments::Model>(snapshot, "payments", &self.payments_after, WALK_PAYMENTS).await?;
        let sendings = after::<sendings::Model>(snapshot, "sendings", &self.sendings_after, WALK_OUTBOUND).await?;
        for row in &payments {
            subjects.payment(row);
        }
        for row in &sendings {
            subjects.outbound(row);
        }
        wanted.extend(subjects.states.keys().cloned());
        let posted = posted(snapshot, &wanted).await?;
        let mut compared = Vec::new();
        let nothing = Holdings::default();
        for subject in wanted.iter().filter(|subject| !subjects.unreadable.contains(*subject)) {
            let (state, posted) = (subjects.states.get(subject), posted.get(subject));
            let Some((psp_id, _)) = state.or(posted) else { continue };
            let of = |side: Option<&(String, Holdings)>| side.map_or_else(|| nothing.clone(), |(_, held)| held.clone());
            for (asset, account, expected, found) in of(state).differences(&of(posted)) {
                let subject = Some(subject.clone());
                let place = Where { kind: ImbalanceKind::State, psp_id: psp_id.clone(), asset, account, subject };
                compared.push(Compared { place, expected, found });
            }
        }
        wanted.retain(|subject| !subjects.unreadable.contains(subject));
        metrics::CHECKED.add(&[], wanted.len() as u64);
        findings.take(|place| place.subject.as_ref().is_some_and(|subject| wanted.contains(subject)), compared, now);
        // A short page is the last one: the walk starts again.
        self.payments_after = next(payments.len(), WALK_PAYMENTS, payments.into_iter().last().map(|row| row.id));
        self.sendings_after = next(sendings.len(), WALK_OUTBOUND, sendings.into_iter().last().map(|row| row.id));
        Ok(())
    }
}

fn next(read: usize, page: usize, last: Option<String>) -> String {
    last.filter(|_| read == page).unwrap_or_default()
}

fn of_psp(kind: ImbalanceKind, key: &Key, asset: Asset, account: Account, expected: i64, found: i64) -> Compared {
    Compared { place: Where { kind, psp_id: key.psp_id.clone(), asset, account, subject: None }, expected, found }
}

impl Subjects {
    /// Reads the payments, payouts, and withdrawals that exist.
    async fn read(&mut self, snapshot: &Transaction, wanted: &BTreeSet<String>) -> Result<(), DbErr> {
        // In the ledger, a transfer to a customer has another prefix than the payment that implements it.
        let of_payments = wanted.iter().filter_map(|id| match id.split_once('_')? {
            ("pay", _) => Some(id.clone()),
            ("tr", rest) => Some(format!("pay_{rest}")),
            _ => None,
        });
        for row in by_id::<payments::Model>(snapshot, "payments", of_payments).await? {
            self.payment(&row);
        }
        let of_sendings = wanted.iter().filter(|id| id.starts_with("po_") || id.starts_with("wd_")).cloned();
        for row in by_id::<sendings::Model>(snapshot, "sendings", of_sendings).await? {
            self.outbound(&row);
        }
        Ok(())
    }

    fn payment(&mut self, row: &payments::Model) {
        match payment_of(row) {
            Ok(payment) => {
                self.states.insert(payment.terms.public_id(), (row.psp_id.clone(), payment.holdings()));
            }
            Err(error) => self.leave_out(&row.id, &error),
        }
    }

    fn outbound(&mut self, row: &sendings::Model) {
        match sending_store::outbound_of(row) {
            Ok(outbound) => {
                self.states.insert(row.id.clone(), (row.psp_id.clone(), outbound.holdings()));
            }
            Err(error) => self.leave_out(&row.id, &error),
        }
    }

    fn leave_out(&mut self, id: &str, error: &StoreError) {
        tracing::warn!(%error, "{id} cannot be compared with its postings: {error}");
        self.unreadable.extend([id.to_owned(), id.replacen("pay_", "tr_", 1)]);
    }
}

/// Returns the next balances: available and reserved.
async fn balances(snapshot: &Transaction, after: &Key) -> Result<BTreeMap<Key, (i64, i64)>, DbErr> {
    let sql = format!(
        "SELECT psp_id, chain, token_address, available, reserved FROM balances \
         WHERE (psp_id, chain, token_address) > ($1, $2, $3) ORDER BY psp_id, chain, token_address LIMIT {BALANCES_MAX}"
    );
    let values = [&after.psp_id, &after.chain, &after.token_address].map(|text| text.as_str().into());
    let rows = query_all(snapshot, &sql, values).await?;
    rows.iter().map(|row| Ok((Key::read(row)?, (row.try_get_by_index(3)?, row.try_get_by_index(4)?)))).collect()
}

/// Returns the subjects of postings between two positions, at most [`TOUCHED_MAX`].
async fn touched(snapshot: &Transaction, after: i64, to: i64) -> Result<Vec<String>, DbErr> {
    if after >= to {
        return Ok(Vec::new());
    }
    let sql = format!(
        "SELECT DISTINCT subject FROM ledger_postings WHERE position > $1 AND position <= $2 LIMIT {TOUCHED_MAX}"
    );
    let rows = query_all(snapshot, &sql, [after.into(), to.into()]).await?;
    rows.iter().map(|row| row.try_get_by_index(0)).collect()
}

/// Returns the PSP and the sum of the postings of these subjects.
async fn posted(
    snapshot: &Transaction,
    subjects: &BTreeSet<String>,
) -> Result<BTreeMap<String, (String, Holdings)>, DbErr> {
    let sql = format!(
        "SELECT subject, psp_id, chain, token_address, debit, credit, CAST(SUM(amount) AS BIGINT) FROM ledger_postings \
         WHERE subject IN ({}) GROUP BY subject, psp_id, chain, token_address, debit, credit",
        texts_of(snapshot.get_database_backend(), 1)
    );
    let mut posted: BTreeMap<String, (String, Holdings)> = BTreeMap::new();
    for row in query_all(snapshot, &sql, [text_list(subjects.iter())?]).await? {
        let (_, holdings) =
            posted.entry(row.try_get_by_index(0)?).or_insert((row.try_get_by_index(1)?, Holdings::default()));
        let asset = Asset { chain: parsed(&row, 2)?, address: parsed(&row, 3)? };
        holdings.moved(asset, parsed(&row, 4)?, parsed(&row, 5)?, Amount(row.try_get_by_index(6)?));
    }
    Ok(posted)
}

fn parsed<T: std::str::FromStr>(row: &QueryResult, index: usize) -> Result<T, DbErr> {
    let text: String = row.try_get_by_index(index)?;
    text.parse().map_err(|_| DbErr::Custom(format!("a posting contains the unknown name {text}")))
}

async fn by_id<M: FromQueryResult>(
    snapshot: &Transaction,
    table: &str,
    ids: impl Iterator<Item = String>,
) -> Result<Vec<M>, DbErr> {
    let sql = format!("SELECT * FROM {table} WHERE id IN ({})", texts_of(snapshot.get_database_backend(), 1));
    find_all(snapshot, &sql, [text_list(ids)?]).await
}

async fn after<M: FromQueryResult>(
    snapshot: &Transaction,
    table: &str,
    after: &str,
    limit: usize,
) -> Result<Vec<M>, DbErr> {
    let sql = format!("SELECT * FROM {table} WHERE id > $1 ORDER BY id LIMIT {limit}");
    find_all(snapshot, &sql, [after.into()]).await
}
