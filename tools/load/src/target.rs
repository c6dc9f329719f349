//! The service that gets the load: a running sandbox, or a new one in a child process.

use std::net::IpAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, bail, ensure};
use tokio_util::sync::CancellationToken;
use tokio_util::task::AbortOnDropHandle;
use url::{Host, Url};

use crate::args::Args;
use crate::own::OwnSandbox;
use crate::report::LoadReport;
use crate::run::{Plan, Target, run as carry_out};
use payferry_testkit::audit::findings::Finding;
use payferry_testkit::progress::Progress;
use payferry_testkit::service::ChildSandboxOptions;

/// Interval of the checks whether the child process is alive.
const ALIVE_POLL: Duration = Duration::from_millis(200);

/// Target of a sandbox that already runs.
pub(crate) fn foreign(url: &Url, key: &str, allow_remote: bool) -> anyhow::Result<Target> {
    ensure!(url.scheme() == "http", "--url: only the scheme http is supported, as in http://127.0.0.1:8080");
    // Checked before the URL is printed anywhere.
    let names_someone = !url.username().is_empty() || url.password().is_some();
    ensure!(!names_someone, "--url: a user and a password are not supported; give the API key with --key");
    let is_bare = url.path() == "/" && url.query().is_none() && url.fragment().is_none();
    ensure!(is_bare, "--url: only a host and a port are supported, as in http://127.0.0.1:8080, not {url}");
    let is_local = match url.host() {
        Some(Host::Domain(name)) => name == "localhost",
        Some(Host::Ipv4(address)) => IpAddr::from(address).is_loopback(),
        Some(Host::Ipv6(address)) => IpAddr::from(address).is_loopback(),
        None => false,
    };
    if !is_local && !allow_remote {
        bail!("--url: {url} is not on this machine; add --allow-remote if it is yours");
    }
    let (url, keys) = (url.as_str().trim_end_matches('/').to_owned(), vec![key.to_owned()]);
    Ok(Target { url, keys, own: None, is_alone: false, ended: CancellationToken::new() })
}

/// A sandbox that was started for one run, or for all runs of a search.
pub(crate) struct Started {
    sandbox: Arc<OwnSandbox>,
    target: Target,
    /// Description of it in reports.
    place: &'static str,
    _watching: AbortOnDropHandle<()>,
}

impl Started {
    /// Starts it. With `is_killed`, it can be killed and started again on its data.
    pub(crate) async fn start(
        args: &Args,
        config_file: Option<PathBuf>,
        is_killed: bool,
        bar: &Progress,
    ) -> anyhow::Result<Self> {
        bar.say("start the sandbox");
        let options = ChildSandboxOptions {
            database_url: args.database_url.clone(),
            block_time: args.block_time_ms.map(Duration::from_millis),
            nodes: args.nodes,
            config: config_file,
            ..ChildSandboxOptions::default()
        };
        let sandbox = Arc::new(OwnSandbox::start(options, is_killed).await?);
        let ready = sandbox.ready();
        let mut keys = vec![ready.api_key.clone()];
        for number in 2..=args.psps.unwrap_or(1) {
            keys.push(sandbox.make_psp(&format!("Load PSP {number}")).await.context("another PSP cannot be made")?);
        }
        let ended = CancellationToken::new();
        let target = Target {
            url: ready.api_url.clone(),
            keys,
            own: Some(Arc::clone(&sandbox)),
            // Late webhooks of one run of a search may arrive in the next one.
            is_alone: !args.find_knee,
            ended: ended.clone(),
        };
        let watched = Arc::clone(&sandbox);
        let watching = AbortOnDropHandle::new(tokio::spawn(async move {
            while !watched.has_ended() {
                tokio::time::sleep(ALIVE_POLL).await;
            }
            ended.cancel();
        }));
        let place = if args.database_url.is_some() { "a new sandbox with the given database" } else { "a new sandbox" };
        Ok(Self { sandbox, target, place, _watching: watching })
    }

    /// Puts the load on it.
    pub(crate) async fn put(
        &self,
        mut plan: Plan,
        stop: &CancellationToken,
        bar: &Progress,
    ) -> anyhow::Result<LoadReport> {
        self.place.clone_into(&mut plan.request.target);
        carry_out(&plan, &self.target, stop, bar).await
    }

    /// Stops it, whatever came of the run. `report_of` is the report in the result of the last run.
    pub(crate) async fn stop<T>(
        self,
        ran: anyhow::Result<T>,
        report_of: impl FnOnce(&mut T) -> &mut LoadReport,
        bar: &Progress,
    ) -> anyhow::Result<T> {
        bar.say("stop the sandbox");
        let (log, stopped) = self.sandbox.stop().await;
        let mut ran = ran.with_context(|| {
            format!("the last line of the sandbox's log: {}", log.last().map_or("none", String::as_str))
        })?;
        let report = report_of(&mut ran);
        report.service_log = log;
        if let Err(error) = stopped {
            report.findings.push(Finding::of_none("the service stops in order", format!("{error:#}")));
        }
        Ok(ran)
    }
}
