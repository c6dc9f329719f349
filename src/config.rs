//! The configuration: one struct a concern, each key with what may stand there.
//!
//! Layers: the embedded `default.toml` < a file < the environment. Every key is in the defaults; a key that is not
//! there does not exist. Deliberately absent: secrets themselves (the file names where they are).

mod auditors;
mod chains;
mod limits;
mod load;
mod values;

use std::net::SocketAddr;
use std::num::{NonZeroU64, NonZeroUsize};
use std::path::PathBuf;
use std::time::Duration;

use payferry_accounts::keys::KeyMode;
use payferry_actors::compliance::identity::DeskConfig;
use payferry_actors::webhook::retention::Retention;
use payferry_actors::webhook::{Schedule, UrlPolicy, WebhookConfig};
use payferry_domain::Address;
use serde::Deserialize;

pub use auditors::Auditors;
pub use chains::{ChainConfig, Chains, Endpoint};
pub use limits::Limits;
pub use load::{ConfigError, DEFAULTS, ENV_PREFIX, Location};

/// Requests that a provider is sent for one step of a check, at most.
const REQUESTS_PER_CHECK_MAX: u32 = 4;

/// Everything that can be configured.
#[derive(Debug, Clone, Deserialize)]
pub struct Config {
    /// Listeners and links.
    pub server: Server,
    /// Where rows are kept.
    pub database: Database,
    /// Where secrets are kept.
    pub secrets: Secrets,
    /// The account that pays for gas.
    pub signer: Signer,
    /// The settlement contract.
    pub contracts: Contracts,
    /// The chains.
    pub chains: Chains,
    /// Who is asked where money comes from.
    pub kyt: Kyt,
    /// Who verifies customers.
    pub identity: Identity,
    /// How much may be sent.
    pub limits: Limits,
    /// What is logged.
    pub log: Log,
    /// The actors of payments.
    pub payments: Payments,
    /// The KYT provider's limits.
    pub screening: Screening,
    /// Delivery of webhooks.
    pub webhooks: Webhooks,
    /// Where customers' documents are kept.
    pub documents: Documents,
    /// How long is kept what need not be kept for ever.
    pub retention: Kept,
    /// How often the auditors look.
    pub auditors: Auditors,
    /// Warnings of the loader, for the log.
    #[serde(skip)]
    pub warnings: Vec<String>,
}

impl Default for Config {
    fn default() -> Self {
        Self::defaults()
    }
}

/// Listeners and links.
#[derive(Debug, Clone, Deserialize)]
pub struct Server {
    /// Where PSPs and payers reach the service.
    pub listen: SocketAddr,
    /// Where the operator does.
    pub operator_listen: SocketAddr,
    /// What links begin with; `None` takes the bound address.
    #[serde(deserialize_with = "values::optional_url")]
    pub public_url: Option<url::Url>,
    /// Which world it is: decides which keys are taken and where webhooks may go.
    pub environment: Environment,
    /// Whether a proxy in front tells the payer's address as the last entry of `X-Forwarded-For`.
    pub behind_proxy: bool,
    /// The terms of service that customers accept; `None` takes those that come with the program.
    #[serde(deserialize_with = "values::optional_path")]
    pub terms_file: Option<PathBuf>,
}

/// Which world this is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Environment {
    /// Simulated chains and play money.
    Sandbox,
    /// Real money.
    Production,
}

impl Environment {
    /// The keys that are taken here.
    pub const fn key_mode(self) -> KeyMode {
        match self {
            Self::Sandbox => KeyMode::Test,
            Self::Production => KeyMode::Live,
        }
    }

    /// Where webhooks may go here.
    pub const fn url_policy(self) -> UrlPolicy {
        match self {
            Self::Sandbox => UrlPolicy::Sandbox,
            Self::Production => UrlPolicy::Production,
        }
    }
}

/// Where rows are kept.
#[derive(Debug, Clone, Deserialize)]
pub struct Database {
    /// As [`database_url`] makes it.
    #[serde(deserialize_with = "values::any_database_url")]
    pub url: String,
}

/// Where secrets are kept.
#[derive(Debug, Clone, Deserialize)]
pub struct Secrets {
    /// A file with 32 bytes in hexadecimal, or several versions of such keys.
    #[serde(deserialize_with = "values::optional_path")]
    pub master_key_file: Option<PathBuf>,
    /// A file with the bearer token of the operator's listener.
    #[serde(deserialize_with = "values::optional_path")]
    pub operator_token_file: Option<PathBuf>,
}

