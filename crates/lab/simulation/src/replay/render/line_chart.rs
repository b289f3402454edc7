//! Small line charts and bar charts as SVG.
//!
//! Colours come from classes, so that one style sheet serves light and dark backgrounds. Lines also differ by their dash
//! pattern, because colours alone do not reach everybody.

use std::fmt::Write;

use super::escape;

const WIDTH: f64 = 640.0;
const HEIGHT: f64 = 200.0;
const LEFT: f64 = 64.0;
const TOP: f64 = 44.0;
const BOTTOM: f64 = 40.0;
const RIGHT: f64 = 16.0;
/// The height of one bar with its gap.
const BAR: f64 = 22.0;
/// The part of a bar chart that names take.
const NAMES: f64 = 260.0;
/// The longest name beside a bar, in characters.
const NAME_CHARS_MAX: usize = 40;

/// The style sheet of all charts.
pub(crate) const STYLE: &str = "\
.chart{font:12px system-ui,sans-serif;max-width:100%;height:auto}\
.chart text{fill:#333}.chart .title{font-weight:600;font-size:14px}.chart .axis{fill:#666;font-size:11px}\
.chart .frame{fill:none;stroke:#bbb}.chart .grid{stroke:#e4e4e4}\
.chart .line{fill:none;stroke-width:1.8}.chart .new{stroke:#b52b27}.chart .old{stroke:#3f6fb5;stroke-dasharray:5 3}\
.chart .all{stroke:#999;stroke-dasharray:1 3}.chart .bar{fill:#3f6fb5}.chart .mark{stroke:#00695c;stroke-width:1.5}\
@media(prefers-color-scheme:dark){.chart text{fill:#ddd}.chart .axis{fill:#aaa}.chart .frame{stroke:#555}\
.chart .grid{stroke:#2c3136}.chart .new{stroke:#ff7a75}.chart .old{stroke:#7fb0ff}.chart .all{stroke:#888}\
.chart .bar{fill:#4f86d6}.chart .mark{stroke:#4dd0b5}}";

/// A line of a chart.
#[derive(Clone, Debug)]
pub struct ChartLine {
    /// `new`, `old` or `all`.
    pub class: &'static str,
    /// Its name in the legend.
    pub name: &'static str,
    /// Points from the left to the right.
    pub points: Vec<(f64, f64)>,
}

/// A chart of lines over a common axis.
#[derive(Clone, Debug)]
pub struct LineChart {
    /// Its heading.
    pub title: String,
    /// The unit of the horizontal axis.
    pub x_label: String,
    /// The unit of the vertical axis.
    pub y_label: String,
    /// Its lines.
    pub lines: Vec<ChartLine>,
    /// A vertical mark with its name.
    pub mark: Option<(f64, String)>,
}

impl LineChart {
    /// The chart as a file of its own, with its style sheet.
    pub fn document(&self) -> String {
        self.svg().replacen("<title>", &format!("<style>{STYLE}</style><title>"), 1)
    }

    /// The chart as part of a page that has the style sheet.
    pub(crate) fn svg(&self) -> String {
        let points = || self.lines.iter().flat_map(|line| &line.points);
        let x_max = points().map(|point| point.0).fold(f64::MIN_POSITIVE, f64::max);
        let x_min = points().map(|point| point.0).fold(x_max, f64::min);
        let y_max = points().map(|point| point.1).fold(f64::MIN_POSITIVE, f64::max);
        let mark = self.mark.as_ref().map(|(at, _)| *at);
        let x_max = mark.map_or(x_max, |at| x_max.max(at));
        let x_min = mark.map_or(x_min, |at| x_min.min(at));
        let span = (x_max - x_min).max(f64::MIN_POSITIVE);
        let x = |value: f64| LEFT + (value - x_min) / span * (WIDTH - LEFT - RIGHT);
        let y = |value: f64| TOP + (1.0 - value / y_max) * HEIGHT;
        let mut svg = self.open(TOP + HEIGHT + BOTTOM);
        for part in [0.0, 0.5, 1.0] {
            let (at, value) = (y(y_max * part), short(y_max * part));
            let _ = write!(
                svg,
                "<path class=\"grid\" d=\"M{LEFT:.0} {at:.1}H{:.0}\"/>\
                 <text class=\"axis\" x=\"{:.0}\" y=\"{:.1}\" text-anchor=\"end\">{value}</text>",
                WIDTH - RIGHT,
                LEFT - 6.0,
                at + 4.0
            );
        }
        for (value, anchor) in [(x_min, "start"), (x_max, "end")] {
            let _ = write!(
                svg,
                "<text class=\"axis\" x=\"{:.1}\" y=\"{:.0}\" text-anchor=\"{anchor}\">{}</text>",
                x(value),
                TOP + HEIGHT + 15.0,
                short(value)
            );
        }
        for line in &self.lines {
            let mut path = String::new();
            for (index, point) in line.points.iter().enumerate() {
                let verb = if index == 0 { 'M' } else { 'L' };
                let _ = write!(path, "{verb}{:.1} {:.1}", x(point.0), y(point.1));
            }
            let _ = write!(svg, "<path class=\"line {}\" d=\"{path}\"/>", line.class);
        }
        if let Some((at, name)) = &self.mark {
            let _ = write!(
                svg,
                "<path class=\"mark\" d=\"M{0:.1} {TOP:.0}v{HEIGHT:.0}\"/>\
                 <text class=\"axis\" x=\"{1:.1}\" y=\"{2:.0}\">{3}</text>",
                x(*at),
                x(*at) + 4.0,
                TOP + 12.0,
                escape(name)
            );
        }
        self.legend(&mut svg);
        svg.push_str("</svg>");
        svg
    }

