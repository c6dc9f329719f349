//! Live pages of the operator: rendered on the server, complete without scripts, refreshed by one small script.
//!
//! Pages are at `/ops` and under `/ops/view/`; all other paths under `/ops` are for programs. Pages read the same data
//! as programs, from `operator::read` and the supervision tree. Forms make changes through `operator::admin`.
//! Deliberately absent: a build step, content from other origins, and lists that grow with the number of payments.

mod actor;
mod chains;
mod customers;
mod decisions;
mod deliveries;
mod desk;
mod failure;
mod form;
mod incidents;
mod keys;
mod operations;
mod overview;
mod pauses;
mod payment;
mod payments;
mod permanent;
mod psps;
mod sendings;
mod shard;
mod shell;
mod stuck;
mod timeline;
mod tree;
mod wallets;
mod webhooks;
mod words;

use super::routes::{Route, read, write};

pub(super) use shell::outside;

/// Routes of every page and every form. Only GET pages may be live: the script fetches the page's own URL again.
pub(super) fn routes() -> Vec<Route> {
    vec![
        read("/ops", overview::show),
        read("/ops/view/incidents", incidents::show),
        read("/ops/view/stuck", stuck::show),
        read("/ops/view/actors/{kind}/{name}", permanent::show),
        read("/ops/view/shards/{shard}", shard::show),
        read("/ops/view/payments", payment::find),
        read("/ops/view/payments/{payment_id}", payment::show),
        write("/ops/view/payments/{payment_id}/release", payment::release),
        read("/ops/view/payments/{payment_id}/decide", decisions::show),
        write("/ops/view/payments/{payment_id}/screen", decisions::screen),
        write("/ops/view/payments/{payment_id}/screen_refund", decisions::screen_refund),
        write("/ops/view/payments/{payment_id}/refund_blocked", decisions::refund_blocked),
        write("/ops/view/payments/{payment_id}/retry_settlement", decisions::retry_settlement),
        write("/ops/view/payments/{payment_id}/take_in", decisions::take_in),
        read("/ops/view/sendings", desk::show),
        read("/ops/view/sendings/{sending_id}", sendings::show),
        write("/ops/view/sendings/{sending_id}/screen", sendings::screen),
        write("/ops/view/sendings/{sending_id}/release", sendings::release),
        read("/ops/view/chains/{chain}", chains::show),
        read("/ops/view/webhooks", webhooks::list),
        read("/ops/view/webhooks/{psp_id}", webhooks::show),
        read("/ops/view/customers", customers::list),
        read("/ops/view/customers/{customer_id}", customers::show),
        write("/ops/view/customers/{customer_id}/decide", customers::decide),
        read("/ops/view/pauses", pauses::show),
        write("/ops/view/pauses", pauses::set),
        write("/ops/view/pauses/{scope}/lift", pauses::lift),
        read("/ops/view/psps", psps::list),
        write("/ops/view/psps", psps::create),
        read("/ops/view/psps/{psp_id}", psps::show),
        write("/ops/view/psps/{psp_id}", psps::change),
        write("/ops/view/psps/{psp_id}/withdrawal-wallets", wallets::set),
        write("/ops/view/psps/{psp_id}/keys", keys::create),
        write("/ops/view/psps/{psp_id}/keys/{key_id}/revoke", keys::revoke),
    ]
}

/// Path of a page, or of a group of pages.
fn path(what: &str) -> String {
    format!("/ops/view/{what}")
}
