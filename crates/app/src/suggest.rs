//! "Did you mean": the nearest word, by edits.

/// Words longer than this are not compared: nobody mistyped them.
const WORD_CHARS_MAX: usize = 64;

/// The word nearest to `typed`, if one is near enough to be meant.
pub(crate) fn closest<'w>(
    typed: &str,
    words: impl IntoIterator<Item = &'w str>,
) -> Option<&'w str> {
    let typed = letters(typed)?;
    let near_enough = typed.len().div_ceil(3).clamp(1, 4);
    words
        .into_iter()
        .filter_map(|word| Some((edits(&typed, &letters(word)?), word)))
        .filter(|(edits, _)| *edits <= near_enough)
        .min_by_key(|(edits, _)| *edits)
        .map(|(_, word)| word)
}

/// "did you mean `x`?", or else what there is.
pub(crate) fn did_you_mean(typed: &str, words: &[&str], otherwise: &str) -> String {
    match closest(typed, words.iter().copied()) {
        Some(near) => format!("did you mean `{near}`?"),
        None => otherwise.to_owned(),
    }
}

fn letters(word: &str) -> Option<Vec<char>> {
    let letters: Vec<char> =
        word.chars().take(WORD_CHARS_MAX + 1).map(|letter| letter.to_ascii_lowercase()).collect();
    (letters.len() <= WORD_CHARS_MAX).then_some(letters)
}

/// Insertions, deletions and changes between two words.
fn edits(one: &[char], other: &[char]) -> usize {
    let mut above: Vec<usize> = (0..=other.len()).collect();
    for (row, left) in one.iter().enumerate() {
        let mut before = row + 1;
        let mut current = vec![before];
        for (right, pair) in other.iter().zip(above.windows(2)) {
            let [diagonal, up] = pair else { continue };
            let change = diagonal + usize::from(left != right);
            before = change.min(up + 1).min(before + 1);
            current.push(before);
        }
        above = current;
    }
    above.last().copied().unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn finds_the_word_that_was_mistyped() {
        assert_eq!(closest("usr", ["path", "user"]), Some("user"));
        assert_eq!(closest("WAIT", ["wait", "rules"]), Some("wait"));
        assert_eq!(closest("/logon", ["/login", "/logout"]), Some("/login"));
    }

    #[test]
    fn suggests_nothing_when_no_word_is_near() {
        assert_eq!(closest("colour", ["user", "path"]), None);
        assert_eq!(closest(&"u".repeat(1000), ["user"]), None);
        assert_eq!(closest("", ["user"]), None);
        let otherwise = did_you_mean("colour", &["user"], "there is only user");
        assert_eq!(otherwise, "there is only user");
    }

    #[test]
    fn counts_edits() {
        let edits = |one: &str, other: &str| {
            let letters = |word: &str| word.chars().collect::<Vec<_>>();
            super::edits(&letters(one), &letters(other))
        };
        assert_eq!(edits("kitten", "sitting"), 3);
        assert_eq!(edits("", "abc"), 3);
        assert_eq!(edits("abc", "abc"), 0);
    }
}
