//! The clients in `clients`, schemathesis, which tests the service against the OpenAPI document, and libraries for chains. They use a
//! running sandbox, and need what `tests/tools` installs: for `./check --long`, with `PAYFERRY_CHECK_LONG=1`.

use std::ffi::OsStr;
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Child, Command};

use payferry_harness::{eventually, free_ports};
use tempfile::TempDir;

use crate::prelude::*;
use crate::process::{Running, complaint};

/// Seconds of schemathesis, without what it needs for its last cases.
const SCHEMATHESIS_SECS: u32 = 240;
/// Cases per operation and phase.
const SCHEMATHESIS_EXAMPLES: u32 = 25;
/// The guide of both clients.
const GUIDE: &str = "docs/src/integrate/clients.md";
/// A document of a customer.
const PROOF: &str = "%PDF-1.4\n%%EOF\n";

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

/// A running sandbox, a folder with copies of the files of a client, and the tools of the client.
struct Client {
    sandbox: Running,
    folder: TempDir,
    tools: PathBuf,
}

impl Client {
    /// `files` are in `source`, a folder of the repository.
    async fn start(source: &str, files: &[&str]) -> Self {
        let tools = tools(source);
        let (sandbox, folder) = (Running::new().await, tempfile::tempdir().unwrap());
        copy(&root().join(source), files, folder.path());
        Self { sandbox, folder, tools }
    }

    /// Runs a command in the folder, which must succeed; returns what it printed.
    fn run(&self, program: impl AsRef<OsStr>, arguments: &[&str]) -> String {
        succeeded(self.command(program, arguments))
    }

    fn command(&self, program: impl AsRef<OsStr>, arguments: &[&str]) -> Command {
        let mut command = Command::new(program);
        let [url, key] = self.target();
        command.args(arguments).current_dir(self.folder.path());
        command.env("PAYFERRY_URL", url).env("PAYFERRY_API_KEY", key);
        // Python does not look for modules in the folder by itself.
        command.env("PYTHONPATH", ".:src");
        command
    }

    /// Lets Node.js find the packages.
    fn link_packages(&self) {
        std::os::unix::fs::symlink(self.tools.join("node_modules"), self.folder.path().join("node_modules")).unwrap();
    }

    /// URL and key of the sandbox.
    fn target(&self) -> [&str; 2] {
        ["api_url", "api_key"].map(|name| self.sandbox.text(name))
    }

    /// Writes the examples of the guide and of the README in a language, each page as one program.
    fn write_examples(&self, language: &str, readme: &str, folder: &str, extension: &str) {
        let folder = self.folder.path().join(folder);
        fs::create_dir_all(&folder).unwrap();
        for (name, page) in [("guide", GUIDE), ("readme", readme)] {
            fs::write(folder.join(format!("{name}.{extension}")), examples(page, language)).unwrap();
        }
    }

    /// Runs the examples: the guide ends with its result; the README receives webhooks until it is stopped.
    async fn run_examples(&self, program: &Path, options: &[&str], guide: &str, readme: &str) {
        let printed = self.run(program, &[options, &[guide]].concat());
        assert!(printed.contains("settled 25.00 USDC\n") && printed.contains("payment.settled pay_"), "{printed}");

        fs::write(self.folder.path().join("proof.pdf"), PROOF).unwrap();
        let output = self.folder.path().join("printed");
        let mut command = self.command(program, &[options, &[readme]].concat());
        let [port] = free_ports();
        command.env("PORT", port.to_string());
        let file = File::create(&output).unwrap();
        command.stdout(file.try_clone().unwrap()).stderr(file);
        let mut running = KilledAtEnd(command.spawn().unwrap());
        let stored = format!("{} bytes stored\n", PROOF.len());
        let expected = [" pending http", " settled 24.75\n", "validation_failed", &stored];
        eventually("the examples have printed everything", async || {
            let printed = fs::read_to_string(&output).unwrap();
            assert!(running.0.try_wait().unwrap().is_none(), "{printed}");
            if expected.iter().all(|part| printed.contains(part)) { Ok(()) } else { Err(printed) }
        })
        .await;
    }
}

/// A process that ends with the test, also with a failed one.
struct KilledAtEnd(Child);

impl Drop for KilledAtEnd {
    fn drop(&mut self) {
        self.0.kill().and_then(|()| self.0.wait()).unwrap();
    }
}

/// The folder of what `tests/tools` installed for a folder of the repository.
fn tools(source: &str) -> PathBuf {
    let name = Path::new(source).file_name().unwrap();
    let tools = root().join(".tools/clients").join(name);
    assert!(tools.exists(), "run `tests/tools` once, and for a long test `PAYFERRY_CHECK_LONG=1 tests/tools`");
    tools
}

/// Copies files and folders.
fn copy(source: &Path, files: &[&str], target: &Path) {
    let mut command = Command::new("cp");
    command.arg("-R").args(files).arg(target).current_dir(source);
    succeeded(command);
}

/// Runs a command, which must succeed; returns what it printed.
fn succeeded(mut command: Command) -> String {
    let output = command.output().unwrap();
    let printed = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(output.status.success(), "{command:?}: {printed}\n{}", complaint(&output));
    printed
}

/// The examples of a page of the repository in a language, as one program.
fn examples(page: &str, language: &str) -> String {
    let text = fs::read_to_string(root().join(page)).unwrap();
    let fence = format!("\n```{language}\n");
    let blocks: Vec<_> = text.split(&fence).skip(1).map(|rest| rest.split_once("\n```").unwrap().0).collect();
    assert!(!blocks.is_empty(), "{page} has no examples in {language}");
    blocks.join("\n\n")
}

