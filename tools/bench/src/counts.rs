//! Row `counts`: how many operations a complete payment needs: commits, statements, messages, system calls and
//! allocations. The counts depend little on the machine, so a change of the code shows even on a busy one.
//!
//! The service counts the first three itself. `perf` counts the others; for allocations it needs root, because it probes
//! the allocator. Not here: the time that the operations take.

use std::collections::BTreeMap;
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, ensure};
use payferry_testkit::service::Service;
use tokio::time::Instant;

use super::drive::number;
use super::env::Env;
use super::lifecycle::{Fixture, Turn};
use super::table::{Goal, TableLine};

/// Payments, and how many of them are initiated per second.
const LOAD: (usize, f64) = (1_000, 100.0);
const LOAD_QUICK: (usize, f64) = (20, 20.0);
/// Load while allocations are counted: each costs many times as much then.
const LOAD_PROBED: (usize, f64) = (200, 20.0);
/// Payments before the measurement, for which statements are prepared and connections opened.
const WARM_UP: usize = 100;
/// Time without load. What is counted in it is subtracted, as many times as the load takes.
const IDLE: Duration = Duration::from_secs(10);
const IDLE_QUICK: Duration = Duration::from_secs(2);
/// Time until the service has exported what it has counted.
const EXPORT: Duration = Duration::from_millis(1_500);
/// Time until `perf` counts.
const PERF_START: Duration = Duration::from_millis(500);

/// Operations that the service counts, with their metrics and goals: half of the numbers before writes and messages were batched.
const OWN: [(&str, &str, Goal); 3] = [
    ("commits", "payferry_database_commits_total", Goal::None),
    ("statements", "payferry_database_statements_total", Goal::AtMost(6.3)),
    ("messages of actors", "payferry_actor_messages_total", Goal::AtMost(11.0)),
];
/// Operations that `perf` counts, with their goals.
const SYSTEM_CALLS: (&str, Goal) = ("system calls", Goal::None);
const ALLOCATIONS: (&str, Goal) = ("allocations", Goal::None);
/// Tracepoint of every system call.
const SYSTEM_CALL: &str = "raw_syscalls:sys_enter";
/// Entries of the allocator: those for Rust, and those for C, which SQLite uses.
const ALLOCATOR: [&str; 6] =
    ["mi_malloc_aligned", "mi_zalloc_aligned", "mi_realloc_aligned", "mi_malloc", "mi_calloc", "mi_realloc"];

/// Measures the operations of a complete payment.
pub(super) async fn measure(env: &Env, quick: bool) -> anyhow::Result<Vec<TableLine>> {
    let fixture = Fixture::start(env.options("counts")?).await?;
    let ((payments, rate), idle) = if quick { (LOAD_QUICK, IDLE_QUICK) } else { (LOAD, IDLE) };
    let mut wrong = fixture.turn(rate, if quick { payments } else { WARM_UP }).await?.failures;
    let service = &fixture.service;

    let perf = Perf::check(service, &[SYSTEM_CALL.to_owned()]).await;
    let system_call: &[String] = if perf.is_ok() { &[SYSTEM_CALL.to_owned()] } else { &[] };
    let (counted, turn) = each(&fixture, (payments, rate), idle, system_call).await?;
    let note = format!(
        "{} complete payments, {rate:.0} a second on three chains, including the sandbox's chains; {:.0} s, of which the \
         idle counts were subtracted",
        turn.made,
        turn.took.as_secs_f64(),
    );
    wrong.extend(turn.failures);
    let mut lines: Vec<TableLine> = OWN.iter().map(|(what, _, goal)| line(what, &counted, *goal)).collect();
    lines[0] = lines[0].clone().note(note);
    lines.push(match perf {
        Ok(()) => line(SYSTEM_CALLS.0, &counted, SYSTEM_CALLS.1),
        Err(why) => unmeasured(SYSTEM_CALLS.0, &why),
    });

    let probes = match Probes::set(service) {
        Ok(probes) => Perf::check(service, &probes.events()).await.map(|()| probes),
        Err(why) => Err(why),
    };
    lines.push(match probes {
        Ok(probes) => {
            let (payments, rate) = if quick { LOAD_QUICK } else { LOAD_PROBED };
            let (counted, turn) = each(&fixture, (payments, rate), idle, &probes.events()).await?;
            wrong.extend(turn.failures);
            let note = format!("{} payments, {rate:.0} a second; calls that allocate or resize", turn.made);
            line(ALLOCATIONS.0, &counted, ALLOCATIONS.1).note(note)
        }
        Err(why) => unmeasured(ALLOCATIONS.0, &why),
    });
    wrong.extend(fixture.audit().await?);
    lines[0] = lines[0].clone().wrong(wrong);
    Ok(lines)
}

/// Numbers of operations by name.
type Counts = BTreeMap<&'static str, f64>;

fn line(what: &'static str, each: &Counts, goal: Goal) -> TableLine {
    TableLine::new(format!("{what} of a payment"), each.get(what).copied().unwrap_or_default(), "", goal)
}

/// Line of operations that cannot be counted on this machine.
fn unmeasured(what: &str, why: &anyhow::Error) -> TableLine {
    TableLine::new(format!("{what} of a payment"), 0.0, "", Goal::None).note(format!("not measured: {why:#}"))
}

