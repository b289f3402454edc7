//! Random requests.

use crate::chance::Chance;
use crate::written_rules::{
    DrawnDescriptor, DrawnRequest, PLANS, Values, WrittenRule, WrittenRules,
};

/// The most descriptors of one request.
const DESCRIPTORS_MAX: u64 = 3;

/// Draws requests of a few known callers and of new ones.
#[derive(Clone, Debug)]
pub(crate) struct Traffic {
    callers: u64,
    /// The number of new callers so far.
    strangers: u64,
}

impl Traffic {
    pub(crate) const fn new(callers: u64) -> Self {
        Traffic { callers, strangers: 0 }
    }

    /// A request of a known caller.
    pub(crate) fn request(&self, chance: &mut Chance, rules: &WrittenRules) -> DrawnRequest {
        let caller = chance.between(0, self.callers.saturating_sub(1));
        draw(chance, rules, caller)
    }

    /// A request of a new caller.
    pub(crate) fn stranger(&mut self, chance: &mut Chance, rules: &WrittenRules) -> DrawnRequest {
        self.strangers += 1;
        draw(chance, rules, self.callers + self.strangers)
    }
}

fn draw(chance: &mut Chance, rules: &WrittenRules, caller: u64) -> DrawnRequest {
    let count = if chance.percent(75) { 1 } else { chance.between(0, DESCRIPTORS_MAX) };
    let mut descriptors: Vec<DrawnDescriptor> = (0..count)
        .map(|_| {
            let rule = chance.pick(&rules.rules);
            descriptor(chance, rule, caller)
        })
        .collect();
    // The same counter twice in one request.
    if chance.one_in(12)
        && let Some(first) = descriptors.first().cloned()
    {
        descriptors.push(first);
    }
    DrawnRequest { descriptors, cost: cost(chance) }
}

fn cost(chance: &mut Chance) -> u64 {
    match chance.between(1, 30) {
        1 => 0,
        2..=5 => chance.between(2, 6),
        6 => chance.up_to(1 << 20),
        7 if chance.one_in(10) => u64::MAX,
        _ => 1,
    }
}

fn descriptor(chance: &mut Chance, rule: &WrittenRule, caller: u64) -> DrawnDescriptor {
    let mut entries: Vec<(&'static str, String)> = rule
        .levels
        .iter()
        .map(|level| (level.key, value(chance, level.key, &level.values, caller)))
        .collect();
    match chance.between(1, 30) {
        1 => entries.truncate(entries.len().saturating_sub(1)),
        2 => entries.push(("further", "down".to_owned())),
        _ => {}
    }
    let own_cost = chance.one_in(20).then(|| cost(chance));
    (entries, own_cost)
}

/// Mostly a value that the level matches, otherwise one that another rule of the key may match.
fn value(chance: &mut Chance, key: &str, values: &Values, caller: u64) -> String {
    if chance.percent(75) {
        match values {
            Values::Exactly(value) => return (*value).to_owned(),
            Values::Like { prefix, .. } => return format!("{prefix}{caller}"),
            Values::Within { net, .. } if net.length == 16 => return in_ten(1, caller),
            Values::Within { net, .. } if net.length == 8 => return in_ten(2, caller),
            Values::Any | Values::PlanName | Values::Address | Values::Within { .. } => {}
        }
    }
    match key {
        "user" if chance.one_in(8) => "vip".to_owned(),
        "path" => chance.pick(&["/api/health".to_owned(), format!("/x/{caller}")]).clone(),
        "route" => chance.pick(&["/export".to_owned(), format!("/o/{caller}")]).clone(),
        "address" => address(chance, caller),
        // A caller's plan rarely changes.
        "plan" if chance.one_in(10) => (*chance.pick(&["free", "pro", "unheard-of"])).to_owned(),
        "plan" => PLANS[usize::from(caller.is_multiple_of(2))].to_owned(),
        _ => format!("{key}{caller}"),
    }
}

fn in_ten(second: u64, caller: u64) -> String {
    format!("10.{second}.{}.{}", caller / 256 % 256, caller % 256)
}

fn address(chance: &mut Chance, caller: u64) -> String {
    match chance.between(1, 6) {
        1 => in_ten(1, caller),
        2 => format!("::ffff:{}", in_ten(1, caller)),
        3 => format!("2001:db8:0:{:x}::{:x}", caller % 65_536, chance.between(1, 9)),
        4 => format!("2a00:0:0:{:x}::{:x}", caller % 65_536, chance.between(1, 9)),
        5 => "nowhere".to_owned(),
        _ => format!("192.0.{}.{}", caller / 256 % 256, caller % 256),
    }
}
