//! The systemd unit and the Debian package.

use std::process::Command;

use super::{STOP_SECS, VERSION, configured, file, output, text};
use crate::process::complaint;

/// Highest accepted exposure of `systemd-analyze security`, in tenths: 2.0.
const EXPOSURE_MAX: &str = "20";

/// Values of a key of the unit.
fn values<'a>(unit: &'a str, key: &str) -> Vec<&'a str> {
    unit.lines().filter_map(|line| line.strip_prefix(key)?.strip_prefix('=')).collect()
}

#[test]
fn unit_is_valid_and_hardened() {
    let unit = text("packaging/systemd/payferry.service");
    let folder = tempfile::tempdir().unwrap();
    let copy = folder.path().join("payferry.service");
    // The program of the package is not on this machine.
    std::fs::write(&copy, unit.replace("/usr/bin/payferry", env!("CARGO_BIN_EXE_payferry"))).unwrap();
    let analyze = || Command::new("systemd-analyze");
    let findings = analyze().args(["verify", "--man=no"]).arg(&copy).output().unwrap();
    let findings = format!("{}\n{}", String::from_utf8_lossy(&findings.stdout), complaint(&findings));
    assert!(!findings.contains("payferry.service"), "{findings}");
    output(analyze().args(["security", "--offline=yes", "--threshold", EXPOSURE_MAX]).arg(&copy));

    let env = values(&unit, "Environment").into_iter().map(|setting| setting.split_once('=').unwrap());
    let env = env.map(|(name, value)| (name.to_owned(), value.replace("%d", "/credentials")));
    let config = configured(None, env);
    let [stop] = values(&unit, "TimeoutStopSec")[..] else { panic!("{unit}") };
    assert!(stop.parse::<u64>().unwrap() > config.server.drain_secs + STOP_SECS);
    // Each credential that the configuration names is loaded.
    for path in [config.secrets.master_key_file, config.secrets.operator_token_file] {
        let path = path.unwrap();
        let name = path.strip_prefix("/credentials").unwrap().display().to_string();
        assert!(values(&unit, "LoadCredential").contains(&&*format!("{name}:/etc/payferry/{name}")), "{name}");
    }
}

#[test]
fn files_of_the_debian_package_exist() {
    let manifest: toml::Table = text("Cargo.toml").parse().unwrap();
    let deb = &manifest["package"]["metadata"]["deb"];
    for asset in deb["assets"].as_array().unwrap() {
        let source = asset[0].as_str().unwrap();
        // These are built by `packaging/release`.
        if !source.starts_with("target/") {
            let name = source
                .rsplit_once('/')
                .map_or(source, |(folder, pattern)| if pattern.contains('*') { folder } else { source });
            assert!(file(name).exists(), "{source}");
        }
    }
    assert!(file(deb["maintainer-scripts"].as_str().unwrap()).join("postinst").exists());
    assert!(file(deb["systemd-units"]["unit-scripts"].as_str().unwrap()).join("payferry.service").exists());
}

#[test]
fn every_package_has_the_version_of_the_workspace() {
    let chart = text("packaging/helm/payferry/Chart.yaml");
    for expected in [format!("\nversion: {VERSION}\n"), format!("\nappVersion: {VERSION}\n")] {
        assert!(chart.contains(&expected), "Chart.yaml: {expected}");
    }
    assert!(text("CHANGELOG.md").contains(&format!("\n## {VERSION} - ")), "CHANGELOG.md");
}
