//! PSPs and their policies: forms over the functions of the API (`crate::psps`). Keys and withdrawal wallets have
//! their own panels.

use axum::extract::{Path, Query};
use axum::response::{IntoResponse, Redirect, Response};
use maud::{Markup, html};
use payferry_accounts::tenants::{self, DEFAULT_WORD, PspRecord, Slice};
use payferry_actors::pauses::{Held, Scope};
use payferry_domain::payment::OverpaymentPolicy;
use payferry_domain::{Amount, Timestamp};
use serde::Deserialize;

use crate::approvals;
use crate::page::form::{Filled, Sort, ticked};
use crate::page::words::{ago, done, grouped, head, offset_pages, panel};
use crate::page::{Failure, NavSection, Page, Refused, id_of, path};
use crate::psps::keys::{self, Keys};
use crate::psps::policies::BPS_MAX;
use crate::psps::withdrawal::{self, WalletRecord};
use crate::{Operator, pauses, psps};

const PSPS_MAX: u64 = 50;
const OVERPAYMENT: [(&str, &str); 3] =
    [("hold", "the PSP decides"), ("accept", "settle everything"), ("refund_excess", "refund the excess")];

const EVENT_FAMILIES: [(&str, &str); 3] =
    [("both", "payment.* and payin.*"), ("payment", "payment.* only"), ("payin", "payin.* only")];

const PAYER_REFUNDS: [(&str, &str); 3] =
    [("off", "not offered"), ("approve", "the PSP decides"), ("sender", "signed ones at once")];

/// Fields of a PSP, named as in the API.
const PSP_FIELDS: [(&str, Sort); 15] = [
    ("name", Sort::Text),
    ("fee_bps", Sort::Whole),
    ("tolerance", Sort::Text),
    ("tolerance_bps", Sort::Whole),
    ("overpayment_tolerance", Sort::Text),
    ("overpayment_tolerance_bps", Sort::Whole),
    ("overpayment", Sort::Text),
    ("refund_to_sender", Sort::Box),
    ("payer_refunds", Sort::Text),
    ("require_customer", Sort::Box),
    ("dust_floor", Sort::Text),
    ("event_families", Sort::Text),
    ("send_max", Sort::Text),
    ("send_daily_max", Sort::Text),
    ("refund_elsewhere_daily_max", Sort::Text),
];
/// Fields of a new PSP. The policies are set on its own page.
const NEW_PSP_FIELDS: [(&str, Sort); 1] = [("name", Sort::Text)];

/// Offset of the list.
#[derive(Deserialize)]
pub(crate) struct Part {
    offset: Option<u64>,
}

/// Result of the last form, and the page of the keys.
#[derive(Deserialize)]
pub(crate) struct PspPageQuery {
    done: Option<String>,
    keys: Option<u32>,
}

/// `/ops/view/psps`: all PSPs.
pub(crate) async fn list(operator: Operator, Query(part): Query<Part>) -> Result<Response, Failure> {
    Ok(list_page(&operator, part.offset.unwrap_or_default(), &Filled::default()).await?.into_response())
}

/// Creates a PSP and redirects to it.
pub(crate) async fn create(operator: Operator, filled: Filled) -> Result<Response, Refused> {
    let read = || filled.read(&NEW_PSP_FIELDS, |fields| psps::read_new(fields, operator.system.chains()));
    let outcome = async {
        let (name, change) = read()?;
        psps::make(&operator, &name, change).await
    };
    match filled.answered(outcome.await)? {
        Ok(psp) => Ok(Redirect::to(&format!("{}/{}", path("psps"), psp.id)).into_response()),
        Err(refused) => Ok(list_page(&operator, 0, &refused.filled).await?.answer_form(refused.status)),
    }
}

/// `/ops/view/psps/{psp_id}`: one PSP.
pub(crate) async fn show(
    operator: Operator,
    Path(psp_id): Path<String>,
    Query(shown): Query<PspPageQuery>,
) -> Result<Response, Failure> {
    let site = PspPage::with_keys_from(&operator, &psp_id, shown.keys.unwrap_or_default()).await?;
    let said = match shown.done.as_deref() {
        Some("saved") => done("Policies saved. They apply to new payments."),
        Some("wallet") => done("Withdrawal wallet saved. The PSP sees it in its settings."),
        Some("revoked") => done("Key revoked. All nodes refuse it within a few seconds."),
        _ => html! {},
    };
    Ok(site.page(&said, &policies_of(&site.psp), &Filled::default()).into_response())
}

