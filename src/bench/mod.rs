//! `payferry bench`: this project's figures, measured. Each stands beside its goal and, where there is one, beside a bound
//! that was measured in the same run on the same machine.
//!
//! The service is a process of its own, under load from this one over loopback. What was acknowledged is read back: a
//! figure with lost or wrong payments is a failure, a slow one is not. Where two processes are measured in turns, whoever has
//! none is held. Deliberately absent: why it is slow (see `docs/profiling.md`).

mod books;
mod bound;
mod crowd;
mod customers;
mod drive;
mod hold;
mod host;
mod initiate;
mod life;
mod pages;
mod postings;
mod psp;
mod reconcile;
mod rows;
mod service;
mod table;
mod webhooks;
mod world;

use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context, bail};
use url::Url;

pub use bound::serve as serve_bound;
use host::Host;
pub use service::BOUND_DATABASE_URL;
pub use table::{Bound, Goal, Line, render};
use world::{Engine, World};

/// What can be measured.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, clap::ValueEnum, serde::Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Row {
    /// Payments initiated a second over HTTP, with SQLite.
    Initiate,
    /// The same with PostgreSQL.
    InitiatePostgres,
    /// Whole lives of payments a second: initiated, paid, confirmed, settled, told.
    Complete,
    /// From a payment's final block to its first webhook.
    Finality,
    /// Memory of a live payment among 100,000.
    Memory,
    /// The operator's slowest page beside 100,000 live payments.
    Pages,
    /// CPU time of a payment's whole life beside 100,000 live ones, to that beside 1,000.
    Cpu,
    /// How fast 100,000 payments are live again after a kill.
    Rehydration,
    /// Webhooks delivered a second.
    Webhooks,
    /// What the actors' bookkeeping costs.
    Bookkeeping,
    /// What the ledger's postings cost a settled payment.
    Postings,
    /// How long reconciling 100,000 settled payments takes, less what the chain's endpoint takes.
    Reconcile,
    /// Customers made a second over HTTP, with SQLite.
    CustomersCreate,
    /// Searches by email a second in a list of 10,000 customers, with SQLite.
    CustomersList,
}

impl Row {
    /// All of them, in the order of the table.
    pub const ALL: [Self; 14] = [
        Self::Initiate,
        Self::InitiatePostgres,
        Self::Complete,
        Self::Finality,
        Self::Memory,
        Self::Pages,
        Self::Cpu,
        Self::Rehydration,
        Self::Webhooks,
        Self::Bookkeeping,
        Self::Postings,
        Self::Reconcile,
        Self::CustomersCreate,
        Self::CustomersList,
    ];

    /// By which it is asked for.
    pub fn name(self) -> String {
        use clap::ValueEnum as _;
        self.to_possible_value().map(|value| value.get_name().to_owned()).unwrap_or_default()
    }
}

/// What is measured, and for how long.
#[derive(Debug, Clone)]
pub struct Options {
    /// Which rows.
    pub rows: Vec<Row>,
    /// How long each measurement takes, where that is open.
    pub time: Duration,
    /// Small and short: to see that it works.
    pub quick: bool,
    /// A PostgreSQL server on which databases may be made.
    pub postgres: Option<Url>,
    /// Where databases are made, and removed again; the temporary folder if none is named.
    pub folder: Option<PathBuf>,
}

/// Measures, and tells of each row when it is done.
pub async fn run(options: &Options, mut told: impl FnMut(&str)) -> anyhow::Result<Vec<Line>> {
    let world = World::make(options.folder.clone())?;
    let mut lines = Vec::new();
    let mut of_crowd: Vec<Row> = options.rows.iter().copied().filter(|row| crowd::ROWS.contains(row)).collect();
    for row in &options.rows {
        told(&row.name());
        let before = Host::now();
        let measured = match row {
            Row::Initiate => initiate::measure(&world, &Engine::Sqlite, options.time, options.quick).await,
            Row::InitiatePostgres => {
                let Some(server) = &options.postgres else {
                    bail!("{} needs --postgres URL", row.name());
                };
                let engine = Engine::Postgres(server.clone());
                let measured = initiate::measure(&world, &engine, options.time, options.quick).await;
                engine.clean_up(&["initiate", "bound"]).await?;
                measured
            }
            Row::Complete => life::complete(&world, options.time, options.quick).await,
            Row::Finality => life::finality(&world, options.time, options.quick).await,
            Row::Bookkeeping => books::measure(&world, options.time, options.quick).await,
            Row::Postings => postings::measure(&world, options.quick).await,
            Row::Reconcile => reconcile::measure(&world, options.quick).await,
            Row::Memory | Row::Pages | Row::Cpu | Row::Rehydration => {
                // One crowd serves all four, the first time that one of them is asked for.
                let wanted = std::mem::take(&mut of_crowd);
                if wanted.is_empty() {
                    continue;
                }
                crowd::measure(&world, &wanted, options.time, options.quick).await
            }
            Row::CustomersCreate => customers::create(&world, options.time).await,
            Row::CustomersList => customers::list(&world, options.time, options.quick).await,
            Row::Webhooks => webhooks::measure(&world, options.quick).await,
        };
        let measured = measured.with_context(|| format!("{} could not be measured", row.name()))?;
        let taken = Host::took_since(before);
        lines.extend(measured.into_iter().map(|line| taken.iter().fold(line, Line::note)));
    }
    Ok(lines)
}
