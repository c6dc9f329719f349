//! The data folder: holds all data of a sandbox and is locked by one process at a time.
//!
//! Foreign files in the folder are left unchanged.

use std::fs::{self, File, OpenOptions, TryLockError};
use std::io;
use std::path::{Path, PathBuf};

use anyhow::Context;
use payferry_domain::Chain;
use payferry_runtime::files::write_private;
use serde::Serialize;
use serde::de::DeserializeOwned;

/// Default data folder.
pub const DEFAULT_FOLDER: &str = "payferry-data";

/// A locked data folder. An ephemeral folder is removed on drop.
#[derive(Debug)]
pub struct Folder {
    path: PathBuf,
    ephemeral: bool,
    _lock: File,
}

impl Folder {
    /// Opens or creates the folder and locks it. Fails while another process has locked it.
    pub fn open(path: &Path) -> anyhow::Result<Self> {
        fs::create_dir_all(path).with_context(|| format!("the data folder {} cannot be created", path.display()))?;
        // Absolute, so that printed commands work in any folder.
        let path =
            path.canonicalize().with_context(|| format!("the data folder {} cannot be opened", path.display()))?;
        let lock = lock(&path)?.with_context(|| in_use(&path))?;
        Ok(Self { path, ephemeral: false, _lock: lock })
    }

    /// Opens an existing folder; `None` while another process has locked it.
    pub fn open_unused(path: &Path) -> anyhow::Result<Option<Self>> {
        let path =
            path.canonicalize().with_context(|| format!("the data folder {} cannot be opened", path.display()))?;
        let lock = lock(&path)?;
        Ok(lock.map(|lock| Self { path, ephemeral: false, _lock: lock }))
    }

    /// Creates a folder below the system's temporary folder, readable by its owner only.
    pub fn ephemeral() -> anyhow::Result<Self> {
        let name = format!("payferry-{}-{:016x}", std::process::id(), rand::random::<u64>());
        let path = std::env::temp_dir().join(name);
        let mut builder = fs::DirBuilder::new();
        #[cfg(unix)]
        std::os::unix::fs::DirBuilderExt::mode(&mut builder, 0o700);
        builder.create(&path).with_context(|| format!("{} cannot be created", path.display()))?;
        let lock = lock(&path)?.with_context(|| in_use(&path))?;
        Ok(Self { path, ephemeral: true, _lock: lock })
    }

    /// Path of the folder.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Path of a chain's blocks.
    pub fn chain(&self, chain: Chain) -> PathBuf {
        self.path.join(format!("{chain}.chain"))
    }

    /// Path of the clock offset.
    pub fn clock(&self) -> PathBuf {
        self.path.join("clock.json")
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        if self.ephemeral {
            // Files left after a failure are in the system's temporary folder, which the system cleans.
            let _ = fs::remove_dir_all(&self.path);
        }
    }
}

/// Path of the embedded database in a data folder.
pub fn database_file(folder: &Path) -> PathBuf {
    folder.join("payferry.db")
}

/// Path of the customers' documents in a data folder.
pub fn documents_folder(folder: &Path) -> PathBuf {
    folder.join("documents")
}

/// Path of the secrets in a data folder; readable by the owner only.
pub fn keys_file(folder: &Path) -> PathBuf {
    folder.join("keys.json")
}

fn in_use(path: &Path) -> String {
    format!("the data folder {} is in use by another process", path.display())
}

/// Locks the folder; `None` if another process has locked it.
fn lock(path: &Path) -> anyhow::Result<Option<File>> {
    let file = path.join("lock");
    let lock = OpenOptions::new().create(true).truncate(false).write(true).open(&file);
    let lock = lock.with_context(|| format!("{} cannot be created", file.display()))?;
    match lock.try_lock() {
        Ok(()) => Ok(Some(lock)),
        Err(TryLockError::WouldBlock) => Ok(None),
        Err(TryLockError::Error(error)) => Err(error).with_context(|| format!("{} cannot be locked", file.display())),
    }
}

/// Reads a JSON file; `None` if it does not exist.
pub fn read_json<T: DeserializeOwned>(file: &Path) -> anyhow::Result<Option<T>> {
    let text = match fs::read(file) {
        Ok(text) => text,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(error).with_context(|| format!("{} cannot be read", file.display())),
    };
    // The parser's error would quote the file, which may contain secrets.
    let parsed = serde_json::from_slice(&text).ok();
    parsed
        .map(Some)
        .with_context(|| format!("{} is damaged: it is not valid JSON of the expected form", file.display()))
}

/// Replaces a file atomically with JSON, readable by its owner only.
pub fn write_json<T: Serialize>(file: &Path, value: &T) -> anyhow::Result<()> {
    let mut text = serde_json::to_vec_pretty(value)?;
    text.push(b'\n');
    write_private(file, &text).with_context(|| format!("{} cannot be written", file.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn locks_the_folder_and_keeps_foreign_files() {
        let temp = tempfile::tempdir().unwrap();
        fs::write(temp.path().join("notes.txt"), "mine").unwrap();
        let folder = Folder::open(temp.path()).unwrap();
        let refused = Folder::open(temp.path()).unwrap_err().to_string();
        assert!(refused.contains("in use by another process"), "{refused}");
        drop(folder);
        Folder::open(temp.path()).unwrap();
        assert_eq!(fs::read_to_string(temp.path().join("notes.txt")).unwrap(), "mine");
    }

    #[test]
    fn removes_an_ephemeral_folder() {
        let folder = Folder::ephemeral().unwrap();
        let path = folder.path().to_owned();
        let keys = keys_file(&path);
        write_json(&keys, &"secret").unwrap();
        #[cfg(unix)]
        {
            use std::os::unix::fs::PermissionsExt;
            assert_eq!(fs::metadata(&keys).unwrap().permissions().mode() & 0o777, 0o600);
        }
        assert_eq!(read_json::<String>(&keys).unwrap().unwrap(), "secret");
        drop(folder);
        assert!(!path.exists());
    }

    #[test]
    fn error_names_a_damaged_file_without_quoting_it() {
        let temp = tempfile::tempdir().unwrap();
        let file = temp.path().join("keys.json");
        fs::write(&file, "{\"master_key\": \"hunter2").unwrap();
        let error = format!("{:#}", read_json::<serde_json::Value>(&file).unwrap_err());
        assert!(error.contains("keys.json is damaged") && !error.contains("hunter2"), "{error}");
    }
}
