//! The container image: its Dockerfiles pass the linter, and its root file system, made by the same steps, runs the service as
//! another user without writing to it.

use std::os::unix::fs::PermissionsExt as _;
use std::process::Command;

use payferry_harness::process::Starting;
use payferry_harness::{eventually, free_ports};

use super::{file, output, text, tool};
use crate::process::{complaint, printed};

#[test]
fn dockerfiles_pass_the_linter() {
    output(tool("hadolint").args(["Dockerfile", "packaging/postgres/Dockerfile", "--failure-threshold", "warning"]));
}

/// `packaging/rootfs` with these arguments.
fn rootfs(command: &str, folder: &tempfile::TempDir) -> Command {
    let mut script = Command::new(file("packaging/rootfs"));
    script.arg(command).arg(folder.path());
    for (name, _) in std::env::vars().filter(|(name, _)| name.starts_with("PAYFERRY_")) {
        script.env_remove(name);
    }
    script
}

#[tokio::test]
async fn root_file_system_of_the_image_runs_the_service() {
    let folder = tempfile::tempdir().unwrap();
    // The user of the image must be able to enter it.
    std::fs::set_permissions(folder.path(), std::fs::Permissions::from_mode(0o755)).unwrap();
    output(rootfs("make", &folder).arg(env!("CARGO_BIN_EXE_payferry")));
    assert!(output(rootfs("run", &folder).arg("--version")).contains("commit: "));
    // Without arguments, it serves. The configuration is missing.
    let served = rootfs("run", &folder).output().unwrap();
    assert_eq!(served.status.code(), Some(1));
    assert!(complaint(&served).contains("unsafe settings in production"), "{}", complaint(&served));
    // Only the state can be written.
    let elsewhere = rootfs("run", &folder).args(["man", "--out", "/usr/share/man"]).output().unwrap();
    assert!(complaint(&elsewhere).contains("Read-only file system"), "{}", complaint(&elsewhere));

    // Ports of this machine, because the container shares its network.
    let ports: [u16; 2] = free_ports();
    let listeners = ["LISTEN", "OPERATOR_LISTEN"].into_iter().zip(ports);
    let env: Vec<(String, String)> =
        listeners.map(|(name, port)| (format!("PAYFERRY_SERVER__{name}"), format!("127.0.0.1:{port}"))).collect();
    let env: Vec<(&str, &str)> = env.iter().map(|(name, value)| (name.as_str(), value.as_str())).collect();
    let mut sandbox = rootfs("run", &folder);
    sandbox.args(["sandbox", "--json", "--data-dir", "/var/lib/payferry/sandbox"]);
    let running = Starting::spawn(sandbox, folder.path(), &env).ready();
    eventually("the command of HEALTHCHECK succeeds", async || {
        let checked = rootfs("health", &folder).envs(env.iter().copied()).output().unwrap();
        if checked.status.success() { Ok(printed(&checked)) } else { Err(complaint(&checked)) }
    })
    .await;
    drop(running);
    let checked = rootfs("health", &folder).envs(env.iter().copied()).output().unwrap();
    assert_eq!(checked.status.code(), Some(1));
    assert!(folder.path().join("state/sandbox/payferry.db").exists());
    assert!(text("Dockerfile").contains("\nUSER 65532:65532\n"));
}
