//! "Did you mean": the nearest word. A swap of neighbours counts as one edit, as an insertion, a deletion or a change does.

use strsim::osa_distance;

/// Longer words are not compared: they are not typing errors.
const WORD_CHARS_MAX: usize = 64;

/// The word nearest to `typed`, if one is near enough to be meant.
pub fn closest<'w>(typed: &str, words: impl IntoIterator<Item = &'w str>) -> Option<&'w str> {
    let typed = normal(typed)?;
    let near_enough = typed.chars().count().div_ceil(3).clamp(1, 4);
    words
        .into_iter()
        .filter_map(|word| Some((osa_distance(&typed, &normal(word)?), word)))
        .filter(|(edits, _)| *edits <= near_enough)
        .min_by_key(|(edits, _)| *edits)
        .map(|(_, word)| word)
}

/// The nearest word as a question, if one is near enough.
pub fn did_you_mean<'w>(typed: &str, words: impl IntoIterator<Item = &'w str>) -> Option<String> {
    closest(typed, words).map(|near| format!("did you mean `{near}`?"))
}

/// The words as part of a sentence: "`a`, `b` or `c`".
pub fn one_of(words: &[&str]) -> String {
    let quoted: Vec<String> = words.iter().map(|word| format!("`{word}`")).collect();
    match quoted.split_last() {
        Some((last, rest)) if !rest.is_empty() => format!("{} or {last}", rest.join(", ")),
        Some((last, _)) => last.clone(),
        None => String::new(),
    }
}

/// The word without the differences that do not count: case, and the kind of separator.
fn normal(word: &str) -> Option<String> {
    let is_short = word.chars().nth(WORD_CHARS_MAX).is_none();
    is_short.then(|| word.to_ascii_lowercase().replace(['-', ' '], "_"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn finds_the_word_that_was_mistyped() {
        let words = ["unit", "requests_per_unit", "unlimited"];
        assert_eq!(closest("request_per_unit", words), Some("requests_per_unit"));
        assert_eq!(closest("requests-per-unit", words), Some("requests_per_unit"));
        assert_eq!(closest("untis", words), Some("unit"));
        assert_eq!(closest("UNLIMITED", words), Some("unlimited"));
        assert_eq!(closest("usr", ["path", "user"]), Some("user"));
        assert_eq!(closest("WAIT", ["wait", "rules"]), Some("wait"));
        assert_eq!(closest("/logon", ["/login", "/logout"]), Some("/login"));
    }

    #[test]
    fn suggests_nothing_when_no_word_is_near() {
        assert_eq!(closest("colour", ["unit", "requests_per_unit"]), None);
        assert_eq!(closest(&"u".repeat(1000), ["unit"]), None);
        assert_eq!(closest("", ["unit"]), None);
        assert_eq!(closest("colour", ["user", "path"]), None);
        assert_eq!(did_you_mean("colour", ["user"]), None);
    }

    #[test]
    fn counts_a_swap_of_neighbours_as_one_edit() {
        assert_eq!(osa_distance("vlaue", "value"), 1);
        assert_eq!(osa_distance("", "abc"), 3);
        assert_eq!(osa_distance("kitten", "sitting"), 3);
    }

    #[test]
    fn lists_choices_as_a_sentence() {
        assert_eq!(one_of(&["a"]), "`a`");
        assert_eq!(one_of(&["a", "b", "c"]), "`a`, `b` or `c`");
    }
}