#[tokio::test]
async fn generated_code_of_clients_is_up_to_date() {
    let (folder, app) = (tempfile::tempdir().unwrap(), TestApp::start().await);
    let document = folder.path().join("openapi.json");
    fs::write(&document, app.open("/openapi.json").await.text()).unwrap();
    let mut generate = Command::new(root().join("clients/generate"));
    if std::env::var_os("PAYFERRY_UPDATE_CLIENTS").is_none() {
        generate.arg("--check");
    }
    generate.arg(document);
    succeeded(generate);
}

#[tokio::test]
async fn typescript_client_takes_a_payment_to_settled() {
    let client = Client::start("clients/typescript", &["package.json", "tsconfig.json", "src"]).await;
    client.link_packages();
    client.write_examples("ts", "clients/typescript/README.md", "src/test/examples", "ts");
    // Checks the types and writes the programs, too.
    println!("{}", client.run("npm", &["test"]));
    let [guide, readme] = ["guide", "readme"].map(|name| format!("dist/test/examples/{name}.js"));
    client.run_examples(Path::new("node"), &[], &guide, &readme).await;
}

#[tokio::test]
async fn python_client_takes_a_payment_to_settled() {
    let client = Client::start("clients/python", &["pyproject.toml", "src", "tests"]).await;
    let python = client.tools.join("bin/python");
    client.write_examples("python", "clients/python/README.md", "examples", "py");
    client.run(&python, &["-m", "mypy", "src", "tests", "examples/guide.py", "examples/readme.py"]);
    client.run(&python, &["-W", "error", "-m", "unittest"]);
    client.run_examples(&python, &["-u"], "examples/guide.py", "examples/readme.py").await;
}

/// Runs the commands of each page in a project beside a checkout, with the registries of npm and PyPI. The commands of the guide also
/// run its programs.
#[tokio::test]
#[ignore = "long"]
async fn guides_of_clients_work_from_the_first_command() {
    let sandbox = Running::new().await;
    for page in ["clients/typescript/README.md", "clients/python/README.md", GUIDE] {
        let folder = tempfile::tempdir().unwrap();
        let [checkout, project] = ["payferry/clients", "project"].map(|name| folder.path().join(name));
        for (name, files) in [
            ("typescript", &["package.json", "package-lock.json", "tsconfig.json", "README.md", "src"][..]),
            ("python", &["pyproject.toml", "README.md", "src"]),
        ] {
            fs::create_dir_all(checkout.join(name)).unwrap();
            copy(&root().join("clients").join(name), files, &checkout.join(name));
        }
        fs::create_dir(&project).unwrap();
        if page == GUIDE {
            fs::write(project.join("pay.ts"), examples(page, "ts")).unwrap();
            fs::write(project.join("pay.py"), examples(page, "python")).unwrap();
        }
        let mut bash = Command::new("bash");
        bash.args(["-euxo", "pipefail", "-c", &examples(page, "sh")]).current_dir(&project);
        bash.env("PAYFERRY_URL", sandbox.text("api_url")).env("PAYFERRY_API_KEY", sandbox.text("api_key"));
        let printed = succeeded(bash);
        let settled = printed.matches("settled 25.00 USDC\n").count();
        assert_eq!(settled, if page == GUIDE { 2 } else { 0 }, "{printed}");
    }
}

/// The exceptions are in `schemathesis.toml` and `exceptions.py` in `tests/clients/schemathesis`, each with its reason.
#[tokio::test]
#[ignore = "long"]
async fn schemathesis_finds_no_difference() {
    let client = Client::start("tests/clients/schemathesis", &["schemathesis.toml", "exceptions.py"]).await;
    let [url, key] = client.target();
    let (key, examples, secs) =
        (format!("Authorization: Bearer {key}"), SCHEMATHESIS_EXAMPLES.to_string(), SCHEMATHESIS_SECS.to_string());
    let (script, document) = (client.tools.join("bin/schemathesis"), format!("{url}/openapi.json"));
    let what = [script.to_str().unwrap(), "--config-file", "schemathesis.toml", "run", &document, "--header", &key];
    let how = ["--checks", "all", "--suppress-health-check", "all", "--continue-on-failure", "--no-color"];
    let bounds = ["--max-examples", &examples, "--seed", "1", "--max-time", &secs];
    let arguments = [&what[..], &how, &bounds].concat();
    let printed = client.run(client.tools.join("bin/python"), &arguments);
    println!("{printed}");
}

/// The work that a client does on the chains of the sandbox: balances, transfers, events, calls, reverts, and snapshots.
#[tokio::test]
#[ignore = "long"]
async fn libraries_for_chains_work_on_the_sandbox() {
    let files = ["package.json", "sandbox.mjs", "ethers.mjs", "viem.mjs"];
    let javascript = Client::start("tests/clients/chain-javascript", &files).await;
    javascript.link_packages();
    let [url, key] = javascript.target();
    for script in ["ethers.mjs", "viem.mjs"] {
        assert_eq!(javascript.run("node", &[script, url, key]).trim(), "ok");
    }
    let python = Client::start("tests/clients/chain-python", &["web3_client.py"]).await;
    let [url, key] = python.target();
    let interpreter = python.tools.join("bin/python");
    assert_eq!(python.run(&interpreter, &["web3_client.py", url, key]).trim(), "ok");
}
