//! The configuration: one struct a concern, each key with what may stand there.
//!
//! Layers: the embedded `default.toml` < a file < the environment. Every key is in the defaults; a key that is not
//! there does not exist. Deliberately absent: secrets themselves (the file names where they are).

mod auditors;
mod chains;
mod limits;
mod load;

use std::net::SocketAddr;
use std::num::{NonZeroU64, NonZeroUsize};
use std::path::PathBuf;
use std::time::Duration;

use payferry_actors::compliance::identity::DeskConfig;
use payferry_actors::webhook::retention::{KEPT_DAYS_MIN, Retention};
use payferry_actors::webhook::{Schedule, UrlPolicy, WebhookConfig};
use payferry_domain::Address;
use serde::{Deserialize, Deserializer};

use crate::http::Environment;

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
    #[serde(deserialize_with = "optional_url")]
    pub public_url: Option<url::Url>,
    /// Which world it is: decides which keys are taken and where webhooks may go.
    pub environment: Environment,
    /// Whether a proxy in front tells the payer's address as the last entry of `X-Forwarded-For`.
    pub behind_proxy: bool,
    /// The terms of service that customers accept; `None` takes those that come with the program.
    #[serde(deserialize_with = "optional_path")]
    pub terms_file: Option<PathBuf>,
}

/// Where rows are kept.
#[derive(Debug, Clone, Deserialize)]
pub struct Database {
    /// As [`database_url`] makes it.
    #[serde(deserialize_with = "any_database_url")]
    pub url: String,
}

/// Where secrets are kept.
#[derive(Debug, Clone, Deserialize)]
pub struct Secrets {
    /// A file with 32 bytes in hexadecimal, or several versions of such keys.
    #[serde(deserialize_with = "optional_path")]
    pub master_key_file: Option<PathBuf>,
    /// A file with the bearer token of the operator's listener.
    #[serde(deserialize_with = "optional_path")]
    pub operator_token_file: Option<PathBuf>,
}

/// The account that pays for gas: exactly one of the three.
#[derive(Debug, Clone, Deserialize)]
pub struct Signer {
    /// A file with 64 hexadecimal digits.
    #[serde(deserialize_with = "optional_path")]
    pub private_key_file: Option<PathBuf>,
    /// A Web3 keystore.
    #[serde(deserialize_with = "optional_path")]
    pub keystore_file: Option<PathBuf>,
    /// A file with the keystore's password.
    #[serde(deserialize_with = "optional_path")]
    pub keystore_password_file: Option<PathBuf>,
    /// A file with a mnemonic.
    #[serde(deserialize_with = "optional_path")]
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
    #[serde(deserialize_with = "optional_path")]
    pub sanctions_file: Option<PathBuf>,
    /// Chainalysis' list on each chain.
    pub oracle: bool,
    /// Chainalysis' address screening: where its API is.
    #[serde(deserialize_with = "optional_url")]
    pub api_url: Option<url::Url>,
    /// A file with the API's token.
    #[serde(deserialize_with = "optional_path")]
    pub api_token_file: Option<PathBuf>,
    /// Nobody is asked. For test networks.
    pub allow_everything: bool,
}

/// Who verifies customers, and how long the desk waits for it.
#[derive(Debug, Clone, Deserialize)]
pub struct Identity {
    /// Which provider; `None`: nobody is verified.
    #[serde(deserialize_with = "optional_provider")]
    pub provider: Option<IdentityProviderName>,
    /// Where its API is.
    pub base_url: url::Url,
    /// The level of verifications.
    pub level: String,
    /// The level of screenings after a change.
    pub rescreen_level: String,
    /// A file with the app token.
    #[serde(deserialize_with = "optional_path")]
    pub app_token_file: Option<PathBuf>,
    /// A file with the secret key that requests are signed with.
    #[serde(deserialize_with = "optional_path")]
    pub secret_key_file: Option<PathBuf>,
    /// A file with the secret that callbacks are signed with.
    #[serde(deserialize_with = "optional_path")]
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
    #[serde(deserialize_with = "log_filter")]
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
    #[serde(deserialize_with = "divides_256")]
    pub shards: usize,
    /// Whether actors keep books of what they do.
    pub bookkeeping: bool,
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
    #[serde(deserialize_with = "optional_text")]
    pub bucket: Option<String>,
    /// Where its API is; `None`: AWS'.
    #[serde(deserialize_with = "optional_url")]
    pub endpoint: Option<url::Url>,
    /// Its region.
    pub region: String,
    /// Whether the endpoint may be plain HTTP. For tests.
    pub allow_http: bool,
    /// A file with the access key's id; `None`: as AWS' own tools find it.
    #[serde(deserialize_with = "optional_path")]
    pub access_key_id_file: Option<PathBuf>,
    /// A file with its secret.
    #[serde(deserialize_with = "optional_path")]
    pub secret_access_key_file: Option<PathBuf>,
}

