//! Payments by signature: `POST /payments/{payment_id}/authorization`, the record of an authorization, and what a payer
//! signs. The payer's page has its own route (`pages::pay`).

use std::sync::LazyLock;

use axum::extract::State;
use axum::response::Response;
use payferry_actors::payment::ResultRows;
use payferry_actors::system::{AuthorizeError, SignedTerms, VerifiedAuthorization};
use payferry_domain::payment::{Authorization, AuthorizationFailure, AuthorizationKind, AuthorizationState, Payment};
use payferry_domain::{Address, Amount, Hash32};
use payferry_evm::wallet::checksummed;
use payferry_httpkit::error::sentence;
use payferry_httpkit::extract::field::required;
use payferry_httpkit::extract::rule::{Rule, string};
use payferry_httpkit::extract::{Field as _, read as reading};
use payferry_httpkit::lists::DateTime;
use payferry_httpkit::{Answer, ApiError, Away, Fault, FieldError, Path, Payments, Problem, request, rule};
use payferry_journal::audit::{Actor, NewAuditEntry};
use serde::Serialize;
use serde_json::json;
use serde_json::value::{RawValue, to_raw_value};

use super::change::Change;
use super::{Addresses, PaymentRecord, own};
use crate::http::state::{AppShared, ChangeOf};

/// Action in the audit log.
const AUDITED: &str = "payment.authorized";
/// Most base units of an amount: 18 digits.
const UNITS_PATTERN: &str = "^[1-9][0-9]{0,17}$";
/// Largest time in seconds; the year 2286.
const SECS_MAX: i64 = 9_999_999_999;
/// Hexadecimal digits of the longest signature, with the prefix.
const SIGNATURE_CHARS_MAX: usize = 2 + 2 * payferry_contracts::SIGNATURE_BYTES_MAX;

request! {
    /// The message that the payer signed (EIP-3009), with the signature. The values are those of the signed message.
    pub struct AuthorizationRequest {
        /// The signed message: `receive_with_authorization` (to the service's contract, with the nonce of this payment), or
        /// `transfer_with_authorization` (to `intermediary_wallet`, with a nonce of the payer's choice).
        r#type: AuthorizationKind = required(rule::name()).example("receive_with_authorization"),
        /// The payer's account, which signed.
        from: Address = required(rule::address()).example("0x1111111111111111111111111111111111111111"),
        /// The amount due, in base units of the token, as signed.
        value: Amount = required(units()).example("10000000"),
        /// Seconds since the epoch; in the past.
        valid_after: i64 = required(rule::whole::<0, SECS_MAX>()).example(0),
        /// Seconds since the epoch; not later than the payment's `expires_at`.
        valid_before: i64 = required(rule::whole::<0, SECS_MAX>()).example(1_795_000_000),
        /// As signed.
        nonce: Hash32 = required(rule::hash())
            .example("0x7b1c4b2d0f9e8a7c6d5e4f3a2b1c0d9e8f7a6b5c4d3e2f1a0b9c8d7e6f5a4b3c"),
        /// 65 bytes (r, s, v) of a plain account, or the bytes of a contract wallet (ERC-1271), in hexadecimal.
        signature: Vec<u8> = required(hex()).example("0x00"),
    }
}

/// Base units of the token, as text.
fn units() -> Rule<Amount> {
    Rule {
        read: |value| {
            let text = reading::string(value)?;
            let is_number =
                text.len() <= 18 && !text.starts_with('0') && text.bytes().all(|byte| byte.is_ascii_digit());
            let units = text.parse().ok().filter(|_| is_number && !text.is_empty());
            let malformed = || Fault::new("amount_malformed", "must be a whole number of base units, as a string");
            units.map(Amount::from_units).ok_or_else(malformed)
        },
        schema: || string().pattern(Some(UNITS_PATTERN)),
    }
}

/// A signature in hexadecimal.
pub(in crate::http) fn hex() -> Rule<Vec<u8>> {
    Rule {
        read: |value| {
            let text = reading::string(value)?;
            let digits = text.strip_prefix("0x").filter(|_| text.len() <= SIGNATURE_CHARS_MAX);
            let bytes = digits.and_then(|digits| alloy::hex::decode(digits).ok()).filter(|bytes| !bytes.is_empty());
            bytes.ok_or_else(|| Fault::new("invalid_signature", "must be 0x and an even number of hexadecimal digits"))
        },
        schema: || string().pattern(Some("^0x([0-9a-fA-F]{2})+$")).max_length(Some(SIGNATURE_CHARS_MAX)),
    }
}

impl AuthorizationRequest {
    /// The signed terms.
    pub(in crate::http) fn terms(self) -> SignedTerms {
        SignedTerms {
            kind: self.r#type,
            from: self.from,
            value: self.value,
            valid_after: self.valid_after.unsigned_abs(),
            valid_before: self.valid_before.unsigned_abs(),
            nonce: self.nonce,
            signature: self.signature,
        }
    }
}

