//! What a request was charged that its limits let pass, should it be shed after all.
//!
//! The caller's own limits come before what holds a place: the fleet's share and the gate. A
//! request that finds no place there is not served, and must not have spent its caller's budget.
//! Nearly all requests are served, and most are charged what they cost by each limit; so nothing
//! is written down for those, and whoever is shed is described again.

use std::fmt;
use std::sync::Arc;

use tidegate_engine::{Clock, CounterStore, Engine, Verdict};

use crate::described::Described;
use crate::turns::give_back;

/// Gives back what a request was charged.
pub type GiveBack = Box<dyn FnOnce() + Send + Sync>;

/// What a request was charged.
pub enum Charged {
    /// Nothing that could be given back.
    Nothing,
    /// Its cost, by each of its limits, under the rules of this version.
    InFull {
        /// The version of the rules that charged it.
        rules_version: u64,
    },
    /// Whatever this gives back.
    Otherwise(GiveBack),
}

impl Charged {
    /// By a verdict that lets a request pass.
    pub fn by<S, C>(
        verdict: &Verdict,
        described: &Described,
        (engine, domain): (&Arc<Engine<S, C>>, &str),
    ) -> Self
    where
        S: CounterStore,
        C: Clock,
    {
        if verdict.rulings().is_empty() {
            return Charged::Nothing;
        }
        if verdict.is_charged_in_full() {
            return Charged::InFull { rules_version: verdict.snapshot().version() };
        }
        let deposit = described.ask(domain, |request| engine.deposit(request, verdict));
        Charged::Otherwise(Box::new(|| give_back(deposit)))
    }

    /// Gives it back; `described` is what it was charged for.
    pub fn give_back<S, C>(
        self,
        described: &Described,
        (engine, domain): (&Arc<Engine<S, C>>, &str),
    ) where
        S: CounterStore,
        C: Clock,
    {
        match self {
            Charged::Nothing => {}
            Charged::InFull { rules_version } => give_back(
                described.ask(domain, |request| engine.deposit_in_full(request, rules_version)),
            ),
            Charged::Otherwise(give_back) => give_back(),
        }
    }

    /// Whether there is nothing to give back.
    pub const fn is_nothing(&self) -> bool {
        matches!(self, Charged::Nothing)
    }
}

impl From<Option<GiveBack>> for Charged {
    fn from(give_back: Option<GiveBack>) -> Self {
        give_back.map_or(Charged::Nothing, Charged::Otherwise)
    }
}

impl fmt::Debug for Charged {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Charged::Nothing => "Nothing",
            Charged::InFull { .. } => "InFull",
            Charged::Otherwise(_) => "Otherwise",
        })
    }
}
