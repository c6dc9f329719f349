//! One run, from the accounts of the payers to the last webhook.

mod course;
mod endpoint;
mod figures;
mod host;
mod judge;
mod payments;
mod samples;

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, ensure};
use futures::future::join_all;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use tokio_util::task::AbortOnDropHandle;

use super::arrivals::{Arrivals, InFlight};
use super::blocks;
use super::faults::inject::{self, Injection};
use super::own::OwnSandbox;
use super::report::{Achieved, LoadReport, LoadRequest, Machine, percent};
use figures::{Holding, achieved, machine, payer_rates};
use judge::{Compared, Outcome};
use payferry_testkit::audit::behaviour::{Behaviour, EXPIRES_SOON_SECS, Intent};
use payferry_testkit::audit::customers;
use payferry_testkit::audit::outbound::{self, OutboundNeeds};
use payferry_testkit::audit::session::{Session, receive};
use payferry_testkit::audit::settings::settings;
use payferry_testkit::audit::stages::Stage;
use payferry_testkit::audit::state::RunState;
use payferry_testkit::audit::tally::Second;
use payferry_testkit::networks;
use payferry_testkit::payers::Persistence;
use payferry_testkit::progress::Progress;
use payferry_testkit::psp::{Psp, WebhookEndpoint};
use payferry_testkit::receiver::Receiver;
use payferry_testkit::sandbox::SandboxInfo;
use payferry_testkit::usage::Usage;
use payments::{HOLD_WORKERS, RunContext, psp_of};
use samples::Samples;

/// Time from the end of the preparations to the first arrival.
const LEAD: Duration = Duration::from_millis(200);
/// Interval of the checks whether all payments are complete.
const POLL: Duration = Duration::from_millis(100);
/// Interval of the checks whether another payment may be open.
const ROOM_POLL: Duration = Duration::from_millis(1);
/// Time beyond the last expiry to which the clock is moved, in seconds.
const PAST_EXPIRY_SECS: u64 = 2;
const CURVE: [f64; 12] = [0.0, 25.0, 50.0, 75.0, 90.0, 95.0, 98.0, 99.0, 99.5, 99.9, 99.99, 100.0];

#[derive(Debug, Clone)]
pub struct Plan {
    pub request: LoadRequest,
    /// True if the sandbox's clock may be moved, so that the run does not wait for the last expiries.
    pub moves_clock: bool,
    /// Percentage of the payments that may fail to be made.
    pub not_made_percent_max: f64,
    /// Test networks and payers, of a service that is no sandbox.
    pub payers: Option<PathBuf>,
}

impl Plan {
    const fn persistence(&self) -> Persistence {
        if self.request.faults.is_empty() { Persistence::Usual } else { Persistence::ThroughOutages }
    }
}

#[derive(Debug, Clone)]
pub struct Target {
    pub url: String,
    /// Keys of the PSPs, at least one.
    pub keys: Vec<String>,
    /// The process, if it was started for the run.
    pub own: Option<Arc<OwnSandbox>>,
    /// True if only this run has used it.
    pub is_alone: bool,
    /// Cancelled when its process has ended.
    pub ended: CancellationToken,
}

