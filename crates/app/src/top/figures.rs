//! The figures of one server, as texts for a table.

use serde_json::{Value, json};

use crate::debug_client::DebugClient;
use crate::serve::queues_of;
use crate::words;

/// Limits and callers of a server that are shown.
const ROWS_MAX: usize = 50;
/// The points of the small charts.
pub(super) const POINTS: usize = 120;

pub(super) const SERVER_COLUMNS: [&str; 10] = [
    "server",
    "admitted/s",
    "refused/s",
    "shed/s",
    "shadow/s",
    "undecided/s",
    "p99",
    "gate",
    "busy",
    "state",
];
pub(super) const LIMIT_COLUMNS: [&str; 6] = ["limit", "allows", "mode", "hits", "over", "share"];
pub(super) const QUEUE_COLUMNS: [&str; 7] =
    ["forwarder", "state", "waiting", "in flight", "per second", "dead", "empty in"];
pub(super) const CALLER_COLUMNS: [&str; 4] = ["caller", "limit", "refusals", "left"];

/// What one server said.
#[derive(Clone, Debug, Default)]
pub(super) struct ServerFigures {
    pub(super) server: String,
    /// Why there are no figures, if so.
    pub(super) problem: Option<String>,
    pub(super) state: Value,
    pub(super) limits: Vec<Vec<String>>,
    pub(super) callers: Vec<Vec<String>>,
    /// The queues of its forwarder.
    pub(super) queues: Vec<Vec<String>>,
    /// Admitted, refused and shed in each of the last seconds.
    pub(super) series: [Vec<u64>; 3],
}

impl ServerFigures {
    pub(super) async fn read(client: &DebugClient) -> Self {
        let server = client.name().to_owned();
        match Self::read_pages(client).await {
            Ok(figures) => ServerFigures { server, ..figures },
            Err(problem) => match client.get("/v1/types").await {
                Ok(page) => ServerFigures { server, ..ServerFigures::of_forwarder(&page) },
                Err(_) => {
                    ServerFigures { server, problem: Some(problem), ..ServerFigures::default() }
                }
            },
        }
    }

    /// The figures of a forwarder, by the page of its record types.
    pub(super) fn of_forwarder(page: &Value) -> Self {
        let queues = queues_of(page);
        let waiting: u64 = queues.iter().map(|queue| queue.waiting).sum();
        let state = json!({ "forwarder": queues, "is_forwarder": true, "waiting": waiting });
        ServerFigures::of(state, &Value::Null, &Value::Null, &Value::Null)
    }

    async fn read_pages(client: &DebugClient) -> Result<Self, String> {
        let state = client.get("/api/state").await?;
        let limits = client.get("/api/limits?sort=refused").await?;
        let callers = client.get("/api/callers").await?;
        let series = client.get("/api/series?names=admitted,refused,shed&step=1").await?;
        Ok(ServerFigures::of(state, &limits, &callers, &series))
    }

    /// This server with the other nodes of its fleet, and their sum; alone if it has none.
    pub(super) async fn with_fleet(mut self, client: &DebugClient) -> Vec<Self> {
        let page = match client.get("/api/fleet").await {
            Ok(page) => page,
            // A server of an earlier version.
            Err(_) => return vec![self],
        };
        if let Some(problem) = page["problem"].as_str() {
            self.state["fleet_problem"] = json!(problem);
        }
        let fleet = self.others(&page);
        std::iter::once(self).chain(fleet).collect()
    }

    /// The other nodes of a page about the fleet, and the sum of all.
    pub(super) fn others(&mut self, page: &Value) -> Vec<Self> {
        let none = Vec::new();
        let nodes = page["nodes"].as_array().unwrap_or(&none);
        if nodes.len() < 2 {
            return Vec::new();
        }
        let usual = &page["rules_version"];
        self.state["fleet_rules"] = usual.clone();
        let identity = |state: &Value| (state["name"].clone(), state["started_ms"].clone());
        let is_other = |node: &&Value| identity(node) != identity(&self.state);
        let figures = |node: &Value| {
            let mut state = node.clone();
            state["fleet_rules"] = usual.clone();
            let server = node["name"].as_str().unwrap_or_default().to_owned();
            ServerFigures { server, state, ..ServerFigures::default() }
        };
        let mut others: Vec<Self> = nodes.iter().filter(is_other).map(figures).collect();
        let versions = page["rules_versions"].as_object().map_or(0, serde_json::Map::len);
        let sum =
            json!({ "rates": page["rates"], "rules": { "version": usual }, "versions": versions });
        let server = format!("all {} nodes", nodes.len());
        others.push(ServerFigures { server, state: sum, ..ServerFigures::default() });
        others
    }

