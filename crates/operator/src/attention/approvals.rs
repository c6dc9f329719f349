//! Actions of operators that wait for a second operator.

use std::sync::LazyLock;

use payferry_actors::System;
use payferry_domain::Timestamp;
use payferry_entities::approvals;
use sea_orm::DbErr;

use crate::approvals::store::{Approval, ApprovalStatus, approval};
use crate::attention::{AttentionItem, Found, Part};
use crate::decisions::query::Possible;
use crate::query::{Count, rows};

// The first condition is that of the partial index. Closed approvals have no key.
static OPEN: LazyLock<String> = LazyLock::new(|| {
    let approved = ApprovalStatus::Approved;
    format!("FROM approvals WHERE open_key IS NOT NULL AND (status = '{approved}' OR expires_at > $1)")
});

/// Open approvals, oldest first.
pub(super) async fn of(system: &System, part: Part<'_>) -> Result<Found, DbErr> {
    let now: Timestamp = system.clock().real_now();
    let database = system.database();
    let total = Count::rows(database, &OPEN, [now.as_millis().into()]).await?;
    let sql = part.sql(&OPEN, &["created_at", "id"]);
    let rows: Vec<approvals::Model> = rows(database, sql, part.values(now.as_millis().into())).await?;
    let items = rows.into_iter().map(|row| Ok(item(&approval(row)?, now)));
    Ok((total, items.collect::<Result<_, DbErr>>()?))
}

fn item(approval: &Approval, now: Timestamp) -> AttentionItem {
    let (id, words, by) = (approval.id, approval.action.words(), &approval.proposed_by);
    let (reason, can) = if approval.status == ApprovalStatus::Approved {
        (format!("{words}: approved and not carried out yet"), Vec::new())
    } else {
        let can = |action| Possible { action, path: format!("/ops/approvals/{id}/{action}") };
        (format!("{words}: proposed by {by}"), vec![can("approve"), can("reject")])
    };
    let item = AttentionItem::new(id.to_string(), Some(approval.created_at), now, reason);
    let payment_id = approval.action.payment().map(|payment| payment.to_string());
    AttentionItem { payment_id, psp_id: Some(approval.psp_id.to_string()), can, ..item }
}
