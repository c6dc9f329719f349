//! Renders the payer's page. Styles and script are inline and allowed by their hash.
//!
//! Each part has an id. The script replaces only the parts that differ from the streamed content, so the reader's
//! position, selection and focus stay. The order of the parts is that of a phone: the QR code comes before the state.

use std::sync::LazyLock;

use axum::http::{HeaderValue, StatusCode};
use axum::response::Response;
use maud::{DOCTYPE, Markup, PreEscaped, html};
use payferry_domain::payment::{Payment, SettlementState, Transfer, TransferStatus, TransferToken};
use payferry_domain::{Amount, Chain, Finality, Hash32, Timestamp};
use payferry_httpkit::pages::words::explorer;
use payferry_httpkit::pages::{respond_under, script_policy};
use serde_json::Value;
use serde_json::value::RawValue;

use super::brand::Brand;
use super::qr;
use super::scene::{Scene, StateColour, Step, chain_name, may_choose, money};
use super::texts::{Contact, Language, Texts};
use crate::http::live::is_over;
use crate::http::pages::refund::offers_refund;
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

/// Allows only the inline styles and the script, logos of this service and inline images: no external resources or frames.
/// Forms are sent to this service, and only to choose the chain.
fn policy(styles: &[&str], has_form: bool) -> HeaderValue {
    script_policy(styles, SCRIPT, "'self' data:", if has_form { "'self'" } else { "'none'" })
}

/// Policy of a page without a colour of the PSP and without a form.
static POLICY: LazyLock<HeaderValue> = LazyLock::new(|| policy(&[STYLE], false));

/// Everything that the page depends on besides the payment.
pub(super) struct Frame {
    pub(super) language: Language,
    pub(super) brand: Brand,
}

/// Renders the complete page.
pub(super) fn page(app: &AppShared, payment: &Payment, frame: &Frame) -> Response {
    let Frame { language, brand } = frame;
    let texts = language.texts();
    let markup = html! {
        (DOCTYPE)
        html lang=(language) {
            head {
                meta charset="utf-8";
                meta name="viewport" content="width=device-width, initial-scale=1";
                meta name="robots" content="noindex, nofollow";
                title { (Scene::of(payment, app.clock().now(), texts).headline) }
                link rel="icon" href=(ICON);
                style { (PreEscaped(STYLE)) }
                @if !brand.style.is_empty() { style { (PreEscaped(&brand.style)) } }
                @if !is_over(payment) {
                    noscript { meta http-equiv="refresh" content=(RELOAD_SECS); }
                }
            }
            body data-texts=(texts.for_script()) {
                @if app.config.environment == Environment::Sandbox {
                    (test_notice(*language))
                }
                (content(app, payment, frame))
                p #announcer role="status" aria-live="polite" {}
                script { (PreEscaped(SCRIPT)) }
            }
        }
    };
    let has_form = payment.awaits_chain();
    let policy = match &*brand.style {
        "" if !has_form => POLICY.clone(),
        "" => policy(&[STYLE], has_form),
        style => policy(&[STYLE, style], has_form),
    };
    respond_under(policy, StatusCode::OK, markup.into_string())
}

/// Says that the chains are not real.
pub(in crate::http::pages) fn test_notice(language: Language) -> Markup {
    let (headline, text) = language.texts().test;
    html! { aside #test { strong { (headline) } " " (text) } }
}

/// Renders the part of the page that changes with the payment.
pub(super) fn content(app: &AppShared, payment: &Payment, frame: &Frame) -> Markup {
    let now = app.clock().now();
    let texts = frame.language.texts();
    let view = View { app, payment, texts, brand: &frame.brand };
    let scene = Scene::of(payment, now, texts);
    html! {
        main #payment data-status=(payment.status) data-mood=(scene.state_colour.as_str()) data-over[is_over(payment)]
            data-now=(now.as_millis()) data-asks[scene.to_pay.is_some()] {
            (view.order())
            @if let Some(to_pay) = scene.to_pay { (view.codes(to_pay)) }
            (view.state(&scene))
            @if may_choose(payment, now) { (view.choice()) }
            @if let Some(to_pay) = scene.to_pay { (view.asking(to_pay)) }
            (view.arrived())
            p #foot {
                @if !is_over(payment) { span #link role="presentation" {} " " }
                a href="" { (texts.reload) }
                @if offers_refund(payment) {
                    " " a #refund href={ (app.magic_link(&payment.terms.link_token)) "/refund" } { (texts.get_money_back) }
                }
            }
        }
    }
}

/// One rendering of a payment.
#[derive(Clone, Copy)]
struct View<'a> {
    app: &'a AppShared,
    payment: &'a Payment,
    texts: &'static Texts,
    brand: &'a Brand,
}

