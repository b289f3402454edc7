//! `tidegate top`: the dashboard in a terminal, for one server or several.
//!
//! Pages of the debug port are read once a second; `screen` draws them. Without a terminal, or with `--once`, the same
//! figures are printed once as tables.

mod figures;
mod screen;

use std::io::{self, IsTerminal, Write};
use std::time::Duration;

use clap::Args;
use ratatui::DefaultTerminal;
use ratatui::crossterm::event::{self, Event, KeyCode, KeyEvent, KeyEventKind, KeyModifiers};
use tokio::runtime::Runtime;
use tokio::task::JoinSet;

use crate::debug_client::{DebugClient, TokenArgs, client_runtime};
use crate::exit::{Complaint, Exit, Failure};
use crate::output::{Cell, Output, Table};
use figures::ServerFigures;
use screen::Screen;

/// The most servers.
const SERVERS_MAX: usize = 64;
/// How long a key is waited for before the next one.
const KEY_WAIT: Duration = Duration::from_millis(100);
/// Waits for keys between two readings: about a second.
const WAITS: u32 = 10;

/// The arguments of `tidegate top`.
#[derive(Debug, Args)]
pub(crate) struct TopArgs {
    /// Debug ports of servers, such as localhost:6070, or the HTTP ports of forwarders. One alone shows the other nodes of its
    /// fleet too, if nodes share a Redis.
    #[arg(value_name = "HOST:PORT", default_value = "localhost:6070")]
    pub(crate) servers: Vec<String>,
    #[command(flatten)]
    pub(crate) token: TokenArgs,
    /// Print the figures once, as tables.
    #[arg(long)]
    pub(crate) once: bool,
}

pub(crate) fn run(args: &TopArgs, out: &mut Output) -> Result<Exit, Failure> {
    if args.servers.len() > SERVERS_MAX {
        let message = format!("{} servers are too many", args.servers.len());
        return Err(Complaint::new(message, format!("give up to {SERVERS_MAX}")).into());
    }
    let token = args.token.read()?;
    let clients = args.servers.iter().map(|server| DebugClient::new(server, token.clone()));
    let clients = clients.collect::<Result<Vec<_>, _>>()?;
    let runtime = client_runtime()?;
    let readings = runtime.block_on(read_all(&clients));
    if args.once || !io::stdout().is_terminal() {
        return print_once(&readings, out);
    }
    let mut terminal = ratatui::try_init()?;
    let ended = watch(&mut terminal, &runtime, &clients, Screen::new(readings));
    ratatui::try_restore()?;
    ended?;
    Ok(Exit::Fine)
}

/// Reads every server, all at the same time. A server alone is asked for its fleet.
async fn read_all(clients: &[DebugClient]) -> Vec<ServerFigures> {
    if let [client] = clients {
        return match ServerFigures::read(client).await {
            reading if reading.problem.is_some() => vec![reading],
            reading => reading.with_fleet(client).await,
        };
    }
    let mut tasks = JoinSet::new();
    for (index, client) in clients.iter().cloned().enumerate() {
        tasks.spawn(async move { (index, ServerFigures::read(&client).await) });
    }
    let mut readings = tasks.join_all().await;
    readings.sort_by_key(|(index, _)| *index);
    readings.into_iter().map(|(_, reading)| reading).collect()
}

/// Draws until a key ends it.
fn watch(
    terminal: &mut DefaultTerminal,
    runtime: &Runtime,
    clients: &[DebugClient],
    mut screen: Screen,
) -> io::Result<()> {
    loop {
        terminal.draw(|frame| screen.draw(frame))?;
        for _ in 0..WAITS {
            if !event::poll(KEY_WAIT)? {
                continue;
            }
            if let Event::Key(key) = event::read()?
                && key.kind == KeyEventKind::Press
                && !apply(&mut screen, key)
            {
                return Ok(());
            }
            terminal.draw(|frame| screen.draw(frame))?;
        }
        if !screen.is_paused() {
            screen.update(runtime.block_on(read_all(clients)));
        }
    }
}

/// Applies a key; false if it ends the program.
fn apply(screen: &mut Screen, key: KeyEvent) -> bool {
    match key.code {
        KeyCode::Char('q') | KeyCode::Esc => return false,
        KeyCode::Char('c') if key.modifiers.contains(KeyModifiers::CONTROL) => return false,
        KeyCode::Char('p' | ' ') => screen.pause(),
        KeyCode::Tab | KeyCode::Right => screen.next_server(1),
        KeyCode::BackTab | KeyCode::Left => screen.next_server(-1),
        KeyCode::Down | KeyCode::Char('j') => screen.scroll(1),
        KeyCode::Up | KeyCode::Char('k') => screen.scroll(-1),
        _ => {}
    }
    true
}

fn print_once(readings: &[ServerFigures], out: &mut Output) -> Result<Exit, Failure> {
    let mut table = Table::titled(&figures::SERVER_COLUMNS);
    for reading in readings {
        let cells = reading.row();
        table.row(cells.into_iter().enumerate().map(|(index, text)| match index {
            0 | 9 => Cell::new(text),
            _ => Cell::new(text).right(),
        }));
    }
    table.write(out, "")?;
    for reading in readings.iter().filter(|reading| reading.problem.is_none()) {
        for (title, columns, rows) in [
            ("limits", &figures::LIMIT_COLUMNS[..], &reading.limits),
            ("callers", &figures::CALLER_COLUMNS[..], &reading.callers),
            ("queues", &figures::QUEUE_COLUMNS[..], &reading.queues),
        ] {
            if rows.is_empty() {
                continue;
            }
            writeln!(out, "\n{} of {}", title, reading.server)?;
            let mut table = Table::titled(columns);
            rows.iter().for_each(|row| table.row(row.iter().map(Cell::new)));
            table.write(out, "  ")?;
        }
    }
    Ok(Exit::of_check(readings.iter().all(|reading| reading.problem.is_none())))
}
