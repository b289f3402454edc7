//! One limit, as `rate_limit` or as an item of `limits`.

use jiff::tz::{TimeZone, TimeZoneDatabase};
use tidegate_algorithms::{
    Algorithm, Concurrency, FixedWindow, LeakyBucket, Limit, Period, SlidingLog, SlidingWindow,
    Soft, TokenBucket, Window,
};

use super::reader::{Field, Fields, Reader};
use super::{LimitText, Placed, Terms};
use crate::choices::{
    AlgorithmName, Consistency, Mode, OnStoreError, RefusalStatus, Unit, WhenOver,
};
use crate::diagnostics::{Fault, Spot, closest, one_of};
use crate::vocabulary::Place;
use crate::yaml::NodeId;

/// The most that a soft limit can be exceeded by, in percent.
const SOFT_PERCENT_MAX: u32 = 1000;

/// How long a slot is held at most when the rule does not say.
const TIME_TO_LIVE: Period = Period::MINUTE;

/// The limits of a `limits` list.
pub(crate) fn read_list(reader: &mut Reader<'_, '_>, list: Field) -> Vec<LimitText> {
    let items = reader.items(list);
    if items.is_empty() {
        let fault = Fault::new("no_limits", "`limits` holds no limit")
            .hint("leave it out, or give a limit such as `{unit: second, requests_per_unit: 10}`");
        reader.error(list.key_id, fault);
    }
    let limits: Vec<LimitText> = items.iter().filter_map(|item| read(reader, *item)).collect();
    if limits.len() > 1 {
        for unlimited in limits.iter().filter(|limit| limit.terms.is_none()) {
            let fault = Fault::new("unlimited_among_limits", "`unlimited` stands beside limits")
                .hint("an unlimited rule has no other limits: remove one or the other");
            reader.error_at(unlimited.spot, fault);
        }
    }
    limits
}

/// One limit.
pub(crate) fn read(reader: &mut Reader<'_, '_>, id: NodeId) -> Option<LimitText> {
    let fields = reader.fields(id, Place::Limit);
    let name = fields
        .get("name")
        .and_then(|field| reader.text(field))
        .map(|name| name.what)
        .filter(|name| !name.is_empty());
    let replaces = replaces(reader, &fields, name.as_deref());
    let unlimited = reader.flag(&fields, "unlimited");
    let terms = if unlimited {
        refuse_terms(reader, &fields);
        None
    } else {
        Some(terms(reader, &fields)?)
    };
    Some(LimitText { spot: fields.spot, name, replaces, terms })
}

fn replaces(
    reader: &mut Reader<'_, '_>,
    fields: &Fields,
    own: Option<&str>,
) -> Vec<Placed<String>> {
    let Some(list) = fields.get("replaces") else {
        return Vec::new();
    };
    let mut names = Vec::new();
    for item in reader.items(list) {
        let fields = reader.fields(item, Place::Replaced);
        let name = match fields.get("name") {
            Some(field) => match reader.text(field) {
                Some(name) => name.what,
                None => continue,
            },
            None => String::new(),
        };
        if name.is_empty() {
            let fault = Fault::new("empty_name", "an item of `replaces` names no limit")
                .hint("write `replaces: [{name: NAME}]`")
                .compat("should not have an empty replaces entry");
            reader.error(item, fault);
        } else if Some(name.as_str()) == own {
            let fault = Fault::new("replaces_itself", format!("limit `{name}` replaces itself"))
                .hint("name another limit")
                .compat("replaces should not contain name of same descriptor");
            reader.error(item, fault);
        } else {
            names.push(Placed { what: name, spot: reader.yaml.spot(item) });
        }
    }
    names
}

