//! A further node of a sandbox, in a process of its own.

use std::ffi::OsString;
use std::path::Path;
use std::time::Duration;

use anyhow::Context;
use payferry_runtime::clock::Clock;
use payferry_sandbox::{MemberStart, NodeReady, Orders, keys_file, member_setups};
use tokio::process::Command;

use super::{Keys, Shared, open};
use crate::app::{App, Listeners};
use crate::config::Config;

/// Variable with the URL of the database, which may contain a password.
pub const DATABASE_URL_ENV: &str = "PAYFERRY_SANDBOX_DATABASE_URL";
/// Option of the command `sandbox` that starts a member.
pub const MEMBER_OPTION: &str = "member";

/// Name of a node, counted from 1.
pub(super) fn name(number: usize) -> String {
    format!("n{number}")
}

/// Addresses of a node that is ready.
pub(super) fn ready(app: &App) -> NodeReady {
    let ready = app.ready().clone();
    let name = app.system().node().name().to_owned();
    NodeReady { name, api_url: ready.api_url, operator_url: ready.operator_url, pid: ready.pid }
}

/// The command that starts a member.
pub(super) fn command(program: &[OsString], folder: &Path, database_url: &str) -> anyhow::Result<Command> {
    let (program, options) = program.split_first().context("the program that starts a node is not known")?;
    let mut command = Command::new(program);
    command.args(options).args(["sandbox", "--listen", "127.0.0.1:0", "--operator-listen", "127.0.0.1:0"]);
    // A process group of its own: ctrl-c is for the first process, which ends the others.
    command.process_group(0);
    command.arg(format!("--{MEMBER_OPTION}")).arg("--data-dir").arg(folder).env(DATABASE_URL_ENV, database_url);
    Ok(command)
}

/// Runs a member until the first process ends it, or until it must not write any more. It drains when `asked` to.
pub async fn run(
    folder: &Path,
    database_url: &str,
    mut orders: Orders,
    config: &Config,
    asked: impl Future<Output = ()>,
) -> anyhow::Result<()> {
    let start: MemberStart = orders.start().await?;
    let keys = Keys::read(&keys_file(folder))?.context("the data folder has no keys")?;
    let clock = Clock::with_offset_ms(start.offset_ms);
    let mut listeners = Listeners::bind(config).await?;
    listeners.public_url = start.public_url.clone();
    let routes = payferry_sandbox::routes::forwarding(start.first_url.clone())?;
    let shared = Shared { config, folder, keys: &keys, clock: &clock };
    let (database, chains) = (open(database_url, true).await?, member_setups(&start)?);
    let parts = shared.parts(database, Some(start.name.clone()), &start.public_url, chains, routes)?;
    let app = App::start(config, listeners, parts).await?;
    let ready = ready(&app);
    let drained = async {
        asked.await;
        app.drain(Duration::from_secs(config.server.drain_secs)).await;
    };
    tokio::select! {
        followed = orders.follow(&ready, &clock, app.system()) => followed?,
        () = drained => {}
        why = app.writer_lost() => anyhow::bail!("{why}; this node has stopped writing, and ends"),
    }
    app.stop().await;
    Ok(())
}