/// The account that pays for gas: exactly one of the three.
#[derive(Debug, Clone, Deserialize)]
pub struct Signer {
    /// A file with 64 hexadecimal digits.
    #[serde(deserialize_with = "values::optional_path")]
    pub private_key_file: Option<PathBuf>,
    /// A Web3 keystore.
    #[serde(deserialize_with = "values::optional_path")]
    pub keystore_file: Option<PathBuf>,
    /// A file with the keystore's password.
    #[serde(deserialize_with = "values::optional_path")]
    pub keystore_password_file: Option<PathBuf>,
    /// A file with a mnemonic.
    #[serde(deserialize_with = "values::optional_path")]
    pub mnemonic_file: Option<PathBuf>,
    /// Which of its accounts: m/44'/60'/0'/0/this.
    pub mnemonic_index: u32,
}

/// The settlement contract, at the same address on every chain.
#[derive(Debug, Clone, Deserialize)]
pub struct Contracts {
    /// As `payferry deploy` printed it.
    #[serde(deserialize_with = "chains::optional_address")]
    pub address: Option<Address>,
    /// Where fees go.
    #[serde(deserialize_with = "chains::optional_address")]
    pub treasury: Option<Address>,
    /// Who may change roles and pause; `deploy` needs it.
    #[serde(deserialize_with = "chains::optional_address")]
    pub admin: Option<Address>,
}

/// Who is asked where money comes from: the strictest of all that are set.
#[derive(Debug, Clone, Deserialize)]
pub struct Kyt {
    /// Sanctioned addresses, one a line.
    #[serde(deserialize_with = "values::optional_path")]
    pub sanctions_file: Option<PathBuf>,
    /// Chainalysis' list on each chain.
    pub oracle: bool,
    /// Chainalysis' address screening: where its API is.
    #[serde(deserialize_with = "values::optional_url")]
    pub api_url: Option<url::Url>,
    /// A file with the API's token.
    #[serde(deserialize_with = "values::optional_path")]
    pub api_token_file: Option<PathBuf>,
    /// Nobody is asked. For test networks.
    pub allow_everything: bool,
}

/// Who verifies customers, and how long the desk waits for it.
#[derive(Debug, Clone, Deserialize)]
pub struct Identity {
    /// Which provider; `None`: nobody is verified.
    #[serde(deserialize_with = "values::optional_provider")]
    pub provider: Option<IdentityProviderName>,
    /// Where its API is.
    pub base_url: url::Url,
    /// The level of verifications.
    pub level: String,
    /// The level of screenings after a change.
    pub rescreen_level: String,
    /// A file with the app token.
    #[serde(deserialize_with = "values::optional_path")]
    pub app_token_file: Option<PathBuf>,
    /// A file with the secret key that requests are signed with.
    #[serde(deserialize_with = "values::optional_path")]
    pub secret_key_file: Option<PathBuf>,
    /// A file with the secret that callbacks are signed with.
    #[serde(deserialize_with = "values::optional_path")]
    pub callback_secret_file: Option<PathBuf>,
    /// Checks that are worked on at once.
    pub concurrency_max: NonZeroUsize,
    /// How long one request may take.
    pub timeout_ms: NonZeroU64,
    /// The first pause before a provider that failed is asked again; doubles.
    pub retry_min_ms: NonZeroU64,
    /// The longest.
    pub retry_max_ms: NonZeroU64,
    /// How often an open check is looked at.
    pub poll_interval_ms: NonZeroU64,
    /// After how long a check that waits for the provider is an alarm.
    pub overdue_after_ms: NonZeroU64,
}

/// The identity providers that can be configured.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum IdentityProviderName {
    /// See `payferry_actors::compliance::identity::Sumsub`.
    Sumsub,
}

impl Identity {
    /// The desk's limits.
    pub fn desk(&self) -> DeskConfig {
        let millis = |millis: NonZeroU64| Duration::from_millis(millis.get());
        DeskConfig {
            concurrency_max: self.concurrency_max.get(),
            timeout: millis(self.timeout_ms) * REQUESTS_PER_CHECK_MAX,
            retry_min: millis(self.retry_min_ms),
            retry_max: millis(self.retry_max_ms).max(millis(self.retry_min_ms)),
            poll_interval: millis(self.poll_interval_ms),
            overdue_after: millis(self.overdue_after_ms),
            ..DeskConfig::default()
        }
    }
}

/// What is logged.
#[derive(Debug, Clone, Deserialize)]
pub struct Log {
    /// As `RUST_LOG`; empty: what suits the command.
    #[serde(deserialize_with = "values::log_filter")]
    pub filter: String,
    /// How a line looks.
    pub format: LogFormat,
}

/// How a log line looks.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum LogFormat {
    /// For people.
    Text,
    /// For machines.
    Json,
}

/// The actors of payments.
#[derive(Debug, Clone, Deserialize)]
pub struct Payments {
    /// Shard supervisors.
    #[serde(deserialize_with = "values::divides_256")]
    pub shards: usize,
}

/// The KYT provider's limits.
#[derive(Debug, Clone, Deserialize)]
pub struct Screening {
    /// Requests at once.
    pub concurrency_max: NonZeroUsize,
    /// How long one may take.
    pub timeout_ms: NonZeroU64,
}

