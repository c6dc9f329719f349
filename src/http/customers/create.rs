//! `POST /api/v1/customers`: creates one or many customers in one transaction. Owns the fields of each type and their
//! limits.

use axum::extract::State;
use axum::response::{IntoResponse, Response};
use chrono::{DateTime, NaiveDate};
use payferry_domain::customer::{CustomerKind, DocumentKind};
use payferry_domain::{CustomerId, PspId, Timestamp};
use payferry_entities::customers::Model;
use payferry_httpkit::{Answer, ApiError, Away, Customers, Fault, Fields, Problem, Submission, read};
use payferry_journal::JournalError;
use payferry_journal::audit::Actor;
use payferry_journal::customers::{self, NewCustomer};
use serde::Serialize;
use serde_json::Value;
use utoipa::ToSchema;

use super::particulars::{BeneficiaryOwner, BusinessParticulars, Particulars};
use super::values::{self, Percentage, PostalAddress};
use super::view::CustomerRecord;
use crate::http::state::{AppShared, AppState};

/// Maximum number of customers in a request.
pub const CUSTOMERS_MAX: usize = 100;
/// Maximum size of the body in bytes: the maximum of businesses with all their owners.
pub const BODY_BYTES_MAX: usize = 4 * 1024 * 1024;

/// One customer, or a list of 1 to 100: all are created, or none.
#[derive(Serialize, ToSchema)]
#[allow(dead_code, reason = "it describes the body; `read_customer` reads it")]
#[serde(untagged)]
#[schema(as = CustomersRequest)]
pub enum CustomersRequest {
    /// One customer.
    #[schema(title = "One customer")]
    One(Box<CustomerRequest>),
    /// Many customers.
    #[schema(title = "Many customers")]
    Many(Vec<CustomerRequest>),
}

/// The created customers.
#[derive(Serialize, ToSchema)]
pub struct CustomersAnswer {
    /// Number of created customers, as text.
    #[schema(example = "1 customer created")]
    message: String,
    /// In the order of the request.
    customers: Vec<CustomerRecord>,
}

/// Create customers
///
/// An individual or a business (`type`), or a list of up to 100 of them: all are created, or none. A new customer is
/// `pending`. Next, it accepts the terms of service, its documents are uploaded, and its identity is verified.
#[utoipa::path(
    post, path = "/api/v1/customers", tag = "Customers", operation_id = "createCustomers",
    request_body = CustomersRequest,
    responses(
        (status = 201, description = "The customers.", body = CustomersAnswer),
        (status = 413, description = "The body is larger than 4 MiB.", body = Problem),
        (status = 422, description = "Every invalid field is named (`[3].email` in a list), and none was created.",
            body = Problem),
    ),
)]
pub async fn create(
    State(app): State<AppState>,
    request: Submission<Customers, BODY_BYTES_MAX>,
) -> Result<Response, ApiError> {
    let now = app.clock().now();
    let today = DateTime::from(now).date_naive();
    let creations = request.read_each(CUSTOMERS_MAX, |fields| read_customer(fields, today))?;
    let mut rows = Vec::with_capacity(creations.len());
    let mut records = Vec::with_capacity(creations.len());
    for creation in creations {
        let (row, record) = made(&app, request.psp_id, creation, now)?;
        rows.push(row);
        records.push(record);
    }
    let answer = Answer::created(&CustomersAnswer { message: message(records.len()), customers: records })?;
    let by = Actor::ApiKey(request.key_id);
    match <[Model; 1]>::try_from(rows) {
        Ok([row]) => {
            let unit = customers::creation(row, &by, now, request.idempotency.row(&answer));
            match app.system.journal().submit(unit).await {
                Ok(_) => Ok(answer.into_response()),
                Err(JournalError::IdempotencyKeyTaken) => request.idempotency.first_answer(&app).await,
                Err(error) => Err(not_written(&error)),
            }
        }
        // Many rows get a transaction of their own, so that they do not delay payments in the journal's write group.
        Err(rows) => {
            let transaction = app.database().begin().await?;
            customers::create(&transaction, &rows, &by, now).await?;
            request.idempotency.commit(&app, transaction, answer).await
        }
    }
}

/// Converts an error of the journal about a customer into a response.
pub(super) fn not_written(error: &JournalError) -> ApiError {
    let reason = error.to_string();
    match error {
        JournalError::IdempotencyKeyTaken => ApiError::IdempotencyRunning,
        JournalError::Busy => ApiError::Unavailable(Away::Capacity, reason.into()),
        JournalError::Unavailable(_) => ApiError::Unavailable(Away::Database, reason.into()),
        JournalError::Unknown(_) => ApiError::TimedOut,
        _ => ApiError::internal(reason),
    }
}

