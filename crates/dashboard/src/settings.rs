//! The account's settings: those that it decides, and those of the operator.

use std::collections::BTreeMap;

use axum::extract::Query;
use axum::http::{Method, StatusCode};
use axum::response::Response;
use maud::{Markup, html};
use payferry_domain::Chain;
use payferry_httpkit::ApiError;
use payferry_httpkit::pages::form::{FormValues, Sort, ticked, whole};
use payferry_httpkit::pages::words::panel;
use serde::Deserialize;
use serde_json::{Map, Value};

use crate::api::Done;
use crate::balances::{WithdrawalWallet, wallets_panel};
use crate::checkout::{self, Checkout};
use crate::page::{NavSection, RefusedForm, form_id, notice, see_other};
use crate::session::Session;

/// Path of the page.
pub(crate) const PATH: &str = "/dashboard/settings";
/// Path in the API.
pub(crate) const API: &str = "/api/v1/settings";
/// Notices, by the word in the query.
const NOTICES: [(&str, &str); 2] = [
    ("saved", "Settings saved. They apply to new payments."),
    ("checkout", "Saved. It applies to every payer's page that is opened from now on."),
];
/// Bands of amounts of one chain.
const BANDS_MAX: usize = 3;
/// Basis points of the whole amount.
const BPS_MAX: i64 = 10_000;
/// Fields of the form, named as in the API.
const FIELDS: [(&str, Sort); 10] = [
    ("tolerance", Sort::Text),
    ("tolerance_bps", Sort::Whole),
    ("overpayment_tolerance", Sort::Text),
    ("overpayment_tolerance_bps", Sort::Whole),
    ("overpayment", Sort::Text),
    ("dust_floor", Sort::Text),
    ("event_families", Sort::Text),
    ("payer_refunds", Sort::Text),
    ("refund_to_sender", Sort::Box),
    ("require_customer", Sort::Box),
];
const OVERPAYMENT: [(&str, &str); 3] =
    [("hold", "you decide"), ("accept", "settle everything"), ("refund_excess", "refund the excess")];
const EVENT_FAMILIES: [(&str, &str); 3] =
    [("both", "payment.* and payin.*"), ("payment", "payment.* only"), ("payin", "payin.* only")];
const PAYER_REFUNDS: [(&str, &str); 3] =
    [("off", "not offered"), ("approve", "you decide"), ("sender", "signed ones at once, you decide about others")];

#[derive(Debug, Deserialize)]
struct Settings {
    tolerance: String,
    tolerance_bps: u16,
    overpayment_tolerance: String,
    overpayment_tolerance_bps: u16,
    overpayment: String,
    refund_to_sender: bool,
    payer_refunds: String,
    require_customer: bool,
    dust_floor: String,
    event_families: String,
    finality: BTreeMap<String, Finality>,
    checkout: Checkout,
    fee_bps: u16,
    limits: Limits,
    withdrawal_wallets: Vec<WithdrawalWallet>,
}

/// Required finality on one chain.
#[derive(Debug, Deserialize)]
struct Finality {
    tiers: Vec<Tier>,
    is_default: bool,
    least: Vec<Tier>,
}

/// One band of amounts.
#[derive(Debug, Deserialize)]
struct Tier {
    below: Option<String>,
    /// A number of blocks, or a word.
    wait: Value,
}

#[derive(Debug, Deserialize)]
#[allow(clippy::struct_field_names, reason = "the names of the API")]
struct Limits {
    send_max: String,
    send_daily_max: String,
    refund_elsewhere_daily_max: String,
}

/// Query of the page: the result of the last form.
#[derive(Debug, Deserialize)]
pub(crate) struct SettingsQuery {
    done: Option<String>,
}

impl Tier {
    fn wait(&self) -> String {
        self.wait.as_str().map_or_else(|| self.wait.to_string(), str::to_owned)
    }

    fn words(tiers: &[Self]) -> String {
        let words = |tier: &Self| {
            let wait = tier.wait.as_str().map_or_else(|| format!("{} blocks", tier.wait), str::to_owned);
            tier.below.as_ref().map_or_else(|| format!("otherwise {wait}"), |below| format!("below {below}: {wait}"))
        };
        tiers.iter().map(words).collect::<Vec<_>>().join(", ")
    }
}

/// `/dashboard/settings`.
pub(crate) async fn show(session: Session, Query(shown): Query<SettingsQuery>) -> Response {
    let said = notice(shown.done.as_deref(), &NOTICES);
    session.answer(page(&session, StatusCode::OK, &said, Refused::default()).await)
}

/// Forms of the page that were refused.
#[derive(Default)]
pub(crate) struct Refused {
    pub(crate) policies: Option<FormValues>,
    pub(crate) checkout: Option<FormValues>,
    pub(crate) logo: Option<FormValues>,
}

