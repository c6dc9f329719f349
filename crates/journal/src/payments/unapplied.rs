//! Reads the transfers that payments have not applied, for many payments with one query.
//!
//! A block makes the transfers of many payments final at once, and each payment sends a request. If no read is in
//! progress, a request reads for all requests made so far. Requests made during a read wait for the next one, so a
//! result is never older than its request. Deliberately absent: the use of the transfers.

use std::collections::HashMap;
use std::mem;

use parking_lot::Mutex;
use payferry_domain::PaymentId;
use payferry_entities::{Database, transfers};
use tokio::sync::{Semaphore, oneshot};

use super::{StoreError, unapplied_of};

type Answer = Result<Vec<transfers::Model>, StoreError>;

/// Reader shared by all payments.
#[derive(Debug)]
pub struct Unapplied {
    database: Database,
    requests: Mutex<Vec<(PaymentId, oneshot::Sender<Answer>)>>,
    /// Allows one read at a time.
    turns: Semaphore,
}

impl Unapplied {
    /// Reads from this database.
    pub fn new(database: Database) -> Self {
        Self { database, requests: Mutex::default(), turns: Semaphore::new(1) }
    }

    /// Every recorded transfer that this payment has not applied, oldest block first.
    pub async fn of(&self, id: PaymentId) -> Answer {
        loop {
            let (answer, mut answered) = oneshot::channel();
            self.requests.lock().push((id, answer));
            let turn = tokio::select! {
                biased;
                // An error means that the task that was reading for this request ended: ask again.
                answer = &mut answered => match answer {
                    Ok(answer) => return answer,
                    Err(_) => continue,
                },
                turn = self.turns.acquire() => turn,
            };
            // Let other payments that were notified at the same time add their requests first.
            tokio::task::yield_now().await;
            let requests = mem::take(&mut *self.requests.lock());
            self.answer(requests).await;
            drop(turn);
            if let Ok(answer) = answered.try_recv() {
                return answer;
            }
        }
    }

    async fn answer(&self, requests: Vec<(PaymentId, oneshot::Sender<Answer>)>) {
        let ids: Vec<PaymentId> = requests.iter().map(|(id, _)| *id).collect();
        let mut found = unapplied_of(&self.database, &ids).await.map(|rows| {
            let mut found: HashMap<String, Vec<transfers::Model>> = HashMap::new();
            for row in rows {
                found.entry(row.payment_id.clone()).or_default().push(row);
            }
            found
        });
        for (id, answer) in requests {
            let rows = match &mut found {
                Ok(found) => Ok(found.get(&id.to_string()).cloned().unwrap_or_default()),
                Err(error) => Err(error.clone()),
            };
            // The requester may have ended.
            let _ = answer.send(rows);
        }
    }
}
