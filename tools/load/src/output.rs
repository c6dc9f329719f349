//! Output of a run: the report on the terminal and in files, and the exit code.

use std::fs::OpenOptions;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::Context;
use serde::Serialize;
use serde_json::Value;

use crate::args::Args;
use crate::compare::{compare, is_report};
use crate::knee::Knee;
use crate::report::{Host, LoadReport, csv, html, prometheus, terminal::Terminal};
use crate::thresholds::Threshold;
use payferry_testkit::audit::findings::Finding;
use payferry_testkit::rate::Ended;

/// Exit code after an interruption, as a shell uses it for SIGINT.
const INTERRUPTED: u8 = 130;

/// Checks that the files can be written, and returns the older report of `--compare`. Called before the load, and not
/// after minutes of it.
pub(crate) fn check(args: &Args) -> anyhow::Result<Option<Value>> {
    for file in files(args) {
        probe(file).with_context(|| format!("the report {} cannot be written", file.display()))?;
    }
    args.compare.as_deref().map(older).transpose()
}

/// Reads an older report.
fn older(file: &Path) -> anyhow::Result<Value> {
    let text =
        std::fs::read_to_string(file).with_context(|| format!("--compare: {} cannot be read", file.display()))?;
    let report = serde_json::from_str(&text).ok().filter(is_report);
    report.with_context(|| format!("--compare: {} is no report of `payferry load --json`", file.display()))
}

fn files(args: &Args) -> impl Iterator<Item = &PathBuf> {
    [&args.report, &args.csv, &args.prometheus].into_iter().flatten()
}

/// Checks that a file can be written. Keeps an existing file, and leaves no new one behind.
fn probe(file: &Path) -> std::io::Result<()> {
    let is_new = !file.try_exists()?;
    OpenOptions::new().append(true).create(true).open(file)?;
    if is_new { std::fs::remove_file(file) } else { Ok(()) }
}

/// Compares the report with the older one, writes the files, prints the report, and returns the exit code.
pub(crate) fn notify(mut report: LoadReport, older: Option<&Value>, args: &Args) -> anyhow::Result<ExitCode> {
    if let Some(older) = older {
        report.comparison = Some(compare(older, &serde_json::to_value(&report)?));
    }
    let report = &report;
    let write = |file: &Option<PathBuf>, content: &dyn Fn() -> anyhow::Result<String>| match file {
        Some(file) => {
            let written = content().and_then(|content| Ok(std::fs::write(file, content)?));
            written.with_context(|| format!("the report {} cannot be written", file.display()))
        }
        None => Ok(()),
    };
    write(&args.report, &|| Ok(html::page(report)))?;
    write(&args.csv, &|| Ok(csv::course(&report.course)))?;
    write(&args.prometheus, &|| Ok(prometheus::figures(report)))?;
    if args.json {
        println!("{}", report.json()?);
    } else {
        println!("{}", Terminal(report));
        for file in files(args) {
            println!("The report is in {}.", file.display());
        }
    }
    Ok(match (report.interrupted, report.is_ok()) {
        (true, _) => ExitCode::from(INTERRUPTED),
        (false, true) => ExitCode::SUCCESS,
        (false, false) => ExitCode::FAILURE,
    })
}

/// Prints the result of a search and returns the exit code. `last` is the report of its last run.
pub(crate) fn notify_knee((knee, last): (Knee, LoadReport), args: &Args) -> anyhow::Result<ExitCode> {
    #[derive(Serialize)]
    struct Printed<'a> {
        passed: bool,
        version: &'a str,
        service_version: Option<&'a str>,
        cores: usize,
        #[serde(flatten)]
        host: &'a Host,
        thresholds: Vec<Threshold>,
        #[serde(flatten)]
        knee: &'a Knee,
        /// Findings of the last run.
        findings: &'a [Finding],
    }
    let passed = knee.is_found();
    let thresholds = args.thresholds_of_search()?;
    if args.json {
        let printed = Printed {
            passed,
            version: last.version,
            service_version: last.service_version.as_deref(),
            cores: last.machine.cores,
            host: &last.machine.host,
            thresholds,
            knee: &knee,
            findings: &last.findings,
        };
        println!("{}", serde_json::to_string(&printed)?);
    } else {
        let thresholds: Vec<String> = thresholds.iter().map(ToString::to_string).collect();
        println!("search for the highest rate with {}, {}\n", thresholds.join(", "), last.request.mix);
        println!("machine   {}\nversion   {}\n\n{knee}", last.machine.title(), last.versions());
    }
    Ok(match knee.ended {
        Ended::Interrupted => ExitCode::from(INTERRUPTED),
        _ if passed => ExitCode::SUCCESS,
        _ => ExitCode::FAILURE,
    })
}
