//! `GET /pay/{token}/refund`: a payer asks for late, misdirected or excess money back. Anyone who has the link can open it, so
//! it shows no addresses.
//!
//! `message` is what the sending account signs, `texts` has all words in each language, and `view` renders. The form for payers who paid from an
//! exchange works without JavaScript; `refund.js` asks a wallet for the signature. A request is a command of the payment, which
//! carries it out, or keeps it for the PSP.

mod message;
mod texts;
mod view;

use axum::extract::rejection::{FormRejection, PathRejection};
use axum::extract::{Path, State};
use axum::http::header::LOCATION;
use axum::http::{StatusCode, Uri};
use axum::response::{IntoResponse, Response};
use payferry_actors::pauses::Scope;
use payferry_actors::payment::ResultRows;
use payferry_domain::payment::{
    AddressProof, Command, PayerRefunds, Payment, REFUND_NOTE_CHARS_MAX, RefundAsk, Rejection,
};
use payferry_domain::{Address, Amount, Asset, Chain, RefundRequestId, Timestamp};
use payferry_evm::wallet::checksummed;
use payferry_httpkit::extract::RequestBody as _;
use payferry_httpkit::extract::field::{optional, required};
use payferry_httpkit::lists::DateTime;
use payferry_httpkit::pages::ScriptAdmitted;
use payferry_httpkit::pages::form::{FormValues, Sort};
use payferry_httpkit::{
    Answer, ApiError, Away, Fault, FieldError, Fields, JsonBody, QueryFields, Rule, read, request, rule,
};
use payferry_journal::audit::{Actor, NewAuditEntry};
use serde::Serialize;
use serde_json::json;

use super::pay::{Admitted, Language, answer, find};
use crate::http::money::outbound::check_reconciled;
use crate::http::payments::authorize::hex;
use crate::http::payments::chain_id;
use crate::http::state::{AppShared, AppState};
use message::MessageTerms;
use view::RefundPageView;

/// Action in the audit log.
const AUDITED: &str = "payment.refund_asked";
/// Fields of the form.
const MONEY: &str = "money";
const ADDRESS: &str = "address";
const NOTE: &str = "note";
const FORM: [(&str, Sort); 3] = [(MONEY, Sort::Text), (ADDRESS, Sort::Text), (NOTE, Sort::Text)];

request! {
    /// The account that will sign.
    struct MessagesRequest {
        account: Address = required(rule::address()),
    }
}

request! {
    /// A signed message: its values, and the signature of `account`.
    struct SignedRequest {
        account: Address = required(rule::address()),
        chain: Chain = required(rule::name()),
        token_address: Address = required(rule::address()),
        amount: Amount = required(rule::part()),
        issued_at: Timestamp = required(rule::moment()),
        signature: Vec<u8> = required(hex()),
    }
}

request! {
    /// The form.
    struct ClaimRequest {
        money: Money = required(MONEY_RULE),
        address: Address = required(rule::address()),
        note: Option<String> = optional(rule::short::<REFUND_NOTE_CHARS_MAX>()),
    }
}

/// A choice of the form: a token, and all of it that can be returned.
struct Money {
    asset: Asset,
    amount: Amount,
}

/// Chain, token contract and amount, separated by slashes.
const MONEY_RULE: Rule<Money> = Rule {
    read: |value| {
        let mut parts = value.as_str().unwrap_or_default().split('/');
        let mut next = || parts.next().unwrap_or_default();
        let (chain, token, amount) = (next(), next(), next());
        let asset = || Some(Asset { chain: chain.parse().ok()?, address: read::address(&token.into()).ok()? });
        let money = || Some(Money { asset: asset()?, amount: amount.parse().ok()? });
        money().ok_or_else(|| Fault::new("unknown_value", "must be one of the choices"))
    },
    schema: rule::string,
};

/// The value of a choice of the form.
fn money_value(payment: &Payment, asset: Option<Asset>, amount: Amount) -> String {
    let Asset { chain, address } = asset.unwrap_or_else(|| payment.asset());
    format!("{chain}/{}/{amount}", checksummed(address))
}

/// The page.
pub(in crate::http) async fn show(
    admitted: Admitted,
    State(app): State<AppState>,
    language: Language,
    token: Result<Path<String>, PathRejection>,
    uri: Uri,
) -> Response {
    let shown = async {
        admitted?;
        let payment = find(&app, token).await?;
        let policy = policy(&app, &payment).await?;
        let is_done = QueryFields::of(&uri).optional("done", |word| Ok(word.to_owned())).is_some();
        Ok(view::page(
            &app,
            &payment,
            &RefundPageView { language, status: StatusCode::OK, policy, refused: None, is_done },
        ))
    };
    answer(language, shown.await)
}

/// Takes the form: a request that the PSP decides, to an address that is not proven.
pub(in crate::http) async fn claim(
    admitted: Admitted,
    State(app): State<AppState>,
    language: Language,
    token: Result<Path<String>, PathRejection>,
    form: Result<FormValues, FormRejection>,
) -> Response {
    let found = async {
        admitted?;
        let payment = find(&app, token).await?;
        let policy = policy(&app, &payment).await?;
        Ok((payment, policy))
    };
    let (payment, policy) = match found.await {
        Ok(found) => found,
        Err(error) => return answer(language, Err(error)),
    };
    let form = form.unwrap_or_default();
    let taken = async {
        let ClaimRequest { money, address: to, note } = read_form(&form)?;
        let ask = RefundAsk {
            id: RefundRequestId::generate(),
            amount: money.amount,
            to,
            asset: Some(money.asset).filter(|asset| *asset != payment.asset()),
            proof: AddressProof::Claimed,
            at_once: false,
            plain: None,
            hold: false,
            note,
        };
        submit(&app, &payment, policy, ask).await
    };
    let error: ApiError = match taken.await {
        Ok(_) => return (StatusCode::SEE_OTHER, [(LOCATION, format!("{}?done=1", path(&payment)))]).into_response(),
        Err(error) => error,
    };
    if let Some((_, reason)) = error.for_log() {
        tracing::error!(error = reason, "a payer's request for a refund failed: {reason}");
    }
    let refused = Some((&form, &*error.code()));
    let shown = RefundPageView { language, status: error.status(), policy, refused, is_done: false };
    answer(language, Ok(view::page(&app, &payment, &shown)))
}

