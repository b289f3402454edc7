//! The checks of one request, decided on the states of their keys.
//!
//! First every check is judged, then all are charged or none. A check of a key that occurred before is judged as if the
//! earlier checks of that key had been charged.

use smallvec::SmallVec;
use tidegate_algorithms::{CheckInput, Decision, Limit, State};

use crate::batch::{Role, passes};

/// The decisions on the checks of one request.
pub(crate) type Decisions = SmallVec<[Decision; 2]>;

/// One check of a request.
#[derive(Clone, Copy, Debug)]
pub(crate) struct KeyCheck<'a> {
    pub(crate) limit: &'a Limit,
    pub(crate) input: CheckInput,
    pub(crate) role: Role,
    /// The index of the key's state.
    pub(crate) state: usize,
    /// The decision, if the key cannot be counted.
    pub(crate) uncounted: Option<Decision>,
}

/// What happens to the states once every check is judged.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ChargeMode {
    /// The checks that admit are charged if the request passes, and refusals are counted.
    IfPassed,
    /// The checks that admit are charged, and refusals are counted.
    Always,
    /// Refusals are counted; nothing is charged.
    #[cfg_attr(
        not(feature = "redis"),
        expect(dead_code, reason = "only for keys in several slots of a cluster")
    )]
    Refusals,
    /// The states stay unchanged.
    Nothing,
}

/// Decides checks, and charges them as `mode` says. Returns the decisions, and whether the checks that admit were
/// charged.
pub(crate) fn check_all(
    checks: &[KeyCheck<'_>],
    states: &mut [State],
    mode: ChargeMode,
) -> (Decisions, bool) {
    let mut decisions = Decisions::new();
    for (index, check) in checks.iter().enumerate() {
        decisions.push(check.judge(&checks[..index], &decisions, states));
    }
    let decided = checks.iter().zip(&decisions);
    let pass = passes(decided.map(|(check, decision)| (check.role, decision.is_admitted())));
    let charged = mode == ChargeMode::Always || (mode == ChargeMode::IfPassed && pass);
    for (check, decision) in checks.iter().zip(&mut decisions) {
        if check.uncounted.is_none() {
            let state = &mut states[check.state];
            // Another limit of the same key may have settled it.
            check.limit.settle(state, check.input.now);
            check.conclude(decision, state, mode, charged);
        }
    }
    (decisions, charged)
}

impl KeyCheck<'_> {
    fn judge(
        &self,
        earlier: &[KeyCheck<'_>],
        decisions: &[Decision],
        states: &mut [State],
    ) -> Decision {
        if let Some(decision) = self.uncounted {
            return decision;
        }
        let state = &mut states[self.state];
        let mut same_key =
            earlier.iter().zip(decisions).filter(|(other, _)| other.state == self.state).peekable();
        if same_key.peek().is_none() {
            self.limit.settle(state, self.input.now);
            return self.limit.decide(state, self.input);
        }
        let mut copy = state.clone();
        for (other, decision) in same_key {
            // It may have another limit.
            other.limit.settle(&mut copy, other.input.now);
            other.charge_or_refuse(&mut copy, decision);
        }
        self.limit.settle(&mut copy, self.input.now);
        self.limit.decide(&copy, self.input)
    }

    /// Charges the settled state, or corrects a decision that charges nothing.
    fn conclude(
        &self,
        decision: &mut Decision,
        state: &mut State,
        mode: ChargeMode,
        charged: bool,
    ) {
        if charged || (mode != ChargeMode::Nothing && !decision.is_admitted()) {
            self.charge_or_refuse(state, decision);
        } else {
            *decision = self.limit.uncharged(state, self.input, *decision);
        }
    }

    fn charge_or_refuse(&self, state: &mut State, decision: &Decision) {
        if decision.is_admitted() {
            self.limit.charge(state, self.input, decision);
        } else {
            self.limit.refuse(state, self.input);
        }
    }
}
