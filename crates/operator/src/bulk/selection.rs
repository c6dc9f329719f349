//! Subjects that a filter finds.

use std::collections::{BTreeMap, HashMap};

use payferry_actors::observe::{ActorSubject, Quarantinable};
use payferry_domain::payment::{Label, Payment};
use payferry_domain::{Amount, PaymentId, PspId, RefundId, Timestamp};
use payferry_entities::{DeliveryStatus, payments};
use payferry_httpkit::ApiError;
use sea_orm::{ColumnTrait, DbErr, EntityTrait, QueryFilter, QueryOrder, QuerySelect};
use sha2::{Digest, Sha256};

use super::{BULK_ITEMS_MAX, BulkAction, BulkFilter, BulkSum};
use crate::Operator;
use crate::actors::quarantine;
use crate::decisions::query::possible;
use crate::lists::deliveries;

/// Maximum number of subjects that a filter is applied to.
const SCANNED_MAX: usize = 10_000;
/// Deliveries that are read at once.
const DELIVERIES_AT_ONCE: u64 = 1_000;
/// Maximum number of such pages: each reads at most `lists::SCANNED_MAX` events.
const DELIVERY_PAGES_MAX: usize = 20;
/// Rows of payments that are read at once.
const ROWS_AT_ONCE: usize = 500;

/// One subject of an action.
#[derive(Debug, Clone)]
pub(crate) struct Candidate {
    pub(super) target: Target,
    pub(super) id: String,
    /// The payment, payout, withdrawal or customer that it is about.
    pub(super) subject: String,
    pub(super) psp_id: Option<String>,
    pub(super) chain: Option<String>,
    /// Amount and token.
    pub(super) money: Option<(Amount, String)>,
    pub(super) reason: String,
}

/// The object of the action.
#[derive(Debug, Clone)]
pub(super) enum Target {
    Quarantined(Quarantinable),
    Delivery(PspId, String),
    Settlement(PaymentId),
    Refund(PaymentId, RefundId),
}

/// Subjects that a filter finds, oldest first.
pub(crate) struct Selection {
    pub(super) candidates: Vec<Candidate>,
    /// True if the filter finds more.
    pub(super) more: bool,
}

impl Selection {
    /// Name of the action on exactly these subjects.
    pub(super) fn name(&self, action: BulkAction) -> String {
        let mut digest = Sha256::new().chain_update(action.as_str());
        for candidate in &self.candidates {
            digest.update(" ");
            digest.update(&candidate.id);
        }
        let start = digest.finalize().iter().take(8).fold(0_u64, |number, byte| number << 8 | u64::from(*byte));
        format!("{start:016x}")
    }

    /// Money of the subjects by currency.
    pub(super) fn sums(&self) -> Vec<BulkSum> {
        let mut sums: BTreeMap<&str, Amount> = BTreeMap::new();
        for (amount, currency) in self.candidates.iter().filter_map(|candidate| candidate.money.as_ref()) {
            let sum = sums.entry(currency).or_default();
            *sum = sum.saturating_add(*amount);
        }
        sums.into_iter()
            .map(|(currency, amount)| BulkSum { currency: currency.to_owned(), amount: amount.to_string() })
            .collect()
    }
}

/// Finds the subjects.
pub(super) async fn find(operator: &Operator, filter: &BulkFilter) -> Result<Selection, ApiError> {
    let now: Timestamp = operator.system.clock().now();
    let (mut candidates, mut more) = match filter.action {
        BulkAction::Release => quarantined(operator).await?,
        BulkAction::Redeliver => deliveries(operator, filter).await?,
        BulkAction::RetrySettlement => {
            of_payments(operator, Label::SettlementFailed, |payment| settlement(payment, now)).await?
        }
        BulkAction::ApproveRefund => of_payments(operator, Label::RefundApproval, refunds).await?,
    };
    candidates.retain(|candidate| filter.matches(candidate));
    if candidates.len() > BULK_ITEMS_MAX {
        candidates.truncate(BULK_ITEMS_MAX);
        more = true;
    }
    Ok(Selection { candidates, more })
}

