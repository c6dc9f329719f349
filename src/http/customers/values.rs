//! Readers of values that only customers have, such as countries, phone numbers and wallets.

use std::collections::BTreeMap;
use std::sync::LazyLock;

use celes::Country;
use chrono::{Months, NaiveDate, Utc};
use iso_currency::Currency;
use payferry_httpkit::extract::Field as _;
use payferry_httpkit::extract::field::{optional, required};
use payferry_httpkit::{Fault, Rule, read, request, rule};
use phonenumber::metadata::DATABASE;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use url::Url;
use utoipa::openapi::schema::{KnownFormat, ObjectBuilder, SchemaFormat};

/// Maximum age in years.
pub const AGE_YEARS_MAX: u32 = 130;
/// Maximum characters of a web address.
pub const URL_CHARS_MAX: usize = 2_048;
/// Maximum characters of a postal code.
pub const ZIP_CHARS_MAX: usize = 20;
/// Maximum characters of a government or tax id number.
pub const ID_NUMBER_CHARS_MAX: usize = 64;
/// Maximum decimals of a percentage.
pub const PERCENTAGE_DECIMALS_MAX: usize = 4;
/// Maximum digits of a phone number, including the country code (E.164).
const PHONE_DIGITS_MAX: usize = 15;
/// Maximum digits of a country calling code.
const CALLING_CODE_DIGITS_MAX: usize = 3;

request! {
    /// A postal address.
    pub struct PostalAddress: Debug, Clone, PartialEq, Eq, Serialize, Deserialize {
        /// Street and number.
        pub street_line_1: String = required(rule::text()).example("1 Harbour Road"),
        /// City.
        pub city: String = required(rule::text()).example("Oakland"),
        /// State, province or similar; not every country has one.
        pub region: Option<String> = optional(rule::text()).example("CA"),
        /// Postal code; not every country has one.
        pub zip: Option<String> = optional(rule::short::<ZIP_CHARS_MAX>()).example("94607"),
        /// ISO 3166-1 alpha-3.
        pub country: String = required(COUNTRY).example("USA"),
    }
}

/// A government or tax id number. Formats differ by country, so only the length is checked.
pub fn id_number() -> Rule<String> {
    rule::short::<ID_NUMBER_CHARS_MAX>()
}

/// An ISO 3166-1 alpha-3 code.
pub const COUNTRY: Rule<String> = Rule { read: country, schema: code };

/// An ISO 4217 code.
pub const CURRENCY: Rule<String> = Rule { read: currency, schema: code };

fn code() -> ObjectBuilder {
    rule::string().pattern(Some("^[A-Z]{3}$"))
}

/// An E.164 number.
pub const PHONE_NUMBER: Rule<String> =
    Rule { read: phone_number, schema: || rule::string().pattern(Some(r"^\+[1-9][0-9]{1,14}$")) };

/// A date of birth.
pub const DATE_OF_BIRTH: Rule<NaiveDate> = Rule {
    read: |value| date_of_birth(value, Utc::now().date_naive()),
    schema: || rule::string().format(Some(SchemaFormat::KnownFormat(KnownFormat::Date))),
};

/// A percentage, as submitted.
pub const PERCENTAGE: Rule<String> = Rule {
    read: |value| percentage(value).map(|percentage| percentage.text),
    schema: || rule::string().pattern(Some(r"^0*(100(\.0{1,4})?|[0-9]{1,2}(\.[0-9]{1,4})?)$")),
};

/// The URL of a web page.
pub const WEB_ADDRESS: Rule<String> = Rule {
    read: web_address,
    schema: || rule::string().max_length(Some(URL_CHARS_MAX)).pattern(Some(r"^[Hh][Tt][Tt][Pp][Ss]?://\S+$")),
};

/// Reads an ISO 3166-1 alpha-3 code, in capital letters.
fn country(value: &Value) -> Result<String, Fault> {
    let code = read::string(value)?;
    match Country::from_alpha3(code) {
        Ok(country) if country.alpha3 == code => Ok(code.to_owned()),
        _ => Err(Fault::new("unknown_country", "must be an ISO 3166-1 alpha-3 code, such as USA")),
    }
}

/// Reads an ISO 4217 code, in capital letters. Codes that are not legal tender (metals, units of account, tests) are
/// refused.
fn currency(value: &Value) -> Result<String, Fault> {
    let code = read::string(value)?;
    match Currency::from_code(code) {
        Some(currency) if !currency.is_special() => Ok(code.to_owned()),
        _ => Err(Fault::new("unknown_currency", "must be an ISO 4217 code, such as USD")),
    }
}

