//! Readers of single values. Each returns the value or its fault.

use std::str::FromStr;

use email_address::EmailAddress;
use payferry_domain::ids::Id;
use payferry_domain::money::{AMOUNT_MAX, AMOUNT_MIN, AmountError};
use payferry_domain::named::Named;
use payferry_domain::{Address, Amount, Hash32, Timestamp, TimestampError};
use serde_json::{Map, Value};

use super::Fault;

/// Maximum characters of a name, a reference or another short text.
pub const TEXT_CHARS_MAX: usize = 255;
/// Maximum bytes of an email address (RFC 5321).
const EMAIL_BYTES_MAX: usize = 254;

/// Reads a text of 1 to [`TEXT_CHARS_MAX`] characters that is not blank and has no control characters (PostgreSQL
/// cannot store NUL).
pub fn text(value: &Value) -> Result<String, Fault> {
    let text = string(value)?;
    if text.trim().is_empty() {
        return Err(Fault::new("empty", "must not be empty"));
    }
    if text.chars().count() > TEXT_CHARS_MAX {
        return Err(Fault::new("too_long", format!("may have at most {TEXT_CHARS_MAX} characters")));
    }
    if text.chars().any(char::is_control) {
        return Err(Fault::new("invalid_characters", "must not contain control characters"));
    }
    Ok(text.to_owned())
}

/// Reads a text of at most `chars_max` characters (see [`text`]).
pub fn short(value: &Value, chars_max: usize) -> Result<String, Fault> {
    let text = text(value)?;
    if text.chars().count() > chars_max {
        return Err(Fault::new("too_long", format!("may have at most {chars_max} characters")));
    }
    Ok(text)
}

/// Reads an email address (RFC 5321 and 6531) at a domain: no display name, no host without a dot, no bare IP address.
pub fn email(value: &Value) -> Result<String, Fault> {
    let email = text(value)?;
    let options = email_address::Options::default().without_display_text().without_domain_literal().with_required_tld();
    let valid = email.len() <= EMAIL_BYTES_MAX && EmailAddress::parse_with_options(&email, options).is_ok();
    if valid { Ok(email) } else { Err(Fault::new("invalid_email", "must be an email address")) }
}

/// Reads an id of the type `T`.
pub fn id<T: Id>(value: &Value) -> Result<T, Fault> {
    string(value)?.parse().map_err(|_| Fault::new("invalid_id", "is not a valid id"))
}

/// Reads a name of this enum.
pub fn name<T: Named>(value: &Value) -> Result<T, Fault> {
    word(value, &T::ALL.iter().map(|one| one.name()).collect::<Vec<_>>().join(", "))
}

/// Reads one of a few words. `expected` lists them.
pub fn word<T: FromStr>(value: &Value, expected: &str) -> Result<T, Fault> {
    string(value)?.parse().map_err(|_| Fault::new("unknown_value", format!("must be one of {expected}")))
}

/// Reads the amount of a payment: a string of digits with at most 6 decimals, 0.01 to 1,000,000.
pub fn amount(value: &Value) -> Result<Amount, Fault> {
    let amount = decimal(value, AMOUNT_MAX)?;
    if amount < AMOUNT_MIN {
        return Err(Fault::new("amount_too_small", format!("must be at least {AMOUNT_MIN}")));
    }
    Ok(amount)
}

/// Reads a partial amount: any positive amount with at most 6 decimals.
pub fn part(value: &Value) -> Result<Amount, Fault> {
    let amount = decimal(value, Amount::MAX)?;
    if amount.is_zero() { Err(Fault::new("amount_too_small", "must be more than 0")) } else { Ok(amount) }
}

/// Reads an amount, zero included: a string of digits with at most 6 decimals.
pub fn decimal(value: &Value, max: Amount) -> Result<Amount, Fault> {
    let text = value.as_str().ok_or_else(|| Fault::new("wrong_type", "must be a string, such as \"10.50\""))?;
    let too_large = || Fault::new("amount_too_large", format!("must be at most {max}"));
    let amount: Amount = text.parse().map_err(|error| match error {
        AmountError::Malformed => Fault::new(
            "amount_malformed",
            "must be written as digits without leading zeros, with an optional fraction, such as \"10.50\"",
        ),
        AmountError::TooManyDecimals => Fault::new("too_many_decimals", "may have at most 6 decimals"),
        AmountError::TooLarge => too_large(),
    })?;
    if amount > max { Err(too_large()) } else { Ok(amount) }
}

/// Reads an address of an EVM chain: `0x` and 40 hexadecimal digits. An address in mixed case must match its EIP-55
/// checksum.
pub fn address(value: &Value) -> Result<Address, Fault> {
    let text = string(value)?;
    let malformed = |_| Fault::new("invalid_address", "must be 0x and 40 hexadecimal digits");
    let address: Address = text.parse().map_err(malformed)?;
    let digits = text.get(2..).unwrap_or_default();
    let has = |case: fn(&u8) -> bool| digits.as_bytes().iter().any(case);
    if has(u8::is_ascii_lowercase) && has(u8::is_ascii_uppercase) && address.checksummed() != text {
        return Err(Fault::new("wrong_checksum", "does not match its EIP-55 checksum; check its characters and case"));
    }
    Ok(address)
}

