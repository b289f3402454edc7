//! What a limiter does with its decisions: `off`, `shadow` or `enforce`, with a percentage of callers.
//!
//! Rules, run-time switches, the overload limiters, the configuration and the admin API all use this type and its
//! words. [`ModeCell`] is the mode as a hot path reads it: one atomic load.

use std::fmt;
use std::sync::atomic::{AtomicU16, Ordering::Relaxed};

/// A percentage, 0 to 100.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Percent(u8);

impl Percent {
    /// Every caller.
    pub const ALL: Percent = Percent(100);

    /// A percentage; more than 100 is 100.
    pub const fn new(percent: u8) -> Self {
        Percent(if percent > 100 { 100 } else { percent })
    }

    /// The percentage as a number.
    pub const fn get(self) -> u8 {
        self.0
    }

    /// Whether `number`, a caller's or key's hash, is among this percentage of all numbers. A number that is in at
    /// one percentage is in at every higher one.
    pub const fn includes(self, number: u64) -> bool {
        number % 100 < self.0 as u64
    }
}

impl fmt::Debug for Percent {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(out)
    }
}

/// What a limiter does with its decisions.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Mode {
    /// It neither counts nor refuses.
    Off,
    /// It decides and counts, and never refuses.
    Shadow,
    /// It refuses, for this percentage of callers; for the others it is in shadow. A caller is always in or always out.
    Enforce(Percent),
}

impl Mode {
    /// Enforced for every caller.
    pub const ENFORCE: Mode = Mode::Enforce(Percent::ALL);

    /// The words, without a percentage, in the order in which they are explained.
    pub const WORDS: &'static [&'static str] = &["enforce", "shadow", "off"];

    /// What [`Mode::parse`] accepts, for hints and reference pages.
    pub const SYNTAX: &'static str = "`off`, `shadow`, `enforce` or `enforce 10%`";

    /// The word that earlier versions used for `shadow`. [`Mode::parse`] still accepts it.
    pub const DEPRECATED_SHADOW: &'static str = "dark";

    /// The word, without the percentage.
    pub const fn as_str(self) -> &'static str {
        match self {
            Mode::Off => "off",
            Mode::Shadow => "shadow",
            Mode::Enforce(_) => "enforce",
        }
    }

    /// The mode that one of [`Mode::WORDS`] stands for; `enforce` means for every caller.
    pub fn from_word(word: &str) -> Option<Self> {
        match word {
            "off" => Some(Mode::Off),
            "shadow" => Some(Mode::Shadow),
            "enforce" => Some(Mode::ENFORCE),
            _ => None,
        }
    }

    /// Reads [`Mode::SYNTAX`], and [`Mode::DEPRECATED_SHADOW`].
    pub fn parse(text: &str) -> Option<Self> {
        if text == Mode::DEPRECATED_SHADOW {
            return Some(Mode::Shadow);
        }
        Mode::from_word(text).or_else(|| {
            let percent = text.strip_prefix("enforce")?.strip_prefix([' ', '\t'])?;
            let percent: u8 = percent.trim().strip_suffix('%')?.parse().ok()?;
            (percent <= 100).then_some(Mode::Enforce(Percent(percent)))
        })
    }

    /// The mode of a rule that has `mode` and `enforce_percent` as two keys. The percentage means nothing to `off`
    /// and `shadow`.
    #[must_use]
    pub const fn with_percent(self, percent: Percent) -> Self {
        match self {
            Mode::Enforce(_) => Mode::Enforce(percent),
            other => other,
        }
    }

    /// The value of `enforce_percent` that goes with [`Mode::as_str`]: 100 for `off` and `shadow`.
    pub const fn enforce_percent(self) -> u8 {
        match self {
            Mode::Off | Mode::Shadow => 100,
            Mode::Enforce(percent) => percent.0,
        }
    }

    /// The weaker of both: a limit never does more than its limiter.
    #[must_use]
    pub fn at_most(self, most: Mode) -> Self {
        match (self, most) {
            (Mode::Off, _) | (_, Mode::Off) => Mode::Off,
            (Mode::Shadow, _) | (_, Mode::Shadow) => Mode::Shadow,
            (Mode::Enforce(own), Mode::Enforce(most)) => Mode::Enforce(own.min(most)),
        }
    }

    /// The mode for one caller; `None` when it is off. `includes` says whether the caller is among a percentage.
    #[inline]
    pub fn for_caller(self, includes: impl FnOnce(Percent) -> bool) -> Option<CallerMode> {
        match self {
            Mode::Off => None,
            Mode::Shadow => Some(CallerMode::Shadow),
            Mode::Enforce(Percent::ALL) => Some(CallerMode::Enforce),
            Mode::Enforce(percent) if includes(percent) => Some(CallerMode::Enforce),
            Mode::Enforce(_) => Some(CallerMode::Shadow),
        }
    }

    const fn to_bits(self) -> u16 {
        match self {
            Mode::Off => 0,
            Mode::Shadow => 1,
            Mode::Enforce(percent) => 2 + percent.0 as u16,
        }
    }

    fn from_bits(bits: u16) -> Self {
        match bits {
            0 => Mode::Off,
            1 => Mode::Shadow,
            more => Mode::Enforce(Percent::new(u8::try_from(more - 2).unwrap_or(100))),
        }
    }
}

