//! `--version`, completions and manual pages.

use std::collections::BTreeSet;
use std::process::Command;

use super::{payferry, printed, run};

/// The commands as their help lists them, such as `payferry psp create`, in depth.
fn commands(path: &str, found: &mut BTreeSet<String>) {
    found.insert(path.to_owned());
    let words: Vec<&str> = path.split(' ').skip(1).chain(["--help"]).collect();
    let help = printed(&run(&words));
    let listed = help.split_once("\nCommands:\n").map_or("", |(_, rest)| rest);
    for line in listed.lines().take_while(|line| !line.is_empty()) {
        let name = line.strip_prefix("  ").and_then(|line| line.split(' ').next()).unwrap_or_default();
        if !name.is_empty() && name != "help" {
            commands(&format!("{path} {name}"), found);
        }
    }
}

fn all_commands() -> BTreeSet<String> {
    let mut found = BTreeSet::new();
    commands("payferry", &mut found);
    assert!(found.contains("payferry psp create") && found.contains("payferry serve"), "{found:?}");
    found
}

#[test]
fn version_names_the_commit_and_the_features() {
    let version = printed(&run(&["--version"]));
    let lines: Vec<&str> = version.lines().collect();
    let [first, commit, features] = lines[..] else { panic!("{version}") };
    assert_eq!(first, concat!("payferry ", env!("CARGO_PKG_VERSION")));
    assert_eq!(features, "features: sandbox, tools, faults");
    let head = Command::new("git").args(["-C", env!("CARGO_MANIFEST_DIR"), "rev-parse", "HEAD"]).output();
    let head = head.ok().filter(|output| output.status.success()).map(|output| printed(&output));
    let expected = head.unwrap_or_else(|| "unknown".to_owned());
    // The build may have been given another commit.
    if std::env::var_os("PAYFERRY_COMMIT").is_none() {
        let commit = commit.strip_prefix("commit: ").unwrap();
        assert_eq!(commit.trim_end_matches("-modified"), expected);
    }
    assert_eq!(printed(&run(&["-V"])), first);
}

#[test]
fn completions_and_pages_cover_every_command() {
    let (folder, commands) = (tempfile::tempdir().unwrap(), all_commands());
    let out = folder.path().join("man1");
    printed(&run(&["man", "--out", out.to_str().unwrap()]));
    let pages: BTreeSet<String> =
        std::fs::read_dir(&out).unwrap().map(|page| page.unwrap().file_name().into_string().unwrap()).collect();
    let expected: BTreeSet<String> = commands.iter().map(|path| format!("{}.1", path.replace(' ', "-"))).collect();
    assert_eq!(pages, expected);
    let main = std::fs::read_to_string(out.join("payferry.1")).unwrap();
    assert_eq!(printed(&run(&["man"])), main.trim());
    assert!(main.contains("PAYFERRY_CONFIG"), "{main}");

    // Neither needs a configuration that can be read.
    let without = |args: &[&str]| printed(&payferry().args(args).env("PAYFERRY_CONFIG", "/nowhere").output().unwrap());
    assert_eq!(without(&["man"]), main.trim());
    for shell in ["bash", "elvish", "fish", "powershell", "zsh"] {
        let script = without(&["completions", shell]);
        for name in commands.iter().flat_map(|path| path.split(' ')) {
            assert!(script.contains(name), "{name} in the script of {shell}");
        }
    }
}

#[test]
fn reference_lists_every_command() {
    let page = include_str!("../../../docs/src/reference/cli.md");
    for path in all_commands() {
        // Subcommands share a row: `psp create\|list\|set`.
        let words: Vec<&str> = path.split(' ').collect();
        let start = format!("| `{}", words[..words.len().min(2)].join(" "));
        let mut rows = page.lines().filter(|line| line.starts_with(&start));
        assert!(rows.any(|row| row.contains(words[words.len() - 1])), "{path} is not in reference/cli.md");
    }
}
