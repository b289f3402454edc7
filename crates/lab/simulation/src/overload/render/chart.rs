//! Charts as SVG: a small panel for each contender, all on the same scales.
//!
//! A sentence above each panel describes the contender. Tidegate's panel has a thick frame, and
//! every panel repeats Tidegate's line for critical requests as the reference. Other contenders
//! are drawn in muted colours. The overload is shaded.
//!
//! A style sheet sets the colours, with a second set for dark backgrounds.

use std::fmt::Write;

use tidegate_overload::Category;

use super::super::contender::Contender;
use super::super::record::Second;
use super::super::report::{ContenderResult, Round};
use super::number;

/// A chart over time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Chart {
    /// Answers in time, by category, in percent of capacity.
    Goodput,
    /// Median and 99th percentile of critical latency.
    Latency,
    /// The admitted share of each category.
    Admitted,
}

const WIDTH: f64 = 196.0;
const HEIGHT: f64 = 104.0;
const COLUMNS: usize = 4;
const LEFT: f64 = 62.0;
const TOP: f64 = 122.0;
const BOTTOM: f64 = 26.0;
const GAP_X: f64 = 24.0;
const GAP_Y: f64 = 70.0;
/// The width of a legend entry.
const LEGEND_STEP: f64 = 92.0;
/// The points of a line; more would not be visible.
const POINTS: usize = 200;
/// The range of latencies in a panel, in milliseconds.
const LATENCY_MIN: f64 = 1.0;
const LATENCY_MAX: f64 = 100_000.0;
/// The top of a goodput panel, in capacities.
const GOODPUT_MAX: f64 = 1.2;

const STYLE: &str = "\
svg{font:11px system-ui,sans-serif;background:#fff}\
text{fill:#333}.heading{font-weight:600;font-size:15px}.note{fill:#555;font-size:12px}\
.name{font-size:12px}.ours .name{font-weight:700;fill:#00695c}.axis{fill:#666;font-size:10px}\
.frame{fill:none;stroke:#bbb}.ours .frame{stroke:#00695c;stroke-width:2.5}\
.overload{fill:#fdf0d5;stroke:none}.grid{stroke:#ddd;stroke-width:.6}\
.capacity{fill:none;stroke:#777;stroke-dasharray:3 3}\
.line{fill:none;stroke-width:1.3}.reference{fill:none;stroke:#00695c;stroke-width:2.6}\
.others .data{opacity:.6}.area{stroke:none}\
.test{fill:#b8b8b8;stroke:#8f8f8f}.get{fill:#7fb2e5;stroke:#3f83c4}\
.post{fill:#f2b661;stroke:#cf8417}.critical{fill:#d9534f;stroke:#b52b27}\
.median{fill:none;stroke:#3f83c4}.high{fill:none;stroke:#b52b27}\
@media(prefers-color-scheme:dark){svg{background:#14171a}text{fill:#ddd}.note{fill:#aaa}\
.ours .name{fill:#4dd0b5}.axis{fill:#999}.frame{stroke:#555}.ours .frame{stroke:#4dd0b5}\
.overload{fill:#33291a}.grid{stroke:#333}.capacity{stroke:#999}.reference{stroke:#4dd0b5}\
.test{fill:#666;stroke:#9a9a9a}.get{fill:#2f6ea8;stroke:#6fb1ee}\
.post{fill:#a56d17;stroke:#f0b14f}.critical{fill:#b8423e;stroke:#ff7a75}\
.median{stroke:#6fb1ee}.high{stroke:#ff7a75}}";

impl Chart {
    /// All charts.
    pub const ALL: [Chart; 3] = [Chart::Goodput, Chart::Latency, Chart::Admitted];

