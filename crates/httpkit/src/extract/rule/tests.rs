use payferry_domain::{Chain, PaymentId, Token};
use serde_json::json;

use super::*;
use crate::error::ApiError;

/// Values of every kind, on both sides of the limits.
fn values() -> Vec<Value> {
    let texts = [
        "",
        " ",
        "\t",
        "a",
        "é",
        " a ",
        "a\u{0}b",
        "a\u{7f}",
        "a\u{85}",
        "0",
        "00",
        "01",
        "0.0",
        "0.000000",
        "0.000001",
        "0.0000001",
        "0.009999",
        "0.01",
        "0.010000",
        "0.1",
        "1",
        "1.",
        ".5",
        "1.5",
        "01.5",
        "+1",
        "-1",
        "1e3",
        "１",
        "999999.999999",
        "1000000",
        "1000000.000000",
        "1000000.000001",
        "1000001",
        "10000000",
        "9223372036854.775807",
        "USDC",
        "usdc",
        "USD",
        "base",
        "Base",
        "best",
        "true",
        "a@b.co",
        "a@b",
        "@b.co",
        "a b@c.de",
        "a@b..co",
        "pay_01J9Z3K4M5N6P7Q8R9S0T1V2W3",
        "pay_01j9z3k4m5n6p7q8r9s0t1v2w3",
        "pay_81J9Z3K4M5N6P7Q8R9S0T1V2W3",
        "pay_01J9Z3K4M5N6P7Q8R9S0T1V2W",
        "po_01J9Z3K4M5N6P7Q8R9S0T1V2W3",
        "pay_01J9Z3K4M5N6P7Q8R9S0T1V2WI",
        "0x833589fcd6edb6e08f4c7c32d4f71b54bda02913",
        "0X833589fcd6edb6e08f4c7c32d4f71b54bda02913",
        "0x833589fCD6eDb6E08f4c7C32D4f71b54bdA02913",
        "0x833589fcd6edb6e08f4c7c32d4f71b54bda0291",
        "0x833589fcd6edb6e08f4c7c32d4f71b54bda0291g",
    ];
    let mut values: Vec<Value> = texts.iter().map(|text| json!(text)).collect();
    values.extend([255, 256].map(|chars| json!("é".repeat(chars))));
    values.extend([json!(null), json!(true), json!([]), json!(["a"]), json!({}), json!({ "a": { "b": 1 } })]);
    values.extend([
        json!(-1),
        json!(0),
        json!(59),
        json!(60),
        json!(60.5),
        json!(86_400),
        json!(86_401),
        json!(u64::MAX),
    ]);
    values
}

/// Asserts that a rule reads exactly the values that its schema describes.
#[track_caller]
fn agree<T>(name: &str, rule: &Rule<T>) {
    let schema = serde_json::to_value((rule.schema)().build()).unwrap();
    let validator = jsonschema::draft202012::new(&schema).unwrap();
    let (mut accepted, mut refused) = (0, 0);
    for value in values() {
        let is_read = (rule.read)(&value).is_ok();
        assert_eq!(is_read, validator.is_valid(&value), "{name}: {value} against {schema}");
        if is_read { accepted += 1 } else { refused += 1 }
    }
    assert!(accepted > 0 && refused > 0, "{name}: {accepted} accepted, {refused} refused");
}

#[test]
fn rules_read_exactly_what_they_describe() {
    agree("text", &text());
    agree("short", &short::<3>());
    agree("email", &email());
    agree("id", &id::<PaymentId>());
    agree("chain", &name::<Chain>());
    agree("token", &name::<Token>());
    agree("amount", &amount());
    agree("part", &part());
    agree("amount_up_to", &amount_up_to::<{ i64::MAX }>());
    agree("address", &address());
    agree("whole", &whole::<60, 86_400>());
    agree("flag", &flag());
    agree("free_object", &free_object::<1_000, 10>());
}

request! {
    /// The inner object.
    struct Inner: Debug, PartialEq {
        /// A text.
        text: String = required(text()).example("a"),
    }
}

request! {
    /// The outer object.
    struct Outer: Debug, PartialEq refusing(unknown) {
        ..inner: Inner,
        /// A raw name.
        r#type: () = constant("outer"),
        count: i64 = or_default(whole::<1, 9>(), 5),
        token: Option<Token> = optional(name()),
        one: Option<Inner> = optional_object(),
        many: Vec<Inner> = list::<_, 2>(),
        never: () = refused(|| Fault::new("not_settable", "cannot be set")),
        empty: () = blank(|| Fault::new("must_be_empty", "must be empty")),
    }
}

fn unknown(_: &str) -> Fault {
    Fault::new("unknown_field", "is unknown")
}

fn read(body: &Value) -> Result<Outer, Vec<String>> {
    let fields = Fields::of_body(body).unwrap();
    let outer = Outer::read(&fields);
    fields.finish(outer).map_err(|error| match error {
        ApiError::Validation(errors) => errors.iter().map(|error| format!("{}: {}", error.field, error.code)).collect(),
        error => panic!("{error:?}"),
    })
}

#[test]
fn declared_objects_are_read_with_defaults_and_bases() {
    let inner = |text: &str| Inner { text: text.to_owned() };
    let body = json!({
        "text": "base", "type": "outer", "token": null, "many": [{ "text": "a", "other": 1 }], "never": null, "empty": " ",
    });
    let expected = Outer {
        inner: inner("base"),
        r#type: (),
        count: 5,
        token: None,
        one: None,
        many: vec![inner("a")],
        never: (),
        empty: (),
    };
    assert_eq!(read(&body), Ok(expected));
}

#[test]
fn every_fault_of_a_declared_object_is_reported() {
    let body = json!({
        "type": "inner", "count": 0, "token": "EUR", "one": {}, "many": [{ "text": 1 }, 2], "never": 1, "empty": "x", "z": 1,
    });
    let expected = [
        "z: unknown_field",
        "type: unknown_value",
        "count: out_of_range",
        "token: unknown_value",
        "one.text: required",
        "many[0].text: wrong_type",
        "many[1]: wrong_type",
        "never: not_settable",
        "empty: must_be_empty",
        "text: required",
    ];
    assert_eq!(read(&body), Err(expected.map(str::to_owned).to_vec()));
}

#[test]
fn declared_objects_are_described() {
    let schema = serde_json::to_value(Outer::schema()).unwrap();
    assert_eq!(schema["description"], "The outer object.");
    assert_eq!(schema["required"], json!(["text", "type", "many"]));
    assert_eq!(schema["additionalProperties"], false);
    let properties = &schema["properties"];
    assert_eq!(properties["text"]["description"], "A text.");
    assert_eq!(properties["text"]["example"], "a");
    assert_eq!(properties["count"], json!({ "type": ["integer", "null"], "minimum": 1, "maximum": 9, "default": 5 }));
    assert_eq!(properties["token"], json!({ "type": ["string", "null"], "enum": ["USDC", "USDT", null] }));
    assert_eq!(properties["many"]["maxItems"], 2);
    let mut components = Components::new();
    <Outer as ToSchema>::schemas(&mut components);
    assert!(components.iter().any(|(name, _)| name == "Inner"));
}