/// How long is kept what need not be kept for ever.
#[derive(Debug, Clone, Deserialize)]
pub struct Kept {
    /// Events with their deliveries, days; `None`: for ever.
    #[serde(deserialize_with = "kept_days")]
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
        | "payments.bookkeeping"
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

fn optional_url<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<url::Url>, D::Error> {
    let text = String::deserialize(deserializer)?;
    if text.is_empty() {
        return Ok(None);
    }
    match url::Url::parse(&text) {
        Ok(url) if ["http", "https"].contains(&url.scheme()) => Ok(Some(url)),
        _ => Err(serde::de::Error::custom("not an http URL")),
    }
}

fn optional_provider<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<IdentityProviderName>, D::Error> {
    match String::deserialize(deserializer)?.as_str() {
        "" => Ok(None),
        "sumsub" => Ok(Some(IdentityProviderName::Sumsub)),
        _ => Err(serde::de::Error::custom("not a provider")),
    }
}

fn any_database_url<'de, D: Deserializer<'de>>(deserializer: D) -> Result<String, D::Error> {
    let text = String::deserialize(deserializer)?;
    database_url(&text).ok_or_else(|| serde::de::Error::custom("not a database URL"))
}

fn optional_path<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<PathBuf>, D::Error> {
    let path = PathBuf::deserialize(deserializer)?;
    Ok((!path.as_os_str().is_empty()).then_some(path))
}

fn optional_text<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<String>, D::Error> {
    let text = String::deserialize(deserializer)?;
    Ok((!text.is_empty()).then_some(text))
}

fn log_filter<'de, D: Deserializer<'de>>(deserializer: D) -> Result<String, D::Error> {
    let text = String::deserialize(deserializer)?;
    match tracing_subscriber::EnvFilter::builder().parse(&text) {
        Ok(_) => Ok(text),
        Err(error) => Err(serde::de::Error::custom(error)),
    }
}

fn kept_days<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<i64>, D::Error> {
    match i64::deserialize(deserializer)? {
        0 => Ok(None),
        days if days >= KEPT_DAYS_MIN => Ok(Some(days)),
        _ => Err(serde::de::Error::custom("too short")),
    }
}

fn divides_256<'de, D: Deserializer<'de>>(deserializer: D) -> Result<usize, D::Error> {
    let shards = usize::deserialize(deserializer)?;
    if shards > 0 && 256_usize.is_multiple_of(shards) {
        return Ok(shards);
    }
    Err(serde::de::Error::custom("does not divide 256"))
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use payferry_actors::chain::ChainSpec;
    use payferry_domain::{Chain, Finality, FinalityPolicy};

    use super::*;

    fn refused(file: &str, env: &[(&str, &str)]) -> String {
        let path = tempfile::Builder::new().suffix(".toml").tempfile().unwrap();
        std::fs::write(&path, file).unwrap();
        let env = env.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned()));
        let error = Config::load(Some(path.path()), env).unwrap_err().to_string();
        error.replace(&path.path().display().to_string(), "payferry.toml")
    }

    #[test]
    fn later_layers_win() {
        let path = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(&path, "[server]\nlisten = \"127.0.0.1:1\"\noperator_listen = \"127.0.0.1:2\"\n").unwrap();
        let env = [("PAYFERRY_SERVER__LISTEN", "127.0.0.1:3"), ("PAYFERRY_PAYMENTS__SHARDS", "4"), ("OTHER__X", "1")];
        let env = env.map(|(name, value)| (name.to_owned(), value.to_owned()));
        let config = Config::load(Some(path.path()), env).unwrap();
        assert_eq!(config.server.listen.port(), 3);
        assert_eq!(config.server.operator_listen.port(), 2);
        assert_eq!(config.payments.shards, 4);
        assert_eq!(config.server.public_url, None);
        assert_eq!(config.retention.events_days, Some(400));
        assert_eq!(config.database.url, "sqlite://payferry.db?mode=rwc");
    }

    #[test]
    fn errors_name_place_key_and_what_was_expected() {
        assert_eq!(
            refused("[server]\n\nlisen = 1\n", &[]),
            "payferry.toml:3: there is no key `server.lisen`; expected one of behind_proxy, environment, \
             listen, operator_listen, public_url, terms_file"
        );
        assert_eq!(
            refused("[server]\nlisten = \"localhost\"\n", &[]),
            "payferry.toml:2: `server.listen` is \"localhost\", expected an address and a port, such as \"127.0.0.1:8080\""
        );
        assert_eq!(
            refused("", &[("PAYFERRY_PAYMENTS__SHARDS", "7")]),
            "PAYFERRY_PAYMENTS__SHARDS: `payments.shards` is 7, expected a number that divides 256, such as 16"
        );
        assert_eq!(
            refused("[screening]\ntimeout_ms = \"soon\"", &[]),
            "payferry.toml:2: `screening.timeout_ms` is \"soon\", expected a whole number above zero"
        );
        assert_eq!(
            refused("[retention]\nevents_days = 29", &[]),
            "payferry.toml:2: `retention.events_days` is 29, expected at least 30 days, or 0 for ever"
        );
        assert!(refused("[server\n", &[]).starts_with("payferry.toml:1: not valid TOML: "));
        assert!(refused("", &[("PAYFERRY_NOWHERE__X", "7")]).contains("there is no key `nowhere.x`"));
        let secret = refused("[database]\nurl = \"mysql://user:hunter2@host/x\"", &[]);
        assert!(secret.contains("expected a path") && !secret.contains("hunter2"), "{secret}");
    }

    #[test]
    fn a_file_that_is_missing_is_named() {
        let error = Config::load(Some("/nowhere/payferry.toml".as_ref()), []).unwrap_err().to_string();
        assert!(error.starts_with("/nowhere/payferry.toml: cannot be read"), "{error}");
    }

    #[test]
    fn databases_are_named_by_path_or_url() {
        assert_eq!(database_url("a/b.db").unwrap(), "sqlite://a/b.db?mode=rwc");
        assert_eq!(database_url("postgres://x/y").unwrap(), "postgres://x/y");
        assert_eq!(database_url("mysql://x/y"), None);
    }

    #[test]
    fn chains_are_configured_one_by_one() {
        let path = tempfile::NamedTempFile::new().unwrap();
        let file = "[contracts]\ntreasury = \"0x00000000000000000000000000000000000000aa\"\n[chains.base]\n\
                    endpoints = [\"https://node.example/KEY\"]\nchain_id = 84532\nusdt = \"\"\nstart_block = 7\n\
                    finality = [{ wait = 5 }]\nmax_fee_gwei = \"0.25\"\n";
        std::fs::write(&path, file).unwrap();
        let config = Config::load(Some(path.path()), []).unwrap();
        let on: Vec<Chain> = config.chains.iter().filter(|(_, chain)| chain.is_on()).map(|(name, _)| *name).collect();
        assert_eq!(on, [Chain::Base]);
        let base = &config.chains[&Chain::Base];
        assert_eq!(format!("{:?}", base.endpoints), "[node.example]", "the key in the URL is not shown");
        let spec = base.spec(Chain::Base, Address([9; 20]), &config.contracts);
        assert_eq!((spec.chain_id, spec.start_block, spec.tokens.len()), (84_532, Some(7), 1));
        assert_eq!(spec.finality, FinalityPolicy::flat(Finality::Blocks(5)));
        assert_eq!(spec.finality_least, spec.finality, "unless it is said, nobody may wait less");
        assert_eq!((spec.fees.max_fee_wei, spec.fees.priority_fee_min_wei), (250_000_000, 1_000_000));
        assert_eq!(spec.treasury.to_string(), "0x00000000000000000000000000000000000000aa");
    }

    #[test]
    fn the_defaults_of_chains_are_those_of_their_actors() {
        let config = Config::defaults();
        for chain in Chain::ALL {
            let section = &config.chains[&chain];
            assert!(!section.is_on());
            let spec = section.spec(chain, Address([9; 20]), &config.contracts);
            let own = ChainSpec::new(chain, spec.contract, spec.treasury, spec.tokens.clone());
            let own = ChainSpec { lookalikes: spec.lookalikes.clone(), ..own };
            assert_eq!(format!("{spec:?}"), format!("{own:?}"));
        }
    }

    #[test]
    fn a_bad_chain_is_told_what_is_expected() {
        let of = |line: &str| refused(&format!("[chains.base]\n{line}\n"), &[]);
        let bands = of("finality = [{ below = \"5\", wait = 2 }]");
        assert!(bands.contains("`chains.base.finality`") && bands.contains("one band or three"), "{bands}");
        assert!(of("finality_least = 2").contains("the bands of `finality`, or an empty list"));
        let limit = refused("[limits]\nsend_max = 5000\n", &[]);
        assert!(limit.contains("`limits.send_max` is 5000, expected an amount of tokens as text"), "{limit}");
        let endpoints = of("endpoints = [\"ftp://node.example/hunter2\"]");
        assert!(endpoints.contains("a list of http or https URLs") && !endpoints.contains("hunter2"), "{endpoints}");
        assert!(of("usdc = \"0x12\"").ends_with("expected an address, 0x and 40 hexadecimal digits, or nothing"));
        assert!(of("max_fee_gwei = \"0.0000000001\"").contains("gwei as text"));
        assert!(of("start_block = \"soon\"").contains("\"latest\" or a block's number"));
        assert!(refused("[chains.doge]\nendpoints = []\n", &[]).contains("there is no key `chains.doge"));
    }

    #[test]
    fn the_examples_are_read() {
        for name in ["mainnet", "testnet"] {
            let path = format!("{}/docs/examples/{name}.toml", env!("CARGO_MANIFEST_DIR"));
            let config = Config::load(Some(path.as_ref()), []).unwrap();
            assert!(config.chains.values().all(ChainConfig::is_on), "{name}");
        }
    }
}