    /// The name in a file's name.
    pub const fn name(self) -> &'static str {
        match self {
            Chart::Goodput => "goodput",
            Chart::Latency => "latency",
            Chart::Admitted => "admitted",
        }
    }

    const fn title(self) -> &'static str {
        match self {
            Chart::Goodput => "Requests answered in time, by category and load shedder",
            Chart::Latency => "Latency of critical requests, by load shedder",
            Chart::Admitted => "Admitted share of each category, by load shedder",
        }
    }

    const fn unit(self) -> &'static str {
        match self {
            Chart::Goodput => "% of capacity",
            Chart::Latency => "milliseconds",
            Chart::Admitted => "% admitted",
        }
    }

    const fn reference_name(self) -> &'static str {
        match self {
            Chart::Goodput | Chart::Admitted => "critical requests with Tidegate",
            Chart::Latency => "p99 with Tidegate",
        }
    }

    /// The chart of a round.
    pub fn draw(self, round: &Round) -> String {
        let shown: Vec<&ContenderResult> =
            round.standings.iter().filter(|standing| standing.tuned.is_none()).collect();
        let rows = shown.len().div_ceil(COLUMNS).max(1);
        let width = LEFT + COLUMNS as f64 * (WIDTH + GAP_X);
        let height = TOP + rows as f64 * (HEIGHT + GAP_Y) + BOTTOM - GAP_Y;
        let title = self.title();
        let note = format!(
            "Simulation “{}”. Shaded: more arrives than the server can serve, up to {} times its \
             capacity.",
            round.scenario.name(),
            number((round.peak_load * 10.0).round() / 10.0)
        );
        let mut svg = String::new();
        // Writing to a string cannot fail.
        _ = write!(
            svg,
            "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {width:.0} {height:.0}\" \
             role=\"img\"><title>{title}. {note}</title><style>{STYLE}</style>\
             <text class=\"heading\" x=\"16\" y=\"22\">{title}</text>\
             <text class=\"note\" x=\"16\" y=\"40\">{note}</text>"
        );
        self.legend(&mut svg);
        let reference = round.of(Contender::Tidegate).map(|ours| self.reference(ours, round));
        for (index, standing) in shown.iter().enumerate() {
            let (row, column) = (index / COLUMNS, index % COLUMNS);
            let x = LEFT + column as f64 * (WIDTH + GAP_X);
            let y = TOP + row as f64 * (HEIGHT + GAP_Y);
            let class = if standing.contender == Contender::Tidegate { "ours" } else { "others" };
            _ = write!(svg, "<g class=\"{class}\" transform=\"translate({x:.0} {y:.0})\">");
            self.panel(&mut svg, standing, round, reference.as_deref());
            if column == 0 {
                self.value_axis(&mut svg);
            }
            svg.push_str("</g>");
        }
        svg.push_str("</svg>\n");
        svg
    }

    fn legend(self, svg: &mut String) {
        let entries: Vec<(&str, &str)> = match self {
            Chart::Latency => vec![("line median", "median"), ("line high", "p99")],
            Chart::Goodput => vec![
                ("area critical", "critical"),
                ("area post", "POST"),
                ("area get", "GET"),
                ("area test", "test"),
            ],
            Chart::Admitted => vec![
                ("line critical", "critical"),
                ("line post", "POST"),
                ("line get", "GET"),
                ("line test", "test"),
            ],
        };
        let mut entries = entries;
        entries.push(("overload", "overload"));
        if self == Chart::Goodput {
            entries.push(("capacity", "capacity"));
        }
        entries.push(("reference", self.reference_name()));
        for (index, (class, name)) in entries.iter().enumerate() {
            let x = 16.0 + LEGEND_STEP * index as f64;
            let shape = if class.starts_with("area") || *class == "overload" {
                format!("M{x:.0} 54h18v10h-18Z")
            } else {
                format!("M{x:.0} 59h18")
            };
            // Lines of a category must not be filled: its class sets a fill for areas.
            let fill = if class.starts_with("line") { " style=\"fill:none\"" } else { "" };
            _ = write!(
                svg,
                "<path class=\"{class}\"{fill} d=\"{shape}\"/>\
                 <text class=\"note\" x=\"{:.0}\" y=\"63\">{name}</text>",
                x + 23.0
            );
        }
    }

    fn panel(
        self,
        svg: &mut String,
        standing: &ContenderResult,
        round: &Round,
        reference: Option<&str>,
    ) {
        let seconds = &standing.seconds;
        let [first, second] = standing.contender.about();
        _ = write!(
            svg,
            "<text class=\"name\" x=\"0\" y=\"-32\">{}</text>\
             <text class=\"axis\" x=\"0\" y=\"-19\">{first}</text>\
             <text class=\"axis\" x=\"0\" y=\"-7\">{second}</text>",
            standing.contender.title()
        );
        let length = seconds.len().max(1) as f64;
        for span in &round.overload {
            let x = WIDTH * span.start as f64 / length;
            let width = WIDTH * span.len() as f64 / length;
            _ = write!(
                svg,
                "<rect class=\"overload\" x=\"{x:.1}\" width=\"{width:.1}\" height=\"{HEIGHT}\"/>"
            );
        }
        self.grid(svg);
        let reference = reference.map(|path| format!("<path class=\"reference\" d=\"{path}\"/>"));
        let reference = reference.unwrap_or_default();
        // Areas would cover the reference, and the reference would cover lines.
        let below = self != Chart::Goodput;
        if below {
            svg.push_str(&reference);
        }
        svg.push_str("<g class=\"data\">");
        match self {
            Chart::Goodput => goodput(svg, seconds, round.capacity),
            Chart::Latency => latency(svg, seconds),
            Chart::Admitted => admitted(svg, seconds),
        }
        svg.push_str("</g>");
        if !below {
            svg.push_str(&reference);
        }
        _ = write!(svg, "<rect class=\"frame\" width=\"{WIDTH}\" height=\"{HEIGHT}\"/>");
        time_axis(svg, seconds.len());
    }

    /// The path of the reference line.
    fn reference(self, ours: &ContenderResult, round: &Round) -> String {
        let seconds = &ours.seconds;
        let rank = Category::Critical.rank();
        match self {
            Chart::Goodput => path(&good_points(seconds, round.capacity, rank)),
            Chart::Latency => path(&latency_points(seconds, |second| second.critical_p99)),
            Chart::Admitted => path(&admitted_points(seconds, rank)),
        }
    }

    /// Positions of the horizontal grid lines, as parts of the height, with their labels.
    const fn ticks(self) -> &'static [(f64, &'static str)] {
        match self {
            Chart::Goodput => &[(0.0, "0"), (0.5 / GOODPUT_MAX, "50"), (1.0 / GOODPUT_MAX, "100")],
            Chart::Admitted => &[(0.0, "0"), (0.5, "50"), (1.0, "100")],
            Chart::Latency => &[
                (0.0, "1"),
                (0.2, "10"),
                (0.4, "100"),
                (0.6, "1000"),
                (0.8, "10000"),
                (1.0, "100000"),
            ],
        }
    }

    fn grid(self, svg: &mut String) {
        for (part, _) in self.ticks() {
            _ = write!(svg, "<path class=\"grid\" d=\"M0 {:.1}h{WIDTH}\"/>", HEIGHT * (1.0 - part));
        }
    }

    fn value_axis(self, svg: &mut String) {
        for (part, label) in self.ticks() {
            _ = write!(
                svg,
                "<text class=\"axis\" x=\"-5\" y=\"{:.1}\" text-anchor=\"end\">{label}</text>",
                HEIGHT * (1.0 - part) + 3.5
            );
        }
        _ = write!(
            svg,
            "<text class=\"axis\" transform=\"translate(-46 {:.0}) rotate(-90)\" \
             text-anchor=\"middle\">{}</text>",
            HEIGHT / 2.0,
            self.unit()
        );
    }
}

