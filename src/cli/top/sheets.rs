//! Tables of each screen, from the answers of the listener.

use payferry_domain::Timestamp;
use serde_json::Value;

use super::Snapshot;

payferry_domain::named! {
    /// A screen.
    Screen, "a screen" {
        Overview = "overview",
        Attention = "attention",
        Actors = "actors",
        Messages = "messages",
        Log = "log",
    }
}

impl Screen {
    pub(super) fn next(self) -> Self {
        Self::ALL[(self.position() + 1) % Self::ALL.len()]
    }

    pub(super) fn previous(self) -> Self {
        Self::ALL[(self.position() + Self::ALL.len() - 1) % Self::ALL.len()]
    }

    fn position(self) -> usize {
        self as usize
    }
}

/// Order of the actors.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Order {
    Mailbox,
    Handling,
    Restarts,
}

impl Order {
    pub(super) const fn next(self) -> Self {
        match self {
            Self::Mailbox => Self::Handling,
            Self::Handling => Self::Restarts,
            Self::Restarts => Self::Mailbox,
        }
    }

    /// Field of an actor that it orders by.
    pub(super) const fn field(self) -> &'static str {
        match self {
            Self::Mailbox => "mailbox",
            Self::Handling => "handling_ms",
            Self::Restarts => "restarts",
        }
    }
}

/// A table.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Sheet {
    pub(super) title: String,
    /// Heading and width of each column; the last one takes the rest.
    pub(super) columns: &'static [(&'static str, u16)],
    pub(super) rows: Vec<SheetRow>,
}

/// A row.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct SheetRow {
    pub(super) cells: Vec<String>,
    /// True if the operator should act.
    pub(super) is_bad: bool,
}

fn row<const N: usize>(cells: [String; N], is_bad: bool) -> SheetRow {
    SheetRow { cells: cells.into(), is_bad }
}

/// The tables of a screen.
pub(super) fn sheets(screen: Screen, order: Order, snapshot: &Snapshot, now: Timestamp) -> Vec<Sheet> {
    match screen {
        Screen::Overview => vec![chains(&snapshot.overview), payments(&snapshot.overview), service(&snapshot.overview)],
        Screen::Attention => vec![attention(&snapshot.attention)],
        Screen::Actors => vec![actors(&snapshot.overview, order)],
        Screen::Messages => vec![messages(&snapshot.messages)],
        Screen::Log => vec![log(&snapshot.overview, now)],
    }
}

fn chains(overview: &Value) -> Sheet {
    let line = |chain: &Value| {
        let state = text(&chain["state"]);
        let trouble = text(&chain["settler"]["trouble"]);
        let is_bad = state != "ok" || trouble != "–" || chain["paused"] == true;
        let state = if chain["paused"] == true { format!("{state}, paused") } else { state };
        row([text(&chain["chain"]), state, text(&chain["head_number"]), text(&chain["lag_blocks"]), trouble], is_bad)
    };
    Sheet {
        title: "Chains".to_owned(),
        columns: &[("chain", 10), ("state", 16), ("head", 12), ("lag", 6), ("settlements", 0)],
        rows: list(&overview["chains"]).iter().map(line).collect(),
    }
}

fn payments(overview: &Value) -> Sheet {
    let line = |tally: &Value| {
        let cells = [text(&tally["status"]), text(&tally["chain"]), text(&tally["count"]), text(&tally["live"])];
        row(cells, false)
    };
    Sheet {
        title: "Payments".to_owned(),
        columns: &[("status", 14), ("chain", 10), ("count", 12), ("live", 0)],
        rows: list(&overview["payments"]).iter().filter(|tally| tally["count"].as_i64() != Some(0)).map(line).collect(),
    }
}

