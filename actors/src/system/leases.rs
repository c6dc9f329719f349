//! The work of leases, and the nudges of other nodes.
//!
//! A node that runs alone starts all work at its start. A node that shares the database starts and stops it as its leases
//! come and go ([`Holder`]).

use std::collections::BTreeSet;
use std::sync::{Arc, Weak};

use async_trait::async_trait;
use payferry_domain::{Chain, PspId};
use payferry_evm::{ChainClient, ChainSpec};
use payferry_nodes::{Job, Lease, LeaseHolder, LeaseName, Nudge, Received, Topic};
use payferry_runtime::observe::ActorKind;
use payferry_runtime::supervise::RootMessage;
use tokio_util::task::AbortOnDropHandle;

use super::start::ChainSetup;
use super::{Inner, Parts, System};
use crate::aggregate::{Message, SupervisorMessage};
use crate::announcer;
use crate::auditors::AuditorsConfig;
use crate::chain::Follower;
use crate::ledger::check;
use crate::observe::ActorSubject;
use crate::reconcile::watch;

/// Setups that the work of a lease needs at its start.
pub(super) struct Leased {
    pub(super) chains: Vec<ChainSetup>,
    pub(super) clients: Arc<Vec<(ChainSpec, ChainClient)>>,
    pub(super) auditors: AuditorsConfig,
}

/// Starts and stops the work of leases in a tree.
pub(super) struct Holder {
    inner: Weak<Inner>,
}

impl Holder {
    pub(super) fn of(system: &System) -> Self {
        Self { inner: Arc::downgrade(&system.inner) }
    }

    fn system(&self) -> Option<System> {
        self.inner.upgrade().map(|inner| System { inner })
    }
}

#[async_trait]
impl LeaseHolder for Holder {
    async fn gain(&self, leases: Vec<Lease>) -> Vec<LeaseName> {
        let Some(system) = self.system() else { return Vec::new() };
        let mut failed = Vec::new();
        // Settlers first and watchers last, as at the start.
        for lease in &leases {
            let lease = std::slice::from_ref(lease);
            if let Err(error) = system.start_settlers(lease).await {
                tracing::error!(%error, "the settler of a chain that this node got did not start; retrying");
                failed.push(lease[0].name());
            }
        }
        let shards = shards_of(leases.iter().map(Lease::name));
        system.payments().gain(&shards).await;
        system.outbound().gain(&shards).await;
        if !shards.is_empty() {
            system.inner.followers.lock().values().for_each(|(follower, _)| follower.gained());
        }
        for lease in leases.iter().filter(|lease| !failed.contains(&lease.name())).collect::<Vec<_>>() {
            let one = std::slice::from_ref(lease);
            let started = match system.start_watchers(one).await {
                Ok(()) => system.start_jobs(one).await,
                Err(error) => Err(error),
            };
            if let Err(error) = started {
                tracing::error!(%error, "the work of a lease that this node got did not start; retrying");
                system.stop_work(&[lease.name()]).await;
                failed.push(lease.name());
            }
        }
        if leases.iter().any(|lease| matches!(lease.name(), LeaseName::Bucket(_))) {
            system.webhooks().gain();
        }
        failed
    }

    async fn lose(&self, names: Vec<LeaseName>) {
        let Some(system) = self.system() else { return };
        system.stop_work(&names).await;
        let shards = shards_of(names.iter().copied());
        system.payments().lose(&shards);
        system.outbound().lose(&shards);
        if names.iter().any(|name| matches!(name, LeaseName::Bucket(_))) {
            system.webhooks().lose().await;
        }
    }
}

fn shards_of(names: impl Iterator<Item = LeaseName>) -> BTreeSet<u8> {
    names.filter_map(|name| if let LeaseName::Shard(shard) = name { Some(shard) } else { None }).collect()
}

impl System {
    /// Stops the actors of chains and jobs.
    async fn stop_work(&self, names: &[LeaseName]) {
        let children = names.iter().flat_map(|name| match name {
            LeaseName::Chain(chain) => {
                let name = || chain.as_str().to_owned();
                vec![(ActorKind::Watcher, name()), (ActorKind::Settler, name())]
            }
            LeaseName::Job(Job::Announcer) => vec![(ActorKind::Announcer, announcer::NAME.to_owned())],
            LeaseName::Job(Job::Ledger) => vec![(ActorKind::Auditor, check::NAME.to_owned())],
            LeaseName::Job(Job::Vaults) => vec![(ActorKind::Auditor, watch::NAME.to_owned())],
            _ => Vec::new(),
        });
        let children: Vec<_> = children.collect();
        if !children.is_empty()
            && let Err(error) = ractor::call!(self.inner.root, |reply| RootMessage::Release(children, reply))
        {
            tracing::error!(%error, "some actors of lost leases did not stop");
        }
        let Parts { services, ledger, vaults, .. } = &*self.inner.parts;
        if names.contains(&LeaseName::Job(Job::Ledger)) {
            ledger.forget(services.clock.real_now(), &services.chains);
        }
        if names.contains(&LeaseName::Job(Job::Vaults)) {
            vaults.forget();
        }
        if names.contains(&LeaseName::Job(Job::Tally)) {
            services.registry.forget_payments();
        }
    }

