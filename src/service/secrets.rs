//! Reads the secret files. Errors never contain file contents.

use std::path::Path;

use anyhow::{Context, bail, ensure};
use payferry_evm::inspect::RoleKeys;
use payferry_evm::wallet::{OperatorSigner, RemoteKey};
use payferry_runtime::seal::{MasterKeys, Sealer};
use zeroize::Zeroizing;

use crate::config::{Config, Endpoint, Environment, SignerSection, is_local};

/// Minimum length of an operator token, characters.
pub const OPERATOR_TOKEN_CHARS_MIN: usize = 16;

/// Returns the sealer of secrets and API key hashes.
pub fn sealer(config: &Config) -> anyhow::Result<Sealer> {
    Ok(Sealer::of(&master_keys(config)?))
}

/// Reads the master keys of all versions.
pub fn master_keys(config: &Config) -> anyhow::Result<MasterKeys> {
    let Some(file) = &config.secrets.master_key_file else {
        bail!("`secrets.master_key_file` is not set: set it to a file with 64 hexadecimal digits");
    };
    // The parse error does not quote the keys.
    read(file)?.parse().with_context(|| format!("cannot parse the master key {}", file.display()))
}

/// Reads the token of the operator's listener.
pub fn operator_token(config: &Config) -> anyhow::Result<Zeroizing<String>> {
    let Some(file) = &config.secrets.operator_token_file else {
        bail!("`secrets.operator_token_file` is not set: set it to a file with the operator's bearer token");
    };
    let token = Zeroizing::new(read(file)?.trim().to_owned());
    ensure!(
        token.len() >= OPERATOR_TOKEN_CHARS_MIN,
        "the operator token {}: expected at least {OPERATOR_TOKEN_CHARS_MIN} characters",
        file.display()
    );
    Ok(token)
}

/// Signers of the contract's roles.
#[derive(Debug, Clone)]
pub struct Signers {
    /// Signs settlements.
    pub settler: OperatorSigner,
    /// Signs outbound transfers.
    pub sender: OperatorSigner,
}

impl Signers {
    /// Their accounts.
    pub fn keys(&self) -> RoleKeys {
        RoleKeys { settler: self.settler.address(), sender: self.sender.address() }
    }
}

/// Reads both signers. In production, a key that settles must not be able to send as well.
pub fn signers(config: &Config) -> anyhow::Result<Signers> {
    let is_production = config.server.environment == Environment::Production;
    let [settler, sender] = config.signer.each().map(|(role, section)| {
        let name = format!("signer.{role}");
        if is_production {
            check_protection(&name, section)?;
        }
        signer(&name, section)
    });
    let signers = Signers { settler: settler?, sender: sender? };
    ensure!(
        !is_production || signers.settler.address() != signers.sender.address(),
        "`signer.settler` and `signer.sender` are the same account, {}: in production each needs a key of its own",
        signers.settler.address()
    );
    Ok(signers)
}

/// Checks the connection to a remote signer on another machine: it signs for every client that it accepts.
fn check_protection(name: &str, section: &SignerSection) -> anyhow::Result<()> {
    let Some(url) = section.remote_url.as_ref().filter(|url| !is_local(url.expose())) else { return Ok(()) };
    ensure!(
        url.expose().scheme() == "https",
        "`{name}.remote_url`: the connection to {url} is not encrypted; in production use https"
    );
    ensure!(
        section.remote_client_certificate_file.is_some(),
        "`{name}.remote_client_certificate_file` is not set: in production {url} must require a client certificate"
    );
    Ok(())
}

/// Reads the signer of a section.
pub fn signer(name: &str, section: &SignerSection) -> anyhow::Result<OperatorSigner> {
    let SignerSection { private_key_file, keystore_file, mnemonic_file, remote_url, .. } = section;
    let one_of = || {
        ["private_key_file", "keystore_file", "mnemonic_file", "remote_url"]
            .map(|key| format!("`{name}.{key}`"))
            .join(", ")
    };
    match (private_key_file, keystore_file, mnemonic_file, remote_url) {
        (Some(file), None, None, None) => {
            OperatorSigner::from_private_key(&read(file)?).with_context(|| file.display().to_string())
        }
        (None, Some(file), None, None) => {
            let Some(password) = &section.keystore_password_file else {
                bail!("`{name}.keystore_password_file` is not set: set it to a file with the keystore's password");
            };
            let password = read(password)?;
            OperatorSigner::from_keystore(file, password.trim_end_matches(['\r', '\n']))
                .with_context(|| file.display().to_string())
        }
        (None, None, Some(file), None) => OperatorSigner::from_mnemonic(read(file)?.trim(), section.mnemonic_index)
            .with_context(|| file.display().to_string()),
        (None, None, None, Some(url)) => remote_signer(name, section, url),
        (None, None, None, None) => bail!("no signer: set one of {}", one_of()),
        _ => bail!("several signers: set only one of {}", one_of()),
    }
}

fn remote_signer(name: &str, section: &SignerSection, url: &Endpoint) -> anyhow::Result<OperatorSigner> {
    let Some(address) = section.remote_address else {
        bail!("`{name}.remote_address` is not set: set it to the account of the key at {url}");
    };
    let identifier = section.remote_identifier.trim();
    ensure!(!identifier.is_empty(), "`{name}.remote_identifier` is not set: set it to the name of the key at {url}");
    let identity = match (&section.remote_client_certificate_file, &section.remote_client_key_file) {
        (Some(certificate), Some(key)) => Some(Zeroizing::new(format!("{}\n{}", *read(certificate)?, *read(key)?))),
        (None, None) => None,
        _ => bail!("set both `{name}.remote_client_certificate_file` and `{name}.remote_client_key_file`, or none"),
    };
    let authorities = section.remote_ca_certificate_file.as_deref().map(read).transpose()?;
    let key = RemoteKey {
        url: url.expose(),
        address,
        identifier,
        client_identity: identity.as_ref().map(|pem| pem.as_bytes()),
        authorities: authorities.as_ref().map(|pem| pem.as_bytes()),
    };
    OperatorSigner::from_remote(key).with_context(|| format!("`{name}.remote_url`"))
}

/// Reads a file. Its content is overwritten when it is dropped.
pub(crate) fn read(file: &Path) -> anyhow::Result<Zeroizing<String>> {
    std::fs::read_to_string(file).map(Zeroizing::new).with_context(|| file.display().to_string())
}
