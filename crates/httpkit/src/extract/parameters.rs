//! Parameters of queries. [`query!`](crate::query) declares them; each has a [`Rule`], which reads it and describes it in the
//! OpenAPI document.

use serde_json::Value;
use utoipa::openapi::Required as IsRequired;
use utoipa::openapi::path::{Parameter as Described, ParameterBuilder, ParameterIn};

use super::field::Required;
use super::{Fault, QueryFields, Rule, between, rule};

/// A parameter of a query.
pub trait Parameter {
    /// Type of its value.
    type Value;
    /// True if it must be present.
    const IS_REQUIRED: bool;

    /// Its rule.
    fn rule(&self) -> &Rule<Self::Value>;
}

/// May be missing or empty.
impl<T> Parameter for Rule<T> {
    type Value = T;
    const IS_REQUIRED: bool = false;

    fn rule(&self) -> &Self {
        self
    }
}

impl<T> Parameter for Required<T> {
    type Value = T;
    const IS_REQUIRED: bool = true;

    fn rule(&self) -> &Rule<T> {
        &self.0
    }
}

/// Declares the parameters of a query: a struct, its reader and its description. Each parameter has a [`Rule`] after its type,
/// or [`required`](crate::field::required) with a rule. The fields of the struct are `None` if a parameter is missing or wrong.
#[macro_export]
macro_rules! query {
    (
        $(#[doc = $about:literal])*
        $vis:vis struct $name:ident { $($(#[doc = $doc:literal])* $field:ident: $type:ty = $rule:expr,)* }
    ) => {
        $(#[doc = $about])*
        $vis struct $name { $($(#[doc = $doc])* pub $field: Option<$type>,)* }

        impl $name {
            /// Reads the parameters, and records every fault.
            $vis fn read(query: &mut $crate::QueryFields) -> Self {
                Self { $($field: query.parameter(stringify!($field), &$rule),)* }
            }
        }

        impl utoipa::IntoParams for $name {
            fn into_params(
                _: impl Fn() -> Option<utoipa::openapi::path::ParameterIn>,
            ) -> Vec<utoipa::openapi::path::Parameter> {
                vec![$($crate::extract::parameters::described::<_, $type>(stringify!($field), &$rule, &[$($doc),*])),*]
            }
        }
    };
}

/// Describes a parameter.
pub fn described<P: Parameter<Value = T>, T>(name: &str, parameter: &P, docs: &[&str]) -> Described {
    let about = docs.iter().map(|line| line.trim()).collect::<Vec<_>>().join("\n");
    ParameterBuilder::new()
        .name(name)
        .parameter_in(ParameterIn::Query)
        .required(if P::IS_REQUIRED { IsRequired::True } else { IsRequired::False })
        .description(Some(about))
        .schema(Some((parameter.rule().schema)()))
        .build()
}

impl QueryFields {
    /// Reads a declared parameter. Records its fault; `None` if it is missing or wrong.
    pub fn parameter<P: Parameter>(&mut self, name: &str, parameter: &P) -> Option<P::Value> {
        let read = |text: &str| (parameter.rule().read)(&text.into());
        if P::IS_REQUIRED { self.required(name, read) } else { self.optional(name, read) }
    }
}

/// A whole number within bounds, as text.
pub fn number<const MIN: u64, const MAX: u64>() -> Rule<u64> {
    Rule {
        read: |value| between(value.as_str().unwrap_or_default(), MIN, MAX),
        schema: || rule::integer(MIN.cast_signed(), MAX.cast_signed()),
    }
}

/// One of these words, which stand for these values.
pub fn word<T: Copy>(words: &[(&'static str, T)], value: &Value) -> Result<T, Fault> {
    let found = words.iter().find(|(word, _)| value == word);
    let names = || words.iter().map(|(word, _)| *word).collect::<Vec<_>>().join(", ");
    found.map(|(_, value)| *value).ok_or_else(|| Fault::new("unknown_value", format!("must be one of {}", names())))
}
