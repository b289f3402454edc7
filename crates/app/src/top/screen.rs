//! The screen: servers on top, then charts, limits and callers of the chosen one. Draws values, reads nothing.

use ratatui::Frame;
use ratatui::layout::{Constraint, Layout, Rect};
use ratatui::style::{Color, Modifier, Style};
use ratatui::text::Line;
use ratatui::widgets::{Block, Cell, Paragraph, Row, Sparkline, Table};

use super::figures::{CALLER_COLUMNS, LIMIT_COLUMNS, QUEUE_COLUMNS, SERVER_COLUMNS, ServerFigures};

const TITLE: Style = Style::new().add_modifier(Modifier::BOLD);
const FAINT: Style = Style::new().add_modifier(Modifier::DIM);
const CHOSEN: Style = Style::new().add_modifier(Modifier::REVERSED);
const ALARM: Style = Style::new().fg(Color::Red).add_modifier(Modifier::BOLD);
/// Queues of a forwarder that are shown.
const QUEUES_MAX: usize = 6;
const KEYS: &str = " q quit   Tab next server   ↑↓ scroll   p pause ";

/// What is shown.
#[derive(Debug)]
pub(super) struct Screen {
    servers: Vec<ServerFigures>,
    chosen: usize,
    scroll: usize,
    paused: bool,
}

impl Screen {
    pub(super) const fn new(servers: Vec<ServerFigures>) -> Self {
        Screen { servers, chosen: 0, scroll: 0, paused: false }
    }

    pub(super) fn update(&mut self, servers: Vec<ServerFigures>) {
        self.servers = servers;
    }

    pub(super) const fn is_paused(&self) -> bool {
        self.paused
    }

    pub(super) const fn pause(&mut self) {
        self.paused = !self.paused;
    }

    pub(super) fn next_server(&mut self, step: isize) {
        let count = self.servers.len().max(1);
        let next = self.chosen.checked_add_signed(step).unwrap_or(count - 1);
        self.chosen = if next >= count { 0 } else { next };
        self.scroll = 0;
    }

    pub(super) fn scroll(&mut self, step: isize) {
        self.scroll = self.scroll.saturating_add_signed(step).min(self.rows().saturating_sub(1));
    }

    fn rows(&self) -> usize {
        let chosen = self.servers.get(self.chosen);
        chosen.map_or(0, |server| server.limits.len().max(server.callers.len()))
    }

    pub(super) fn draw(&self, frame: &mut Frame<'_>) {
        let servers = u16::try_from(self.servers.len()).unwrap_or(u16::MAX).min(8);
        let queues = self.servers.get(self.chosen).map_or(0, |server| server.queues.len());
        let queue_lines = u16::try_from(queues.min(QUEUES_MAX)).unwrap_or(0);
        let [top, charts, limits, callers, queues, keys] = Layout::vertical([
            Constraint::Length(servers.saturating_add(3)),
            Constraint::Length(7),
            Constraint::Fill(3),
            Constraint::Fill(2),
            Constraint::Length(if queue_lines > 0 { queue_lines + 3 } else { 0 }),
            Constraint::Length(1),
        ])
        .areas(frame.area());
        self.draw_servers(frame, top);
        if let Some(server) = self.servers.get(self.chosen) {
            match &server.problem {
                Some(problem) => {
                    let text = Line::styled(problem.clone(), ALARM);
                    frame.render_widget(Paragraph::new(text).block(block(&server.server)), charts);
                }
                None => draw_charts(frame, charts, server),
            }
            self.draw_rows(frame, limits, "limits, last hour", &LIMIT_COLUMNS, &server.limits);
            self.draw_rows(
                frame,
                callers,
                "most refused callers",
                &CALLER_COLUMNS,
                &server.callers,
            );
            if queue_lines > 0 {
                self.draw_rows(frame, queues, "forwarder", &QUEUE_COLUMNS, &server.queues);
            }
        }
        let paused = if self.paused { " PAUSED " } else { "" };
        frame.render_widget(Line::styled(format!("{KEYS}{paused}"), FAINT), keys);
    }