fn time_axis(svg: &mut String, seconds: usize) {
    for part in 0..=3 {
        let second = seconds * part / 3;
        let unit = if part == 3 { " s" } else { "" };
        let anchor = match part {
            0 => "start",
            3 => "end",
            _ => "middle",
        };
        _ = write!(
            svg,
            "<text class=\"axis\" x=\"{:.0}\" y=\"{:.0}\" text-anchor=\"{anchor}\">\
             {second}{unit}</text>",
            WIDTH * part as f64 / 3.0,
            HEIGHT + 13.0
        );
    }
}

/// The seconds in groups, one for each point.
fn groups(seconds: &[Second]) -> impl Iterator<Item = (f64, &[Second])> {
    let size = seconds.len().div_ceil(POINTS).max(1);
    let count = seconds.len().max(1) as f64;
    seconds.chunks(size).enumerate().map(move |(index, group)| {
        let middle = (index * size) as f64 + group.len() as f64 / 2.0;
        (WIDTH * middle / count, group)
    })
}

fn mean(group: &[Second], of: impl Fn(&Second) -> f64) -> f64 {
    group.iter().map(of).sum::<f64>() / group.len().max(1) as f64
}

fn path(points: &[(f64, f64)]) -> String {
    let mut path = String::new();
    for (index, (x, y)) in points.iter().enumerate() {
        let verb = if index == 0 { 'M' } else { 'L' };
        _ = write!(path, "{verb}{x:.1} {y:.1}");
    }
    path
}

