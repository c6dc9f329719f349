//! Checks the requirements of the service before its start, and reports them.

use futures::future::join_all;
use payferry_actors::compliance::ChainalysisOracle;
use payferry_domain::{Address, Timestamp};
use payferry_entities::{CommitSettings, Database, WeakTls};
use payferry_evm::inspect::{EndpointFinding, Grade, RoleKeys, inspect_contracts, inspect_endpoint};
use payferry_evm::wallet::{KeyListing, checksummed};
use payferry_migration::pending;
use payferry_runtime::clock::Clock;

use super::chains::{self, Configured};
use super::secrets::Signers;
use super::{compliance, contract, secrets};
use crate::config::{Config, DatabaseSection, SignersSection, UnsafeFinding, UnsafeSetting, sqlite_file};

/// Line of the report.
#[derive(Debug, Clone)]
pub struct CheckLine {
    /// `service`, or a chain, or a chain and one of its endpoints.
    pub place: String,
    /// Result of the check.
    pub finding: EndpointFinding,
}

/// Checks all requirements. Changes nothing.
pub async fn check(config: &Config) -> Vec<CheckLine> {
    let mut lines = Lines::default();
    let findings = config.unsafe_findings();
    lines.unsafe_settings(config, &findings);
    if findings.iter().all(|found| found.setting != UnsafeSetting::DatabaseWithoutTls) {
        for weak in config.database.servers().iter().filter_map(|url| WeakTls::of(url).ok()?) {
            lines.add("service".to_owned(), "database TLS", Grade::Doubtful, weak.to_string());
        }
    }
    lines.read(
        "master key",
        secrets::sealer(config).map(|sealer| format!("read; version {} is current", sealer.current())),
    );
    lines.read("operator token", secrets::operator_token(config).map(|_| "read".to_owned()));
    lines.identity(config);
    let signers = secrets::signers(config);
    let keys = signers.as_ref().map(Signers::keys).ok();
    match signers {
        Ok(signers) => lines.signers(config, &signers).await,
        Err(error) => lines.read("signers", Err(error)),
    }
    match database(&config.database).await {
        Ok((state, commits)) => {
            lines.unsafe_settings(config, &config.unsafe_findings_of_server(commits.as_ref()));
            lines.read("database", Ok(state));
        }
        Err(error) => lines.read("database", Err(error)),
    }
    let address = contract(config);
    let known = *address.as_ref().unwrap_or(&Address([0; 20]));
    lines.read("contract", address.map(checksummed));
    match chains::configured(config, known) {
        Err(error) => lines.read("chains", Err(error)),
        Ok(chains) => {
            let kyt = compliance::screener(config, &chains, &Clock::default());
            lines.read("kyt", kyt.map(|screener| screener.name().to_owned()));
            for found in join_all(chains.iter().map(|chain| one(chain, keys))).await {
                lines.0.extend(found);
            }
            if let Some(oracle) = config.kyt.oracle.then(|| compliance::oracle(config, &chains, &Clock::default())) {
                lines.oracle(&chains, oracle).await;
            }
        }
    }
    lines.0
}

/// True if the service can start with these results.
pub fn is_good(lines: &[CheckLine]) -> bool {
    lines.iter().all(|line| line.finding.grade < Grade::Bad)
}

#[derive(Default)]
struct Lines(Vec<CheckLine>);

impl Lines {
    fn read(&mut self, what: &str, outcome: anyhow::Result<String>) {
        let (grade, detail) = match outcome {
            Ok(detail) => (Grade::Good, detail),
            Err(error) => (Grade::Bad, format!("{error:#}")),
        };
        self.add("service".to_owned(), what, grade, detail);
    }

    fn unsafe_settings(&mut self, config: &Config, findings: &[UnsafeFinding]) {
        for UnsafeFinding { setting, detail } in findings.iter().cloned() {
            let grade = if config.allows(setting) { Grade::Doubtful } else { Grade::Bad };
            self.add("service".to_owned(), &format!("unsafe setting {setting}"), grade, detail);
        }
    }

