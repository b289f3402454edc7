//! One limit, as `rate_limit` or as an item of `limits`.

use jiff::tz::{TimeZone, TimeZoneDatabase};
use tidegate_algorithms::{
    Algorithm, Concurrency, FixedWindow, LeakyBucket, Limit, Period, SlidingLog, SlidingWindow,
    Soft, TokenBucket, Window,
};
use tidegate_document::{
    Bounds, Fault, Given, Item, Located, NodeKind, Reader, Shape, closest, did_you_mean, one_of,
};

use super::{LimitText, Terms};
use crate::choices::{AlgorithmName, Unit, WhenOver};
use crate::table::{LimitKeys, ReplacedKeys, SoftKeys, algorithms_of};

/// How long a slot is held at most when the rule does not say.
const TIME_TO_LIVE: Period = Period::MINUTE;

/// The limits of a `limits` list.
#[derive(Debug)]
pub(crate) struct LimitList(pub(crate) Vec<LimitText>);

impl Item for LimitList {
    const IS_SCALAR: bool = false;

    fn shape(bounds: &Bounds) -> Shape {
        <Vec<LimitText> as Item>::shape(bounds)
    }

    fn read(reader: &mut Reader<'_, '_>, given: &Given) -> Option<Self> {
        let limits: Vec<LimitText> = Item::read(reader, given)?;
        let yaml = reader.yaml();
        if matches!(yaml.node(given.node).kind, NodeKind::Sequence(items) if yaml.items(items).is_empty())
        {
            let fault = Fault::new("no_limits", "`limits` has no limit")
                .hint("remove it, or add a limit such as `{unit: second, requests_per_unit: 10}`");
            reader.error_at(given.key_location, fault);
        }
        if limits.len() > 1 {
            for unlimited in limits.iter().filter(|limit| limit.terms.is_none()) {
                let fault = Fault::new("unlimited_among_limits", "`unlimited` beside other limits")
                    .hint("an unlimited rule has no other limits: remove one or the other");
                reader.error_at(unlimited.location, fault);
            }
        }
        Some(LimitList(limits))
    }
}

impl Item for LimitText {
    const IS_SCALAR: bool = false;

    fn shape(bounds: &Bounds) -> Shape {
        <LimitKeys as Item>::shape(bounds)
    }

    fn read(reader: &mut Reader<'_, '_>, given: &Given) -> Option<Self> {
        let mut keys = LimitKeys::read(reader, given)?;
        let name = keys.name.take().map(|name| name.0).filter(|name| !name.is_empty());
        let replaces = replaces(reader, std::mem::take(&mut keys.replaces), name.as_deref());
        let terms = if keys.unlimited.unwrap_or_default() {
            refuse_terms(reader, &keys);
            None
        } else {
            Some(terms(reader, &keys)?)
        };
        Some(LimitText { location: keys.keys.location, name, replaces, terms })
    }
}

fn replaces(
    reader: &mut Reader<'_, '_>,
    items: Vec<Located<ReplacedKeys>>,
    own: Option<&str>,
) -> Vec<Located<String>> {
    let mut names = Vec::new();
    for item in items {
        let name = match item.value.name {
            Some(name) => name.0,
            None if item.value.keys.has("name") => continue,
            None => String::new(),
        };
        if name.is_empty() {
            let fault = Fault::new("empty_name", "an item of `replaces` names no limit")
                .hint("write `replaces: [{name: NAME}]`")
                .compat("should not have an empty replaces entry");
            reader.error_at(item.location, fault);
        } else if Some(name.as_str()) == own {
            let fault = Fault::new("replaces_itself", format!("limit `{name}` replaces itself"))
                .hint("name another limit")
                .compat("replaces should not contain name of same descriptor");
            reader.error_at(item.location, fault);
        } else {
            names.push(Located { value: name, location: item.location, key: item.key });
        }
    }
    names
}

/// Reports the keys that have no meaning together with `unlimited`.
fn refuse_terms(reader: &mut Reader<'_, '_>, keys: &LimitKeys) {
    for given in keys.keys.iter() {
        let name = given.key.name;
        match name {
            "unlimited" | "name" | "replaces" => {}
            "unit" if keys.unit.as_ref().is_some_and(|unit| unit.value.unit().is_some()) => {
                let fault = Fault::new("unit_of_unlimited", "`unlimited` has no `unit`")
                    .hint("remove one of them")
                    .compat("should not specify rate limit unit when unlimited");
                reader.error_at(given.key_location, fault);
            }
            "unit" | "requests_per_unit" => {
                let message = format!("`{name}` has no effect together with `unlimited`");
                let fault = Fault::new("no_effect", message).hint("remove it");
                reader.warn_at(given.key_location, fault);
            }
            _ => {
                let message = format!("`{name}` has no meaning together with `unlimited`");
                let fault = Fault::new("key_without_meaning", message).hint("remove it");
                reader.error_at(given.key_location, fault);
            }
        }
    }
}