/// Verifies and accepts what the payer signed on a page; returns the payment.
pub(crate) async fn accept(app: &AppShared, payment: &Payment, terms: &SignedTerms) -> Result<Payment, ApiError> {
    let verified = app.system.verify_authorization(payment, terms).await.map_err(refused)?;
    let entry = NewAuditEntry {
        action: AUDITED.to_owned(),
        psp_id: Some(payment.terms.psp_id),
        subject: payment.id().to_string(),
        detail: json!({"attempt": verified.row.attempt}),
    };
    let rows = ResultRows { authorization: Some(verified.row), ..ResultRows::default() };
    let rows = rows.audited(entry, &Actor::Customer, app.clock().now());
    Ok(app.system.command(payment.id(), verified.command, rows).await?)
}

/// The problem of an authorization that is not accepted.
fn refused(error: AuthorizeError) -> ApiError {
    let text = sentence(&error.to_string());
    let at = |field, code, what: &str| vec![FieldError::new(field, code, what)];
    match error {
        AuthorizeError::Unsupported => ApiError::conflict("authorization_unsupported", text),
        AuthorizeError::WrongNonce(_) => {
            let fault = at("nonce", "authorization_nonce", "is not the nonce of this payment");
            ApiError::Unprocessable("authorization_nonce", text, fault)
        }
        AuthorizeError::NotYetValid => {
            let fault = at("valid_after", "authorization_not_valid_yet", "must be in the past");
            ApiError::Unprocessable("authorization_not_valid_yet", text, fault)
        }
        AuthorizeError::SignatureLength | AuthorizeError::Refused(_) => {
            let fault = at("signature", "authorization_signature", "is not valid for these values");
            ApiError::Unprocessable("authorization_signature", text, fault)
        }
        AuthorizeError::BalanceTooLow { .. } => ApiError::conflict("authorization_balance", text),
        AuthorizeError::NonceUsed => ApiError::conflict("authorization_used", "The nonce is used or cancelled."),
        AuthorizeError::ChainAway(why) => ApiError::Unavailable(Away::Chain, why.into()),
        AuthorizeError::Payment(error) => error.into(),
    }
}

/// Submit an authorization
///
/// The payer signed a message instead of sending a transfer, and pays no gas. `payment_methods` of the payment has the message.
/// The service screens the payer, takes the amount, and settles it in the same transaction; the events are those of a
/// transfer. A payment takes one authorization at a time. If it fails or expires, the payer can sign again.
#[utoipa::path(
    post, path = "/payments/{payment_id}/authorization", tag = "Payments", operation_id = "authorizePayment",
    request_body = AuthorizationRequest,
    params(("payment_id" = String, Path, description = "The id from `initiate`.")),
    responses(
        (status = 202, description = "The payment; its authorization is being screened.", body = PaymentRecord),
        (status = 409, description = "`payment_not_pending`, `authorization_in_progress`, `authorization_amount` (not the \
            amount due), `authorization_balance` (of the payer), `authorization_used` (the nonce), \
            `authorization_outdated`, `authorizations_exhausted`, `authorization_too_long`, `authorization_too_short`, \
            `authorization_unsupported` (by the token), `transfer_pending` or `settlement_in_progress`.", body = Problem),
        (status = 422, description = "Every invalid field is named; or `authorization_nonce`, `authorization_not_valid_yet` \
            or `authorization_signature`.", body = Problem),
        (status = 503, description = "The database or the chain is unavailable; or `timed_out`: the request may have been \
            carried out.", body = Problem),
    ),
)]
pub async fn authorize(parts: ChangeOf<Payments>) -> Result<Response, ApiError> {
    let (State(app), Path(payment_id), request) = parts;
    let payment = own(&app, request.psp_id, &payment_id).await?;
    let terms = request.parse::<AuthorizationRequest>()?.terms();
    let verified = app.system.verify_authorization(&payment, &terms).await;
    let VerifiedAuthorization { command, row } = verified.map_err(refused)?;
    let detail = json!({"attempt": row.attempt});
    let change = Change { payment_id: payment.id(), command, action: AUDITED, detail, authorization: Some(row) };
    change.carry_out(&app, &request, |app, payment| Answer::accepted(&PaymentRecord::of(app, payment))).await
}

record! {
    /// The record of the payment's last authorization.
    pub fn of(app: &AppShared, payment: &Payment, authorization: &Authorization) {
        let state = match authorization.state {
            AuthorizationState::Queued => app.system.authorization_progress(payment.terms.chain, authorization.operation),
            state => state.as_str(),
        };
        let failure = authorization.detail.clone().filter(|_| !authorization.is_valid());
    }

