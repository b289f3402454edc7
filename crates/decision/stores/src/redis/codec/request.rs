//! The checks of a request as one script call.

use tidegate_algorithms::{Limit, State, Timestamp};
use tidegate_redis_link::{ScriptBody, ScriptCall, put_number};

use super::record::put_check;
use super::state::encode;
use crate::batch::{Batch, Charge, Check, Verb};
use crate::redis::key;

/// What the script does with the checks of a call; `VERB` in the script.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(in crate::redis) enum ScriptVerb {
    /// Report the states.
    Read = 0,
    /// Charge the checks that admit, if the request passes.
    All = 1,
    /// Charge the checks that admit.
    Always = 2,
    /// Charge what remains, up to the cost.
    Take = 3,
    /// Refund the cost.
    Refund = 4,
    /// Delete the state.
    Reset = 5,
    /// Charge, whatever remains.
    Charge = 6,
    /// Extend the expiry of a holder's slots.
    Renew = 7,
    /// Charge nothing: a check in another slot has refused the request.
    ChargeNone = 8,
    /// Replace the states that were read, if they are unchanged.
    Swap = 9,
}

impl ScriptVerb {
    pub(in crate::redis) const fn of(batch: &Batch<'_>) -> Self {
        match (batch.verb, batch.charge) {
            (Verb::Check, Charge::AllOrNothing) => ScriptVerb::All,
            (Verb::Check, Charge::Always) => ScriptVerb::Always,
            (Verb::Peek, _) => ScriptVerb::Read,
            (Verb::Take, _) => ScriptVerb::Take,
            (Verb::Refund, _) => ScriptVerb::Refund,
            (Verb::Reset, _) => ScriptVerb::Reset,
            (Verb::Charge, _) => ScriptVerb::Charge,
        }
    }
}

/// A state that Rust settled, because the script could not.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(in crate::redis) struct SettledState {
    /// The index of its check.
    pub(in crate::redis) index: usize,
    /// The bytes that were read.
    pub(in crate::redis) was: Vec<u8>,
    /// The settled state.
    pub(in crate::redis) becomes: Vec<u8>,
    /// How many seconds it must be kept.
    pub(in crate::redis) lives: u64,
}

impl SettledState {
    /// The state that replaces the bytes `was`, settled at `now`.
    pub(in crate::redis) fn new(index: usize, was: &[u8], state: &State, now: Timestamp) -> Self {
        let lives = state.idle_at().since(now).as_secs_ceil();
        SettledState { index, was: was.to_vec(), becomes: encode(state), lives }
    }
}

/// The most settled states in one call; the next call carries the rest.
const SETTLED_MAX: usize = 255;
/// The flag of a call with settled states.
const HAS_SETTLED: u8 = 128;
/// In place of the number of checks: the number follows in two bytes.
const MANY: usize = 255;

/// The contents of a script call.
#[derive(Clone, Copy, Debug)]
pub(in crate::redis) struct Request<'a> {
    pub(in crate::redis) verb: ScriptVerb,
    pub(in crate::redis) checks: &'a [Check<'a>],
    /// The rounded limit of each check.
    pub(in crate::redis) limits: &'a [std::borrow::Cow<'a, Limit>],
    /// The estimated time of the server.
    pub(in crate::redis) expected: Timestamp,
    pub(in crate::redis) settled: &'a [SettledState],
}

impl Request<'_> {
    /// The script call, with keys that begin with `prefix`.
    pub(in crate::redis) fn call(&self, prefix: &[u8]) -> ScriptCall {
        let keys = self.checks.iter().map(|check| key::text(prefix, check.key.fingerprint));
        let tag = self.checks.first().map_or(0, |check| check.key.fingerprint.tag());
        ScriptCall { tag, keys: keys.collect(), body: self.body() }
    }

    fn body(&self) -> ScriptBody {
        let mut body = ScriptBody::new();
        if self.checks.len() < MANY {
            put_number(&mut body, self.checks.len() as u64, 1);
        } else {
            put_number(&mut body, MANY as u64, 1);
            put_number(&mut body, self.checks.len() as u64, 2);
        }
        let settled = self.settled.get(..SETTLED_MAX).unwrap_or(self.settled);
        let flag = if settled.is_empty() { 0 } else { HAS_SETTLED };
        body.push(self.verb as u8 + flag);
        put_settled(&mut body, settled);
        if !matches!(self.verb, ScriptVerb::Swap) {
            for (check, limit) in self.checks.iter().zip(self.limits) {
                let key_cost = self.cost_on(check);
                put_check(&mut body, self.verb, check, limit, self.expected, key_cost);
            }
        }
        body
    }

    /// The sum of the costs of all checks on the same key.
    fn cost_on(&self, check: &Check<'_>) -> u64 {
        let same = self.checks.iter().filter(|other| other.key == check.key);
        same.fold(0, |sum, other| sum.saturating_add(other.cost))
    }
}

fn put_settled(body: &mut ScriptBody, settled: &[SettledState]) {
    if settled.is_empty() {
        return;
    }
    put_number(body, settled.len() as u64, 1);
    for state in settled {
        put_number(body, state.index as u64 + 1, 2);
        put_number(body, state.was.len() as u64, 2);
        body.extend_from_slice(&state.was);
        put_number(body, state.becomes.len() as u64, 2);
        body.extend_from_slice(&state.becomes);
        put_number(body, state.lives, 4);
    }
}
