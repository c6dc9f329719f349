//! Prevents a second service on the same database.
//!
//! A running service caches live wallets in memory, and its webhook sender and settlers expect to be the only ones. On
//! SQLite a service locks the file, and on PostgreSQL the session of its journal holds a lock (`writer_lock`). Not here:
//! commands that read or change a setting beside a running service, which are allowed.

use std::fs::{File, TryLockError};
use std::path::PathBuf;
use std::time::{Duration, Instant};

use sea_orm::{DbBackend, DbErr};

use crate::Database;
use crate::database::{private_file, sqlite_file};

/// Time to wait for a service that is shutting down, or whose end the server has not noticed yet.
pub const HOLD_PATIENCE: Duration = Duration::from_secs(30);
/// Delay between attempts.
const PAUSE: Duration = Duration::from_millis(100);
/// Suffix of the lock file.
const SUFFIX: &str = "-service";

/// Holds the lock until it is dropped or the process ends.
#[derive(Debug)]
pub struct Hold {
    _file: Option<File>,
}

impl Database {
    /// Locks the database for this service. Fails if another service still holds the lock after [`HOLD_PATIENCE`].
    /// In-memory databases need no lock.
    pub async fn hold(&self) -> Result<Hold, DbErr> {
        self.hold_within(HOLD_PATIENCE).await
    }

    async fn hold_within(&self, patience: Duration) -> Result<Hold, DbErr> {
        self.hold_journal(patience).await?;
        let path = if self.backend() == DbBackend::Sqlite { sqlite_file(self.reader()).await? } else { None };
        let Some(path) = path else { return Ok(Hold { _file: None }) };
        let mut lock = path.clone().into_os_string();
        lock.push(SUFFIX);
        let lock = PathBuf::from(lock);
        let failed = |error: &dyn std::fmt::Display| DbErr::Custom(format!("{}: {error}", lock.display()));
        let file = private_file().create(true).truncate(false).open(&lock);
        let file = file.map_err(|error| failed(&error))?;
        let until = Instant::now() + patience;
        loop {
            match file.try_lock() {
                Ok(()) => return Ok(Hold { _file: Some(file) }),
                Err(TryLockError::WouldBlock) if Instant::now() < until => tokio::time::sleep(PAUSE).await,
                Err(TryLockError::WouldBlock) => {
                    let path = path.display();
                    return Err(DbErr::Custom(format!("another running service uses {path}; stop it first")));
                }
                Err(TryLockError::Error(error)) => return Err(failed(&error)),
            }
        }
    }

    async fn hold_journal(&self, patience: Duration) -> Result<(), DbErr> {
        let until = Instant::now() + patience;
        while let Some(holder) = self.take_writer_lock().await? {
            if Instant::now() >= until {
                return Err(DbErr::Custom(format!("{holder}; stop it first")));
            }
            tokio::time::sleep(PAUSE).await;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use sea_orm::ConnectionTrait;

    use super::*;

    #[tokio::test]
    async fn only_one_service_can_hold_the_file() {
        let folder = tempfile::tempdir().unwrap();
        let url = format!("sqlite://{}?mode=rwc", folder.path().join("test.db").display());
        let (first, second) = (Database::open(&url).await.unwrap(), Database::open(&url).await.unwrap());
        let held = first.hold_within(Duration::ZERO).await.unwrap();
        let refused = second.hold_within(Duration::ZERO).await.unwrap_err().to_string();
        assert!(refused.contains("test.db") && refused.contains("another running service"), "{refused}");
        // Commands that only read or change a setting are not blocked.
        second.writer().execute_unprepared("CREATE TABLE things (id INTEGER)").await.unwrap();
        // Waits for a service that is shutting down.
        let waiting = tokio::spawn(async move { second.hold().await.map(|_| second) });
        tokio::time::sleep(PAUSE).await;
        assert!(!waiting.is_finished());
        drop(held);
        waiting.await.unwrap().unwrap();
    }
}
