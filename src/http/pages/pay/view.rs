//! Renders the payer's page. Style and script are inline and allowed by their hash.
//!
//! Each part has an id. The script replaces only the parts that differ from the streamed content, so the reader's
//! position, selection and focus stay.

use std::sync::LazyLock;

use axum::http::{HeaderValue, StatusCode};
use axum::response::Response;
use maud::{DOCTYPE, Markup, PreEscaped, html};
use payferry_domain::payment::{Payment, Transfer, TransferStatus, TransferToken};
use payferry_domain::{Amount, Finality, Timestamp};
use payferry_httpkit::pages::{respond_under, script_policy};

use serde_json::Value;
use serde_json::value::RawValue;

use super::qr;
use super::scene::{Scene, Step, chain_name, contact};
use crate::http::live::is_over;
use crate::http::payments::authorize::typed_data;
use crate::http::payments::{Addresses, chain_id, progress};
use crate::http::state::{AppShared, Environment};

const STYLE: &str = include_str!("pay.css");
const SCRIPT: &str = include_str!("pay.js");

/// Seconds after which a browser without JavaScript reloads the page.
const RELOAD_SECS: u32 = 15;

/// Function selector of `transfer(address,uint256)`.
const TRANSFER_SELECTOR: &str = "a9059cbb";

/// The icon: a coin.
const ICON: &str = "data:image/svg+xml,%3Csvg xmlns='http://www.w3.org/2000/svg' viewBox='0 0 16 16'%3E%3Ccircle \
    cx='8' cy='8' r='7' fill='%230b6e75'/%3E%3Cpath d='M4.5 8.5l2.5 2.5 4.5-5' fill='none' stroke='%23fff' \
    stroke-width='1.6'/%3E%3C/svg%3E";

/// Allows only the inline style and script above: no external resources, frames or forms.
static POLICY: LazyLock<HeaderValue> = LazyLock::new(|| script_policy(STYLE, SCRIPT, "'none'"));

/// Renders the complete page.
pub(super) fn page(app: &AppShared, payment: &Payment) -> Response {
    let title = Scene::of(payment, app.clock().now()).headline;
    let markup = html! {
        (DOCTYPE)
        html lang="en" {
            head {
                meta charset="utf-8";
                meta name="viewport" content="width=device-width, initial-scale=1";
                meta name="robots" content="noindex, nofollow";
                title { (title) }
                link rel="icon" href=(ICON);
                style { (PreEscaped(STYLE)) }
                @if !is_over(payment) {
                    noscript { meta http-equiv="refresh" content=(RELOAD_SECS); }
                }
            }
            body {
                @if app.config.environment == Environment::Sandbox {
                    p #test role="note" { strong { "TEST" } " Do not send real money." }
                }
                (content(app, payment))
                p #announcer role="status" aria-live="polite" {}
                script { (PreEscaped(SCRIPT)) }
            }
        }
    };
    respond_under(POLICY.clone(), StatusCode::OK, markup.into_string())
}

/// Renders the part of the page that changes with the payment.
pub(super) fn content(app: &AppShared, payment: &Payment) -> Markup {
    let now = app.clock().now();
    let scene = Scene::of(payment, now);
    html! {
        main #payment data-status=(payment.status) data-mood=(scene.state_colour.as_str()) data-over[is_over(payment)]
            data-now=(now.as_millis()) data-asks[scene.to_pay.is_some()] {
            (state(app, payment, &scene))
            @if let Some(to_pay) = scene.to_pay { (asking(app, payment, to_pay)) }
            (arrived(payment))
            p #foot {
                @if !is_over(payment) { span #link role="presentation" {} " " }
                a href="" { "Reload" } " to see the latest."
            }
        }
    }
}

