//! PSPs: names and policies.

use std::collections::BTreeMap;
use std::fmt;

use payferry_domain::payment::{OverpaymentPolicy, PayerRefunds};
use payferry_domain::{Amount, Chain, FeeBps, FinalityPolicy, PspId, Timestamp};
use payferry_entities::{Database, Transaction, psps};
use payferry_journal::audit::Actor;
use payferry_journal::psps::{Ceilings, Color, EventFamilies, PspPolicies, ReturnUrl};
use sea_orm::{
    ActiveModelTrait, EntityTrait, IntoActiveModel, PaginatorTrait, QueryFilter, QueryOrder, QuerySelect, QueryTrait,
    Set,
};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};
use serde_with::{DeserializeFromStr, SerializeDisplay};

use super::{Name, Slice, TenantError, newer};

/// A PSP.
#[derive(Debug, Clone)]
pub struct PspRecord {
    /// Id of the PSP.
    pub id: PspId,
    /// Display name.
    pub name: String,
    /// Policies for its payments.
    pub policies: PspPolicies,
    /// Time of creation.
    pub created_at: Timestamp,
    /// Time of the last change.
    pub updated_at: Timestamp,
}

/// Policies to change; the others stay.
#[derive(Debug, Clone, Default)]
pub struct PolicyChange {
    /// The treasury's share of each settlement.
    pub fee_bps: Option<FeeBps>,
    /// Accepted underpayment, as an amount.
    pub tolerance: Option<Amount>,
    /// Accepted underpayment, in basis points of the due amount.
    pub tolerance_bps: Option<u16>,
    /// Surplus that is excess instead of an overpayment, as an amount.
    pub overpayment_tolerance: Option<Amount>,
    /// Surplus that is excess instead of an overpayment, in basis points of the due amount.
    pub overpayment_tolerance_bps: Option<u16>,
    /// Treatment of overpayments.
    pub overpayment: Option<OverpaymentPolicy>,
    /// True if refunds without an address may go to the sender.
    pub refund_to_sender: Option<bool>,
    /// Handling of requests of payers for a refund.
    pub payer_refunds: Option<PayerRefunds>,
    /// True if every payment must name its customer.
    pub require_customer: Option<bool>,
    /// Transfers below this are ignored.
    pub dust_floor: Option<Amount>,
    /// Families of event names that are sent.
    pub event_families: Option<EventFamilies>,
    /// Required finality on these chains; on others it stays.
    pub finality: BTreeMap<Chain, OwnOrDefault<FinalityPolicy>>,
    /// Limits of outbound transfers.
    pub limits: LimitChange,
    /// Appearance of the payer's page.
    pub checkout: CheckoutChange,
}

/// Appearance of the payer's page to change: the rest stays, and `Some(None)` removes a value.
#[derive(Debug, Clone, Default)]
#[allow(clippy::option_option, reason = "a value, its removal, or no change")]
pub struct CheckoutChange {
    /// Name above the payment.
    pub name: Option<Option<String>>,
    /// Colour of the name's background and of buttons.
    pub color: Option<Option<Color>>,
    /// Target of the link at the end of a payment.
    pub return_url: Option<Option<ReturnUrl>>,
    /// Hash of the logo.
    pub logo: Option<Option<String>>,
}

/// Limits of outbound transfers to change; the others stay.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct LimitChange {
    /// Maximum amount of a single outbound transfer.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub send_max: Option<OwnOrDefault<Amount>>,
    /// Maximum amount of outbound transfers in a token on one UTC day.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub send_daily_max: Option<OwnOrDefault<Amount>>,
    /// Maximum amount of refunds in a token to other addresses than the payer's on one UTC day.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub refund_elsewhere_daily_max: Option<OwnOrDefault<Amount>>,
}

/// A PSP's own value, or the configured default.
#[derive(Debug, Clone, Copy, PartialEq, Eq, SerializeDisplay, DeserializeFromStr)]
pub enum OwnOrDefault<T> {
    /// The configured default.
    Default,
    /// The PSP's own value.
    Own(T),
}

/// The request's word for [`OwnOrDefault::Default`].
pub const DEFAULT_WORD: &str = "default";

impl<T> OwnOrDefault<T> {
    fn own(self) -> Option<T> {
        match self {
            Self::Default => None,
            Self::Own(own) => Some(own),
        }
    }
}

impl<T: std::str::FromStr> std::str::FromStr for OwnOrDefault<T> {
    type Err = T::Err;

    fn from_str(text: &str) -> Result<Self, T::Err> {
        if text == DEFAULT_WORD { Ok(Self::Default) } else { text.parse().map(Self::Own) }
    }
}

impl<T: fmt::Display> fmt::Display for OwnOrDefault<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Default => f.write_str(DEFAULT_WORD),
            Self::Own(own) => own.fmt(f),
        }
    }
}