    /// The accounts with the kinds of their signers. A remote signer is asked for its keys and signs nothing.
    async fn signers(&mut self, config: &Config, signers: &Signers) {
        let SignersSection { settler, sender } = &config.signer;
        let both = [("settler", &signers.settler, settler), ("sender", &signers.sender, sender)];
        let shown = both
            .map(|(role, signer, section)| format!("{role} {} ({})", checksummed(signer.address()), section.kind()));
        self.read("signers", Ok(shown.join(", ")));
        for (role, signer, _) in both {
            let Some(remote) = signer.remote() else { continue };
            let host = remote.host();
            let (grade, detail) = match remote.check().await {
                Ok(KeyListing::Listed) => (Grade::Good, format!("{host} responds and has the key")),
                Ok(KeyListing::Withheld(status)) => {
                    let detail = format!("{host} responds, but does not list its keys (HTTP {status})");
                    (Grade::Doubtful, format!("{detail}: the first transaction will show if it has the key"))
                }
                Err(error) => (Grade::Bad, error.to_string()),
            };
            self.add("service".to_owned(), &format!("{role}'s signer"), grade, detail);
        }
    }

    /// Without a provider the service runs, but cannot verify customers.
    fn identity(&mut self, config: &Config) {
        match compliance::identity(config, &Clock::default()) {
            Ok(None) => {
                let detail = "no provider is configured: customers cannot be verified".to_owned();
                self.add("service".to_owned(), "identity", Grade::Doubtful, detail);
            }
            provider => self.read(
                "identity",
                provider.map(|provider| {
                    let name = provider.map_or("", |provider| provider.name());
                    format!("{name}; callbacks at /compliance/callbacks/{name}")
                }),
            ),
        }
    }

    fn add(&mut self, place: String, what: &str, grade: Grade, detail: String) {
        self.0.push(CheckLine { place, finding: EndpointFinding { what: what.to_owned(), grade, detail } });
    }

    /// A missing oracle configuration is already reported as a finding of the service.
    async fn oracle(&mut self, chains: &[Configured], oracle: anyhow::Result<ChainalysisOracle>) {
        let Ok(oracle) = oracle else { return };
        for chain in chains {
            let name = chain.spec.chain;
            let (grade, detail) = match oracle.check(name).await {
                Ok(()) => (Grade::Good, "answers".to_owned()),
                Err(error) => (Grade::Bad, error.to_string()),
            };
            self.add(name.to_string(), "sanctions oracle", grade, detail);
        }
    }
}

/// State of the database, and its settings of commits.
async fn database(config: &DatabaseSection) -> anyhow::Result<(String, Option<CommitSettings>)> {
    // Opening would create it.
    if let Some(file) = sqlite_file(&config.servers()[0]).filter(|file| !file.exists()) {
        return Ok((format!("{} will be created at the first start", file.display()), None));
    }
    let database = Database::open_primary(config.servers()).await?;
    let pending = pending(&database.long_timeout()).await?.len();
    let (backend, commits) = (database.backend(), database.commit_settings().await?);
    database.close().await?;
    let state = match pending {
        0 => format!("{backend:?}, tables up to date"),
        n => format!("{backend:?}, {n} migrations pending until the next start"),
    };
    Ok((state, commits))
}

async fn one(chain: &Configured, keys: Option<RoleKeys>) -> Vec<CheckLine> {
    let name = chain.spec.chain;
    let now = Timestamp::from(chrono::Utc::now());
    let endpoints = chain.endpoints.iter().map(|(endpoint, client)| async move {
        let found = inspect_endpoint(&chain.spec, client, now).await;
        found
            .into_iter()
            .map(|finding| CheckLine { place: format!("{name} at {endpoint}"), finding })
            .collect::<Vec<_>>()
    });
    let mut lines: Vec<CheckLine> = join_all(endpoints).await.into_iter().flatten().collect();
    // For a wrong or unreachable chain, the other results are irrelevant.
    if lines.iter().any(|line| line.finding.grade < Grade::Bad)
        && let Some(keys) = keys
    {
        let found = inspect_contracts(&chain.spec, &chain.client, keys).await;
        lines.extend(found.into_iter().map(|finding| CheckLine { place: name.to_string(), finding }));
    }
    lines
}
