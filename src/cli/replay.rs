//! `payferry replay`: runs stored histories through the rules of this version.

use std::num::NonZeroUsize;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::thread::available_parallelism;

use anyhow::{Context, bail};
use payferry_domain::PaymentId;
use payferry_domain::payment::{Command, Event};
use payferry_journal::replay::{
    ReplayCounts, ReplayDifference, ReplayPart, ReplayedHistory, ReplayedStep, history_of, replay_all,
};
use serde::{Deserialize, Serialize};
use serde_json::json;

use super::database::DatabaseArgs;
use crate::config::Config;

/// Payments between two lines about the progress.
const PROGRESS_EVERY: u64 = 100_000;

/// Options of `replay`.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  payferry replay pay_01J9Z3K4M5N6P7Q8R9S0T1V2W3 --config payferry.toml
  payferry replay --all --config payferry.toml
  payferry replay --all --accept accepted.toml --json --database-url /backup/payferry.db

With --all, every payment is compared: its invariants, its row, its events in the feed, its postings in the ledger, and, where
the command of a transition is stored, the decision at the time of the transition. Run it with a new version on a copy of the
database before you deploy that version. Changes nothing, and may run beside the service.

Prints a line for each difference. Exit code 1 if there is one that the file of --accept does not list. An entry of that file
accepts the differences that have all of its fields, and must have a reason:

  [[accepted]]
  reason = \"a payment that expires while a transfer waits is mismatched since 0.3\"
  part = \"decision\"           # history, invariant, decision, state, announcements or postings
  command = \"pass_deadline\"
  stored = \"deadline_passed, failed\"
  now = \"deadline_passed, mismatched\"
  payment_id = \"pay_01J9Z3K4M5N6P7Q8R9S0T1V2W3\"")]
pub(super) struct Args {
    /// Payment whose history is printed.
    #[arg(value_name = "PAYMENT", required_unless_present = "all", conflicts_with = "all")]
    payment: Option<PaymentId>,
    /// Compare every payment.
    #[arg(long)]
    all: bool,
    /// File of accepted differences (TOML).
    #[arg(long, value_name = "FILE", requires = "all")]
    accept: Option<PathBuf>,
    /// Pages that are compared at a time [default: one for each core].
    #[arg(long, value_name = "NUMBER", requires = "all")]
    workers: Option<NonZeroUsize>,
    /// Print one line of JSON for each difference or transition, and one at the end.
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    database: DatabaseArgs,
}

pub(super) async fn run(args: Args, config: Config) -> anyhow::Result<ExitCode> {
    let accepted = args.accept.as_deref().map(Accepted::read).transpose()?.unwrap_or_default();
    let database = args.database.open(&config).await?;
    let code = if let Some(payment) = args.payment {
        let history = history_of(&database, payment).await?;
        if history.steps.is_empty() && history.stopped.is_none() {
            bail!("no payment {payment} exists");
        }
        print_history(&history, args.json)
    } else {
        let workers = args.workers.or_else(|| available_parallelism().ok()).unwrap_or(NonZeroUsize::MIN);
        let mut all = All { accepted, ..All::default() };
        let counts = replay_all(&database, workers, |counts, found| all.take(counts, &found, args.json)).await?;
        all.finish(counts, args.json)?
    };
    database.close().await?;
    Ok(code)
}

/// Differences that were reviewed and are intended.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
struct Accepted {
    #[serde(default)]
    accepted: Vec<AcceptedDifference>,
}

/// The differences that have all of these fields.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct AcceptedDifference {
    reason: String,
    part: Option<ReplayPart>,
    command: Option<String>,
    stored: Option<String>,
    now: Option<String>,
    payment_id: Option<PaymentId>,
    /// Number of differences that it has accepted.
    #[serde(skip)]
    used: u64,
}

impl Accepted {
    fn read(file: &Path) -> anyhow::Result<Self> {
        let name = file.display();
        let text = std::fs::read_to_string(file).with_context(|| format!("--accept: {name} cannot be read"))?;
        let read: Self =
            toml::from_str(&text).with_context(|| format!("--accept: {name} is not a list of differences"))?;
        for (place, one) in read.accepted.iter().enumerate() {
            let number = place + 1;
            if one.reason.trim().is_empty() {
                bail!("--accept: entry {number} of {name} has no reason");
            }
            if one.accepts_everything() {
                bail!(
                    "--accept: entry {number} of {name} accepts every difference; set at least one field besides the reason"
                );
            }
        }
        Ok(read)
    }
}

impl AcceptedDifference {
    fn accepts_everything(&self) -> bool {
        self.part.is_none()
            && [&self.command, &self.stored, &self.now].iter().all(|field| field.is_none())
            && self.payment_id.is_none()
    }

    fn accepts(&self, difference: &ReplayDifference) -> bool {
        let is = |wanted: &Option<String>, found: &str| wanted.as_deref().is_none_or(|wanted| wanted == found);
        self.part.is_none_or(|part| part == difference.part)
            && is(&self.command, difference.command.unwrap_or_default())
            && is(&self.stored, &difference.stored)
            && is(&self.now, &difference.now)
            && self.payment_id.is_none_or(|id| id.to_string() == difference.payment_id)
    }
}

/// State of a replay of all payments.
#[derive(Default)]
struct All {
    accepted: Accepted,
    differences: u64,
    told: u64,
}

/// A difference in the output.
#[derive(Serialize)]
struct DifferenceLine<'a> {
    #[serde(flatten)]
    difference: &'a ReplayDifference,
    /// Reason why it is accepted.
    accepted: Option<&'a str>,
}