fn terms(reader: &mut Reader<'_, '_>, keys: &LimitKeys) -> Option<Terms> {
    let is_misspelt = keys.algorithm.is_none() && keys.keys.has("algorithm");
    let name = keys.algorithm.unwrap_or(AlgorithmName::FixedWindow);
    if !is_misspelt {
        refuse_keys_of_other_algorithms(reader, keys, name);
    }
    // Every part is read before any is missed, so that all problems are reported.
    let amount = amount(reader, keys);
    let (unit, time) = time(reader, keys, name);
    let algorithm = algorithm(reader, keys, name, amount, time);
    let soft =
        keys.keys.has("soft").then(|| keys.soft.as_ref().and_then(|keys| soft(reader, keys)));
    let mut limit = Limit::new(algorithm?);
    if let Some(soft) = soft {
        limit = limit.with_soft(soft?);
    }
    Some(Terms {
        limit,
        says_count_refused: keys.keys.has("count_refused"),
        unit,
        mode: keys.mode.map(|mode| mode.0),
        enforce_percent: keys.enforce_percent.and_then(|percent| u8::try_from(percent).ok()),
        on_store_error: keys.on_store_error.map(|word| word.0).unwrap_or_default(),
        consistency: keys.consistency.map(|word| word.0).unwrap_or_default(),
        when_over: keys.when_over.unwrap_or(WhenOver::Refuse),
        refusal_status: keys.refusal_status,
        cost: keys.cost.unwrap_or(1),
    })
}

fn refuse_keys_of_other_algorithms(
    reader: &mut Reader<'_, '_>,
    keys: &LimitKeys,
    chosen: AlgorithmName,
) {
    for given in keys.keys.iter() {
        let algorithms = algorithms_of(given.key);
        if algorithms.is_empty() || algorithms.contains(&chosen) {
            continue;
        }
        let words: Vec<&str> = algorithms.iter().map(|name| name.as_str()).collect();
        let message = format!("`{}` has no meaning for `{}`", given.key.name, chosen.as_str());
        let hint = format!("remove it, or choose `algorithm`: {}", one_of(&words));
        let fault = Fault::new("key_without_meaning", message).hint(hint);
        reader.error_at(given.key_location, fault);
    }
}

fn amount(reader: &mut Reader<'_, '_>, keys: &LimitKeys) -> Option<u64> {
    if keys.keys.has("requests_per_unit") {
        return keys.requests_per_unit;
    }
    let fault =
        Fault::new("zero_limit", "a limit without `requests_per_unit` refuses every request")
            .hint("add `requests_per_unit`; write 0 if that is intended");
    reader.warn_at(keys.keys.location, fault);
    Some(0)
}

/// A length of time or a unit of the calendar.
enum Time {
    Every(Period),
    Calendar(Window),
}

/// The unit as written, and the time that the limit is per. None when absent or faulty; the fault is reported.
fn time(
    reader: &mut Reader<'_, '_>,
    keys: &LimitKeys,
    algorithm: AlgorithmName,
) -> (Option<Unit>, Option<Time>) {
    let unit = unit(reader, keys);
    let calendar = keys.calendar.unwrap_or_default();
    let zone = zone(reader, keys, calendar);
    if algorithm == AlgorithmName::Concurrency {
        return (None, None);
    }
    match (keys.keys.get("unit"), keys.keys.get("per")) {
        (Some(_), Some(per)) => {
            let fault = Fault::new("unit_and_per", "`unit` and `per` exclude each other")
                .hint("remove one of them");
            reader.error_at(per.key_location, fault);
            (unit, None)
        }
        (None, None) => {
            let fault = Fault::new("no_unit", "the limit has no unit of time")
                .hint(format!("add `unit`: {}; or `per`, such as `5m`", one_of(Unit::WORDS)))
                .compat("invalid rate limit unit ''");
            reader.error_at(keys.keys.location, fault);
            (None, None)
        }
        (None, Some(per)) if calendar => {
            let message = "`calendar` needs `unit` instead of `per`";
            let fault = Fault::new("calendar_without_unit", message)
                .hint("use `unit`: `day`, `week`, `month` or `year`");
            reader.error_at(per.key_location, fault);
            (unit, None)
        }
        (Some(given), None) if calendar => {
            let window = unit.and_then(|unit| {
                if unit.calendar().is_none() {
                    let message = format!("the calendar has no `{}`", unit.as_str());
                    let fault = Fault::new("calendar_without_unit", message)
                        .hint("use `unit`: `day`, `week`, `month` or `year`; or remove `calendar`");
                    reader.error_at(given.location, fault);
                }
                unit.calendar().zip(zone).map(|(unit, zone)| Window::Calendar(unit, zone))
            });
            (unit, window.map(Time::Calendar))
        }
        (Some(_), None) | (None, Some(_)) => {
            let period = unit.map(Unit::period).or_else(|| keys.per.map(|per| per.0));
            (unit, period.map(Time::Every))
        }
    }
}

