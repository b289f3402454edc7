//! `tidegate explain`: what would happen to an HTTP request, by a running server or by files.
//!
//! Both answer as the page `/api/try` of the debug port: files are loaded into an engine of their own, whose counters are
//! unused.

use std::io::{self, Write};
use std::net::IpAddr;
use std::path::PathBuf;
use std::sync::Arc;

use clap::Args;
use serde_json::{Value, json};
use tidegate_admin::{DebugDoor, DebugParts};
use tidegate_engine::{Engine, MemoryConfig, MemoryStore, Options, SystemClock, compile};
use tidegate_gateway::{Gateway, GatewayParts};

use crate::cli::Format;
use crate::debug_client::{DebugClient, TokenArgs, client_runtime};
use crate::exit::{Complaint, Exit, Failure};
use crate::output::{Cell, Clean, Output, StyledText, Table, style, write_json};
use crate::rules::load::{self, DEFAULT_PATH};
use crate::serve::try_in;
use crate::{config, words};

/// The arguments of `tidegate explain`.
#[derive(Debug, Args)]
pub(crate) struct ExplainRequestArgs {
    /// The request line: a method and a path. Without a method: GET.
    #[arg(long, value_name = "LINE")]
    pub(crate) request: String,
    /// A header field; can be given several times.
    #[arg(short = 'H', long = "header", value_name = "NAME: VALUE")]
    pub(crate) headers: Vec<String>,
    /// The address that the request comes from.
    #[arg(long, value_name = "ADDR")]
    pub(crate) client: Option<IpAddr>,
    /// The debug port of a running server, such as localhost:6070.
    #[arg(long, value_name = "HOST:PORT", conflicts_with = "gateway")]
    pub(crate) server: Option<String>,
    #[command(flatten)]
    pub(crate) token: TokenArgs,
    /// The gateway's document, if no server is asked.
    #[arg(long, value_name = "FILE", required_unless_present = "server")]
    pub(crate) gateway: Option<PathBuf>,
    /// Rule files or directories, if no server is asked; can be given several times.
    #[arg(long, value_name = "PATH", env = "TIDEGATE_RULES", default_value = DEFAULT_PATH)]
    pub(crate) rules: Vec<PathBuf>,
    /// How to write the answer.
    #[arg(long, value_enum, default_value_t)]
    pub(crate) format: Format,
}

pub(crate) fn run(args: &ExplainRequestArgs, out: &mut Output) -> Result<Exit, Failure> {
    let body = body_of(args)?;
    let runtime = client_runtime()?;
    let page = match &args.server {
        Some(server) => {
            let client = DebugClient::new(server, args.token.read()?)?;
            runtime.block_on(client.post("/api/try", &body)).map_err(|error| {
                let help =
                    "check the address and the token: `tidegate serve` logs where it listens";
                Complaint::new(format!("{server}: {error}"), help)
            })?
        }
        None => {
            let _entered = runtime.enter();
            let door = door_of_files(args)?;
            runtime
                .block_on(door.try_request(&body.to_string()))
                .map_err(|error| Complaint::new(error, "check `--request` and `--header`"))?
        }
    };
    match args.format {
        Format::Json => write_json(out, &page)?,
        Format::Text => write_text(out, &page)?,
    }
    Ok(Exit::Fine)
}

/// The body of the question.
fn body_of(args: &ExplainRequestArgs) -> Result<Value, Complaint> {
    let (method, path) = match args.request.trim().split_once(' ') {
        Some((method, path)) => (method, path.trim()),
        None => ("GET", args.request.trim()),
    };
    let mut headers = Vec::new();
    for header in &args.headers {
        let (name, value) = header.split_once(':').ok_or_else(|| {
            let message = format!("`{header}` is no header field");
            Complaint::new(message, "write `NAME: VALUE`, such as -H 'X-User: ada'")
        })?;
        headers.push((name.trim(), value.trim()));
    }
    let request = json!({ "method": method, "path": path, "headers": headers });
    let mut body = json!({ "request": request });
    if let Some(client) = args.client {
        body["request"]["client"] = json!(client);
    }
    Ok(body)
}

/// A debug port over the rules and the gateway's document in files.
fn door_of_files(
    args: &ExplainRequestArgs,
) -> Result<DebugDoor<MemoryStore, SystemClock>, Failure> {
    let rules = compile(&load::sources(&args.rules)?, &Options::default())?;
    let store = MemoryStore::new(MemoryConfig::default())
        .map_err(|error| Complaint::new(error.to_string(), "free some memory"))?;
    let engine = Arc::new(Engine::new(store, SystemClock::new()).with_rules(rules));
    let path = args.gateway.clone().unwrap_or_default();
    let document = config::gateway::load(&path)?;
    let settings = document.settings().clone();
    let gateway = Gateway::new(Arc::clone(&engine), settings, GatewayParts::default())
        .map_err(|error| Failure::Gateway(document.report(&error)))?;
    let parts = DebugParts {
        limit_terms: Some(words::terms),
        try_request: Some(try_in(gateway)),
        ..DebugParts::default()
    };
    Ok(DebugDoor::new(engine, parts))
}

