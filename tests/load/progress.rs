//! Progress bar on a terminal.

use std::process::{Command, Stdio};

/// Characters of the bar (full and empty part), and the sequence that clears a line.
const FULL: char = '█';
const EMPTY: char = '░';
const WIPED: &str = "\u{1b}[2K";

/// Returns the output of `payferry load` on a terminal, and its exit code. The terminal is `script` of util-linux,
/// which is part of every Debian.
fn drawn(args: &str) -> (String, Option<i32>) {
    let run = format!("stty cols 120 rows 30; exec {} load {args}", env!("CARGO_BIN_EXE_payferry"));
    let mut script = Command::new("script");
    for (name, _) in std::env::vars().filter(|(name, _)| name.starts_with("PAYFERRY_") || name == "RUST_LOG") {
        script.env_remove(name);
    }
    script.args(["--quiet", "--return", "--command", &run, "/dev/null"]).env("TERM", "xterm").env("SHELL", "/bin/sh");
    // Its standard input stays open: a terminal without a keyboard sends an end of file.
    let mut child = script.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::inherit()).spawn().unwrap();
    let keyboard = child.stdin.take();
    let output = child.wait_with_output().unwrap();
    drop(keyboard);
    (String::from_utf8_lossy(&output.stdout).into_owned(), output.status.code())
}

#[test]
fn draws_a_bar_on_a_terminal_and_removes_it() {
    let (drawn, code) = drawn("--rate 50/s --payments 100 --block-time-ms 100 --mix exact=100");
    assert_eq!(code, Some(0), "{drawn}");
    // Each redraw begins at the start of the line.
    let frames: Vec<&str> = drawn.split('\r').filter(|frame| frame.contains("/100 ")).collect();
    let fills: Vec<usize> = frames.iter().map(|frame| frame.chars().filter(|letter| *letter == FULL).count()).collect();
    assert!(fills.iter().any(|fill| *fill > 0 && *fill < 30), "no partly full bar: {fills:?} {drawn:?}");
    assert!(frames.iter().any(|frame| frame.contains(" in flight, ")), "{drawn:?}");
    // No lines beside the bar. At the end the bar is cleared, and the report follows.
    assert!(!drawn.lines().any(|line| line.trim_start().starts_with("start payments")), "{drawn:?}");
    let last = drawn.rfind(FULL).unwrap();
    let (_, report) = drawn[last..].split_once(WIPED).unwrap_or_else(|| panic!("the bar was not cleared: {drawn:?}"));
    assert!(report.contains("complete") && !report.contains(EMPTY), "{report:?}");
}
