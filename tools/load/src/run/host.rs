//! The machine of a run, and the version of the service.
//!
//! Deliberately absent: figures of the run.

use std::fs::read_to_string;

use serde_json::Value;

use crate::report::Host;
use payferry_testkit::psp::Psp;

/// Returns the computer of this process.
pub(super) fn host() -> Host {
    let read = |file| read_to_string(file).ok();
    Host {
        cpu_model: read("/proc/cpuinfo").and_then(|text| field(&text, "model name", ':')),
        memory_bytes: read("/proc/meminfo").and_then(|text| memory_bytes(&text)),
        os: os(),
    }
}

fn memory_bytes(text: &str) -> Option<u64> {
    let total = field(text, "MemTotal", ':')?;
    Some(total.trim_end_matches("kB").trim().parse::<u64>().ok()? * 1_024)
}

/// Returns the name of the system, its kernel and its architecture.
fn os() -> String {
    let release = read_to_string("/etc/os-release").ok();
    let name = release.and_then(|text| field(&text, "PRETTY_NAME", '=')).map(|name| name.trim_matches('"').to_owned());
    let kernel = read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default();
    let name = name.unwrap_or_else(|| std::env::consts::OS.to_owned());
    format!("{name} {} {}", kernel.trim(), std::env::consts::ARCH).replace("  ", " ")
}

/// Returns the first value of a name in lines of names and values.
fn field(text: &str, name: &str, between: char) -> Option<String> {
    let mut lines = text.lines().filter_map(|line| line.split_once(between));
    lines.find(|(found, _)| found.trim() == name).map(|(_, value)| value.trim().to_owned())
}

/// Returns the version in the service's own description of its API.
pub(super) async fn service_version(psp: &Psp) -> Option<String> {
    let document: Value = psp.get("/openapi.json").await.ok()?;
    document.pointer("/info/version")?.as_str().map(str::to_owned)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_names_and_values() {
        let text = "processor\t: 0\nmodel name\t: A CPU @ 2.40GHz\nmodel name\t: Another\nMemTotal:  1024 kB\n";
        assert_eq!(field(text, "model name", ':').as_deref(), Some("A CPU @ 2.40GHz"));
        assert_eq!(field(text, "model", ':'), None);
        assert_eq!(memory_bytes(text), Some(1 << 20));
        assert!(host().os.ends_with(std::env::consts::ARCH), "{:?}", host());
    }
}
