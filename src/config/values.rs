//! Deserialisers of configuration values with rules beyond their type.

use std::path::PathBuf;

use payferry_journal::webhooks::retention::KEPT_DAYS_MIN;
use serde::{Deserialize, Deserializer};

use super::{IdentityProviderName, database_url};

pub(super) fn optional_url<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<url::Url>, D::Error> {
    let text = String::deserialize(deserializer)?;
    if text.is_empty() {
        return Ok(None);
    }
    match url::Url::parse(&text) {
        Ok(url) if ["http", "https"].contains(&url.scheme()) => Ok(Some(url)),
        _ => Err(serde::de::Error::custom("not an http URL")),
    }
}

pub(super) fn optional_provider<'de, D: Deserializer<'de>>(
    deserializer: D,
) -> Result<Option<IdentityProviderName>, D::Error> {
    match String::deserialize(deserializer)?.as_str() {
        "" => Ok(None),
        "sumsub" => Ok(Some(IdentityProviderName::Sumsub)),
        _ => Err(serde::de::Error::custom("not a provider")),
    }
}

pub(super) fn any_database_url<'de, D: Deserializer<'de>>(deserializer: D) -> Result<String, D::Error> {
    let text = String::deserialize(deserializer)?;
    database_url(&text).ok_or_else(|| serde::de::Error::custom("not a database URL"))
}

pub(super) fn optional_path<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<PathBuf>, D::Error> {
    let path = PathBuf::deserialize(deserializer)?;
    Ok((!path.as_os_str().is_empty()).then_some(path))
}

pub(super) fn optional_text<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<String>, D::Error> {
    let text = String::deserialize(deserializer)?;
    Ok((!text.is_empty()).then_some(text))
}

pub(super) fn log_filter<'de, D: Deserializer<'de>>(deserializer: D) -> Result<String, D::Error> {
    let text = String::deserialize(deserializer)?;
    match tracing_subscriber::EnvFilter::builder().parse(&text) {
        Ok(_) => Ok(text),
        Err(error) => Err(serde::de::Error::custom(error)),
    }
}

pub(super) fn kept_days<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<i64>, D::Error> {
    match i64::deserialize(deserializer)? {
        0 => Ok(None),
        days if days >= KEPT_DAYS_MIN => Ok(Some(days)),
        _ => Err(serde::de::Error::custom("too short")),
    }
}

pub(super) fn divides_256<'de, D: Deserializer<'de>>(deserializer: D) -> Result<usize, D::Error> {
    let shards = usize::deserialize(deserializer)?;
    if shards > 0 && 256_usize.is_multiple_of(shards) {
        return Ok(shards);
    }
    Err(serde::de::Error::custom("does not divide 256"))
}