fn made(
    app: &AppShared,
    psp_id: PspId,
    creation: Creation,
    now: Timestamp,
) -> Result<(Model, CustomerRecord), ApiError> {
    let id = CustomerId::generate();
    let Creation { kind, country, currency, email, particulars } = creation;
    let sealed = particulars.seal(app.sealer(), id)?;
    let row = NewCustomer { id, psp_id, kind, email, country, currency, particulars: sealed }.row(now);
    let record = CustomerRecord::of_new(&row, particulars)?;
    Ok((row, record))
}

fn message(count: usize) -> String {
    if count == 1 { "1 customer created".to_owned() } else { format!("{count} customers created") }
}

/// Maximum number of owners of one business.
pub const BENEFICIARY_OWNERS_MAX: usize = 25;

/// Fields that only a business has.
const BUSINESS_FIELDS: [&str; 8] = [
    "business_name",
    "incorporation_certificate_number",
    "business_tax_id",
    "ownership_percentage",
    "registered_business_address",
    "website_url",
    "business_registration_number",
    "beneficiary_owners",
];

/// A validated customer to create; `particulars` has all other fields.
struct Creation {
    kind: CustomerKind,
    country: String,
    currency: String,
    email: String,
    particulars: Particulars,
}

/// A customer to create.
#[derive(Serialize, ToSchema)]
#[allow(dead_code, reason = "it describes the body; `read_customer` reads it, so that every fault is named")]
pub struct CustomerRequest {
    /// individual or business. Fields described as "Business" are required or optional for a business. For an
    /// individual they are refused unless they are null, an empty string or an empty list.
    #[schema(example = "individual")]
    r#type: String,
    /// ISO 3166-1 alpha-3.
    #[schema(example = "USA")]
    country: String,
    /// ISO 4217.
    #[schema(example = "USD")]
    currency: String,
    /// Email address of the individual or the business.
    #[schema(format = "email", max_length = 254, example = "ada@example.com")]
    email: String,
    /// For a business, the primary contact's; the same applies to `last_name`, `dob`, `phone_number`,
    /// `government_id_number`, `tax_id` and `residential_address`.
    #[schema(max_length = 255, example = "Ada")]
    first_name: String,
    #[schema(max_length = 255, example = "Lovelace")]
    last_name: String,
    /// YYYY-MM-DD, in the past.
    #[schema(format = "date", example = "1990-12-10")]
    dob: String,
    /// E.164. It may be added later, which requires a screening.
    #[schema(example = "+14155550123")]
    phone_number: Option<String>,
    /// For compliance checks; encrypted at rest.
    #[schema(max_length = 64, example = "P1234567")]
    government_id_number: String,
    #[schema(max_length = 64, example = "123-45-6789")]
    tax_id: Option<String>,
    residential_address: PostalAddress,
    /// individual: id_card, passport or driver_license; business: incorporation_certificate.
    #[schema(example = "passport")]
    document_type: Option<String>,
    /// Business: registered legal name. Required.
    #[schema(max_length = 255, example = "Analytical Engines Inc.")]
    business_name: Option<String>,
    /// Business. Required.
    #[schema(max_length = 64, example = "INC-1842")]
    incorporation_certificate_number: Option<String>,
    /// Business. Required.
    #[schema(max_length = 64, example = "12-3456789")]
    business_tax_id: Option<String>,
    /// Business: the primary contact's share, a string from 0 to 100 with at most 4 decimals. Required.
    #[schema(example = "60")]
    ownership_percentage: Option<String>,
    /// Business. Required.
    registered_business_address: Option<PostalAddress>,
    /// Business.
    #[schema(format = "uri", max_length = 2_048, example = "https://engines.example")]
    website_url: Option<String>,
    /// Business, if different from `incorporation_certificate_number`.
    #[schema(max_length = 64, example = "REG-7")]
    business_registration_number: Option<String>,
    /// Business: its other owners; all shares add up to at most 100.
    #[schema(max_items = 25)]
    beneficiary_owners: Option<Vec<BeneficiaryOwner>>,
}

