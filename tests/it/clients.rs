//! Clients that are generated from the OpenAPI document, schemathesis, which tests the service against the document, and
//! libraries for chains. They use a running sandbox, and need the tools that `tests/tools` installs for `./check --long`.

use std::path::{Path, PathBuf};
use std::process::Command;

use tempfile::TempDir;

use crate::prelude::*;
use crate::process::{Running, complaint};

/// Seconds of schemathesis, without what it needs for its last cases.
const SCHEMATHESIS_SECS: u32 = 240;
/// Cases per operation and phase.
const SCHEMATHESIS_EXAMPLES: u32 = 25;

/// A running sandbox, and a folder with its document and the files of a client.
struct Client {
    sandbox: Running,
    folder: TempDir,
    tools: PathBuf,
}

impl Client {
    async fn start(name: &str) -> Self {
        let root = Path::new(env!("CARGO_MANIFEST_DIR"));
        let tools = root.join(".tools/clients").join(name);
        assert!(tools.exists(), "the tools are not installed: run `PAYFERRY_CHECK_LONG=1 tests/tools` once");
        let (sandbox, folder) = (Running::new().await, tempfile::tempdir().unwrap());
        let document = sandbox.ok(Method::GET, "/openapi.json", None).await;
        std::fs::write(folder.path().join("openapi.json"), document.to_string()).unwrap();
        for file in std::fs::read_dir(root.join("tests/clients").join(name)).unwrap() {
            let file = file.unwrap();
            std::fs::copy(file.path(), folder.path().join(file.file_name())).unwrap();
        }
        Self { sandbox, folder, tools }
    }

    /// Runs a command in the folder, which must succeed; returns what it printed.
    fn run(&self, program: &Path, arguments: &[&str]) -> String {
        let mut command = Command::new(program);
        // Python does not look for modules in the folder by itself.
        command.args(arguments).current_dir(self.folder.path()).env("PYTHONPATH", ".");
        let output = command.output().unwrap();
        let printed = String::from_utf8_lossy(&output.stdout).into_owned();
        assert!(output.status.success(), "{}: {printed}\n{}", program.display(), complaint(&output));
        printed
    }

    /// Lets Node.js find the packages.
    fn link_packages(&self) -> PathBuf {
        let packages = self.tools.join("node_modules");
        std::os::unix::fs::symlink(&packages, self.folder.path().join("node_modules")).unwrap();
        packages
    }

    /// URL and key of the sandbox.
    fn target(&self) -> [&str; 2] {
        ["api_url", "api_key"].map(|name| self.sandbox.text(name))
    }

    /// Asserts that the client read back a payment and a customer, whose ids it printed.
    async fn assert_made(&self, printed: &str) {
        let (payment, customer) = printed.trim().split_once(' ').unwrap();
        let read = self.sandbox.ok(Method::GET, &format!("/payments/{payment}"), None).await;
        assert_eq!(read["amount"], "10.50");
        let read = self.sandbox.ok(Method::GET, &format!("/api/v1/customers/{customer}"), None).await;
        assert_eq!(read["customer"]["first_name"], "Ada");
    }
}

#[tokio::test]
#[ignore = "long"]
async fn typescript_client_has_the_right_types_and_works() {
    let client = Client::start("typescript").await;
    let packages = client.link_packages();
    let generate = ["openapi.json", "--output", "schema.d.ts", "--default-non-nullable", "false"];
    client.run(&packages.join(".bin/openapi-typescript"), &generate);
    // Checks the types and writes the program.
    client.run(&packages.join(".bin/tsc"), &["--project", "."]);
    let [url, key] = client.target();
    client.assert_made(&client.run(Path::new("node"), &["out/client.js", url, key])).await;
}

#[tokio::test]
#[ignore = "long"]
async fn python_client_has_the_right_types_and_works() {
    let client = Client::start("python").await;
    let python = client.tools.join("bin/python");
    let generate = ["-m", "openapi_python_client", "generate", "--path", "openapi.json", "--meta", "none"];
    client.run(&python, &[&generate[..], &["--output-path", "payferry_client"]].concat());
    client.run(&python, &["-m", "mypy", "--strict", "payferry_client", "client.py"]);
    let [url, key] = client.target();
    client.assert_made(&client.run(&python, &["client.py", url, key])).await;
}

/// The exceptions are in `schemathesis.toml` and `exceptions.py` in `tests/clients/python`, each with its reason.
#[tokio::test]
#[ignore = "long"]
async fn schemathesis_finds_no_difference() {
    let client = Client::start("python").await;
    let [url, key] = client.target();
    let (key, examples, secs) =
        (format!("Authorization: Bearer {key}"), SCHEMATHESIS_EXAMPLES.to_string(), SCHEMATHESIS_SECS.to_string());
    let (script, document) = (client.tools.join("bin/schemathesis"), format!("{url}/openapi.json"));
    let what = [script.to_str().unwrap(), "--config-file", "schemathesis.toml", "run", &document, "--header", &key];
    let how = ["--checks", "all", "--suppress-health-check", "all", "--continue-on-failure", "--no-color"];
    let bounds = ["--max-examples", &examples, "--seed", "1", "--max-time", &secs];
    let arguments = [&what[..], &how, &bounds].concat();
    let printed = client.run(&client.tools.join("bin/python"), &arguments);
    println!("{printed}");
}

/// The work that a client does on the chains of the sandbox: balances, transfers, events, calls, reverts, and snapshots.
#[tokio::test]
#[ignore = "long"]
async fn libraries_for_chains_work_on_the_sandbox() {
    let javascript = Client::start("chain-javascript").await;
    javascript.link_packages();
    let [url, key] = javascript.target();
    for script in ["ethers.mjs", "viem.mjs"] {
        assert_eq!(javascript.run(Path::new("node"), &[script, url, key]).trim(), "ok");
    }
    let python = Client::start("chain-python").await;
    let [url, key] = python.target();
    let interpreter = python.tools.join("bin/python");
    assert_eq!(python.run(&interpreter, &["web3_client.py", url, key]).trim(), "ok");
}
