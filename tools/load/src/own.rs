//! Sandbox of the load tester's own, in a child process that can be killed and started again.

use std::time::Duration;

use anyhow::Context;
use parking_lot::Mutex;
use serde_json::json;
use tempfile::TempDir;

use payferry_testkit::audit::findings::Finding;
use payferry_testkit::client::Client;
use payferry_testkit::metrics;
use payferry_testkit::psp::Psp;
use payferry_testkit::service::{ChildSandboxOptions, Ready, Service};

/// Timeout of the operator listener.
const METRICS_DEADLINE: Duration = Duration::from_secs(10);
/// Expectation of a service about itself, for findings.
const SOUND: &str = "the service reports no defect";

/// A sandbox that was started for a run. Only this run uses it.
#[derive(Debug)]
pub struct OwnSandbox {
    /// Options of the next start: on the same ports.
    options: ChildSandboxOptions,
    ready: Ready,
    process: Mutex<Process>,
    /// Defects that a process reported before it was killed.
    found: Mutex<Vec<Finding>>,
    _folder: Option<TempDir>,
}

#[derive(Debug)]
enum Process {
    Runs(Box<Service>),
    /// It was killed and is being started again.
    Restarts,
    Stopped,
}

impl OwnSandbox {
    /// Starts it. With `is_killed`, its data is in a folder that outlives its process.
    pub async fn start(mut options: ChildSandboxOptions, is_killed: bool) -> anyhow::Result<Self> {
        // Its owner only can read it.
        let folder = is_killed.then(|| tempfile::Builder::new().prefix("payferry-load-").tempdir()).transpose();
        let folder = folder.context("the data folder cannot be created")?;
        options.folder = folder.as_ref().map(|folder| folder.path().to_owned());
        let service = Service::sandbox(&options).await?;
        let ready = service.ready().clone();
        options.at = Some([ready.api_url.clone(), ready.operator_url.clone()]);
        let process = Mutex::new(Process::Runs(Box::new(service)));
        Ok(Self { options, ready, process, found: Mutex::default(), _folder: folder })
    }

    /// Returns its addresses and keys, which stay the same.
    pub const fn ready(&self) -> &Ready {
        &self.ready
    }

    /// Makes a PSP with the default policies. Returns its key.
    pub async fn make_psp(&self, name: &str) -> anyhow::Result<String> {
        let operator = Psp::new(&self.ready.operator_url, &self.ready.operator_token)?;
        let made = operator.post("/ops/psps", &json!({"name": name})).await?;
        let id = made["psp_id"].as_str().context("the answer names no PSP")?;
        let key = json!({"name": "load", "scopes": ["full"], "expires_days": "never"});
        let made = operator.post(&format!("/ops/psps/{id}/keys"), &key).await?;
        made["api_key"].as_str().map(str::to_owned).context("the answer has no key")
    }

    /// Returns the ids of its processes: one per node. Empty while it is down.
    pub fn pids(&self) -> Vec<u32> {
        match &*self.process.lock() {
            Process::Runs(service) => service.pids(),
            Process::Restarts | Process::Stopped => Vec::new(),
        }
    }

    /// Returns true if its process ended and nothing starts it again.
    pub fn has_ended(&self) -> bool {
        match &mut *self.process.lock() {
            Process::Runs(service) => service.ended().is_some(),
            Process::Restarts => false,
            Process::Stopped => true,
        }
    }

    /// Kills it, and starts it again on its data and ports. Returns when it answers requests.
    pub async fn kill_and_restart(&self) -> anyhow::Result<()> {
        // Its counters end with the process.
        let defects = self.defects().await.context("its metrics cannot be read before it is killed")?;
        // A process that has just started has not measured everything.
        let found = defects.into_iter().filter(|what| !what.ends_with(metrics::MISSING));
        self.found.lock().extend(found.map(|what| Finding::of_none(SOUND, format!("before a kill, {what}"))));
        let process = std::mem::replace(&mut *self.process.lock(), Process::Restarts);
        if let Process::Runs(service) = process {
            service.kill();
        }
        let started = Service::sandbox(&self.options).await;
        let (process, result) = match started {
            Ok(service) => (Process::Runs(Box::new(service)), Ok(())),
            Err(error) => (Process::Stopped, Err(error)),
        };
        *self.process.lock() = process;
        result
    }

    async fn defects(&self) -> anyhow::Result<Vec<String>> {
        metrics::defects(&Client::new(&self.ready.operator_url, 1, METRICS_DEADLINE)?).await
    }

    /// Returns the defects that its processes reported.
    pub async fn findings(&self) -> Vec<Finding> {
        let defects =
            self.defects().await.unwrap_or_else(|error| vec![format!("its metrics cannot be read: {error:#}")]);
        let finding = |what| Finding::of_none(SOUND, what);
        self.found.lock().iter().cloned().chain(defects.into_iter().map(finding)).collect()
    }

    /// Stops it in order. Returns the last lines of its log, too.
    pub async fn stop(&self) -> (Vec<String>, anyhow::Result<()>) {
        let process = std::mem::replace(&mut *self.process.lock(), Process::Stopped);
        let Process::Runs(service) = process else { return (Vec::new(), Ok(())) };
        let log = service.log();
        (log, service.stop().await)
    }
}
