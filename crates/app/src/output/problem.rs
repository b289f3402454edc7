//! Problems in colour. Without colours this is the text of `Report`.

use std::io::{self, Write};

use tidegate_rules::{Problem, RelatedLocation, Severity};

use super::{Clean, StyledText, style};

/// Writes problems, separated by empty lines, and the number of omitted ones.
pub(crate) fn write_problems(
    out: &mut impl Write,
    problems: &[Problem],
    omitted: usize,
) -> io::Result<()> {
    for (at, problem) in problems.iter().enumerate() {
        if at > 0 {
            writeln!(out)?;
        }
        write_problem(out, problem)?;
    }
    if omitted > 0 {
        writeln!(out, "\nand {omitted} more")?;
    }
    Ok(())
}

fn write_problem(out: &mut impl Write, problem: &Problem) -> io::Result<()> {
    let Problem { file, line, column, severity, code, message, hint, snippet, related, .. } =
        problem;
    let (file, number) = (Clean(file), line.to_string());
    let gutter = " ".repeat(number.len());
    let color = match severity {
        Severity::Error => style::ERROR,
        Severity::Warning => style::WARNING,
    };
    let bar = StyledText(style::FAINT, "|");
    let title = StyledText(color, format!("{severity}[{code}]"));
    writeln!(out, "{title}: {}", StyledText(style::STRONG, Clean(message)))?;
    writeln!(out, "{gutter}{} {file}:{line}:{column}", StyledText(style::FAINT, "-->"))?;
    writeln!(out, "{gutter} {bar}")?;
    let text = snippet.text.trim_end();
    let space = if text.is_empty() { "" } else { " " };
    writeln!(out, "{} {bar}{space}{text}", StyledText(style::FAINT, number))?;
    let carets = "^".repeat(snippet.width);
    writeln!(out, "{gutter} {bar} {}{}", " ".repeat(snippet.indent), StyledText(color, carets))?;
    let equals = StyledText(style::FAINT, "=");
    if let Some(RelatedLocation { file, line, column, message }) = related {
        writeln!(out, "{gutter} {equals} {message}: {}:{line}:{column}", Clean(file))?;
    }
    if let Some(hint) = hint {
        writeln!(out, "{gutter} {equals} {} {}", StyledText(style::HELP, "hint:"), Clean(hint))?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use tidegate_rules::{Options, Source, compile};

    use super::*;

    #[test]
    fn without_colours_it_is_the_text_of_the_rule_language() {
        let broken = "domain: a\ndescriptors:\n  - key: user\n    rate_limit: {unit: sec}\n  \
                      - key: user\n    colour: red\n  - {}\n";
        let report = compile(&[Source::new("a.yaml", broken)], &Options::default()).unwrap_err();
        let mut written = Vec::new();
        write_problems(&mut written, report.problems(), report.omitted()).unwrap();
        let written = String::from_utf8(written).unwrap();
        assert_ne!(written, report.to_string());
        let plain = anstream::adapter::strip_str(&written).to_string();
        assert_eq!(plain, report.to_string());
    }
}
