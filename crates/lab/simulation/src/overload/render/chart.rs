//! Charts as SVG: a small panel for each contender, all on the same scales.
//!
//! Written by hand: a few lines and areas need no library. Colours are set by
//! style, with a second set for readers on a dark ground.

use std::fmt::Write;

use tidegate_overload::Category;

use super::super::record::Second;
use super::super::report::{Round, Standing};

/// What a chart shows over time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Chart {
    /// Answers in time, by category, in capacities.
    Goodput,
    /// Median and 99th percentile of critical latency.
    Latency,
    /// The share of each category that is admitted.
    Admitted,
}

const WIDTH: f64 = 250.0;
const HEIGHT: f64 = 120.0;
const COLUMNS: usize = 3;
const LEFT: f64 = 42.0;
const TOP: f64 = 44.0;
const GAP_X: f64 = 50.0;
const GAP_Y: f64 = 44.0;
/// Points along a panel: more cannot be seen.
const POINTS: usize = 200;
/// The latencies that fit into a panel, in milliseconds.
const LATENCY_MIN: f64 = 1.0;
const LATENCY_MAX: f64 = 100_000.0;

const STYLE: &str = "\
svg{font:11px system-ui,sans-serif;background:#fff}\
text{fill:#333}.title{font-weight:600;font-size:12px}.axis{fill:#777;font-size:9px}\
.frame{fill:none;stroke:#bbb}.grid{stroke:#ddd;stroke-width:.6}.mark{stroke:#888;stroke-dasharray:3 3}\
.line{fill:none;stroke-width:1.4}\
.test{fill:#b8b8b8;stroke:#8f8f8f}.get{fill:#7fb2e5;stroke:#3f83c4}\
.post{fill:#f2b661;stroke:#cf8417}.critical{fill:#d9534f;stroke:#b52b27}\
.median{fill:none;stroke:#3f83c4}.high{fill:none;stroke:#b52b27}.area{stroke:none}\
@media(prefers-color-scheme:dark){svg{background:#14171a}text{fill:#ddd}.axis{fill:#999}\
.frame{stroke:#555}.grid{stroke:#333}.mark{stroke:#999}\
.test{fill:#666;stroke:#9a9a9a}.get{fill:#2f6ea8;stroke:#6fb1ee}\
.post{fill:#a56d17;stroke:#f0b14f}.critical{fill:#b8423e;stroke:#ff7a75}\
.median{stroke:#6fb1ee}.high{stroke:#ff7a75}}";

impl Chart {
    /// All of them.
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
            Chart::Goodput => "Answers in time by category, in capacities",
            Chart::Latency => "Latency of critical requests, median and 99th percentile, ms",
            Chart::Admitted => "Admitted share of each category",
        }
    }

    /// The chart of a round.
    pub fn draw(self, round: &Round) -> String {
        let shown: Vec<&Standing> =
            round.standings.iter().filter(|standing| standing.tuned.is_none()).collect();
        let rows = shown.len().div_ceil(COLUMNS).max(1);
        let width = LEFT + COLUMNS as f64 * (WIDTH + GAP_X);
        let height = TOP + rows as f64 * (HEIGHT + GAP_Y);
        let mut svg = String::new();
        let title =
            format!("{} ({} {})", self.title(), round.scenario.number(), round.scenario.name());
        // Writing to a string cannot fail.
        _ = write!(
            svg,
            "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {width:.0} {height:.0}\" \
             role=\"img\"><title>{title}</title><style>{STYLE}</style>\
             <text class=\"title\" x=\"{LEFT}\" y=\"16\">{title}</text>"
        );
        self.legend(&mut svg, width);
        for (place, standing) in shown.iter().enumerate() {
            let x = LEFT + (place % COLUMNS) as f64 * (WIDTH + GAP_X);
            let y = TOP + (place / COLUMNS) as f64 * (HEIGHT + GAP_Y);
            _ = write!(svg, "<g transform=\"translate({x:.0} {y:.0})\">");
            self.panel(&mut svg, standing, round.capacity);
            svg.push_str("</g>");
        }
        svg.push_str("</svg>\n");
        svg
    }

    fn legend(self, svg: &mut String, width: f64) {
        let entries: Vec<(&str, &str)> = match self {
            Chart::Latency => vec![("median", "median"), ("high", "p99")],
            Chart::Goodput | Chart::Admitted => {
                Category::ALL.iter().rev().map(|of| (of.name(), of.name())).collect()
            }
        };
        for (place, (class, name)) in entries.iter().enumerate() {
            let x = width - GAP_X - 70.0 * (entries.len() - place) as f64;
            _ = write!(
                svg,
                "<path class=\"line {class}\" d=\"M{x:.0} 12h16\"/>\
                 <text x=\"{:.0}\" y=\"16\">{name}</text>",
                x + 20.0
            );
        }
    }

    fn panel(self, svg: &mut String, standing: &Standing, capacity: f64) {
        _ = write!(
            svg,
            "<text class=\"title\" x=\"0\" y=\"-6\">{}</text>\
             <rect class=\"frame\" width=\"{WIDTH}\" height=\"{HEIGHT}\"/>",
            standing.name()
        );
        let seconds = &standing.seconds;
        self.axes(svg, seconds.len());
        match self {
            Chart::Goodput => goodput(svg, seconds, capacity),
            Chart::Latency => latency(svg, seconds),
            Chart::Admitted => admitted(svg, seconds),
        }
    }

    fn axes(self, svg: &mut String, seconds: usize) {
        let labels: &[(f64, &str)] = match self {
            Chart::Goodput => &[(0.0, "0"), (0.5, "0.5"), (1.0, "1")],
            Chart::Admitted => &[(0.0, "0 %"), (0.5, "50 %"), (1.0, "100 %")],
            Chart::Latency => &[
                (0.0, "1"),
                (0.2, "10"),
                (0.4, "100"),
                (0.6, "1 s"),
                (0.8, "10 s"),
                (1.0, "100 s"),
            ],
        };
        let top = if self == Chart::Goodput { GOODPUT_MAX } else { 1.0 };
        for (value, label) in labels {
            let y = HEIGHT * (1.0 - value / top);
            _ = write!(
                svg,
                "<path class=\"grid\" d=\"M0 {y:.1}h{WIDTH}\"/>\
                 <text class=\"axis\" x=\"-4\" y=\"{:.1}\" text-anchor=\"end\">{label}</text>",
                y + 3.0
            );
        }
        for part in 0..=3 {
            let second = seconds * part / 3;
            let x = WIDTH * part as f64 / 3.0;
            _ = write!(
                svg,
                "<text class=\"axis\" x=\"{x:.0}\" y=\"{:.0}\" text-anchor=\"middle\">{second} s</text>",
                HEIGHT + 12.0
            );
        }
    }
}