/// Reads an E.164 number: `+`, an assigned country calling code, and a number of digits that is valid for it.
///
/// It does not check that the number is assigned: numbering plans change faster than any copy of them.
fn phone_number(value: &Value) -> Result<String, Fault> {
    let text = read::string(value)?;
    let digits = text.strip_prefix('+').unwrap_or_default();
    // No calling code begins with a zero.
    let are_digits = !digits.is_empty() && !digits.starts_with('0') && digits.bytes().all(|b| b.is_ascii_digit());
    if !are_digits || digits.len() > PHONE_DIGITS_MAX {
        return Err(Fault::new("invalid_phone_number", "must be an E.164 number, such as +14155550123"));
    }
    let plan = (1..=CALLING_CODE_DIGITS_MAX.min(digits.len())).find_map(|length| {
        let code = digits[..length].parse().ok()?;
        NATIONAL_DIGITS.get(&code).map(|range| (length, range))
    });
    let Some((code_digits, (shortest, longest))) = plan else {
        return Err(Fault::new("invalid_phone_number", "must begin with + and the calling code of a country"));
    };
    if !(*shortest..=*longest).contains(&(digits.len() - code_digits)) {
        return Err(Fault::new("invalid_phone_number", "has too few or too many digits for its country"));
    }
    Ok(text.to_owned())
}

/// Minimum and maximum digits of national numbers by calling code, from libphonenumber's metadata.
static NATIONAL_DIGITS: LazyLock<BTreeMap<u16, (usize, usize)>> = LazyLock::new(|| {
    let lengths = |code: u16| {
        let mut lengths = Vec::new();
        for metadata in DATABASE.by_code(&code)? {
            let kinds = metadata.descriptors();
            let kinds = [
                kinds.fixed_line(),
                kinds.mobile(),
                kinds.toll_free(),
                kinds.premium_rate(),
                kinds.shared_cost(),
                kinds.personal_number(),
                kinds.voip(),
                kinds.pager(),
                kinds.uan(),
            ];
            for kind in kinds.into_iter().flatten() {
                lengths.extend(kind.possible_length().iter().chain(kind.possible_local_length()).copied());
            }
        }
        Some((code, (usize::from(*lengths.iter().min()?), usize::from(*lengths.iter().max()?))))
    };
    (1..1_000).filter_map(lengths).collect()
});

/// Reads a date of birth, `YYYY-MM-DD`: before `today`, and at most [`AGE_YEARS_MAX`] years ago.
fn date_of_birth(value: &Value, today: NaiveDate) -> Result<NaiveDate, Fault> {
    /// Characters of a date. chrono also accepts shorter ones.
    const DATE_CHARS: usize = 10;
    let text = read::string(value)?;
    let date = Some(text).filter(|text| text.len() == DATE_CHARS && !text.starts_with(['+', '-']));
    let date = date.and_then(|text| NaiveDate::parse_from_str(text, "%Y-%m-%d").ok());
    let date = date.ok_or_else(|| Fault::new("invalid_date", "must be a date that exists, as YYYY-MM-DD"))?;
    if date >= today {
        return Err(Fault::new("not_past", "must be in the past"));
    }
    let oldest = today.checked_sub_months(Months::new(AGE_YEARS_MAX * 12)).unwrap_or(NaiveDate::MIN);
    if date < oldest {
        return Err(Fault::new("out_of_range", format!("must be within the last {AGE_YEARS_MAX} years")));
    }
    Ok(date)
}

/// A percentage, as text and as a number.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Percentage {
    /// Text as submitted.
    pub text: String,
    /// Value in ten-thousandths of a percent.
    pub units: u32,
}

impl Percentage {
    /// 100 percent.
    pub const WHOLE_UNITS: u32 = 1_000_000;
}

/// Reads a percentage: a string of digits with an optional fraction, 0 to 100.
pub fn percentage(value: &Value) -> Result<Percentage, Fault> {
    let malformed =
        || Fault::new("invalid_percentage", "must be a string of digits with an optional fraction, such as \"25.5\"");
    let text = value.as_str().ok_or_else(|| Fault::new("wrong_type", "must be a string, such as \"25.5\""))?;
    let (whole, fraction) = text.split_once('.').map_or((text, None), |(whole, fraction)| (whole, Some(fraction)));
    let digits = |text: &str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    if !digits(whole) || fraction.is_some_and(|fraction| !digits(fraction)) {
        return Err(malformed());
    }
    let fraction = fraction.unwrap_or_default();
    if fraction.len() > PERCENTAGE_DECIMALS_MAX {
        let message = format!("may have at most {PERCENTAGE_DECIMALS_MAX} decimals");
        return Err(Fault::new("too_many_decimals", message));
    }
    let padded = format!("{whole}{fraction:0<PERCENTAGE_DECIMALS_MAX$}");
    let out_of_range = || Fault::new("out_of_range", "must be between 0 and 100");
    // A number with too many digits for `u32` is out of range, too.
    let units: u32 = padded.parse().map_err(|_| out_of_range())?;
    if units > Percentage::WHOLE_UNITS { Err(out_of_range()) } else { Ok(Percentage { text: text.to_owned(), units }) }
}