/// Counts the operations of each payment of a load.
async fn each(
    fixture: &Arc<Fixture>,
    (payments, rate): (usize, f64),
    idle: Duration,
    events: &[String],
) -> anyhow::Result<(Counts, Turn)> {
    let service = &fixture.service;
    let (idle, idle_secs, ()) = count(service, events, async {
        tokio::time::sleep(idle).await;
        Ok(())
    })
    .await?;
    let (busy, busy_secs, turn) = count(service, events, fixture.turn(rate, payments)).await?;
    let share = busy_secs / idle_secs;
    let each = |(what, count): (&&'static str, &f64)| {
        (*what, (count - idle.get(what).copied().unwrap_or_default() * share) / number(turn.made.max(1)))
    };
    Ok((busy.iter().map(each).collect(), turn))
}

/// Counts what the service does while `work` runs, and returns the seconds that it took.
async fn count<T>(
    service: &Service,
    events: &[String],
    work: impl Future<Output = anyhow::Result<T>>,
) -> anyhow::Result<(Counts, f64, T)> {
    let perf = if events.is_empty() { None } else { Some(Perf::start(service, events)?) };
    tokio::time::sleep(PERF_START).await;
    let (before, since) = (exported(service).await?, Instant::now());
    let result = work.await?;
    tokio::time::sleep(EXPORT).await;
    let secs = since.elapsed().as_secs_f64();
    let mut counts = exported(service).await?;
    for (what, count) in &mut counts {
        *count -= before.get(what).copied().unwrap_or_default();
    }
    if let Some(perf) = perf {
        let what = if events == [SYSTEM_CALL] { SYSTEM_CALLS.0 } else { ALLOCATIONS.0 };
        counts.insert(what, perf.stop()?);
    }
    Ok((counts, secs, result))
}

async fn exported(service: &Service) -> anyhow::Result<Counts> {
    let mut counts = Counts::new();
    for (what, metric, _) in OWN {
        let count = service.metric(metric).await?;
        counts.insert(what, count.with_context(|| format!("the metric {metric} is missing"))?);
    }
    Ok(counts)
}

/// A running `perf stat` of the service. It counts until its standard input closes.
struct Perf {
    child: Child,
    stdin: Option<ChildStdin>,
}

impl Perf {
    /// Fails if `perf` cannot count these events.
    async fn check(service: &Service, events: &[String]) -> anyhow::Result<()> {
        let perf = Self::start(service, events)?;
        tokio::time::sleep(PERF_START).await;
        perf.stop().map(drop)
    }

    fn start(service: &Service, events: &[String]) -> anyhow::Result<Self> {
        let mut command = Command::new("perf");
        command.args(["stat", "-x", ",", "-e", &events.join(","), "-p", &service.pid().to_string(), "--", "cat"]);
        command.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::piped());
        let mut child = command.spawn().context("perf cannot be started")?;
        let stdin = child.stdin.take();
        Ok(Self { child, stdin })
    }

    /// Returns the sum of all events.
    fn stop(mut self) -> anyhow::Result<f64> {
        drop(self.stdin.take());
        let output = self.child.wait_with_output()?;
        let text = String::from_utf8_lossy(&output.stderr).into_owned();
        ensure!(output.status.success(), "perf failed: {}", text.lines().next().unwrap_or_default());
        sum(&text)
    }
}

/// Sums the counts of the output of `perf stat -x ,`: one line for each event, which begins with its count.
fn sum(output: &str) -> anyhow::Result<f64> {
    let counts = output.lines().filter(|line| !line.is_empty() && !line.starts_with('#'));
    let counts = counts.map(|line| {
        let count = line.split(',').next().and_then(|count| count.parse::<f64>().ok());
        count.with_context(|| format!("perf did not count: {line}"))
    });
    counts.sum()
}

/// Probes on the allocator of the service's program, which are removed at the end.
struct Probes {
    group: String,
}

impl Probes {
    fn set(service: &Service) -> anyhow::Result<Self> {
        let program = std::fs::read_link(format!("/proc/{}/exe", service.pid()))?;
        let probes = Self { group: format!("payferry_bench_{}", std::process::id()) };
        for function in ALLOCATOR {
            let mut command = Command::new("perf");
            command.args(["probe", "--exec"]).arg(&program);
            command.arg("--add").arg(format!("{}:{function}={function}", probes.group));
            let output = command.output().context("perf cannot be started")?;
            let why = String::from_utf8_lossy(&output.stderr).trim().replace('\n', "; ");
            ensure!(output.status.success(), "perf cannot probe {function}: {why}");
        }
        Ok(probes)
    }

    fn events(&self) -> Vec<String> {
        ALLOCATOR.iter().map(|function| format!("{}:{function}", self.group)).collect()
    }
}

impl Drop for Probes {
    fn drop(&mut self) {
        let _ = Command::new("perf").args(["probe", "--quiet", "--del", &format!("{}:*", self.group)]).output();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sums_the_counts_of_perf() {
        let output = "# started on Sat Nov 28\n\n912,,a:mi_malloc,1000,100.00,,\n39,,a:mi_calloc,1000,100.00,,\n";
        assert!((sum(output).unwrap() - 951.0).abs() < 1e-9);
        let refused = sum("<not counted>,,raw_syscalls:sys_enter,0,0.00,,\n").unwrap_err().to_string();
        assert!(refused.starts_with("perf did not count: <not counted>"), "{refused}");
    }
}