fn write_text(out: &mut impl Write, page: &Value) -> io::Result<()> {
    let text = |name: &str| page[name].as_str().unwrap_or_default().to_owned();
    let (verdict, color) = match page["passes"].as_bool() {
        Some(true) => ("would pass", style::GOOD),
        _ => ("would be refused", style::BAD),
    };
    let by = text("refused_by");
    let by = if by.is_empty() { by } else { format!(" by {by}") };
    writeln!(out, "{}{}", StyledText(color, verdict), Clean(by))?;
    let shed = match page["shed_now"].as_str() {
        Some("some") => " (partly shed now)",
        Some("all") => " (shed now)",
        _ => "",
    };
    let fault = &page["fault"];
    let facts = [
        ("route", text("route")),
        ("upstream", text("upstream")),
        ("category", format!("{}{shed}", text("category"))),
        ("domain", text("domain")),
        ("rejected", fault["detail"].as_str().unwrap_or_default().to_owned()),
        ("undecided", text("undecided")),
    ];
    for (name, value) in facts.iter().filter(|(_, value)| !value.is_empty()) {
        writeln!(out, "  {} {}", StyledText(style::FAINT, format!("{name:<10}")), Clean(value))?;
    }
    if page["exempt"] == json!(true) {
        writeln!(out, "  the route is exempt from limits")?;
    }
    let none = Vec::new();
    let descriptors = page["descriptors"].as_array().unwrap_or(&none);
    for descriptor in descriptors {
        write_descriptor(out, descriptor)?;
    }
    if descriptors.is_empty() && fault.is_null() {
        writeln!(out, "\nno descriptor: no rule limits the request")?;
    }
    Ok(())
}

fn write_descriptor(out: &mut impl Write, descriptor: &Value) -> io::Result<()> {
    let none = Vec::new();
    let entries = descriptor["entries"].as_array().unwrap_or(&none).iter().map(|entry| {
        let part = |index: usize| entry[index].as_str().unwrap_or_default().to_owned();
        format!("{}={}", part(0), part(1))
    });
    let entries = entries.collect::<Vec<_>>().join(" ");
    writeln!(out, "\n{}", StyledText(style::STRONG, Clean(entries)))?;
    if let Some(ending) = descriptor["ending"].as_str() {
        writeln!(out, "  {}", Clean(ending))?;
    }
    let limits = descriptor["limits"].as_array().unwrap_or(&none);
    if limits.is_empty() {
        return Ok(());
    }
    let mut table = Table::titled(&["limit", "allows", "role", "left", "now", "retry after"]);
    for limit in limits {
        let text = |name: &str| limit[name].as_str().unwrap_or_default().to_owned();
        let number = |name: &str| limit[name].as_u64().unwrap_or(0);
        let (now, color) = match limit["passes"].as_bool() {
            Some(true) => ("passes", style::GOOD),
            _ => ("refuses", style::BAD),
        };
        let retry = match (limit["never"] == json!(true), limit["retry_after_ms"].as_u64()) {
            (true, _) => "never".to_owned(),
            (false, Some(millis)) => words::span(tidegate_engine::Nanos::from_millis(millis)),
            (false, None) => String::new(),
        };
        table.row([
            Cell::new(format!("{} #{}", text("rule"), text("limit"))),
            Cell::new(text("terms")),
            Cell::new(text("role")),
            Cell::new(format!("{} of {}", number("remaining"), number("quota"))).right(),
            Cell::new(now).styled(color),
            Cell::new(retry).right(),
        ]);
    }
    table.write(out, "  ")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn args(request: &str, headers: &[&str]) -> ExplainRequestArgs {
        ExplainRequestArgs {
            request: request.to_owned(),
            headers: headers.iter().map(|header| (*header).to_owned()).collect(),
            client: "10.0.0.1".parse().ok(),
            server: None,
            token: TokenArgs { token_file: None },
            gateway: None,
            rules: Vec::new(),
            format: Format::Text,
        }
    }

    #[test]
    fn a_request_line_may_leave_out_the_method() {
        let body = body_of(&args(" /orders?x=1 ", &["X-User: ada", "Host:a:80"])).unwrap();
        assert_eq!(
            body,
            json!({"request": {
                "method": "GET", "path": "/orders?x=1", "client": "10.0.0.1",
                "headers": [["X-User", "ada"], ["Host", "a:80"]],
            }})
        );
        let body = body_of(&args("POST /orders", &[])).unwrap();
        assert_eq!(body["request"]["method"], "POST");
        assert!(body_of(&args("/", &["X-User ada"])).is_err());
    }

    #[test]
    fn values_of_a_server_cannot_change_the_terminal() {
        let page = json!({
            "passes": false, "refused_by": "user\u{1b}[2J", "domain": "api", "descriptors": [
                {"entries": [["user", "\u{1b}]0;x\u{7}"]], "ending": null, "limits": []}
            ]
        });
        let mut text = Vec::new();
        write_text(&mut text, &page).unwrap();
        let text = String::from_utf8(text).unwrap();
        let text = anstream::adapter::strip_str(&text).to_string();
        assert!(!text.contains('\u{1b}') && !text.contains('\u{7}'), "{text:?}");
    }
}
