//! Random rules and requests, without what is known to differ.

use std::fmt::Write as _;

use crate::ask::{Ask, AskDescriptor};

/// Numbers from a seed (`SplitMix64`).
#[derive(Clone, Debug)]
pub(crate) struct Random(u64);

impl Random {
    pub(crate) fn new(seed: u64) -> Self {
        // Mixed once, so that the numbers of adjacent seeds are not the same ones, shifted.
        Random(Random(seed ^ 0x71DE_6A7E).next())
    }

    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        mixed ^ (mixed >> 31)
    }

    /// A number below `end`.
    pub(crate) fn below(&mut self, end: u64) -> u64 {
        self.next() % end
    }

    /// True once in `times`.
    pub(crate) fn once_in(&mut self, times: u64) -> bool {
        self.below(times) == 0
    }

    pub(crate) fn pick<'p>(&mut self, from: &[&'p str]) -> &'p str {
        let index = usize::try_from(self.below(from.len() as u64)).unwrap_or_default();
        from.get(index).copied().unwrap_or_default()
    }
}

/// Long enough that no window ends during a comparison.
const UNITS: [&str; 7] = ["hour", "HOUR", "day", "Day", "week", "month", "year"];
const KEYS: [&str; 4] = ["user", "path", "plan", "client:ip"];
const VALUES: [&str; 6] = ["ann", "bob", "bobby", "10.0.0.1", "a|b", "x y"];
const PATTERNS: [&str; 4] = ["*", "b*", "bob*", "10.*"];
const NAMES: [&str; 4] = ["one", "two", "three", "four"];
/// Overrides have keys of their own, each with one unit, because upstream's counters do not know the unit.
const OVERRIDES: [(&str, i32); 3] = [("hourly", 3), ("daily", 4), ("yearly", 6)];

/// The rule file of a domain.
pub(crate) fn rules(random: &mut Random, domain: &str) -> String {
    let mut text = format!("domain: \"{domain}\"\ndescriptors:\n");
    descriptors(random, &mut text, 1);
    text
}

fn descriptors(random: &mut Random, text: &mut String, depth: usize) {
    let indent = "  ".repeat(depth);
    let mut known = Vec::new();
    for _ in 0..1 + random.below(4) {
        let (key, kind) = (random.pick(&KEYS), random.below(4));
        let value = match kind {
            0 => "",
            1 => random.pick(&PATTERNS),
            _ => random.pick(&VALUES),
        };
        if known.contains(&(key, value)) {
            continue;
        }
        known.push((key, value));
        let _ = writeln!(text, "{indent}- key: \"{key}\"");
        if !value.is_empty() {
            let _ = writeln!(text, "{indent}  value: \"{value}\"");
        }
        for (flag, times) in
            [("shadow_mode", 5), ("quota_mode", 6), ("detailed_metric", 5), ("value_to_metric", 5)]
        {
            if random.once_in(times) {
                let _ = writeln!(text, "{indent}  {flag}: true");
            }
        }
        if value.ends_with('*') && random.once_in(2) {
            let _ = writeln!(text, "{indent}  share_threshold: true");
        }
        if !random.once_in(5) {
            let is_quota = text.lines().rev().take(6).any(|line| line.contains("quota_mode"));
            limit(random, text, &indent, is_quota);
        }
        if depth < 3 && random.once_in(3) {
            let _ = writeln!(text, "{indent}  descriptors:");
            descriptors(random, text, depth + 1);
        }
    }
}

fn limit(random: &mut Random, text: &mut String, indent: &str, is_quota: bool) {
    let _ = writeln!(text, "{indent}  rate_limit:");
    if random.once_in(7) {
        let _ = writeln!(text, "{indent}    unlimited: true");
    } else {
        // A quota that is used up differs from upstream's older ones; see the list.
        let quota = match random.below(8) {
            _ if is_quota => 1_000_000,
            0 => 4_294_967_295,
            amount => amount - 1,
        };
        let unit = random.pick(&UNITS);
        let _ = writeln!(text, "{indent}    unit: {unit}\n{indent}    requests_per_unit: {quota}");
    }
    let name = random.once_in(3).then(|| random.pick(&NAMES));
    if let Some(name) = name {
        let _ = writeln!(text, "{indent}    name: {name}");
    }
    let replaced = random.pick(&NAMES);
    if random.once_in(5) && name != Some(replaced) {
        let _ = writeln!(text, "{indent}    replaces: [{{name: {replaced}}}]");
    }
}

/// A request for a domain. `hits_max` is the most that a descriptor costs.
pub(crate) fn ask(random: &mut Random, domain: &str, hits_max: u64) -> Ask {
    if random.once_in(60) {
        return Ask { domain: domain.to_owned(), ..Ask::default() };
    }
    let domain = if random.once_in(60) {
        String::new()
    } else if random.once_in(30) {
        format!("{domain}-unknown")
    } else {
        domain.to_owned()
    };
    let descriptors = (0..1 + random.below(4)).map(|_| descriptor(random, hits_max)).collect();
    let hits = if random.once_in(3) { random.below(hits_max + 1) } else { 0 };
    Ask { domain, hits: u32::try_from(hits).unwrap_or_default(), descriptors }
}

fn descriptor(random: &mut Random, hits_max: u64) -> AskDescriptor {
    let hits = random.once_in(3).then(|| random.below(hits_max + 1));
    if random.once_in(8) {
        let index = usize::try_from(random.below(OVERRIDES.len() as u64)).unwrap_or_default();
        let (key, unit) = OVERRIDES.get(index).copied().unwrap_or_default();
        let entries = vec![(key.to_owned(), value(random))];
        let quota = u32::try_from(random.below(6)).unwrap_or_default();
        return AskDescriptor { entries, limit: Some((quota, unit)), hits, negative: false };
    }
    let count = if random.once_in(30) { 0 } else { 1 + random.below(3) };
    let entries = (0..count).map(|_| (random.pick(&KEYS).to_owned(), value(random))).collect();
    AskDescriptor { entries, limit: None, hits, negative: false }
}

fn value(random: &mut Random) -> String {
    if random.once_in(12) { String::new() } else { random.pick(&VALUES).to_owned() }
}
