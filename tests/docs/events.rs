//! `events.md`: every event with its fields, from the OpenAPI document.

use payferry::http::webhooks::catalogue::{self, Event};
use serde_json::{Map, Value};
use utoipa::ToSchema as _;

use super::{assert_page, head, row};

const TEXT: &str = "The body of an event is a flat object, in deliveries and in the feed. Fields that do not apply are absent. The \
                    webhooks of `/openapi.json` have a schema for each event. \
                    [Webhooks and the event feed](../integrate/webhooks.md) describes deliveries.";

/// Fields that differ between the events of one group.
const OF_EACH: [&str; 2] = ["event", "status"];

/// An event and its schema.
struct Described {
    name: String,
    about: String,
    schema: Value,
}

/// The events, in the order of their declaration.
fn described() -> Vec<Described> {
    let webhooks = serde_json::to_value(catalogue::webhooks()).unwrap();
    let mut schemas = Vec::new();
    Event::schemas(&mut schemas);
    let of = |(_, schema)| {
        let schema = serde_json::to_value::<utoipa::openapi::RefOr<utoipa::openapi::Schema>>(schema).unwrap();
        let name = schema["properties"]["event"]["enum"][0].as_str().unwrap().to_owned();
        let about = webhooks[&name]["post"]["description"].as_str().unwrap().to_owned();
        Described { name, about, schema }
    };
    schemas.into_iter().map(of).collect()
}

/// The fields that an event shares with its group.
fn shared(schema: &Value) -> Map<String, Value> {
    let fields = schema["properties"].as_object().unwrap().clone();
    fields.into_iter().filter(|(name, _)| !OF_EACH.contains(&name.as_str())).collect()
}

/// The values of an enum, or the kind of value.
fn values(schema: &Value) -> String {
    let quoted = |values: &Vec<Value>| {
        let texts = values.iter().filter_map(Value::as_str).map(|value| format!("`{value}`"));
        texts.collect::<Vec<_>>().join(", ")
    };
    match schema["enum"].as_array().or_else(|| schema["items"]["enum"].as_array()) {
        Some(of) if schema["type"] == "array" => format!("list of {}", quoted(of)),
        Some(of) => quoted(of),
        None if schema["format"] == "date-time" => "time".to_owned(),
        None => schema["type"].as_str().unwrap().to_owned(),
    }
}

#[test]
fn events_page_is_up_to_date() {
    let events = described();
    assert!(events.len() >= 24, "{}", events.len());
    let mut page = head("Events", "the OpenAPI document", TEXT);
    page.push_str("\n| Event | `status` | Sent when |\n|---|---|---|\n");
    for Described { name, about, schema } in &events {
        let statuses = schema["properties"].get("status").map(values).unwrap_or_default();
        page.push_str(&row(&[&format!("`{name}`"), &statuses, about]));
    }
    let groups = events.chunk_by(|one, next| shared(&one.schema) == shared(&next.schema));
    for group in groups {
        let names: Vec<_> = group.iter().map(|event| format!("`{}`", event.name)).collect();
        let schema = &group[0].schema;
        let events = super::wrapped(&format!("In {}.", names.join(", ")));
        page.extend(["\n## Fields of ", &family(&group[0].name), "\n\n", &events]);
        page.push_str("\n\n| Field | Present | Values | Meaning |\n|---|---|---|---|\n");
        for (name, field) in shared(schema) {
            let is_required = schema["required"].as_array().unwrap().iter().any(|required| *required == *name);
            let present = if is_required { "always" } else { "" };
            let about = field["description"].as_str().unwrap_or_default();
            page.push_str(&row(&[&format!("`{name}`"), present, &values(&field), about]));
        }
    }
    assert_page("events", &page);
}

/// The part of the name before the dot, in the plural.
fn family(name: &str) -> String {
    let family = name.split('.').next().unwrap();
    match family {
        _ if name == "refund.requested" => "requests for refunds".to_owned(),
        "withdraw" => "withdrawals".to_owned(),
        "webhook" => "the test event".to_owned(),
        family => format!("{family}s"),
    }
}
