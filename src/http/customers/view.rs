//! A customer in answers.

use chrono::{NaiveDate, NaiveTime};
use payferry_domain::Timestamp;
use payferry_domain::customer::{DocumentKind, KycStatus};
use payferry_entities::{customer_documents, customers, payment_details};
use payferry_httpkit::ApiError;
use sea_orm::{ColumnTrait, ConnectionTrait, EntityTrait, QueryFilter};
use serde::Serialize;
use utoipa::ToSchema;

use super::particulars::{Business, Particulars};
use super::payment_details::{PaymentDetails, StoredPaymentDetails};
use super::values::PostalAddress;
use crate::http::state::Shared;

/// A complete customer. Times are ISO 8601. Values that were not submitted are null.
#[derive(Serialize, ToSchema)]
pub struct CustomerRecord {
    #[schema(example = "cr_01J9Z3K4M5N6P7Q8R9S0T1V2W3")]
    id: String,
    psp_id: String,
    /// individual or business.
    #[schema(example = "individual")]
    r#type: String,
    #[schema(example = "ada@example.com")]
    email: String,
    #[schema(example = "USA")]
    country: String,
    #[schema(example = "USD")]
    currency: String,
    /// False once the customer was deactivated, which is permanent.
    is_active: bool,
    /// pending, pending_update, approved, success or rejected. A customer with approved or success may transact.
    #[schema(example = "pending")]
    kyc_status: String,
    /// Reasons of a rejection; null unless rejected.
    #[serde(skip_serializing_if = "Option::is_none")]
    rejection_reasons: Option<Vec<String>>,
    /// When the customer accepted the terms of service.
    #[schema(format = "date-time")]
    tos_accepted_at: Option<String>,
    first_name: String,
    last_name: String,
    /// The date of birth at midnight, UTC.
    #[schema(format = "date-time", example = "1990-12-10T00:00:00.000Z")]
    dob: String,
    /// Null until submitted.
    #[serde(skip_serializing_if = "Option::is_none")]
    phone_number: Option<String>,
    government_id_number: String,
    tax_id: Option<String>,
    residential_address: PostalAddress,
    document_type: Option<String>,
    #[serde(flatten, skip_serializing_if = "Option::is_none")]
    business: Option<BusinessRecord>,
    /// Path of the stored document.
    verification_document: Option<String>,
    /// Path of the stored document.
    proof_of_residential_address: Option<String>,
    /// Path of the stored document.
    incorporation_certificate: Option<String>,
    /// Path of the stored document.
    proof_of_business_address: Option<String>,
    /// The current payment details; null if there are none.
    payment_details: Option<PaymentDetailsRecord>,
    #[serde(flatten, skip_serializing_if = "Option::is_none")]
    deactivated: Option<DeactivatedRecord>,
    #[schema(format = "date-time")]
    created_at: String,
    #[schema(format = "date-time")]
    updated_at: String,
}

/// Fields of businesses only. Owners are not returned; `has_beneficiary_owners` is true if there are any.
#[derive(Serialize, ToSchema)]
struct BusinessRecord {
    business_name: String,
    incorporation_certificate_number: String,
    business_tax_id: String,
    ownership_percentage: String,
    registered_business_address: PostalAddress,
    website_url: Option<String>,
    business_registration_number: Option<String>,
    has_beneficiary_owners: bool,
}

/// Fields of deactivated customers only.
#[derive(Serialize, ToSchema)]
struct DeactivatedRecord {
    /// The wallet of the payment details, if there is one.
    wallet_address: Option<String>,
}

/// Payment details.
#[derive(Serialize, ToSchema)]
struct PaymentDetailsRecord {
    #[serde(flatten)]
    details: PaymentDetails,
    #[schema(format = "date-time")]
    created_at: String,
    #[schema(format = "date-time")]
    updated_at: String,
}