    fn draw_servers(&self, frame: &mut Frame<'_>, area: Rect) {
        let rows = self.servers.iter().enumerate().map(|(index, server)| {
            let style = match (index == self.chosen && self.servers.len() > 1, server.is_unusual())
            {
                (true, _) => CHOSEN,
                (false, true) => ALARM,
                (false, false) => Style::new(),
            };
            Row::new(server.row().into_iter().map(clean)).style(style)
        });
        let mut widths = vec![Constraint::Fill(2)];
        widths.extend([Constraint::Length(11); 5]);
        widths.extend([Constraint::Length(8), Constraint::Length(9), Constraint::Length(6)]);
        widths.push(Constraint::Fill(3));
        let table = Table::new(rows, widths).header(Row::new(SERVER_COLUMNS).style(TITLE));
        frame.render_widget(table.block(block("tidegate top")), area);
    }

    fn draw_rows(
        &self,
        frame: &mut Frame<'_>,
        area: Rect,
        title: &str,
        columns: &[&'static str],
        rows: &[Vec<String>],
    ) {
        let lines = rows.iter().skip(self.scroll);
        let lines = lines.map(|row| Row::new(row.iter().cloned().map(clean)));
        let widths = columns.iter().enumerate().map(|(index, _)| match index {
            0 => Constraint::Fill(3),
            1 => Constraint::Fill(2),
            _ => Constraint::Length(12),
        });
        let table = Table::new(lines, widths).header(Row::new(columns.to_vec()).style(TITLE));
        frame.render_widget(table.block(block(title)), area);
    }
}

fn draw_charts(frame: &mut Frame<'_>, area: Rect, server: &ServerFigures) {
    let areas: [Rect; 3] = Layout::horizontal([Constraint::Fill(1); 3]).areas(area);
    let colors = [Color::Green, Color::Red, Color::Yellow];
    let names = ["admitted", "refused", "shed"];
    for (index, area) in areas.into_iter().enumerate() {
        let (Some(points), Some(name)) = (server.series.get(index), names.get(index)) else {
            continue;
        };
        let width = usize::from(area.width.saturating_sub(2));
        let shown = points.get(points.len().saturating_sub(width)..).unwrap_or_default();
        let most = shown.iter().max().copied().unwrap_or(0);
        let title = format!("{name}/s, at most {most}");
        let color = colors.get(index).copied().unwrap_or(Color::Reset);
        let chart = Sparkline::default().data(shown).style(Style::new().fg(color));
        frame.render_widget(chart.block(block(&title)), area);
    }
    let about = Line::styled(format!(" {} ", server.about()), FAINT).right_aligned();
    let last = Rect { y: area.bottom().saturating_sub(1), height: area.height.min(1), ..area };
    frame.render_widget(about, last);
}

fn block(title: &str) -> Block<'static> {
    Block::bordered().title(Line::styled(format!(" {title} "), TITLE)).border_style(FAINT)
}

/// A text of a server without characters that would change the terminal.
fn clean(text: String) -> Cell<'static> {
    let is_plain = !text.chars().any(char::is_control);
    Cell::from(if is_plain { text } else { text.escape_debug().to_string() })
}

#[cfg(test)]
mod tests {
    use ratatui::Terminal;
    use ratatui::backend::TestBackend;
    use serde_json::json;

    use super::*;

    fn figures(off: bool) -> ServerFigures {
        let state = json!({
            "version": "0.1.0", "uptime_s": 90, "off": off,
            "rules": {"version": "0123456789abcdef", "limits": 2, "stale": false},
            "rates": {"admitted": 120.0, "refused": 4.5, "shed": 7.0, "shadow": 0.0,
                "undecided": 0.0, "latency_p99_us": 50.0},
            "limiters": [],
            "overload": {"gate": {"in_flight": 6, "limit": 8, "queued": 2},
                "worker": {"utilization": 0.834}},
        });
        let counts = json!({"admitted": 90, "refused": 8, "shadow": 2});
        let limits = json!({"limits": [{
            "domain": "api", "rule": "user", "limit": "daily", "terms": "2 per day",
            "mode": "enforce", "last_hour": counts,
        }]});
        let callers = json!({"callers": [{
            "caller": "user=\"\u{1b}[2J\"", "rule": "user", "limit": "daily", "refusals": 8,
            "remaining": 0, "quota": 2,
        }]});
        let series = json!({"values": [[1, 2, 3], [0, 4, null], [0, 0, 7]]});
        ServerFigures {
            server: "a:6070".to_owned(),
            ..ServerFigures::of(state, &limits, &callers, &series)
        }
    }