/// Performs a run. `stop` ends it early; the report then has what is known. The run sets the PSP's webhook endpoint to
/// its own receiver and restores it at the end. The report says if that failed.
pub async fn run(plan: &Plan, target: &Target, stop: &CancellationToken, bar: &Progress) -> anyhow::Result<LoadReport> {
    let mut checked = Vec::new();
    // Checked before the run changes anything.
    for key in &target.keys {
        checked.push(check(plan, &target.url, key).await.with_context(|| target.url.clone())?);
    }
    let version = host::service_version(&checked[0].psp).await;
    let run = format!("{:08x}", rand::random::<u32>());
    let (mut receiving, mut due_next) = (Vec::new(), Vec::new());
    for (number, Checked { psp, sandbox, fee_bps }) in (1..).zip(&checked) {
        let offset_secs = sandbox.clock.offset_seconds;
        let (state, due) = match receiving.first() {
            None => RunState::new(&run, offset_secs, *fee_bps),
            Some(Receiving { state, .. }) => RunState::beside(state, &format!("{run}-{number}"), offset_secs, *fee_bps),
        };
        let state = Arc::new(state);
        state.reception.change(|conduct| *conduct = plan.request.receiver);
        let (receiver, before) = receive(psp, &state).await?;
        receiving.push(Receiving { state, _receiver: receiver, before });
        due_next.push(due);
    }
    let ran = async {
        bar.say("make and fund payers");
        let (mut sessions, count) = (Vec::new(), checked.len());
        let assets: Vec<_> = checked[0].sandbox.assets().collect();
        for (index, (Checked { psp, sandbox, fee_bps }, Receiving { state, .. })) in
            checked.iter().zip(&receiving).enumerate()
        {
            let is_theirs = |number: u32| psp_of(number, count) == index;
            let intents = (0..).zip(plan.request.intents()).filter(|(number, _)| is_theirs(*number));
            let intents = intents.map(|(number, intent)| intent.among(&assets, number));
            let needs = OutboundNeeds::of(intents, *fee_bps);
            let (psp, sandbox, state) = (psp.clone(), sandbox.clone(), Arc::clone(state));
            sessions.push(Session::start(psp, sandbox, state, plan.persistence(), &needs).await?);
        }
        let samples = sessions.iter().map(|of| Arc::new(Samples::new(&of.psp, &of.state, plan.request.rate))).collect();
        let context = Arc::new(RunContext { sessions, in_flight: InFlight::new(plan.request.in_flight_max), assets });
        let next = due_next.into_iter().enumerate().map(|(psp, due)| Arc::clone(&context).go_on(psp, due));
        let _next: Vec<_> = next.map(|going| AbortOnDropHandle::new(tokio::spawn(going))).collect();
        Run { plan, target, stop, bar, context, samples }.play().await
    };
    let ran = ran.await;
    let mut notes = Vec::new();
    for (Checked { psp, .. }, Receiving { before, .. }) in checked.iter().zip(receiving) {
        if !target.ended.is_cancelled() {
            notes.extend(endpoint::restore(psp, target, plan.payers.is_none(), before).await);
        }
    }
    match ran {
        Ok(mut report) => {
            report.service_version = version;
            report.notes.extend(notes);
            Ok(report)
        }
        Err(error) => {
            for note in &notes {
                bar.say(note);
            }
            Err(error)
        }
    }
}

/// A PSP that `load` supports.
struct Checked {
    psp: Psp,
    sandbox: SandboxInfo,
    fee_bps: u16,
}

/// The receiver of a PSP, and its webhook endpoint so far.
struct Receiving {
    state: Arc<RunState>,
    _receiver: Receiver,
    before: WebhookEndpoint,
}

async fn check(plan: &Plan, url: &str, key: &str) -> anyhow::Result<Checked> {
    let psp = Psp::with_connections(url, key, plan.request.in_flight_max.max(HOLD_WORKERS))?;
    let (sandbox, settings) = match &plan.payers {
        None => (psp.sandbox().await?, settings(&psp).await?),
        Some(file) => {
            let settings = settings(&psp).await?;
            (networks::place(file, settings.psp_id).await?, settings)
        }
    };
    let assets: Vec<_> = sandbox.assets().collect();
    let paid = (0..).zip(plan.request.intents()).filter_map(|(number, intent)| {
        let Intent { chain, token, .. } = intent.among(&assets, number);
        Some((chain, token, intent.paid_amount()?))
    });
    networks::check_balances(&sandbox, paid)?;
    let unsupported = settings.unsupported();
    ensure!(
        unsupported.is_empty(),
        "its PSP has settings that `load` does not support: {}. Use another PSP, or change them (PATCH /api/v1/settings)",
        unsupported.join("; ")
    );
    Ok(Checked { psp, sandbox, fee_bps: settings.fee_bps })
}

struct Run<'a> {
    plan: &'a Plan,
    target: &'a Target,
    stop: &'a CancellationToken,
    bar: &'a Progress,
    context: Arc<RunContext>,
    /// Samples of each PSP.
    samples: Vec<Arc<Samples>>,
}