/// Changes the settings.
pub(crate) async fn change(session: Session, form: FormValues) -> Response {
    let changed = async {
        match session.submit::<Done>(&form, Method::PATCH, API, body_of(&form)).await? {
            Ok(_) => Ok(see_other(&format!("{PATH}?done=saved"))),
            Err(RefusedForm { status, said, form, .. }) => {
                page(&session, status, &said, Refused { policies: Some(form), ..Refused::default() }).await
            }
        }
    };
    session.answer(changed.await)
}

/// The request of a form.
fn body_of(form: &FormValues) -> Value {
    let mut body = form.json(&FIELDS);
    let sent = |chain: &&Chain| !form.value(&marker(chain.as_str())).is_empty();
    let finality: Map<_, _> =
        Chain::ALL.iter().filter(sent).map(|chain| (chain.to_string(), finality_of(form, chain.as_str()))).collect();
    body["finality"] = finality.into();
    body
}

/// The bands of a chain, or the word for those of the operator.
fn finality_of(form: &FormValues, chain: &str) -> Value {
    if !form.value(&default_box(chain)).is_empty() {
        return "default".into();
    }
    let bands = (0..BANDS_MAX).filter_map(|index| {
        let [below, wait] = band(chain, index).map(|name| form.value(&name).trim());
        let mut fields = Map::new();
        if !below.is_empty() {
            fields.insert("below".to_owned(), below.into());
        }
        if !wait.is_empty() {
            fields.insert("wait".to_owned(), whole(wait));
        }
        (!fields.is_empty()).then(|| fields.into())
    });
    Value::Array(bands.collect())
}

/// Names of the fields of a chain: the mark that the form has it, the check box of the operator's bands, and those of a
/// band, which the API uses in its errors.
fn marker(chain: &str) -> String {
    format!("finality.{chain}.sent")
}

fn default_box(chain: &str) -> String {
    format!("finality.{chain}.default")
}

fn band(chain: &str, index: usize) -> [String; 2] {
    ["below", "wait"].map(|field| format!("finality.{chain}[{index}].{field}"))
}

/// The page, with the refused forms as they were sent.
pub(crate) async fn page(
    session: &Session,
    status: StatusCode,
    said: &Markup,
    refused: Refused,
) -> Result<Response, ApiError> {
    let settings: Settings = session.api.get(API).await?;
    let form = refused.policies.unwrap_or_else(|| values(&settings));
    let may_change = session.key.has("full");
    let body = html! {
        div.title { h1 { "Settings" } p { "Policies of your payments, and the appearance of the payer's page." } }
        (said)
        div.grid.two {
            @if may_change { (form_panel(&form, &settings)) } @else { (facts(&settings)) }
            div.col {
                @if may_change { (checkout::form_panel(&settings.checkout, refused.checkout, refused.logo)) }
                @else { (checkout::facts(&settings.checkout)) }
                (operators_panel(&settings))
                (wallets_panel(session, &settings.withdrawal_wallets))
            }
        }
    };
    Ok(session.page(status, "Settings", NavSection::Settings, &body))
}

/// The settings as values of the form.
fn values(settings: &Settings) -> FormValues {
    let own = [
        ("tolerance", settings.tolerance.clone()),
        ("tolerance_bps", settings.tolerance_bps.to_string()),
        ("overpayment_tolerance", settings.overpayment_tolerance.clone()),
        ("overpayment_tolerance_bps", settings.overpayment_tolerance_bps.to_string()),
        ("overpayment", settings.overpayment.clone()),
        ("dust_floor", settings.dust_floor.clone()),
        ("event_families", settings.event_families.clone()),
        ("payer_refunds", settings.payer_refunds.clone()),
        ("refund_to_sender", ticked(settings.refund_to_sender)),
        ("require_customer", ticked(settings.require_customer)),
    ];
    let mut values: Vec<(String, String)> = own.map(|(name, value)| (name.to_owned(), value)).into();
    for (chain, finality) in &settings.finality {
        values.push((default_box(chain), ticked(finality.is_default)));
        for (index, tier) in finality.tiers.iter().enumerate() {
            let [below, wait] = band(chain, index);
            values.extend([(below, tier.below.clone().unwrap_or_default()), (wait, tier.wait())]);
        }
    }
    FormValues::with(values)
}

