//! Whether problems point at places that exist.

use tidegate_rules::{Problem, Source};

/// Says which problem points outside of its source.
pub(super) fn exist(problems: &[Problem], sources: &[Source]) -> Result<(), String> {
    for problem in problems {
        if problem.message.is_empty() {
            return Err(format!("a problem says nothing: {problem:?}"));
        }
        place_exists(&problem.file, problem.line, problem.column, sources)
            .map_err(|error| format!("{error}: {problem}"))?;
        if let Some(related) = &problem.related {
            place_exists(&related.file, related.line, related.column, sources)
                .map_err(|error| format!("{error}, related: {problem}"))?;
        }
    }
    Ok(())
}

fn place_exists(file: &str, line: usize, column: usize, sources: &[Source]) -> Result<(), String> {
    // Sources may share a name: one that has the place is enough.
    let mut named = sources.iter().filter(|source| source.name == file).peekable();
    if named.peek().is_none() {
        return Err(format!("there is no source `{file}`"));
    }
    let found = named.any(|source| {
        let text = line.checked_sub(1).and_then(|line| source.text.split('\n').nth(line));
        // One past the end is where something is missing.
        text.is_some_and(|text| (1..=text.chars().count() + 1).contains(&column))
    });
    if found { Ok(()) } else { Err(format!("there is no {line}:{column} in `{file}`")) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places_are_within_the_text_or_right_after_it() {
        let sources = [Source::new("a", "one\ntwo")];
        for (line, column, exists) in
            [(1, 1, true), (2, 4, true), (2, 5, false), (3, 1, false), (0, 1, false), (1, 0, false)]
        {
            assert_eq!(
                place_exists("a", line, column, &sources).is_ok(),
                exists,
                "{line}:{column}"
            );
        }
        assert!(place_exists("b", 1, 1, &sources).is_err());
    }
}