    /// The figures of these pages.
    pub(super) fn of(state: Value, limits: &Value, callers: &Value, series: &Value) -> Self {
        let rows = |page: &Value, name: &str, row: fn(&Value) -> Vec<String>| {
            let list = page[name].as_array().cloned().unwrap_or_default();
            list.iter().take(ROWS_MAX).map(row).collect()
        };
        ServerFigures {
            limits: rows(limits, "limits", limit_row),
            callers: rows(callers, "callers", caller_row),
            queues: rows(&state, "forwarder", queue_row),
            series: [0, 1, 2].map(|column| points(&series["values"][column])),
            state,
            server: String::new(),
            problem: None,
        }
    }

    /// The row of the server in the table of servers.
    pub(super) fn row(&self) -> Vec<String> {
        if let Some(problem) = &self.problem {
            let mut row = vec![self.server.clone()];
            row.resize(SERVER_COLUMNS.len() - 1, String::new());
            row.push(problem.clone());
            return row;
        }
        let rates = &self.state["rates"];
        let rate = |name: &str| rates[name].as_f64().map_or("-".to_owned(), show_rate);
        let overload = &self.state["overload"];
        let gate = &overload["gate"];
        let number = |value: &Value| value.as_u64().unwrap_or(0);
        let (gate, busy) = match overload.is_null() {
            true => ("-".to_owned(), "-".to_owned()),
            false => (
                format!(
                    "{}/{}+{}",
                    number(&gate["in_flight"]),
                    number(&gate["limit"]),
                    number(&gate["queued"])
                ),
                format!(
                    "{:.0} %",
                    overload["worker"]["utilization"].as_f64().unwrap_or(0.0) * 100.0
                ),
            ),
        };
        let shed = if overload.is_null() { "-".to_owned() } else { rate("shed") };
        let p99 = rates["latency_p99_us"].as_f64().filter(|micros| *micros > 0.0);
        let p99 = p99.map_or("-".to_owned(), |micros| match micros {
            micros if micros >= 1_000.0 => format!("{} ms", micros / 1_000.0),
            micros => format!("{micros} us"),
        });
        vec![
            self.server.clone(),
            rate("admitted"),
            rate("refused"),
            shed,
            rate("shadow"),
            rate("undecided"),
            p99,
            gate,
            busy,
            self.state_text(),
        ]
    }

    /// What is not as usual, or the version of the rules.
    pub(super) fn state_text(&self) -> String {
        let state = &self.state;
        if state["is_forwarder"] == Value::Bool(true) {
            return format!("forwarder, {} waiting", state["waiting"]);
        }
        let mut notes = Vec::new();
        if state["off"] == Value::Bool(true) {
            notes.push("EVERYTHING OFF".to_owned());
        }
        if state["rules"]["stale"] == Value::Bool(true) {
            notes.push("rules stale".to_owned());
        }
        if let Some(reason) = state["store"]["unavailable"].as_str() {
            notes.push(format!("store: {reason}"));
        }
        if let Some(problem) = state["fleet_problem"].as_str() {
            notes.push(format!("fleet: {problem}"));
        }
        if let Some(problem) = state["control"]["problem"].as_str() {
            notes.push(format!("control: {problem}"));
        }
        let version = state["rules"]["version"].as_str().unwrap_or_default();
        if state["fleet_rules"].as_str().is_some_and(|usual| usual != version) {
            notes.push(format!("OTHER RULES {}", version.get(..8).unwrap_or(version)));
        }
        if state["versions"].as_u64().is_some_and(|versions| versions > 1) {
            notes.push(format!("{} versions of the rules", state["versions"]));
        }
        let none = Vec::new();
        for limiter in state["limiters"].as_array().unwrap_or(&none) {
            if limiter["mode"] != limiter["configured"] {
                let text = |name: &str| limiter[name].as_str().unwrap_or_default().to_owned();
                notes.push(format!("{} {}", text("name"), text("mode")));
            }
        }
        if notes.is_empty() {
            notes.push(format!("rules {}", version.get(..8).unwrap_or(version)));
        }
        notes.join(", ")
    }

