//! Promises of the service as a whole.

use tidegate_engine::UnknownTarget;

use super::Finding;
use crate::seen_verdict::SeenVerdict;

/// Every request is decided.
#[derive(Clone, Copy, Debug)]
pub(crate) struct DecisionCheck;

impl DecisionCheck {
    /// Checks that the verdict is decided.
    pub(crate) fn check(seen: &SeenVerdict) -> Finding {
        seen.undecided.as_ref().map_or(Ok(()), |why| Err(why.clone()))
    }
}

/// While everything is switched off, every request is admitted without any limit.
#[derive(Clone, Copy, Debug)]
pub(crate) struct KillSwitch {
    pub(crate) off: bool,
}

impl KillSwitch {
    /// Compares the answer with the switch.
    pub(crate) fn check(self, seen: &SeenVerdict) -> Finding {
        if seen.switched_off != self.off {
            return Err(format!("off: {}, but answered by it: {}", self.off, seen.switched_off));
        }
        if self.off && (!seen.admitted || !seen.rulings.is_empty()) {
            return Err("a limit was asked while everything is off".to_owned());
        }
        Ok(())
    }
}

/// A run-time switch applies to exactly its limits.
#[derive(Clone, Copy, Debug)]
pub(crate) struct SwitchReach {
    pub(crate) meant: usize,
}

impl SwitchReach {
    /// Compares with the engine's count of switched limits.
    pub(crate) fn check(self, reached: &Result<usize, UnknownTarget>) -> Finding {
        match reached {
            Ok(reached) if *reached == self.meant => Ok(()),
            Ok(reached) => Err(format!("{} were meant, {reached} reached", self.meant)),
            Err(unknown) => Err(format!("{} were meant, but {unknown}", self.meant)),
        }
    }
}

/// Counters use at most their memory budget.
#[derive(Clone, Copy, Debug)]
pub(crate) struct MemoryBudget {
    pub(crate) budget_bytes: usize,
}

impl MemoryBudget {
    /// Compares what is allocated with the budget.
    pub(crate) fn check(self, bytes: usize) -> Finding {
        if bytes > self.budget_bytes {
            return Err(format!("{bytes} bytes of {}", self.budget_bytes));
        }
        Ok(())
    }
}

/// A retry after the promised wait is admitted, and a nanosecond earlier it is not.
#[derive(Clone, Copy, Debug)]
pub(crate) struct HonestRetry {
    pub(crate) told: u64,
}

impl HonestRetry {
    /// Checks the answers just before and at the end of the wait.
    pub(crate) fn check(self, early: &SeenVerdict, in_time: &SeenVerdict) -> Finding {
        if early.admitted {
            return Err(format!("told to wait {} ns, but less is enough", self.told));
        }
        if !in_time.admitted {
            return Err(format!("told to wait {} ns, then refused: {in_time:?}", self.told));
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use tidegate_engine::Retry;

    use super::*;

    fn seen(admitted: bool) -> SeenVerdict {
        SeenVerdict {
            admitted,
            refusal: None,
            retry: Retry::Now,
            undecided: None,
            switched_off: false,
            rulings: Vec::new(),
        }
    }

    #[test]
    fn a_request_that_was_not_decided_is_caught() {
        assert_eq!(DecisionCheck::check(&seen(true)), Ok(()));
        let broken = SeenVerdict { undecided: Some("it broke".to_owned()), ..seen(true) };
        assert_eq!(DecisionCheck::check(&broken), Err("it broke".to_owned()));
    }

    #[test]
    fn a_kill_switch_that_does_not_admit_is_caught() {
        let passed = SeenVerdict { switched_off: true, ..seen(true) };
        assert_eq!(KillSwitch { off: true }.check(&passed), Ok(()));
        assert_eq!(KillSwitch { off: false }.check(&seen(true)), Ok(()));
        assert!(KillSwitch { off: true }.check(&seen(true)).is_err());
        assert!(KillSwitch { off: false }.check(&passed).is_err());
        assert!(
            KillSwitch { off: true }.check(&SeenVerdict { admitted: false, ..passed }).is_err()
        );
    }

    #[test]
    fn a_switch_that_reaches_too_few_is_caught() {
        let reach = SwitchReach { meant: 2 };
        assert_eq!(reach.check(&Ok(2)), Ok(()));
        assert!(reach.check(&Ok(1)).is_err());
        assert!(reach.check(&Ok(3)).is_err());
    }

    #[test]
    fn one_byte_beyond_the_budget_is_caught() {
        let budget = MemoryBudget { budget_bytes: 100 };
        assert_eq!(budget.check(100), Ok(()));
        assert!(budget.check(101).is_err());
    }

    #[test]
    fn a_wait_that_is_too_short_or_too_long_is_caught() {
        let retry = HonestRetry { told: 5 };
        assert_eq!(retry.check(&seen(false), &seen(true)), Ok(()));
        assert!(retry.check(&seen(false), &seen(false)).is_err());
        assert!(retry.check(&seen(true), &seen(true)).is_err());
    }
}
