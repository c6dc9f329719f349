//! `POST /api/v1/customers`: creates one or many customers in one transaction. Owns the fields of each type and their
//! limits.

use axum::extract::State;
use axum::response::{IntoResponse, Response};
use chrono::NaiveDate;
use payferry_domain::customer::CustomerKind;
use payferry_domain::{CustomerId, PspId, Timestamp, named};
use payferry_entities::customers::Model;
use payferry_httpkit::extract::field::{blank, constant, optional, refused, required};
use payferry_httpkit::extract::{Components, Field as _, RequestBody as _};
use payferry_httpkit::{
    Answer, ApiError, Away, Customers, Fault, Fields, Problem, Submission, field, read, request, rule,
};
use payferry_journal::JournalError;
use payferry_journal::audit::Actor;
use payferry_journal::customers::{self, NewCustomer};
use serde::Serialize;
use utoipa::openapi::schema::{ArrayBuilder, OneOfBuilder};
use utoipa::openapi::{Ref, RefOr, Schema};
use utoipa::{PartialSchema, ToSchema};

use super::particulars::{BusinessParticulars, Particulars};
use super::values::{self, Percentage, PostalAddress};
use super::view::CustomerRecord;
use crate::http::state::{AppShared, AppState};

/// Maximum number of customers in a request.
pub const CUSTOMERS_MAX: usize = 100;
/// Maximum size of the body in bytes: the maximum of businesses with all their owners.
pub const BODY_BYTES_MAX: usize = 4 * 1024 * 1024;

/// One customer, or a list of 1 to 100: all are created, or none. It describes what `Submission::read_each` reads.
pub struct CustomersRequest;

impl PartialSchema for CustomersRequest {
    fn schema() -> RefOr<Schema> {
        let one = || Ref::from_schema_name(CustomerRequest::name());
        let many = ArrayBuilder::new().items(one()).min_items(Some(1)).max_items(Some(CUSTOMERS_MAX));
        RefOr::T(OneOfBuilder::new().item(one()).item(many.title(Some("Many customers"))).build().into())
    }
}

impl ToSchema for CustomersRequest {
    fn schemas(schemas: &mut Components) {
        schemas.push((CustomerRequest::name().into_owned(), CustomerRequest::schema()));
        <CustomerRequest as ToSchema>::schemas(schemas);
    }
}

/// A customer to create: an individual or a business.
#[derive(ToSchema)]
#[serde(untagged)]
pub enum CustomerRequest {
    /// An individual.
    Individual(Box<IndividualRequest>),
    /// A business, with a person as its primary contact.
    Business(Box<BusinessRequest>),
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
    let creations = request.read_each(CUSTOMERS_MAX, read_customer)?;
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
                Err(JournalError::IdempotencyKeyTaken) => request.idempotency.first_answer().await,
                Err(error) => Err(not_written(&error)),
            }
        }
        // Many rows get a transaction of their own, so that they do not delay payments in the journal's write group.
        Err(rows) => {
            let transaction = app.database().begin().await?;
            customers::create(&transaction, &rows, &by, now).await?;
            request.idempotency.commit(transaction, answer).await
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
    customer: CustomerRequest,
    now: Timestamp,
) -> Result<(Model, CustomerRecord), ApiError> {
    let id = CustomerId::generate();
    let (kind, person, document_type, business) = match customer {
        CustomerRequest::Individual(request) => {
            let IndividualRequest { person, document_type, .. } = *request;
            (CustomerKind::Individual, person, document_type.map(IndividualDocument::as_str), None)
        }
        CustomerRequest::Business(request) => {
            let BusinessRequest { person, business, document_type, .. } = *request;
            (CustomerKind::Business, person, document_type.map(BusinessDocument::as_str), Some(business))
        }
    };
    let PersonFields { country, currency, email, .. } = person;
    let particulars = Particulars {
        first_name: person.first_name,
        last_name: person.last_name,
        dob: person.dob,
        phone_number: person.phone_number,
        government_id_number: person.government_id_number,
        tax_id: person.tax_id,
        residential_address: person.residential_address,
        document_type: document_type.map(str::to_owned),
        business,
    };
    let sealed = particulars.seal(app.sealer(), id)?;
    let row = NewCustomer { id, psp_id, kind, email, country, currency, particulars: sealed }.row(now);
    let record = CustomerRecord::of_new(&row, particulars)?;
    Ok((row, record))
}

fn message(count: usize) -> String {
    if count == 1 { "1 customer created".to_owned() } else { format!("{count} customers created") }
}