impl CustomerRecord {
    /// Reads the record of a row, with its documents and payment details, through `connection`.
    pub async fn read(
        app: &Shared,
        connection: &impl ConnectionTrait,
        row: &customers::Model,
    ) -> Result<Self, ApiError> {
        let documents = customer_documents::Entity::find()
            .filter(customer_documents::Column::CustomerId.eq(&row.id))
            .filter(customer_documents::Column::ReplacedAt.is_null())
            .all(connection)
            .await?;
        let details = payment_details::Entity::find_by_id(&row.id).one(connection).await?;
        let particulars = Particulars::open(app.sealer(), &row.id, &row.particulars)?;
        let details = details.map(|details| PaymentDetailsRecord::of(app, &details)).transpose()?;
        Self::with(row, particulars, &documents, details)
    }

    /// The record of a new customer whose personal data is already decrypted.
    pub(super) fn of_new(row: &customers::Model, particulars: Particulars) -> Result<Self, ApiError> {
        Self::with(row, particulars, &[], None)
    }

    fn with(
        row: &customers::Model,
        particulars: Particulars,
        documents: &[customer_documents::Model],
        payment_details: Option<PaymentDetailsRecord>,
    ) -> Result<Self, ApiError> {
        let document = |kind: DocumentKind| {
            documents.iter().find(|document| document.kind == kind.as_str()).map(|document| document.path.clone())
        };
        let wallet_address = || payment_details.as_ref().and_then(|record| record.details.wallet_address.clone());
        let is_rejected = row.kyc_status == KycStatus::Rejected.as_str();
        let reasons = is_rejected.then(|| serde_json::from_str(&row.rejection_reasons)).transpose()?;
        Ok(Self {
            id: row.id.clone(),
            psp_id: row.psp_id.clone(),
            r#type: row.kind.clone(),
            email: row.email.clone(),
            country: row.country.clone(),
            currency: row.currency.clone(),
            is_active: row.is_active,
            kyc_status: row.kyc_status.clone(),
            rejection_reasons: reasons,
            tos_accepted_at: row.tos_accepted_at.map(|at| Timestamp(at).to_string()),
            first_name: particulars.first_name,
            last_name: particulars.last_name,
            dob: midnight(particulars.dob),
            phone_number: particulars.phone_number,
            government_id_number: particulars.government_id_number,
            tax_id: particulars.tax_id,
            residential_address: particulars.residential_address,
            document_type: particulars.document_type,
            business: particulars.business.map(BusinessRecord::from),
            verification_document: document(DocumentKind::VerificationDocument),
            proof_of_residential_address: document(DocumentKind::ProofOfResidentialAddress),
            incorporation_certificate: document(DocumentKind::IncorporationCertificate),
            proof_of_business_address: document(DocumentKind::ProofOfBusinessAddress),
            deactivated: (!row.is_active).then(|| DeactivatedRecord { wallet_address: wallet_address() }),
            payment_details,
            created_at: Timestamp(row.created_at).to_string(),
            updated_at: Timestamp(row.updated_at).to_string(),
        })
    }
}

impl From<Business> for BusinessRecord {
    fn from(business: Business) -> Self {
        Self {
            business_name: business.business_name,
            incorporation_certificate_number: business.incorporation_certificate_number,
            business_tax_id: business.business_tax_id,
            ownership_percentage: business.ownership_percentage,
            registered_business_address: business.registered_business_address,
            website_url: business.website_url,
            business_registration_number: business.business_registration_number,
            has_beneficiary_owners: !business.beneficiary_owners.is_empty(),
        }
    }
}

impl PaymentDetailsRecord {
    fn of(app: &Shared, row: &payment_details::Model) -> Result<Self, ApiError> {
        Ok(Self {
            details: StoredPaymentDetails::open(app.sealer(), row)?.details,
            created_at: Timestamp(row.created_at).to_string(),
            updated_at: Timestamp(row.updated_at).to_string(),
        })
    }
}

/// Formats a date as the timestamp of its midnight, UTC.
fn midnight(date: NaiveDate) -> String {
    Timestamp::from(date.and_time(NaiveTime::MIN).and_utc()).to_string()
}
