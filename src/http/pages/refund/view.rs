//! Renders the page. Style and script are inline and allowed by their hash. The form is sent to this service only.

use std::sync::LazyLock;

use axum::http::{HeaderValue, StatusCode};
use axum::response::Response;
use maud::{DOCTYPE, Markup, PreEscaped, html};
use payferry_domain::payment::{
    PayerRefunds, PayerRequest, Payment, REFUND_NOTE_CHARS_MAX, RefundRequestState, RefundState, SettlementState,
    Status,
};
use payferry_domain::{Amount, Asset, Token};
use payferry_httpkit::pages::form::FormValues;
use payferry_httpkit::pages::{ICON, respond_under, script_policy};
use serde_json::{Map, Value};

use super::texts::{Texts, fill};
use super::{ADDRESS, MONEY, NOTE, money_value};
use crate::http::pages::pay::{Language, chain_name, moment, test_notice};
use crate::http::payments::refunds::token_of;
use crate::http::state::{AppShared, Environment};

const STYLE: &str = concat!(include_str!("../pay/pay.css"), include_str!("refund.css"));
const SCRIPT: &str = include_str!("refund.js");
/// Characters of an address.
const ADDRESS_CHARS: usize = 42;

/// Allows only the inline style and script above, requests and forms to this service, and no frames.
static POLICY: LazyLock<HeaderValue> = LazyLock::new(|| script_policy(&[STYLE], SCRIPT, "data:", "'self'"));

/// Content of the page besides the payment.
pub(super) struct RefundPageView<'a> {
    /// Language of the page.
    pub language: Language,
    /// Status of the answer.
    pub status: StatusCode,
    /// The offer to payers now.
    pub policy: PayerRefunds,
    /// The form as it was sent, if it was refused, and the code of the reason.
    pub refused: Option<(&'a FormValues, &'a str)>,
    /// True after a request was received.
    pub is_done: bool,
}

/// The page.
pub(super) fn page(app: &AppShared, payment: &Payment, shown: &RefundPageView<'_>) -> Response {
    let texts = Texts::of(shown.language);
    let markup = html! {
        (DOCTYPE)
        html lang=(shown.language) {
            head {
                meta charset="utf-8";
                meta name="viewport" content="width=device-width, initial-scale=1";
                meta name="robots" content="noindex, nofollow";
                title { (texts.headline) }
                link rel="icon" href=(ICON);
                style { (PreEscaped(STYLE)) }
            }
            body {
                @if app.config.environment == Environment::Sandbox {
                    (test_notice(shown.language))
                }
                (content(app, payment, shown, texts))
                script { (PreEscaped(SCRIPT)) }
            }
        }
    };
    respond_under(POLICY.clone(), shown.status, markup.into_string())
}

fn content(app: &AppShared, payment: &Payment, shown: &RefundPageView<'_>, texts: &Texts) -> Markup {
    let is_off = shown.policy.is_off();
    let sums = if is_off { Vec::new() } else { payment.returnable() };
    let explanation = if is_off {
        texts.about(payment, texts.not_offered)
    } else if !sums.is_empty() {
        texts.explanation.to_owned()
    } else if is_settling(payment) {
        texts.settling.to_owned()
    } else {
        texts.nothing.to_owned()
    };
    html! {
        main #refund data-words=(json(texts.script)) data-errors=(json(texts.errors)) {
            section aria-labelledby="headline" {
                h1 #headline { (texts.headline) }
                @if shown.is_done { p.good role="status" { (texts.done) } }
                p { (explanation) }
                @if !sums.is_empty() {
                    h2 { (texts.available) }
                    ul #money {
                        @for (asset, amount) in &sums {
                            li { strong { (sum(payment, *asset, *amount, texts)) } " " span.soft { (reason(payment, *asset, texts)) } }
                        }
                    }
                }
            }
            @if !sums.is_empty() {
                (signing(payment, shown.policy, texts))
                (form(payment, &sums, shown, texts))
            }
            (requests(payment, texts))
            p #foot { a href=(app.magic_link(&payment.terms.link_token)) { (texts.back) } }
        }
    }
}

/// True if there is excess money that the settlement does not allow to refund yet.
fn is_settling(payment: &Payment) -> bool {
    let queued = payment.settlement.as_deref().is_some_and(|one| one.state == SettlementState::Queued);
    queued && payment.status == Status::Confirmed && !payment.excess_received().is_zero()
}

fn signing(payment: &Payment, policy: PayerRefunds, texts: &Texts) -> Markup {
    let explanation = if policy == PayerRefunds::Sender { texts.sign_at_once } else { texts.sign_approve };
    html! {
        section aria-labelledby="sign-title" {
            h2 #sign-title { (texts.sign_headline) }
            p.soft { (texts.about(payment, explanation)) }
            p #no-wallet .notice { (texts.sign_no_wallet) }
            button #sign .pay type="button" hidden { (texts.sign_button) }
            p #told role="status" aria-live="polite" {}
            details #message hidden open {
                summary { (texts.signed_message) }
                pre #text tabindex="0" aria-label=(texts.signed_message) {}
            }
        }
    }
}

