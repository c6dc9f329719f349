//! Measures the journal: new payments and transitions per second, compared with a bound of one insert per commit on the
//! same disk in the same run.
//!
//! `cargo run --release -p payferry-journal --example journal_throughput [folder] [payments]`

#[path = "../fixtures/terms.rs"]
mod terms;

use std::error::Error;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use payferry_domain::payment::{self, Command, Payment};
use payferry_domain::{Amount, MerchantId, PspId};
use payferry_entities::Database;
use payferry_harness::database::TestDatabase;
use payferry_journal::payments as store;
use payferry_journal::{Journal, JournalError, JournalWrite};
use payferry_migration::migrate;
use sea_orm::{ActiveModelTrait, IntoActiveModel};
use terms::{START, terms};

const BOUND_FOR: Duration = Duration::from_secs(2);
const PAYMENTS_DEFAULT: usize = 20_000;
const CLIENTS: [usize; 4] = [1, 32, 256, 1_000];

type Outcome<T> = Result<T, Box<dyn Error + Send + Sync>>;

#[tokio::main]
async fn main() -> Outcome<()> {
    let mut arguments = std::env::args().skip(1);
    let folder = arguments.next().map_or_else(std::env::temp_dir, PathBuf::from);
    let payments_max = arguments.next().map_or(Ok(PAYMENTS_DEFAULT), |text| text.parse())?;
    let dir = tempfile::tempdir_in(folder)?;
    println!("in {}", dir.path().display());

    let (database, psp_id, merchant_id) = create(&dir.path().join("bound")).await?;
    let begun = Instant::now();
    let mut inserted = 0_u32;
    while begun.elapsed() < BOUND_FOR {
        let made = payment::initiate(terms(psp_id, merchant_id), START)?;
        store::row_of(&made.payment)?.into_active_model().insert(database.writer()).await?;
        inserted += 1;
    }
    println!("one insert per commit, one row per payment: {:>7.0}/s", rate(inserted as usize, begun.elapsed()));
    database.close().await?;

    for clients in CLIENTS {
        // A single client waits for every commit, so fewer payments are enough.
        let count = if clients == 1 { payments_max / 20 } else { payments_max };
        let (database, psp_id, merchant_id) = create(&dir.path().join(clients.to_string())).await?;
        let (journal, task) = Journal::start(database);
        let running = tokio::spawn(task.run());

        let made: Arc<Vec<_>> = Arc::new(
            (0..count)
                .map(|_| payment::initiate(terms(psp_id, merchant_id), START.plus_secs(9_000)))
                .collect::<Result<_, _>>()?,
        );
        let rows = Arc::clone(&made);
        measure("initiations", clients, count, &journal, move |n| {
            Ok(JournalWrite::Initiation(Box::new(store::initiation_write(&rows[n], store::RequestRows::default())?)))
        })
        .await?;
        // Ending a payment creates two events, each with a delivery.
        let rows = Arc::clone(&made);
        measure("transitions", clients, count, &journal, move |n| end(&rows[n].payment)).await?;
        journal.close().await;
        running.await?;
    }
    Ok(())
}

fn end(payment: &Payment) -> Outcome<JournalWrite> {
    let now = START.plus_secs(5);
    let ended = payment::transition(payment, &Command::Cancel, now)?.ok_or("the command has no effect")?;
    let beside = store::RequestRows::default();
    let took = Duration::ZERO;
    let outcome = store::CommandOutcome { before: payment, command: &Command::Cancel, transition: &ended, took };
    Ok(store::transition_write(outcome, beside, now, Amount::MAX, |_| vec![None])?)
}

async fn measure(
    what: &str,
    clients: usize,
    count: usize,
    journal: &Journal,
    write: impl Fn(usize) -> Outcome<JournalWrite> + Send + Sync + 'static,
) -> Outcome<()> {
    let write = Arc::new(write);
    let next = Arc::new(AtomicUsize::new(0));
    let before = journal.stats();
    let begun = Instant::now();
    let tasks: Vec<_> = (0..clients)
        .map(|_| {
            let (write, next, journal) = (Arc::clone(&write), Arc::clone(&next), journal.clone());
            tokio::spawn(async move {
                let mut waits = Vec::new();
                loop {
                    let n = next.fetch_add(1, Ordering::Relaxed);
                    if n >= count {
                        return Outcome::Ok(waits);
                    }
                    let write = write(n)?;
                    let asked = Instant::now();
                    match journal.submit(write).await {
                        Ok(_) => waits.push(asked.elapsed()),
                        Err(JournalError::Busy) => return Err("busy: more clients than queue places".into()),
                        Err(error) => return Err(error.into()),
                    }
                }
            })
        })
        .collect();
    let mut waits = Vec::with_capacity(count);
    for task in tasks {
        waits.extend(task.await??);
    }
    let took = begun.elapsed();
    let after = journal.stats();
    waits.sort_unstable();
    let groups = after.groups - before.groups;
    println!(
        "{what}, {clients:>4} clients: {:>7.0}/s, {:>3} per commit, p50 {:.1} ms, p99 {:.1} ms, {:.1} ms per commit",
        rate(count, took),
        count as u64 / groups.max(1),
        millis(waits[waits.len() / 2]),
        millis(waits[waits.len() * 99 / 100]),
        millis(Duration::from_micros((after.commit_time_us - before.commit_time_us) / groups.max(1))),
    );
    Ok(())
}

fn rate(count: usize, took: Duration) -> f64 {
    f64::from(u32::try_from(count).unwrap_or(u32::MAX)) / took.as_secs_f64()
}

fn millis(took: Duration) -> f64 {
    took.as_secs_f64() * 1_000.0
}

async fn create(folder: &Path) -> Outcome<(Database, PspId, MerchantId)> {
    std::fs::create_dir(folder)?;
    let file = TestDatabase::sqlite_in(folder);
    let database = Database::open(file.url()).await?;
    migrate(&database.long_timeout()).await?;
    let (psp_id, merchant_id) = (PspId::generate(), MerchantId::generate());
    file.add_psp(&psp_id.to_string(), &merchant_id.to_string()).await;
    Ok((database, psp_id, merchant_id))
}
