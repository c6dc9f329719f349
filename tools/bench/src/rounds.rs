//! Whoever has no turn is held: of two services that are measured in turns, neither is to be the other's noise.
//!
//! A service that is alive works even if nobody asks anything of it: chains make blocks, watchers read them, retention
//! prunes, webhooks are tried again. Held (SIGSTOP) it gets no processor at all, and released (SIGCONT) it goes on where it
//! stood. A keeper holds it, a shell of its own that waits for the end of a pipe: however this process ends, nobody is held
//! for ever.
//!
//! Deliberately absent: holding a database's server, which both may use, and the machine's disk.

use std::marker::PhantomData;
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, ensure};

use super::service::state_of;

/// The longest turn, for which the other is held: shorter than PostgreSQL lets a transaction be idle (4 s), a receiver of
/// webhooks may answer (5 s), the client waits for an answer (20 s) and a connection may be idle (75 s).
const TURN_MAX: Duration = Duration::from_millis(3_500);
/// How long the released one has for itself before anything is measured: what came due meanwhile is done at once, and what
/// the other has just been asked for is told by webhook to its end.
const SETTLE: Duration = Duration::from_millis(300);
/// How long a process may take to stand still: it does not while the disk has not answered it.
const PATIENCE: Duration = Duration::from_secs(5);
const POLL: Duration = Duration::from_millis(2);
/// What the keeper does. `read` ends when the other end of the pipe is closed, and fails then.
const KEEPER: &str = r#"kill -s STOP "$1"; read -r _; kill -s CONT "$1""#;
/// What `/proc` calls a process that is held.
const STANDS_STILL: char = 'T';
/// What it calls one that has ended.
const ENDED: [char; 2] = ['Z', 'X'];

/// A process that is held. It goes on when this is dropped.
#[derive(Debug)]
pub(super) struct Held<'a> {
    keeper: Child,
    /// Not waited for while it is held, so that nobody else gets its id.
    _process: PhantomData<&'a Child>,
}

impl<'a> Held<'a> {
    /// Holds it, and waits until it stands still.
    pub(super) async fn of(process: &'a Child) -> anyhow::Result<Self> {
        let pid = process.id();
        let mut keeper = Command::new("sh");
        keeper.args(["-c", KEEPER, "keeper", &pid.to_string()]);
        // A group of its own: ctrl-c ends whoever is measured, and must not end the keeper before.
        keeper.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::null()).process_group(0);
        let keeper = keeper.spawn().context("there is no shell that could hold a process")?;
        let held = Self { keeper, _process: PhantomData };
        let since = Instant::now();
        loop {
            let state = state_of(pid)?;
            if state == STANDS_STILL {
                return Ok(held);
            }
            ensure!(!ENDED.contains(&state), "process {pid} has ended and cannot be held");
            ensure!(since.elapsed() < PATIENCE, "process {pid} does not stand still: {state}");
            tokio::time::sleep(POLL).await;
        }
    }

    /// Has it go on, and gives it a moment for what came due meanwhile.
    pub(super) async fn release(self) {
        drop(self);
        tokio::time::sleep(SETTLE).await;
    }
}

impl Drop for Held<'_> {
    fn drop(&mut self) {
        // Closes the pipe first. It takes a millisecond or two.
        let _ = self.keeper.wait();
    }
}

/// How many turns each of two takes, and how long each is, if each is to have `time` in all, in `least` turns or more.
pub(super) fn turns(time: Duration, least: u32) -> (u32, Duration) {
    let needed = u32::try_from(time.as_millis().div_ceil(TURN_MAX.as_millis())).unwrap_or(u32::MAX);
    let turns = needed.max(least).max(1);
    (turns, time / turns)
}

/// The turns of two in so many rounds: whose it is, and whether it counts. Those of a round before them warm up. Who begins has
/// the emptier caches: they take turns in that, too.
pub(super) fn in_rounds(rounds: u32) -> impl Iterator<Item = (Whose, bool)> {
    (0..=rounds).flat_map(|round| {
        let order = if round % 2 == 0 { [Whose::First, Whose::Second] } else { [Whose::Second, Whose::First] };
        order.map(|whose| (whose, round > 0))
    })
}

