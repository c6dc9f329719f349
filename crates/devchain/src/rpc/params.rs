//! Positional parameters and their errors.

use serde::de::DeserializeOwned;
use serde_json::Value;
use serde_json::value::RawValue;

use crate::error::RpcError;

/// Parameters of one request, taken one by one.
#[derive(Debug, Default)]
pub(crate) struct Params(Vec<Value>);

impl Params {
    pub(crate) fn from_value(value: Value) -> Result<Self, RpcError> {
        match value {
            Value::Null => Ok(Self::default()),
            Value::Array(values) => Ok(Self(values)),
            _ => Err(RpcError::invalid_params("non-array args")),
        }
    }

    pub(crate) fn from_raw(raw: Option<&RawValue>) -> Result<Self, RpcError> {
        let Some(raw) = raw else { return Ok(Self::default()) };
        Self::from_value(serde_json::from_str(raw.get()).map_err(RpcError::invalid_params)?)
    }

    /// Returns a required parameter.
    pub(crate) fn take<T: DeserializeOwned>(&mut self, index: usize, name: &str) -> Result<T, RpcError> {
        self.optional(index, name)?.ok_or_else(|| RpcError::invalid_params(format!("missing value for {name}")))
    }

    /// Returns an optional parameter; `None` if it is absent or null.
    pub(crate) fn optional<T: DeserializeOwned>(&mut self, index: usize, name: &str) -> Result<Option<T>, RpcError> {
        let value = self.0.get_mut(index).map(Value::take).unwrap_or_default();
        serde_json::from_value(value).map_err(|error| RpcError::invalid_params(format!("{name}: {error}")))
    }

    /// Returns a required parameter that may be null.
    pub(crate) fn nullable<T: DeserializeOwned>(&mut self, index: usize, name: &str) -> Result<Option<T>, RpcError> {
        if index >= self.0.len() {
            return Err(RpcError::invalid_params(format!("missing value for {name}")));
        }
        self.optional(index, name)
    }

    /// Returns a required quantity.
    pub(crate) fn take_quantity(&mut self, index: usize, name: &str) -> Result<u64, RpcError> {
        self.quantity(index, name)?.ok_or_else(|| RpcError::invalid_params(format!("missing value for {name}")))
    }

    /// Returns an optional quantity: a number, or a hex or decimal string.
    pub(crate) fn quantity(&mut self, index: usize, name: &str) -> Result<Option<u64>, RpcError> {
        let Some(value) = self.optional::<Value>(index, name)? else { return Ok(None) };
        let number = match &value {
            Value::Number(number) => number.as_u64(),
            Value::String(text) => match text.strip_prefix("0x") {
                Some(hex) => u64::from_str_radix(hex, 16).ok(),
                None => text.parse().ok(),
            },
            _ => None,
        };
        number.map(Some).ok_or_else(|| RpcError::invalid_params(format!("{name}: not a quantity")))
    }
}
