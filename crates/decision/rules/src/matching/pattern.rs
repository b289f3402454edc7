//! Values with `*` in them.
//!
//! `*` stands for zero or more characters. The text before the first and after the last `*` is anchored; each piece between
//! matches at its leftmost occurrence. Of several patterns that match, the one declared first wins. The index finds the
//! candidates by the literal text at their start or end, and skips only patterns that cannot match.

use foldhash::fast::FixedState;
use hashbrown::HashMap;

/// Up to this many patterns are tried one after another, without an index.
const UNINDEXED_MAX: usize = 8;

/// One pattern, cut at its stars.
#[derive(Debug)]
pub(crate) struct Pattern {
    prefix: Box<str>,
    middle: Box<[Box<str>]>,
    suffix: Box<str>,
}

impl Pattern {
    /// Cuts a text at its stars. A text without one matches values that start with it.
    pub(crate) fn new(text: &str) -> Self {
        let (prefix, rest) = text.split_once('*').unwrap_or((text, ""));
        let (middle, suffix) = rest.rsplit_once('*').unwrap_or(("", rest));
        Pattern {
            prefix: prefix.into(),
            middle: middle.split('*').filter(|piece| !piece.is_empty()).map(Into::into).collect(),
            suffix: suffix.into(),
        }
    }

    pub(crate) fn matches(&self, value: &str) -> bool {
        let inside =
            value.strip_prefix(&*self.prefix).and_then(|rest| rest.strip_suffix(&*self.suffix));
        let Some(mut rest) = inside else {
            return false;
        };
        for piece in &self.middle {
            match rest.split_once(&**piece) {
                Some((_, after)) => rest = after,
                None => return false,
            }
        }
        true
    }
}

/// The patterns of one key at one node, in the order of declaration.
#[derive(Debug)]
pub(crate) struct PatternSet<T> {
    patterns: Vec<(Pattern, T)>,
    index: Option<Index>,
}

/// Patterns by the literal text at one of their ends.
#[derive(Debug, Default)]
struct Index {
    by_prefix: Ends,
    by_suffix: Ends,
    /// Patterns that start and end with a star.
    anywhere: Vec<usize>,
}

/// Patterns by literal text, and the lengths of text that occur.
#[derive(Debug, Default)]
struct Ends {
    lengths: Vec<usize>,
    table: HashMap<Box<[u8]>, Vec<usize>, FixedState>,
}

impl Ends {
    fn add(&mut self, text: &str, pattern: usize) {
        if let Err(at) = self.lengths.binary_search(&text.len()) {
            self.lengths.insert(at, text.len());
        }
        let key = text.as_bytes().into();
        self.table.entry(key).or_default().push(pattern);
    }
}

impl<T: Copy> PatternSet<T> {
    pub(crate) fn new(patterns: Vec<(Pattern, T)>) -> Self {
        let index = (patterns.len() > UNINDEXED_MAX).then(|| {
            let mut index = Index::default();
            for (at, (pattern, _)) in patterns.iter().enumerate() {
                if !pattern.prefix.is_empty() {
                    index.by_prefix.add(&pattern.prefix, at);
                } else if !pattern.suffix.is_empty() {
                    index.by_suffix.add(&pattern.suffix, at);
                } else {
                    index.anywhere.push(at);
                }
            }
            index
        });
        PatternSet { patterns, index }
    }

    /// The first declared pattern that matches.
    pub(crate) fn find(&self, value: &str) -> Option<&T> {
        let Some(index) = &self.index else {
            let mut patterns = self.patterns.iter();
            return patterns.find(|(pattern, _)| pattern.matches(value)).map(|(_, target)| target);
        };
        let bytes = value.as_bytes();
        let mut first = usize::MAX;
        for length in &index.by_prefix.lengths {
            let Some(end) = bytes.get(..*length) else {
                break;
            };
            self.try_all(index.by_prefix.table.get(end), value, &mut first);
        }
        for length in &index.by_suffix.lengths {
            let Some(start) = bytes.len().checked_sub(*length) else {
                break;
            };
            self.try_all(index.by_suffix.table.get(&bytes[start..]), value, &mut first);
        }
        self.try_all(Some(&index.anywhere), value, &mut first);
        self.patterns.get(first).map(|(_, target)| target)
    }

    /// Lowers `first` to the first of these patterns that matches, if it is lower.
    fn try_all(&self, candidates: Option<&Vec<usize>>, value: &str, first: &mut usize) {
        for candidate in candidates.into_iter().flatten() {
            // Candidates are in the order of declaration.
            if candidate >= first {
                return;
            }
            if self.patterns[*candidate].0.matches(value) {
                *first = *candidate;
                return;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn matches(pattern: &str, value: &str) -> bool {
        Pattern::new(pattern).matches(value)
    }

    #[test]
    fn a_star_stands_for_zero_or_more_characters() {
        assert!(matches("foo*", "foo"));
        assert!(matches("foo*", "foobar"));
        assert!(!matches("foo*", "fo"));
        assert!(matches("*", ""));
        assert!(matches("**", "anything"));
    }

    #[test]
    fn the_ends_are_anchored_and_do_not_overlap() {
        assert!(matches("a*a", "aa"));
        assert!(!matches("a*a", "a"));
        assert!(matches("/v1/*/items", "/v1/7/items"));
        assert!(!matches("/v1/*/items", "/v1/items"));
        assert!(!matches("*bar", "barx"));
    }

    #[test]
    fn pieces_between_stars_come_in_order() {
        assert!(matches("*a*b*", "xaybz"));
        assert!(!matches("*a*b*", "xbya"));
        assert!(matches("x*é*z", "xüéz"));
        assert!(!matches("*ab*", "ba"));
    }

    #[test]
    fn case_matters() {
        assert!(!matches("Foo*", "foobar"));
    }

    /// Tries every length for every star.
    fn naive(pattern: &[char], value: &[char]) -> bool {
        match pattern.split_first() {
            None => value.is_empty(),
            Some(('*', rest)) => (0..=value.len()).any(|skip| naive(rest, &value[skip..])),
            Some((char, rest)) => value.first() == Some(char) && naive(rest, &value[1..]),
        }
    }

    proptest! {
        #[test]
        fn matches_as_trying_every_way_does(pattern in "[ab*]{0,4}\\*[ab*]{0,4}", value in "[ab]{0,8}") {
            let chars = |text: &str| text.chars().collect::<Vec<_>>();
            prop_assert_eq!(matches(&pattern, &value), naive(&chars(&pattern), &chars(&value)));
        }

        #[test]
        fn an_index_finds_what_a_scan_finds(
            patterns in proptest::collection::vec("[ab]{0,3}\\*[ab]{0,3}", 9..40),
            value in "[ab]{0,8}",
        ) {
            let make = |text: &String| Pattern::new(text);
            let set = PatternSet::new(patterns.iter().map(make).zip(0..).collect());
            let scanned = patterns.iter().position(|text| make(text).matches(&value));
            prop_assert_eq!(set.find(&value).copied(), scanned);
        }
    }
}