impl View<'_> {
    fn money(self, amount: Amount) -> String {
        money(amount, self.payment.terms.token)
    }

    /// Renders who is paid, for what, and how much. Names and descriptions are isolated, because they may contain text of
    /// the other direction.
    fn order(self) -> Markup {
        let (terms, brand) = (&self.payment.terms, self.brand);
        html! {
            header #order.branded[!brand.style.is_empty()] {
                div.payee {
                    @if let Some(logo) = &brand.logo { img src=(logo) alt=""; }
                    div {
                        p.name { bdi { (brand.name) } }
                        @if let Some(description) = &terms.description { p.description { bdi { (description) } } }
                    }
                }
                p.sum {
                    span.amount { (self.money(terms.amount)) } " "
                    @if let Some(chain) = self.payment.chain() { span.soft { ((self.texts.on_chain)(chain_name(chain))) } }
                }
            }
        }
    }

    /// Renders a button for each chain that the payer can choose now.
    fn choice(self) -> Markup {
        let (terms, texts) = (&self.payment.terms, self.texts);
        let open =
            terms.offered().iter().map(|offer| offer.chain).filter(|chain| self.app.system.takes_payments_on(*chain));
        html! {
            section #choice {
                form.buttons method="post" action={ "/pay/" (terms.link_token) "/chain" } aria-label=(texts.choose.0) {
                    @for chain in open { button.main name="chain" value=(chain) { ((texts.choose_chain)(chain_name(chain))) } }
                }
            }
        }
    }

    /// Renders both QR codes. Without the script, too, the radio buttons choose the visible one.
    fn codes(self, to_pay: Amount) -> Markup {
        let (terms, texts) = (&self.payment.terms, self.texts);
        let (amount, chain) = (self.money(to_pay), chain_name(terms.chain));
        let addresses = Addresses::of(terms);
        let uri = addresses.transfer_uri(self.app.system.chains(), terms.chain, to_pay);
        let wallet = &addresses.wallet;
        html! {
            section #scan aria-label=(texts.scan) {
                div.codes {
                    figure.request {
                        @if let Some(code) = qr::picture(&uri, &(texts.code_request_label)(&amount, chain, wallet)) { (code) }
                        figcaption.soft { (texts.scan) }
                    }
                    figure.address {
                        @if let Some(code) = qr::picture(wallet, &(texts.code_address_label)(wallet)) { (code) }
                        figcaption.soft { ((texts.code_address_hint)(&amount, chain)) }
                    }
                }
                fieldset.choice {
                    legend { (texts.code_choice) }
                    label { input #code-request type="radio" name="code" checked; span { (texts.code_request) } }
                    label { input #code-address type="radio" name="code"; span { (texts.code_address) } }
                }
            }
        }
    }

    fn state(self, scene: &Scene) -> Markup {
        let (payment, texts) = (self.payment, self.texts);
        let ((before_left, after_left), (before_time, after_time)) = (texts.time_left, texts.pay_until);
        html! {
            section #state aria-labelledby="headline" {
                h1 #headline { (scene.headline) }
                p #explanation { (scene.explanation) }
                @for notice in &scene.notices { p.notice role="note" { (notice) } }
                @if scene.state_colour == StateColour::Asking {
                    p.clock {
                        span.left hidden data-until=(payment.expires_at.as_millis()) {
                            (before_left) strong role="timer" {} (after_left)
                        }
                        span.soft { (before_time) (moment(payment.expires_at)) (after_time) }
                    }
                }
                @if let Some(step) = scene.step { (self.steps(step)) }
                @if let Some(url) = self.brand.return_url.as_ref().filter(|_| scene.is_done(payment)) {
                    div.buttons { a.button.main #back rel="noreferrer" href=(url) { ((texts.return_to)(&self.brand.name)) } }
                }
            }
        }
    }

    fn steps(self, at: Step) -> Markup {
        let (payment, texts) = (self.payment, self.texts);
        let seen = match progress(self.app, payment) {
            Some(progress) => (texts.confirmations)(progress.confirmations, progress.required),
            None if at == Step::Seen
                && payment.transfers.iter().any(|transfer| transfer.status == TransferStatus::Seen) =>
            {
                match payment.required_finality() {
                    Finality::Blocks(_) => String::new(),
                    Finality::Safe | Finality::Finalized => texts.waits_for_finality.to_owned(),
                }
            }
            None => String::new(),
        };
        html! {
            ol.steps aria-label=(texts.progress) {
                @for (step, name) in Step::ALL.into_iter().zip(texts.steps) {
                    @let is_done = step < at || at == Step::Complete;
                    @let class = if is_done { "done" } else if step == at { "now" } else { "ahead" };
                    li class=(class) aria-current=[(step == at).then_some("step")] {
                        span { (name) @if is_done { span.unseen { " " (texts.step_done) } } }
                        @if step == Step::Seen && !seen.is_empty() { span.soft { (seen) } }
                    }
                }
            }
        }
    }

    /// Renders the amount to send, its address, and the wallets that can send it.
    fn asking(self, to_pay: Amount) -> Markup {
        let (app, terms, texts) = (self.app, &self.payment.terms, self.texts);
        let (chains, chain, token_name) = (app.system.chains(), chain_name(terms.chain), terms.token.as_str());
        let addresses = Addresses::of(terms);
        let uri = addresses.transfer_uri(chains, terms.chain, to_pay);
        let Addresses { wallet, token } = addresses;
        let bare = |address: &str| address.trim_start_matches("0x").to_lowercase();
        let call = format!("0x{TRANSFER_SELECTOR}{:0>64}{:064x}", bare(&wallet), to_pay.units());
        let chain_id = format!("{:#x}", chain_id(chains, terms.chain));
        html! {
            section #asking aria-label=(texts.to_send) {
                div.fields {
                    (self.field(texts.send_exactly, "amount", &to_pay.to_string(), texts.copy_amount))
                    div.field { p.label { (texts.on_the_chain) } p { strong { (chain) } } }
                    (self.field(texts.to_this_address, "address", &wallet, texts.copy_address))
                    (self.field(&(texts.token_contract)(token_name), "contract", &token, texts.copy_contract))
                }
                div.buttons {
                    fieldset.choice #wallets hidden { legend { (texts.wallets) } }
                    @if let Some(typed_data) = typed_data(app, self.payment) {
                        button.main #sign type="button" hidden data-chain=(chain_id) data-chain-name=(chain)
                            data-typed=(typed_data.get()) { (texts.script.sign) }
                        (self.what_is_signed(&typed_data, to_pay))
                    }
                    button.main #wallet type="button" hidden data-chain=(chain_id) data-chain-name=(chain) data-to=(token)
                        data-call=(call) { (texts.script.pay) }
                    a.button href=(uri) { (texts.open_in_app) }
                    p #told role="status" aria-live="polite" {}
                }
                p.warning {
                    strong { ((texts.only)(token_name, chain)) } " " ((texts.only_why)(Contact::of(self.payment)))
                }
            }
        }
    }

    /// Renders exactly what the payer's wallet will sign.
    fn what_is_signed(self, typed_data: &RawValue, to_pay: Amount) -> Markup {
        let texts = self.texts;
        let typed_data: Value = serde_json::from_str(typed_data.get()).unwrap_or_default();
        let message = &typed_data["message"];
        let text = |name: &str| message[name].as_str().unwrap_or_default().to_owned();
        let until = text("validBefore").parse().map_or(Timestamp(0), |secs: i64| Timestamp(secs.saturating_mul(1_000)));
        let (before, after) = (texts.sign_text)(&self.money(to_pay));
        html! {
            details #signed hidden {
                summary { (texts.what_you_sign) }
                p.soft { (before) (moment(until)) (after) }
                dl {
                    dt { (texts.sign_message) } dd { (typed_data["primaryType"].as_str().unwrap_or_default()) }
                    dt { (texts.sign_to) } dd.value { (text("to")) }
                    dt { (texts.sign_value) } dd.value { (text("value")) }
                    dt { (texts.sign_nonce) } dd.value { (text("nonce")) }
                }
            }
        }
    }

    /// Renders a value to copy. Without JavaScript, a click selects all of it.
    fn field(self, label: &str, name: &str, value: &str, copy: &str) -> Markup {
        let id = format!("value-{name}");
        let is_amount = name == "amount";
        html! {
            div.field.wide[!is_amount] {
                p.label { (label) }
                p { span.value id=(id) { (value) } @if is_amount { " " (self.payment.terms.token) } }
                button.copy type="button" hidden data-copy=(value) aria-label=(copy) { (self.texts.copy) }
            }
        }
    }

    /// Lists the transfers that have arrived, without their senders, and the transaction that passed the money on.
    fn arrived(self) -> Markup {
        let (payment, texts) = (self.payment, self.texts);
        let shown: Vec<&Transfer> =
            payment.transfers.iter().filter(|one| one.status != TransferStatus::Ignored).collect();
        if shown.is_empty() {
            return html! {};
        }
        let settlement = payment.settlement.as_deref().filter(|one| one.state == SettlementState::Settled);
        let passed_on = settlement.and_then(|one| self.transaction(payment.terms.chain, one.tx_hash?));
        html! {
            section #arrived aria-labelledby="arrived-title" {
                h2 #arrived-title { (texts.arrived) }
                ul {
                    @for transfer in shown {
                        li {
                            strong { (self.amount_of(transfer)) }
                            @if transfer.key.chain != payment.terms.chain {
                                " " ((texts.on_chain)(chain_name(transfer.key.chain)))
                            }
                            " " span.soft {
                                (moment(transfer.block.time)) " · " (self.standing(transfer))
                                @if let Some(link) = self.transaction(transfer.key.chain, transfer.key.tx_hash) { " · " (link) }
                            }
                        }
                    }
                }
                @if !payment.amount_received().is_zero() {
                    p.soft {
                        ((texts.counted)(&payment.amount_received().to_string(), &self.money(payment.terms.amount)))
                    }
                }
                @if let Some(link) = passed_on { p.soft { (texts.settlement) " " (link) } }
            }
        }
    }

    /// Link to a transaction at the explorer of a public chain. Test chains have none.
    fn transaction(self, chain: Chain, hash: Hash32) -> Option<Markup> {
        transaction(self.texts, chain_id(self.app.system.chains(), chain), &hash.to_string())
    }

    fn amount_of(self, transfer: &Transfer) -> String {
        match transfer.token {
            TransferToken::Right => self.money(transfer.amount),
            TransferToken::Other { token, .. } => money(transfer.amount, token),
            TransferToken::LookAlike { .. } => (self.texts.unknown_token)(&transfer.amount.to_string()),
        }
    }

    fn standing(self, transfer: &Transfer) -> &'static str {
        let texts = self.texts;
        match transfer.status {
            TransferStatus::Orphaned => texts.transfer_orphaned,
            _ if !transfer.is_right() => texts.transfer_stray,
            _ if transfer.counted => texts.transfer_confirmed,
            TransferStatus::Seen => texts.transfer_seen,
            _ => texts.transfer_checked,
        }
    }
}