fn state(app: &AppShared, payment: &Payment, scene: &Scene) -> Markup {
    let terms = &payment.terms;
    html! {
        section #state aria-labelledby="headline" {
            p.sum { span.amount { (terms.amount) " " (terms.token) } " " span.soft { "on " (chain_name(terms.chain)) } }
            h1 #headline { (scene.headline) }
            p #explanation { (scene.explanation) }
            @for notice in &scene.notices { p.notice role="note" { (notice) } }
            @if scene.to_pay.is_some() {
                p.clock {
                    span.left hidden data-until=(payment.expires_at.as_millis()) { strong role="timer" {} " left" }
                    span.soft { "Pay until " (moment(payment.expires_at)) }
                }
            }
            @if let Some(step) = scene.step { (steps(app, payment, step)) }
        }
    }
}

fn steps(app: &AppShared, payment: &Payment, at: Step) -> Markup {
    let seen = match progress(app, payment) {
        Some(progress) => format!("{} of {} confirmations", progress.confirmations, progress.required),
        None if at == Step::Seen
            && payment.transfers.iter().any(|transfer| transfer.status == TransferStatus::Seen) =>
        {
            match payment.required_finality() {
                Finality::Blocks(_) => String::new(),
                Finality::Safe | Finality::Finalized => "waiting for finality on the chain".to_owned(),
            }
        }
        None => String::new(),
    };
    html! {
        ol.steps aria-label="Progress" {
            @for step in Step::ALL {
                @let name = match step {
                    Step::Waiting => "Waiting for payment",
                    Step::Seen => "Payment seen",
                    Step::Confirmed => "Confirmed",
                    Step::Complete => "Complete",
                };
                @let is_done = step < at || at == Step::Complete;
                @let class = if is_done { "done" } else if step == at { "now" } else { "ahead" };
                li class=(class) aria-current=[(step == at).then_some("step")] {
                    span { (name) @if is_done { span.unseen { " (done)" } } }
                    @if step == Step::Seen && !seen.is_empty() { span.soft { (seen) } }
                }
            }
        }
    }
}

/// Renders the amount to send and its address.
fn asking(app: &AppShared, payment: &Payment, to_pay: Amount) -> Markup {
    let terms = &payment.terms;
    let (chains, chain) = (app.system.chains(), chain_name(terms.chain));
    let addresses = Addresses::of(terms);
    let uri = addresses.transfer_uri(chains, terms.chain, to_pay);
    let Addresses { wallet, token } = addresses;
    let label = format!("QR code: send {to_pay} {} on {chain} to {wallet}", terms.token);
    let bare = |address: &str| address.trim_start_matches("0x").to_lowercase();
    let call = format!("0x{TRANSFER_SELECTOR}{:0>64}{:064x}", bare(&wallet), to_pay.units());
    html! {
        section #asking aria-label="What to send" {
            figure {
                @if let Some(code) = qr::picture(&uri, &label) { (code) }
                figcaption.soft { "Scan with a wallet app" }
            }
            div.fields {
                (field("Send exactly", "amount", &to_pay.to_string(), &html! { " " (terms.token) }))
                div.field { p.label { "On the chain" } p { strong { (chain) } } }
                (field("To this address", "address", &wallet, &html! {}))
                (field(&format!("{} token contract", terms.token), "contract", &token, &html! {}))
            }
            div.buttons {
                @if let Some(typed_data) = typed_data(app, payment) {
                    @let chain_id = format!("{:#x}", chain_id(chains, terms.chain));
                    button #sign type="button" hidden data-chain=(chain_id) data-chain-name=(chain)
                        data-typed=(typed_data.get()) { "Pay with wallet, without gas" }
                    (what_is_signed(&typed_data, to_pay, terms.token.as_str()))
                }
                button #wallet type="button" hidden data-chain=(format!("{:#x}", chain_id(chains, terms.chain)))
                    data-chain-name=(chain) data-to=(token) data-call=(call) { "Pay with the wallet in this browser" }
                a.button href=(uri) { "Open in a wallet app" }
                p #told role="status" aria-live="polite" {}
            }
            p.warning {
                "Send " strong { (terms.token) } " on " strong { (chain) } " only. Another token or another chain does not "
                "count for this payment; to get it back, contact " (contact(payment)) "."
            }
        }
    }
}

