//! Writes a statement chunk by chunk.

use async_stream::try_stream;
use futures::stream::BoxStream;
use futures::{Stream, StreamExt, TryStreamExt};
use payferry_entities::Database;
use sea_orm::DbErr;

use super::entries::Reading;
use super::summary::{Summary, summaries};
use super::{StatementAccount, Tokens, Wanted, csv, json};

/// Format of a statement.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, clap::ValueEnum)]
pub enum Format {
    /// CSV (RFC 4180).
    Csv,
    /// A JSON object.
    #[default]
    Json,
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
pub struct Statement(BoxStream<'static, Result<Vec<u8>, StatementError>>);

impl Statement {
    /// Reads the balances and totals. Entries are read while the statement is written.
    pub async fn begin(database: Database, wanted: Wanted, tokens: &Tokens, format: Format) -> Result<Self, DbErr> {
        let summaries = summaries(&database, &wanted, tokens).await?;
        Ok(Self(chunks(database, wanted, summaries, format).boxed()))
    }

    /// The next part of the text; `None` after the last.
    pub async fn chunk(&mut self) -> Result<Option<Vec<u8>>, StatementError> {
        self.0.try_next().await
    }
}

fn chunks(
    database: Database,
    wanted: Wanted,
    summaries: Vec<Summary>,
    format: Format,
) -> impl Stream<Item = Result<Vec<u8>, StatementError>> {
    try_stream! {
        yield match format {
            Format::Csv => csv::head()?,
            Format::Json => json::head(&wanted)?,
        };
        for (place, summary) in summaries.iter().enumerate() {
            let account = StatementAccount::of(summary);
            yield match format {
                Format::Csv => csv::account_begins(&account, wanted.period)?,
                Format::Json => json::account_begins(&account, place)?,
            };
            let (mut reading, mut written) = (Reading::of(summary), 0);
            while let Some(entries) = reading.page(&database, &wanted, summary).await? {
                if entries.is_empty() {
                    continue;
                }
                yield match format {
                    Format::Csv => csv::entries(&account, &entries)?,
                    Format::Json => json::entries(&entries, written)?,
                };
                written += entries.len();
            }
            if reading.balance() != summary.closing {
                Err(StatementError::Broken(format!("{} on {}", summary.address, summary.chain)))?;
            }
            yield match format {
                Format::Csv => csv::account_ends(&account, wanted.period)?,
                Format::Json => json::END.to_vec(),
            };
        }
        if format == Format::Json {
            yield json::END.to_vec();
        }
    }
}
