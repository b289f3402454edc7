//! Tries inputs and reports findings.
//!
//! Inputs with a new trail join the inputs to change further, up to a maximum. A panic is a finding.
//! A stack overflow ends the process, so the program that runs the fuzzer saves the present input.

use std::any::Any;
use std::collections::HashSet;
use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};

use crate::chance::Chance;
use crate::mutation::damage;
use crate::target::{Target, TargetName, Trail};

/// The most inputs to change further, without the corpus. A target has a few hundred trails.
const FOUND_MAX: usize = 4_096;

/// The most tries to shrink the input of a finding.
const SHRINKS_MAX: usize = 2_000;

/// An input that breaks a promise.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Finding {
    /// The target.
    pub target: TargetName,
    /// The input, made as small as possible.
    pub input: Vec<u8>,
    /// The broken promise.
    pub what: String,
    /// Whether the input alone reproduces it.
    pub alone: bool,
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Finding { target, input, what, alone } = self;
        writeln!(f, "{target}: {what}")?;
        if !alone {
            writeln!(f, "it shows only after the inputs before it: run the seed again")?;
        }
        write!(f, "input: {}", input.escape_ascii())
    }
}

/// Changes inputs of one target and tries them.
pub struct Fuzzer {
    name: TargetName,
    target: Box<dyn Target>,
    chance: Chance,
    kept: Vec<Vec<u8>>,
    found: Vec<Vec<u8>>,
    trails: HashSet<Trail>,
}

impl fmt::Debug for Fuzzer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Fuzzer").field("name", &self.name).finish_non_exhaustive()
    }
}

impl Fuzzer {
    /// A fuzzer that starts from these inputs and this seed.
    pub fn new(name: TargetName, kept: Vec<Vec<u8>>, seed: u64) -> Self {
        Fuzzer {
            name,
            target: name.build(),
            chance: Chance::new(seed),
            kept,
            found: Vec::new(),
            trails: HashSet::new(),
        }
    }

    /// The number of different trails.
    pub fn trails(&self) -> usize {
        self.trails.len()
    }

    /// Tries every input of the corpus unchanged.
    ///
    /// # Errors
    /// With the first finding.
    pub fn replay(&mut self) -> Result<(), Box<Finding>> {
        for place in 0..self.kept.len() {
            let input = self.kept.get(place).cloned().unwrap_or_default();
            self.give(&input)?;
        }
        Ok(())
    }

    /// The next changed input.
    pub fn draw(&mut self) -> Vec<u8> {
        let one = self.pick();
        let other = self.pick();
        damage(&one, &other, self.name.language(), &mut self.chance)
    }

    /// Tries an input.
    ///
    /// # Errors
    /// When the input breaks a promise.
    pub fn give(&mut self, input: &[u8]) -> Result<(), Box<Finding>> {
        match attempt(&mut *self.target, input) {
            Ok(trail) => {
                if self.trails.insert(trail) && self.found.len() < FOUND_MAX {
                    self.found.push(input.to_vec());
                }
                Ok(())
            }
            Err(what) => {
                // After a panic the state of the target is unknown.
                self.target = self.name.build();
                Err(Box::new(self.finding(input, what)))
            }
        }
    }

    fn pick(&mut self) -> Vec<u8> {
        let from = if self.chance.below(2) == 0 { &self.kept } else { &self.found };
        let from = if from.is_empty() { &self.kept } else { from };
        self.chance.pick(from).cloned().unwrap_or_default()
    }

    fn finding(&self, input: &[u8], what: String) -> Finding {
        let fresh = |input: &[u8]| attempt(&mut *self.name.build(), input).err();
        let target = self.name;
        match fresh(input) {
            None => Finding { target, input: input.to_vec(), what, alone: false },
            Some(_) => {
                let input = shrink(input, |smaller| fresh(smaller).is_some());
                let what = fresh(&input).unwrap_or(what);
                Finding { target, input, what, alone: true }
            }
        }
    }
}

fn attempt(target: &mut dyn Target, input: &[u8]) -> Result<Trail, String> {
    let caught = catch_unwind(AssertUnwindSafe(|| target.give(input)));
    caught.unwrap_or_else(|panic| Err(format!("a panic: {}", words_of(&*panic))))
}

fn words_of(panic: &(dyn Any + Send)) -> &str {
    let text = panic.downcast_ref::<String>().map(String::as_str);
    text.or_else(|| panic.downcast_ref::<&str>().copied()).unwrap_or("without words")
}

/// Removes parts while the finding stays, first large ones, then small ones.
fn shrink(input: &[u8], mut shows: impl FnMut(&[u8]) -> bool) -> Vec<u8> {
    let mut best = input.to_vec();
    let mut piece = best.len().div_ceil(2);
    let mut tried = 0;
    while piece > 0 && tried < SHRINKS_MAX {
        let mut at = 0;
        while at < best.len() && tried < SHRINKS_MAX {
            let end = (at + piece).min(best.len());
            let mut smaller = best.clone();
            smaller.drain(at..end);
            tried += 1;
            if shows(&smaller) {
                best = smaller;
            } else {
                at = end;
            }
        }
        piece /= 2;
    }
    best
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_finding_is_made_as_small_as_it_can_be() {
        let shows = |input: &[u8]| input.contains(&b'x') && input.contains(&b'y');
        assert_eq!(shrink(b"aaaaxaaaaaaaaabbbbbbyb", shows), b"xy");
        assert_eq!(shrink(b"", |_| true), b"");
    }

    #[test]
    fn a_panic_is_a_finding() {
        struct Panics;
        impl Target for Panics {
            fn give(&mut self, input: &[u8]) -> Result<Trail, String> {
                assert!(input.is_empty(), "it has {} bytes", input.len());
                Ok(Trail::of(0))
            }
        }
        assert!(attempt(&mut Panics, b"").is_ok());
        assert_eq!(attempt(&mut Panics, b"ab"), Err("a panic: it has 2 bytes".to_owned()));
    }

    #[test]
    fn a_seed_draws_the_same_inputs_again() {
        let draw = |seed| {
            let kept = vec![b"domain: a\n".to_vec(), b"descriptors: []".to_vec()];
            let mut fuzzer = Fuzzer::new(TargetName::Rules, kept, seed);
            let drawn = (0..50).map(|_| {
                let input = fuzzer.draw();
                fuzzer.give(&input).expect("nothing is found");
                input
            });
            drawn.collect::<Vec<_>>()
        };
        assert_eq!(draw(1), draw(1));
        assert_ne!(draw(1), draw(2));
    }
}
