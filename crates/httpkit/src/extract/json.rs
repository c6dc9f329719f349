//! JSON bodies, strictly: a key twice, a number that would come out as another, or anything after the end, is an error.

use std::fmt;

use serde::de::{DeserializeSeed, Deserializer, Error, MapAccess, SeqAccess, Visitor};
use serde_json::{Map, Number, Value};

/// Reads one JSON value. The error says where, and nothing of what stands there.
pub(super) fn parse(body: &[u8]) -> Result<Value, String> {
    let mut reader = serde_json::Deserializer::from_slice(body);
    let value = Strict.deserialize(&mut reader).map_err(|error| error.to_string())?;
    reader.end().map_err(|error| error.to_string())?;
    Ok(value)
}

/// Like `Value`'s own reading, save that it refuses a key that an object has already, and numbers beyond 64 bits.
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
        // An integer that 64 bits do not hold comes as the float beside it: told apart by its size alone, so that a fraction of
        // that size is refused with it.
        if value <= -(2_f64.powi(63)) || value >= 2_f64.powi(64) {
            return Err(E::custom("a number is beyond 64 bits: write it as a string"));
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
                return Err(A::Error::custom("an object has the same key twice"));
            }
        }
        Ok(Value::Object(object))
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn values_read_as_they_are_written() {
        let text = r#"{"a": [1, -2, 2.5, "x", true, null, {"b": {}}], "z": 18446744073709551615}"#;
        assert_eq!(
            parse(text.as_bytes()).unwrap(),
            json!({"a": [1, -2, 2.5, "x", true, null, {"b": {}}], "z": u64::MAX})
        );
    }

    #[test]
    fn an_integer_comes_out_as_it_went_in_or_not_at_all() {
        for held in ["-9223372036854775808", "18446744073709551615", "9007199254740993", "-1", "0"] {
            assert_eq!(parse(held.as_bytes()).unwrap().to_string(), held);
        }
        for beyond in ["-9223372036854775809", "18446744073709551616", "[{\"order\":123456789012345678901}]", "1e20"] {
            let refusal = parse(beyond.as_bytes()).unwrap_err();
            assert!(refusal.contains("write it as a string"), "{beyond}: {refusal}");
        }
        assert_eq!(parse(b"[1e19, 0.5]").unwrap(), json!([1e19, 0.5]), "fractions are as good as 64 bits make them");
    }

    #[test]
    fn what_is_ambiguous_or_cut_is_refused() {
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
