//! The configuration: one struct per section; each key lists its accepted values.
//!
//! Layers: the embedded `default.toml` < a file < the environment. The defaults contain every key; any other key is
//! rejected. Deliberately absent: secrets themselves (the configuration names the files that hold them).

mod chains;
mod load;
mod unsafe_settings;
mod values;

use std::net::SocketAddr;
use std::num::{NonZeroU64, NonZeroUsize};
use std::path::PathBuf;
use std::time::Duration;

use payferry_accounts::keys::KeyMode;
use payferry_actors::auditors::AuditorsConfig;
use payferry_actors::compliance::identity::ComplianceConfig;
use payferry_domain::{Address, Amount};
use payferry_httpkit::TrustedProxies;
use payferry_httpkit::address::ProxyNetwork;
use payferry_journal::psps::Ceilings;
use payferry_webhook::{Schedule, UrlPolicy, WebhookConfig};
use serde::Deserialize;

pub use chains::{ChainSection, ChainsSection, Endpoint};
pub use load::{ConfigError, DEFAULTS, ENV_PREFIX, Location};
pub(crate) use unsafe_settings::is_local;
pub use unsafe_settings::{UnsafeFinding, UnsafeRefusal, UnsafeSection, UnsafeSetting};
pub use values::{database_url, sqlite_file};

/// Maximum of `[server] drain_secs`: longer than the health checks of common load balancers take to notice.
const DRAIN_SECS_MAX: u64 = 300;
/// Maximum number of requests to a provider for one step of a check.
const REQUESTS_PER_CHECK_MAX: u32 = 4;

/// The whole configuration.
#[derive(Debug, Clone, Deserialize)]
pub struct Config {
    /// Listeners and public links.
    pub server: ServerSection,
    /// This node, if several share the database.
    pub node: NodeSection,
    /// The database connection.
    pub database: DatabaseSection,
    /// Files that hold secrets.
    pub secrets: SecretsSection,
    /// Accounts of the settler and the sender.
    pub signer: SignersSection,
    /// The settlement contract.
    pub contracts: ContractsSection,
    /// The chains.
    pub chains: ChainsSection,
    /// KYT providers that screen the source of funds.
    pub kyt: KytSection,
    /// Provider that verifies customers.
    pub identity: IdentitySection,
    /// Ceilings of outbound transfers.
    pub limits: LimitsSection,
    /// The operators.
    pub operators: OperatorsSection,
    /// Logging.
    pub log: LogSection,
    /// Export of traces.
    pub traces: TracesSection,
    /// Payment actors.
    pub payments: PaymentsSection,
    /// Request limits of the KYT provider.
    pub screening: ScreeningSection,
    /// Delivery of webhooks.
    pub webhooks: WebhooksSection,
    /// Storage of customers' documents.
    pub documents: DocumentsSection,
    /// Retention periods.
    pub retention: RetentionSection,
    /// Intervals of the auditors.
    pub auditors: AuditorsSection,
    /// Unsafe settings that production may use.
    #[serde(rename = "unsafe")]
    pub unsafe_settings: UnsafeSection,
    /// Warnings of the loader, for the log.
    #[serde(skip)]
    pub warnings: Vec<String>,
}

/// This node, if several share the database.
#[derive(Debug, Clone, Deserialize)]
pub struct NodeSection {
    /// Name; empty if the service runs alone.
    pub name: String,
    /// URL at which other nodes reach the operator's listener; `None` uses the bound address.
    #[serde(deserialize_with = "values::optional_url")]
    pub operator_url: Option<url::Url>,
}

/// Listeners and public links.
#[derive(Debug, Clone, Deserialize)]
pub struct ServerSection {
    /// Listen address for PSPs and payers.
    pub listen: SocketAddr,
    /// Listen address for the operator.
    pub operator_listen: SocketAddr,
    /// Base URL of links; `None` uses the bound address.
    #[serde(deserialize_with = "values::optional_url")]
    pub public_url: Option<url::Url>,
    /// Environment: determines which API keys are accepted and which webhook URLs are allowed.
    pub environment: Environment,
    /// Networks of the proxies that forward the client's address.
    #[serde(deserialize_with = "values::networks")]
    pub trusted_proxies: Vec<ProxyNetwork>,
    /// Every peer is a proxy: `behind_proxy = true` of earlier versions.
    #[serde(skip)]
    pub is_behind_proxy: bool,
    /// Seconds for which the service still answers requests after SIGTERM; 0: none.
    #[serde(deserialize_with = "values::drain_secs")]
    pub drain_secs: u64,
    /// File with the terms of service that customers accept; `None` uses the built-in terms.
    #[serde(deserialize_with = "values::optional")]
    pub terms_file: Option<PathBuf>,
}

