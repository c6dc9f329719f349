//! Settings that are unsafe with real money. In production each is an error unless `[unsafe] allow` names it.

use std::fmt;
use std::path::Path;

use payferry_domain::Chain;
use payferry_entities::{CommitSettings, WeakTls};
use serde::Deserialize;
use url::{Host, Url};

use super::{Config, Environment, SignersSection};

payferry_domain::named! {
    /// A setting that is unsafe with real money, by its name in `[unsafe] allow`.
    UnsafeSetting, "an unsafe setting" {
        /// Transfers are not screened.
        KytAllowEverything = "kyt_allow_everything",
        /// The signer's key is in a file without encryption.
        BareKeyFile = "bare_key_file",
        /// Every user of the machine can read or change a secret.
        ReadableSecrets = "readable_secrets",
        /// Links lead to this machine only, or are not encrypted.
        PublicUrl = "public_url",
        /// A chain stops when its only endpoint fails.
        OneEndpoint = "one_endpoint",
        /// The connection to an endpoint is not encrypted.
        HttpEndpoint = "http_endpoint",
        /// The connection to the database may be unencrypted.
        DatabaseWithoutTls = "database_without_tls",
        /// The database acknowledges commits that a crash of its server can lose.
        AsynchronousCommit = "asynchronous_commit",
        /// The loss of the database's server loses acknowledged commits.
        NoSynchronousStandby = "no_synchronous_standby",
        /// Nodes that share the database store documents in a folder, which may not be the same on all of them.
        SharedDocumentsFolder = "shared_documents_folder",
    }
}

/// Values of PostgreSQL's `synchronous_commit` with which an acknowledged commit survives a crash of the server.
const SYNCHRONOUS_COMMITS: [&str; 2] = ["on", "remote_apply"];

/// Unsafe settings that production may use.
#[derive(Debug, Clone, Deserialize)]
pub struct UnsafeSection {
    /// Allowed settings.
    pub allow: Vec<UnsafeSetting>,
}

/// An unsafe setting that this configuration has.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UnsafeFinding {
    /// The setting.
    pub setting: UnsafeSetting,
    /// The key, and what is unsafe about its value.
    pub detail: String,
}

/// Unsafe settings that are not allowed.
#[derive(Debug, thiserror::Error)]
pub struct UnsafeRefusal(Vec<UnsafeFinding>);

impl fmt::Display for UnsafeRefusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("unsafe settings in production; change each, or allow it by name in `[unsafe] allow`:")?;
        self.0.iter().try_for_each(|found| write!(f, "\n  {}: {}", found.setting, found.detail))
    }
}

impl Config {
    /// The unsafe settings of this configuration, if it is for production.
    pub fn unsafe_findings(&self) -> Vec<UnsafeFinding> {
        if self.server.environment != Environment::Production {
            return Vec::new();
        }
        let mut findings = Findings(Vec::new());
        findings.screening(self);
        findings.secrets(self);
        findings.public_url(self.server.public_url.as_ref());
        findings.endpoints(self);
        if !self.node.name.is_empty() && self.documents.bucket.is_none() {
            let detail = "`documents.folder` on a node that shares the database: every node must read and write the same \
                          files; use `documents.bucket`";
            findings.add(UnsafeSetting::SharedDocumentsFolder, detail.to_owned());
        }
        for url in self.database.servers() {
            // A URL that cannot be parsed is an error when the database is opened.
            if let Ok(Some(weak)) = WeakTls::of(url)
                && weak.may_be_plain
            {
                let key = if self.database.urls.is_empty() { "url" } else { "urls" };
                findings.add(UnsafeSetting::DatabaseWithoutTls, format!("`database.{key}`: {weak}"));
            }
        }
        findings.0
    }

    /// Returns true if production may use this setting.
    pub fn allows(&self, setting: UnsafeSetting) -> bool {
        self.unsafe_settings.allow.contains(&setting)
    }

    /// The unsafe settings of the database's server, if this configuration is for production. `None` for SQLite.
    pub fn unsafe_findings_of_server(&self, commits: Option<&CommitSettings>) -> Vec<UnsafeFinding> {
        let mut findings = Findings(Vec::new());
        let Some(commits) = commits.filter(|_| self.server.environment == Environment::Production) else {
            return findings.0;
        };
        let value = commits.synchronous_commit.as_str();
        if !SYNCHRONOUS_COMMITS.contains(&value) {
            let detail = format!(
                "`synchronous_commit` of the database is `{value}`: a crash of its server can lose acknowledged payments; \
                 set it to `on` for the role of the service"
            );
            findings.add(UnsafeSetting::AsynchronousCommit, detail);
        }
        if commits.synchronous_standby_names.is_empty() {
            let detail = "`synchronous_standby_names` of the database is empty: the loss of its server loses acknowledged \
                          payments; set up a standby, such as `ANY 1 (s1, s2)`";
            findings.add(UnsafeSetting::NoSynchronousStandby, detail.to_owned());
        }
        findings.0
    }