    fn drawn(screen: &Screen) -> String {
        let mut terminal = Terminal::new(TestBackend::new(140, 30)).unwrap();
        terminal.draw(|frame| screen.draw(frame)).unwrap();
        let buffer = terminal.backend().buffer().clone();
        let lines = buffer.content().chunks(140);
        lines.map(|line| line.iter().map(|cell| cell.symbol()).collect::<String>() + "\n").collect()
    }

    #[test]
    fn servers_limits_and_callers_are_on_one_screen() {
        let text = drawn(&Screen::new(vec![figures(false)]));
        for part in [
            "a:6070",
            "120",
            "4.5",
            "6/8+2",
            "83 %",
            "rules 01234567",
            "shed/s, at most 7",
            "api user #daily",
            "10.0 %",
            "0 of 2",
            "up 1m30s",
            "q quit",
        ] {
            assert!(text.contains(part), "{part} is missing:\n{text}");
        }
        assert!(!text.contains('\u{1b}'), "a caller's name changes the terminal");
    }

    #[test]
    fn the_nodes_of_a_fleet_stand_below_the_server_and_their_sum_below_them() {
        let node = |name: &str, version: &str| {
            json!({"name": name, "started_ms": 5, "rates": {"admitted": 50.0}, "limiters": [],
                "rules": {"version": version}, "store": {"kind": "redis"}})
        };
        let mut own = figures(false);
        own.state["name"] = json!("a");
        own.state["started_ms"] = json!(5);
        let page = json!({"nodes": [node("a", "0123456789abcdef"), node("b", "ffff")],
            "rates": {"admitted": 170.0}, "rules_version": "0123456789abcdef",
            "rules_versions": {"0123456789abcdef": 1, "ffff": 1}});
        let others = own.others(&page);
        let text = drawn(&Screen::new(std::iter::once(own).chain(others).collect()));
        for part in ["OTHER RULES ffff", "all 2 nodes", "170", "2 versions of the rules"] {
            assert!(text.contains(part), "{part} is missing:\n{text}");
        }
        assert_eq!(text.matches("rules 01234567").count(), 1, "{text}");
        let alone = json!({"nodes": [node("a", "0123456789abcdef")]});
        assert!(figures(false).others(&alone).is_empty());
    }

    #[test]
    fn a_forwarder_is_shown_by_its_queues() {
        let page = json!({"types": [{"record_type": "mail", "mode": "running", "waiting": 7}]});
        let text = drawn(&Screen::new(vec![ServerFigures::of_forwarder(&page)]));
        for part in ["forwarder, 7 waiting", "mail", "running"] {
            assert!(text.contains(part), "{part} is missing:\n{text}");
        }
    }

    #[test]
    fn the_queues_of_a_forwarder_are_shown_where_there_are_some() {
        let state = json!({"forwarder": [{"name": "mail", "mode": "running", "waiting": 120,
            "in_flight": 4, "dead": 2, "rate": 7.5, "empty_in_s": 90},
            {"name": "sms", "mode": "paused", "waiting": 1, "problem": "target is closed"}]});
        let page = ServerFigures::of(state, &json!({}), &json!({}), &json!({}));
        let text = drawn(&Screen::new(vec![page]));
        for part in ["mail", "running", "120", "7.5", "1m30s", "target is closed"] {
            assert!(text.contains(part), "{part} is missing:\n{text}");
        }
        assert!(!drawn(&Screen::new(vec![figures(false)])).contains("per second"));
    }

    #[test]
    fn a_server_that_is_off_or_away_stands_out_and_the_others_stay() {
        let away = ServerFigures {
            server: "b:6070".to_owned(),
            problem: Some("Connection refused".to_owned()),
            ..ServerFigures::default()
        };
        let mut screen = Screen::new(vec![figures(true), away]);
        assert!(drawn(&screen).contains("EVERYTHING OFF"));
        screen.next_server(1);
        let text = drawn(&screen);
        assert!(text.contains("Connection refused") && text.contains("a:6070"), "{text}");
        screen.next_server(1);
        screen.scroll(5);
        screen.scroll(-9);
        assert!(drawn(&screen).contains("api user #daily"));
    }
}
