//! Child processes: the sandbox that is measured, and the bound that it is compared with.

use std::process::Command;

use payferry_testkit::service::{SandboxOptions, Service, program};

/// Environment variable with the database URL of the bound.
pub const BOUND_DATABASE_URL: &str = "PAYFERRY_BENCH_BOUND_DATABASE_URL";

/// Starts a sandbox. Returns when all of its payments are live.
pub(super) async fn start(options: &SandboxOptions) -> anyhow::Result<Service> {
    let service = Service::sandbox(options).await?;
    service.until_live().await?;
    Ok(service)
}

/// Starts the bound ([`super::bound`]).
pub(super) async fn start_bound(database_url: &str) -> anyhow::Result<Service> {
    Service::start(bound_command(database_url)?, "bound").await
}

fn bound_command(database_url: &str) -> anyhow::Result<Command> {
    let mut command = program(None, true)?;
    // Not as an argument, which every user of the machine can read: it may contain a password.
    command.args(["bench", "--bound-server"]).env(BOUND_DATABASE_URL, database_url);
    Ok(command)
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use std::ffi::OsStr;

    use super::*;

    #[test]
    fn the_password_of_a_database_is_in_no_argument() {
        let url = "postgres://bench:secret@127.0.0.1:5432/bound";
        let command = bound_command(url).unwrap();
        let args: Vec<_> = command.get_args().collect();
        assert_eq!(args, ["bench", "--bound-server"]);
        let named = command.get_envs().find(|(name, _)| *name == OsStr::new(BOUND_DATABASE_URL));
        assert_eq!(named.and_then(|(_, value)| value), Some(OsStr::new(url)));
    }
}