impl Default for Mode {
    fn default() -> Self {
        Mode::ENFORCE
    }
}

impl fmt::Display for Mode {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Mode::Enforce(percent) if *percent < Percent::ALL => {
                write!(out, "enforce {}%", percent.0)
            }
            other => out.write_str(other.as_str()),
        }
    }
}

/// A [`Mode`] that is not off, as it applies to one caller.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum CallerMode {
    /// A refusal refuses the request.
    Enforce,
    /// A refusal is counted, and the request proceeds.
    Shadow,
}

impl CallerMode {
    /// The word, as for [`Mode::as_str`].
    pub const fn as_str(self) -> &'static str {
        match self {
            CallerMode::Enforce => "enforce",
            CallerMode::Shadow => "shadow",
        }
    }
}

/// A mode that can be changed at any time, and read with one relaxed load.
#[derive(Debug)]
pub struct ModeCell(AtomicU16);

impl ModeCell {
    const OFF: u16 = Mode::Off.to_bits();
    const ENFORCE: u16 = Mode::ENFORCE.to_bits();

    /// A cell with this mode.
    pub const fn new(mode: Mode) -> Self {
        ModeCell(AtomicU16::new(mode.to_bits()))
    }

    /// The mode.
    #[inline]
    pub fn read(&self) -> Mode {
        Mode::from_bits(self.0.load(Relaxed))
    }

    /// Sets the mode and returns the previous one.
    pub fn set(&self, mode: Mode) -> Mode {
        Mode::from_bits(self.0.swap(mode.to_bits(), Relaxed))
    }

    /// Whether it is [`Mode::ENFORCE`], as most are: one comparison, without decoding.
    #[inline]
    pub fn is_enforced(&self) -> bool {
        self.0.load(Relaxed) == Self::ENFORCE
    }

    /// Whether the limiter is in shadow for some callers.
    #[inline]
    pub fn is_shadow_for_some(&self) -> bool {
        !matches!(self.0.load(Relaxed), Self::ENFORCE | Self::OFF)
    }

    /// [`Mode::for_caller`] of the mode.
    #[inline]
    pub fn for_caller(&self, includes: impl FnOnce(Percent) -> bool) -> Option<CallerMode> {
        if self.is_enforced() {
            return Some(CallerMode::Enforce);
        }
        self.read().for_caller(includes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn all() -> impl Iterator<Item = Mode> {
        let percentages = (0..=100).map(|percent| Mode::Enforce(Percent::new(percent)));
        [Mode::Off, Mode::Shadow].into_iter().chain(percentages)
    }

    #[test]
    fn a_mode_is_read_as_it_is_written() {
        for mode in all() {
            assert_eq!(Mode::parse(&mode.to_string()), Some(mode));
        }
        for text in ["", "on", "enforce 101%", "enforce %", "enforce10%", "enforce 10", "OFF"] {
            assert_eq!(Mode::parse(text), None, "{text}");
        }
    }

    #[test]
    fn the_old_word_for_shadow_is_still_read_and_never_written() {
        assert_eq!(Mode::parse("dark"), Some(Mode::Shadow));
        assert_eq!(Mode::from_word("dark"), None);
        assert!(all().all(|mode| !mode.to_string().contains("dark")));
    }

    #[test]
    fn every_word_stands_for_a_mode() {
        for word in Mode::WORDS {
            assert_eq!(Mode::from_word(word).map(Mode::as_str), Some(*word));
        }
    }

    #[test]
    fn a_mode_comes_back_as_it_was_set() {
        let cell = ModeCell::new(Mode::Off);
        let mut before = Mode::Off;
        for mode in all() {
            assert_eq!(cell.set(mode), before);
            assert_eq!(cell.read(), mode);
            assert_eq!(cell.is_enforced(), mode == Mode::ENFORCE);
            assert_eq!(
                cell.is_shadow_for_some(),
                !matches!(mode, Mode::Off | Mode::ENFORCE),
                "{mode}"
            );
            before = mode;
        }
    }

    #[test]
    fn the_share_of_enforced_numbers_is_the_percentage() {
        for percent in [0, 1, 37, 100] {
            let cell = ModeCell::new(Mode::Enforce(Percent::new(percent)));
            let mode = |number| cell.for_caller(|percent| percent.includes(number));
            let enforced = (0..1000).filter(|number| mode(*number) == Some(CallerMode::Enforce));
            assert_eq!(enforced.count(), usize::from(percent) * 10);
        }
    }

    #[test]
    fn the_weaker_of_two_modes_applies() {
        let half = Mode::Enforce(Percent::new(50));
        for (own, most, both) in [
            (Mode::ENFORCE, Mode::ENFORCE, Mode::ENFORCE),
            (half, Mode::ENFORCE, half),
            (Mode::ENFORCE, half, half),
            (half, Mode::Shadow, Mode::Shadow),
            (Mode::Shadow, Mode::Off, Mode::Off),
        ] {
            assert_eq!(own.at_most(most), both);
            assert_eq!(most.at_most(own), both);
        }
    }
}