/// Delivery of webhooks.
#[derive(Debug, Clone, Deserialize)]
pub struct Webhooks {
    /// The delay before each retry.
    pub retry_delays_ms: [NonZeroU64; 3],
    /// How long a receiver has to answer.
    pub timeout_ms: NonZeroU64,
}

impl Webhooks {
    /// For the sender, with the URLs that this world allows.
    pub fn sender(&self, url_policy: UrlPolicy) -> WebhookConfig {
        let millis = |millis: NonZeroU64| Duration::from_millis(millis.get());
        WebhookConfig {
            schedule: Schedule::of(self.retry_delays_ms.map(millis)),
            timeout: millis(self.timeout_ms),
            url_policy,
        }
    }
}

/// Where customers' documents are kept: in a bucket if one is named, else in a folder.
#[derive(Debug, Clone, Deserialize)]
pub struct Documents {
    /// Made if it is not there.
    pub folder: PathBuf,
    /// An S3-compatible bucket that this service alone uses.
    #[serde(deserialize_with = "values::optional_text")]
    pub bucket: Option<String>,
    /// Where its API is; `None`: AWS'.
    #[serde(deserialize_with = "values::optional_url")]
    pub endpoint: Option<url::Url>,
    /// Its region.
    pub region: String,
    /// Whether the endpoint may be plain HTTP. For tests.
    pub allow_http: bool,
    /// A file with the access key's id; `None`: as AWS' own tools find it.
    #[serde(deserialize_with = "values::optional_path")]
    pub access_key_id_file: Option<PathBuf>,
    /// A file with its secret.
    #[serde(deserialize_with = "values::optional_path")]
    pub secret_access_key_file: Option<PathBuf>,
}

/// How long is kept what need not be kept for ever.
#[derive(Debug, Clone, Deserialize)]
pub struct Kept {
    /// Events with their deliveries, days; `None`: for ever.
    #[serde(deserialize_with = "values::kept_days")]
    pub events_days: Option<i64>,
}

impl Kept {
    /// For the pruner.
    pub const fn retention(&self) -> Retention {
        Retention { events_days: self.events_days }
    }
}

/// What may stand at a key, for the error that says so.
fn expected(key: &str) -> &'static str {
    match key {
        "server.listen" | "server.operator_listen" => "an address and a port, such as \"127.0.0.1:8080\"",
        "server.public_url" | "kyt.api_url" | "documents.endpoint" => "an http or https URL, or nothing",
        "identity.provider" => "\"sumsub\", or nothing",
        "identity.base_url" => "an http or https URL, such as \"https://api.sumsub.com\"",
        "identity.level" | "identity.rescreen_level" => "the name of a level at the provider",
        "server.environment" => "\"production\" or \"sandbox\"",
        "server.behind_proxy"
        | "kyt.oracle"
        | "kyt.allow_everything"
        | "documents.allow_http"
        | "auditors.treasury_kept" => "true or false",
        "documents.folder" => "the path of a folder",
        "documents.bucket" | "documents.region" => "a name",
        "database.url" => "a path, \"sqlite://path?mode=rwc\" or \"postgres://user:password@host/name\"",
        "contracts.address" | "contracts.treasury" | "contracts.admin" => {
            "an address, 0x and 40 hexadecimal digits, or nothing"
        }
        "signer.mnemonic_index" => "a whole number",
        key if key.ends_with("_file") => "the path of a file",
        "log.filter" => "a level or target=level with commas, such as \"warn,payferry=info\"",
        "log.format" => "\"text\" or \"json\"",
        "webhooks.retry_delays_ms" => "a list of three whole numbers above zero",
        "limits.send_max" | "limits.send_daily_max" => "an amount of tokens as text, such as \"5000\"",
        "retention.events_days" => "at least 30 days, or 0 for ever",
        "auditors.vaults_interval_ms" => "a whole number, or 0 for never",
        "payments.shards" => "a number that divides 256, such as 16",
        key => match key.strip_prefix("chains.").and_then(|rest| rest.split_once('.')) {
            Some((_, key)) => chains::expected(key),
            None => "a whole number above zero",
        },
    }
}

/// A database's URL as the driver takes it: a path becomes `sqlite://path?mode=rwc`. `None` for another scheme.
pub fn database_url(text: &str) -> Option<String> {
    match text.split_once(':').map(|(scheme, _)| scheme) {
        Some("sqlite" | "postgres" | "postgresql") => Some(text.to_owned()),
        Some(scheme) if text[scheme.len()..].starts_with("://") => None,
        _ if text.is_empty() => None,
        _ => Some(format!("sqlite://{text}?mode=rwc")),
    }
}

/// The file of a SQLite URL; `None` for other databases.
pub fn sqlite_file(url: &str) -> Option<&std::path::Path> {
    let file = url.strip_prefix("sqlite:")?;
    Some(file.trim_start_matches("//").split('?').next().unwrap_or_default().as_ref())
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests;
