//! A customer's personal data that no decision depends on, encrypted in one column.
//!
//! This module owns the column's content. Email, country and currency have their own columns. `create` validates the
//! data.

use chrono::NaiveDate;
use payferry_domain::CustomerId;
use payferry_httpkit::extract::Field as _;
use payferry_httpkit::extract::field::{optional, required};
use payferry_httpkit::{ApiError, field, request, rule};
use payferry_runtime::seal::Sealer;
use serde::{Deserialize, Serialize};

use super::values::{self, PostalAddress};

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

/// Maximum number of owners of one business.
pub const BENEFICIARY_OWNERS_MAX: usize = 25;

request! {
    /// Data that only businesses have.
    pub struct BusinessParticulars: Clone, PartialEq, Eq, Serialize, Deserialize {
        /// Registered legal name.
        pub business_name: String = required(rule::text()).example("Analytical Engines Inc."),
        pub incorporation_certificate_number: String = required(values::id_number()).example("INC-1842"),
        pub business_tax_id: String = required(values::id_number()).example("12-3456789"),
        /// The primary contact's share, a string from 0 to 100 with at most 4 decimals.
        pub ownership_percentage: String = required(values::PERCENTAGE).example("60"),
        pub registered_business_address: PostalAddress = field::object(),
        pub website_url: Option<String> = optional(values::WEB_ADDRESS).example("https://engines.example"),
        /// If different from `incorporation_certificate_number`.
        pub business_registration_number: Option<String> = optional(values::id_number()).example("REG-7"),
        /// Its other owners; all shares add up to at most 100.
        pub beneficiary_owners: Vec<BeneficiaryOwner> = field::optional_list::<_, BENEFICIARY_OWNERS_MAX>(),
    }
}

request! {
    /// A beneficial owner of a business.
    pub struct BeneficiaryOwner: Clone, PartialEq, Eq, Serialize, Deserialize {
        pub first_name: String = required(rule::text()).example("Charles"),
        pub last_name: String = required(rule::text()).example("Babbage"),
        /// YYYY-MM-DD, in the past.
        pub dob: NaiveDate = required(values::DATE_OF_BIRTH).example("1985-12-26"),
        pub email: Option<String> = optional(rule::email()).example("charles@example.com"),
        /// E.164.
        pub phone_number: Option<String> = optional(values::PHONE_NUMBER).example("+14155550124"),
        /// A string from 0 to 100 with at most 4 decimals.
        pub ownership_percentage: String = required(values::PERCENTAGE).example("40"),
        pub address: PostalAddress = field::object(),
        pub government_id_type: Option<String> = optional(values::id_number()).example("passport"),
        pub government_id_number: Option<String> = optional(values::id_number()).example("P7654321"),
        pub tax_id: Option<String> = optional(values::id_number()).example("987-65-4321"),
    }
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
