//! Random rules and random changes to them.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use tidegate_rules::{Charge, Mode};

use super::{
    Kind, Level, Limits, Network, SoftTerms, Terms, Values, Window, WrittenLimit, WrittenPlan,
    WrittenRule, WrittenRules,
};
use crate::chance::Chance;
use crate::time::{HOUR, MILLISECOND, MINUTE, SECOND};

/// The most limits of one rule.
const LIMITS_MAX: u64 = 3;

pub(crate) const PLANS: [&str; 2] = ["free", "pro"];

impl WrittenRules {
    /// A rule file with at most this many rules.
    pub(crate) fn draw(chance: &mut Chance, rules_max: usize) -> Self {
        let mut file = WrittenRules {
            charge: if chance.one_in(4) { Charge::Always } else { Charge::AllOrNothing },
            plans: Vec::new(),
            rules: Vec::new(),
            named: 0,
        };
        for name in PLANS {
            // The same names in every plan, so that usage survives a change of plan.
            let limits = (0..chance.between(1, 2))
                .map(|number| WrittenLimit {
                    replaces: None,
                    ..draw_limit(chance, format!("plan{number}"))
                })
                .collect();
            file.plans.push(WrittenPlan { name, limits });
        }
        let mut ways = ways(chance);
        let count = chance.between(1, u64::try_from(rules_max).unwrap_or(1));
        for _ in 0..count {
            if ways.is_empty() {
                break;
            }
            let way = ways.swap_remove(chance.index(ways.len()));
            let rule = file.draw_rule(chance, way);
            file.rules.push(rule);
        }
        file
    }

    /// The next version of the file: mostly other numbers, sometimes another algorithm, list of
    /// limits or mode.
    pub(crate) fn change(&mut self, chance: &mut Chance) {
        if chance.one_in(8) {
            self.charge = match self.charge {
                Charge::Always => Charge::AllOrNothing,
                Charge::AllOrNothing => Charge::Always,
            };
        }
        let mut named = self.named;
        let own = self.rules.iter_mut().filter_map(|rule| match &mut rule.limits {
            Limits::Own(limits) => Some(limits),
            Limits::Unlimited { .. } | Limits::Plan(_) | Limits::PlanNamedByValue { .. } => None,
        });
        for limits in own {
            change_list(chance, limits, &mut named);
        }
        self.named = named;
        let planned = self.plans.iter_mut().flat_map(|plan| &mut plan.limits);
        let own = self.rules.iter_mut().flat_map(|rule| match &mut rule.limits {
            Limits::Own(limits) => limits.iter_mut(),
            _ => [].iter_mut(),
        });
        for limit in planned.chain(own) {
            change_limit(chance, limit);
        }
    }

    fn draw_rule(&mut self, chance: &mut Chance, levels: Vec<Level>) -> WrittenRule {
        let plan_named = levels.last().is_some_and(|level| level.values == Values::PlanName);
        let limits = match chance.between(1, 20) {
            _ if plan_named => {
                let default = chance.one_in(2).then_some(PLANS[0]);
                Limits::PlanNamedByValue { default }
            }
            1 => Limits::Plan(PLANS[chance.index(PLANS.len())]),
            2 => Limits::Unlimited { replaces: self.earlier_name(chance) },
            _ => {
                let count = chance.between(1, LIMITS_MAX);
                Limits::Own((0..count).map(|_| self.draw_named(chance)).collect())
            }
        };
        WrittenRule {
            levels,
            limits,
            mode: chance.one_in(8).then(|| draw_mode(chance)),
            enforce_percent: chance.one_in(10).then(|| draw_percent(chance)),
            quota: chance.one_in(5),
        }
    }

    fn draw_named(&mut self, chance: &mut Chance) -> WrittenLimit {
        let replaces = self.earlier_name(chance).filter(|_| chance.one_in(10));
        let name = next_name(&mut self.named);
        WrittenLimit { replaces, ..draw_limit(chance, name) }
    }

    /// The name of an earlier limit, if there is one.
    fn earlier_name(&self, chance: &mut Chance) -> Option<String> {
        let last = self.named.checked_sub(1)?;
        Some(format!("limit{}", chance.between(0, last)))
    }
}

fn next_name(named: &mut u64) -> String {
    let name = format!("limit{named}");
    *named += 1;
    name
}

fn change_list(chance: &mut Chance, limits: &mut Vec<WrittenLimit>, named: &mut u64) {
    match chance.between(1, 12) {
        1 if limits.len() > 1 => {
            limits.remove(chance.index(limits.len()));
        }
        2 => {
            let limit = draw_limit(chance, next_name(named));
            limits.insert(chance.index(limits.len() + 1), limit);
        }
        3 => limits.reverse(),
        _ => {}
    }
}

fn change_limit(chance: &mut Chance, limit: &mut WrittenLimit) {
    if chance.one_in(3) {
        limit.terms = draw_terms_like(chance, limit.terms);
    } else if chance.one_in(20) {
        limit.terms = draw_terms(chance);
    }
    if chance.one_in(12) {
        limit.mode = chance.one_in(2).then(|| draw_mode(chance));
    }
}

