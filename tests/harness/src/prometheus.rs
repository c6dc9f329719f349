//! Prometheus and Alertmanager, each in a process of its own, with the configurations of `ops/`. `tests/tools` installs them.

use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::Value;
use tempfile::TempDir;

use crate::process::KilledOnDrop;

/// Start of the address in the message that a server is ready.
const LISTENING: &str = r#"msg="Listening on" address="#;

/// The configurations, rules and dashboards of the repository.
pub fn ops() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../ops")
}

/// Reads a file of `ops/` and replaces parts of it, each of which occurs once.
pub fn adapted(file: &str, replacements: &[(&str, &str)]) -> String {
    let text = std::fs::read_to_string(ops().join(file)).unwrap();
    replacements.iter().fold(text, |text, (from, to)| {
        assert_eq!(text.matches(from).count(), 1, "{from} in {file}");
        text.replace(from, to)
    })
}

/// A running server, killed on drop.
#[derive(Debug)]
pub struct Server {
    _process: KilledOnDrop,
    /// Address.
    pub url: String,
    _folder: TempDir,
}

impl Server {
    /// Starts Prometheus with this configuration, beside the rules of `ops/`.
    pub fn prometheus(config: &str) -> Self {
        let folder = folder(config);
        std::fs::copy(ops().join("alerts.yml"), folder.path().join("alerts.yml")).unwrap();
        let mut command = Command::new("prometheus");
        command.arg("--storage.tsdb.path").arg(folder.path().join("data"));
        Self::start(command, folder)
    }

    /// Starts Alertmanager with this configuration.
    pub fn alertmanager(config: &str) -> Self {
        let folder = folder(config);
        let mut command = Command::new("prometheus-alertmanager");
        command.arg("--storage.path").arg(folder.path().join("data")).arg("--cluster.listen-address=");
        Self::start(command, folder)
    }

    fn start(mut command: Command, folder: TempDir) -> Self {
        let config = format!("--config.file={}", folder.path().join("config.yml").display());
        command.args([&config, "--web.listen-address=127.0.0.1:0"]);
        let program = command.get_program().to_string_lossy().into_owned();
        let address = |line: &str| Some(line.split_once(LISTENING)?.1.split_whitespace().next()?.to_owned());
        let started = KilledOnDrop::spawn_until(&mut merged(&command), address).unwrap();
        let (process, address) =
            started.unwrap_or_else(|| panic!("{program} did not start; run tests/tools to install it"));
        Self { _process: process, url: format!("http://{address}"), _folder: folder }
    }

    /// Data of an answer of the server's API.
    pub async fn get(&self, path: &str, parameters: &[(&str, &str)]) -> Value {
        crate::install_tls();
        let url = url::Url::parse_with_params(&format!("{}{path}", self.url), parameters).unwrap();
        // It answers with a text until it has started.
        let ask = async || reqwest::get(url.clone()).await?.json::<Value>().await;
        let answer = crate::eventually(format!("{url} answers with JSON"), ask).await;
        assert_eq!(answer["status"], "success", "{path} {parameters:?}: {answer}");
        answer["data"].clone()
    }
}

fn folder(config: &str) -> TempDir {
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("config.yml"), config).unwrap();
    folder
}

/// The command with its messages on standard output.
fn merged(command: &Command) -> Command {
    let mut shell = Command::new("sh");
    shell.args(["-c", r#"exec "$@" 2>&1"#, "sh"]).arg(command.get_program()).args(command.get_args());
    shell
}