    /// Follows the chains and the nudges of other nodes.
    pub(super) fn share(&self) {
        let followers = self.inner.leased.chains.iter().map(|setup| {
            let (payments, outbound) = (self.payments().clone(), self.outbound().clone());
            let settler = self.chains().settler(setup.spec.chain).cloned().unwrap_or_default();
            let context = self.context_of(setup);
            let follower = Follower::new(context, self.node().clone(), settler, payments, outbound);
            (setup.spec.chain, follower)
        });
        for (chain, follower) in followers {
            let running = Arc::new(AbortOnDropHandle::new(tokio::spawn(follower.clone().run())));
            self.inner.followers.lock().insert(chain, (follower, running));
        }
        let courier = self.node().courier().clone();
        self.journal().on_committed(move |subject| {
            let topic = if subject.starts_with(PspId::PREFIX) { Topic::Published } else { Topic::Changed };
            courier.nudge(topic, subject);
        });
        let inner = Arc::downgrade(&self.inner);
        let runtime = tokio::runtime::Handle::current();
        self.node().courier().receive(move |received| {
            let Some(inner) = inner.upgrade() else { return };
            let _context = runtime.enter();
            System { inner }.received(received);
        });
    }

    fn received(&self, received: Received) {
        let Received::Nudge(Nudge { topic, subject }) = received else { return self.missed() };
        let chain = || subject.parse::<Chain>().ok();
        match topic {
            Topic::Touched if subject.parse::<ActorSubject>().is_ok_and(|of| self.registry().is_quarantined(of)) => {
                // It may have been released on another node.
                tokio::spawn(self.clone().touched_again(subject));
            }
            Topic::Touched => match subject.parse::<ActorSubject>() {
                Ok(ActorSubject::Payment(id)) if self.payments().holds(id) => {
                    self.payments().send(id, Message::Touched);
                    self.followers_touched(&subject);
                }
                Ok(ActorSubject::OutboundTransfer(id)) if self.outbound().holds(id) => {
                    self.outbound().send(id, Message::Touched);
                    self.followers_touched(&subject);
                }
                _ => {}
            },
            Topic::Noted => {
                let is_mine = subject.parse::<ActorSubject>().is_ok_and(|of| match of {
                    ActorSubject::Payment(id) => self.payments().holds(id),
                    ActorSubject::OutboundTransfer(id) => self.outbound().holds(id),
                });
                if is_mine {
                    self.followers_touched(&subject);
                }
            }
            Topic::Changed => self.journal().changed_elsewhere(&subject),
            Topic::Published => {
                self.journal().changed_elsewhere(&subject);
                if let Some(psp_id) = self.own_psp(&subject) {
                    self.webhooks().nudge(psp_id);
                }
            }
            Topic::Webhooks => {
                if let Some(psp_id) = self.own_psp(&subject) {
                    self.webhooks().refresh(psp_id);
                }
            }
            Topic::Queued => chain().into_iter().for_each(|chain| self.services().chains.nudge_settler(chain)),
            Topic::Moved => {
                if let Some((follower, _)) = chain().and_then(|chain| self.inner.followers.lock().get(&chain).cloned())
                {
                    follower.wake();
                }
            }
            Topic::Leases => {}
        }
    }

    async fn touched_again(self, subject: String) {
        if self.registry().reload_quarantines().await.is_ok()
            && subject.parse::<ActorSubject>().is_ok_and(|of| !self.registry().is_quarantined(of))
        {
            self.received(Received::Nudge(Nudge { topic: Topic::Touched, subject }));
        }
    }

    /// The PSP, if this node delivers its webhooks. Nudges are not passed on.
    fn own_psp(&self, subject: &str) -> Option<PspId> {
        subject.parse().ok().filter(|psp_id| self.webhooks().holds(*psp_id))
    }

    fn followers_touched(&self, subject: &str) {
        self.inner.followers.lock().values().for_each(|(follower, _)| follower.touched(subject));
    }

    /// Nudges may be lost: looks at everything that they could have been about.
    fn missed(&self) {
        self.payments().each_supervisor(|| SupervisorMessage::Sweep(None));
        self.outbound().each_supervisor(|| SupervisorMessage::Sweep(None));
        self.inner.followers.lock().values().for_each(|(follower, _)| follower.wake());
        self.webhooks().gain();
        self.services().chains.nudge_settlers();
    }
}
