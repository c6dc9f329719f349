//! Text form of faults, and of the receiver's behaviour.

use std::str::FromStr;
use std::time::Duration;

use super::{FAULTS_MAX, Fault, FaultKind, FaultPlan};
use payferry_testkit::audit::reception::{Conduct, SLOW_MAX};

/// Deepest reorganisation: the sandbox's limit.
const DEPTH_MAX: u32 = 1_000;
/// The forms of a fault, for errors.
const FORMS: &str = "kill@6s, kill 3@5s-25s, reorg base 8@9s, rpc-errors 0.1@12s-20s, receiver-fail 0.5@10s-20s or \
    receiver-slow 2s@10s-20s";

impl FromStr for FaultPlan {
    type Err = String;

    /// Parses faults with `;` between them.
    fn from_str(text: &str) -> Result<Self, String> {
        let faults = text.split(';').map(|part| fault(part.trim())).collect::<Result<Vec<_>, _>>()?;
        if faults.len() > FAULTS_MAX {
            return Err(format!("{} faults are too many: at most {FAULTS_MAX}", faults.len()));
        }
        Ok(Self(faults))
    }
}

fn fault(text: &str) -> Result<Fault, String> {
    let wrong = |why: String| format!("`{text}`: {why}; write it as {FORMS}");
    let (what, when) = text.split_once('@').ok_or_else(|| wrong("it has no @time".into()))?;
    let (at, until) = match when.trim().split_once('-') {
        Some((at, until)) => (moment(at).map_err(wrong)?, Some(moment(until).map_err(wrong)?)),
        None => (moment(when).map_err(wrong)?, None),
    };
    if until.is_some_and(|until| until <= at) {
        return Err(wrong("it ends before it begins".into()));
    }
    let words: Vec<&str> = what.split_whitespace().collect();
    let kind = match words.as_slice() {
        ["kill"] => FaultKind::Kill { times: 1 },
        ["kill", times] => {
            FaultKind::Kill { times: whole(times, u32::try_from(FAULTS_MAX).unwrap_or(1)).map_err(wrong)? }
        }
        ["reorg", chain, depth] => FaultKind::Reorg {
            chain: chain.parse().map_err(|error| wrong(format!("{error}")))?,
            depth: whole(depth, DEPTH_MAX).map_err(wrong)?,
        },
        ["rpc-errors", share] => FaultKind::RpcErrors { share: fraction(share).map_err(wrong)? },
        ["receiver-fail", share] => FaultKind::ReceiverFail { share: fraction(share).map_err(wrong)? },
        ["receiver-slow", delay] => FaultKind::ReceiverSlow { delay: slow(delay).map_err(wrong)? },
        _ => return Err(wrong(format!("`{}` is no fault", what.trim()))),
    };
    let lasts = match kind {
        FaultKind::Kill { times } => times > 1,
        FaultKind::Reorg { .. } => false,
        FaultKind::RpcErrors { .. } | FaultKind::ReceiverFail { .. } | FaultKind::ReceiverSlow { .. } => true,
    };
    match (lasts, until) {
        (true, None) => Err(wrong("it needs an end, such as @10s-20s".into())),
        (false, Some(_)) => Err(wrong("it has one time and no end".into())),
        _ => Ok(Fault { kind, at, until }),
    }
}

fn moment(text: &str) -> Result<Duration, String> {
    humantime::parse_duration(text.trim()).map_err(|_| format!("`{}` is no time such as 6s or 1m", text.trim()))
}

fn whole(text: &str, max: u32) -> Result<u32, String> {
    let number = text.parse().ok().filter(|number| (1..=max).contains(number));
    number.ok_or_else(|| format!("`{text}` is no whole number from 1 to {max}"))
}

fn fraction(text: &str) -> Result<f64, String> {
    let share = text.parse().ok().filter(|share| *share > 0.0 && *share <= 1.0);
    share.ok_or_else(|| format!("`{text}` is no share above 0 and at most 1, such as 0.1"))
}

fn slow(text: &str) -> Result<Duration, String> {
    let delay = humantime::parse_duration(text).ok().filter(|delay| !delay.is_zero() && *delay <= SLOW_MAX);
    delay.ok_or_else(|| format!("`{text}` is no delay such as 500ms, at most {} s", SLOW_MAX.as_secs()))
}

/// Parses the behaviour of the receiver: `slow=2s,fail=0.1`.
pub fn conduct(text: &str) -> Result<Conduct, String> {
    let mut conduct = Conduct::default();
    let mut named = Vec::new();
    for part in text.split(',') {
        let (name, value) = part
            .trim()
            .split_once('=')
            .ok_or_else(|| format!("`{}` is not written as slow=2s or fail=0.1", part.trim()))?;
        match name {
            "slow" => conduct.slow = slow(value)?,
            "fail" => conduct.fail = fraction(value)?,
            _ => return Err(format!("`{name}` is unknown; known are slow, fail")),
        }
        if named.contains(&name) {
            return Err(format!("`{name}` is named twice"));
        }
        named.push(name);
    }
    Ok(conduct)
}