/// Changes the name and the policies of a PSP.
pub(crate) async fn change(
    operator: Operator,
    Path(psp_id): Path<String>,
    filled: Filled,
) -> Result<Response, Refused> {
    let site = PspPage::of(&operator, &psp_id).await?;
    let read = || filled.read(&PSP_FIELDS, |fields| psps::read_change(fields, operator.system.chains()));
    let outcome = async {
        let (name, change) = read()?;
        psps::set(&operator, site.psp.id, name.as_ref(), change).await
    };
    match filled.answered(outcome.await)? {
        Ok((_, Some(approval))) => Ok(approvals::page::redirect(&approval)),
        Ok((psp, None)) => Ok(Redirect::to(&format!("{}/{}?done=saved", path("psps"), psp.id)).into_response()),
        Err(refused) => Ok(site.page(&refused.said, &refused.filled, &Filled::default()).answer_form(refused.status)),
    }
}

pub(super) async fn find(operator: &Operator, psp_id: &str) -> Result<PspRecord, Failure> {
    Ok(tenants::find_psp(operator.system.database(), id_of("PSP", psp_id)?).await?)
}

async fn list_page(operator: &Operator, offset: u64, new: &Filled) -> Result<Page, Failure> {
    let slice = Slice { limit: PSPS_MAX, offset, after: None };
    let (total, psps) = tenants::list_psps(operator.system.database(), slice).await?;
    let now = operator.system.clock().real_now();
    let body = html! {
        div.title { h1 { "PSPs" } p { "Payment service providers and their policies." } }
        div.grid.two {
            (panel("psps", "All", &grouped(total), &html! {
                @if psps.is_empty() { p.none { "None yet." } } @else { (table(&psps, now)) }
                (offset_pages("PSPs", offset, PSPS_MAX, offset + PSPS_MAX < total, |offset| format!("{}?offset={offset}", path("psps"))))
            }))
            (panel("make", "Create a PSP", "", &html! {
                div.body {
                    form.stack #new-psp method="post" action=(path("psps")) {
                        (new.line("name", "Name", "Northern Pay", true))
                        (new.sign("contract or ticket", "The PSP has been approved"))
                        div { button { "Create PSP" } }
                    }
                }
            }))
        }
    };
    Ok(Page::still("PSPs", NavSection::Psps, body))
}

fn table(psps: &[PspRecord], now: Timestamp) -> Markup {
    html! {
        table {
            (head(&[("", "PSP"), ("n", "Fee"), ("wide", "Overpayment"), ("n wide", "Tolerance"), ("n wide", "Created")]))
            tbody {
                @for psp in psps {
                    @let policies = &psp.policies;
                    tr id=(psp.id) {
                        th scope="row" { a href={ (path("psps")) "/" (psp.id) } { (psp.name) } br; small.mono { (psp.id) } }
                        td.n { (percent(policies.fee_bps.get())) }
                        td.wide { (overpayment(policies.overpayment).1) }
                        td.n.wide { (policies.tolerance.absolute) br; small { "or " (percent(policies.tolerance.bps)) } }
                        td.n.wide { (ago(psp.created_at, now)) }
                    }
                }
            }
        }
    }
}

pub(super) struct PspPage {
    pub(super) psp: PspRecord,
    wallets: Vec<WalletRecord>,
    /// Values of the form for another wallet.
    pub(super) wallet: Filled,
    keys: Keys,
    held: Held,
    now: Timestamp,
}

impl PspPage {
    pub(super) async fn of(operator: &Operator, psp_id: &str) -> Result<Self, Failure> {
        Self::with_keys_from(operator, psp_id, 0).await
    }

    /// The same with another page of the keys.
    async fn with_keys_from(operator: &Operator, psp_id: &str, keys_from: u32) -> Result<Self, Failure> {
        let (psp, now) = (find(operator, psp_id).await?, operator.system.clock().real_now());
        let keys = Keys::of(operator, psp.id, keys_from, now).await?;
        let wallets = withdrawal::of(operator, psp.id).await.map_err(|error| Failure::Unreadable(error.to_string()))?;
        let held = pauses::load(operator).await?;
        Ok(Self { psp, wallets, wallet: Filled::default(), keys, held, now })
    }