/// What goodput fits into a panel, in capacities.
const GOODPUT_MAX: f64 = 1.2;

/// The seconds in as many groups as there are points.
fn groups(seconds: &[Second]) -> impl Iterator<Item = (f64, &[Second])> {
    let size = seconds.len().div_ceil(POINTS).max(1);
    let count = seconds.len().max(1) as f64;
    seconds.chunks(size).enumerate().map(move |(place, group)| {
        let middle = (place * size) as f64 + group.len() as f64 / 2.0;
        (WIDTH * middle / count, group)
    })
}

fn mean(group: &[Second], of: impl Fn(&Second) -> f64) -> f64 {
    group.iter().map(of).sum::<f64>() / group.len().max(1) as f64
}

fn path(points: &[(f64, f64)]) -> String {
    let mut path = String::new();
    for (place, (x, y)) in points.iter().enumerate() {
        let verb = if place == 0 { 'M' } else { 'L' };
        _ = write!(path, "{verb}{x:.1} {y:.1}");
    }
    path
}

/// Areas on top of one another, the critical one at the bottom where it can be read.
fn goodput(svg: &mut String, seconds: &[Second], capacity: f64) {
    let points: Vec<(f64, [f64; 4])> = groups(seconds)
        .map(|(x, group)| {
            let of = |rank: usize| mean(group, |second| f64::from(second.good[rank]));
            (x, std::array::from_fn(of))
        })
        .collect();
    let y = |rate: f64| HEIGHT * (1.0 - (rate / capacity / GOODPUT_MAX).min(1.0));
    for category in Category::ALL {
        // All from this one up: what lies above was drawn before and is covered.
        let height = |rates: &[f64; 4]| y(rates.iter().skip(category.rank()).sum());
        let mut line: Vec<(f64, f64)> =
            points.iter().map(|(x, rates)| (*x, height(rates))).collect();
        let (first, last) =
            (line.first().map_or(0.0, |at| at.0), line.last().map_or(0.0, |at| at.0));
        line.insert(0, (first, HEIGHT));
        line.push((last, HEIGHT));
        _ = write!(svg, "<path class=\"area {}\" d=\"{}Z\"/>", category.name(), path(&line));
    }
    _ = write!(svg, "<path class=\"mark\" d=\"M0 {:.1}h{WIDTH}\"/>", y(capacity));
}

fn latency(svg: &mut String, seconds: &[Second]) {
    let y = |nanos: f64| {
        let millis = (nanos / 1e6).clamp(LATENCY_MIN, LATENCY_MAX);
        HEIGHT * (1.0 - millis.log10() / LATENCY_MAX.log10())
    };
    for class in ["median", "high"] {
        let of = |second: &Second| match class {
            "median" => second.critical_p50 as f64,
            _ => second.critical_p99 as f64,
        };
        let points: Vec<(f64, f64)> = groups(seconds)
            .map(|(x, group)| (x, mean(group, of)))
            .filter(|(_, nanos)| *nanos > 0.0)
            .map(|(x, nanos)| (x, y(nanos)))
            .collect();
        _ = write!(svg, "<path class=\"line {class}\" d=\"{}\"/>", path(&points));
    }
}

fn admitted(svg: &mut String, seconds: &[Second]) {
    for category in Category::ALL {
        let rank = category.rank();
        let points: Vec<(f64, f64)> = groups(seconds)
            .filter_map(|(x, group)| {
                let offered = mean(group, |second| f64::from(second.offered[rank]));
                let admitted = mean(group, |second| f64::from(second.admitted[rank]));
                (offered > 0.0).then(|| (x, HEIGHT * (1.0 - (admitted / offered).min(1.0))))
            })
            .collect();
        let class = category.name();
        _ = write!(
            svg,
            "<path class=\"line {class}\" style=\"fill:none\" d=\"{}\"/>",
            path(&points)
        );
    }
}
