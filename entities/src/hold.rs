//! Keeps a second service away from the same file of SQLite.
//!
//! A running service knows the wallets of its live payments by heart: beside another that makes payments in the same file, money
//! would come to wallets that it does not know. PostgreSQL has an index of them all. Deliberately absent: commands that change a
//! setting or read beside a running service, which may.

use std::fs::{File, OpenOptions, TryLockError};
use std::path::PathBuf;
use std::time::{Duration, Instant};

use sea_orm::{DbBackend, DbErr};

use crate::Database;
use crate::database::sqlite_file;

/// How long a service that is just ending is waited for.
pub const HOLD_PATIENCE: Duration = Duration::from_secs(30);
/// Between two tries.
const PAUSE: Duration = Duration::from_millis(100);
/// What is put behind the name of the database's file.
const SUFFIX: &str = "-service";

/// The file is held until this is dropped, or the process ends.
#[derive(Debug)]
pub struct Hold {
    _file: Option<File>,
}

impl Database {
    /// Holds SQLite's file for this service; fails if another still holds it after [`HOLD_PATIENCE`]. A database without a file,
    /// or of PostgreSQL, need not be held.
    pub async fn hold(&self) -> Result<Hold, DbErr> {
        self.hold_within(HOLD_PATIENCE).await
    }

    async fn hold_within(&self, patience: Duration) -> Result<Hold, DbErr> {
        let path = if self.backend() == DbBackend::Sqlite { sqlite_file(self.reader()).await? } else { None };
        let Some(path) = path else { return Ok(Hold { _file: None }) };
        let mut lock = path.clone().into_os_string();
        lock.push(SUFFIX);
        let lock = PathBuf::from(lock);
        let failed = |error: &dyn std::fmt::Display| DbErr::Custom(format!("{}: {error}", lock.display()));
        let file = OpenOptions::new().create(true).truncate(false).write(true).open(&lock);
        let file = file.map_err(|error| failed(&error))?;
        let until = Instant::now() + patience;
        loop {
            match file.try_lock() {
                Ok(()) => return Ok(Hold { _file: Some(file) }),
                Err(TryLockError::WouldBlock) if Instant::now() < until => tokio::time::sleep(PAUSE).await,
                Err(TryLockError::WouldBlock) => {
                    let path = path.display();
                    return Err(DbErr::Custom(format!("another running service has the database {path}")));
                }
                Err(TryLockError::Error(error)) => return Err(failed(&error)),
            }
        }
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use sea_orm::ConnectionTrait;

    use super::*;

    #[tokio::test]
    async fn a_file_is_held_by_one_service_at_a_time() {
        let folder = tempfile::tempdir().unwrap();
        let url = format!("sqlite://{}?mode=rwc", folder.path().join("test.db").display());
        let (first, second) = (Database::open(&url).await.unwrap(), Database::open(&url).await.unwrap());
        let held = first.hold_within(Duration::ZERO).await.unwrap();
        let refused = second.hold_within(Duration::ZERO).await.unwrap_err().to_string();
        assert!(refused.ends_with("test.db") && refused.contains("another running service"), "{refused}");
        // Whoever only reads or changes a setting is not kept away.
        second.writer().execute_unprepared("CREATE TABLE things (id INTEGER)").await.unwrap();
        // One that is just ending is waited for.
        let waiting = tokio::spawn(async move { second.hold().await.map(|_| second) });
        tokio::time::sleep(PAUSE).await;
        assert!(!waiting.is_finished());
        drop(held);
        waiting.await.unwrap().unwrap();
    }
}
