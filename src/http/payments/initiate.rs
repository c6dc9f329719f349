//! `POST /payments/initiate`: authentication, a typed request, one call to the actors.

use std::sync::Arc;

use axum::extract::State;
use axum::response::{IntoResponse, Response};
use parking_lot::Mutex;
use payferry_actors::{ChainChoiceRequest, InitiateError, InitiatePayment};
use payferry_domain::customer::{KycStatus, Rejection};
use payferry_domain::payment::{Payment, Purpose};
use payferry_domain::{Amount, Chain, CustomerId, MerchantId, PspId, Token};
use payferry_entities::{customers, merchants};
use payferry_httpkit::extract::Field as _;
use payferry_httpkit::extract::field::{optional, or_default, required};
use payferry_httpkit::idempotency::Idempotency;
use payferry_httpkit::{Answer, ApiError, FieldError, Payments, Problem, Rule, Submission, read, request, rule};
use sea_orm::{ColumnTrait, EntityTrait, QueryFilter, QuerySelect};
use serde_json::{Map, Value};

use super::PaymentRecord;
use crate::http::state::{AppShared, AppState};

/// Default time until a payment expires, seconds.
pub const EXPIRES_IN_DEFAULT_SECS: i64 = 1_200;
/// Minimum time until a payment expires, seconds.
pub const EXPIRES_IN_MIN_SECS: i64 = 60;
/// Maximum time until a payment expires, seconds.
pub const EXPIRES_IN_MAX_SECS: i64 = 86_400;
/// Maximum length of `description`, in characters.
pub const DESCRIPTION_CHARS_MAX: usize = 200;
/// Maximum size of `metadata` as JSON, in bytes.
pub const METADATA_BYTES_MAX: usize = 16 * 1024;
/// Maximum nesting of `metadata`, its own level included. It is stored inside other JSON, and JSON parsers stop at
/// about a hundred levels, so stored metadata must stay well below that.
pub const METADATA_LEVELS_MAX: usize = 32;
/// The chain name that lets the service choose.
const BEST: &str = "best";
/// Value of `chain` that lets the payer choose.
const PAYER: &str = "payer";

request! {
    /// Fields of the PSP's own, in every request that moves money.
    pub struct OwnFields {
        /// The PSP's own object, at most 16 KiB and 32 levels as JSON; returned in reads and webhooks. Numbers are 64-bit
        /// integers or IEEE 754 doubles, and larger ones are refused. Send a number as a string if its digits must be
        /// preserved.
        pub metadata: Option<Map<String, Value>> =
            optional(rule::free_object::<METADATA_BYTES_MAX, METADATA_LEVELS_MAX>()),
        /// The PSP's own reference.
        pub reference: Option<String> = optional(rule::text()),
    }
}

request! {
    /// Terms of a payment or a transfer.
    pub struct TermsFields {
        ..pub own: OwnFields,
        /// Description of the order for the payer. Anyone with the link can see it, so it should contain no personal data.
        pub description: Option<String> =
            optional(rule::short::<DESCRIPTION_CHARS_MAX>()).example("Order 1042: two tickets"),
        /// A decimal string, 0.01 to 1,000,000, at most 6 decimals.
        pub amount: Amount = required(rule::amount()).example("10.00"),
        /// The token.
        pub currency: Token = required(rule::name()).example("USDC"),
        /// `best`: the service chooses.
        pub chain: ChainChoiceRequest = required(CHAIN).example("best"),
        /// Seconds until it expires.
        pub expires_in: i64 =
            or_default(rule::whole::<EXPIRES_IN_MIN_SECS, EXPIRES_IN_MAX_SECS>(), EXPIRES_IN_DEFAULT_SECS),
    }
}

request! {
    /// A payment to create.
    pub struct InitiateRequest {
        ..terms: TermsFields,
        /// The merchant that is paid.
        merchant_id: MerchantId = required(rule::id()).example("merch_01J9Z3K4M5N6P7Q8R9S0T1V2W3"),
        /// The customer who pays; must be active and cleared. Required if the account's settings say so.
        customer_id: Option<CustomerId> = optional(rule::id()).example("cr_01J9Z3K4M5N6P7Q8R9S0T1V2W3"),
    }
}

/// The name of a chain, [`BEST`] or [`PAYER`].
const CHAIN: Rule<ChainChoiceRequest> = Rule {
    read: |value| match value.as_str() {
        Some(BEST) => Ok(ChainChoiceRequest::Best),
        Some(PAYER) => Ok(ChainChoiceRequest::Payer),
        _ => read::word::<Chain>(value, "base, polygon, arbitrum, best, payer").map(ChainChoiceRequest::Named),
    },
    schema: || rule::one_of(Chain::ALL.iter().map(|chain| chain.as_str()).chain([BEST, PAYER])),
};

