//! Values of configuration keys: their descriptions in error messages, and deserialisers of those with rules beyond their
//! type.

use std::fmt::Display;
use std::str::FromStr;

use payferry_httpkit::address::ProxyNetwork;
use payferry_journal::webhooks::retention::KEPT_DAYS_MIN;
use serde::de::{DeserializeOwned, Error, IntoDeserializer};
use serde::{Deserialize, Deserializer};

use super::DRAIN_SECS_MAX;

/// Description of the accepted values of a key, for error messages.
pub(super) fn expected(key: &str) -> &'static str {
    match key {
        "server.listen" | "server.operator_listen" => "an address and a port, such as \"127.0.0.1:8080\"",
        "server.public_url"
        | "kyt.api_url"
        | "documents.endpoint"
        | "traces.endpoint"
        | "signer.settler.remote_url"
        | "signer.sender.remote_url" => "an http or https URL, or nothing",
        "identity.provider" => "\"sumsub\", or nothing",
        "identity.base_url" => "an http or https URL, such as \"https://api.sumsub.com\"",
        "identity.level" | "identity.rescreen_level" => "the name of a level at the provider",
        "server.environment" => "\"production\" or \"sandbox\"",
        "server.trusted_proxies" => "a list of addresses and networks, such as [\"10.0.0.1\", \"10.1.0.0/16\"]",
        "server.behind_proxy"
        | "kyt.oracle"
        | "kyt.allow_everything"
        | "documents.allow_http"
        | "operators.four_eyes"
        | "auditors.treasury_kept" => "true or false",
        "server.drain_secs" => "a whole number of seconds up to 300, or 0 for no drain",
        "documents.folder" => "the path of a folder",
        "documents.bucket" | "documents.region" => "a name",
        "database.urls" => "a list of URLs such as \"postgres://user:password@host/name\"",
        "database.url" => "a path, \"sqlite://path?mode=rwc\" or \"postgres://user:password@host/name\"",
        "contracts.address"
        | "contracts.treasury"
        | "contracts.admin"
        | "signer.settler.remote_address"
        | "signer.sender.remote_address" => "an address, 0x and 40 hexadecimal digits, or nothing",
        "signer.settler.mnemonic_index" | "signer.sender.mnemonic_index" => "a whole number",
        "signer.settler.remote_identifier" | "signer.sender.remote_identifier" => "the remote signer's name of the key",
        key if key.ends_with("_file") => "the path of a file",
        "log.filter" => "a level or target=level with commas, such as \"warn,payferry=info\"",
        "log.format" => "\"text\" or \"json\"",
        "traces.sample_ratio" => "a number from 0.0 to 1.0",
        "webhooks.retry_delays_ms" => "a list of three whole numbers above zero",
        "limits.send_max" | "limits.send_daily_max" | "limits.refund_elsewhere_daily_max" => {
            "an amount of tokens as text, such as \"5000\""
        }
        "retention.replaced_documents_days" => "a number of days, or 0 forever",
        "retention.events_days" => "at least 30 days, or 0 forever",
        "auditors.vaults_interval_ms" => "a whole number, or 0 for never",
        "unsafe.allow" => {
            "a list of names: kyt_allow_everything, bare_key_file, readable_secrets, public_url, one_endpoint, \
             http_endpoint, database_without_tls, asynchronous_commit, no_synchronous_standby"
        }
        "payments.shards" => "a number that divides 256, such as 16",
        key => match key.strip_prefix("chains.").and_then(|rest| rest.split_once('.')) {
            Some((_, key)) => super::chains::expected(key),
            None => "a whole number above zero",
        },
    }
}

/// Reads a text as a `T`; an empty text gives `None`.
pub(super) fn optional<'de, D: Deserializer<'de>, T: DeserializeOwned>(deserializer: D) -> Result<Option<T>, D::Error> {
    let text = String::deserialize(deserializer)?;
    if text.is_empty() { Ok(None) } else { T::deserialize(text.into_deserializer()).map(Some) }
}

