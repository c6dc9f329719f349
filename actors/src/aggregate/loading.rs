//! Reads the live aggregates for the supervisors that start. Each reading passes through the index of all live
//! aggregates, so one reading serves several supervisors.

use std::num::NonZero;
use std::ops::RangeInclusive;
use std::sync::Arc;

use parking_lot::Mutex;
use payferry_entities::{Database, StoreError};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, mpsc};

use super::{Aggregate, Found};

/// Aggregates of a page. Reading one occupies a thread of the runtime for a few milliseconds.
const PAGE: u64 = 2_000;
/// Pages of a supervisor that are read before it takes them.
const PAGES_AHEAD: usize = 2;

/// A page of live aggregates, by id. The last one is empty.
type Page<A> = Result<Vec<Found<A>>, StoreError>;

/// The supervisors that wait for their live aggregates, and the tasks that read these.
pub(super) struct Loading<A: Aggregate> {
    waiting: Mutex<Vec<Request<A>>>,
    /// A permit for each processor: more readings would only open more connections to the database.
    readers: Arc<Semaphore>,
    readers_max: usize,
}

/// Request of a supervisor. It has no more interest when the receiver of its pages is dropped.
struct Request<A: Aggregate> {
    shards: RangeInclusive<u8>,
    pages: mpsc::Sender<Page<A>>,
}

impl<A: Aggregate> Default for Loading<A> {
    fn default() -> Self {
        let readers_max = std::thread::available_parallelism().map_or(1, NonZero::get);
        Self { waiting: Mutex::default(), readers: Arc::new(Semaphore::new(readers_max)), readers_max }
    }
}

impl<A: Aggregate> Loading<A> {
    /// Reads the live aggregates of these logical shards. If the pages end without an error and without an empty page, the
    /// reading has failed.
    pub(super) fn read(self: &Arc<Self>, database: &Database, shards: RangeInclusive<u8>) -> mpsc::Receiver<Page<A>> {
        let (sender, pages) = mpsc::channel(PAGES_AHEAD);
        let mut waiting = self.waiting.lock();
        waiting.push(Request { shards, pages: sender });
        if let Ok(permit) = self.readers.clone().try_acquire_owned() {
            tokio::spawn(self.clone().serve(database.clone(), permit));
        }
        drop(waiting);
        pages
    }

    async fn serve(self: Arc<Self>, database: Database, permit: OwnedSemaphorePermit) {
        let mut permit = Some(permit);
        while let Some(requests) = self.next(&mut permit) {
            answer(&database, requests).await;
        }
    }

    /// The next requests: a share of those that wait. Without one, the permit is returned, before another request can arrive.
    fn next(&self, permit: &mut Option<OwnedSemaphorePermit>) -> Option<Vec<Request<A>>> {
        let mut waiting = self.waiting.lock();
        let share = waiting.len().div_ceil(self.readers_max);
        if share == 0 {
            *permit = None;
        }
        (share > 0).then(|| waiting.drain(..share).collect())
    }
}

/// Reads the pages of these requests, until the last one.
async fn answer<A: Aggregate>(database: &Database, mut requests: Vec<Request<A>>) {
    let starts = requests.iter().map(|request| *request.shards.start());
    let ends = requests.iter().map(|request| *request.shards.end());
    let (Some(first), Some(last)) = (starts.min(), ends.max()) else { return };
    let mut after = None;
    while !requests.is_empty() {
        let page = match A::load_live(database, first..=last, after, PAGE).await {
            Ok(page) => page,
            Err(error) => {
                for request in requests {
                    let _ = request.pages.send(Err(error.clone())).await;
                }
                return;
            }
        };
        let is_end = page.is_empty();
        after = page.last().map(Found::id);
        let mut parts: Vec<Vec<Found<A>>> = requests.iter().map(|_| Vec::new()).collect();
        for found in page {
            let shard = A::shard(found.id());
            // Shards between those of two requests are read, too.
            let of = requests.iter().position(|request| request.shards.contains(&shard));
            if let Some(part) = of.and_then(|of| parts.get_mut(of)) {
                part.push(found);
            }
        }
        let mut left = Vec::with_capacity(requests.len());
        for (request, part) in requests.into_iter().zip(parts) {
            let is_due = is_end || !part.is_empty();
            if !is_due || (request.pages.send(Ok(part)).await.is_ok() && !is_end) {
                left.push(request);
            }
        }
        requests = left;
    }
}
