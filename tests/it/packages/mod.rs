//! The packages: container image, Compose files, Helm chart, systemd unit, Debian package. They name files that exist, keys of
//! the configuration that exist, and times that fit the drain and the stop of `serve`. `tests/tools` installs what lints and
//! renders them.

mod chart;
mod compose;
mod debian;
mod image;

use std::path::PathBuf;
use std::process::Command;

use payferry::config::Config;

use crate::process::{complaint, printed};

/// Longest stop after the drain, seconds: see docs/src/operate/upgrade.md.
const STOP_SECS: u64 = 10;
/// Version of the packages.
const VERSION: &str = env!("CARGO_PKG_VERSION");

/// The path of a file of the repository.
fn file(path: &str) -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join(path)
}

fn text(path: &str) -> String {
    std::fs::read_to_string(file(path)).unwrap_or_else(|error| panic!("{path}: {error}"))
}

/// A program that `tests/tools` installs.
fn tool(name: &str) -> Command {
    let tools = file(".tools/clients/packages/bin");
    assert!(tools.exists(), "the tools are not installed: run `tests/tools` once");
    let mut command = Command::new(tools.join(name));
    command.current_dir(env!("CARGO_MANIFEST_DIR"));
    command
}

/// Output of a program, which must succeed.
#[track_caller]
fn output(command: &mut Command) -> String {
    let output = command.output().unwrap_or_else(|error| panic!("{}: {error}", command.get_program().display()));
    assert!(
        output.status.success(),
        "{command:?}: {}\n{}",
        complaint(&output),
        String::from_utf8_lossy(&output.stdout)
    );
    printed(&output)
}

/// The configuration of a container or service with these variables and, if it has one, this file.
#[track_caller]
fn configured(toml: Option<&str>, env: impl IntoIterator<Item = (String, String)>) -> Config {
    let folder = tempfile::tempdir().unwrap();
    let path = toml.map(|toml| {
        let path = folder.path().join("payferry.toml");
        std::fs::write(&path, toml).unwrap();
        path
    });
    let config = Config::load(path.as_deref(), env).unwrap_or_else(|error| panic!("{error}"));
    assert!(config.warnings.is_empty(), "{:?}", config.warnings);
    config
}
