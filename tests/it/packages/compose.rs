//! `compose.yaml` and `compose.sandbox.yaml`, as Compose reads them.

use std::collections::BTreeMap;
use std::path::Path;
use std::process::Command;

use serde_json::Value;

use super::{STOP_SECS, VERSION, configured, file, output, text, tool};

/// The services of a Compose file, with its defaults and merges applied.
fn services(name: &str) -> BTreeMap<String, Value> {
    let mut compose = tool("docker-compose");
    compose.args(["--file", name, "config", "--format", "json"]);
    // The passwords have no defaults.
    let example = text("packaging/example.env");
    compose.envs(example.lines().filter_map(|line| line.split_once('=')).map(|(name, _)| (name, "secret1")));
    let compose: Value = serde_json::from_str(&output(&mut compose)).unwrap();
    serde_json::from_value(compose["services"].clone()).unwrap()
}

fn environment(service: &Value) -> BTreeMap<String, String> {
    serde_json::from_value(service["environment"].clone()).unwrap_or_default()
}

/// Asserts what holds for every service.
fn assert_hardened_and_complete(services: &BTreeMap<String, Value>) {
    for (name, service) in services {
        assert_eq!(service["read_only"], true, "{name}");
        assert_eq!(service["cap_drop"], serde_json::json!(["ALL"]), "{name}");
        assert_eq!(service["security_opt"], serde_json::json!(["no-new-privileges:true"]), "{name}");
        for mount in service["volumes"].as_array().into_iter().flatten().filter(|mount| mount["type"] == "bind") {
            let source = mount["source"].as_str().unwrap();
            // The operator makes this folder.
            assert!(Path::new(source).exists() || source.ends_with("/payferry-etc"), "{name}: {source}");
        }
        for port in service["ports"].as_array().into_iter().flatten() {
            assert_eq!(port["host_ip"], "127.0.0.1", "{name}");
        }
        if service["build"].is_object() {
            let image = service["image"].as_str().unwrap();
            assert!(image.ends_with(&format!(":{VERSION}")), "{name}: {image}");
            let folder = Path::new(service["build"]["context"].as_str().unwrap());
            let dockerfile = folder.join(service["build"]["dockerfile"].as_str().unwrap());
            let dockerfile = std::fs::read_to_string(dockerfile).unwrap();
            for argument in service["build"]["args"].as_object().into_iter().flatten() {
                assert!(dockerfile.contains(&format!("\nARG {}=", argument.0)), "{name}: {}", argument.0);
            }
        }
    }
}

#[test]
fn nodes_and_their_surroundings_fit_together() {
    let services = services("compose.yaml");
    let names: Vec<&str> = services.keys().map(String::as_str).collect();
    assert_eq!(names, ["db1", "db2", "etcd", "grafana", "haproxy", "node1", "node2", "prometheus"]);
    assert_hardened_and_complete(&services);

    let proxy = &services["haproxy"]["networks"]["default"]["ipv4_address"];
    let balanced = text("packaging/haproxy.cfg");
    for name in ["node1", "node2"] {
        let config = configured(None, environment(&services[name]));
        assert_eq!(config.node.name, name);
        assert_eq!(config.node.operator_url.unwrap().host_str(), Some(name));
        assert_eq!(environment(&services[name])["PAYFERRY_SERVER__TRUSTED_PROXIES"], format!("[{proxy}]"));
        let hosts: Vec<bool> =
            ["db1", "db2"].map(|host| config.database.urls.iter().any(|url| url.contains(&format!("@{host}/")))).into();
        assert_eq!(hosts, [true, true], "{name}");
        assert!(config.database.urls.iter().all(|url| url.contains(":secret1@")), "{name}");
        assert_eq!(services[name]["stop_grace_period"], "30s");
        assert!(config.server.drain_secs + STOP_SECS < 30, "{name}");
        assert!(balanced.contains(&format!("\n  server {name} {name}:8080\n")), "{name}");
        // Prometheus reads it, and the operator opens it.
        assert_eq!(services[name]["ports"][0]["target"], 8081, "{name}");
        assert!(text("packaging/prometheus.yml").contains(&format!("{name}:8081")), "{name}");
    }
}

#[test]
fn haproxy_accepts_its_configuration() {
    // Debian has it in /usr/sbin. The names of the nodes are looked up later.
    let path = format!("{}:/usr/sbin", std::env::var("PATH").unwrap());
    output(Command::new("haproxy").env("PATH", path).args(["-c", "-f"]).arg(file("packaging/haproxy.cfg")));
}

#[test]
fn sandbox_needs_no_configuration() {
    let services = services("compose.sandbox.yaml");
    assert_hardened_and_complete(&services);
    let sandbox = &services["sandbox"];
    let config = configured(None, environment(sandbox));
    assert_eq!(config.server.public_url.unwrap().port(), Some(8080));
    assert_eq!(sandbox["build"]["args"]["FEATURES"], "sandbox");
}