/// Reads the URL of a web page.
fn web_address(value: &Value) -> Result<String, Fault> {
    let text = read::string(value)?;
    if text.len() > URL_CHARS_MAX {
        return Err(Fault::new("too_long", format!("may have at most {URL_CHARS_MAX} characters")));
    }
    let is_web = |url: &Url| matches!(url.scheme(), "http" | "https") && url.has_host();
    match Url::parse(text) {
        Ok(url) if is_web(&url) && !text.chars().any(|c| c.is_control() || c.is_whitespace()) => Ok(text.to_owned()),
        _ => Err(Fault::new("invalid_url", "must be a web address, such as https://example.com")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use payferry_httpkit::read::address as wallet;
    use serde_json::json;

    /// Asserts that the reader refuses each value with this code.
    #[track_caller]
    fn refuses<T: std::fmt::Debug>(read: impl Fn(&Value) -> Result<T, Fault>, code: &str, values: &[&str]) {
        for bad in values {
            assert_eq!(read(&json!(bad)).unwrap_err().code, code, "{bad}");
        }
    }

    #[track_caller]
    fn accepts(read: impl Fn(&Value) -> Result<String, Fault>, values: &[&str]) {
        for good in values {
            assert_eq!(read(&json!(good)).unwrap(), *good);
        }
    }

    #[test]
    fn countries_and_currencies_follow_the_iso_standards() {
        accepts(country, &["USA", "NGA", "DEU", "GBR", "SSD"]);
        refuses(country, "unknown_country", &["US", "usa", "UsA", "ZZZ", "", "USAA", "United States"]);
        accepts(currency, &["USD", "NGN", "EUR", "XOF", "CLF"]);
        refuses(currency, "unknown_currency", &["usd", "US", "BTC", "XXX", "XTS", "XAU", "", "USDC"]);
    }

    #[test]
    fn phone_numbers_must_be_e164() {
        accepts(phone_number, &["+14155550123", "+2348012345678", "+4915112345678", "+447700900123"]);
        accepts(phone_number, &["+390612345678", "+33612345678"]);
        let code = "invalid_phone_number";
        refuses(phone_number, code, &["", "+", "14155550123", "+1 415 555 0123", "+1-415-555-0123", "0014155550123"]);
        refuses(phone_number, code, &["+0123456789", "+999123456", "+1415", "+141555501234", "+4915112345678901"]);
        refuses(phone_number, code, &["+１4155550123", "+14155550123 ", "+1415555O123"]);
        assert_eq!(phone_number(&json!(14_155_550_123_u64)).unwrap_err().code, "wrong_type");
    }

    #[test]
    fn dates_of_birth_exist_and_are_in_the_past() {
        let today = NaiveDate::from_ymd_opt(2026, 3, 1).unwrap();
        let read = |value: &Value| date_of_birth(value, today).map(|date| date.to_string());
        accepts(read, &["1990-02-28", "2000-02-29", "2026-02-28", "1896-03-01"]);
        refuses(read, "invalid_date", &["1990-02-30", "1990-2-3", "01/02/1990", "1990-02-03T00:00:00Z", "+199-02-03"]);
        refuses(read, "not_past", &["2026-03-01", "2999-01-01"]);
        refuses(read, "out_of_range", &["1896-02-28"]);
    }

    #[test]
    fn percentages_are_between_0_and_100() {
        for (good, units) in [("0", 0), ("25", 250_000), ("33.3333", 333_333), ("100", 1_000_000), ("100.0", 1_000_000)]
        {
            assert_eq!(percentage(&json!(good)).unwrap(), Percentage { text: good.to_owned(), units });
        }
        refuses(percentage, "out_of_range", &["100.0001", "99999999999999999999"]);
        refuses(percentage, "too_many_decimals", &["1.00000"]);
        refuses(percentage, "invalid_percentage", &["-1", "+1", "1e1", "1.", ".5", "25%", ""]);
        assert_eq!(percentage(&json!(25)).unwrap_err().code, "wrong_type");
    }

    #[test]
    fn wallets_match_their_checksum() {
        let checksum = "0x833589fCD6eDb6E08f4c7C32D4f71b54bdA02913";
        let address = wallet(&json!(checksum)).unwrap();
        assert_eq!(wallet(&json!(checksum.to_lowercase())).unwrap(), address);
        let upper = format!("0x{}", checksum[2..].to_uppercase());
        assert_eq!(wallet(&json!(upper)).unwrap(), address);
        refuses(wallet, "wrong_checksum", &[&checksum.replace("fCD6", "FCD6")]);
        refuses(wallet, "invalid_address", &["", "0x", &checksum[2..], &checksum[..41], "vitalik.eth"]);
        refuses(wallet, "invalid_address", &["0x833589fCD6eDb6E08f4c7C32D4f71b54bdA0291g"]);
    }

    #[test]
    fn web_addresses_are_http_urls() {
        accepts(web_address, &["https://example.com", "http://shop.example:8080/a?b=c"]);
        refuses(web_address, "too_long", &[&format!("https://example.com/{}", "a".repeat(URL_CHARS_MAX))]);
        let bad = ["", "example", "javascript:alert(1)", "https://", "ftp://example.com", " https://example.com"];
        refuses(web_address, "invalid_url", &bad);
    }
}
