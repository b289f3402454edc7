//! A progress bar on standard error: redrawn in place on a terminal, a line now and then elsewhere.

use std::io::{self, IsTerminal, Write};
use std::time::Duration;

use tokio::time::Instant;

/// The letters of the bar.
const WIDTH: usize = 30;
/// How often it is redrawn on a terminal.
const REDRAW: Duration = Duration::from_millis(100);
/// How often a line is written elsewhere, such as in the log of a job.
const LINE: Duration = Duration::from_secs(10);

/// A progress bar.
#[derive(Debug)]
pub(crate) struct ProgressBar {
    on_terminal: bool,
    /// Whether it is drawn at all.
    quiet: bool,
    drawn: Option<Instant>,
    length: usize,
}

impl ProgressBar {
    pub(crate) fn new(quiet: bool) -> Self {
        ProgressBar { on_terminal: io::stderr().is_terminal(), quiet, drawn: None, length: 0 }
    }

    /// Draws it, unless that was done a moment ago.
    pub(crate) fn draw(&mut self, part: Option<f64>, text: &str) {
        let pause = if self.on_terminal { REDRAW } else { LINE };
        let now = Instant::now();
        let first = *self.drawn.get_or_insert(now);
        // The first line elsewhere comes after the pause: most runs are shorter.
        let is_due =
            if first == now { self.on_terminal } else { now.duration_since(first) >= pause };
        if is_due {
            self.drawn = Some(now);
            self.draw_now(part, text);
        }
    }

    /// Draws it for the last time.
    pub(crate) fn finish(&mut self, part: Option<f64>, text: &str) {
        if self.on_terminal {
            self.draw_now(part, text);
            self.write("\n");
        } else {
            self.draw_now(part, text);
        }
        self.drawn = None;
        self.length = 0;
    }

    fn draw_now(&mut self, part: Option<f64>, text: &str) {
        let bar = part.map(|part| format!("[{}] ", bar(part))).unwrap_or_default();
        if !self.on_terminal {
            return self.write(&format!("{bar}{text}\n"));
        }
        let line = format!("{bar}{text}");
        let length = line.chars().count();
        let blank = " ".repeat(self.length.saturating_sub(length));
        self.length = length;
        self.write(&format!("\r{line}{blank}"));
    }

    fn write(&self, text: &str) {
        if self.quiet {
            return;
        }
        // A closed standard error must not end an import.
        let mut out = io::stderr().lock();
        let _ = out.write_all(text.as_bytes()).and_then(|()| out.flush());
    }
}

/// The bar for a part of one.
fn bar(part: f64) -> String {
    #[expect(clippy::cast_precision_loss, reason = "a few letters")]
    let letters = (part.clamp(0.0, 1.0) * WIDTH as f64).round();
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "within the width")]
    let filled = (letters as usize).min(WIDTH);
    format!("{}{}", "#".repeat(filled), "-".repeat(WIDTH - filled))
}

/// A part of a whole; all of it if the whole is nothing.
pub(crate) fn part(done: u64, all: u64) -> f64 {
    if all == 0 {
        return 1.0;
    }
    #[expect(clippy::cast_precision_loss, reason = "a part for people")]
    let part = done as f64 / all as f64;
    part
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bar_is_filled_by_parts() {
        assert_eq!(bar(0.0), "-".repeat(30));
        assert_eq!(bar(0.5), format!("{}{}", "#".repeat(15), "-".repeat(15)));
        assert_eq!(
            (bar(1.0), bar(7.0), bar(-1.0)),
            ("#".repeat(30), "#".repeat(30), "-".repeat(30))
        );
        assert!((part(1, 4) - 0.25).abs() < 1e-9 && (part(0, 0) - 1.0).abs() < 1e-9);
    }
}
