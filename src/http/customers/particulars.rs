//! Who a customer is: all that was submitted and that nothing is decided on. It stands sealed in one column.
//!
//! Owned here: what that column holds. Deliberately absent: email, country and currency, which have columns, and how
//! any of it is validated (`creation`).

use std::fmt;

use chrono::NaiveDate;
use payferry_actors::seal::Sealer;
use payferry_domain::CustomerId;
use payferry_httpkit::error::ApiError;
use serde::{Deserialize, Serialize};

use super::values::PostalAddress;

/// Who a customer is. `Debug` shows nothing of it.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Particulars {
    /// Of the person; of a business, of its primary contact. So are all fields that are not [`Business`]'s.
    pub first_name: String,
    /// Last name.
    pub last_name: String,
    /// Date of birth.
    pub dob: NaiveDate,
    /// E.164.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub phone_number: Option<String>,
    /// For compliance checks.
    pub government_id_number: String,
    /// Of the person.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tax_id: Option<String>,
    /// Where the person lives.
    pub residential_address: PostalAddress,
    /// Which document will prove who it is.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub document_type: Option<String>,
    /// Of a business only.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub business: Option<Business>,
}

/// What only businesses have.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Business {
    /// Registered legal name.
    pub business_name: String,
    /// As it is printed.
    pub incorporation_certificate_number: String,
    /// Of the business.
    pub business_tax_id: String,
    /// The primary contact's share, as it was written.
    pub ownership_percentage: String,
    /// Where it is registered.
    pub registered_business_address: PostalAddress,
    /// Its web page.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub website_url: Option<String>,
    /// If it is another than the certificate's.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub business_registration_number: Option<String>,
    /// Who else owns it.
    pub beneficiary_owners: Vec<BeneficiaryOwner>,
}

/// Somebody who owns a part of a business.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct BeneficiaryOwner {
    /// First name.
    pub first_name: String,
    /// Last name.
    pub last_name: String,
    /// Date of birth.
    pub dob: NaiveDate,
    /// Contact.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub email: Option<String>,
    /// E.164.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub phone_number: Option<String>,
    /// As it was written.
    pub ownership_percentage: String,
    /// Where the owner lives.
    pub address: PostalAddress,
    /// Which document the number below is of.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub government_id_type: Option<String>,
    /// For compliance checks.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub government_id_number: Option<String>,
    /// Of the owner.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tax_id: Option<String>,
}

impl Particulars {
    /// As the column of this customer holds them.
    pub fn seal(&self, sealer: &Sealer, id: CustomerId) -> Result<String, ApiError> {
        Ok(sealer.seal(&["customers", &id.to_string(), "particulars"], &serde_json::to_vec(self)?))
    }

    /// From the column of this customer.
    pub fn open(sealer: &Sealer, id: &str, sealed: &str) -> Result<Self, ApiError> {
        let opened = sealer.open(&["customers", id, "particulars"], sealed).map_err(ApiError::internal)?;
        // The parser's own words may quote what it read.
        serde_json::from_slice(&opened).map_err(|_| ApiError::internal("the particulars of a customer cannot be read"))
    }
}

impl fmt::Debug for Particulars {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Particulars")
    }
}