named! {
    /// Document that identifies an individual.
    IndividualDocument, "id_card, passport, driver_license" {
        /// An identity card.
        IdCard = "id_card",
        /// A passport.
        Passport = "passport",
        /// A driving licence.
        DriverLicense = "driver_license",
    }
}

named! {
    /// Document that identifies a business.
    BusinessDocument, "incorporation_certificate" {
        /// The certificate of its incorporation.
        IncorporationCertificate = "incorporation_certificate",
    }
}

fn document() -> Fault {
    Fault::new("not_settable", "cannot be set here; upload the document instead")
}

request! {
    /// Fields of every customer. For a business, those of its primary contact.
    pub struct PersonFields {
        /// ISO 3166-1 alpha-3.
        country: String = required(values::COUNTRY).example("USA"),
        /// ISO 4217.
        currency: String = required(values::CURRENCY).example("USD"),
        /// Email address of the individual or the business.
        email: String = required(rule::email()).example("ada@example.com"),
        first_name: String = required(rule::text()).example("Ada"),
        last_name: String = required(rule::text()).example("Lovelace"),
        /// YYYY-MM-DD, in the past.
        dob: NaiveDate = required(values::DATE_OF_BIRTH).example("1990-12-10"),
        /// E.164. It may be added later, which requires a screening.
        phone_number: Option<String> = optional(values::PHONE_NUMBER).example("+14155550123"),
        /// For compliance checks; encrypted at rest.
        government_id_number: String = required(values::id_number()).example("P1234567"),
        tax_id: Option<String> = optional(values::id_number()).example("123-45-6789"),
        residential_address: PostalAddress = field::object(),
        /// Not settable here; upload the document instead.
        proof_of_residential_address: () = refused(document),
        /// Not settable here; upload the document instead.
        incorporation_certificate: () = refused(document),
        /// Not settable here; upload the document instead.
        proof_of_business_address: () = refused(document),
        /// Not settable here; upload the document instead.
        verification_document: () = refused(document),
    }
}

fn businesses_only() -> Fault {
    Fault::new("only_for_businesses", "is allowed for the type business only")
}

request! {
    /// An individual to create. A client's form for both types may send the fields of businesses, if they are empty.
    pub struct IndividualRequest {
        ..person: PersonFields,
        r#type: () = constant("individual"),
        /// Document that will prove the identity.
        document_type: Option<IndividualDocument> = optional(rule::name()).example("passport"),
        /// Empty for an individual.
        business_name: () = blank(businesses_only),
        /// Empty for an individual.
        incorporation_certificate_number: () = blank(businesses_only),
        /// Empty for an individual.
        business_tax_id: () = blank(businesses_only),
        /// Empty for an individual.
        ownership_percentage: () = blank(businesses_only),
        /// Empty for an individual.
        registered_business_address: () = blank(businesses_only),
        /// Empty for an individual.
        website_url: () = blank(businesses_only),
        /// Empty for an individual.
        business_registration_number: () = blank(businesses_only),
        /// Empty for an individual.
        beneficiary_owners: () = blank(businesses_only),
    }
}

request! {
    /// A business to create, with a person as its primary contact.
    pub struct BusinessRequest {
        ..person: PersonFields,
        ..business: BusinessParticulars,
        r#type: () = constant("business"),
        /// Document that will prove the identity.
        document_type: Option<BusinessDocument> = optional(rule::name()).example("incorporation_certificate"),
    }
}

/// The field with the owners of a business.
const OWNERS: &str = "beneficiary_owners";

/// Reads one customer.
fn read_customer(fields: &Fields<'_>) -> Option<CustomerRequest> {
    let Some(kind) = fields.required("type", read::name) else {
        // The fields that every customer has are checked, too.
        PersonFields::read(fields);
        return None;
    };
    match kind {
        CustomerKind::Individual => {
            IndividualRequest::read(fields).map(|individual| CustomerRequest::Individual(Box::new(individual)))
        }
        CustomerKind::Business => {
            let shares =
                fields.items(OWNERS).iter().filter_map(|owner| values::percentage(&owner["ownership_percentage"]).ok());
            if shares.map(|share| share.units).sum::<u32>() > Percentage::WHOLE_UNITS {
                fields.fault(OWNERS, Fault::new("ownership_above_100", "own more than 100 percent in total"));
            }
            BusinessRequest::read(fields).map(|business| CustomerRequest::Business(Box::new(business)))
        }
    }
}
