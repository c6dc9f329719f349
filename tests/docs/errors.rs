//! `errors.md`: the codes of problem documents with their statuses, and the codes of invalid fields.
//!
//! A code has one of these forms in the sources:
//!
//! - `Self::Variant => (StatusCode::X, "code", "title")`: the status and the code of a variant;
//! - `Self::Variant(code, ..) => (StatusCode::X, *code, "title")`: the code is where `Variant("code", ..)` is made;
//! - `Self::Variant(reason) => (StatusCode::X, reason.code(), "title")`: the codes are those of the reason's `fn code`;
//! - `NotFound("object")`: `object_not_found`;
//! - `Self::variant("code", ..)`: as the variant, through the function that makes it;
//! - `Fault::new("code", "message")`, `field(name, "code", "message")`, `parameter(name, "code", "message")`,
//!   `FieldError::new(name, "code", "message")` and `FieldError { code: "code", .. }`: of a field.
//!
//! A `fn code` of a `Rejection` in the domain is a conflict, unless its conversion says otherwise. Any other one belongs to a field.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use super::rust::{Enum, Source, Variant, arguments, calls, enums, literal, message, name, sources};
use super::{assert_page, head, row, sentence};

const TEXT: &str = "Every response that is not a success is a problem document (RFC 9457) with a stable `code`. Invalid \
                    fields are listed in `errors`, each with a code of its own.";
/// Programs that use the service from outside.
const OUTSIDE: [&str; 3] = ["load", "bench", "demo"];
/// Characters before a call in which its `let detail` is.
const DETAIL_DISTANCE_MAX: usize = 1_500;

/// By status and code.
type Problems = BTreeMap<(u16, String), String>;
/// Messages by code.
type FieldCodes = BTreeMap<String, BTreeSet<String>>;

/// The sources of the service, and the enums of each.
struct Declared {
    sources: Vec<Source>,
    enums: Vec<Vec<Enum>>,
}

#[derive(Default)]
struct Codes {
    /// Variants that are made with a code, by name: status and title.
    carriers: HashMap<String, (u16, String)>,
    /// Statuses of enums with a `fn code`, by name.
    statuses: HashMap<String, u16>,
    problems: Problems,
    fields: FieldCodes,
}

fn status(name: &str) -> u16 {
    match name {
        "BAD_REQUEST" => 400,
        "UNAUTHORIZED" => 401,
        "FORBIDDEN" => 403,
        "NOT_FOUND" => 404,
        "METHOD_NOT_ALLOWED" => 405,
        "REQUEST_TIMEOUT" => 408,
        "CONFLICT" => 409,
        "GONE" => 410,
        "PAYLOAD_TOO_LARGE" => 413,
        "UNSUPPORTED_MEDIA_TYPE" => 415,
        "UNPROCESSABLE_ENTITY" => 422,
        "TOO_MANY_REQUESTS" => 429,
        "REQUEST_HEADER_FIELDS_TOO_LARGE" => 431,
        "INTERNAL_SERVER_ERROR" => 500,
        "SERVICE_UNAVAILABLE" => 503,
        other => panic!("status {other}"),
    }
}

impl Declared {
    fn read() -> Self {
        let mut sources = sources();
        sources.retain(|source| !source.path.iter().any(|part| OUTSIDE.iter().any(|outside| part == *outside)));
        let enums = sources.iter().map(|source| enums(&source.text)).collect();
        Self { sources, enums }
    }

    /// The variant of the enum, in this source or else in any.
    fn variant(&self, index: usize, enum_name: &str, variant: &str) -> Option<&Variant> {
        let others = self.enums.iter().flatten();
        let mut enums =
            self.enums[index].iter().chain(others).filter(|of| enum_name.is_empty() || of.name == enum_name);
        enums.find_map(|of| of.variants.iter().find(|one| one.name == variant))
    }

    /// The doc comment of the variant whose match arm ends here.
    fn doc_of_arm(&self, index: usize, before: &str) -> Option<String> {
        let (pattern, between) = before.rsplit_once("=>")?;
        if between.contains([';', '}']) || between.len() > 80 {
            return None;
        }
        let line = pattern.rsplit('\n').next()?;
        let (of, variant) = line.trim().split_once("::")?;
        self.variant(index, name(of), name(variant)).map(|variant| variant.doc.clone()).filter(|doc| !doc.is_empty())
    }
}

impl Codes {
    fn of(declared: &Declared) -> Self {
        let mut codes = Self::default();
        codes.read_statuses(declared);
        codes.read_functions(declared);
        codes.read_not_found(declared);
        codes.read_carriers(declared);
        codes.read_fields(declared);
        codes
    }

