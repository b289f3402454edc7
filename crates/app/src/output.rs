//! Output: colours, tables, problems.
//!
//! Commands always write colours; [`Output`] removes them where they are not wanted.

mod problem;
mod table;

use std::fmt;
use std::io::{self, Write};

use anstream::AutoStream;
use anstyle::Style;
use clap::ValueEnum;
use serde::Serialize;

pub(crate) use problem::write_problems;
pub(crate) use table::{Cell, Table};

/// When to use colours.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub(crate) enum ColorWhen {
    /// On a terminal, unless NO_COLOR is set.
    #[default]
    Auto,
    /// Always.
    Always,
    /// Never.
    Never,
}

/// The colours, by meaning.
pub(crate) mod style {
    use anstyle::{AnsiColor, Style};

    /// Plain text.
    pub(crate) const PLAIN: Style = Style::new();
    /// The most important text.
    pub(crate) const STRONG: Style = Style::new().bold();
    /// Text to skip.
    pub(crate) const FAINT: Style = Style::new().dimmed();
    /// Admitted, matched, no problems.
    pub(crate) const GOOD: Style = AnsiColor::Green.on_default().bold();
    /// Refused.
    pub(crate) const BAD: Style = AnsiColor::Red.on_default().bold();
    /// An error.
    pub(crate) const ERROR: Style = AnsiColor::Red.on_default().bold();
    /// A warning, or a decision without effect.
    pub(crate) const WARNING: Style = AnsiColor::Yellow.on_default().bold();
    /// Help.
    pub(crate) const HELP: Style = AnsiColor::Cyan.on_default().bold();
}

/// A text in a style.
#[derive(Clone, Copy, Debug)]
pub(crate) struct StyledText<T>(pub(crate) Style, pub(crate) T);

impl<T: fmt::Display> fmt::Display for StyledText<T> {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let StyledText(style, text) = self;
        write!(out, "{style}{text}{style:#}")
    }
}

/// Foreign text with control characters escaped: a rule file must not move the cursor or rename the window.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Clean<T>(pub(crate) T);

impl<T: fmt::Display> fmt::Display for Clean<T> {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let text = self.0.to_string();
        text.chars().try_for_each(|letter| match letter {
            letter if letter.is_control() => write!(out, "{}", letter.escape_default()),
            letter => fmt::Write::write_char(out, letter),
        })
    }
}

/// Writes a value as a JSON document, its fields in the order of the type.
pub(crate) fn write_json(out: &mut impl Write, value: &impl Serialize) -> io::Result<()> {
    serde_json::to_writer_pretty(&mut *out, value)?;
    writeln!(out)
}

/// Standard output or standard error.
///
/// When the reader closes the pipe (`| head`), the rest is discarded, and the command ends with its usual exit code.
pub(crate) struct Output {
    stream: Box<dyn Write>,
    closed: bool,
}

impl Output {
    pub(crate) fn stdout(color: ColorWhen) -> Self {
        Self::of(Box::new(AutoStream::new(io::stdout().lock(), color.into())))
    }

    pub(crate) fn stderr(color: ColorWhen) -> Self {
        Self::of(Box::new(AutoStream::new(io::stderr().lock(), color.into())))
    }

    fn of(stream: Box<dyn Write>) -> Self {
        Output { stream, closed: false }
    }

    /// Whether the reader has closed the pipe.
    pub(crate) const fn is_closed(&self) -> bool {
        self.closed
    }

    fn unless_closed<T>(
        &mut self,
        instead: T,
        work: impl FnOnce(&mut dyn Write) -> io::Result<T>,
    ) -> io::Result<T> {
        if self.closed {
            return Ok(instead);
        }
        match work(&mut *self.stream) {
            Err(error) if error.kind() == io::ErrorKind::BrokenPipe => {
                self.closed = true;
                Ok(instead)
            }
            other => other,
        }
    }
}

impl Write for Output {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.unless_closed(bytes.len(), |stream| stream.write(bytes))
    }

    fn flush(&mut self) -> io::Result<()> {
        self.unless_closed((), |stream| stream.flush())
    }
}

impl From<ColorWhen> for anstream::ColorChoice {
    fn from(when: ColorWhen) -> Self {
        match when {
            ColorWhen::Auto => anstream::ColorChoice::Auto,
            ColorWhen::Always => anstream::ColorChoice::Always,
            ColorWhen::Never => anstream::ColorChoice::Never,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A reader that closes the pipe after some lines.
    struct ClosingReader {
        lines: usize,
    }

    impl Write for ClosingReader {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            if self.lines == 0 {
                return Err(io::ErrorKind::BrokenPipe.into());
            }
            self.lines -= 1;
            Ok(bytes.len())
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn a_reader_that_closes_the_pipe_is_not_an_error() {
        let mut out = Output::of(Box::new(ClosingReader { lines: 1 }));
        out.write_all(b"one\n").unwrap();
        assert!(!out.is_closed());
        out.write_all(b"two\n").unwrap();
        assert!(out.is_closed());
        out.write_all(b"three\n").unwrap();
        out.flush().unwrap();
    }

    #[test]
    fn control_characters_of_foreign_text_are_escaped() {
        let hostile = "a\u{1b}[2Jb\nc é";
        assert_eq!(Clean(hostile).to_string(), r"a\u{1b}[2Jb\nc é");
    }

    #[test]
    fn other_write_errors_are_returned() {
        struct Full;
        impl Write for Full {
            fn write(&mut self, _: &[u8]) -> io::Result<usize> {
                Err(io::ErrorKind::StorageFull.into())
            }
            fn flush(&mut self) -> io::Result<()> {
                Ok(())
            }
        }
        let mut out = Output::of(Box::new(Full));
        let error = out.write_all(b"one\n").unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::StorageFull);
    }
}