impl All {
    fn take(&mut self, counts: ReplayCounts, found: &[ReplayDifference], is_json: bool) {
        for difference in found {
            let by = self.accepted.accepted.iter_mut().find(|one| one.accepts(difference));
            let accepted = by.map(|one| {
                one.used += 1;
                one.reason.as_str()
            });
            self.differences += u64::from(accepted.is_none());
            if is_json {
                println!("{}", json!(DifferenceLine { difference, accepted }));
            } else {
                println!("{}", line(difference, accepted));
            }
        }
        if counts.payments / PROGRESS_EVERY > self.told {
            self.told = counts.payments / PROGRESS_EVERY;
            eprintln!("{} payments", counts.payments);
        }
    }

    fn finish(&self, counts: ReplayCounts, is_json: bool) -> anyhow::Result<ExitCode> {
        let accepted: u64 = self.accepted.accepted.iter().map(|one| one.used).sum();
        let unused: Vec<&str> =
            self.accepted.accepted.iter().filter(|one| one.used == 0).map(|one| one.reason.as_str()).collect();
        if is_json {
            let mut end = serde_json::to_value(counts)?;
            end["differences"] = self.differences.into();
            end["accepted"] = accepted.into();
            end["unused"] = unused.into();
            println!("{end}");
        } else {
            for reason in unused {
                println!("unused   {reason}");
            }
            let ReplayCounts { payments, transitions, decided } = counts;
            println!(
                "{payments} payments with {transitions} transitions replayed, {decided} of them decided again: {} differences, \
                 {accepted} accepted",
                self.differences
            );
        }
        Ok(if self.differences == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE })
    }
}

fn line(difference: &ReplayDifference, accepted: Option<&str>) -> String {
    let ReplayDifference { payment_id, version, part, command, stored, now } = difference;
    let word = if accepted.is_some() { "accepted" } else { "differs " };
    let version = version.map(|version| format!(" version {version}")).unwrap_or_default();
    let command = command.map(|command| format!(" of {command}")).unwrap_or_default();
    let reason = accepted.map(|reason| format!(" ({reason})")).unwrap_or_default();
    format!("{word} {payment_id}{version}: {part}{command}: stored {stored}; now {now}{reason}")
}

fn print_history(history: &ReplayedHistory, is_json: bool) -> ExitCode {
    let mut differs = history.stopped.is_some();
    for ReplayedStep { stored, decided_us, replayed } in &history.steps {
        let transition = &replayed.transition;
        let (payment, events) = (&transition.payment, stored.events.iter().map(Event::name).collect::<Vec<_>>());
        let command = stored.command.as_ref().map(Command::name);
        let announced: Vec<_> = transition.announcements.iter().map(|one| one.name.as_str()).collect();
        differs |= replayed.difference.is_some();
        if is_json {
            println!(
                "{}",
                json!({ "version": stored.version, "at": stored.at, "command": command, "decided_us": decided_us,
                    "events": events, "announcements": announced, "postings": transition.postings.len(),
                    "effects": transition.effects, "status": payment.status, "labels": payment.labels,
                    "differs": replayed.difference.is_some() })
            );
        } else {
            let took = decided_us.map(|took| format!(" in {took} µs")).unwrap_or_default();
            println!("{:>4}  {}  {}{took}", stored.version, stored.at, command.unwrap_or("(command not stored)"));
            println!("      {}  →  {}", events.join(", "), payment.status);
            if !announced.is_empty() {
                println!("      announced {}", announced.join(", "));
            }
            if replayed.difference.is_some() {
                println!("      this version decides otherwise; see `payferry replay --all`");
            }
        }
    }
    if let Some(reason) = &history.stopped {
        println!("{}", if is_json { json!({ "stopped": reason }).to_string() } else { format!("stopped at {reason}") });
    }
    if differs { ExitCode::FAILURE } else { ExitCode::SUCCESS }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> anyhow::Result<Accepted> {
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(file.path(), text).unwrap();
        Accepted::read(file.path())
    }

    #[test]
    fn an_entry_accepts_the_differences_that_have_all_of_its_fields() {
        let difference = ReplayDifference {
            payment_id: PaymentId::generate().to_string(),
            version: Some(3),
            part: ReplayPart::Decision,
            command: Some("pass_deadline"),
            stored: "failed".to_owned(),
            now: "mismatched".to_owned(),
        };
        let accepts = |fields: &str| {
            let read = read(&format!("[[accepted]]\nreason = \"since 0.3\"\n{fields}")).unwrap();
            read.accepted[0].accepts(&difference)
        };
        assert!(accepts("command = \"pass_deadline\"\npart = \"decision\""));
        assert!(accepts(&format!("payment_id = \"{}\"", difference.payment_id)));
        assert!(!accepts("command = \"pass_deadline\"\nnow = \"settled\""));
        assert!(!accepts("part = \"state\""));
    }

    #[test]
    fn an_entry_needs_a_reason_and_a_condition() {
        for (text, why) in [
            ("[[accepted]]\nreason = \" \"\npart = \"state\"", "has no reason"),
            ("[[accepted]]\nreason = \"all\"", "accepts every difference"),
            ("[[accepted]]\nreason = \"typo\"\ncomand = \"cancel\"", "is not a list of differences"),
        ] {
            let error = read(text).unwrap_err().to_string();
            assert!(error.contains(why), "{error}");
        }
    }
}
