//! A copy of the archive, with its paths and addresses set to this copy's.

use std::path::{Path, PathBuf};
use std::process::Command;

use payferry_harness::database::TestDatabase;
use tempfile::TempDir;

use crate::prelude::*;

const ARCHIVE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/compat/7996220.tar.gz");

/// The unpacked archive, removed when this is dropped.
pub struct Archive {
    folder: TempDir,
    pub recorded: Value,
}

impl Archive {
    pub fn open() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let unpacked = Command::new("tar").arg("-xzf").arg(ARCHIVE).arg("-C").arg(folder.path()).status().unwrap();
        assert!(unpacked.success(), "{ARCHIVE} cannot be unpacked");
        let recorded = std::fs::read(folder.path().join("recorded.json")).unwrap();
        Self { recorded: serde_json::from_slice(&recorded).unwrap(), folder }
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// Rewrites the configuration of a service, which names places of the machine that it was made on. Returns its path.
    pub fn configure(&self, name: &str, sandbox_url: &str, database_url: &str) -> PathBuf {
        let (recorded, file) = (&self.recorded[name], self.path(name).join("payferry.toml"));
        let made = std::fs::read_to_string(&file).unwrap();
        let text = |value: &Value| value.as_str().unwrap().to_owned();
        // The database first: its path begins with the folder's.
        let text = [
            (text(&recorded["database"]), database_url),
            (text(&recorded["folder"]), path(&self.path(name))),
            (text(&self.recorded["sandbox"]["api_url"]), sandbox_url),
        ]
        .iter()
        .fold(made, |made, (from, to)| made.replace(from, to));
        std::fs::write(&file, text).unwrap();
        file
    }

    /// A database with the dump of the service on PostgreSQL.
    pub async fn postgres(&self) -> TestDatabase {
        let database = TestDatabase::empty_postgres().await;
        let dump = std::fs::read_to_string(self.path("postgres").join("dump.sql")).unwrap();
        let connection = database.connect().await;
        connection.execute_unprepared(&dump).await.unwrap();
        connection.close().await.unwrap();
        database
    }
}

fn path(path: &Path) -> &str {
    path.to_str().unwrap()
}