pub(super) fn optional_url<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<url::Url>, D::Error> {
    match optional::<D, url::Url>(deserializer)? {
        Some(url) if !["http", "https"].contains(&url.scheme()) => Err(D::Error::custom("not an http URL")),
        url => Ok(url),
    }
}

/// Reads a text that a type parses.
pub(super) fn parsed<'de, D: Deserializer<'de>, T: FromStr<Err: Display>>(deserializer: D) -> Result<T, D::Error> {
    String::deserialize(deserializer)?.parse().map_err(D::Error::custom)
}

pub(super) fn networks<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Vec<ProxyNetwork>, D::Error> {
    let texts = Vec::<String>::deserialize(deserializer)?;
    texts.iter().map(|text| text.parse().map_err(D::Error::custom)).collect()
}

pub(super) fn drain_secs<'de, D: Deserializer<'de>>(deserializer: D) -> Result<u64, D::Error> {
    match u64::deserialize(deserializer)? {
        secs if secs <= DRAIN_SECS_MAX => Ok(secs),
        _ => Err(D::Error::custom("too long")),
    }
}

pub(super) fn share<'de, D: Deserializer<'de>>(deserializer: D) -> Result<f64, D::Error> {
    match f64::deserialize(deserializer)? {
        share if (0.0..=1.0).contains(&share) => Ok(share),
        _ => Err(D::Error::custom("not from 0 to 1")),
    }
}

pub(super) fn any_database_url<'de, D: Deserializer<'de>>(deserializer: D) -> Result<String, D::Error> {
    let text = String::deserialize(deserializer)?;
    database_url(&text).ok_or_else(|| D::Error::custom("not a database URL"))
}

pub(super) fn postgres_urls<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Vec<String>, D::Error> {
    let texts = Vec::<String>::deserialize(deserializer)?;
    let url = |text: &String| database_url(text).filter(|url| !url.starts_with("sqlite:"));
    texts.iter().map(|text| url(text).ok_or_else(|| D::Error::custom("not a URL of PostgreSQL"))).collect()
}

pub(super) fn log_filter<'de, D: Deserializer<'de>>(deserializer: D) -> Result<String, D::Error> {
    let text = String::deserialize(deserializer)?;
    match tracing_subscriber::EnvFilter::builder().parse(&text) {
        Ok(_) => Ok(text),
        Err(error) => Err(D::Error::custom(error)),
    }
}

pub(super) fn kept_days<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<i64>, D::Error> {
    match i64::deserialize(deserializer)? {
        0 => Ok(None),
        days if days >= KEPT_DAYS_MIN => Ok(Some(days)),
        _ => Err(D::Error::custom("too short")),
    }
}

pub(super) fn days<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<i64>, D::Error> {
    match i64::deserialize(deserializer)? {
        0 => Ok(None),
        days if days > 0 => Ok(Some(days)),
        _ => Err(D::Error::custom("negative")),
    }
}

pub(super) fn divides_256<'de, D: Deserializer<'de>>(deserializer: D) -> Result<usize, D::Error> {
    let shards = usize::deserialize(deserializer)?;
    if shards > 0 && 256_usize.is_multiple_of(shards) {
        return Ok(shards);
    }
    Err(D::Error::custom("does not divide 256"))
}

/// Returns a database URL in the driver's form: a path becomes `sqlite://path?mode=rwc`. `None` for an unknown scheme.
pub fn database_url(text: &str) -> Option<String> {
    match text.split_once(':').map(|(scheme, _)| scheme) {
        Some("sqlite" | "postgres" | "postgresql") => Some(text.to_owned()),
        Some(scheme) if text[scheme.len()..].starts_with("://") => None,
        _ if text.is_empty() => None,
        _ => Some(format!("sqlite://{text}?mode=rwc")),
    }
}

/// Returns the file of a SQLite URL; `None` for other databases.
pub fn sqlite_file(url: &str) -> Option<&std::path::Path> {
    let file = url.strip_prefix("sqlite:")?;
    Some(file.trim_start_matches("//").split('?').next().unwrap_or_default().as_ref())
}