    /// The last authorization of a payer.
    #[derive(Debug)]
    pub struct AuthorizationRecord {
        /// screening, review, queued, submitted (sent to the chain), collected (in a block that is not final), final, failed or
        /// expired.
        state: &'static str = state,
        r#type: &'static str = authorization.kind.as_str(),
        /// The payer's account.
        from: String = checksummed(authorization.from),
        amount: String = authorization.value.to_string(),
        valid_before: DateTime = authorization.valid_before.into(),
        /// The transaction that collected it, once final.
        tx_hash: Option<String> = authorization.tx_hash.map(|hash| hash.to_string()),
        /// payer_blocked, nonce_used or not_due, while it is failed.
        failure_reason: Option<&'static str> = authorization.failure.map(AuthorizationFailure::as_str),
        /// The reason of a failure or an expiry in words.
        failure: Option<String> = failure,
    }
}

record! {
    fn of_transfer(addresses: &Addresses, payment: &Payment, uri: String) {}

    /// A way to pay now.
    #[derive(Debug)]
    pub struct PaymentMethodRecord {
        /// transfer or authorization.
        r#type: &'static str = "transfer",
        /// The amount.
        amount: String = payment.amount_due().to_string(),
        /// Of a transfer: the address to which the payer sends the amount.
        address: Option<String> = Some(addresses.wallet.clone()),
        /// Of a transfer: EIP-681 URI for wallets.
        uri: Option<String> = Some(uri),
        /// Of an authorization: EIP-712 typed data, complete except for `message.from`, the payer's account. Pass it to
        /// `eth_signTypedData_v4`, and send the message and the signature to `POST /payments/{payment_id}/authorization` as
        /// `receive_with_authorization`.
        #[schema(value_type = Option<Object>, additional_properties)]
        typed_data: Option<Box<RawValue>> = None,
    }
}

impl PaymentMethodRecord {
    /// All ways to pay the payment now.
    pub(super) fn all(app: &AppShared, payment: &Payment, addresses: &Addresses, uri: Option<&str>) -> Vec<Self> {
        let transfer = uri.map(|uri| Self::of_transfer(addresses, payment, uri.to_owned()));
        let authorization = typed_data(app, payment).map(|typed_data| Self {
            r#type: "authorization",
            amount: payment.amount_due().to_string(),
            address: None,
            uri: None,
            typed_data: Some(typed_data),
        });
        transfer.into_iter().chain(authorization).collect()
    }
}

/// Name of the message that the payer signs.
const PRIMARY_TYPE: &str = "ReceiveWithAuthorization";
/// Types of the message, the same for every payment.
static TYPES: LazyLock<Box<RawValue>> = LazyLock::new(|| {
    let field = |name: &str, kind: &str| json!({"name": name, "type": kind});
    let types = json!({
        "EIP712Domain": [
            field("name", "string"), field("version", "string"), field("chainId", "uint256"),
            field("verifyingContract", "address"),
        ],
        PRIMARY_TYPE: [
            field("from", "address"), field("to", "address"), field("value", "uint256"),
            field("validAfter", "uint256"), field("validBefore", "uint256"), field("nonce", "bytes32"),
        ],
    });
    to_raw_value(&types).expect("a JSON value serialises")
});

/// EIP-712 typed data, as JSON.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct TypedData<'a> {
    domain: TypedDomain<'a>,
    message: TypedMessage,
    primary_type: &'static str,
    types: &'static RawValue,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct TypedDomain<'a> {
    chain_id: u64,
    name: &'a str,
    verifying_contract: String,
    version: &'a str,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct TypedMessage {
    nonce: String,
    to: String,
    valid_after: &'static str,
    valid_before: String,
    value: String,
}

/// Typed data of the next `ReceiveWithAuthorization`, without `message.from`; `None` if the payment takes none now.
pub(in crate::http) fn typed_data(app: &AppShared, payment: &Payment) -> Option<Box<RawValue>> {
    let amount = payment.amount_to_authorize(AuthorizationKind::Receive)?;
    let domain = app.system.authorization_domain(payment)?;
    let nonce = app.system.authorization_nonce(payment)?;
    let to = app.system.authorization_recipient(payment, AuthorizationKind::Receive)?;
    let typed_data = TypedData {
        domain: TypedDomain {
            chain_id: domain.chain_id(),
            name: domain.name(),
            verifying_contract: checksummed(domain.token()),
            version: domain.version(),
        },
        message: TypedMessage {
            nonce: nonce.to_string(),
            to: checksummed(to),
            valid_after: "0",
            valid_before: payment.expires_at.as_millis().div_euclid(1_000).to_string(),
            value: amount.units().to_string(),
        },
        primary_type: PRIMARY_TYPE,
        types: &TYPES,
    };
    Some(to_raw_value(&typed_data).expect("typed data serialises"))
}