impl LimitChange {
    /// Splits the change into the limits that it raises for a PSP with these policies, and the others. `configured` are
    /// the limits of PSPs without their own.
    pub fn split_raised(self, policies: &PspPolicies, configured: Ceilings) -> (Self, Self) {
        let now = policies.ceilings(configured);
        let split = |limit: Option<OwnOrDefault<Amount>>, now: Amount, configured: Amount| {
            let is_raised = limit.is_some_and(|limit| limit.own().unwrap_or(configured) > now);
            if is_raised { (limit, None) } else { (None, limit) }
        };
        let send_max = split(self.send_max, now.send_max, configured.send_max);
        let send_daily_max = split(self.send_daily_max, now.send_daily_max, configured.send_daily_max);
        let refund_elsewhere_daily_max = split(
            self.refund_elsewhere_daily_max,
            now.refund_elsewhere_daily_max,
            configured.refund_elsewhere_daily_max,
        );
        let raised = Self {
            send_max: send_max.0,
            send_daily_max: send_daily_max.0,
            refund_elsewhere_daily_max: refund_elsewhere_daily_max.0,
        };
        let others = Self {
            send_max: send_max.1,
            send_daily_max: send_daily_max.1,
            refund_elsewhere_daily_max: refund_elsewhere_daily_max.1,
        };
        (raised, others)
    }

    /// Returns true if nothing changes.
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }
}

impl From<LimitChange> for PolicyChange {
    fn from(limits: LimitChange) -> Self {
        Self { limits, ..Self::default() }
    }
}

impl PolicyChange {
    /// Applies the change.
    pub fn apply(self, policies: &mut PspPolicies) {
        set(&mut policies.fee_bps, self.fee_bps);
        set(&mut policies.tolerance.absolute, self.tolerance);
        set(&mut policies.tolerance.bps, self.tolerance_bps);
        set(&mut policies.overpayment_tolerance.absolute, self.overpayment_tolerance);
        set(&mut policies.overpayment_tolerance.bps, self.overpayment_tolerance_bps);
        set(&mut policies.overpayment, self.overpayment);
        set(&mut policies.refund_to_sender, self.refund_to_sender);
        set(&mut policies.payer_refunds, self.payer_refunds);
        set(&mut policies.require_customer, self.require_customer);
        set(&mut policies.dust_floor, self.dust_floor);
        set(&mut policies.event_families, self.event_families);
        let LimitChange { send_max, send_daily_max, refund_elsewhere_daily_max } = self.limits;
        set(&mut policies.send_max, send_max.map(OwnOrDefault::own));
        set(&mut policies.send_daily_max, send_daily_max.map(OwnOrDefault::own));
        set(&mut policies.refund_elsewhere_daily_max, refund_elsewhere_daily_max.map(OwnOrDefault::own));
        let CheckoutChange { name, color, return_url, logo } = self.checkout;
        set(&mut policies.checkout.name, name);
        set(&mut policies.checkout.color, color);
        set(&mut policies.checkout.return_url, return_url);
        set(&mut policies.checkout.logo, logo);
        for (chain, tiers) in self.finality {
            match tiers {
                OwnOrDefault::Default => policies.finality.remove(&chain),
                OwnOrDefault::Own(own) => policies.finality.insert(chain, own),
            };
        }
    }
}

fn set<T>(place: &mut T, value: Option<T>) {
    if let Some(value) = value {
        *place = value;
    }
}

/// The row of a new PSP.
pub fn psp_row(id: PspId, name: &str, policies: &PspPolicies, now: Timestamp) -> psps::Model {
    let at = now.as_millis();
    psps::Model {
        id: id.to_string(),
        name: name.to_owned(),
        settings: settings(policies),
        created_at: at,
        updated_at: at,
    }
}

/// Creates a PSP with the default policies and these changes.
pub async fn create(
    database: &Database,
    name: &Name,
    change: PolicyChange,
    now: Timestamp,
) -> Result<PspRecord, TenantError> {
    let (id, mut policies) = (PspId::generate(), PspPolicies::default());
    change.apply(&mut policies);
    let row = psp_row(id, name.as_str(), &policies, now);
    let record = record(row.clone())?;
    let transaction = database.begin().await?;
    psps::Entity::insert(row.into_active_model()).exec_without_returning(&transaction).await?;
    super::write_down(&transaction, "psp.created", id, id.to_string(), json!(policies), &Actor::Operator, now).await?;
    transaction.commit().await?;
    Ok(record)
}

/// Lists PSPs, oldest first, with the total.
pub async fn list(database: &Database, slice: Slice) -> Result<(u64, Vec<PspRecord>), TenantError> {
    let total = psps::Entity::find().count(database.reader()).await?;
    let rows = psps::Entity::find()
        .apply_if(slice.after, |query, after| query.filter(newer([psps::Column::CreatedAt, psps::Column::Id], after)))
        .order_by_asc(psps::Column::CreatedAt)
        .order_by_asc(psps::Column::Id)
        .limit(slice.limit)
        .offset(slice.offset)
        .all(database.reader())
        .await?;
    Ok((total, rows.into_iter().map(record).collect::<Result<_, _>>()?))
}