fn service(overview: &Value) -> Sheet {
    let journal = &overview["journal"];
    let backlog = &overview["webhooks"]["backlog"];
    let quarantined =
        ["payments_quarantined", "sendings_quarantined", "customers_quarantined"].map(|name| number(&overview[name]));
    let total: f64 = quarantined.iter().sum();
    let figure = |name: &str, value: String, is_bad| row([name.to_owned(), value], is_bad);
    Sheet {
        title: "Service".to_owned(),
        columns: &[("figure", 28), ("value", 0)],
        rows: vec![
            figure("ready", text(&overview["readiness"]["ready"]), overview["readiness"]["ready"] != true),
            figure("quarantined", format!("{total}"), total > 0.0),
            figure("journal writes", text(&journal["writing"]), journal["writing"] != true),
            figure("journal groups", text(&journal["groups"]), false),
            figure("webhooks queued", text(&backlog["queued"]["counted"]), false),
            figure("webhooks retrying", text(&backlog["retrying"]["counted"]), false),
        ],
    }
}

fn attention(found: &Value) -> Sheet {
    let kinds = list(&found["kinds"]);
    let of_kind = |kind: &Value| {
        let name = text(&kind["kind"]).replace('_', " ");
        let line = move |item: &Value| {
            let cells = [
                name.clone(),
                text(&item["id"]),
                text(&item["money"]),
                age(item["age_ms"].as_f64()),
                text(&item["reason"]),
            ];
            row(cells, true)
        };
        list(&kind["items"]).iter().map(line).collect::<Vec<_>>()
    };
    let total = &found["total"];
    let more = if total["more"] == true { "more than " } else { "" };
    Sheet {
        title: format!("Needs attention: {more}{}", text(&total["counted"])),
        columns: &[("kind", 24), ("subject", 32), ("money", 18), ("age", 8), ("reason", 0)],
        rows: kinds.iter().flat_map(of_kind).collect(),
    }
}

fn actors(overview: &Value, order: Order) -> Sheet {
    let mut all = Vec::new();
    collect(&overview["tree"]["root"], &mut all);
    all.sort_by(|one, other| number(&other[order.field()]).total_cmp(&number(&one[order.field()])));
    let line = |actor: &&Value| {
        let (kind, name) = (text(&actor["kind"]).replace('_', " "), text(&actor["name"]));
        let name = if name.replace('_', " ") == kind { kind } else { format!("{kind} {name}") };
        let cells = [
            name,
            text(&actor["state"]),
            text(&actor["mailbox"]),
            text(&actor["messages"]),
            millis(&actor["handling_ms"]),
            text(&actor["restarts"]),
            text(&actor["last_failure"]["reason"]),
        ];
        row(cells, actor["state"] != "running")
    };
    Sheet {
        title: format!("Actors by {}", order.field().trim_end_matches("_ms")),
        columns: &[
            ("actor", 34),
            ("state", 12),
            ("mailbox", 8),
            ("messages", 12),
            ("handling", 10),
            ("restarts", 9),
            ("last failure", 0),
        ],
        rows: all.iter().map(line).collect(),
    }
}

fn collect<'a>(node: &'a Value, all: &mut Vec<&'a Value>) {
    if node.is_object() {
        all.push(node);
    }
    for child in list(&node["children"]) {
        collect(child, all);
    }
}

fn messages(graph: &Value) -> Sheet {
    let mut edges: Vec<&Value> = list(&graph["edges"]).iter().collect();
    edges.sort_by(|one, other| {
        let key = |edge: &Value| (number(&edge["per_second"]), number(&edge["messages"]));
        let (one, other) = (key(one), key(other));
        other.0.total_cmp(&one.0).then(other.1.total_cmp(&one.1))
    });
    let line = |edge: &&Value| {
        let from = edge["from"].as_str().unwrap_or("outside").replace('_', " ");
        let rate = edge["per_second"].as_f64().map_or_else(|| "–".to_owned(), |rate| format!("{rate:.1}/s"));
        row([from, text(&edge["to"]).replace('_', " "), rate, text(&edge["messages"])], false)
    };
    Sheet {
        title: "Messages between kinds of actors".to_owned(),
        columns: &[("from", 22), ("to", 22), ("rate", 12), ("messages", 0)],
        rows: edges.iter().map(line).collect(),
    }
}