impl ServerSection {
    /// The proxies that forward the client's address.
    pub fn trusted_proxies(&self) -> TrustedProxies {
        if self.is_behind_proxy && self.trusted_proxies.is_empty() {
            return TrustedProxies::EveryPeer;
        }
        TrustedProxies::Networks(self.trusted_proxies.clone())
    }
}

/// Environment of the service.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Environment {
    /// Simulated chains and tokens without value.
    Sandbox,
    /// Real money.
    Production,
}

impl Environment {
    /// Mode of the API keys that are accepted.
    pub const fn key_mode(self) -> KeyMode {
        match self {
            Self::Sandbox => KeyMode::Test,
            Self::Production => KeyMode::Live,
        }
    }

    /// Policy for webhook URLs.
    pub const fn url_policy(self) -> UrlPolicy {
        match self {
            Self::Sandbox => UrlPolicy::Sandbox,
            Self::Production => UrlPolicy::Production,
        }
    }
}

/// The database connection.
#[derive(Debug, Clone, Deserialize)]
pub struct DatabaseSection {
    /// URL in the form that [`database_url`] returns.
    #[serde(deserialize_with = "values::any_database_url")]
    pub url: String,
    /// URLs of PostgreSQL servers that replicate each other. If there are any, they replace `url`.
    #[serde(deserialize_with = "values::postgres_urls")]
    pub urls: Vec<String>,
}

impl DatabaseSection {
    /// The database at this URL only.
    pub fn at(url: String) -> Self {
        Self { url, urls: Vec::new() }
    }

    /// URLs of the database, each of another server.
    pub fn servers(&self) -> &[String] {
        if self.urls.is_empty() { std::slice::from_ref(&self.url) } else { &self.urls }
    }
}

/// Files that hold secrets.
#[serde_with::apply(Option<PathBuf> => #[serde(deserialize_with = "values::optional")])]
#[derive(Debug, Clone, Deserialize)]
pub struct SecretsSection {
    /// A file with 32 bytes in hexadecimal, or with several versions of such keys.
    pub master_key_file: Option<PathBuf>,
    /// A file with the bearer token of the operator listener.
    pub operator_token_file: Option<PathBuf>,
}

/// The accounts of the contract's roles. Each pays for its own gas.
#[derive(Debug, Clone, Deserialize)]
pub struct SignersSection {
    /// Signs settlements.
    pub settler: SignerSection,
    /// Signs outbound transfers.
    pub sender: SignerSection,
}

impl SignersSection {
    /// The sections by name.
    pub fn each(&self) -> [(&'static str, &SignerSection); 2] {
        [("settler", &self.settler), ("sender", &self.sender)]
    }
}

/// An account: exactly one of the four sources is set.
#[serde_with::apply(
    Option<PathBuf> => #[serde(deserialize_with = "values::optional")],
    Option<Address> => #[serde(deserialize_with = "values::optional")],
    Option<Endpoint> => #[serde(deserialize_with = "values::optional")],
)]
#[derive(Debug, Clone, Default, Deserialize)]
pub struct SignerSection {
    /// A file with 64 hexadecimal digits.
    pub private_key_file: Option<PathBuf>,
    /// A Web3 keystore.
    pub keystore_file: Option<PathBuf>,
    /// A file with the keystore's password.
    pub keystore_password_file: Option<PathBuf>,
    /// A file with a mnemonic.
    pub mnemonic_file: Option<PathBuf>,
    /// Index of the account: m/44'/60'/0'/0/index.
    pub mnemonic_index: u32,
    /// Base URL of a remote signer.
    pub remote_url: Option<Endpoint>,
    /// Account of its key.
    pub remote_address: Option<Address>,
    /// Its name of the key.
    pub remote_identifier: String,
    /// A file with the certificate of this client, PEM.
    pub remote_client_certificate_file: Option<PathBuf>,
    /// A file with the private key of that certificate, PEM.
    pub remote_client_key_file: Option<PathBuf>,
    /// A file with the certificates of the authorities that may have issued the remote signer's certificate, PEM.
    pub remote_ca_certificate_file: Option<PathBuf>,
}

impl SignerSection {
    /// Kind of the signer, for people.
    pub fn kind(&self) -> &'static str {
        if self.remote_url.is_some() {
            "remote signer"
        } else if self.keystore_file.is_some() {
            "keystore file"
        } else if self.mnemonic_file.is_some() {
            "mnemonic file"
        } else {
            "key file"
        }
    }
}