/// Link to a transaction, with the ends of its hash.
fn transaction(texts: &Texts, chain_id: u64, hash: &str) -> Option<Markup> {
    let url = explorer(chain_id, hash)?;
    let ends = (hash.get(..6)?, hash.get(hash.len().checked_sub(4)?..)?);
    Some(html! { a href=(url) rel="noreferrer" target="_blank" { (texts.transaction) " " (ends.0) "…" (ends.1) } })
}

/// Renders a time in a form of every language. The script converts it to the reader's language and time zone.
/// A time, which the script converts to the time zone of the payer.
pub(in crate::http::pages) fn moment(at: Timestamp) -> Markup {
    let text = chrono::DateTime::<chrono::Utc>::from(at).format("%Y-%m-%d %H:%M UTC").to_string();
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

    #[test]
    fn transactions_are_linked_on_public_chains() {
        let hash = format!("0x{}", "ab".repeat(32));
        let link = |chain_id| transaction(Language::German.texts(), chain_id, &hash).map(Markup::into_string);
        let expected = format!(
            "<a href=\"https://basescan.org/tx/{hash}\" rel=\"noreferrer\" target=\"_blank\">Transaktion 0xabab…abab</a>"
        );
        assert_eq!(link(8_453), Some(expected));
        assert_eq!(link(7_700_008_453), None);
    }
}
