//! Documents of one entry a line: words between blanks, comments after `#`.

use crate::problems::Location;

/// A word and its location.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LineWord<'t> {
    /// The word.
    pub text: &'t str,
    /// Its location.
    pub location: Location,
}

/// The words of each line of source `file` that has any.
pub fn words_of_lines(file: u32, text: &str) -> Vec<Vec<LineWord<'_>>> {
    let byte = |byte: usize| u32::try_from(byte).unwrap_or(u32::MAX);
    let mut lines = Vec::new();
    for line in text.lines() {
        let entry = line.split('#').next().unwrap_or_default();
        let word = |word| {
            let start = str::as_ptr(word).addr().saturating_sub(text.as_ptr().addr());
            let end = start.saturating_add(word.len());
            LineWord { text: word, location: Location { file, start: byte(start), end: byte(end) } }
        };
        let words: Vec<LineWord<'_>> = entry.split_whitespace().map(word).collect();
        if !words.is_empty() {
            lines.push(words);
        }
    }
    lines
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_word_has_its_location_and_comments_are_skipped() {
        let lines = words_of_lines(0, "# all\nab cd # x\n\n ef\n");
        let texts: Vec<Vec<&str>> =
            lines.iter().map(|line| line.iter().map(|word| word.text).collect()).collect();
        assert_eq!(texts, [vec!["ab", "cd"], vec!["ef"]]);
        assert_eq!(lines[0][1].location, Location { file: 0, start: 9, end: 11 });
        assert_eq!(lines[1][0].location, Location { file: 0, start: 18, end: 20 });
    }
}