/// Reads a PSP.
pub async fn find(database: &Database, id: PspId) -> Result<PspRecord, TenantError> {
    let row = psps::Entity::find_by_id(id.to_string()).one(database.reader()).await?;
    record(row.ok_or(TenantError::NoPsp(id))?)
}

/// Changes a PSP for the operator. Policies apply to payments created from then on.
pub async fn change(
    database: &Database,
    id: PspId,
    name: Option<&Name>,
    change: PolicyChange,
    now: Timestamp,
) -> Result<PspRecord, TenantError> {
    let transaction = database.begin().await?;
    let (psp, _) = change_in(&transaction, id, name, change, &Actor::Operator, now).await?;
    transaction.commit().await?;
    Ok(psp)
}

/// Like [`change`], in a transaction that the caller commits. Returns true if anything changed. Each changed value is
/// written to the audit log with its old and new state.
pub async fn change_in(
    transaction: &Transaction,
    id: PspId,
    name: Option<&Name>,
    change: PolicyChange,
    by: &Actor,
    now: Timestamp,
) -> Result<(PspRecord, bool), TenantError> {
    let (row, before) = locked(transaction, id).await?;
    let mut policies = before.policies.clone();
    change.apply(&mut policies);
    let mut differences = differences(&json!(before.policies), &json!(policies));
    let mut row = row.into_active_model();
    if let Some(name) = name.filter(|name| name.as_str() != before.name) {
        differences.insert("name".to_owned(), json!({ "from": before.name, "to": name.as_str() }));
        row.name = Set(name.as_str().to_owned());
    }
    if differences.is_empty() {
        return Ok((before, false));
    }
    row.settings = Set(settings(&policies));
    row.updated_at = Set(now.as_millis());
    let changed = row.update(transaction).await?;
    super::write_down(transaction, "psp.changed", id, id.to_string(), Value::Object(differences), by, now).await?;
    Ok((record(changed)?, true))
}

/// Reads a PSP that no other transaction changes until this one ends.
pub async fn lock(transaction: &Transaction, id: PspId) -> Result<PspRecord, TenantError> {
    Ok(locked(transaction, id).await?.1)
}

/// Locks the row where the database has more than one writer, so that no concurrent change is lost.
async fn locked(transaction: &Transaction, id: PspId) -> Result<(psps::Model, PspRecord), TenantError> {
    let row = psps::Entity::find_by_id(id.to_string()).lock_exclusive().one(transaction).await?;
    let row = row.ok_or(TenantError::NoPsp(id))?;
    let psp = record(row.clone())?;
    Ok((row, psp))
}

/// The fields that differ, with their old and new values.
fn differences(before: &Value, after: &Value) -> Map<String, Value> {
    let fields = after.as_object().into_iter().flatten().filter(|(name, value)| before[name.as_str()] != **value);
    fields.map(|(name, value)| (name.clone(), json!({ "from": before[name.as_str()], "to": value }))).collect()
}

fn settings(policies: &PspPolicies) -> String {
    serde_json::to_string(policies).expect("policies serialise as JSON")
}

fn record(row: psps::Model) -> Result<PspRecord, TenantError> {
    let unreadable = |what| TenantError::Unreadable(what, row.id.clone());
    Ok(PspRecord {
        id: row.id.parse().map_err(|_| unreadable("the id"))?,
        policies: serde_json::from_str(&row.settings).map_err(|_| unreadable("the settings"))?,
        created_at: Timestamp(row.created_at),
        updated_at: Timestamp(row.updated_at),
        name: row.name,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_limits_above_the_present_ones_are_raised() {
        let amount = |text: &str| text.parse::<Amount>().unwrap();
        let configured = Ceilings::default();
        let own = PspPolicies { send_max: Some(amount("500")), ..PspPolicies::default() };
        let change = |once: &str, daily: &str| LimitChange {
            send_max: Some(once.parse().unwrap()),
            send_daily_max: Some(daily.parse().unwrap()),
            ..LimitChange::default()
        };
        let raised = |change: LimitChange, policies: &PspPolicies| change.split_raised(policies, configured);
        let (up, others) = raised(change("501", "1"), &own);
        assert_eq!(json!(up), json!({ "send_max": "501.00" }));
        assert_eq!(json!(others), json!({ "send_daily_max": "1.00" }));
        // The configured limit is higher than the PSP's own.
        assert_eq!(json!(raised(change("default", "default"), &own).0), json!({ "send_max": "default" }));
        assert!(raised(change("default", "default"), &PspPolicies::default()).0.is_empty());
        assert!(raised(change("500", "50000"), &own).0.is_empty());
        assert_eq!(
            serde_json::from_value::<LimitChange>(json!({ "send_max": "default" })).unwrap().send_max,
            Some(OwnOrDefault::Default)
        );
    }
}
