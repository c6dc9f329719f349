//! Mailbox of an actor, the only way to reach it. Messages are timestamped, and counted as waiting until they are
//! received.

use std::fmt;
use std::ops::Deref;
use std::sync::Arc;
use std::time::Duration;

use ractor::rpc::CallResult;
use ractor::{ActorCell, ActorRef, MessagingErr, RpcReplyPort};
use tokio::task::JoinHandle;

use super::figures::{ActorMetrics, Stamp};

/// A message with its timestamp; only a mailbox creates one.
pub(super) struct Envelope<M> {
    pub(super) message: M,
    pub(super) stamp: Stamp,
}

/// Sender of messages to one actor. Clones reach the same actor.
pub struct Mailbox<M> {
    actor: ActorRef<Envelope<M>>,
    actor_metrics: Arc<ActorMetrics>,
}

impl<M> Clone for Mailbox<M> {
    fn clone(&self) -> Self {
        Self { actor: self.actor.clone(), actor_metrics: Arc::clone(&self.actor_metrics) }
    }
}

impl<M> fmt::Debug for Mailbox<M> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.actor.fmt(f)
    }
}

/// Access to status, stop, drain and kill.
impl<M> Deref for Mailbox<M> {
    type Target = ActorCell;

    fn deref(&self) -> &ActorCell {
        &self.actor
    }
}

impl<M> Mailbox<M> {
    pub(super) fn new(actor: ActorRef<Envelope<M>>, actor_metrics: Arc<ActorMetrics>) -> Self {
        Self { actor, actor_metrics }
    }

    /// The actor's cell, for its supervisor.
    pub fn get_cell(&self) -> ActorCell {
        self.actor.get_cell()
    }

    /// Metrics of the actor.
    pub fn actor_metrics(&self) -> &ActorMetrics {
        &self.actor_metrics
    }
}

impl<M: Send + 'static> Mailbox<M> {
    /// Sends a message. If the actor no longer receives messages, returns it in the error.
    pub fn cast(&self, message: M) -> Result<(), MessagingErr<M>> {
        let stamp = Stamp::new(&self.actor_metrics);
        self.actor.send_message(Envelope { message, stamp }).map_err(|error| match error {
            MessagingErr::SendErr(envelope) => MessagingErr::SendErr(envelope.message),
            MessagingErr::ChannelClosed => MessagingErr::ChannelClosed,
            MessagingErr::InvalidActorType => MessagingErr::InvalidActorType,
        })
    }

    /// Sends a request and waits for the reply, at most `patience` if given. Compatible with `ractor::call!` and
    /// `call_t!`.
    pub async fn call<R: Send + 'static>(
        &self,
        ask: impl FnOnce(RpcReplyPort<R>) -> M,
        patience: Option<Duration>,
    ) -> Result<CallResult<R>, MessagingErr<M>> {
        let (reply, replied) = ractor::concurrency::oneshot();
        self.cast(ask(reply.into()))?;
        let answer = match patience {
            Some(patience) => tokio::time::timeout(patience, replied).await,
            None => Ok(replied.await),
        };
        Ok(match answer {
            Ok(Ok(answer)) => CallResult::Success(answer),
            Ok(Err(_)) => CallResult::SenderError,
            Err(_) => CallResult::Timeout,
        })
    }

    /// Sends a message after `wait`.
    pub fn send_after(&self, wait: Duration, message: impl FnOnce() -> M + Send + 'static) -> JoinHandle<()> {
        let mailbox = self.clone();
        tokio::spawn(async move {
            tokio::time::sleep(wait).await;
            // An actor that has ended meanwhile needs no reminder.
            let _ = mailbox.cast(message());
        })
    }

    /// Sends messages periodically, the first after `period`, until the actor no longer receives them.
    pub fn send_interval(&self, period: Duration, message: impl Fn() -> M + Send + 'static) -> JoinHandle<()> {
        let mailbox = self.clone();
        tokio::spawn(async move {
            let mut ticks = tokio::time::interval_at(tokio::time::Instant::now() + period, period);
            loop {
                ticks.tick().await;
                if mailbox.cast(message()).is_err() {
                    return;
                }
            }
        })
    }
}
