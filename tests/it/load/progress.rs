//! How far a run is, where somebody looks: the bar on a terminal.

use std::process::{Command, Stdio};

/// What a bar is drawn with: its full part, its empty part, and what wipes a line out.
const FULL: char = '█';
const EMPTY: char = '░';
const WIPED: &str = "\u{1b}[2K";

/// What a run of `payferry load` draws on a terminal of its own, and its exit code. util-linux' `script` is that
/// terminal: it is a part of every Debian.
fn drawn(args: &str) -> (String, Option<i32>) {
    let run = format!("stty cols 120 rows 30; exec {} load {args}", env!("CARGO_BIN_EXE_payferry"));
    let mut script = Command::new("script");
    for (name, _) in std::env::vars().filter(|(name, _)| name.starts_with("PAYFERRY_") || name == "RUST_LOG") {
        script.env_remove(name);
    }
    script.args(["--quiet", "--return", "--command", &run, "/dev/null"]).env("TERM", "xterm").env("SHELL", "/bin/sh");
    // Its own input stays open: a terminal whose keyboard is gone sends an end of file.
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
    // Each redraw begins where the line did.
    let frames: Vec<&str> = drawn.split('\r').filter(|frame| frame.contains("/100 ")).collect();
    let fills: Vec<usize> = frames.iter().map(|frame| frame.chars().filter(|letter| *letter == FULL).count()).collect();
    assert!(fills.iter().any(|fill| *fill > 0 && *fill < 30), "a bar that is partly full: {fills:?} {drawn:?}");
    assert!(frames.iter().any(|frame| frame.contains(" in flight, ")), "{drawn:?}");
    // No lines beside it; in the end it is wiped out, and the report stands there.
    assert!(!drawn.lines().any(|line| line.trim_start().starts_with("start payments")), "{drawn:?}");
    let last = drawn.rfind(FULL).unwrap();
    let (_, report) = drawn[last..].split_once(WIPED).unwrap_or_else(|| panic!("it was not wiped out: {drawn:?}"));
    assert!(report.contains("complete") && !report.contains(EMPTY), "{report:?}");
}