/// The settlement contract, at the same address on every chain.
#[serde_with::apply(Option<Address> => #[serde(deserialize_with = "values::optional")])]
#[derive(Debug, Clone, Deserialize)]
pub struct ContractsSection {
    /// Contract address as printed by `payferry deploy`.
    pub address: Option<Address>,
    /// Account that receives the fees.
    pub treasury: Option<Address>,
    /// Account that may change roles and pause; `deploy` needs it.
    pub admin: Option<Address>,
}

/// KYT providers that screen the source of funds; the strictest verdict of all that are set applies.
#[serde_with::apply(Option<PathBuf> => #[serde(deserialize_with = "values::optional")])]
#[derive(Debug, Clone, Deserialize)]
pub struct KytSection {
    /// Sanctioned addresses, one per line.
    pub sanctions_file: Option<PathBuf>,
    /// True if Chainalysis' on-chain sanctions list is queried on each chain.
    pub oracle: bool,
    /// Base URL of Chainalysis' address screening API.
    #[serde(deserialize_with = "values::optional_url")]
    pub api_url: Option<url::Url>,
    /// A file with the API's token.
    pub api_token_file: Option<PathBuf>,
    /// Allows every transfer without screening. For test networks.
    pub allow_everything: bool,
}

/// Provider that verifies customers, and the timing of checks.
#[serde_with::apply(Option<PathBuf> => #[serde(deserialize_with = "values::optional")])]
#[derive(Debug, Clone, Deserialize)]
pub struct IdentitySection {
    /// The provider; `None`: customers are not verified.
    #[serde(deserialize_with = "values::optional")]
    pub provider: Option<IdentityProviderName>,
    /// Base URL of the provider's API.
    pub base_url: url::Url,
    /// Provider's level name for verifications.
    pub level: String,
    /// Provider's level name for screenings after a change.
    pub rescreen_level: String,
    /// A file with the app token.
    pub app_token_file: Option<PathBuf>,
    /// A file with the secret key that requests are signed with.
    pub secret_key_file: Option<PathBuf>,
    /// A file with the secret that callbacks are signed with.
    pub callback_secret_file: Option<PathBuf>,
    /// Maximum number of checks processed at once.
    pub concurrency_max: NonZeroUsize,
    /// Timeout of one request.
    pub timeout_ms: NonZeroU64,
    /// First pause before a failed request is repeated; doubles with every failure.
    pub retry_min_ms: NonZeroU64,
    /// Longest pause.
    pub retry_max_ms: NonZeroU64,
    /// Interval at which an open check is polled.
    pub poll_interval_ms: NonZeroU64,
    /// Time after which a check that still waits for the provider raises an alert.
    pub overdue_after_ms: NonZeroU64,
}

/// The identity providers that can be configured.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum IdentityProviderName {
    /// See `payferry_actors::compliance::identity::Sumsub`.
    Sumsub,
}

impl IdentitySection {
    /// Settings of the identity service.
    pub fn compliance(&self) -> ComplianceConfig {
        let millis = |millis: NonZeroU64| Duration::from_millis(millis.get());
        ComplianceConfig {
            concurrency_max: self.concurrency_max.get(),
            timeout: millis(self.timeout_ms) * REQUESTS_PER_CHECK_MAX,
            retry_min: millis(self.retry_min_ms),
            retry_max: millis(self.retry_max_ms).max(millis(self.retry_min_ms)),
            poll_interval: millis(self.poll_interval_ms),
            overdue_after: millis(self.overdue_after_ms),
            ..ComplianceConfig::default()
        }
    }
}

/// The operators.
#[derive(Debug, Clone, Copy, Deserialize)]
pub struct OperatorsSection {
    /// True if a second operator approves what moves money elsewhere.
    pub four_eyes: bool,
}

/// Logging.
#[derive(Debug, Clone, Deserialize)]
pub struct LogSection {
    /// Filter in the syntax of `RUST_LOG`; empty: the default of the command.
    #[serde(deserialize_with = "values::log_filter")]
    pub filter: String,
    /// Format of a log line.
    pub format: LogFormat,
}

/// Format of a log line.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum LogFormat {
    /// Text for people.
    Text,
    /// One line of JSON per event.
    Json,
}

/// Export of traces.
#[derive(Debug, Clone, Deserialize)]
pub struct TracesSection {
    /// URL of the collector; `None` exports nothing.
    #[serde(deserialize_with = "values::optional_url")]
    pub endpoint: Option<url::Url>,
    /// Share of the traces that begin here and are exported, from 0 to 1.
    #[serde(deserialize_with = "values::share")]
    pub sample_ratio: f64,
}

/// Payment actors.
#[derive(Debug, Clone, Deserialize)]
pub struct PaymentsSection {
    /// Number of shard supervisors.
    #[serde(deserialize_with = "values::divides_256")]
    pub shards: usize,
}

