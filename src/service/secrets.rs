//! Reads the secret files. Errors never contain file contents.

use std::path::Path;

use anyhow::{Context, bail, ensure};
use payferry_evm::wallet::OperatorSigner;
use payferry_runtime::seal::{MasterKeys, Sealer};
use zeroize::Zeroizing;

use crate::config::{Config, SignerSection};

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

/// Reads the account that signs settlements and pays for gas.
pub fn signer(config: &SignerSection) -> anyhow::Result<OperatorSigner> {
    let SignerSection { private_key_file, keystore_file, keystore_password_file, mnemonic_file, mnemonic_index } =
        config;
    match (private_key_file, keystore_file, mnemonic_file) {
        (Some(file), None, None) => {
            OperatorSigner::from_private_key(&read(file)?).with_context(|| file.display().to_string())
        }
        (None, Some(file), None) => {
            let Some(password) = keystore_password_file else {
                bail!("`signer.keystore_password_file` is not set: set it to a file with the keystore's password");
            };
            let password = read(password)?;
            OperatorSigner::from_keystore(file, password.trim_end_matches(['\r', '\n']))
                .with_context(|| file.display().to_string())
        }
        (None, None, Some(file)) => OperatorSigner::from_mnemonic(read(file)?.trim(), *mnemonic_index)
            .with_context(|| file.display().to_string()),
        (None, None, None) => {
            bail!("no signer: set one of `signer.private_key_file`, `signer.keystore_file`, `signer.mnemonic_file`")
        }
        _ => bail!(
            "several signers: set only one of `signer.private_key_file`, `signer.keystore_file`, `signer.mnemonic_file`"
        ),
    }
}

/// Reads a file. Its content is overwritten when it is dropped.
pub(crate) fn read(file: &Path) -> anyhow::Result<Zeroizing<String>> {
    std::fs::read_to_string(file).map(Zeroizing::new).with_context(|| file.display().to_string())
}