fn form_panel(form: &FormValues, settings: &Settings) -> Markup {
    let body = html! {
        div.body {
            form.stack #settings method="post" action=(PATH) {
                (form_id(form))
                div.pair {
                    (form.line("tolerance", "Underpayment tolerance: amount", "0.05", true))
                    (form.whole("tolerance_bps", "or basis points, if higher", "0", 0, BPS_MAX))
                    (form.line("overpayment_tolerance", "Overpayment tolerance: amount", "0.01", true))
                    (form.whole("overpayment_tolerance_bps", "or basis points, if higher", "10", 0, BPS_MAX))
                    (form.choice("overpayment", "Overpayment", &OVERPAYMENT))
                    (form.line("dust_floor", "Ignore transfers below", "0.001", true))
                    (form.choice("event_families", "Event names", &EVENT_FAMILIES))
                    (form.choice("payer_refunds", "Refunds that payers request", &PAYER_REFUNDS))
                }
                (form.tick("refund_to_sender", "Refunds without an address go to the sender"))
                (form.tick("require_customer", "Every payment must name its customer"))
                @for (chain, finality) in &settings.finality { (bands(form, chain, finality)) }
                (form.confirm("Apply these settings to new payments"))
                div { button { "Save" } }
            }
        }
    };
    panel("policies", "Policies", "for new payments", &body)
}

/// The required finality of a chain.
fn bands(form: &FormValues, chain: &str, finality: &Finality) -> Markup {
    html! {
        fieldset.bands {
            legend { "Finality on " (chain) }
            input type="hidden" name=(marker(chain)) value="true";
            @for index in 0..BANDS_MAX {
                @let [below, wait] = band(chain, index);
                label {
                    "Amounts below"
                    input type="text" name=(below) value=(form.value(&below)) placeholder="all" autocomplete="off"
                        aria-label={ "Band " (index + 1) " on " (chain) ": amounts below" };
                }
                label {
                    "Blocks, safe or finalized"
                    input type="text" name=(wait) value=(form.value(&wait)) placeholder="none" autocomplete="off"
                        aria-label={ "Band " (index + 1) " on " (chain) ": blocks, safe or finalized" };
                }
            }
            (form.tick(&default_box(chain), "Use the operator's bands instead"))
            small { "At least: " (Tier::words(&finality.least)) }
            (form.wrong(&format!("finality.{chain}")))
        }
    }
}

fn facts(settings: &Settings) -> Markup {
    let word = |choices: &[(&'static str, &'static str)], name: &str| {
        choices
            .iter()
            .find(|(known, _)| *known == name)
            .map_or_else(|| name.to_owned(), |(_, words)| (*words).to_owned())
    };
    let yes = |is_on| if is_on { "yes" } else { "no" };
    let body = html! {
        dl.facts {
            dt { "Underpayment tolerance" } dd { (settings.tolerance) " or " (settings.tolerance_bps) " basis points" }
            dt { "Overpayment tolerance" } dd { (settings.overpayment_tolerance) " or " (settings.overpayment_tolerance_bps) " basis points" }
            dt { "Overpayment" } dd { (word(&OVERPAYMENT, &settings.overpayment)) }
            dt { "Ignored transfers" } dd { "below " (settings.dust_floor) }
            dt { "Event names" } dd { (word(&EVENT_FAMILIES, &settings.event_families)) }
            dt { "Refunds that payers request" } dd { (word(&PAYER_REFUNDS, &settings.payer_refunds)) }
            dt { "Refunds to the sender" } dd { (yes(settings.refund_to_sender)) }
            dt { "Customer required" } dd { (yes(settings.require_customer)) }
            @for (chain, finality) in &settings.finality { dt { "Finality on " (chain) } dd { (Tier::words(&finality.tiers)) } }
        }
        p.none { "A key with the scope " code { "full" } " changes these." }
    };
    panel("policies", "Policies", "for new payments", &body)
}

fn operators_panel(settings: &Settings) -> Markup {
    let Limits { send_max, send_daily_max, refund_elsewhere_daily_max } = &settings.limits;
    let body = html! {
        dl.facts {
            dt { "Fee" } dd { (settings.fee_bps) " basis points of each settlement" }
            dt { "Maximum per send" } dd { (send_max) " per payout, withdrawal or transfer" }
            dt { "Maximum per day" } dd { (send_daily_max) " per token and UTC day" }
            dt { "Refunds elsewhere" } dd { (refund_elsewhere_daily_max) " per token and UTC day, not to the payer" }
        }
    };
    panel("operator", "Set by the operator", "", &body)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn bands_become_the_finality_of_the_api() {
        let fields = [
            ("tolerance", "0.05"),
            ("finality.base.sent", "true"),
            ("finality.base[0].below", "500"),
            ("finality.base[0].wait", "10"),
            ("finality.base[1].below", ""),
            ("finality.base[1].wait", "finalized"),
            ("finality.polygon.sent", "true"),
            ("finality.polygon.default", "true"),
            ("finality.polygon[0].wait", "7"),
        ];
        let form = FormValues::with(fields.map(|(name, value)| (name, value.to_owned())));
        let body = body_of(&form);
        let bands = json!([{"below": "500", "wait": 10}, {"wait": "finalized"}]);
        assert_eq!(body["finality"], json!({"base": bands, "polygon": "default"}));
        assert_eq!((&body["tolerance"], &body["refund_to_sender"]), (&json!("0.05"), &json!(false)));
    }
}
