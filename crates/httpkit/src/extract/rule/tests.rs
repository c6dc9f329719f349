use payferry_domain::{Chain, PaymentId, Token};
use serde_json::json;

use super::*;

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
        "0x00000000000000000000000000000000000000000000000000000000000000aB",
        "0X00000000000000000000000000000000000000000000000000000000000000ab",
        "0x00000000000000000000000000000000000000000000000000000000000000a",
        "2026-01-31",
        "2026-13-31",
        "2026-01-32",
        "2026-1-31",
        "2026-01-31T12:00:00Z",
        "2026-01-31t23:59:60.123456789+23:59",
        "2026-01-31 12:00:00z",
        "2026-01-31T24:00:00Z",
        "2026-01-31T12:60:00Z",
        "2026-01-31T12:00:61Z",
        "2026-01-31T12:00:00+24:00",
        "2026-01-31T12:00:00-00:60",
        "2026-01-31T12:00:00.Z",
        "2026-01-31T12:00:00",
        "2026-01-31T12:00Z",
        "2026-01-31Z",
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
    agree("hash", &hash());
    agree("moment", &moment());
    agree("whole", &whole::<60, 86_400>());
    agree("flag", &flag());
    agree("free_object", &free_object::<1_000, 10>());
}