/// Says which keys have no meaning beside `unlimited`.
fn refuse_terms(reader: &mut Reader<'_, '_>, fields: &Fields) {
    for field in fields.iter() {
        let name = field.key.name;
        match name {
            "unlimited" | "name" | "replaces" => {}
            "unit" => {
                let Some(written) = reader.text(field) else {
                    continue;
                };
                if unit_of(&written.what).is_some() {
                    let fault = Fault::new("unit_of_unlimited", "`unlimited` has no `unit`")
                        .hint("remove one of the two")
                        .compat("should not specify rate limit unit when unlimited");
                    reader.error(field.key_id, fault);
                } else {
                    warn_no_effect(reader, field);
                }
            }
            "requests_per_unit" => {
                reader.count(fields, name);
                warn_no_effect(reader, field);
            }
            _ => {
                let message = format!("`{name}` has no meaning beside `unlimited`");
                let fault = Fault::new("key_without_meaning", message).hint("remove it");
                reader.error(field.key_id, fault);
            }
        }
    }
}

fn warn_no_effect(reader: &mut Reader<'_, '_>, field: Field) {
    let message = format!("`{}` has no effect beside `unlimited`", field.key.name);
    reader.warn(field.key_id, Fault::new("no_effect", message).hint("remove it"));
}

fn terms(reader: &mut Reader<'_, '_>, fields: &Fields) -> Option<Terms> {
    let written =
        reader.choice(fields, "algorithm", AlgorithmName::WORDS, AlgorithmName::from_word);
    let misspelt = written.is_none() && fields.get("algorithm").is_some();
    let name = written.map_or(AlgorithmName::FixedWindow, |written| written.what);
    if !misspelt {
        refuse_other_algorithms_keys(reader, fields, name);
    }
    // Every part is read before any is missed, so that all faults are told.
    let amount = amount(reader, fields);
    let (unit, time) = time(reader, fields, name);
    let algorithm = algorithm(reader, fields, name, amount, time);
    let soft = fields.get("soft").map(|field| soft(reader, field));
    let mode = reader.choice(fields, "mode", Mode::WORDS, Mode::from_word);
    let enforce_percent = reader.count(fields, "enforce_percent");
    let on_store_error =
        reader.choice(fields, "on_store_error", OnStoreError::WORDS, OnStoreError::from_word);
    let consistency =
        reader.choice(fields, "consistency", Consistency::WORDS, Consistency::from_word);
    let when_over = reader.choice(fields, "when_over", WhenOver::WORDS, WhenOver::from_word);
    let refusal_status =
        reader.choice(fields, "refusal_status", RefusalStatus::WORDS, RefusalStatus::from_word);
    let cost = reader.count(fields, "cost").unwrap_or(1);

    let mut limit = Limit::new(algorithm?);
    if let Some(soft) = soft {
        limit = limit.with_soft(soft?);
    }
    Some(Terms {
        limit,
        says_count_refused: fields.get("count_refused").is_some(),
        unit,
        mode: mode.map(|mode| mode.what),
        enforce_percent: enforce_percent.and_then(|percent| u8::try_from(percent).ok()),
        on_store_error: on_store_error.map_or(OnStoreError::Local, |choice| choice.what),
        consistency: consistency.map_or(Consistency::Exact, |choice| choice.what),
        when_over: when_over.map_or(WhenOver::Refuse, |choice| choice.what),
        refusal_status: refusal_status.map(|choice| choice.what),
        cost,
    })
}

fn refuse_other_algorithms_keys(
    reader: &mut Reader<'_, '_>,
    fields: &Fields,
    chosen: AlgorithmName,
) {
    for field in fields.iter() {
        let for_algorithms = field.key.algorithms;
        if for_algorithms.is_empty() || for_algorithms.contains(&chosen) {
            continue;
        }
        let (name, chosen) = (field.key.name, chosen.as_str());
        let words: Vec<&str> = for_algorithms.iter().map(|name| name.as_str()).collect();
        let message = format!("`{name}` has no meaning for `{chosen}`");
        let hint = format!("remove it, or choose `algorithm`: {}", one_of(&words));
        reader.error(field.key_id, Fault::new("key_without_meaning", message).hint(hint));
    }
}