/// The goodput of the categories from a rank up.
fn good_points(seconds: &[Second], capacity: f64, rank: usize) -> Vec<(f64, f64)> {
    let points = groups(seconds).map(|(x, group)| {
        let good = |second: &Second| second.good.iter().skip(rank).map(|n| f64::from(*n)).sum();
        let part = mean(group, good) / capacity / GOODPUT_MAX;
        (x, HEIGHT * (1.0 - part.min(1.0)))
    });
    points.collect()
}

/// Stacked areas, critical requests at the bottom where their height can be read.
fn goodput(svg: &mut String, seconds: &[Second], capacity: f64) {
    for category in Category::ALL {
        // Each area covers the lower part of the one before it.
        let mut points = good_points(seconds, capacity, category.rank());
        let (first, last) =
            (points.first().map_or(0.0, |at| at.0), points.last().map_or(0.0, |at| at.0));
        points.insert(0, (first, HEIGHT));
        points.push((last, HEIGHT));
        _ = write!(svg, "<path class=\"area {}\" d=\"{}Z\"/>", category.name(), path(&points));
    }
    let full = HEIGHT * (1.0 - 1.0 / GOODPUT_MAX);
    _ = write!(svg, "<path class=\"capacity\" d=\"M0 {full:.1}h{WIDTH}\"/>");
}

fn latency_points(seconds: &[Second], of: impl Fn(&Second) -> u64) -> Vec<(f64, f64)> {
    let y = |nanos: f64| {
        let millis = (nanos / 1e6).clamp(LATENCY_MIN, LATENCY_MAX);
        HEIGHT * (1.0 - millis.log10() / LATENCY_MAX.log10())
    };
    groups(seconds)
        .map(|(x, group)| (x, mean(group, |second| of(second) as f64)))
        .filter(|(_, nanos)| *nanos > 0.0)
        .map(|(x, nanos)| (x, y(nanos)))
        .collect()
}

fn latency(svg: &mut String, seconds: &[Second]) {
    let lines = [
        ("median", latency_points(seconds, |second| second.critical_p50)),
        ("high", latency_points(seconds, |second| second.critical_p99)),
    ];
    for (class, points) in lines {
        _ = write!(svg, "<path class=\"line {class}\" d=\"{}\"/>", path(&points));
    }
}

fn admitted_points(seconds: &[Second], rank: usize) -> Vec<(f64, f64)> {
    let points = groups(seconds).filter_map(|(x, group)| {
        let offered = mean(group, |second| f64::from(second.offered[rank]));
        let admitted = mean(group, |second| f64::from(second.admitted[rank]));
        (offered > 0.0).then(|| (x, HEIGHT * (1.0 - (admitted / offered).min(1.0))))
    });
    points.collect()
}

fn admitted(svg: &mut String, seconds: &[Second]) {
    for category in Category::ALL {
        _ = write!(
            svg,
            "<path class=\"line {}\" style=\"fill:none\" d=\"{}\"/>",
            category.name(),
            path(&admitted_points(seconds, category.rank()))
        );
    }
}
