//! Injects the planned faults while the payments arrive, and records in the state of the run what each may cause.

use std::sync::Arc;
use std::time::Duration;

use anyhow::Context;
use futures::future::join_all;
use parking_lot::Mutex;
use serde_json::json;
use tokio::sync::MutexGuard;
use tokio::task::JoinHandle;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::{Fault, FaultKind, FaultPlan, InjectedFault};
use crate::own::OwnSandbox;
use payferry_testkit::audit::disturbance::Disturbance;
use payferry_testkit::audit::findings::Finding;
use payferry_testkit::audit::state::RunState;
use payferry_testkit::psp::Psp;
use payferry_testkit::wire::Chain;

/// Parts of a run that faults act on.
#[derive(Debug, Clone)]
pub struct Subject {
    pub psp: Psp,
    /// States of the PSPs.
    pub states: Vec<Arc<RunState>>,
    /// The process, if it was started for the run.
    pub own: Option<Arc<OwnSandbox>>,
    pub chains: Vec<Chain>,
    /// Cancelled when the process has ended and is not started again.
    pub ended: CancellationToken,
}

impl Subject {
    /// Returns a state: all PSPs share the disturbances and the behaviour of the receiver.
    fn state(&self) -> &RunState {
        &self.states[0]
    }
}

/// Faults that are being injected.
#[derive(Debug)]
pub struct Injection {
    injector: Arc<Injector>,
    tasks: Vec<JoinHandle<()>>,
}

#[derive(Debug)]
struct Injector {
    subject: Subject,
    first: Instant,
    stop: CancellationToken,
    /// Only one fault at a time begins or ends at the service: a reorganisation does not meet a killed one.
    turn: tokio::sync::Mutex<()>,
    /// Share of the RPC calls that fail now. A new process does not know it.
    rpc_share: Mutex<f64>,
    injected: Mutex<Vec<InjectedFault>>,
    findings: Mutex<Vec<Finding>>,
}

/// Starts to inject. Times count from `first`. `stop` ends the faults that last, and begins no further one.
pub fn inject(plan: &FaultPlan, subject: Subject, first: Instant, stop: &CancellationToken) -> Injection {
    let injector = Arc::new(Injector {
        subject,
        first,
        stop: stop.clone(),
        turn: tokio::sync::Mutex::default(),
        rpc_share: Mutex::default(),
        injected: Mutex::default(),
        findings: Mutex::default(),
    });
    let begins = plan.0.iter().flat_map(|fault| fault.begins().into_iter().map(move |at| (*fault, at)));
    let tasks = begins.map(|(fault, at)| tokio::spawn(Arc::clone(&injector).run(fault, at))).collect();
    Injection { injector, tasks }
}

impl Injection {
    /// Waits until every fault has ended. Returns the faults in the order of their begins, and those that could not be
    /// injected.
    pub async fn end(self) -> (Vec<InjectedFault>, Vec<Finding>) {
        join_all(self.tasks).await;
        let mut injected = std::mem::take(&mut *self.injector.injected.lock());
        injected.sort_by(|one, other| one.at_secs.total_cmp(&other.at_secs));
        (1..).zip(&mut injected).for_each(|(number, fault)| fault.number = number);
        (injected, std::mem::take(&mut *self.injector.findings.lock()))
    }
}

impl Injector {
    async fn run(self: Arc<Self>, fault: Fault, at: Duration) {
        if !self.wait_until(at).await {
            return;
        }
        // A killed service must answer again first.
        let turn = if fault.kind.needs_service() { Some(self.turn.lock().await) } else { None };
        let begun = self.first.elapsed();
        if let Err(error) = self.inject(fault, begun, turn).await {
            let found = format!("it could not be injected: {error:#}");
            self.findings.lock().push(Finding::of_none(&format!("the fault `{fault}` is injected"), found));
        }
        self.injected.lock().push(InjectedFault {
            fault: fault.to_string(),
            at_secs: begun.as_secs_f64(),
            until_secs: self.first.elapsed().as_secs_f64(),
            number: 0,
        });
    }

    /// Waits until a time of the run. Returns false if the run ends first.
    async fn wait_until(&self, at: Duration) -> bool {
        tokio::select! {
            () = tokio::time::sleep_until(self.first + at) => true,
            () = self.stop.cancelled() => false,
            () = self.subject.ended.cancelled() => false,
        }
    }

    async fn inject(&self, fault: Fault, begun: Duration, turn: Option<MutexGuard<'_, ()>>) -> anyhow::Result<()> {
        // A fault that begins late lasts as long.
        let until = begun + fault.until.unwrap_or(fault.at).saturating_sub(fault.at);
        let reception = &self.subject.state().reception;
        match fault.kind {
            FaultKind::Kill { .. } => self.kill().await,
            FaultKind::Reorg { chain, depth } => self.reorg(chain, depth).await,
            FaultKind::RpcErrors { share } => {
                let number = self.subject.state().disturbances.begin(Disturbance::Chain);
                let began = self.fail_rpc(share).await;
                drop(turn);
                self.wait_until(until).await;
                let _turn = self.turn.lock().await;
                let ended = self.fail_rpc(0.0).await;
                self.subject.state().disturbances.end(number);
                began.and(ended)
            }
            FaultKind::ReceiverFail { share } => {
                let before = reception.conduct().fail;
                reception.change(|conduct| conduct.fail = share);
                self.wait_until(until).await;
                reception.change(|conduct| conduct.fail = before);
                Ok(())
            }
            FaultKind::ReceiverSlow { delay } => {
                let before = reception.conduct().slow;
                reception.change(|conduct| conduct.slow = delay);
                self.wait_until(until).await;
                reception.change(|conduct| conduct.slow = before);
                Ok(())
            }
        }
    }

    async fn kill(&self) -> anyhow::Result<()> {
        let (state, own) = (self.subject.state(), &self.subject.own);
        let own = own.as_ref().context("the service is not a process of the load tester")?;
        let number = state.disturbances.begin(Disturbance::Down);
        let restarted = own.kill_and_restart().await;
        state.disturbances.end(number);
        restarted?;
        let share = *self.rpc_share.lock();
        if share > 0.0 { self.set_rpc_errors(share).await } else { Ok(()) }
    }

    async fn reorg(&self, chain: Chain, depth: u32) -> anyhow::Result<()> {
        let (state, psp) = (self.subject.state(), &self.subject.psp);
        // Before it: webhooks about it may arrive before the answer.
        self.subject.states.iter().for_each(|state| state.chain_reorged(chain));
        let number = state.disturbances.begin(Disturbance::Chain);
        let answer = psp.post(&format!("/sandbox/chains/{chain}/reorg"), &json!({"depth": depth})).await;
        state.disturbances.end(number);
        answer.map(drop)
    }

    async fn fail_rpc(&self, share: f64) -> anyhow::Result<()> {
        *self.rpc_share.lock() = share;
        self.set_rpc_errors(share).await
    }

    async fn set_rpc_errors(&self, share: f64) -> anyhow::Result<()> {
        let Subject { psp, chains, .. } = &self.subject;
        for chain in chains {
            psp.post(&format!("/sandbox/chains/{chain}/faults"), &json!({"error_rate": share})).await?;
        }
        Ok(())
    }
}