fn amount(reader: &mut Reader<'_, '_>, fields: &Fields) -> Option<u64> {
    if fields.get("requests_per_unit").is_some() {
        return reader.count(fields, "requests_per_unit");
    }
    let fault =
        Fault::new("zero_limit", "a limit without `requests_per_unit` refuses every request")
            .hint("add `requests_per_unit`; write 0 if that is meant");
    reader.warn_at(fields.spot, fault);
    Some(0)
}

/// A length of time or a unit of the calendar.
enum Time {
    Every(Period),
    Calendar(Window),
}

/// The unit as written, and the time that the limit is per. None when absent
/// or faulty; the fault is told.
fn time(
    reader: &mut Reader<'_, '_>,
    fields: &Fields,
    algorithm: AlgorithmName,
) -> (Option<Unit>, Option<Time>) {
    let unit = unit(reader, fields);
    let per = reader.duration(fields, "per");
    let calendar = reader.flag(fields, "calendar");
    let zone = zone(reader, fields, calendar);
    let (has_unit, has_per) = (fields.get("unit"), fields.get("per"));
    if algorithm == AlgorithmName::Concurrency {
        return (None, None);
    }
    if let (Some(_), Some(field)) = (has_unit, has_per) {
        let fault = Fault::new("unit_and_per", "`unit` and `per` both say how long")
            .hint("keep one of the two");
        reader.error(field.key_id, fault);
        return (unit, None);
    }
    if has_unit.is_none() && has_per.is_none() {
        let fault = Fault::new("no_unit", "the limit does not say per what time")
            .hint(format!("add `unit`: {}; or `per`, such as `5m`", one_of(Unit::WORDS)))
            .compat("invalid rate limit unit ''");
        reader.error_at(fields.spot, fault);
        return (None, None);
    }
    if !calendar {
        let period = unit.map(Unit::period).or_else(|| per.map(|per| per.what));
        return (unit, period.map(Time::Every));
    }
    if let Some(field) = has_per {
        let fault = Fault::new("calendar_without_unit", "`calendar` goes with `unit`, not `per`")
            .hint("use `unit`: `day`, `week`, `month` or `year`");
        reader.error(field.key_id, fault);
        return (unit, None);
    }
    let window = unit.and_then(|unit| match (unit.calendar(), has_unit) {
        (Some(calendar), _) => zone.map(|zone| Time::Calendar(Window::Calendar(calendar, zone))),
        (None, Some(field)) => {
            let message = format!("the calendar does not know `{}`", unit.as_str());
            let fault = Fault::new("calendar_without_unit", message)
                .hint("use `unit`: `day`, `week`, `month` or `year`; or remove `calendar`");
            reader.error(field.value, fault);
            None
        }
        (None, None) => None,
    });
    (unit, window)
}

fn unit_of(word: &str) -> Option<Unit> {
    Unit::from_word(&word.to_ascii_lowercase())
}

fn unit(reader: &mut Reader<'_, '_>, fields: &Fields) -> Option<Unit> {
    let field = fields.get("unit")?;
    let written = reader.text(field)?.what;
    let unit = unit_of(&written);
    if unit.is_none() {
        let near = closest(&written, Unit::WORDS.iter().copied());
        let hint = match near {
            Some(word) => format!("did you mean `{word}`?"),
            None => format!(
                "it can be {}; for other lengths use `per`, such as `5m`",
                one_of(Unit::WORDS)
            ),
        };
        let fault = Fault::new("unknown_unit", format!("`{written}` is no unit of time"))
            .hint(hint)
            .compat(format!("invalid rate limit unit '{written}'"));
        reader.error(field.value, fault);
    }
    unit
}

