//! The configured document store.

use payferry_accounts::documents::{Bucket, DocumentStore};
use payferry_runtime::seal::Sealer;

use super::secrets;
use crate::config::DocumentsSection;

/// Opens the bucket if one is named, else the folder.
pub fn store(config: &DocumentsSection, sealer: Sealer) -> anyhow::Result<DocumentStore> {
    let psp_bytes_max = config.psp_mib_max.get().saturating_mul(1024 * 1024);
    let Some(name) = &config.bucket else {
        return Ok(DocumentStore::in_folder(&config.folder, sealer)?.with_psp_bytes_max(psp_bytes_max));
    };
    let secret = |file: &Option<std::path::PathBuf>| -> anyhow::Result<Option<String>> {
        Ok(file.as_deref().map(secrets::read).transpose()?.map(|text| text.trim().to_owned()))
    };
    let bucket = Bucket {
        name: name.clone(),
        region: config.region.clone(),
        endpoint: config.endpoint.clone(),
        allow_http: config.allow_http,
        access_key_id: secret(&config.access_key_id_file)?,
        secret_access_key: secret(&config.secret_access_key_file)?,
    };
    Ok(DocumentStore::in_bucket(&bucket, sealer)?.with_psp_bytes_max(psp_bytes_max))
}
