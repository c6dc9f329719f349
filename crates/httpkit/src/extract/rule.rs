//! Rules of the values in requests. A rule is the only declaration of a value: it reads the value and describes it in the
//! OpenAPI document.

use payferry_domain::ids::Id;
use payferry_domain::money::{AMOUNT_MAX, AMOUNT_MIN};
use payferry_domain::named::Named;
use payferry_domain::{Address, Amount, Hash32, Timestamp};
use serde_json::{Map, Value};
use utoipa::openapi::schema::{AdditionalProperties, ObjectBuilder, Type};
use utoipa::openapi::{KnownFormat, Schema, SchemaFormat};

use super::Fault;
use super::read::{self, TEXT_CHARS_MAX};

/// Reads and describes one kind of value.
#[derive(Clone, Copy)]
pub struct Rule<T> {
    /// Reads a value.
    pub read: fn(&Value) -> Result<T, Fault>,
    /// Describes the values that are read.
    pub schema: fn() -> ObjectBuilder,
}

/// A string.
pub fn string() -> ObjectBuilder {
    ObjectBuilder::new().schema_type(Type::String)
}

/// One of these texts.
pub fn one_of<T: Into<Value>>(values: impl IntoIterator<Item = T>) -> ObjectBuilder {
    string().enum_values(Some(values.into_iter().map(Into::into).collect::<Vec<Value>>()))
}

/// An id with one of these prefixes.
pub fn id_of(prefixes: &[&str]) -> ObjectBuilder {
    string().pattern(Some(format!("^({})[0-7][0-9A-HJKMNP-TV-Z]{{25}}$", prefixes.join("|"))))
}

/// A whole number within bounds.
#[allow(clippy::cast_precision_loss, reason = "the bounds are small")]
pub fn integer(min: i64, max: i64) -> ObjectBuilder {
    ObjectBuilder::new().schema_type(Type::Integer).minimum(Some(min as f64)).maximum(Some(max as f64))
}

/// An id of this kind.
pub fn id<T: Id>() -> Rule<T> {
    Rule { read: read::id, schema: || id_of(&[T::PREFIX]) }
}

/// A name of this enum.
pub fn name<T: Named>() -> Rule<T> {
    Rule { read: read::name, schema: || one_of(T::ALL.iter().map(|one| one.name())) }
}

/// A text of at most `CHARS_MAX` characters (see [`read::text`]).
pub fn short<const CHARS_MAX: usize>() -> Rule<String> {
    /// No control characters, and one character that is not a space.
    const PATTERN: &str =
        r"^[^\u0000-\u001f\u007f-\u009f]*[^\s\u0000-\u001f\u007f-\u009f][^\u0000-\u001f\u007f-\u009f]*$";
    Rule {
        read: |value| read::short(value, CHARS_MAX),
        schema: || string().min_length(Some(1)).max_length(Some(CHARS_MAX)).pattern(Some(PATTERN)),
    }
}

/// A text of usual length (see [`read::text`]).
pub fn text() -> Rule<String> {
    short::<TEXT_CHARS_MAX>()
}

/// An email address (see [`read::email`]).
pub fn email() -> Rule<String> {
    Rule {
        read: read::email,
        schema: || {
            let format = SchemaFormat::KnownFormat(KnownFormat::Email);
            string().format(Some(format)).max_length(Some(254)).pattern(Some(r"^[^@\s]+@[^@\s.]+(\.[^@\s.]+)+$"))
        },
    }
}

/// Digits, with an optional fraction of at most 6 decimals.
const DECIMAL: &str = r"^(0|[1-9][0-9]*)(\.[0-9]{1,6})?$";
/// As [`DECIMAL`], but not zero.
const POSITIVE: &str = concat!(
    r"^([1-9][0-9]*(\.[0-9]{1,6})?|0\.([1-9][0-9]{0,5}|0[1-9][0-9]{0,4}|00[1-9][0-9]{0,3}|000[1-9][0-9]{0,2}",
    r"|0000[1-9][0-9]?|00000[1-9]))$"
);
/// As [`DECIMAL`], from 0.01 to 1,000,000.
const PAYMENT_AMOUNT: &str =
    r"^(0\.([1-9][0-9]{0,5}|0[1-9][0-9]{0,4})|[1-9][0-9]{0,5}(\.[0-9]{1,6})?|1000000(\.0{1,6})?)$";

/// The amount of a payment (see [`read::amount`]).
pub fn amount() -> Rule<Amount> {
    // The bounds are those of the pattern.
    const _: () = assert!(AMOUNT_MIN.units() == 10_000 && AMOUNT_MAX.units() == 1_000_000_000_000);
    Rule { read: read::amount, schema: || string().pattern(Some(PAYMENT_AMOUNT)) }
}

/// Any positive amount (see [`read::part`]).
pub fn part() -> Rule<Amount> {
    Rule { read: read::part, schema: || string().max_length(Some(20)).pattern(Some(POSITIVE)) }
}

/// An amount, zero included, of at most `UNITS_MAX` base units.
pub fn amount_up_to<const UNITS_MAX: i64>() -> Rule<Amount> {
    Rule {
        read: |value| read::decimal(value, Amount::from_units(UNITS_MAX)),
        schema: || string().max_length(Some(20)).pattern(Some(DECIMAL)),
    }
}

/// An address of an EVM chain (see [`read::address`]).
pub fn address() -> Rule<Address> {
    Rule { read: read::address, schema: address_schema }
}

/// Describes addresses.
pub fn address_schema() -> ObjectBuilder {
    string().pattern(Some("^0x[0-9a-fA-F]{40}$"))
}

/// A whole number within bounds.
pub fn whole<const MIN: i64, const MAX: i64>() -> Rule<i64> {
    Rule { read: |value| read::whole(value, MIN, MAX), schema: || integer(MIN, MAX) }
}

/// A hash of a transaction or block.
pub fn hash() -> Rule<Hash32> {
    Rule { read: read::hash, schema: || string().pattern(Some("^0x[0-9a-fA-F]{64}$")) }
}

/// True or false.
pub fn flag() -> Rule<bool> {
    Rule { read: read::flag, schema: || ObjectBuilder::new().schema_type(Type::Boolean) }
}

/// A date, or a time with an offset, as in ISO 8601. The days of a month are not in the pattern.
const MOMENT: &str = concat!(
    r"^[0-9]{4}-(0[1-9]|1[0-2])-(0[1-9]|[12][0-9]|3[01])",
    r"([Tt ]([01][0-9]|2[0-3]):[0-5][0-9]:([0-5][0-9]|60)(\.[0-9]+)?([Zz]|[+-]([01][0-9]|2[0-3]):[0-5][0-9]))?$"
);

/// A time, or a date, which means 00:00 UTC (see [`read::moment`]).
pub fn moment() -> Rule<Timestamp> {
    Rule { read: read::moment, schema: || string().pattern(Some(MOMENT)) }
}

/// An object of the PSP's own (see [`read::object`]).
pub fn free_object<const BYTES_MAX: usize, const LEVELS_MAX: usize>() -> Rule<Map<String, Value>> {
    Rule { read: |value| read::object(value, BYTES_MAX, LEVELS_MAX), schema: free_schema }
}

/// Describes objects with any content.
pub fn free_schema() -> ObjectBuilder {
    let object = ObjectBuilder::new().schema_type(Type::Object);
    object.additional_properties(Some(AdditionalProperties::<Schema>::FreeForm(true)))
}

#[cfg(test)]
mod tests;