    fn add(&mut self, status: u16, code: &str, meaning: &str) {
        if !is_code(code) {
            return;
        }
        let known = self.problems.entry((status, code.to_owned())).or_default();
        if known.is_empty() {
            *known = sentence(meaning);
        }
    }

    /// Adds a field's code, if it is a literal.
    fn add_field(&mut self, code: &str, message: Option<String>) {
        if let Some((code, _)) = literal(code) {
            self.fields.entry(code).or_default().extend(message);
        }
    }

    /// The tuples of status, code and title.
    fn read_statuses(&mut self, declared: &Declared) {
        for (index, source) in declared.sources.iter().enumerate() {
            for (at, call) in calls(&source.text, "(StatusCode::") {
                let arguments = arguments(call);
                let ([_, code, title], Some(arm)) = (arguments.as_slice(), source.text[..at].rfind("Self::")) else {
                    continue;
                };
                let Some((title, _)) = literal(title) else { continue };
                let (status, variant) = (status(name(call)), name(&source.text[arm + "Self::".len()..]));
                if let Some((code, _)) = literal(code) {
                    self.add(status, &code, &title);
                } else if code.starts_with('*') {
                    self.carriers.insert(variant.to_owned(), (status, title));
                } else if code.ends_with(".code()") {
                    let payload = declared.variant(index, "", variant).and_then(|variant| variant.payload.clone());
                    self.statuses.insert(payload.unwrap_or_else(|| panic!("{variant} has a reason")), status);
                }
            }
        }
    }

    /// Each `fn code` that has a literal for every variant.
    fn read_functions(&mut self, declared: &Declared) {
        for (index, source) in declared.sources.iter().enumerate() {
            let is_domain = source.path.iter().any(|part| part == "domain");
            for (at, rest) in calls(&source.text, "fn code(") {
                let Some(start) = source.text[..at].rfind("\nimpl ") else { continue };
                let header = source.text[start..at].split('{').next().unwrap().trim();
                let of = header.rsplit(' ').next().unwrap();
                let end = rest.find("\n    }").unwrap_or(rest.len());
                let details = details(&source.text[start..], of);
                for (variant, code) in arms(&rest[..end]) {
                    let known = declared.variant(index, of, &variant);
                    let (doc, error) = known.map(|one| (one.doc.clone(), one.error.clone())).unwrap_or_default();
                    if let Some(status) = self.statuses.get(of).copied() {
                        self.add(status, &code, details.get(&variant).unwrap_or(&doc));
                    } else if is_domain && of.ends_with("Rejection") {
                        if let Some(status) = self.status_of_rejection(declared, of, &variant) {
                            self.add(status, &code, &doc);
                        }
                    } else {
                        self.fields.entry(code).or_default().extend(error);
                    }
                }
            }
        }
    }

    /// As its conversion says; a conflict otherwise. `None` if it becomes another code.
    fn status_of_rejection(&self, declared: &Declared, of: &str, variant: &str) -> Option<u16> {
        let pattern = format!("{of}::{variant}");
        for source in &declared.sources {
            for (at, _) in source.text.match_indices(&pattern) {
                let rest = &source.text[at + pattern.len()..];
                let Some((between, arm)) = rest.split_once("=>") else { continue };
                let arm = arm.trim_start().trim_start_matches('{').trim_start();
                if between.contains("::") || between.len() > 20 || !arm.starts_with("Self::") {
                    continue;
                }
                let made = name(&arm["Self::".len()..]);
                return self.carriers.get(made).map(|(status, _)| *status);
            }
        }
        Some(409)
    }

    /// Reads the places where variants are made with a code.
    fn read_carriers(&mut self, declared: &Declared) {
        let carriers = self.carriers.clone();
        for (index, source) in declared.sources.iter().enumerate() {
            for (carrier, (status, title)) in &carriers {
                let makers = [format!("{carrier}("), format!("{}(", carrier.to_lowercase())];
                for (at, call) in makers.iter().flat_map(|maker| calls(&source.text, maker)) {
                    let arguments = arguments(call);
                    let Some((code, _)) = arguments.first().and_then(|code| literal(code)) else { continue };
                    if !source.text[..at].ends_with("::") {
                        continue;
                    }
                    let own = arguments.get(1).and_then(|detail| message(detail));
                    let is_named = arguments.get(1).is_some_and(|detail| name(detail) == "detail");
                    let named = || is_named.then(|| named_detail(&source.text, at)).flatten();
                    let meaning = own.or_else(named).or_else(|| declared.doc_of_arm(index, &source.text[..at]));
                    self.add(*status, &code, meaning.as_ref().unwrap_or(title));
                }
            }
        }
    }

