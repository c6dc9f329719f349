//! A customer's personal data that no decision depends on, encrypted in one column.
//!
//! This module owns the column's content. Email, country and currency have their own columns. `create` validates the
//! data.

use chrono::NaiveDate;
use payferry_domain::CustomerId;
use payferry_httpkit::ApiError;
use payferry_runtime::seal::Sealer;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::values::PostalAddress;

/// A customer's personal data; outside of [`BusinessParticulars`], those of a business's primary contact. It has no
/// `Debug`, which would show it.
#[serde_with::skip_serializing_none]
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Particulars {
    pub first_name: String,
    pub last_name: String,
    pub dob: NaiveDate,
    /// E.164.
    pub phone_number: Option<String>,
    /// Number of the government id, for compliance checks.
    pub government_id_number: String,
    pub tax_id: Option<String>,
    /// Home address of the person.
    pub residential_address: PostalAddress,
    /// Document type that will prove the identity.
    pub document_type: Option<String>,
    /// Present for a business only.
    pub business: Option<BusinessParticulars>,
}

/// Data that only businesses have.
#[serde_with::skip_serializing_none]
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct BusinessParticulars {
    pub business_name: String,
    /// Number on the certificate, as submitted.
    pub incorporation_certificate_number: String,
    pub business_tax_id: String,
    /// The primary contact's share, as submitted.
    pub ownership_percentage: String,
    pub registered_business_address: PostalAddress,
    pub website_url: Option<String>,
    /// Present if different from the certificate's number.
    pub business_registration_number: Option<String>,
    pub beneficiary_owners: Vec<BeneficiaryOwner>,
}

/// A beneficial owner of a business.
#[serde_with::skip_serializing_none]
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct BeneficiaryOwner {
    #[schema(max_length = 255, example = "Charles")]
    pub first_name: String,
    #[schema(max_length = 255, example = "Babbage")]
    pub last_name: String,
    /// YYYY-MM-DD, in the past.
    #[schema(value_type = String, format = "date", example = "1985-12-26")]
    pub dob: NaiveDate,
    #[schema(format = "email", max_length = 254, example = "charles@example.com")]
    pub email: Option<String>,
    /// E.164.
    #[schema(example = "+14155550124")]
    pub phone_number: Option<String>,
    /// A string from 0 to 100 with at most 4 decimals.
    #[schema(example = "40")]
    pub ownership_percentage: String,
    pub address: PostalAddress,
    #[schema(max_length = 64, example = "passport")]
    pub government_id_type: Option<String>,
    #[schema(max_length = 64, example = "P7654321")]
    pub government_id_number: Option<String>,
    #[schema(max_length = 64, example = "987-65-4321")]
    pub tax_id: Option<String>,
}

impl Particulars {
    /// Encrypts for the column of this customer.
    pub fn seal(&self, sealer: &Sealer, id: CustomerId) -> Result<String, ApiError> {
        Ok(sealer.seal(&["customers", &id.to_string(), "particulars"], &serde_json::to_vec(self)?))
    }

    /// Decrypts from the column of this customer.
    pub fn open(sealer: &Sealer, id: &str, sealed: &str) -> Result<Self, ApiError> {
        let opened = sealer.open(&["customers", id, "particulars"], sealed).map_err(ApiError::internal)?;
        // The parser's message may quote the data, so it is dropped.
        serde_json::from_slice(&opened).map_err(|_| ApiError::internal("a customer's personal data cannot be decoded"))
    }
}