fn form(payment: &Payment, sums: &[(Option<Asset>, Amount)], shown: &RefundPageView<'_>, texts: &Texts) -> Markup {
    let empty = FormValues::default();
    let (values, error) = shown.refused.map_or((&empty, None), |(values, code)| (values, Some(texts.error(code))));
    let is_wrong = shown.refused.is_some_and(|(_, code)| code == "validation_failed").then_some("true");
    html! {
        section aria-labelledby="form-title" {
            h2 #form-title { (texts.form_headline) }
            p.soft { (texts.about(payment, texts.form_explanation)) }
            @if let Some(error) = error { p #refused .notice role="alert" { (error) } }
            form.stack #claim method="post" {
                label {
                    (texts.form_money)
                    select name=(MONEY) {
                        @for (asset, amount) in sums {
                            @let value = money_value(payment, *asset, *amount);
                            option value=(value) selected[values.value(MONEY) == value] { (sum(payment, *asset, *amount, texts)) }
                        }
                    }
                }
                label {
                    (texts.form_address)
                    small { (texts.form_address_hint) }
                    input type="text" name=(ADDRESS) value=(values.value(ADDRESS)) required maxlength=(ADDRESS_CHARS)
                        autocomplete="off" spellcheck="false" aria-invalid=[is_wrong];
                }
                label {
                    (texts.form_note)
                    small { (texts.form_note_hint) }
                    input type="text" name=(NOTE) value=(values.value(NOTE)) maxlength=(REFUND_NOTE_CHARS_MAX) autocomplete="off";
                }
                button.pay { (texts.form_button) }
            }
        }
    }
}

/// Lists the requests, without their addresses.
fn requests(payment: &Payment, texts: &Texts) -> Markup {
    html! {
        @if !payment.refund_requests.is_empty() {
            section aria-labelledby="requests-title" {
                h2 #requests-title { (texts.requests) }
                ul #requests {
                    @for request in payment.refund_requests.iter().rev() {
                        li id=(request.id) data-status=(request.state) {
                            strong { (sum(payment, request.asset, request.amount, texts)) } " "
                            span.soft { (moment(request.requested_at)) " · " (texts.about(payment, progress(payment, request, texts))) }
                        }
                    }
                }
            }
        }
    }
}

/// How far a request is.
fn progress(payment: &Payment, request: &PayerRequest, texts: &Texts) -> &'static str {
    let refund = payment.refunds.iter().find(|refund| refund.id == request.refund_id());
    match (request.state, refund) {
        (RefundRequestState::Declined, _) => texts.declined,
        (_, Some(refund)) if refund.awaits_approval() => texts.held,
        (_, Some(refund)) => match refund.state {
            RefundState::Pending => texts.approved,
            RefundState::Sent => texts.sent,
            RefundState::Failed => texts.failed,
        },
        (_, None) => texts.requested,
    }
}

fn sum(payment: &Payment, asset: Option<Asset>, amount: Amount, texts: &Texts) -> String {
    let asset = asset.unwrap_or_else(|| payment.asset());
    let token = token_of(payment, asset).map_or(texts.unknown_token, Token::as_str);
    fill(texts.sum, &[("amount", &amount.to_string()), ("token", token), ("chain", chain_name(asset.chain))])
}

/// Why money in this token can be sent back.
fn reason(payment: &Payment, asset: Option<Asset>, texts: &Texts) -> &'static str {
    match asset {
        Some(asset) if asset.chain != payment.terms.chain => texts.wrong_chain,
        Some(_) => texts.wrong_token,
        None if payment.status == Status::Mismatched && !is_overpaid(payment) => texts.late,
        None => texts.excess,
    }
}

fn is_overpaid(payment: &Payment) -> bool {
    payment.transfers.iter().filter(|transfer| transfer.counted).all(|transfer| payment.is_in_time(transfer))
        && payment.amount_received() > payment.terms.amount
}

fn json(words: &[(&str, &str)]) -> String {
    let words: Map<String, Value> = words.iter().map(|(name, text)| ((*name).to_owned(), (*text).into())).collect();
    Value::Object(words).to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn inline_style_and_script_contain_no_closing_tag() {
        // Escaping is disabled for both.
        assert!(!STYLE.contains("</") && !SCRIPT.contains("</"));
    }

    #[test]
    fn every_word_of_the_script_exists() {
        let used =
            SCRIPT.split("words.").skip(1).map(|rest| rest.split(|c: char| !c.is_alphanumeric()).next().unwrap());
        for name in used.filter(|name| !name.is_empty()) {
            let texts = Texts::of(Language::English);
            assert!(name == "words" || texts.script.iter().any(|(known, _)| known == &name), "{name}");
        }
    }
}
