//! Configuration errors name the file, the key and the expected value, and nothing starts.

use super::{complaint, payferry, run};

#[test]
fn errors_name_their_place_and_the_expected_value_without_secrets() {
    let temp = tempfile::tempdir().unwrap();
    let file = temp.path().join("ferry.toml");
    let name = file.display();
    for (text, expected) in [
        ("[server]\nlisten = \"8080\"\n", "2: `server.listen` is \"8080\", expected an address and a port"),
        (
            "[server]\nport = 8080\n",
            "2: there is no key `server.port`; expected one of drain_secs, environment, listen",
        ),
        (
            "\n[webhooks]\nretry_delays_ms = [1, 2]\n",
            "3: `webhooks.retry_delays_ms` is [1, 2], expected a list of three",
        ),
        ("[log]\nformat = true\n", "2: `log.format` is true, expected \"text\" or \"json\""),
        ("server = 1\n", "1: `server` is 1, expected a section"),
        ("[server\n", "1: not valid TOML"),
    ] {
        std::fs::write(&file, text).unwrap();
        let output = run(&["migrate", "--config", file.to_str().unwrap()]);
        let complaint = complaint(&output);
        assert_eq!(output.status.code(), Some(1), "{complaint}");
        assert!(complaint.starts_with(&format!("error: {name}:{expected}")), "{complaint}");
    }
    let missing = run(&["migrate", "--config", "/nowhere/ferry.toml"]);
    assert!(complaint(&missing).starts_with("error: /nowhere/ferry.toml: cannot be read"), "{}", complaint(&missing));
    assert_eq!(std::fs::read_dir(temp.path()).unwrap().count(), 1, "no file was created");
    // Errors of the database name the server without its password.
    let temp = tempfile::tempdir().unwrap();
    let folder = temp.path().to_str().unwrap();
    let sandbox = ["sandbox", "--listen", "127.0.0.1:0", "--operator-listen", "127.0.0.1:0", "--data-dir", folder];
    for command in [&["migrate"] as &[&str], &["psp", "list"], &sandbox] {
        let url = ["--database-url", "postgres://ferry:hunter2@127.0.0.1:1/payments"];
        let output = run(&[command, &url].concat());
        let complaint = complaint(&output);
        assert_eq!(output.status.code(), Some(1), "{complaint}");
        for wanted in ["the database cannot be opened", "PostgreSQL at 127.0.0.1:1, database payments", "refused"] {
            assert!(complaint.contains(wanted), "{wanted} in {complaint}");
        }
        assert!(!complaint.contains("hunter2") && !complaint.contains("ferry:"), "{complaint}");
    }
    // Errors in environment variables name them.
    let output = payferry().arg("migrate").env("PAYFERRY_PAYMENTS__SHARDS", "7").output().unwrap();
    let expected = "error: PAYFERRY_PAYMENTS__SHARDS: `payments.shards` is 7, expected a number that divides 256";
    assert!(complaint(&output).starts_with(expected), "{}", complaint(&output));
    let secret = payferry().arg("migrate").env("PAYFERRY_DATABASE__URL", "mysql://u:hunter2@h/x").output().unwrap();
    assert!(complaint(&secret).contains("`database.url`") && !complaint(&secret).contains("hunter2"));
}

#[test]
fn help_of_every_subcommand_has_an_example() {
    let commands = "sandbox, demo, load, bench, serve, check, deploy, migrate, psp create, psp list, psp set, \
        key create, key list, key revoke, pause set, reconcile, health, completions, man";
    for command in commands.split(", ") {
        let output = payferry().args(command.split(' ')).arg("--help").output().unwrap();
        let help = super::printed(&output);
        assert!(help.contains("Example"), "{command}: {help}");
        assert!(help.contains(&format!("payferry {command}")), "{command}: {help}");
    }
}