/// Renders exactly what the payer's wallet will sign.
fn what_is_signed(typed_data: &RawValue, to_pay: Amount, token: &str) -> Markup {
    let typed_data: Value = serde_json::from_str(typed_data.get()).unwrap_or_default();
    let message = &typed_data["message"];
    let text = |name: &str| message[name].as_str().unwrap_or_default().to_owned();
    let until = text("validBefore").parse().map_or(Timestamp(0), |secs: i64| Timestamp(secs.saturating_mul(1_000)));
    html! {
        details #signed hidden {
            summary { "What you sign" }
            p.soft {
                "One message that lets the payment contract take " strong { (to_pay) " " (token) } " from your account for this "
                "payment, and nothing else, until " (moment(until)) ". You need no coin for gas."
            }
            dl {
                dt { "Message" } dd { (typed_data["primaryType"].as_str().unwrap_or_default()) }
                dt { "To" } dd.value { (text("to")) }
                dt { "Value (base units)" } dd.value { (text("value")) }
                dt { "Nonce" } dd.value { (text("nonce")) }
            }
        }
    }
}

/// Renders a value to copy. Without JavaScript, a click selects all of it.
fn field(label: &str, name: &str, value: &str, unit: &Markup) -> Markup {
    let id = format!("value-{name}");
    html! {
        div.field.wide[name != "amount"] {
            p.label { (label) }
            p { span.value id=(id) { (value) } (unit) }
            button.copy type="button" hidden data-copy=(value) aria-label=(format!("Copy the {name}")) { "Copy" }
        }
    }
}

/// Lists the transfers that have arrived, without their senders.
fn arrived(payment: &Payment) -> Markup {
    let shown: Vec<&Transfer> = payment.transfers.iter().filter(|one| one.status != TransferStatus::Ignored).collect();
    if shown.is_empty() {
        return html! {};
    }
    html! {
        section #arrived aria-labelledby="arrived-title" {
            h2 #arrived-title { "What has arrived" }
            ul {
                @for transfer in shown {
                    li {
                        strong { (transfer.amount) " " (token_name(payment, transfer)) }
                        @if transfer.key.chain != payment.terms.chain { " on " (chain_name(transfer.key.chain)) }
                        " " span.soft { (moment(transfer.block.time)) " · " (standing(transfer)) }
                    }
                }
            }
            @if !payment.amount_received().is_zero() {
                p.soft {
                    "Counted for this payment: " (payment.amount_received()) " of " (payment.terms.amount) " "
                    (payment.terms.token)
                }
            }
        }
    }
}

fn token_name(payment: &Payment, transfer: &Transfer) -> &'static str {
    match transfer.token {
        TransferToken::Right => payment.terms.token.as_str(),
        TransferToken::Other { token, .. } => token.as_str(),
        TransferToken::LookAlike { .. } => "of an unknown token",
    }
}

fn standing(transfer: &Transfer) -> &'static str {
    match transfer.status {
        TransferStatus::Orphaned => "dropped by the chain",
        _ if !transfer.is_right() => "does not count for this payment",
        _ if transfer.counted => "confirmed",
        TransferStatus::Seen => "being confirmed",
        _ => "being checked",
    }
}

/// Renders a time, which the script converts to the reader's time zone.
fn moment(at: Timestamp) -> Markup {
    let text = chrono::DateTime::<chrono::Utc>::from(at).format("%-d %b %Y, %H:%M UTC").to_string();
    html! { time datetime=(at) { (text) } }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn inline_style_and_script_contain_no_closing_tag() {
        // Escaping is disabled for both.
        assert!(!STYLE.contains("</") && !SCRIPT.contains("</"));
    }
}