impl BulkFilter {
    fn matches(&self, candidate: &Candidate) -> bool {
        let psp = self.psp_id.is_none_or(|psp| candidate.psp_id.as_deref() == Some(&psp.to_string()));
        let chain = self.chain.is_none_or(|chain| candidate.chain.as_deref() == Some(chain.as_str()));
        let wanted = self.contains.as_ref().map(|text| text.to_lowercase());
        psp && chain && wanted.is_none_or(|text| candidate.reason.to_lowercase().contains(&text))
    }
}

/// Quarantined subjects.
async fn quarantined(operator: &Operator) -> Result<(Vec<Candidate>, bool), DbErr> {
    let system = &operator.system;
    let all = system.given_up(None, SCANNED_MAX);
    let more = all.len() == SCANNED_MAX;
    let ids: Vec<String> = all.iter().map(|one| one.id.to_string()).collect();
    let mut rows: HashMap<String, payments::Model> = HashMap::new();
    for ids in ids.chunks(ROWS_AT_ONCE) {
        let found = payments::Entity::find().filter(payments::Column::Id.is_in(ids)).all(system.database().reader());
        rows.extend(found.await?.into_iter().map(|row| (row.id.clone(), row)));
    }
    let mut candidates = Vec::with_capacity(all.len());
    for one in all {
        let id = one.id.to_string();
        let row = rows.get(&id);
        let psp_id = match (row, one.id) {
            (Some(row), _) => Some(row.psp_id.clone()),
            (None, Quarantinable::Actor(ActorSubject::Payment(_))) => None,
            (None, of) => quarantine::psp_of(system, of).await?.map(|psp| psp.to_string()),
        };
        candidates.push(Candidate {
            target: Target::Quarantined(one.id),
            subject: id.clone(),
            psp_id,
            chain: row.map(|row| row.chain.clone()),
            money: row.map(|row| (Amount(row.amount), row.token.clone())),
            reason: one.quarantine.reason,
            id,
        });
    }
    Ok((candidates, more))
}

/// Deliveries with the status of the filter.
async fn deliveries(operator: &Operator, filter: &BulkFilter) -> Result<(Vec<Candidate>, bool), DbErr> {
    let status = Some(filter.status.unwrap_or(DeliveryStatus::Exhausted));
    let wanted = deliveries::Filter { status, psp_id: filter.psp_id };
    let (mut candidates, mut after) = (Vec::new(), None);
    for _ in 0..DELIVERY_PAGES_MAX {
        let page = deliveries::read(&operator.system, wanted, after, DELIVERIES_AT_ONCE).await?;
        candidates.extend(page.rows.into_iter().filter_map(delivery));
        after = page.next;
        if after.is_none() || candidates.len() >= SCANNED_MAX {
            break;
        }
    }
    // The list has the newest event first.
    candidates.reverse();
    Ok((candidates, after.is_some()))
}

fn delivery(row: deliveries::Row) -> Option<Candidate> {
    let error = row.error.map(|error| format!(": {error}")).unwrap_or_default();
    Some(Candidate {
        target: Target::Delivery(row.psp_id.parse().ok()?, row.id.clone()),
        id: row.id,
        subject: row.payment_id,
        psp_id: Some(row.psp_id),
        chain: None,
        money: None,
        reason: format!("{}{error}", row.name),
    })
}

/// Candidates among the payments for which this label is the most urgent one.
async fn of_payments(
    operator: &Operator,
    label: Label,
    candidates_of: impl Fn(&Payment) -> Vec<Candidate>,
) -> Result<(Vec<Candidate>, bool), DbErr> {
    let query = payments::Entity::find().filter(payments::Column::Attention.eq(label.as_str()));
    let query = query.order_by_asc(payments::Column::UpdatedAt).order_by_asc(payments::Column::Id);
    let rows = query.limit(SCANNED_MAX as u64).all(operator.system.database().reader()).await?;
    let readable = rows.iter().filter_map(|row| payferry_journal::payments::payment_of(row).ok());
    Ok((readable.flat_map(|payment| candidates_of(&payment)).collect(), rows.len() == SCANNED_MAX))
}

