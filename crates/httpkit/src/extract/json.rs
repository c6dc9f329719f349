//! Strict JSON bodies: duplicate keys, numbers that would lose precision, and trailing data are errors. Also the canonical
//! form of a value, by which two bodies are compared.

use std::fmt;

use serde::de::{DeserializeSeed, Deserializer, Error, MapAccess, SeqAccess, Visitor};
use serde_json::{Map, Number, Value};

/// Reads one JSON value. The error has the position, but none of the content.
pub(crate) fn parse(body: &[u8]) -> Result<Value, String> {
    let mut reader = serde_json::Deserializer::from_slice(body);
    let value = Strict.deserialize(&mut reader).map_err(|error| error.to_string())?;
    reader.end().map_err(|error| error.to_string())?;
    Ok(value)
}

/// Writes a value in its canonical form: no spaces, keys in the order of their bytes, and numbers without an exponent or a
/// fraction if they are whole. Equal values have the same form.
pub(crate) fn canonical(value: &Value) -> Vec<u8> {
    let mut form = Vec::new();
    write_canonical(value, &mut form);
    form
}

/// The parser limits the depth, so the recursion is bounded.
fn write_canonical(value: &Value, form: &mut Vec<u8>) {
    match value {
        Value::Array(items) => {
            form.push(b'[');
            for (index, item) in items.iter().enumerate() {
                if index > 0 {
                    form.push(b',');
                }
                write_canonical(item, form);
            }
            form.push(b']');
        }
        Value::Object(fields) => {
            let mut fields: Vec<_> = fields.iter().collect();
            fields.sort_unstable_by_key(|(name, _)| *name);
            form.push(b'{');
            for (index, (name, value)) in fields.into_iter().enumerate() {
                if index > 0 {
                    form.push(b',');
                }
                form.extend(format!("{}:", Value::from(name.as_str())).bytes());
                write_canonical(value, form);
            }
            form.push(b'}');
        }
        Value::Number(number) => {
            form.extend(whole(number).map_or_else(|| number.to_string(), |n| n.to_string()).bytes());
        }
        Value::Null | Value::Bool(_) | Value::String(_) => form.extend(value.to_string().bytes()),
    }
}

/// The number as an integer, if it is one.
#[allow(clippy::cast_possible_truncation, reason = "the parser accepts no number beyond 64 bits")]
fn whole(number: &Number) -> Option<i128> {
    let integer = number.as_i64().map(i128::from).or_else(|| number.as_u64().map(i128::from));
    integer.or_else(|| number.as_f64().filter(|float| float.fract() == 0.0).map(|float| float as i128))
}

/// Deserialises like `Value`, but refuses duplicate keys and integers beyond 64 bits.
struct Strict;

impl<'de> DeserializeSeed<'de> for Strict {
    type Value = Value;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Value, D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Strict {
    type Value = Value;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a JSON value")
    }

    fn visit_unit<E: Error>(self) -> Result<Value, E> {
        Ok(Value::Null)
    }

    fn visit_bool<E: Error>(self, value: bool) -> Result<Value, E> {
        Ok(Value::Bool(value))
    }

    fn visit_i64<E: Error>(self, value: i64) -> Result<Value, E> {
        Ok(Value::from(value))
    }

    fn visit_u64<E: Error>(self, value: u64) -> Result<Value, E> {
        Ok(Value::from(value))
    }

    fn visit_f64<E: Error>(self, value: f64) -> Result<Value, E> {
        // serde_json reads an integer beyond 64 bits as a float. Only its magnitude distinguishes it, so fractions of
        // that magnitude are refused too.
        if value <= -(2_f64.powi(63)) || value >= 2_f64.powi(64) {
            return Err(E::custom("a number exceeds 64 bits: write it as a string"));
        }
        Number::from_f64(value).map(Value::Number).ok_or_else(|| E::custom("number out of range"))
    }

    fn visit_str<E: Error>(self, value: &str) -> Result<Value, E> {
        Ok(Value::String(value.to_owned()))
    }

    fn visit_string<E: Error>(self, value: String) -> Result<Value, E> {
        Ok(Value::String(value))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<Value, A::Error> {
        let mut list = Vec::new();
        while let Some(item) = items.next_element_seed(Strict)? {
            list.push(item);
        }
        Ok(Value::Array(list))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut entries: A) -> Result<Value, A::Error> {
        let mut object = Map::new();
        while let Some(key) = entries.next_key::<String>()? {
            let value = entries.next_value_seed(Strict)?;
            if object.insert(key, value).is_some() {
                return Err(A::Error::custom("an object has a duplicate key"));
            }
        }
        Ok(Value::Object(object))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn values_are_read_unchanged() {
        let text = r#"{"a": [1, -2, 2.5, "x", true, null, {"b": {}}], "z": 18446744073709551615}"#;
        assert_eq!(
            parse(text.as_bytes()).unwrap(),
            json!({"a": [1, -2, 2.5, "x", true, null, {"b": {}}], "z": u64::MAX})
        );
    }

    #[test]
    fn integers_are_exact_or_refused() {
        for held in ["-9223372036854775808", "18446744073709551615", "9007199254740993", "-1", "0"] {
            assert_eq!(parse(held.as_bytes()).unwrap().to_string(), held);
        }
        for beyond in ["-9223372036854775809", "18446744073709551616", "[{\"order\":123456789012345678901}]", "1e20"] {
            let refusal = parse(beyond.as_bytes()).unwrap_err();
            assert!(refusal.contains("write it as a string"), "{beyond}: {refusal}");
        }
        assert_eq!(parse(b"[1e19, 0.5]").unwrap(), json!([1e19, 0.5]), "fractions have the precision of a double");
    }

    #[test]
    fn equal_values_have_the_same_canonical_form() {
        let form = |text: &str| String::from_utf8(canonical(&parse(text.as_bytes()).unwrap())).unwrap();
        assert_eq!(form(r#" {"b" : [1, 2.50, true, null], "a": "\u00e9\/" } "#), r#"{"a":"é/","b":[1,2.5,true,null]}"#);
        for same in ["10", "10.0", "1e1", "100e-1"] {
            assert_eq!(form(same), "10", "{same}");
        }
        assert_eq!(form("-0.0"), "0");
        assert_eq!(form("18446744073709551615"), "18446744073709551615");
        assert_eq!(form(r#"{"a\"b":{},"c":[]}"#), r#"{"a\"b":{},"c":[]}"#);
        let different =
            ["1", "1.5", "\"1\"", "[1]", "[1,2]", "[2,1]", "[[1],2]", r#"{"a":1}"#, r#"{"a":null}"#, "{}", "null"];
        let forms: std::collections::BTreeSet<_> = different.iter().map(|text| form(text)).collect();
        assert_eq!(forms.len(), different.len());
    }

    #[test]
    fn ambiguous_or_truncated_json_is_refused() {
        let deep = format!("{}{}", "[".repeat(200), "]".repeat(200));
        for bad in [
            "",
            "{",
            "{} {}",
            "{}x",
            r#"{"a":1,"a":1}"#,
            r#"[{"a":{"b":1,"b":2}}]"#,
            "nul",
            "1e999",
            "\"\u{1}\"",
            &deep,
        ] {
            assert!(parse(bad.as_bytes()).is_err(), "{bad}");
        }
        assert!(parse(b"\"\xff\"").is_err(), "not UTF-8");
        assert!(!parse(br#"{"secret":"sk_test_1","secret":"#).unwrap_err().contains("sk_test"));
    }
}
