//! Checks that problems name locations that exist.

use tidegate_rules::{Problem, Source};

/// Returns an error for a problem whose location is outside of its source.
pub(super) fn check(problems: &[Problem], sources: &[Source]) -> Result<(), String> {
    for problem in problems {
        if problem.message.is_empty() {
            return Err(format!("a problem says nothing: {problem:?}"));
        }
        check_location(&problem.file, problem.line, problem.column, sources)
            .map_err(|error| format!("{error}: {problem}"))?;
        if let Some(related) = &problem.related {
            check_location(&related.file, related.line, related.column, sources)
                .map_err(|error| format!("{error}, related: {problem}"))?;
        }
    }
    Ok(())
}

fn check_location(
    file: &str,
    line: usize,
    column: usize,
    sources: &[Source],
) -> Result<(), String> {
    // Sources may share a name: one with the location is enough.
    let mut named = sources.iter().filter(|source| source.name == file).peekable();
    if named.peek().is_none() {
        return Err(format!("there is no source `{file}`"));
    }
    let found = named.any(|source| {
        let text = line.checked_sub(1).and_then(|line| source.text.split('\n').nth(line));
        // One past the end is the location of something missing.
        text.is_some_and(|text| (1..=text.chars().count() + 1).contains(&column))
    });
    if found { Ok(()) } else { Err(format!("there is no {line}:{column} in `{file}`")) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn locations_are_within_the_text_or_right_after_it() {
        let sources = [Source::new("a", "one\ntwo")];
        for (line, column, exists) in
            [(1, 1, true), (2, 4, true), (2, 5, false), (3, 1, false), (0, 1, false), (1, 0, false)]
        {
            assert_eq!(
                check_location("a", line, column, &sources).is_ok(),
                exists,
                "{line}:{column}"
            );
        }
        assert!(check_location("b", 1, 1, &sources).is_err());
    }
}
