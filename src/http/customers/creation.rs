//! Reads a customer to create: the fields of each type and their limits.

use chrono::NaiveDate;
use payferry_domain::customer::{CustomerKind, DocumentKind};
use payferry_httpkit::{Fault, Fields, read};
use serde_json::Value;
use utoipa::ToSchema;

use super::particulars::{BeneficiaryOwner, Business, Particulars};
use super::values::{self, Percentage, PostalAddress};

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

/// A validated customer to create.
pub struct Creation {
    /// Individual or business.
    pub kind: CustomerKind,
    /// ISO 3166-1 alpha-3.
    pub country: String,
    /// ISO 4217.
    pub currency: String,
    /// Email address.
    pub email: String,
    /// All other fields.
    pub particulars: Particulars,
}

/// A customer to create.
#[derive(ToSchema)]
#[allow(dead_code, reason = "it describes the body; `read` reads it, so that every fault is named")]
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
pub fn read(fields: &Fields<'_>, today: NaiveDate) -> Option<Creation> {
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

fn business(fields: &Fields<'_>, today: NaiveDate) -> Option<Business> {
    let business_name = fields.required("business_name", read::text);
    let incorporation_certificate_number = fields.required("incorporation_certificate_number", values::id_number);
    let business_tax_id = fields.required("business_tax_id", values::id_number);
    let ownership_percentage = fields.required("ownership_percentage", values::percentage);
    let registered_business_address = fields.object("registered_business_address", values::address);
    let website_url = fields.optional("website_url", values::web_address);
    let business_registration_number = fields.optional("business_registration_number", values::id_number);
    let beneficiary_owners = owners(fields, today);
    Some(Business {
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
