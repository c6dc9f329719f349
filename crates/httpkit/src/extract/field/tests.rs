use payferry_domain::Token;
use serde_json::json;

use super::*;
use crate::error::ApiError;
use crate::extract::rule::{name, text, whole};

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

request! {
    /// A list of names.
    struct Accepted: Debug {
        tokens: Vec<Token> = names(),
    }
}

#[test]
fn lists_of_names_are_not_empty() {
    let read = |body: &Value| {
        let fields = Fields::of_body(body).unwrap();
        let read = Accepted::read(&fields);
        fields.finish(read).map(|accepted| accepted.tokens)
    };
    assert_eq!(read(&json!({ "tokens": ["USDC", "USDT"] })).unwrap(), [Token::Usdc, Token::Usdt]);
    for (body, code) in [
        (json!({}), "required"),
        (json!({ "tokens": "USDC" }), "wrong_type"),
        (json!({ "tokens": [] }), "empty"),
        (json!({ "tokens": ["USDC", "EUR"] }), "unknown_value"),
    ] {
        let Err(ApiError::Validation(errors)) = read(&body) else { panic!("accepted {body}") };
        assert_eq!((errors[0].field.as_str(), &*errors[0].code), ("tokens", code), "{body}");
    }
}
