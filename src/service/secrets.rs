//! Reads the secret files. Errors never contain file contents.

use std::path::Path;

use anyhow::{Context, bail, ensure};
use payferry_evm::inspect::RoleKeys;
use payferry_evm::wallet::OperatorSigner;
use payferry_runtime::seal::{MasterKeys, Sealer};
use zeroize::Zeroizing;

use crate::config::{Config, Environment, SignerSection};

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
    let [settler, sender] = config.signer.each().map(|(role, section)| signer(&format!("signer.{role}"), section));
    let signers = Signers { settler: settler?, sender: sender? };
    ensure!(
        config.server.environment != Environment::Production || signers.settler.address() != signers.sender.address(),
        "`signer.settler` and `signer.sender` are the same account, {}: in production each needs a key of its own",
        signers.settler.address()
    );
    Ok(signers)
}

/// Reads the signer of a section.
pub fn signer(section: &str, config: &SignerSection) -> anyhow::Result<OperatorSigner> {
    let SignerSection { private_key_file, keystore_file, keystore_password_file, mnemonic_file, mnemonic_index } =
        config;
    let one_of =
        || format!("one of `{section}.private_key_file`, `{section}.keystore_file`, `{section}.mnemonic_file`");
    match (private_key_file, keystore_file, mnemonic_file) {
        (Some(file), None, None) => {
            OperatorSigner::from_private_key(&read(file)?).with_context(|| file.display().to_string())
        }
        (None, Some(file), None) => {
            let Some(password) = keystore_password_file else {
                bail!("`{section}.keystore_password_file` is not set: set it to a file with the keystore's password");
            };
            let password = read(password)?;
            OperatorSigner::from_keystore(file, password.trim_end_matches(['\r', '\n']))
                .with_context(|| file.display().to_string())
        }
        (None, None, Some(file)) => OperatorSigner::from_mnemonic(read(file)?.trim(), *mnemonic_index)
            .with_context(|| file.display().to_string()),
        (None, None, None) => bail!("no signer: set {}", one_of()),
        _ => bail!("several signers: set only {}", one_of()),
    }
}

/// Reads a file. Its content is overwritten when it is dropped.
pub(crate) fn read(file: &Path) -> anyhow::Result<Zeroizing<String>> {
    std::fs::read_to_string(file).map(Zeroizing::new).with_context(|| file.display().to_string())
}
