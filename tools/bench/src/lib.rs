//! Benchmarks: figures of the service beside their goals and, where there is one, beside a bound that is measured in
//! the same run on the same machine.
//!
//! The service is a child process, under load from this process over loopback. What the service acknowledged is read
//! back: lost or wrong payments are a failure, a slow service is not. Deliberately absent: why it is slow (see
//! `docs/src/develop/profiling.md`).

mod against;
mod bare;
mod beside;
mod bound;
pub mod command;
mod complete;
mod copies;
mod counts;
mod customers;
mod drive;
mod env;
mod host;
mod initiate;
mod lifecycle;
mod many_live;
mod psp;
mod reconcile;
mod replay;
mod rounds;
mod table;
mod webhooks;

use anyhow::{Context, bail};
use clap::ValueEnum;

use command::Args;
use env::{Engine, Env};
use host::Host;
pub use table::{Bound, Goal, PROFILE, TableLine, render};

/// Rows of the table, in its order.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, ValueEnum)]
pub enum Row {
    /// Payments initiated per second over HTTP, with SQLite.
    Initiate,
    /// The same with PostgreSQL.
    InitiatePostgres,
    /// Highest sustained rate of complete payments: initiated, paid, confirmed, settled, webhooks received.
    Complete,
    /// Commits, statements, messages, system calls and allocations of a complete payment.
    Counts,
    /// Time from a payment's final block to its first webhook.
    Finality,
    /// Memory of a live payment among many (`--live`).
    Memory,
    /// The operator's slowest page beside many live payments.
    Pages,
    /// CPU time of a payment's lifecycle beside many live ones, compared with 1,000.
    Cpu,
    /// Time until many payments are live again after a kill.
    Rehydration,
    /// Webhooks delivered per second.
    Webhooks,
    /// Duration of reconciling 100,000 settled payments, without the time of the chain's endpoint.
    Reconcile,
    /// Transitions of 1,000,000 stored histories that are replayed per second of CPU time.
    Replay,
    /// Customers made per second over HTTP, with SQLite.
    CustomersCreate,
    /// Searches by email per second in a list of 10,000 customers, with SQLite.
    CustomersList,
}

impl Row {
    /// Returns the name on the command line.
    pub fn name(self) -> String {
        self.to_possible_value().map(|value| value.get_name().to_owned()).unwrap_or_default()
    }
}

impl Args {
    fn engine(&self, row: Row) -> anyhow::Result<Engine> {
        if row != Row::InitiatePostgres {
            return Ok(Engine::Sqlite);
        }
        let server = self.postgres.clone();
        Ok(Engine::Postgres(server.with_context(|| format!("{} needs --postgres URL", row.name()))?))
    }
}

/// Measures the rows. Calls `begin` with the name of each.
///
/// A row that cannot be measured has a line with the error. The other rows are still measured.
async fn run(options: &Args, mut begin: impl FnMut(&str)) -> anyhow::Result<Vec<TableLine>> {
    for row in &options.only {
        options.engine(*row)?;
        if options.against.is_some() && !against::ROWS.contains(row) {
            let known = against::ROWS.map(Row::name).join(", ");
            bail!("--against measures {known} only, not {}", row.name());
        }
    }
    let env = Env::make(options.folder.clone())?;
    let mut lines = Vec::new();
    let mut of_many: Vec<Row> = options.only.iter().copied().filter(|row| many_live::ROWS.contains(row)).collect();
    for row in &options.only {
        // The same live payments serve several rows, which are measured together.
        let of_many = if many_live::ROWS.contains(row) { std::mem::take(&mut of_many) } else { Vec::new() };
        if many_live::ROWS.contains(row) && of_many.is_empty() {
            continue;
        }
        begin(&row.name());
        let before = Host::now();
        let measured = match measure(&env, options, *row, &of_many).await {
            Ok(measured) => measured,
            Err(error) => vec![TableLine::unmeasured(row.name(), format!("{error:#}"))],
        };
        let stolen = Host::note_since(before);
        lines.extend(measured.into_iter().map(|line| stolen.iter().fold(line, TableLine::note)));
    }
    clean_up(options).await?;
    Ok(lines)
}

/// Removes the databases that a run has made on a server. The folder is removed by itself.
async fn clean_up(options: &Args) -> anyhow::Result<()> {
    if !options.only.contains(&Row::InitiatePostgres) {
        return Ok(());
    }
    let databases = if options.against.is_some() { against::DATABASES } else { initiate::DATABASES };
    options.engine(Row::InitiatePostgres)?.clean_up(&databases).await
}

async fn measure(env: &Env, options: &Args, row: Row, of_many: &[Row]) -> anyhow::Result<Vec<TableLine>> {
    let (time, quick) = (options.time(), options.quick);
    if let Some(other) = &options.against {
        return against::measure(env, &options.engine(row)?, row, other, (time, quick)).await;
    }
    match row {
        Row::Initiate | Row::InitiatePostgres => initiate::measure(env, &options.engine(row)?, time, quick).await,
        Row::Complete => complete::measure(env, time, quick).await,
        Row::Counts => counts::measure(env, quick).await,
        Row::Finality => lifecycle::finality(env, time, quick).await,
        Row::Memory | Row::Pages | Row::Cpu | Row::Rehydration => {
            many_live::measure(env, of_many, options.live() as usize, time, quick).await
        }
        Row::Webhooks => webhooks::measure(env, quick).await,
        Row::Reconcile => reconcile::measure(env, quick).await,
        Row::Replay => replay::measure(env, quick).await,
        Row::CustomersCreate => customers::create(env, time).await,
        Row::CustomersList => customers::list(env, time, quick).await,
    }
}
