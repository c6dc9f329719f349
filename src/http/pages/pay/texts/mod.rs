//! Texts of the payer's page in every language, and the choice of the language.
//!
//! A language is one file with one value of [`Texts`], so that the compiler refuses a language that lacks a text, or a text
//! that ignores one of its values. Amounts are written as elsewhere in the service.

mod de;
mod en;
mod es;
mod fr;
mod ja;
mod pt;

use std::convert::Infallible;

use axum::extract::FromRequestParts;
use axum::http::HeaderMap;
use axum::http::header::ACCEPT_LANGUAGE;
use axum::http::request::Parts;
use payferry_domain::payment::Payment;
use serde::Serialize;

payferry_domain::named! {
    /// A language of the page. Its name is its tag in HTML and in `Accept-Language`.
    Language, "the languages of the payer's page" {
        /// English, also for payers who prefer none of these languages.
        English = "en",
        /// German.
        German = "de",
        /// Spanish.
        Spanish = "es",
        /// French.
        French = "fr",
        /// Portuguese.
        Portuguese = "pt",
        /// Japanese.
        Japanese = "ja",
    }
}

impl Language {
    /// The texts of this language.
    pub(super) const fn texts(self) -> &'static Texts {
        match self {
            Self::English => &en::TEXTS,
            Self::German => &de::TEXTS,
            Self::Spanish => &es::TEXTS,
            Self::French => &fr::TEXTS,
            Self::Portuguese => &pt::TEXTS,
            Self::Japanese => &ja::TEXTS,
        }
    }

    /// The language that a request prefers (RFC 9110), whatever its region or script. The first one wins among languages of
    /// the same weight.
    pub(super) fn of(headers: &HeaderMap) -> Self {
        let lists = headers.get_all(ACCEPT_LANGUAGE).iter().filter_map(|value| value.to_str().ok());
        let weighted = lists.flat_map(|list| list.split(',')).filter_map(weighted);
        let best = weighted.reduce(|best, next| if next.1 > best.1 { next } else { best });
        best.map_or(Self::English, |(language, _)| language)
    }
}

/// A language and its weight, from one item of `Accept-Language`. `None`: it is refused (weight 0), invalid, or not one of
/// the page.
fn weighted(item: &str) -> Option<(Language, f32)> {
    let (range, parameter) = item.split_once(';').unwrap_or((item, "q=1"));
    let (name, weight) = parameter.split_once('=')?;
    let weight = weight.trim().parse().ok().filter(|weight| *weight > 0.0 && *weight <= 1.0)?;
    let primary = range.trim().split('-').next()?;
    let language = Language::ALL.into_iter().find(|language| language.as_str().eq_ignore_ascii_case(primary))?;
    name.trim().eq_ignore_ascii_case("q").then_some((language, weight))
}

impl<S: Send + Sync> FromRequestParts<S> for Language {
    type Rejection = Infallible;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, Infallible> {
        Ok(Self::of(&parts.headers))
    }
}

/// The party to which the payer can turn. A transfer to a customer has no merchant.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Contact {
    /// The merchant.
    Merchant,
    /// The sender of the link.
    Sender,
}

impl Contact {
    pub(super) fn of(payment: &Payment) -> Self {
        if payment.terms.purpose.is_pay_in() { Self::Merchant } else { Self::Sender }
    }

    /// One of two texts.
    const fn pick(self, merchant: &'static str, sender: &'static str) -> &'static str {
        match self {
            Self::Merchant => merchant,
            Self::Sender => sender,
        }
    }
}

/// A headline and its explanation.
type Said = (&'static str, &'static str);
/// Text before and after a value that the page marks up.
type Around = (&'static str, &'static str);
/// A text with one value.
type With = fn(&str) -> String;
/// A text about the party to contact.
type About = fn(Contact) -> String;

/// Every text of the page in one language. An amount includes its token.
pub(super) struct Texts {
    // Scenes.
    pub(super) waiting: Said,
    pub(super) choose: Said,
    pub(super) part_seen: &'static str,
    /// Seen, due, missing.
    pub(super) part_seen_text: fn(&str, &str, &str) -> String,
    pub(super) seen: &'static str,
    pub(super) seen_text: With,
    pub(super) rest_seen_text: &'static str,
    pub(super) checked: Said,
    pub(super) chain_waits: Said,
    pub(super) time_up: Said,
    pub(super) signed: &'static str,
    pub(super) signed_text: With,
    pub(super) signed_checked_text: &'static str,
    pub(super) confirmed: Said,
    pub(super) complete: &'static str,
    pub(super) complete_text: About,
    pub(super) incomplete: &'static str,
    /// Received, due, missing.
    pub(super) incomplete_text: fn(&str, &str, &str) -> String,
    /// Received, due.
    pub(super) underpaid_text: fn(&str, &str, Contact) -> String,
    pub(super) late: &'static str,
    pub(super) late_text: About,
    pub(super) overpaid: &'static str,
    /// Received, due.
    pub(super) overpaid_text: fn(&str, &str, Contact) -> String,
    pub(super) mismatched: &'static str,
    pub(super) mismatched_text: About,
    pub(super) expired: &'static str,
    pub(super) expired_text: About,
    pub(super) cancelled: &'static str,
    pub(super) cancelled_text: About,
    pub(super) blocked_text: About,
    pub(super) sent_back: &'static str,
    pub(super) sent_back_text: About,
    pub(super) failed: &'static str,
    pub(super) failed_text: About,

