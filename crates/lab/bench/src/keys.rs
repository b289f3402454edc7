//! Keys, and the order in which they are used.
//!
//! Everything is drawn ahead of time from a fixed seed and then read in order,
//! so that making a key costs the same few nanoseconds for every contestant
//! and every run uses the same keys.

use std::fmt::Write;

/// The length of an ordinary key.
pub(crate) const KEY_BYTES: usize = 16;

/// Spreads numbers over all 64 bits; no two numbers become the same one.
const fn mix(number: u64) -> u64 {
    let mut bits = number.wrapping_add(0x9E37_79B9_7F4A_7C15);
    bits = (bits ^ (bits >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    bits = (bits ^ (bits >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    bits ^ (bits >> 31)
}

/// A string that is filled again for each request, so that nothing is allocated.
#[derive(Debug, Default)]
pub(crate) struct KeyBuffer(String);

impl KeyBuffer {
    /// Copies a key in.
    #[inline]
    pub(crate) fn fill(&mut self, key: &str) {
        self.0.clear();
        self.0.push_str(key);
    }

    /// The key with this number: `bytes` long, at least sixteen, unlike that of any other number.
    pub(crate) fn number(&mut self, number: u64, bytes: usize) {
        self.0.clear();
        write_key(number, bytes, &mut self.0);
    }

    #[inline]
    pub(crate) const fn as_string(&self) -> &String {
        &self.0
    }

    #[inline]
    pub(crate) fn as_str(&self) -> &str {
        &self.0
    }
}

/// Appends a key as [`KeyBuffer::number`] describes it.
pub(crate) fn write_key(number: u64, bytes: usize, to: &mut String) {
    let mut word = number;
    for _ in 0..bytes.div_ceil(KEY_BYTES).max(1) {
        word = mix(word);
        // Writing to a string cannot fail.
        let _ = write!(to, "{word:016x}");
    }
}

/// Numbers below a limit, drawn at random from a fixed seed.
#[derive(Debug)]
pub(crate) struct Draw {
    state: u64,
    kind: Distribution,
}

#[derive(Debug)]
enum Distribution {
    Uniform(u64),
    /// The sums of the weights up to each number.
    Zipf(Vec<f64>),
}

impl Draw {
    /// Every number below `population` equally often.
    pub(crate) const fn uniform(population: u64) -> Self {
        Draw { state: 1, kind: Distribution::Uniform(population) }
    }

    /// Number n in proportion to 1 / (n + 1).
    pub(crate) fn zipf(population: u64) -> Self {
        let sums = (1..=population).scan(0.0, |sum, rank| {
            *sum += 1.0 / rank as f64;
            Some(*sum)
        });
        Draw { state: 1, kind: Distribution::Zipf(sums.collect()) }
    }

    fn bits(&mut self) -> u64 {
        self.state = self.state.wrapping_add(1);
        mix(self.state)
    }
}

impl Iterator for Draw {
    type Item = u64;

    fn next(&mut self) -> Option<u64> {
        let bits = self.bits();
        Some(match &self.kind {
            Distribution::Uniform(population) => bits % (*population).max(1),
            Distribution::Zipf(sums) => {
                let share = (bits >> 11) as f64 / (1_u64 << 53) as f64;
                let wanted = share * sums.last().copied().unwrap_or(0.0);
                sums.partition_point(|sum| *sum < wanted) as u64
            }
        })
    }
}

/// Keys in the order of their use, end to end in one text.
#[derive(Debug)]
pub(crate) struct KeySequence(String);

impl KeySequence {
    /// The keys of the first `length` numbers drawn.
    pub(crate) fn new(draw: Draw, length: usize) -> Self {
        let mut text = String::with_capacity(length * KEY_BYTES);
        for number in draw.take(length) {
            write_key(number, KEY_BYTES, &mut text);
        }
        KeySequence(text)
    }

    /// The keys from an index on; after the last key follows the first.
    #[inline]
    pub(crate) fn from(&self, place: usize) -> impl Iterator<Item = &str> {
        records(&self.0, KEY_BYTES, place)
    }
}

/// The records of equal length that a text consists of, over and over.
#[inline]
pub(crate) fn records(text: &str, bytes: usize, place: usize) -> impl Iterator<Item = &str> {
    let mut at = place.wrapping_mul(bytes) % text.len().max(1);
    std::iter::from_fn(move || {
        let record = text.get(at..at + bytes)?;
        at += bytes;
        if at == text.len() {
            at = 0;
        }
        Some(record)
    })
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    #[test]
    fn keys_have_their_length_and_are_unlike_each_other() {
        for bytes in [16, 64] {
            let mut seen = HashSet::new();
            let mut key = KeyBuffer::default();
            for number in 0..1_000 {
                key.number(number, bytes);
                assert_eq!(key.as_str().len(), bytes);
                assert!(seen.insert(key.as_str().to_owned()));
            }
        }
    }

    #[test]
    fn a_sequence_starts_again_at_its_end() {
        let sequence = KeySequence::new(Draw::uniform(1_000), 3);
        let keys: Vec<&str> = sequence.from(2).take(4).collect();
        assert_eq!(keys[0], keys[3]);
        assert_eq!(keys[1], sequence.from(0).next().unwrap());
        assert!(keys.iter().all(|key| key.len() == KEY_BYTES));
    }

    #[test]
    fn two_runs_draw_the_same_numbers() {
        let first: Vec<u64> = Draw::zipf(100).take(50).collect();
        let second: Vec<u64> = Draw::zipf(100).take(50).collect();
        assert_eq!(first, second);
    }

    #[test]
    fn zipf_draws_the_first_number_twice_as_often_as_the_second() {
        let draws: Vec<u64> = Draw::zipf(100).take(100_000).collect();
        assert!(draws.iter().all(|number| *number < 100));
        let count = |wanted| draws.iter().filter(|number| **number == wanted).count() as f64;
        let ratio = count(0) / count(1);
        assert!((1.9..2.1).contains(&ratio), "{ratio}");
    }

    #[test]
    fn uniform_draws_every_number_about_equally_often() {
        let draws: Vec<u64> = Draw::uniform(10).take(100_000).collect();
        for wanted in 0..10 {
            let count = draws.iter().filter(|number| **number == wanted).count();
            assert!((9_500..10_500).contains(&count), "{wanted}: {count}");
        }
    }
}