fn log(overview: &Value, now: Timestamp) -> Sheet {
    let line = |incident: &Value| {
        let at = incident["at"].as_f64();
        #[allow(clippy::cast_precision_loss, reason = "ages are shown in seconds")]
        let ago = at.map(|at| now.as_millis() as f64 - at);
        let action = text(&incident["action"]);
        let is_bad = action == "quarantined";
        let who = format!("{} {}", text(&incident["kind"]).replace('_', " "), text(&incident["name"]));
        row([age(ago), who, action, text(&incident["reason"]), text(&incident["location"])], is_bad)
    };
    Sheet {
        title: "Supervision log, newest first".to_owned(),
        columns: &[("age", 8), ("actor", 40), ("action", 12), ("reason", 44), ("location", 0)],
        rows: list(&overview["incidents"]).iter().map(line).collect(),
    }
}

fn list(value: &Value) -> &[Value] {
    value.as_array().map_or(&[], Vec::as_slice)
}

fn number(value: &Value) -> f64 {
    value.as_f64().unwrap_or_default()
}

fn text(value: &Value) -> String {
    match value {
        Value::Null => "–".to_owned(),
        Value::String(text) => text.clone(),
        Value::Bool(is) => if *is { "yes" } else { "no" }.to_owned(),
        other => other.to_string(),
    }
}

fn millis(value: &Value) -> String {
    value.as_f64().map_or_else(|| "–".to_owned(), |ms| format!("{ms:.2} ms"))
}

fn age(ms: Option<f64>) -> String {
    let Some(ms) = ms else { return "–".to_owned() };
    let secs = (ms / 1_000.0).max(0.0);
    match secs {
        0.0..120.0 => format!("{secs:.0} s"),
        120.0..7_200.0 => format!("{:.0} min", secs / 60.0),
        7_200.0..172_800.0 => format!("{:.0} h", secs / 3_600.0),
        _ => format!("{:.0} d", secs / 86_400.0),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn actors_are_sorted_by_the_chosen_figure() {
        let actor = |name: &str, mailbox: u64, handling: f64, restarts: u64| {
            json!({ "kind": "watcher", "name": name, "state": "running", "mailbox": mailbox, "messages": 1,
                "handling_ms": handling, "restarts": restarts, "children": [] })
        };
        let children = [actor("a", 3, 1.0, 2), actor("b", 2, 3.0, 1), actor("c", 1, 2.0, 3)];
        let overview = json!({ "tree": { "root": { "kind": "root", "name": "root", "state": "running", "mailbox": 0,
            "handling_ms": 0.0, "restarts": 0, "children": children } } });
        for (order, wanted) in [(Order::Mailbox, "abc"), (Order::Handling, "bca"), (Order::Restarts, "cab")] {
            let rows = actors(&overview, order).rows;
            let names: String = rows.iter().take(3).filter_map(|row| row.cells[0].strip_prefix("watcher ")).collect();
            assert_eq!(names, wanted, "{order:?}");
        }
    }

    #[test]
    fn ages_have_a_suitable_unit() {
        for (ms, wanted) in
            [(0.0, "0 s"), (-5.0, "0 s"), (119_000.0, "119 s"), (600_000.0, "10 min"), (8e7, "22 h"), (1e9, "12 d")]
        {
            assert_eq!(age(Some(ms)), wanted);
        }
        assert_eq!(age(None), "–");
    }

    #[test]
    fn missing_figures_are_shown_as_missing() {
        let nothing = Snapshot {
            overview: json!({ "payments": null, "webhooks": null }),
            attention: json!({}),
            messages: json!({}),
            at: Timestamp(0),
        };
        for screen in Screen::ALL {
            for sheet in sheets(screen, Order::Mailbox, &nothing, Timestamp(0)) {
                assert!(sheet.rows.iter().all(|row| row.cells.len() == sheet.columns.len()), "{sheet:?}");
            }
        }
    }
}