fn read_form(form: &FormValues) -> Result<ClaimRequest, ApiError> {
    let body = form.json(&FORM);
    let fields = Fields::of_body(&body)?;
    let read = ClaimRequest::read(&fields);
    fields.finish(read)
}

/// The path of the page.
fn path(payment: &Payment) -> String {
    format!("/pay/{}/refund", payment.terms.link_token)
}

/// A message that an account can sign.
#[derive(Serialize)]
struct OfferedMessage {
    message: String,
    /// EIP-155 id of the chain, for wallets.
    chain_id: String,
    chain: Chain,
    token_address: String,
    amount: String,
    issued_at: DateTime,
}

/// The messages that an account can sign now. Answers as the API does, because a script reads it.
pub(in crate::http) async fn messages(
    _: ScriptAdmitted,
    State(app): State<AppState>,
    token: Result<Path<String>, PathRejection>,
    body: JsonBody,
) -> Result<Answer, ApiError> {
    let payment = find(&app, token).await?;
    let MessagesRequest { account } = body.parse()?;
    check_offered(policy(&app, &payment).await?)?;
    let offered = |terms: MessageTerms| OfferedMessage {
        message: terms.text(&app, &payment),
        chain_id: format!("{:#x}", chain_id(app.system.chains(), terms.asset.chain)),
        chain: terms.asset.chain,
        token_address: checksummed(terms.asset.address),
        amount: terms.amount.to_string(),
        issued_at: terms.issued_at.into(),
    };
    let messages = MessageTerms::offered(&payment, account, app.clock().now());
    Answer::ok(&json!({ "messages": messages.into_iter().map(offered).collect::<Vec<_>>() }))
}

/// Takes what the account signed: carries it out at once, or keeps it for the PSP. Answers as the API does.
pub(in crate::http) async fn sign(
    _: ScriptAdmitted,
    State(app): State<AppState>,
    token: Result<Path<String>, PathRejection>,
    body: JsonBody,
) -> Result<Answer, ApiError> {
    let payment = find(&app, token).await?;
    let SignedRequest { account, chain, token_address: address, amount, issued_at, signature } = body.parse()?;
    let policy = policy(&app, &payment).await?;
    check_offered(policy)?;
    let terms = MessageTerms { account, asset: Asset { chain, address }, amount, issued_at };
    let ask = terms.verified(&app, &payment, &signature, policy == PayerRefunds::Sender).await?;
    let id = ask.id;
    let payment = submit(&app, &payment, policy, ask).await?;
    let request = payment.refund_requests.iter().find(|request| request.id == id);
    let status = request.map(|request| request.state);
    Answer::accepted(&json!({ "message": "Request received", "refund_request_id": id, "status": status }))
}

/// True if the payer's page links to this one: there is money to ask for, or a request.
pub(super) fn offers_refund(payment: &Payment) -> bool {
    !payment.terms.payer_refunds.is_off() && (!payment.refund_requests.is_empty() || !payment.returnable().is_empty())
}

/// The offer to payers now: that of the terms of the payment, and no more than the PSP offers at the moment.
async fn policy(app: &AppShared, payment: &Payment) -> Result<PayerRefunds, ApiError> {
    let psp = app.system.psps().get(payment.terms.psp_id).await;
    let psp = psp.map_err(|error| ApiError::Unavailable(Away::Database, error.to_string().into()))?;
    Ok(psp.policies.payer_refunds.min(payment.terms.payer_refunds))
}

fn check_offered(policy: PayerRefunds) -> Result<(), ApiError> {
    if policy.is_off() { Err(Rejection::PayerRefundsOff.into()) } else { Ok(()) }
}

/// Sends a request to the payment's actor. It follows the rules of refunds of the PSP: nothing during a pause of the account, not
/// to wallets of this service, and above a limit only with the operator's approval.
async fn submit(app: &AppShared, payment: &Payment, policy: PayerRefunds, ask: RefundAsk) -> Result<Payment, ApiError> {
    check_offered(policy)?;
    if app.system.pauses().is_paused(Scope::Psp(payment.terms.psp_id)) {
        return Err(ApiError::psp_paused());
    }
    check_reconciled(app, ask.asset.map_or(payment.terms.chain, |asset| asset.chain))?;
    if let Some(unsuitable) = app.system.unsuitable(ask.to).await? {
        let fault = FieldError::new(ADDRESS, unsuitable.code(), unsuitable.to_string());
        return Err(ApiError::Validation(vec![fault]));
    }
    let (id, proof) = (ask.id, ask.proof);
    let rows = || {
        let entry = NewAuditEntry {
            action: AUDITED.to_owned(),
            psp_id: Some(payment.terms.psp_id),
            subject: payment.id().to_string(),
            detail: json!({ "refund_request_id": id, "address_proof": proof }),
        };
        ResultRows::default().audited(entry, &Actor::Customer, app.clock().now())
    };
    Ok(app.system.command_or_hold(payment.id(), Command::AskRefund(Box::new(ask)), rows).await?)
}