/// Create a payment
///
/// The payer sends the exact amount to `intermediary_wallet`. The rest happens automatically and is reported by
/// webhook.
#[utoipa::path(
    post, path = "/payments/initiate", tag = "Payments", operation_id = "initiatePayment", request_body = InitiateRequest,
    responses(
        (status = 201, description = "The payment; its wallet is now watched.", body = PaymentRecord),
        (status = 404, description = "`merchant_not_found` or `customer_not_found`.", body = Problem),
        (status = 409, description = "`customer_inactive`, `customer_not_cleared`, or `psp_paused`: the operator has paused the account.",
            body = Problem),
        (status = 422, description = "Every invalid field is named; or `token_unavailable`.", body = Problem),
        (status = 503, description = "`chain_paused`: the operator has paused the chain; the database or the chain is \
            unavailable; or `timed_out`: the request may have been carried out.",
            body = Problem),
    ),
)]
pub async fn initiate(State(app): State<AppState>, request: Submission<Payments>) -> Result<Response, ApiError> {
    let InitiateRequest { terms, merchant_id, customer_id } = request.parse()?;
    check_merchant(&app, request.psp_id, merchant_id).await?;
    if let Some(customer_id) = customer_id {
        check_customer(&app, request.psp_id, customer_id).await?;
    }
    let initiate = InitiatePayment {
        merchant_id: Some(merchant_id),
        customer_id,
        ..terms.initiate(request.psp_id, Purpose::PayIn)
    };
    make(&app, &request.idempotency, initiate, |app, payment| Answer::created(&PaymentRecord::of(app, payment))).await
}

/// Creates a payment for any purpose and answers with it.
pub(in crate::http) async fn make(
    app: &AppState,
    idempotency: &Idempotency,
    mut initiate: InitiatePayment,
    reply: fn(&AppShared, &Payment) -> Result<Answer, ApiError>,
) -> Result<Response, ApiError> {
    // The stored answer is the given one: values such as the payment methods are those of the moment.
    let first: Arc<Mutex<Option<Answer>>> = Arc::default();
    let (state, made) = (app.clone(), first.clone());
    initiate.answer = idempotency.row_of(move |payment| {
        let answer = reply(&state, payment)?;
        *made.lock() = Some(answer.clone());
        Ok(answer)
    });
    match app.system.initiate(initiate).await {
        Ok(payment) => {
            let first = first.lock().take();
            Ok(first.map_or_else(|| reply(app, &payment), Ok)?.into_response())
        }
        Err(InitiateError::IdempotencyKeyTaken) => idempotency.first_answer().await,
        // The first request may have been executed before the fault. A refusal is compared with it at the edge.
        Err(
            error @ (InitiateError::ChainAway
            | InitiateError::ChainPaused(_)
            | InitiateError::ScreeningAway
            | InitiateError::Busy
            | InitiateError::Unavailable(_)
            | InitiateError::Unknown(_)),
        ) => idempotency.first_answer_or(error).await,
        Err(error) => Err(error.into()),
    }
}

impl TermsFields {
    /// The payment with these terms.
    pub(in crate::http) fn initiate(self, psp_id: PspId, purpose: Purpose) -> InitiatePayment {
        let Self { own, description, amount, currency: token, chain, expires_in } = self;
        let OwnFields { metadata, reference } = own;
        InitiatePayment {
            psp_id,
            purpose,
            merchant_id: None,
            customer_id: None,
            reference,
            description,
            metadata,
            amount,
            token,
            chain,
            expires_in_secs: expires_in,
            answer: None,
            audit: None,
        }
    }
}

/// Checks that the merchant belongs to the PSP. Merchants are permanent, so the result is cached.
async fn check_merchant(app: &AppShared, psp_id: PspId, merchant_id: MerchantId) -> Result<(), ApiError> {
    if app.merchants.get(&merchant_id) == Some(psp_id) {
        return Ok(());
    }
    let own = merchants::Entity::find_by_id(merchant_id.to_string())
        .filter(merchants::Column::PspId.eq(psp_id.to_string()))
        .one(app.database().reader())
        .await?;
    if own.is_none() {
        let error = FieldError::new("merchant_id", "merchant_not_found", "is not a merchant of this account");
        return Err(ApiError::FieldNotFound("merchant_not_found", error));
    }
    app.merchants.insert(merchant_id, psp_id);
    Ok(())
}

/// Checks that the customer belongs to the PSP and may transact. Not cached, because a deactivation must apply at once.
pub(in crate::http) async fn check_customer(
    app: &AppShared,
    psp_id: PspId,
    customer_id: CustomerId,
) -> Result<(), ApiError> {
    use customers::Column;
    let row: Option<(bool, String)> = customers::Entity::find_by_id(customer_id.to_string())
        .filter(Column::PspId.eq(psp_id.to_string()))
        .select_only()
        .columns([Column::IsActive, Column::KycStatus])
        .into_tuple()
        .one(app.database().reader())
        .await?;
    let Some((is_active, kyc_status)) = row else {
        let error = FieldError::new("customer_id", "customer_not_found", "is not a customer of this account");
        return Err(ApiError::FieldNotFound("customer_not_found", error));
    };
    if !is_active {
        return Err(Rejection::CustomerInactive.into());
    }
    match kyc_status.parse::<KycStatus>() {
        Ok(status) if status.is_cleared() => Ok(()),
        Ok(status) => {
            let detail = format!("The customer may not transact: its kyc_status is {status}.");
            Err(ApiError::conflict("customer_not_cleared", detail))
        }
        Err(_) => Err(ApiError::internal("a customer has an unknown status")),
    }
}