fn unit(reader: &mut Reader<'_, '_>, keys: &LimitKeys) -> Option<Unit> {
    let text = keys.unit.as_ref()?;
    let unit = text.value.unit();
    if unit.is_none() {
        let word = &text.value.0;
        let hint = did_you_mean(word, Unit::WORDS.iter().copied()).unwrap_or_else(|| {
            let words = one_of(Unit::WORDS);
            format!("it can be {words}; for other lengths use `per`, such as `5m`")
        });
        let fault = Fault::new("unknown_unit", format!("`{word}` is not a unit of time"))
            .hint(hint)
            .compat(format!("invalid rate limit unit '{word}'"));
        reader.error_at(text.location, fault);
    }
    unit
}

/// The calendar's time zone. None when faulty.
fn zone(reader: &mut Reader<'_, '_>, keys: &LimitKeys, calendar: bool) -> Option<TimeZone> {
    if !keys.keys.has("time_zone") {
        return Some(TimeZone::UTC);
    }
    let Located { value: name, location, key } = keys.time_zone.as_ref()?;
    if !calendar {
        let fault = Fault::new("key_without_meaning", "`time_zone` needs `calendar: true`")
            .hint("add `calendar: true`, or remove `time_zone`");
        reader.error_at(*key, fault);
    }
    // The bundled database only: rules mean the same on every machine.
    let database = TimeZoneDatabase::bundled();
    if let Ok(zone) = database.get(&name.0) {
        return Some(zone);
    }
    let names: Vec<String> = database.available().map(|name| name.to_string()).collect();
    let hint = match closest(&name.0, names.iter().map(String::as_str)) {
        Some(name) => format!("did you mean `{name}`?"),
        None => "use a name such as `Europe/Berlin`".to_owned(),
    };
    let message = format!("unknown time zone `{}`", name.0);
    reader.error_at(*location, Fault::new("unknown_time_zone", message).hint(hint));
    None
}

fn algorithm(
    reader: &mut Reader<'_, '_>,
    keys: &LimitKeys,
    name: AlgorithmName,
    amount: Option<u64>,
    time: Option<Time>,
) -> Option<Algorithm> {
    let count_refused = keys.count_refused.unwrap_or_default();
    let amount = amount?;
    if name == AlgorithmName::Concurrency {
        let time_to_live = keys.time_to_live.map_or(TIME_TO_LIVE, |interval| interval.0);
        let slots = Concurrency::new(amount, time_to_live);
        return slots
            .map(Algorithm::from)
            .map_err(|error| refuse_parameter(reader, keys, &error.to_string()))
            .ok();
    }
    let period = match (name, time?) {
        (AlgorithmName::FixedWindow, time) => {
            let window = match time {
                Time::Every(period) => Window::Every(period),
                Time::Calendar(window) => window,
            };
            let window = FixedWindow::new(amount, window).counting_refused(count_refused);
            return Some(window.into());
        }
        (_, Time::Every(period)) => period,
        // Reported already: `calendar` has no meaning for this algorithm.
        (_, Time::Calendar(_)) => return None,
    };
    let made = match name {
        AlgorithmName::TokenBucket => {
            return Some(TokenBucket::new(amount, period, keys.burst.unwrap_or(amount)).into());
        }
        AlgorithmName::LeakyBucket => {
            return Some(LeakyBucket::new(amount, period, keys.queue.unwrap_or(amount)).into());
        }
        AlgorithmName::SlidingLog => SlidingLog::new(amount, period)
            .map(|log| Algorithm::from(log.counting_refused(count_refused))),
        AlgorithmName::SlidingWindow => {
            let slices = keys.buckets.and_then(|buckets| u16::try_from(buckets).ok());
            SlidingWindow::new(amount, period, slices.unwrap_or(1))
                .map(|window| Algorithm::from(window.counting_refused(count_refused)))
        }
        AlgorithmName::FixedWindow | AlgorithmName::Concurrency => return None,
    };
    made.map_err(|error| refuse_parameter(reader, keys, &error.to_string())).ok()
}

fn refuse_parameter(reader: &mut Reader<'_, '_>, keys: &LimitKeys, message: &str) {
    let location = keys.keys.value_location("requests_per_unit");
    reader.error_at(location, Fault::new("out_of_range", message));
}

fn soft(reader: &mut Reader<'_, '_>, soft: &Located<SoftKeys>) -> Option<Soft> {
    let keys = &soft.value;
    if !keys.keys.has("over") || !keys.keys.has("for") {
        let fault = Fault::new("incomplete_soft", "`soft` needs `over` and `for`")
            .hint("write `soft: {over: 20%, for: 30s}`");
        reader.error_at(soft.key, fault);
    }
    Some(Soft { over_percent: keys.over?.0, lasting: keys.lasting?.0 })
}
