//! `payferry bench`: this project's figures, measured. Each stands beside its goal and, where there is one, beside a bound
//! that was measured in the same run on the same machine.
//!
//! The service is a process of its own, under load from this one over loopback. What was acknowledged is read back: a
//! figure with lost or wrong payments is a failure, a slow one is not. Where two processes are measured in turns, whoever has
//! none is held. Deliberately absent: why it is slow (see `docs/profiling.md`).

mod beside;
mod books;
mod bound;
mod crowd;
mod customers;
mod drive;
mod heard;
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
mod spread;
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
///
/// A row that cannot be measured is one that is wrong; the others are measured all the same.
pub async fn run(options: &Options, mut told: impl FnMut(&str)) -> anyhow::Result<Vec<Line>> {
    if options.postgres.is_none() && options.rows.contains(&Row::InitiatePostgres) {
        bail!("{} needs --postgres URL", Row::InitiatePostgres.name());
    }
    let world = World::make(options.folder.clone())?;
    let mut lines = Vec::new();
    let mut of_crowd: Vec<Row> = options.rows.iter().copied().filter(|row| crowd::ROWS.contains(row)).collect();
    for row in &options.rows {
        // One crowd serves several rows, the first time that one of them is asked for.
        let of_crowd = if crowd::ROWS.contains(row) { std::mem::take(&mut of_crowd) } else { Vec::new() };
        if crowd::ROWS.contains(row) && of_crowd.is_empty() {
            continue;
        }
        told(&row.name());
        let before = Host::now();
        let measured = match measure(&world, options, *row, &of_crowd).await {
            Ok(measured) => measured,
            Err(error) => vec![Line::unmeasured(row.name(), format!("{error:#}"))],
        };
        let taken = Host::took_since(before);
        lines.extend(measured.into_iter().map(|line| taken.iter().fold(line, Line::note)));
    }
    clean_up(options).await?;
    Ok(lines)
}

/// Removes the databases that a run has made on a server. Its folder goes by itself.
pub async fn clean_up(options: &Options) -> anyhow::Result<()> {
    match &options.postgres {
        Some(server) if options.rows.contains(&Row::InitiatePostgres) => {
            Engine::Postgres(server.clone()).clean_up(&initiate::DATABASES).await
        }
        _ => Ok(()),
    }
}

async fn measure(world: &World, options: &Options, row: Row, of_crowd: &[Row]) -> anyhow::Result<Vec<Line>> {
    let Options { time, quick, .. } = *options;
    match row {
        Row::Initiate => initiate::measure(world, &Engine::Sqlite, time, quick).await,
        Row::InitiatePostgres => {
            let server = options.postgres.clone().context("there is no server")?;
            initiate::measure(world, &Engine::Postgres(server), time, quick).await
        }
        Row::Complete => life::complete(world, time, quick).await,
        Row::Finality => life::finality(world, time, quick).await,
        Row::Bookkeeping => books::measure(world, time, quick).await,
        Row::Postings => postings::measure(world, quick).await,
        Row::Reconcile => reconcile::measure(world, quick).await,
        Row::Memory | Row::Pages | Row::Cpu | Row::Rehydration => crowd::measure(world, of_crowd, time, quick).await,
        Row::CustomersCreate => customers::create(world, time).await,
        Row::CustomersList => customers::list(world, time, quick).await,
        Row::Webhooks => webhooks::measure(world, quick).await,
    }
}
