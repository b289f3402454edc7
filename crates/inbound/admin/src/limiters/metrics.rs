//! The metrics of the switchboard: the mode of each limiter, and those of overload protection.

use tidegate_engine::Mode;
use tidegate_metrics::{Collector, Exposition};

use super::{LimiterName, Switchboard};

tidegate_metrics::metrics! {
    /// The metrics of [`Switchboard`].
    pub SWITCHBOARD_METRICS:
    LIMITER_MODE = Gauge "tidegate_limiter_mode" ["limiter", "mode"]
        "1 for the mode that the limiter is in.";
    LIMITER_ENFORCED = Gauge "tidegate_limiter_enforced_ratio" ["limiter"]
        "The share of callers for which the limiter refuses.";
    KILL_SWITCH = Gauge "tidegate_kill_switch" []
        "1 while everything is switched off and every request passes.";
}

impl Collector for Switchboard {
    fn collect(&self, out: &mut Exposition) {
        let modes = LimiterName::ALL.map(|limiter| (limiter.as_str(), self.mode(limiter)));
        let mut family = out.family(LIMITER_MODE);
        for (limiter, mode) in modes {
            let Some(mode) = mode else { continue };
            for word in ["off", "shadow", "enforce"] {
                family.sample(&[limiter, word], u8::from(word == mode.as_str()));
            }
        }
        let mut family = out.family(LIMITER_ENFORCED);
        for (limiter, mode) in modes {
            if let Some(percent) = mode.map(Mode::enforce_percent) {
                family.sample(&[limiter], f64::from(percent) / 100.0);
            }
        }
        out.single(KILL_SWITCH, u8::from(self.is_off()));
        if let Some(protection) = self.protection() {
            protection.collect(out);
        }
    }
}