    /// Returns the unsafe settings of this configuration, or an error if one of them is not allowed.
    pub fn allowed_unsafe_settings(&self) -> Result<Vec<UnsafeFinding>, UnsafeRefusal> {
        self.allowed(self.unsafe_findings())
    }

    /// Returns these findings, or an error if one of them is not allowed.
    pub fn allowed(&self, findings: Vec<UnsafeFinding>) -> Result<Vec<UnsafeFinding>, UnsafeRefusal> {
        let (allowed, refused): (Vec<_>, Vec<_>) = findings.into_iter().partition(|found| self.allows(found.setting));
        if refused.is_empty() { Ok(allowed) } else { Err(UnsafeRefusal(refused)) }
    }
}

struct Findings(Vec<UnsafeFinding>);

impl Findings {
    fn add(&mut self, setting: UnsafeSetting, detail: String) {
        self.0.push(UnsafeFinding { setting, detail });
    }

    fn screening(&mut self, config: &Config) {
        if config.kyt.allow_everything {
            let detail = "`kyt.allow_everything`: transfers are not screened";
            self.add(UnsafeSetting::KytAllowEverything, detail.to_owned());
        }
    }

    fn secrets(&mut self, config: &Config) {
        let (identity, documents) = (&config.identity, &config.documents);
        for (role, signer) in config.signer.each() {
            for (key, file) in
                [("private_key_file", &signer.private_key_file), ("mnemonic_file", &signer.mnemonic_file)]
            {
                if file.is_some() {
                    let detail = format!(
                        "`signer.{role}.{key}`: the key is not encrypted; use `signer.{role}.keystore_file` or a remote signer"
                    );
                    self.add(UnsafeSetting::BareKeyFile, detail);
                }
            }
        }
        let SignersSection { settler, sender } = &config.signer;
        let files = [
            ("secrets.master_key_file", &config.secrets.master_key_file),
            ("secrets.operator_token_file", &config.secrets.operator_token_file),
            ("signer.settler.private_key_file", &settler.private_key_file),
            ("signer.settler.keystore_file", &settler.keystore_file),
            ("signer.settler.keystore_password_file", &settler.keystore_password_file),
            ("signer.settler.mnemonic_file", &settler.mnemonic_file),
            ("signer.settler.remote_client_key_file", &settler.remote_client_key_file),
            ("signer.sender.private_key_file", &sender.private_key_file),
            ("signer.sender.keystore_file", &sender.keystore_file),
            ("signer.sender.keystore_password_file", &sender.keystore_password_file),
            ("signer.sender.mnemonic_file", &sender.mnemonic_file),
            ("signer.sender.remote_client_key_file", &sender.remote_client_key_file),
            ("kyt.api_token_file", &config.kyt.api_token_file),
            ("identity.app_token_file", &identity.app_token_file),
            ("identity.secret_key_file", &identity.secret_key_file),
            ("identity.callback_secret_file", &identity.callback_secret_file),
            ("documents.secret_access_key_file", &documents.secret_access_key_file),
        ];
        for (key, file) in files {
            let Some(file) = file.as_deref().filter(|file| is_open_to_others(file)) else { continue };
            let detail =
                format!("`{key}`: every user of this machine can open {0}; run `chmod 600 {0}`", file.display());
            self.add(UnsafeSetting::ReadableSecrets, detail);
        }
    }

    fn public_url(&mut self, url: Option<&Url>) {
        let why = match url {
            None => "not set, so that links lead to this machine",
            Some(url) if is_local(url) => "links lead to this machine",
            Some(url) if url.scheme() != "https" => "links are not encrypted; use https",
            Some(_) => return,
        };
        self.add(UnsafeSetting::PublicUrl, format!("`server.public_url`: {why}"));
    }

    fn endpoints(&mut self, config: &Config) {
        for (chain, section) in config.chains.iter().filter(|(_, section)| section.is_on()) {
            let key = endpoints_key(*chain);
            if section.endpoints.len() == 1 {
                let detail = format!("{key}: the chain stops when its only endpoint fails; name a second provider");
                self.add(UnsafeSetting::OneEndpoint, detail);
            }
            for endpoint in &section.endpoints {
                if endpoint.expose().scheme() != "https" && !is_local(endpoint.expose()) {
                    let detail = format!("{key}: the connection to {endpoint} is not encrypted; use https");
                    self.add(UnsafeSetting::HttpEndpoint, detail);
                }
            }
        }
    }
}

fn endpoints_key(chain: Chain) -> String {
    format!("`chains.{chain}.endpoints`")
}