/// Request limits of the KYT provider.
#[derive(Debug, Clone, Deserialize)]
pub struct ScreeningSection {
    /// Maximum number of concurrent requests.
    pub concurrency_max: NonZeroUsize,
    /// Timeout of one request.
    pub timeout_ms: NonZeroU64,
}

/// Delivery of webhooks.
#[derive(Debug, Clone, Deserialize)]
pub struct WebhooksSection {
    /// The delay before each retry.
    pub retry_delays_ms: [NonZeroU64; 3],
    /// Time a receiver has to answer.
    pub timeout_ms: NonZeroU64,
}

impl WebhooksSection {
    /// Settings of the webhook sender, with the URL policy of the environment.
    pub fn sender(&self, url_policy: UrlPolicy) -> WebhookConfig {
        let millis = |millis: NonZeroU64| Duration::from_millis(millis.get());
        WebhookConfig {
            schedule: Schedule::of(self.retry_delays_ms.map(millis)),
            timeout: millis(self.timeout_ms),
            url_policy,
        }
    }
}

/// Storage of customers' documents: a bucket if one is set, otherwise a folder.
#[serde_with::apply(Option<PathBuf> => #[serde(deserialize_with = "values::optional")])]
#[derive(Debug, Clone, Deserialize)]
pub struct DocumentsSection {
    /// Folder, created if it does not exist.
    pub folder: PathBuf,
    /// An S3-compatible bucket used by this service only.
    #[serde(deserialize_with = "values::optional")]
    pub bucket: Option<String>,
    /// URL of the bucket's API; `None`: AWS.
    #[serde(deserialize_with = "values::optional_url")]
    pub endpoint: Option<url::Url>,
    /// Region of the bucket.
    pub region: String,
    /// True if the endpoint may use plain HTTP. For tests.
    pub allow_http: bool,
    /// A file with the id of the access key; `None`: the default credential chain of AWS.
    pub access_key_id_file: Option<PathBuf>,
    /// A file with the secret access key.
    pub secret_access_key_file: Option<PathBuf>,
    /// MiB that the documents of one PSP may have, replaced ones included.
    pub psp_mib_max: NonZeroU64,
}

/// Retention periods.
#[derive(Debug, Clone, Deserialize)]
pub struct RetentionSection {
    /// Days to keep events with their deliveries; `None`: forever.
    #[serde(deserialize_with = "values::kept_days")]
    pub events_days: Option<i64>,
    /// Days to keep documents after they were replaced; `None`: forever.
    #[serde(deserialize_with = "values::days")]
    pub replaced_documents_days: Option<i64>,
}

/// Ceilings of outbound transfers, for PSPs without their own ceilings.
///
/// Deliberately absent: a ceiling for settlements. A settlement moves money only between Payferry's vaults and the
/// treasury, so a ceiling would protect nothing.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
pub struct LimitsSection {
    /// Maximum of one payout, withdrawal or transfer.
    #[serde(deserialize_with = "values::parsed")]
    pub send_max: Amount,
    /// Maximum per PSP, token and UTC day, over all chains.
    #[serde(deserialize_with = "values::parsed")]
    pub send_daily_max: Amount,
    /// Maximum of refunds to other addresses than the payer's per PSP, token and UTC day, over all chains.
    #[serde(deserialize_with = "values::parsed")]
    pub refund_elsewhere_daily_max: Amount,
}

impl LimitsSection {
    /// Settings for the actors.
    pub const fn ceilings(self) -> Ceilings {
        let Self { send_max, send_daily_max, refund_elsewhere_daily_max } = self;
        Ceilings { send_max, send_daily_max, refund_elsewhere_daily_max }
    }
}

/// The audits that run, and their intervals.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
pub struct AuditorsSection {
    /// Interval between audits of the ledger.
    pub ledger_interval_ms: NonZeroU64,
    /// Interval between audits of the vaults; 0: never.
    pub vaults_interval_ms: u64,
    /// True if the treasury's balance is compared with the ledger too. Requires that no money is withdrawn from it.
    pub treasury_kept: bool,
}

impl AuditorsSection {
    /// Settings of the auditor actors.
    pub const fn auditors(self) -> AuditorsConfig {
        AuditorsConfig {
            ledger_interval: Duration::from_millis(self.ledger_interval_ms.get()),
            vaults_interval: match self.vaults_interval_ms {
                0 => None,
                millis => Some(Duration::from_millis(millis)),
            },
            treasury_kept: self.treasury_kept,
        }
    }
}

#[cfg(test)]
mod tests;