    fn read_not_found(&mut self, declared: &Declared) {
        let mut objects = BTreeSet::new();
        for source in &declared.sources {
            let named = calls(&source.text, "NotFound(").into_iter().filter_map(|(_, call)| literal(call));
            objects.extend(named.map(|(object, _)| object));
            for (at, _) in source.text.match_indices("_not_found\"") {
                let start = source.text[..at].rfind('"').unwrap() + 1;
                objects.insert(source.text[start..at].to_owned());
            }
        }
        for object in objects.iter().filter(|object| is_code(object)) {
            self.add(404, &format!("{object}_not_found"), &format!("There is no such {}.", object.replace('_', " ")));
        }
    }

    fn read_fields(&mut self, declared: &Declared) {
        for source in &declared.sources {
            for (_, call) in calls(&source.text, "Fault::new(") {
                let arguments = arguments(call);
                self.add_field(arguments[0], arguments.get(1).and_then(|text| message(text)));
            }
            for maker in ["field(", "parameter(", "FieldError::new("] {
                for (_, call) in calls(&source.text, maker) {
                    if let [_, code, text] = arguments(call).as_slice() {
                        self.add_field(code, message(text));
                    }
                }
            }
            for (_, body) in calls(&source.text, "FieldError {") {
                let value = |field: &str| {
                    let of = arguments(body).into_iter().find_map(|one| one.strip_prefix(field)?.strip_prefix(": "));
                    of.unwrap_or_default()
                };
                self.add_field(value("code"), message(value("message")));
            }
        }
    }
}

/// Not a heading of a page, say.
fn is_code(text: &str) -> bool {
    !text.is_empty() && text.chars().all(|letter| letter.is_ascii_lowercase() || letter == '_')
}

/// The last `let detail = "..."` before the call.
fn named_detail(text: &str, at: usize) -> Option<String> {
    let let_at = text[..at].rfind("let detail = ").filter(|let_at| at - let_at < DETAIL_DISTANCE_MAX)?;
    message(text[let_at + "let detail = ".len()..].trim_start())
}

/// The literals of a `match self`, by variant.
fn arms(body: &str) -> Vec<(String, String)> {
    let mut found = Vec::new();
    let mut pattern_start = 0;
    for (at, _) in body.match_indices("=>") {
        let arm = body[at + 2..].trim_start().trim_start_matches('{').trim_start();
        let arm = arm.strip_prefix("format!(").unwrap_or(arm).trim_start();
        if arm.starts_with('"') {
            let value = message(arm).unwrap();
            let variants = body[pattern_start..at].split("Self::").skip(1);
            found.extend(variants.map(|variant| (name(variant).to_owned(), value.clone())));
        }
        pattern_start = at + 2;
    }
    found
}

/// The texts of the type's `fn detail`, by variant.
fn details(text: &str, of: &str) -> HashMap<String, String> {
    let own = text.find(&format!("impl {of} ")).map_or("", |start| &text[start..]);
    let own = own.split("\n}\n").next().unwrap();
    let Some((_, body)) = own.split_once("fn detail(") else { return HashMap::new() };
    arms(body.split("\n    }").next().unwrap()).into_iter().collect()
}

#[test]
fn errors_page_is_up_to_date() {
    let codes = Codes::of(&Declared::read());
    let has = |status: u16, code: &str| codes.problems.contains_key(&(status, code.to_owned()));
    for (status, code) in [
        (400, "malformed_json"),
        (401, "api_key_expired"),
        (403, "missing_scope"),
        (404, "payment_not_found"),
        (409, "insufficient_balance"),
        (409, "refund_too_large"),
        (410, "events_forgotten"),
        (422, "refund_address_required"),
        (422, "validation_failed"),
        (503, "overloaded"),
    ] {
        assert!(has(status, code), "{status} {code} in {:?}", codes.problems);
    }
    for code in ["required", "unknown_field", "zero_address", "url_not_https"] {
        assert!(codes.fields.contains_key(code), "{code} in {:?}", codes.fields);
    }
    let mut page = head("Errors", "the error types", TEXT);
    page.push_str("\n## Problem codes\n\n| Status | Code | Meaning |\n|---|---|---|\n");
    for ((status, code), meaning) in &codes.problems {
        page.push_str(&row(&[&status.to_string(), &format!("`{code}`"), meaning]));
    }
    page.push_str("\n## Field codes\n\nThe message follows the field's name.\n\n| Code | Messages |\n|---|---|\n");
    for (code, messages) in &codes.fields {
        let messages: Vec<&str> = messages.iter().map(String::as_str).collect();
        page.push_str(&row(&[&format!("`{code}`"), &messages.join("; ")]));
    }
    assert_page("errors", &page);
}