/// The calendar's time zone. None when faulty.
fn zone(reader: &mut Reader<'_, '_>, fields: &Fields, calendar: bool) -> Option<TimeZone> {
    let Some(field) = fields.get("time_zone") else {
        return Some(TimeZone::UTC);
    };
    let written = reader.text(field)?.what;
    if !calendar {
        let fault = Fault::new("key_without_meaning", "`time_zone` goes with `calendar: true`")
            .hint("add `calendar: true`, or remove `time_zone`");
        reader.error(field.key_id, fault);
    }
    // The bundled database only: rules mean the same on every machine.
    let database = TimeZoneDatabase::bundled();
    if let Ok(zone) = database.get(&written) {
        return Some(zone);
    }
    let names: Vec<String> = database.available().map(|name| name.to_string()).collect();
    let hint = match closest(&written, names.iter().map(String::as_str)) {
        Some(name) => format!("did you mean `{name}`?"),
        None => "use a name such as `Europe/Berlin`".to_owned(),
    };
    let fault =
        Fault::new("unknown_time_zone", format!("no time zone is called `{written}`")).hint(hint);
    reader.error(field.value, fault);
    None
}

fn algorithm(
    reader: &mut Reader<'_, '_>,
    fields: &Fields,
    name: AlgorithmName,
    amount: Option<u64>,
    time: Option<Time>,
) -> Option<Algorithm> {
    let count_refused = reader.flag(fields, "count_refused");
    let burst = reader.count(fields, "burst");
    let queue = reader.count(fields, "queue");
    let buckets = reader.count(fields, "buckets");
    let time_to_live = reader.duration(fields, "time_to_live");
    let amount = amount?;
    if name == AlgorithmName::Concurrency {
        let time_to_live = time_to_live.map_or(TIME_TO_LIVE, |period| period.what);
        let slots = Concurrency::new(amount, time_to_live);
        return slots
            .map(Algorithm::from)
            .map_err(|error| refuse_parameter(reader, fields, &error.to_string()))
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
        // Told already: `calendar` has no meaning for this algorithm.
        (_, Time::Calendar(_)) => return None,
    };
    let made = match name {
        AlgorithmName::TokenBucket => {
            return Some(TokenBucket::new(amount, period, burst.unwrap_or(amount)).into());
        }
        AlgorithmName::LeakyBucket => {
            return Some(LeakyBucket::new(amount, period, queue.unwrap_or(amount)).into());
        }
        AlgorithmName::SlidingLog => SlidingLog::new(amount, period)
            .map(|log| Algorithm::from(log.counting_refused(count_refused))),
        AlgorithmName::SlidingWindow => {
            let slices = buckets.and_then(|buckets| u16::try_from(buckets).ok());
            SlidingWindow::new(amount, period, slices.unwrap_or(1))
                .map(|window| Algorithm::from(window.counting_refused(count_refused)))
        }
        AlgorithmName::FixedWindow | AlgorithmName::Concurrency => return None,
    };
    made.map_err(|error| refuse_parameter(reader, fields, &error.to_string())).ok()
}

fn refuse_parameter(reader: &mut Reader<'_, '_>, fields: &Fields, message: &str) {
    let spot: Spot =
        fields.get("requests_per_unit").map_or(fields.spot, |field| reader.yaml.spot(field.value));
    reader.error_at(spot, Fault::new("out_of_range", message));
}

fn soft(reader: &mut Reader<'_, '_>, field: Field) -> Option<Soft> {
    let fields = reader.mapping(field, Place::Soft)?;
    let over = fields.get("over").map(|over| percent(reader, over));
    let lasting = reader.duration(&fields, "for");
    if over.is_none() || fields.get("for").is_none() {
        let fault = Fault::new("incomplete_soft", "`soft` needs both `over` and `for`")
            .hint("write `soft: {over: 20%, for: 30s}`");
        reader.error(field.key_id, fault);
    }
    Some(Soft { over_percent: over??, lasting: lasting?.what })
}

fn percent(reader: &mut Reader<'_, '_>, field: Field) -> Option<u32> {
    let written = reader.text(field)?.what;
    let percent = written
        .strip_suffix('%')
        .and_then(|number| number.parse::<u32>().ok())
        .filter(|percent| (1..=SOFT_PERCENT_MAX).contains(percent));
    if percent.is_none() {
        let message = format!("`{written}` is no share between 1% and {SOFT_PERCENT_MAX}%");
        let fault = Fault::new("invalid_percent", message).hint("write it as `20%`");
        reader.error(field.value, fault);
    }
    percent
}
