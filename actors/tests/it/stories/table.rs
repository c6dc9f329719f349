//! Story table: every row of every file is played on its own service, database and chains.

use std::collections::BTreeSet;
use std::panic::AssertUnwindSafe;
use std::time::{Duration, Instant};

use futures::{FutureExt, StreamExt};

use super::player::play;
use super::script;

/// Number of concurrent rows of one file.
const ROWS_AT_ONCE: usize = 4;
/// Timeout of one row.
const ROW_TIME_MAX: Duration = Duration::from_mins(4);
/// Selects the rows whose title contains this text.
const ONLY: &str = "PAYFERRY_STORIES_ROW";

/// Defines one test per file of rows.
macro_rules! tables {
    ($($name:ident),+ $(,)?) => {
        /// All files of rows.
        pub const FILES: &[&str] = &[$(concat!(stringify!($name), ".story")),+];

        $(
            #[tokio::test(flavor = "multi_thread")]
            async fn $name() {
                all_of(concat!(stringify!($name), ".story")).await;
            }
        )+
    };
}

tables!(paying, misfits, screening, settling, refunds, reorganised, money_out, transfers, service);

/// Plays a future and turns a panic or a timeout into an error.
pub async fn within<T>(time: Duration, playing: impl Future<Output = T>) -> Result<T, String> {
    let playing = AssertUnwindSafe(tokio::time::timeout(time, playing)).catch_unwind();
    match playing.await {
        Ok(Ok(played)) => Ok(played),
        Ok(Err(_)) => Err(format!("not finished after {time:?}")),
        Err(panicked) => {
            let said = panicked.downcast_ref::<String>().cloned();
            let said = said.or(panicked.downcast_ref::<&str>().map(|said| (*said).to_owned()));
            Err(format!("it panicked: {}", said.unwrap_or_default()))
        }
    }
}

async fn all_of(file: &str) {
    let only = std::env::var(ONLY).unwrap_or_default();
    let rows: Vec<script::Row> = script::read(file).into_iter().filter(|row| row.title.contains(&only)).collect();
    let count = rows.len();
    let played = futures::stream::iter(rows).map(|row| async move {
        let (since, place, title) = (Instant::now(), row.place.to_string(), row.title.clone());
        let wrong = Box::pin(within(ROW_TIME_MAX, play(&row))).await.and_then(|played| played).err();
        println!("{:5.1} s  {}  {title}", since.elapsed().as_secs_f32(), if wrong.is_none() { "ok  " } else { "FAIL" });
        wrong.map(|wrong| format!("{place}: {title}\n{wrong}\n"))
    });
    let failed: Vec<String> = played.buffer_unordered(ROWS_AT_ONCE).filter_map(async |failed| failed).collect().await;
    assert!(failed.is_empty(), "{} of {count} rows:\n\n{}", failed.len(), failed.join("\n"));
}

#[test]
fn every_file_of_rows_is_listed() {
    let found =
        std::fs::read_dir(script::folder()).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap());
    let found: BTreeSet<String> = found.filter(|name| name != "README.md").collect();
    assert_eq!(found, FILES.iter().map(|file| (*file).to_owned()).collect());
}