    // Notices.
    pub(super) signature_used: &'static str,
    pub(super) signature_refused: &'static str,
    pub(super) signature_expired: &'static str,
    /// The token asked for.
    pub(super) wrong_token: fn(&str, Contact) -> String,
    /// The chain of the payment.
    pub(super) wrong_chain: fn(&str, Contact) -> String,
    pub(super) under_check: &'static str,
    pub(super) under_check_contact: About,
    pub(super) excess: fn(&str, Contact) -> String,
    pub(super) refund_held: With,
    pub(super) refund_going: With,
    pub(super) refund_sent: With,

    // The frame.
    pub(super) test: Said,
    pub(super) on_chain: With,
    pub(super) time_left: Around,
    pub(super) pay_until: Around,
    pub(super) progress: &'static str,
    pub(super) steps: [&'static str; 4],
    pub(super) step_done: &'static str,
    /// Confirmations, and the required number.
    pub(super) confirmations: fn(u64, u64) -> String,
    pub(super) waits_for_finality: &'static str,
    pub(super) reload: &'static str,
    /// The link to the page on which payers ask for refunds.
    pub(super) get_money_back: &'static str,
    /// The name of the merchant or the PSP.
    pub(super) return_to: With,

    // The choice of the chain.
    pub(super) choose_chain: With,

    // The request for money.
    pub(super) scan: &'static str,
    pub(super) code_choice: &'static str,
    pub(super) code_request: &'static str,
    pub(super) code_address: &'static str,
    /// Amount, chain, address.
    pub(super) code_request_label: fn(&str, &str, &str) -> String,
    /// Address.
    pub(super) code_address_label: With,
    /// Amount, chain.
    pub(super) code_address_hint: fn(&str, &str) -> String,
    pub(super) to_send: &'static str,
    pub(super) send_exactly: &'static str,
    pub(super) on_the_chain: &'static str,
    pub(super) to_this_address: &'static str,
    pub(super) token_contract: With,
    pub(super) copy: &'static str,
    pub(super) copy_amount: &'static str,
    pub(super) copy_address: &'static str,
    pub(super) copy_contract: &'static str,
    pub(super) wallets: &'static str,
    pub(super) open_in_app: &'static str,
    /// Token, chain.
    pub(super) only: fn(&str, &str) -> String,
    pub(super) only_why: About,
    pub(super) what_you_sign: &'static str,
    /// Text before and after the time at which the signature expires.
    pub(super) sign_text: fn(&str) -> (String, &'static str),
    pub(super) sign_message: &'static str,
    pub(super) sign_to: &'static str,
    pub(super) sign_value: &'static str,
    pub(super) sign_nonce: &'static str,

    // Received transfers.
    pub(super) arrived: &'static str,
    /// Received, due.
    pub(super) counted: fn(&str, &str) -> String,
    /// An amount without its token.
    pub(super) unknown_token: With,
    pub(super) transfer_orphaned: &'static str,
    pub(super) transfer_stray: &'static str,
    pub(super) transfer_confirmed: &'static str,
    pub(super) transfer_seen: &'static str,
    pub(super) transfer_checked: &'static str,
    pub(super) transaction: &'static str,
    pub(super) settlement: &'static str,

    // Pages without a payment.
    pub(super) not_found: Said,
    pub(super) too_many: Said,
    pub(super) unavailable: Said,

    pub(super) script: ScriptTexts,
}

/// Texts that the script shows.
pub(super) struct ScriptTexts {
    pub(super) live: &'static str,
    pub(super) connecting: &'static str,
    pub(super) copied: &'static str,
    pub(super) pay: &'static str,
    pub(super) pay_with: With,
    pub(super) sign: &'static str,
    pub(super) sign_with: With,
    pub(super) declined: &'static str,
    pub(super) unknown_chain: With,
    pub(super) sign_now: &'static str,
    pub(super) sending: &'static str,
    pub(super) collected: &'static str,
    pub(super) refused: &'static str,
    pub(super) too_little: &'static str,
    pub(super) cannot_sign: &'static str,
    pub(super) confirm_now: &'static str,
    pub(super) sent: &'static str,
    pub(super) wallet_failed: &'static str,
}

/// [`ScriptTexts`] as the script reads them. The script replaces `{wallet}` and `{chain}`.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct ScriptMessages {
    live: &'static str,
    connecting: &'static str,
    copy: &'static str,
    copied: &'static str,
    pay: &'static str,
    pay_with: String,
    sign: &'static str,
    sign_with: String,
    declined: &'static str,
    unknown_chain: String,
    sign_now: &'static str,
    sending: &'static str,
    collected: &'static str,
    refused: &'static str,
    too_little: &'static str,
    cannot_sign: &'static str,
    confirm_now: &'static str,
    sent: &'static str,
    wallet_failed: &'static str,
}

impl Texts {
    /// The texts of the script, as JSON.
    pub(super) fn for_script(&self) -> String {
        let script = &self.script;
        let messages = ScriptMessages {
            live: script.live,
            connecting: script.connecting,
            copy: self.copy,
            copied: script.copied,
            pay: script.pay,
            pay_with: (script.pay_with)("{wallet}"),
            sign: script.sign,
            sign_with: (script.sign_with)("{wallet}"),
            declined: script.declined,
            unknown_chain: (script.unknown_chain)("{chain}"),
            sign_now: script.sign_now,
            sending: script.sending,
            collected: script.collected,
            refused: script.refused,
            too_little: script.too_little,
            cannot_sign: script.cannot_sign,
            confirm_now: script.confirm_now,
            sent: script.sent,
            wallet_failed: script.wallet_failed,
        };
        serde_json::to_string(&messages).expect("texts serialise as JSON")
    }
}

#[cfg(test)]
mod tests;