/// Which of two has a turn.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Whose {
    First,
    Second,
}

impl Whose {
    /// Whoever has the turn, and whoever is held meanwhile.
    pub(super) fn of<'a, T>(self, first: &'a mut T, second: &'a mut T) -> (&'a mut T, &'a T) {
        match self {
            Self::First => (first, second),
            Self::Second => (second, first),
        }
    }
}

#[cfg(test)]
mod tests {
    use anyhow::bail;

    use super::*;

    /// A process that does nothing. Ended when it is dropped.
    struct Sleeper(Child);

    impl Sleeper {
        fn start() -> anyhow::Result<Self> {
            Ok(Self(Command::new("sleep").arg("30").spawn()?))
        }

        fn state(&self) -> anyhow::Result<char> {
            state_of(self.0.id())
        }
    }

    impl Drop for Sleeper {
        fn drop(&mut self) {
            let _ = self.0.kill();
            let _ = self.0.wait();
        }
    }

    async fn fail_while_held(sleeper: &Sleeper) -> anyhow::Result<()> {
        let _held = Held::of(&sleeper.0).await?;
        bail!("while it was {}", sleeper.state()?)
    }

    #[tokio::test]
    async fn who_is_held_stands_still_until_released_or_forgotten() -> anyhow::Result<()> {
        let mut sleeper = Sleeper::start()?;
        let held = Held::of(&sleeper.0).await?;
        assert_eq!(sleeper.state()?, STANDS_STILL);
        held.release().await;
        assert_ne!(sleeper.state()?, STANDS_STILL);

        let failed = fail_while_held(&sleeper).await.map_err(|error| error.to_string());
        assert_eq!(failed, Err("while it was T".to_owned()));
        assert_ne!(sleeper.state()?, STANDS_STILL);

        // It is not waited for yet, so that it is still there to be looked at.
        sleeper.0.kill()?;
        let ended = Held::of(&sleeper.0).await.map(drop).map_err(|error| error.to_string());
        assert_eq!(ended, Err(format!("process {} has ended and cannot be held", sleeper.0.id())));
        Ok(())
    }

    #[tokio::test]
    async fn who_is_killed_while_held_ends_and_leaves_no_keeper() -> anyhow::Result<()> {
        let mut sleeper = Sleeper::start()?;
        let held = Held::of(&sleeper.0).await?;
        let (pid, keeper) = (sleeper.0.id().to_string(), held.keeper.id());
        assert!(Command::new("sh").args(["-c", r#"kill -s KILL "$1""#, "sh", &pid]).status()?.success());
        drop(held);
        assert!(!sleeper.0.wait()?.success());
        assert!(state_of(keeper).is_err(), "the keeper is still there");
        Ok(())
    }

    #[test]
    fn two_have_a_turn_in_each_round_and_begin_in_turns() {
        use Whose::{First, Second};
        let turns: Vec<(Whose, bool)> = in_rounds(2).collect();
        let [warm, one, two] = [false, true, true];
        assert_eq!(turns, [(First, warm), (Second, warm), (Second, one), (First, one), (First, two), (Second, two)]);
        assert_eq!([First, Second].map(|whose| *whose.of(&mut "a", &mut "b").0), ["a", "b"]);
        assert_eq!([First, Second].map(|whose| *whose.of(&mut "a", &mut "b").1), ["b", "a"]);
    }

    #[test]
    fn no_turn_is_longer_than_a_process_may_be_held() {
        for (secs, least, expected) in [(10, 3, 3), (1, 3, 3), (24, 12, 12), (600, 3, 172), (0, 3, 3)] {
            let (count, each) = turns(Duration::from_secs(secs), least);
            assert_eq!(count, expected, "{secs} s");
            assert!(each <= TURN_MAX && each * count <= Duration::from_secs(secs), "{count} of {each:?}");
        }
    }
}
