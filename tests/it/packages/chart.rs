//! The Helm chart, linted and rendered by Helm's own code, each object valid for Kubernetes.

use serde_json::{Value, json};

use super::{STOP_SECS, VERSION, configured, output, tool};

/// The objects of the chart with these values.
fn rendered(values: &Value) -> Vec<Value> {
    let mut chart = tool("python");
    chart.args(["tests/clients/packages/chart.py", "packaging/helm/payferry", &values.to_string()]);
    let mut printed: Value = serde_json::from_str(&output(&mut chart)).unwrap();
    // 2 is a warning, 3 an error.
    let findings = printed["lint"].as_array().unwrap().iter().filter(|finding| finding["severity"].as_u64() >= Some(2));
    assert_eq!(findings.collect::<Vec<_>>(), Vec::<&Value>::new());
    serde_json::from_value(printed["objects"].take()).unwrap()
}

fn of_kind<'a>(objects: &'a [Value], kind: &str) -> &'a Value {
    objects.iter().find(|object| object["kind"] == kind).unwrap_or_else(|| panic!("the chart has no {kind}"))
}

#[test]
fn default_values_name_real_keys_and_leave_time_for_the_drain() {
    let objects = rendered(&json!({}));
    let pod = &of_kind(&objects, "StatefulSet")["spec"]["template"]["spec"];
    let container = &pod["containers"][0];
    assert_eq!(container["image"], format!("payferry:{VERSION}"));

    // Variables with their values, or with one of the right type for those that come from elsewhere.
    let variables = container["env"].as_array().unwrap().iter().map(|variable| {
        let name = variable["name"].as_str().unwrap().to_owned();
        let elsewhere = match &*name {
            "PAYFERRY_DATABASE__URLS" => r#"["postgres://one.example/payferry"]"#,
            "PAYFERRY_CHAINS__BASE__ENDPOINTS" => r#"["https://one.example"]"#,
            _ => "",
        };
        let value = variable["value"].as_str().unwrap_or(elsewhere).replace("$(PAYFERRY_NODE__NAME)", "payferry-0");
        (name, value)
    });
    let toml = of_kind(&objects, "ConfigMap")["data"]["payferry.toml"].as_str().unwrap();
    let config = configured(Some(toml), variables);
    assert_eq!(config.node.operator_url.unwrap().as_str(), "http://payferry-0.payferry-nodes:8081/");
    assert_eq!((config.server.listen.port(), config.server.operator_listen.port()), (8080, 8081));

    // Each secret is a file of the pod and no value of the chart.
    let mounted =
        container["volumeMounts"].as_array().unwrap().iter().find(|mount| mount["name"] == "secrets").unwrap();
    let sources = pod["volumes"].as_array().unwrap().iter().find(|volume| volume["name"] == "secrets").unwrap();
    let sources = sources["projected"]["sources"].as_array().unwrap();
    let files = sources.iter().map(|source| {
        format!("{}/{}", mounted["mountPath"].as_str().unwrap(), source["secret"]["items"][0]["path"].as_str().unwrap())
    });
    let files: Vec<String> = files.collect();
    let settings = [config.secrets.master_key_file, config.secrets.operator_token_file];
    let signers = [config.signer.settler, config.signer.sender];
    let signers = signers.into_iter().flat_map(|signer| [signer.keystore_file, signer.keystore_password_file]);
    for setting in settings.into_iter().chain(signers) {
        let setting = setting.unwrap().display().to_string();
        assert!(files.contains(&setting), "{setting} of {files:?}");
    }

    let grace = pod["terminationGracePeriodSeconds"].as_u64().unwrap();
    let hook = container["lifecycle"]["preStop"]["sleep"]["seconds"].as_u64().unwrap();
    assert!(grace > hook + config.server.drain_secs + STOP_SECS, "{grace}");
    for (probe, path, port) in [
        ("startupProbe", "/healthz", "operator"),
        ("livenessProbe", "/healthz", "operator"),
        ("readinessProbe", "/readyz", "http"),
    ] {
        assert_eq!(container[probe]["httpGet"], json!({ "path": path, "port": port }));
    }
    let disruptions = &of_kind(&objects, "PodDisruptionBudget")["spec"];
    assert_eq!(disruptions["maxUnavailable"], 1);
    assert_eq!(disruptions["selector"], of_kind(&objects, "StatefulSet")["spec"]["selector"]);
}

#[test]
fn values_reach_the_objects() {
    let values = json!({
        "replicas": 3, "image": {"tag": "1.2.3"}, "drain": {"preStopSecs": 7, "drainSecs": 60},
        "env": [{"name": "AWS_REGION", "value": "eu-central-1"}], "pullSecrets": [{"name": "registry"}],
        "serviceAccount": {"annotations": {"role": "payferry"}}, "service": {"annotations": {"a": "b"}},
        "affinity": {"nodeAffinity": {}}, "tolerations": [{"key": "payments"}], "nodeSelector": {"disk": "fast"},
        "config": "[log]\nformat = \"json\"\n",
    });
    let objects = rendered(&values);
    let set = &of_kind(&objects, "StatefulSet")["spec"];
    let pod = &set["template"]["spec"];
    assert_eq!((&set["replicas"], &pod["containers"][0]["image"]), (&json!(3), &json!("payferry:1.2.3")));
    assert_eq!(pod["terminationGracePeriodSeconds"], 7 + 60 + 20);
    let env = pod["containers"][0]["env"].as_array().unwrap();
    assert!(env.contains(&json!({"name": "PAYFERRY_SERVER__DRAIN_SECS", "value": "60"})));
    assert!(env.contains(&values["env"][0]));
    assert_eq!(pod["imagePullSecrets"], values["pullSecrets"]);
    assert_eq!(of_kind(&objects, "ServiceAccount")["metadata"]["annotations"], json!({"role": "payferry"}));
    assert_eq!(of_kind(&objects, "ConfigMap")["data"]["payferry.toml"], values["config"]);
}
