//! `ops/grafana`: what `ops/dashboards.mjs` writes, with what an operator needs in each panel.

use std::collections::BTreeSet;
use std::path::Path;
use std::process::Command;

use payferry_harness::prometheus::ops;

use super::file;
use crate::prelude::*;
use crate::process::complaint;

const NAMES: [&str; 5] = ["supervision", "money", "chains", "webhooks", "nodes"];
const COLUMNS: u64 = 24;

/// A dashboard.
pub(super) struct Dashboard {
    pub(super) name: String,
    pub(super) json: Value,
}

/// A query of a panel.
pub(super) struct Query<'a> {
    pub(super) panel: &'a Value,
    pub(super) target: &'a Value,
}

impl Query<'_> {
    /// The query as Grafana sends it, for all nodes and chains.
    pub(super) fn expression(&self, rate_interval: &str) -> String {
        let expression = self.target["expr"].as_str().unwrap();
        let filled =
            expression.replace("$node", ".*").replace("$chain", ".*").replace("$__rate_interval", rate_interval);
        assert!(!filled.contains('$'), "{filled}");
        filled
    }
}

impl Dashboard {
    /// Panels that show data.
    pub(super) fn panels(&self) -> impl Iterator<Item = &Value> {
        self.json["panels"].as_array().unwrap().iter().filter(|panel| panel["type"] != "row")
    }

    pub(super) fn queries(&self) -> Vec<Query<'_>> {
        fn of_panel(panel: &Value) -> impl Iterator<Item = Query<'_>> {
            let targets = panel["targets"].as_array().unwrap();
            targets.iter().map(move |target| Query { panel, target })
        }
        self.panels().flat_map(of_panel).collect()
    }

    /// Queries of the annotations, and the metrics whose labels fill the variables.
    pub(super) fn other_queries(&self) -> Vec<String> {
        let annotations = self.json["annotations"]["list"].as_array().unwrap().iter();
        let alerts = annotations.map(|annotation| annotation["expr"].as_str().unwrap().to_owned());
        let variables = self.json["templating"]["list"].as_array().unwrap().iter();
        let values = variables.filter_map(|variable| variable["query"]["query"].as_str()).map(|query| {
            let (metric, label) =
                query.strip_prefix("label_values(").unwrap().trim_end_matches(')').split_once(',').unwrap();
            format!("count by ({label}) ({metric})")
        });
        alerts.chain(values).collect()
    }
}

pub(super) fn dashboards() -> Vec<Dashboard> {
    let read = |name: &str| {
        let json = serde_json::from_str(&file(&format!("ops/grafana/{name}.json"))).unwrap();
        Dashboard { name: name.to_owned(), json }
    };
    NAMES.map(read).into()
}

#[test]
fn dashboards_are_what_their_source_writes() {
    let check = Command::new("node").args(["dashboards.mjs", "--check"]).current_dir(ops()).output().unwrap();
    assert!(check.status.success(), "{}", complaint(&check));
    let files =
        ops().join("grafana").read_dir().unwrap().map(|file| file.unwrap()).filter(|file| file.path().is_file());
    let files: BTreeSet<_> = files.map(|file| file.file_name()).collect();
    assert_eq!(files, NAMES.iter().map(|name| format!("{name}.json").into()).collect());
}

/// Grafana cannot be installed here, but its types can.
#[test]
#[ignore = "long"]
fn dashboards_have_the_types_of_grafana() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let packages = root.join(".tools/clients/grafana/node_modules");
    assert!(packages.exists(), "the types are not installed: run `PAYFERRY_CHECK_LONG=1 tests/tools` once");
    let folder = tempfile::tempdir().unwrap();
    std::os::unix::fs::symlink(&packages, folder.path().join("node_modules")).unwrap();
    std::fs::copy(root.join("tests/clients/grafana/types.ts"), folder.path().join("types.ts")).unwrap();
    let check = |json: &str| {
        let program =
            format!("import type {{ Dashboard }} from \"./types.ts\";\nexport const it: Dashboard = {json};\n");
        std::fs::write(folder.path().join("dashboard.ts"), program).unwrap();
        let options =
            ["--noEmit", "--strict", "--skipLibCheck", "--module", "nodenext", "--allowImportingTsExtensions"];
        let checked = Command::new(packages.join(".bin/tsc"))
            .args(options)
            .arg("dashboard.ts")
            .current_dir(folder.path())
            .output();
        let checked = checked.unwrap();
        if checked.status.success() { Ok(()) } else { Err(String::from_utf8(checked.stdout).unwrap()) }
    };
    for Dashboard { name, json } in dashboards() {
        let text = json.to_string();
        assert_eq!(check(&text), Ok(()), "{name}");
        // A field with another name is not ignored.
        let wrong = check(&text.replacen("\"reduceOptions\"", "\"reducedOptions\"", 1)).unwrap_err();
        assert!(wrong.contains("reducedOptions"), "{name}: {wrong}");
    }
}

#[test]
fn every_panel_says_what_it_shows_and_is_at_a_place_of_its_own() {
    let mut uids = BTreeSet::new();
    for Dashboard { name, json } in &dashboards() {
        assert!(uids.insert(json["uid"].to_string()), "{name}");
        assert_eq!(json["tags"], json!(["payferry"]), "{name}: the links between the dashboards find them by this tag");
        let variables = column(&json["templating"]["list"], "name");
        let mut taken = BTreeSet::new();
        for panel in json["panels"].as_array().unwrap() {
            let title = panel["title"].as_str().unwrap();
            assert!(!title.is_empty(), "{name}: {panel}");
            let [x, y, width, height] = ["x", "y", "w", "h"].map(|key| panel["gridPos"][key].as_u64().unwrap());
            assert!(x + width <= COLUMNS, "{name}: {title}");
            for cell in (x..x + width).flat_map(|x| (y..y + height).map(move |y| (x, y))) {
                assert!(taken.insert(cell), "{name}: {title} overlaps another panel at {cell:?}");
            }
            if panel["type"] == "row" {
                continue;
            }
            assert_eq!(panel["datasource"]["uid"], "${datasource}", "{name}: {title}");
            assert!(panel["description"].as_str().unwrap().len() > 10, "{name}: {title} has no description");
            let is_table = panel["type"] == "table";
            assert!(is_table || panel["fieldConfig"]["defaults"]["unit"].is_string(), "{name}: {title} has no unit");
            let text = panel.to_string();
            for variable in ["node", "chain"].into_iter().filter(|variable| text.contains(&format!("${variable}"))) {
                assert!(variables.contains(&json!(variable)), "{name}: {title} uses ${variable}");
            }
        }
    }
}

/// The runbooks behind panels are pages of the operator listener.
#[test]
fn links_of_panels_lead_to_headings_of_runbooks() {
    for dashboard in &dashboards() {
        for panel in dashboard.panels() {
            for link in panel["links"].as_array().into_iter().flatten() {
                let url = link["url"].as_str().unwrap();
                let (page, heading) =
                    url.strip_prefix("${console}/ops/view/runbooks/").unwrap().split_once('#').unwrap();
                let book =
                    file(&Path::new("docs/src/operate/runbooks").join(page).with_extension("md").to_string_lossy());
                let slug = |title: &str| title.to_lowercase().replace(' ', "-");
                let found =
                    book.lines().filter_map(|line| line.strip_prefix("## ")).any(|title| slug(title) == heading);
                assert!(found, "{}: {}: {url}", dashboard.name, panel["title"]);
            }
        }
    }
}