fn settlement(payment: &Payment, now: Timestamp) -> Vec<Candidate> {
    let can = possible(payment, now).iter().any(|possible| possible.action == "retry_settlement");
    let Some(settlement) = payment.settlement.as_deref().filter(|_| can) else { return Vec::new() };
    let terms = &payment.terms;
    vec![Candidate {
        target: Target::Settlement(payment.id()),
        id: payment.id().to_string(),
        subject: payment.id().to_string(),
        psp_id: Some(terms.psp_id.to_string()),
        chain: Some(terms.chain.to_string()),
        money: Some((settlement.amount, terms.token.to_string())),
        reason: settlement.failure.clone().unwrap_or_default(),
    }]
}

fn refunds(payment: &Payment) -> Vec<Candidate> {
    let waiting = payment.refunds.iter().filter(|refund| refund.awaits_approval());
    let candidate = |refund: &payferry_domain::payment::Refund| {
        let asset = refund.asset.unwrap_or_else(|| payment.asset());
        let token = payment.token_of(asset).map_or_else(|| asset.address.to_string(), |token| token.to_string());
        Candidate {
            target: Target::Refund(payment.id(), refund.id),
            id: refund.id.to_string(),
            subject: payment.id().to_string(),
            psp_id: Some(payment.terms.psp_id.to_string()),
            chain: Some(asset.chain.to_string()),
            money: Some((refund.amount, token)),
            reason: format!("to {}", refund.to.checksummed()),
        }
    };
    waiting.map(candidate).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn candidate(id: &str, money: Option<(i64, &str)>) -> Candidate {
        Candidate {
            target: Target::Settlement(PaymentId::generate()),
            id: id.to_owned(),
            subject: id.to_owned(),
            psp_id: None,
            chain: None,
            money: money.map(|(units, currency)| (Amount(units), currency.to_owned())),
            reason: "Out of Gas".to_owned(),
        }
    }

    fn selection(candidates: Vec<Candidate>) -> Selection {
        Selection { candidates, more: false }
    }

    #[test]
    fn the_name_depends_on_the_action_and_on_every_subject() {
        let (one, other) = (candidate("pay_1", None), candidate("pay_2", None));
        let name = selection(vec![one.clone(), other.clone()]).name(BulkAction::Release);
        assert_eq!(name, selection(vec![one.clone(), other.clone()]).name(BulkAction::Release));
        for different in [
            selection(vec![one.clone(), other.clone()]).name(BulkAction::Redeliver),
            selection(vec![one.clone()]).name(BulkAction::Release),
            selection(vec![other, one]).name(BulkAction::Release),
        ] {
            assert_ne!(name, different);
        }
    }

    #[test]
    fn money_is_added_by_currency() {
        let all = [("a", Some((1_000_000, "USDC"))), ("b", Some((500_000, "USDT"))), ("c", Some((250_000, "USDC")))];
        let all = all.into_iter().chain([("d", None)]).map(|(id, money)| candidate(id, money)).collect();
        let sums: Vec<_> = selection(all).sums().into_iter().map(|sum| (sum.currency, sum.amount)).collect();
        assert_eq!(sums, [("USDC".to_owned(), "1.25".to_owned()), ("USDT".to_owned(), "0.50".to_owned())]);
    }

    #[test]
    fn a_text_matches_in_any_case() {
        let filter = |text: &str| BulkFilter {
            action: BulkAction::Release,
            psp_id: None,
            chain: None,
            contains: Some(text.to_owned()),
            status: None,
        };
        let subject = candidate("pay_1", None);
        assert!(filter("out of gas").matches(&subject) && !filter("blocked").matches(&subject));
    }
}