/// Reads true or false.
pub fn flag(value: &Value) -> Result<bool, Fault> {
    value.as_bool().ok_or_else(|| Fault::new("wrong_type", "must be true or false"))
}

/// Reads a whole number within bounds.
pub fn whole(value: &Value, min: i64, max: i64) -> Result<i64, Fault> {
    let wrong = || Fault::new("wrong_type", "must be a whole number");
    let number = value.as_number().ok_or_else(wrong)?;
    let whole = number.as_i64().or_else(|| number.is_u64().then_some(i64::MAX)).ok_or_else(wrong)?;
    if (min..=max).contains(&whole) {
        Ok(whole)
    } else {
        Err(Fault::new("out_of_range", format!("must be between {min} and {max}")))
    }
}

/// Reads an object whose JSON has at most `bytes_max` bytes and `levels_max` levels, including its own.
pub fn object(value: &Value, bytes_max: usize, levels_max: usize) -> Result<Map<String, Value>, Fault> {
    let object = value.as_object().ok_or_else(|| Fault::new("wrong_type", "must be an object"))?;
    let bytes = serde_json::to_vec(object).map_or(usize::MAX, |json| json.len());
    if bytes > bytes_max {
        return Err(Fault::new("too_large", format!("may have at most {bytes_max} bytes as JSON")));
    }
    if levels(value) > levels_max {
        return Err(Fault::new("too_deep", format!("may be nested at most {levels_max} levels deep")));
    }
    Ok(object.clone())
}

/// Nesting depth of objects and lists. The body parser limits it, so the recursion is bounded.
fn levels(value: &Value) -> usize {
    match value {
        Value::Array(items) => 1 + items.iter().map(levels).max().unwrap_or(0),
        Value::Object(fields) => 1 + fields.values().map(levels).max().unwrap_or(0),
        _ => 0,
    }
}

/// Reads a hash of a transaction or block.
pub fn hash(value: &Value) -> Result<Hash32, Fault> {
    let malformed = |_| Fault::new("invalid_hash", "must be 0x and 64 hexadecimal digits");
    string(value)?.parse().map_err(malformed)
}

/// Reads a time in ISO 8601 with an offset, or a date, which means 00:00 UTC.
pub fn moment(value: &Value) -> Result<Timestamp, Fault> {
    string(value)?.parse().map_err(|_: TimestampError| {
        Fault::new(
            "invalid_timestamp",
            "must be a date or an ISO 8601 time, such as 2026-01-31 or 2026-01-31T12:00:00Z",
        )
    })
}

/// Reads a string.
pub fn string(value: &Value) -> Result<&str, Fault> {
    value.as_str().ok_or_else(|| Fault::new("wrong_type", "must be a string"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn email_addresses_are_validated() {
        for good in ["a@b.co", "first.last+tag@sub.example.com", "ü@bücher.example"] {
            assert_eq!(email(&json!(good)).unwrap(), good);
        }
        let long = format!("{}@example.com", "a".repeat(250));
        for bad in ["", " ", "a", "@b.co", "a@", "a@b", "a@.co", "a@b..co", "a b@c.de", "a@b@c.de", "a@-b.co", &long] {
            assert!(email(&json!(bad)).is_err(), "{bad}");
        }
    }

    #[test]
    fn whole_numbers_are_whole_and_within_bounds() {
        assert_eq!(whole(&json!(60), 60, 86_400).unwrap(), 60);
        for (bad, code) in [
            (json!(59), "out_of_range"),
            (json!(u64::MAX), "out_of_range"),
            (json!(60.5), "wrong_type"),
            (json!("60"), "wrong_type"),
        ] {
            assert_eq!(whole(&bad, 60, 86_400).unwrap_err().code, code, "{bad}");
        }
    }

    #[test]
    fn objects_respect_the_size_and_depth_limits() {
        let three = json!({ "a": [1, { "b": "c" }], "d": {} });
        assert_eq!(object(&three, 100, 3).unwrap(), *three.as_object().unwrap());
        assert_eq!(object(&three, 100, 2).unwrap_err().code, "too_deep");
        assert_eq!(object(&three, 10, 3).unwrap_err().code, "too_large");
        assert_eq!(object(&json!([]), 100, 3).unwrap_err().code, "wrong_type");
    }

    #[test]
    fn rejects_texts_that_are_blank_too_long_or_have_control_characters() {
        for (bad, code) in [
            (json!(" \t"), "empty"),
            (json!("a\u{0}b"), "invalid_characters"),
            (json!("a".repeat(256)), "too_long"),
            (json!(7), "wrong_type"),
        ] {
            assert_eq!(text(&bad).unwrap_err().code, code, "{bad}");
        }
        assert_eq!(text(&json!("é".repeat(255))).unwrap().chars().count(), 255);
    }
}