    /// Whether something needs attention.
    pub(super) fn is_unusual(&self) -> bool {
        let is_usual = |text: &str| text.starts_with("rules ") || text.starts_with("forwarder, ");
        self.problem.is_some() || !is_usual(&self.state_text())
    }

    /// The line below the title: version, age, rules.
    pub(super) fn about(&self) -> String {
        let state = &self.state;
        let uptime = state["uptime_s"].as_u64().unwrap_or(0);
        let control = state["control"]["version"].as_str();
        let control = control.map(|version| format!(", control {version}")).unwrap_or_default();
        format!(
            "tidegate {}, up {}, {} limits, store {}{control}",
            state["version"].as_str().unwrap_or_default(),
            words::span(tidegate_engine::Nanos::from_secs(uptime)),
            state["rules"]["limits"].as_u64().unwrap_or(0),
            state["store"]["kind"].as_str().unwrap_or("memory"),
        )
    }
}

fn show_rate(rate: f64) -> String {
    if rate > 0.0 && rate < 10.0 { format!("{rate:.1}") } else { format!("{rate:.0}") }
}

fn points(column: &Value) -> Vec<u64> {
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "a rate for a chart"
    )]
    let point = |value: &Value| value.as_f64().unwrap_or(0.0).max(0.0) as u64;
    let values: Vec<u64> =
        column.as_array().map(|values| values.iter().map(point).collect()).unwrap_or_default();
    values.get(values.len().saturating_sub(POINTS)..).unwrap_or_default().to_vec()
}

fn limit_row(limit: &Value) -> Vec<String> {
    let text = |name: &str| limit[name].as_str().unwrap_or_default().to_owned();
    let hour = |name: &str| limit["last_hour"][name].as_u64().unwrap_or(0);
    let over = hour("refused") + hour("shadow");
    let hits = hour("admitted") + over;
    let share = match hits {
        0 => "-".to_owned(),
        hits => format!("{}.{} %", over * 100 / hits, over * 1_000 / hits % 10),
    };
    vec![
        format!("{} {} #{}", text("domain"), text("rule"), text("limit")),
        text("terms"),
        text("mode"),
        hits.to_string(),
        over.to_string(),
        share,
    ]
}

fn queue_row(queue: &Value) -> Vec<String> {
    let text = |name: &str| queue[name].as_str().unwrap_or_default().to_owned();
    let number = |name: &str| queue[name].as_u64().unwrap_or(0).to_string();
    let state = queue["problem"].as_str().map_or_else(|| text("mode"), ToOwned::to_owned);
    let empty_in = queue["empty_in_s"].as_u64().map(tidegate_engine::Nanos::from_secs);
    vec![
        text("name"),
        state,
        number("waiting"),
        number("in_flight"),
        queue["rate"].as_f64().map_or("-".to_owned(), show_rate),
        number("dead"),
        empty_in.map_or("-".to_owned(), words::span),
    ]
}

fn caller_row(caller: &Value) -> Vec<String> {
    let text = |name: &str| caller[name].as_str().unwrap_or_default().to_owned();
    let left = match (caller["remaining"].as_u64(), caller["quota"].as_u64()) {
        (Some(left), Some(quota)) => format!("{left} of {quota}"),
        _ => "-".to_owned(),
    };
    vec![
        text("caller"),
        format!("{} #{}", text("rule"), text("limit")),
        caller["refusals"].as_u64().unwrap_or(0).to_string(),
        left,
    ]
}
