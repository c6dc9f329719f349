//! A customer in answers.

use chrono::{NaiveDate, NaiveTime};
use payferry_domain::Timestamp;
use payferry_domain::customer::{DocumentKind, KycStatus};
use payferry_entities::{customer_documents, customers, payment_details};
use payferry_httpkit::ApiError;
use payferry_httpkit::lists::DateTime;
use sea_orm::{ColumnTrait, ConnectionTrait, EntityTrait, QueryFilter};
use serde::Serialize;
use utoipa::ToSchema;

use super::details::{PaymentDetails, StoredPaymentDetails};
use super::particulars::{BusinessParticulars, Particulars};
use super::values::PostalAddress;
use crate::http::state::AppShared;

record! {
    fn with(
        row: &customers::Model,
        particulars: Particulars,
        documents: &[customer_documents::Model],
        payment_details: Option<PaymentDetailsRecord>
    ) -> Result<Self, ApiError> {
        let document = |kind: DocumentKind| {
            documents.iter().find(|document| document.kind == kind.as_str()).map(|document| document.path.clone())
        };
        let wallet_address = payment_details.as_ref().and_then(|record| record.details.wallet_address.clone());
        let deactivated = (!row.is_active).then_some(DeactivatedRecord { wallet_address });
        let is_rejected = row.kyc_status == KycStatus::Rejected.as_str();
        let reasons = is_rejected.then(|| serde_json::from_str(&row.rejection_reasons)).transpose()?;
    }

    /// A complete customer. Times are ISO 8601. Values that were not submitted are null.
    pub struct CustomerRecord {
        #[schema(example = "cr_01J9Z3K4M5N6P7Q8R9S0T1V2W3")]
        id: String = row.id.clone(),
        psp_id: String = row.psp_id.clone(),
        /// individual or business.
        #[schema(example = "individual")]
        r#type: String = row.kind.clone(),
        #[schema(example = "ada@example.com")]
        email: String = row.email.clone(),
        #[schema(example = "USA")]
        country: String = row.country.clone(),
        #[schema(example = "USD")]
        currency: String = row.currency.clone(),
        /// False once the customer was deactivated, which is permanent.
        is_active: bool = row.is_active,
        /// pending, pending_update, approved, success or rejected. A customer with approved or success may transact.
        #[schema(example = "pending")]
        kyc_status: String = row.kyc_status.clone(),
        /// Reasons of a rejection; null unless rejected.
        #[serde(skip_serializing_if = "Option::is_none")]
        rejection_reasons: Option<Vec<String>> = reasons,
        /// When the customer accepted the terms of service.
        tos_accepted_at: Option<DateTime> = row.tos_accepted_at.map(DateTime),
        first_name: String = particulars.first_name,
        last_name: String = particulars.last_name,
        /// The date of birth at midnight, UTC. Null without the scope `customers`.
        #[schema(format = "date-time", example = "1990-12-10T00:00:00.000Z")]
        dob: Option<String> = Some(midnight(particulars.dob)),
        /// Absent until submitted, and without the scope `customers`.
        #[serde(skip_serializing_if = "Option::is_none")]
        phone_number: Option<String> = particulars.phone_number,
        /// Null without the scope `customers`.
        government_id_number: Option<String> = Some(particulars.government_id_number),
        /// Null without the scope `customers`.
        tax_id: Option<String> = particulars.tax_id,
        residential_address: PostalAddress = particulars.residential_address,
        document_type: Option<String> = particulars.document_type,
        #[serde(flatten, skip_serializing_if = "Option::is_none")]
        #[schema(value_type = BusinessRecord)]
        business: Option<BusinessRecord> = particulars.business.map(BusinessRecord::of),
        /// Path of the stored document.
        verification_document: Option<String> = document(DocumentKind::VerificationDocument),
        /// Path of the stored document.
        proof_of_residential_address: Option<String> = document(DocumentKind::ProofOfResidentialAddress),
        /// Path of the stored document.
        incorporation_certificate: Option<String> = document(DocumentKind::IncorporationCertificate),
        /// Path of the stored document.
        proof_of_business_address: Option<String> = document(DocumentKind::ProofOfBusinessAddress),
        /// The current payment details; null if there are none. Without an account number without the scope `customers`.
        payment_details: Option<PaymentDetailsRecord> = payment_details,
        #[serde(flatten, skip_serializing_if = "Option::is_none")]
        #[schema(value_type = DeactivatedRecord)]
        deactivated: Option<DeactivatedRecord> = deactivated,
        created_at: DateTime = DateTime(row.created_at),
        updated_at: DateTime = DateTime(row.updated_at),
    }
}

record! {
    fn of(business: BusinessParticulars) {}

    /// Fields of businesses only. Owners are not returned; `has_beneficiary_owners` is true if there are any.
    struct BusinessRecord {
        /// Businesses only, like the other fields of `BusinessRecord`.
        #[schema(required = false)]
        business_name: String = business.business_name,
        #[schema(required = false)]
        incorporation_certificate_number: String = business.incorporation_certificate_number,
        /// Null without the scope `customers`.
        business_tax_id: Option<String> = Some(business.business_tax_id),
        #[schema(required = false)]
        ownership_percentage: String = business.ownership_percentage,
        #[schema(required = false)]
        registered_business_address: PostalAddress = business.registered_business_address,
        website_url: Option<String> = business.website_url,
        business_registration_number: Option<String> = business.business_registration_number,
        #[schema(required = false)]
        has_beneficiary_owners: bool = !business.beneficiary_owners.is_empty(),
    }
}

/// Fields of deactivated customers only.
#[derive(Serialize, ToSchema)]
struct DeactivatedRecord {
    /// The wallet of the payment details, if there is one.
    wallet_address: Option<String>,
}

record! {
    fn of(app: &AppShared, row: &payment_details::Model) -> Result<Self, ApiError> {
        let details = StoredPaymentDetails::open(app.sealer(), row)?.details;
        // The column has the address in EIP-55 form; the details as it was submitted.
        let details = PaymentDetails { wallet_address: row.wallet_address.clone(), ..details };
    }

    /// Payment details.
    struct PaymentDetailsRecord {
        #[serde(flatten)]
        details: PaymentDetails = details,
        created_at: DateTime = DateTime(row.created_at),
        updated_at: DateTime = DateTime(row.updated_at),
    }
}

impl CustomerRecord {
    /// Reads the record of a row, with its documents and payment details, through `connection`.
    pub async fn read(
        app: &AppShared,
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

    /// Removes what only the scope `customers` shows: government and tax ids, dates of birth, phone and account numbers.
    pub fn without_identity(self) -> Self {
        Self {
            dob: None,
            phone_number: None,
            government_id_number: None,
            tax_id: None,
            business: self.business.map(|business| BusinessRecord { business_tax_id: None, ..business }),
            payment_details: self.payment_details.map(|record| PaymentDetailsRecord {
                details: PaymentDetails { account_number: None, ..record.details },
                ..record
            }),
            ..self
        }
    }

    /// The record of a new customer whose personal data is already decrypted.
    pub(super) fn of_new(row: &customers::Model, particulars: Particulars) -> Result<Self, ApiError> {
        Self::with(row, particulars, &[], None)
    }
}

/// Formats a date as the timestamp of its midnight, UTC.
fn midnight(date: NaiveDate) -> String {
    Timestamp::from(date.and_time(NaiveTime::MIN).and_utc()).to_string()
}