    pub(super) fn page(&self, said: &Markup, policies: &Filled, key: &Filled) -> Page {
        let Self { psp, now, .. } = self;
        let here = format!("{}/{}", path("psps"), psp.id);
        let body = html! {
            p.crumbs { a href=(path("psps")) { "PSPs" } span { "PSP" } }
            div.title {
                h1 { (psp.name) }
                p { span.mono { (psp.id) } ", created " (ago(psp.created_at, *now)) " · " a href={ (path("webhooks")) "/" (psp.id) } { "webhooks" } }
            }
            (said)
            (pauses::page::notice_of(Scope::Psp(psp.id), &self.held, *now))
            div.grid.two {
                div.col {
                    (self.keys.panel(&here, *now))
                    (withdrawal::panel(&here, &self.wallets, &self.wallet))
                }
                div.col {
                    (panel("make-key", "Create a key", "it is shown once", &html! { div.body { (keys::form(&here, key)) } }))
                    (panel("set-policies", "Policies", "for new payments", &html! { div.body { (policies_form(&here, policies)) } }))
                }
            }
        };
        Page::still(psp.name.clone(), NavSection::Psps, body)
    }
}

fn policies_form(here: &str, filled: &Filled) -> Markup {
    html! {
        form.stack #policies method="post" action=(here) {
            (filled.line("name", "Name", "", true))
            div.pair {
                (filled.whole("fee_bps", "Treasury fee, basis points", "100 is 1 %", 0, BPS_MAX))
                (filled.choice("overpayment", "Overpayment", &OVERPAYMENT))
                (filled.line("tolerance", "Underpayment tolerance: amount", "0.05", true))
                (filled.whole("tolerance_bps", "or basis points, if higher", "0", 0, BPS_MAX))
                (filled.line("overpayment_tolerance", "Overpayment tolerance: amount", "0.01", true))
                (filled.whole("overpayment_tolerance_bps", "or basis points, if higher", "10", 0, BPS_MAX))
                (filled.line("dust_floor", "Ignore transfers below", "0.001", true))
                (filled.choice("event_families", "Event names", &EVENT_FAMILIES))
                (filled.choice("payer_refunds", "Refunds that payers request", &PAYER_REFUNDS))
                (filled.line("send_max", "Maximum per send", "default", true))
                (filled.line("send_daily_max", "Maximum sent per day and token", "default", true))
                (filled.line("refund_elsewhere_daily_max", "Refunds not to the payer, per day and token", "default", true))
            }
            (filled.tick("refund_to_sender", "Refunds without an address go to the sender"))
            (filled.tick("require_customer", "Every payment must name its customer"))
            (filled.sign("who asked for it", "The PSP has been informed"))
            div { button { "Save" } }
        }
    }
}

pub(super) fn policies_of(psp: &PspRecord) -> Filled {
    let policies = &psp.policies;
    Filled::with([
        ("name", psp.name.clone()),
        ("fee_bps", policies.fee_bps.get().to_string()),
        ("tolerance", policies.tolerance.absolute.to_string()),
        ("tolerance_bps", policies.tolerance.bps.to_string()),
        ("overpayment_tolerance", policies.overpayment_tolerance.absolute.to_string()),
        ("overpayment_tolerance_bps", policies.overpayment_tolerance.bps.to_string()),
        ("overpayment", overpayment(policies.overpayment).0.to_owned()),
        ("refund_to_sender", ticked(policies.refund_to_sender)),
        ("payer_refunds", policies.payer_refunds.as_str().to_owned()),
        ("require_customer", ticked(policies.require_customer)),
        ("dust_floor", policies.dust_floor.to_string()),
        ("event_families", policies.event_families.as_str().to_owned()),
        ("send_max", ceiling(policies.send_max)),
        ("send_daily_max", ceiling(policies.send_daily_max)),
        ("refund_elsewhere_daily_max", ceiling(policies.refund_elsewhere_daily_max)),
    ])
}

/// A limit of the PSP's own, or the word for the configured default.
fn ceiling(own: Option<Amount>) -> String {
    own.map_or_else(|| DEFAULT_WORD.to_owned(), |amount| amount.to_string())
}

const fn overpayment(policy: OverpaymentPolicy) -> (&'static str, &'static str) {
    match policy {
        // `KeepExcess` is used by transfers only; a PSP cannot choose it.
        OverpaymentPolicy::Hold | OverpaymentPolicy::KeepExcess => OVERPAYMENT[0],
        OverpaymentPolicy::Accept => OVERPAYMENT[1],
        OverpaymentPolicy::RefundExcess => OVERPAYMENT[2],
    }
}

fn percent(bps: u16) -> String {
    format!("{}.{:02} %", bps / 100, bps % 100)
}
