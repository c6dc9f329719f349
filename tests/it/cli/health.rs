//! `payferry health`.

use super::{Running, complaint, payferry, printed};

#[tokio::test]
async fn health_of_the_configured_listener_is_asked() {
    let service = Running::new().await;
    let port = service.text("operator_url").rsplit(':').next().unwrap().to_owned();
    // The address of a container: every address of the machine. A proxy of the environment is for other machines.
    let configured = |args: &[&str]| {
        let mut command = payferry();
        command.arg("health").args(args).env("PAYFERRY_SERVER__OPERATOR_LISTEN", format!("0.0.0.0:{port}"));
        command.env("http_proxy", "http://127.0.0.1:1").output().unwrap()
    };
    assert_eq!(printed(&configured(&[])), "running");
    assert_eq!(printed(&configured(&["--ready"])), "ready");
    let named = format!("{}/", service.text("operator_url"));
    assert_eq!(printed(&payferry().args(["health", "--ready", "--url", &named]).output().unwrap()), "ready");
    service.stop();

    for (listener, expected) in [
        (format!("0.0.0.0:{port}"), format!("error: http://127.0.0.1:{port}/healthz does not answer: ")),
        ("127.0.0.1:0".to_owned(), "error: `server.operator_listen` has port 0".to_owned()),
    ] {
        let output = payferry().arg("health").env("PAYFERRY_SERVER__OPERATOR_LISTEN", listener).output().unwrap();
        assert_eq!(output.status.code(), Some(1));
        assert!(complaint(&output).starts_with(&expected), "{}", complaint(&output));
    }
}