/// Reads one customer. Dates of birth must be before `today`.
fn read_customer(fields: &Fields<'_>, today: NaiveDate) -> Option<Creation> {
    let kind = fields.required("type", |value| read::name::<CustomerKind>(value, "individual, business"));
    let country = fields.required("country", values::country);
    let currency = fields.required("currency", values::currency);
    let email = fields.required("email", read::email);
    let first_name = fields.required("first_name", read::text);
    let last_name = fields.required("last_name", read::text);
    let dob = fields.required("dob", |value| values::date_of_birth(value, today));
    let phone_number = fields.optional("phone_number", values::phone_number);
    let government_id_number = fields.required("government_id_number", values::id_number);
    let tax_id = fields.optional("tax_id", values::id_number);
    let residential_address = fields.object("residential_address", values::address);
    let document_type = fields.optional("document_type", |value| document_type(value, kind));
    for document in DocumentKind::ALL.iter().map(|kind| kind.as_str()).filter(|name| fields.has(name)) {
        fields.fault(document, Fault::new("not_settable", "cannot be set here; upload the document instead"));
    }
    // Without a type, the other required fields are unknown.
    let kind = kind?;
    let business = match kind {
        CustomerKind::Business => Some(business(fields, today)),
        CustomerKind::Individual => {
            // A client's form for both types sends the fields that do not apply as empty.
            for name in BUSINESS_FIELDS.into_iter().filter(|name| fields.has(name) && !fields.is_blank(name)) {
                fields.fault(name, Fault::new("only_for_businesses", "is allowed for the type business only"));
            }
            None
        }
    };
    let particulars = Particulars {
        first_name: first_name?,
        last_name: last_name?,
        dob: dob?,
        phone_number,
        government_id_number: government_id_number?,
        tax_id,
        residential_address: residential_address?,
        document_type,
        business: match business {
            Some(business) => Some(business?),
            None => None,
        },
    };
    Some(Creation { kind, country: country?, currency: currency?, email: email?, particulars })
}

fn business(fields: &Fields<'_>, today: NaiveDate) -> Option<BusinessParticulars> {
    let business_name = fields.required("business_name", read::text);
    let incorporation_certificate_number = fields.required("incorporation_certificate_number", values::id_number);
    let business_tax_id = fields.required("business_tax_id", values::id_number);
    let ownership_percentage = fields.required("ownership_percentage", values::percentage);
    let registered_business_address = fields.object("registered_business_address", values::address);
    let website_url = fields.optional("website_url", values::web_address);
    let business_registration_number = fields.optional("business_registration_number", values::id_number);
    let beneficiary_owners = owners(fields, today);
    Some(BusinessParticulars {
        business_name: business_name?,
        incorporation_certificate_number: incorporation_certificate_number?,
        business_tax_id: business_tax_id?,
        ownership_percentage: ownership_percentage?.text,
        registered_business_address: registered_business_address?,
        website_url,
        business_registration_number,
        beneficiary_owners,
    })
}

fn owners(fields: &Fields<'_>, today: NaiveDate) -> Vec<BeneficiaryOwner> {
    const NAME: &str = "beneficiary_owners";
    let mut shares = 0;
    let owners = fields.optional_objects(NAME, BENEFICIARY_OWNERS_MAX, |owner| {
        let share = owner.required("ownership_percentage", values::percentage);
        shares += share.as_ref().map_or(0, |share| share.units);
        self::owner(owner, share, today)
    });
    if shares > Percentage::WHOLE_UNITS {
        fields.fault(NAME, Fault::new("ownership_above_100", "own more than 100 percent in total"));
    }
    owners.unwrap_or_default()
}

fn owner(fields: &Fields<'_>, share: Option<Percentage>, today: NaiveDate) -> Option<BeneficiaryOwner> {
    let first_name = fields.required("first_name", read::text);
    let last_name = fields.required("last_name", read::text);
    let dob = fields.required("dob", |value| values::date_of_birth(value, today));
    let email = fields.optional("email", read::email);
    let phone_number = fields.optional("phone_number", values::phone_number);
    let address = fields.object("address", values::address);
    let government_id_type = fields.optional("government_id_type", values::id_number);
    let government_id_number = fields.optional("government_id_number", values::id_number);
    let tax_id = fields.optional("tax_id", values::id_number);
    Some(BeneficiaryOwner {
        first_name: first_name?,
        last_name: last_name?,
        dob: dob?,
        email,
        phone_number,
        ownership_percentage: share?.text,
        address: address?,
        government_id_type,
        government_id_number,
        tax_id,
    })
}

/// Document types that identify an individual.
const INDIVIDUAL_DOCUMENT_TYPES: &str = "id_card, passport, driver_license";
/// Document types that identify a business.
const BUSINESS_DOCUMENT_TYPES: &str = "incorporation_certificate";

fn document_type(value: &Value, kind: Option<CustomerKind>) -> Result<String, Fault> {
    let expected = match kind {
        Some(CustomerKind::Individual) => INDIVIDUAL_DOCUMENT_TYPES,
        Some(CustomerKind::Business) => BUSINESS_DOCUMENT_TYPES,
        // The fault of the type has been recorded already.
        None => return read::string(value).map(str::to_owned),
    };
    let given = read::string(value)?;
    if expected.split(", ").any(|one| one == given) {
        return Ok(given.to_owned());
    }
    let kind = kind.map_or("", CustomerKind::as_str);
    Err(Fault::new("unknown_value", format!("must be one of {expected} for the type {kind}")))
}