    fn open(&self, height: f64) -> String {
        let title = escape(&self.title);
        format!(
            "<svg xmlns=\"http://www.w3.org/2000/svg\" class=\"chart\" \
             viewBox=\"0 0 {WIDTH:.0} {height:.0}\" role=\"img\"><title>{title}</title>\
             <text class=\"title\" x=\"8\" y=\"18\">{title}</text>\
             <rect class=\"frame\" x=\"{LEFT:.0}\" y=\"{TOP:.0}\" width=\"{:.0}\" height=\"{HEIGHT:.0}\"/>\
             <text class=\"axis\" x=\"{:.0}\" y=\"{:.0}\" text-anchor=\"middle\">{}</text>\
             <text class=\"axis\" x=\"{LEFT:.0}\" y=\"{:.0}\">{}</text>",
            WIDTH - LEFT - RIGHT,
            f64::midpoint(LEFT, WIDTH),
            TOP + HEIGHT + 32.0,
            escape(&self.x_label),
            TOP - 8.0,
            escape(&self.y_label),
        )
    }

    fn legend(&self, svg: &mut String) {
        let mut right = WIDTH - RIGHT;
        for line in self.lines.iter().rev() {
            let chars = u32::try_from(line.name.chars().count()).unwrap_or(0);
            let width = 34.0 + f64::from(chars) * 6.5;
            right -= width;
            let _ = write!(
                svg,
                "<path class=\"line {}\" d=\"M{right:.0} 32h22\"/>\
                 <text class=\"axis\" x=\"{:.0}\" y=\"36\">{}</text>",
                line.class,
                right + 26.0,
                escape(line.name)
            );
        }
    }
}

/// Horizontal bars with names.
pub(crate) fn bars(title: &str, rows: &[(String, f64)]) -> String {
    let count = u32::try_from(rows.len()).unwrap_or(0);
    let height = 36.0 + f64::from(count) * BAR;
    let most = rows.iter().map(|row| row.1).fold(f64::MIN_POSITIVE, f64::max);
    let title = escape(title);
    let mut svg = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" class=\"chart\" viewBox=\"0 0 {WIDTH:.0} \
         {height:.0}\" role=\"img\"><title>{title}</title>\
         <text class=\"title\" x=\"8\" y=\"18\">{title}</text>"
    );
    let mut top = 30.0;
    for (name, value) in rows {
        let width = value / most * (WIDTH - NAMES - 70.0);
        let cut: String = name.chars().take(NAME_CHARS_MAX).collect();
        let mark = if name.chars().count() > NAME_CHARS_MAX { "…" } else { "" };
        let _ = write!(
            svg,
            "<text class=\"axis\" x=\"{0:.0}\" y=\"{1:.0}\" text-anchor=\"end\">{2}{mark}</text>\
             <rect class=\"bar\" x=\"{NAMES:.0}\" y=\"{top:.0}\" width=\"{width:.1}\" height=\"16\"/>\
             <text class=\"axis\" x=\"{3:.1}\" y=\"{1:.0}\">{4}</text>",
            NAMES - 8.0,
            top + 12.0,
            escape(&cut),
            NAMES + width + 5.0,
            short(*value)
        );
        top += BAR;
    }
    svg.push_str("</svg>");
    svg
}

/// A number for an axis.
fn short(value: f64) -> String {
    match value {
        value if value >= 1e6 => format!("{:.1}M", value / 1e6),
        value if value >= 1e4 => format!("{:.0}k", value / 1e3),
        value if value.fract() == 0.0 || value >= 100.0 => format!("{value:.0}"),
        value => format!("{value:.1}"),
    }
}