impl Run<'_> {
    async fn play(self) -> anyhow::Result<LoadReport> {
        let began_at = chrono::Utc::now();
        let _blocks = self.watch_blocks();
        let before = self.usage();
        self.hold().await;
        let held = self.usage();
        let first = Instant::now() + LEAD;
        let course = course::record(&self.context, first, self.target.own.clone(), self.bar);
        let injection = self.inject(first);
        let arrived = self.arrive(first).await;
        let (faults, not_injected) = injection.end().await;
        self.bar.say("wait for responses, payments, settlements and webhooks");
        self.settle().await;
        let total = first.elapsed();
        self.end_samples().await;
        course.end().await;
        let mut judged = self.judge().await;
        judged.findings.extend(not_injected);
        self.context.states().for_each(|state| state.end());
        let course = self.context.state().tally.course();
        let payments = self.context.state().tally.counted().held;
        let machine = machine(&course, Holding { before, after: held, payments }, arrived);
        let machine = Machine { host: host::host(), ..machine };
        let achieved = achieved(&course, [arrived, total], self.context.in_flight.most());
        Ok(LoadReport { faults, ..self.report(began_at, course, achieved, machine, judged) })
    }

    fn settle_timeout(&self) -> Duration {
        Duration::from_secs(self.plan.request.settle_timeout_secs)
    }

    fn usage(&self) -> Option<Usage> {
        Usage::of_all(&self.target.own.as_ref()?.pids())
    }

    fn inject(&self, first: Instant) -> Injection {
        let session = self.context.first();
        let subject = inject::Subject {
            psp: session.psp.clone(),
            states: self.context.states().map(Arc::clone).collect(),
            own: self.target.own.clone(),
            chains: session.sandbox.chains.keys().copied().collect(),
            ended: self.target.ended.clone(),
        };
        inject::inject(&self.plan.request.faults, subject, first, self.stop)
    }

    fn watch_blocks(&self) -> Vec<AbortOnDropHandle<()>> {
        let watch = |(chain, place): (&payferry_testkit::wire::Chain, &payferry_testkit::sandbox::ChainInfo)| {
            let first = self.context.first();
            let rpc = place.rpc(first.psp.side(), *chain);
            let above = first.baseline.chains.get(chain).map_or(place.head.number, |(number, _)| *number);
            let states = self.context.states().map(Arc::clone);
            let psps: Vec<_> = states.zip(self.samples.iter().map(Arc::clone)).collect();
            let watching = blocks::watch(rpc, above, move |hash, at| {
                for (state, samples) in &psps {
                    if let Some(number) = state.mined(hash, at) {
                        samples.mined(number, at);
                    }
                }
            });
            AbortOnDropHandle::new(tokio::spawn(watching))
        };
        self.context.first().sandbox.chains.iter().map(watch).collect()
    }

    /// Makes the held payments.
    async fn hold(&self) {
        if self.plan.request.hold > 0 {
            self.bar.begin("make held payments", u64::from(self.plan.request.hold));
            self.context.hold(self.plan.request.hold, self.stop, self.bar).await;
        }
    }

    /// Starts the payments that are due. Returns how long that took.
    async fn arrive(&self, first: Instant) -> Duration {
        let request = &self.plan.request;
        let behaviours: Vec<Behaviour> = request.intents().map(|intent| intent.behaviour).collect();
        let behaviour = |number: u32| behaviours[number as usize];
        self.bar.begin("start payments", u64::from(request.payments));
        let turns = if request.in_turn { Behaviour::MIXED.map(Some).to_vec() } else { vec![None] };
        let mut arrived = Duration::ZERO;
        for turn in turns {
            let is_now = |number: &u32| turn.is_none_or(|turn| turn == behaviour(*number));
            let numbers: Vec<u32> = (0..request.payments).filter(is_now).collect();
            if numbers.is_empty() {
                continue;
            }
            // The payments of the last turn are awaited by `settle`.
            if arrived > Duration::ZERO {
                self.all_complete(false, self.settle_timeout()).await;
            }
            let begin = |place: u32, intended: Instant| {
                let number = numbers[place as usize];
                self.context.begin(number, behaviour(number), intended);
            };
            let schedule = Arrivals { count: u32::try_from(numbers.len()).unwrap_or(u32::MAX), ..request.schedule() };
            tokio::select! {
                _ = schedule.run(first.max(Instant::now()), self.stop, async || self.room().await, begin) => {}
                () = self.target.ended.cancelled() => {}
            }
            arrived = first.elapsed();
        }
        arrived
    }

    /// Waits until another payment may be open. A lost payment does not hold up the run for longer than the settle
    /// timeout.
    async fn room(&self) {
        let Some(open_max) = self.plan.request.open_max else { return };
        let (state, since) = (self.context.state(), Instant::now());
        let open = || self.context.in_flight.now() as u64 + state.open();
        while open() >= u64::from(open_max) && since.elapsed() < self.settle_timeout() && !self.stop.is_cancelled() {
            tokio::time::sleep(ROOM_POLL).await;
        }
    }

    /// Waits until every payment is complete: first those that are paid in time, then those that expire.
    async fn settle(&self) {
        self.all_complete(false, self.settle_timeout()).await;
        if self.plan.request.faults.reorganises() {
            self.rest().await;
            self.all_complete(false, self.settle_timeout()).await;
        }
        let open = self.context.open(true);
        let Some(youngest) = open else { return };
        let left = Duration::from_secs(u64::from(EXPIRES_SOON_SECS)).saturating_sub(youngest.elapsed());
        let mut patience = self.settle_timeout() + left;
        if self.plan.moves_clock && !self.stop.is_cancelled() {
            self.bar.say("move the clock past the last expiry");
            let secs = left.as_secs() + PAST_EXPIRY_SECS;
            // Webhooks of the new time may arrive before the response does.
            self.context.states().for_each(|state| state.clock_moves_by(secs));
            match self.context.first().psp.advance_clock(secs).await {
                Ok(offset_secs) => {
                    self.context.states().for_each(|state| state.clock_moved(offset_secs));
                    patience = self.settle_timeout();
                }
                Err(error) => tracing::warn!(%error, "the sandbox's clock could not be moved"),
            }
        }
        self.all_complete(true, patience).await;
    }

    /// Waits for the sampled payments whose transfer the service has not shown yet.
    async fn end_samples(&self) {
        tokio::select! {
            _ = join_all(self.samples.iter().map(|samples| samples.ended())) => {}
            () = self.stop.cancelled() => {}
            () = self.target.ended.cancelled() => {}
        }
    }

    async fn all_complete(&self, expiring: bool, patience: Duration) {
        let since = Instant::now();
        let is_registering = || self.context.states().any(|state| state.is_registering());
        while self.context.in_flight.now() > 0 || self.context.open(expiring).is_some() || is_registering() {
            let over = since.elapsed() > patience || self.stop.is_cancelled() || self.target.ended.is_cancelled();
            if over {
                return;
            }
            tokio::time::sleep(POLL).await;
        }
    }

    fn report(
        &self,
        began_at: chrono::DateTime<chrono::Utc>,
        course: Vec<Second>,
        achieved: Achieved,
        machine: Machine,
        judged: Outcome,
    ) -> LoadReport {
        let (plan, state) = (self.plan, self.context.state());
        let counted = state.tally.counted();
        let not_made = counted.due.saturating_sub(counted.accepted);
        let to_hold = u64::from(plan.request.hold);
        let not_held = to_hold.saturating_sub(counted.held);
        let audited = judged.compared.is_some();
        let Compared { read_back, holdings, notes } = judged.compared.unwrap_or_default();
        let states: Vec<_> = self.context.states().map(|state| state.read()).collect();
        let records = || states.iter().flat_map(|state| state.records.iter());
        let curve = |stage: Stage| {
            let total = state.stages.latencies(stage);
            let points = CURVE.iter().map(|percent| (*percent, total.percentile_ms(*percent)));
            (total.count() > 0).then(|| (stage.as_str(), points.collect()))
        };
        LoadReport {
            version: env!("CARGO_PKG_VERSION"),
            service_version: None,
            run: state.run().to_owned(),
            began_at: began_at.to_rfc3339_opts(chrono::SecondsFormat::Millis, true),
            request: plan.request.clone(),
            achieved,
            payers: if plan.request.in_turn { payer_rates(records) } else { Vec::new() },
            counted,
            stages: state.stages.figures(),
            answers: state.answers.figures(),
            outbound: outbound::figures(records(), Instant::now()),
            customers: customers::figures(records(), Instant::now()),
            thresholds: plan.request.thresholds.iter().map(|one| one.judge(&state.stages, &counted)).collect(),
            comparison: None,
            curves: [Stage::Accepted, Stage::Mined, Stage::Confirmed, Stage::Settled, Stage::Complete]
                .into_iter()
                .filter_map(curve)
                .collect(),
            machine,
            errors: state.tally.errors(),
            faults: Vec::new(),
            holdings,
            read_back,
            audited,
            notes: notes.into_iter().chain(state.tally.course_is_cut()).collect(),
            interrupted: judged.interrupted,
            not_made_percent: percent(not_made, counted.due),
            not_held_percent: percent(not_held, to_hold),
            not_made_percent_max: plan.not_made_percent_max,
            findings: judged.findings,
            service_log: Vec::new(),
            course,
        }
    }
}