/// Returns true if the host of a URL is this machine.
pub(crate) fn is_local(url: &Url) -> bool {
    match url.host() {
        Some(Host::Domain(name)) => name == "localhost" || name.ends_with(".localhost"),
        Some(Host::Ipv4(address)) => address.is_loopback(),
        Some(Host::Ipv6(address)) => address.is_loopback(),
        None => true,
    }
}

/// Returns true if users other than the file's owner and group can read or change it.
#[cfg(unix)]
fn is_open_to_others(file: &Path) -> bool {
    use std::os::unix::fs::PermissionsExt;
    const OTHERS: u32 = 0o006;
    std::fs::metadata(file).is_ok_and(|metadata| metadata.permissions().mode() & OTHERS != 0)
}

#[cfg(not(unix))]
fn is_open_to_others(_: &Path) -> bool {
    false
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;
    use crate::config::ServerSection;

    fn config(text: &str) -> Config {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("payferry.toml");
        std::fs::write(&file, text).unwrap();
        Config::load(Some(&file), []).unwrap()
    }

    fn names(config: &Config) -> Vec<&'static str> {
        config.unsafe_findings().iter().map(|found| found.setting.as_str()).collect()
    }

    const SAFE: &str = "[server]\npublic_url = \"https://pay.example.com\"\n[chains.base]\n\
        endpoints = [\"https://one.example\", \"https://two.example\"]\n";

    #[test]
    fn production_finds_each_unsafe_setting() {
        assert_eq!(names(&config(SAFE)), [""; 0]);
        for (name, from, to) in [
            ("kyt_allow_everything", "[chains.base]", "[kyt]\nallow_everything = true\n[chains.base]"),
            ("bare_key_file", "[chains.base]", "[signer.settler]\nprivate_key_file = \"key\"\n[chains.base]"),
            ("bare_key_file", "[chains.base]", "[signer.sender]\nmnemonic_file = \"words\"\n[chains.base]"),
            ("public_url", "https://pay.example.com", "http://pay.example.com"),
            ("public_url", "https://pay.example.com", "https://127.0.0.1:8080"),
            ("public_url", "https://pay.example.com", ""),
            ("one_endpoint", ", \"https://two.example\"", ""),
            ("http_endpoint", "https://two.example", "http://two.example"),
            (
                "database_without_tls",
                "[chains.base]",
                "[database]\nurl = \"postgres://u:hunter2@db.example/x?sslmode=prefer\"\n[chains.base]",
            ),
        ] {
            let config = config(&SAFE.replace(from, to));
            assert_eq!(names(&config), [name], "{to}");
            let refusal = config.allowed_unsafe_settings().unwrap_err().to_string();
            assert!(refusal.contains(&format!("\n  {name}: `")) && !refusal.contains("hunter2"), "{refusal}");
            let sandbox = Config {
                server: ServerSection { environment: Environment::Sandbox, ..config.server.clone() },
                ..config
            };
            assert_eq!(names(&sandbox), [""; 0], "{to}");
        }
        // These are safe: an endpoint and a database on this machine, and a remote database whose certificate is verified.
        for (from, to) in [
            ("https://two.example", "http://127.0.0.1:8545"),
            ("[chains.base]", "[database]\nurl = \"postgres://u@localhost/x\"\n[chains.base]"),
            ("[chains.base]", "[database]\nurl = \"postgres://u@db.example/x\"\n[chains.base]"),
        ] {
            assert_eq!(names(&config(&SAFE.replace(from, to))), [""; 0], "{to}");
        }
    }

    #[test]
    fn secrets_are_for_their_owner_and_group_only() {
        let secret = tempfile::NamedTempFile::new().unwrap();
        let mut config = config(SAFE);
        config.secrets.operator_token_file = Some(secret.path().to_owned());
        for (mode, expected) in [(0o600, false), (0o640, false), (0o644, true), (0o602, true)] {
            std::fs::set_permissions(secret.path(), PermissionsExt::from_mode(mode)).unwrap();
            assert_eq!(names(&config).contains(&"readable_secrets"), expected, "{mode:o}");
        }
    }

    #[test]
    fn allowed_settings_are_reported_and_others_refused() {
        let both = SAFE
            .replace("[chains.base]", "[kyt]\nallow_everything = true\n[chains.base]")
            .replace("https://two", "http://two");
        let refusal =
            config(&format!("{both}[unsafe]\nallow = [\"kyt_allow_everything\"]\n")).allowed_unsafe_settings();
        let refusal = refusal.unwrap_err().to_string();
        assert!(refusal.contains("http_endpoint") && !refusal.contains("kyt_allow_everything"), "{refusal}");
        let allowed = config(&format!("{both}[unsafe]\nallow = [\"kyt_allow_everything\", \"http_endpoint\"]\n"));
        assert_eq!(allowed.allowed_unsafe_settings().unwrap().len(), 2);
    }
}
