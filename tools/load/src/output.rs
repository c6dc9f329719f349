//! Output of a run: the report on the terminal and in files, and the exit code.

use std::fs::OpenOptions;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::Context;

use crate::args::Args;
use crate::report::{LoadReport, html, terminal::Terminal};

/// Exit code after an interruption, as a shell uses it for SIGINT.
const INTERRUPTED: u8 = 130;

/// Checks that the files can be written. Called before the load, and not after minutes of it.
pub(crate) fn check(args: &Args) -> anyhow::Result<()> {
    for file in files(args) {
        probe(file).with_context(|| format!("the report {} cannot be written", file.display()))?;
    }
    Ok(())
}

fn files(args: &Args) -> impl Iterator<Item = &PathBuf> {
    [&args.report].into_iter().flatten()
}

/// Checks that a file can be written. Keeps an existing file, and leaves no new one behind.
fn probe(file: &Path) -> std::io::Result<()> {
    let is_new = !file.try_exists()?;
    OpenOptions::new().append(true).create(true).open(file)?;
    if is_new { std::fs::remove_file(file) } else { Ok(()) }
}

/// Writes the files, prints the report, and returns the exit code.
pub(crate) fn notify(report: &LoadReport, args: &Args) -> anyhow::Result<ExitCode> {
    let write = |file: &Option<PathBuf>, content: &dyn Fn() -> anyhow::Result<String>| match file {
        Some(file) => {
            let written = content().and_then(|content| Ok(std::fs::write(file, content)?));
            written.with_context(|| format!("the report {} cannot be written", file.display()))
        }
        None => Ok(()),
    };
    write(&args.report, &|| Ok(html::page(report)))?;
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