fn draw_limit(chance: &mut Chance, name: String) -> WrittenLimit {
    WrittenLimit {
        name,
        terms: draw_terms(chance),
        mode: chance.one_in(8).then(|| draw_mode(chance)),
        enforce_percent: chance.one_in(10).then(|| draw_percent(chance)),
        replaces: None,
        cost: if chance.one_in(6) { chance.between(2, 3) } else { 1 },
    }
}

pub(crate) fn draw_mode(chance: &mut Chance) -> Mode {
    *chance.pick(&[Mode::ENFORCE, Mode::Shadow, Mode::Off])
}

pub(crate) fn draw_percent(chance: &mut Chance) -> u8 {
    *chance.pick(&[0, 50, 100])
}

fn draw_terms(chance: &mut Chance) -> Terms {
    const KINDS: [Kind; 6] = [
        Kind::TokenBucket { amount: 1, period: SECOND, burst: 1 },
        Kind::LeakyBucket { amount: 1, period: SECOND, queue: 1 },
        Kind::FixedWindow { limit: 1, window: Window::Every(SECOND), count_refused: false },
        Kind::SlidingLog { limit: 1, period: SECOND, count_refused: false },
        Kind::SlidingWindow {
            limit: 1,
            period: SECOND,
            buckets: 1,
            count_refused: false,
            rounds_down: false,
        },
        Kind::Concurrency { limit: 1, time_to_live: SECOND },
    ];
    let kind = *chance.pick(&KINDS);
    draw_terms_like(chance, Terms { kind, soft: None })
}

/// The same algorithm with other numbers.
fn draw_terms_like(chance: &mut Chance, terms: Terms) -> Terms {
    let period = draw_period(chance);
    let limit = draw_amount(chance);
    let count_refused = chance.one_in(5);
    let kind = match terms.kind {
        // Bytes per second: one unit takes less than a nanosecond.
        Kind::TokenBucket { .. } if chance.one_in(8) => {
            let amount = chance.between(1 << 20, 1 << 32);
            Kind::TokenBucket { amount, period, burst: chance.between(1, 1 << 20) }
        }
        Kind::TokenBucket { .. } => {
            Kind::TokenBucket { amount: limit, period, burst: draw_amount(chance) }
        }
        Kind::LeakyBucket { .. } => {
            Kind::LeakyBucket { amount: limit, period, queue: chance.up_to(20) }
        }
        Kind::FixedWindow { .. } => {
            let window = match chance.between(1, 8) {
                1 => Window::DayInTokyo,
                2 => Window::Week,
                _ => Window::Every(period),
            };
            Kind::FixedWindow { limit, window, count_refused }
        }
        Kind::SlidingLog { .. } => Kind::SlidingLog { limit, period, count_refused },
        Kind::SlidingWindow { .. } => {
            let buckets = if chance.one_in(3) { chance.between(2, 64) } else { 1 };
            let rounds_down = chance.one_in(3);
            Kind::SlidingWindow { limit, period, buckets, count_refused, rounds_down }
        }
        Kind::Concurrency { .. } => Kind::Concurrency { limit, time_to_live: period },
    };
    let soft = chance.one_in(4).then(|| SoftTerms {
        over_percent: chance.between(1, 150),
        lasting: chance.between(1, 10_000) * MILLISECOND,
    });
    Terms { kind, soft }
}

fn draw_amount(chance: &mut Chance) -> u64 {
    if chance.one_in(40) { 0 } else { chance.between(1, 20) }
}

fn draw_period(chance: &mut Chance) -> u64 {
    match chance.between(1, 10) {
        1 => 100 * MILLISECOND,
        2..=4 => SECOND,
        5 | 6 => 10 * SECOND,
        7 => MINUTE,
        8 => HOUR,
        _ => chance.between(1, 5_000) * MILLISECOND,
    }
}

/// All possible paths of rules.
fn ways(chance: &mut Chance) -> Vec<Vec<Level>> {
    let level = |key, values| Level { key, values };
    let v4 = |a, b, length| Network { address: IpAddr::V4(Ipv4Addr::new(a, b, 0, 0)), length };
    let v6 =
        Network { address: IpAddr::V6(Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, 0)), length: 32 };
    let mut shared = || chance.one_in(2);
    let tenant = || level("tenant", Values::Any);
    vec![
        vec![level("user", Values::Any)],
        vec![level("user", Values::Exactly("vip"))],
        vec![level("path", Values::Any)],
        vec![level("path", Values::Exactly("/api/health"))],
        vec![level("path", Values::Like { prefix: "/api/", shared: shared() })],
        vec![level("address", Values::Address)],
        vec![level("address", Values::Within { net: v4(10, 0, 8), shared: shared() })],
        vec![level("address", Values::Within { net: v4(10, 1, 16), shared: shared() })],
        vec![level("address", Values::Within { net: v6, shared: shared() })],
        vec![tenant()],
        vec![tenant(), level("route", Values::Any)],
        vec![tenant(), level("route", Values::Exactly("/export"))],
        vec![tenant(), level("route", Values::Like { prefix: "/r/", shared: shared() })],
        vec![level("account", Values::Any), level("plan", Values::PlanName)],
    ]
}
