//! Writes a statement chunk by chunk.

use std::collections::VecDeque;
use std::fmt;
use std::str::FromStr;

use payferry_entities::Database;
use sea_orm::DbErr;

use super::entries::Reading;
use super::summary::{Summary, summaries};
use super::{Tokens, Wanted, csv, json};

/// Format of a statement.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, clap::ValueEnum)]
pub enum Format {
    /// CSV (RFC 4180).
    Csv,
    /// A JSON object.
    #[default]
    Json,
}

impl FromStr for Format {
    type Err = payferry_domain::money::UnknownName;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        match text {
            "csv" => Ok(Self::Csv),
            "json" => Ok(Self::Json),
            _ => Err(Self::Err { expected: "csv, json" }),
        }
    }
}

impl fmt::Display for Format {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Csv => "csv",
            Self::Json => "json",
        })
    }
}

/// Reason why a statement is interrupted.
#[derive(Debug, thiserror::Error)]
pub enum StatementError {
    /// The database did not answer.
    #[error("the database is not available: {0}")]
    Database(#[from] DbErr),
    /// It cannot be serialised.
    #[error("the statement cannot be serialised: {0}")]
    Written(#[from] std::io::Error),
    /// The entries do not add up to the closing balance: a bug.
    #[error("the entries of {0} do not add up to its closing balance")]
    Broken(String),
}

/// A statement that is being written.
pub struct Statement {
    database: Database,
    wanted: Wanted,
    format: Format,
    waiting: VecDeque<Summary>,
    current: Option<(Summary, Reading)>,
    accounts: usize,
    entries_of_account: usize,
    stage: Stage,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Stage {
    Begin,
    Accounts,
    Over,
}

impl Statement {
    /// Reads the balances and totals. Entries are read while the statement is written.
    pub async fn begin(database: Database, wanted: Wanted, tokens: &Tokens, format: Format) -> Result<Self, DbErr> {
        let waiting = summaries(&database, &wanted, tokens).await?.into();
        let (current, stage) = (None, Stage::Begin);
        Ok(Self { database, wanted, format, waiting, current, accounts: 0, entries_of_account: 0, stage })
    }

    /// The next part of the text; `None` after the last.
    pub async fn chunk(&mut self) -> Result<Option<Vec<u8>>, StatementError> {
        let mut chunk = Vec::new();
        while chunk.is_empty() {
            match self.stage {
                Stage::Over => return Ok(None),
                Stage::Begin => {
                    match self.format {
                        Format::Csv => csv::head(&mut chunk)?,
                        Format::Json => json::head(&mut chunk, &self.wanted)?,
                    }
                    self.stage = Stage::Accounts;
                }
                Stage::Accounts => self.accounts_chunk(&mut chunk).await?,
            }
        }
        Ok(Some(chunk))
    }

    async fn accounts_chunk(&mut self, chunk: &mut Vec<u8>) -> Result<(), StatementError> {
        let Some((account, reading)) = &mut self.current else {
            let Some(account) = self.waiting.pop_front() else {
                if self.format == Format::Json {
                    json::tail(chunk);
                }
                self.stage = Stage::Over;
                return Ok(());
            };
            match self.format {
                Format::Csv => csv::account_begins(chunk, &account.shown(), self.wanted.period)?,
                Format::Json => json::account_begins(chunk, &account.shown(), self.accounts)?,
            }
            (self.accounts, self.entries_of_account) = (self.accounts + 1, 0);
            self.current = Some((account.clone(), Reading::of(&account)));
            return Ok(());
        };
        if let Some(entries) = reading.page(&self.database, &self.wanted, account).await? {
            match self.format {
                Format::Csv => csv::entries(chunk, &account.shown(), &entries)?,
                Format::Json => json::entries(chunk, &entries, self.entries_of_account)?,
            }
            self.entries_of_account += entries.len();
            return Ok(());
        }
        if reading.balance() != account.closing {
            return Err(StatementError::Broken(format!("{} on {}", account.address, account.chain)));
        }
        match self.format {
            Format::Csv => csv::account_ends(chunk, &account.shown(), self.wanted.period)?,
            Format::Json => json::account_ends(chunk),
        }
        self.current = None;
        Ok(())
    }
}
