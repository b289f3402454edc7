//! One limit, as `rate_limit` or as an item of `limits`.

use jiff::tz::{TimeZone, TimeZoneDatabase};
use tidegate_algorithms::{
    Algorithm, Concurrency, FixedWindow, LeakyBucket, Limit, Period, SlidingLog, SlidingWindow,
    Soft, TokenBucket, Window,
};
use tidegate_document::{
    Bounds, Fault, GivenKey, Item, LocatedValue, Reader, Shape, did_you_mean, one_of,
};

use super::{LimitText, Terms, is_empty_list};
use crate::choices::{AlgorithmName, Unit, WhenOver};
use crate::table::{LimitKeys, ReplacedKeys, SoftKeys, algorithms_of};

/// How long a slot is held at most when the rule does not say.
const TIME_TO_LIVE: Period = Period::MINUTE;

/// The limits of a `limits` list.
#[derive(Debug)]
pub(crate) struct LimitList(pub(crate) Vec<LimitText>);

impl Item for LimitList {
    fn shape(bounds: &Bounds) -> Shape {
        <Vec<LimitText> as Item>::shape(bounds)
    }

    fn read(reader: &mut Reader<'_, '_>, given: &GivenKey) -> Option<Self> {
        let limits: Vec<LimitText> = Item::read(reader, given)?;
        if is_empty_list(reader, given) {
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
    fn shape(bounds: &Bounds) -> Shape {
        <LimitKeys as Item>::shape(bounds)
    }

    fn read(reader: &mut Reader<'_, '_>, given: &GivenKey) -> Option<Self> {
        let mut keys = LimitKeys::read(reader, given)?;
        let name = keys.name.take().map(|name| name.0).filter(|name| !name.is_empty());
        let replaces = std::mem::take(&mut keys.replaces).into_iter();
        let replaces =
            replaces.filter_map(|item| replaced(reader, item, name.as_deref())).collect();
        let terms = if keys.unlimited.unwrap_or_default() {
            keys.refuse_terms(reader);
            None
        } else {
            Some(keys.terms(reader)?)
        };
        let requests_per_unit = keys.requests_per_unit.unwrap_or_default();
        Some(LimitText { location: keys.keys.location, name, replaces, terms, requests_per_unit })
    }
}

/// The name of a limit that the limit called `own` replaces.
fn replaced(
    reader: &mut Reader<'_, '_>,
    item: LocatedValue<ReplacedKeys>,
    own: Option<&str>,
) -> Option<LocatedValue<String>> {
    if item.value.name.is_none() && item.value.keys.has("name") {
        return None;
    }
    let item = item.map(|keys| keys.name.map(|name| name.0).unwrap_or_default());
    let fault = if item.value.is_empty() {
        Fault::new("empty_name", "an item of `replaces` names no limit")
            .hint("write `replaces: [{name: NAME}]`")
            .compat("should not have an empty replaces entry")
    } else if Some(item.value.as_str()) == own {
        Fault::new("replaces_itself", format!("limit `{}` replaces itself", item.value))
            .hint("name another limit")
            .compat("replaces should not contain name of same descriptor")
    } else {
        return Some(item);
    };
    reader.error_at(item.location, fault);
    None
}

impl LimitKeys {
    /// Reports the keys that have no meaning together with `unlimited`.
    fn refuse_terms(&self, reader: &mut Reader<'_, '_>) {
        for given in self.keys.iter() {
            let name = given.key.name;
            match name {
                "unlimited" | "name" | "replaces" => {}
                "unit" if self.unit.as_ref().is_some_and(|unit| unit.value.unit().is_some()) => {
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

    fn terms(&self, reader: &mut Reader<'_, '_>) -> Option<Terms> {
        let is_misspelt = self.algorithm.is_none() && self.keys.has("algorithm");
        let name = self.algorithm.unwrap_or(AlgorithmName::FixedWindow);
        if !is_misspelt {
            self.refuse_keys_of_other_algorithms(reader, name);
        }
        // Every part is read before a missing one ends the reading, so that all problems are reported.
        let amount = self.amount(reader);
        let unit = self.unit(reader);
        let window = self.window(reader, name, unit);
        let algorithm = self.algorithm(reader, name, amount, window);
        let soft = self.soft.as_ref().map(|keys| soft(reader, keys));
        let mut limit = Limit::new(algorithm?);
        if self.keys.has("soft") {
            limit = limit.with_soft(soft.flatten()?);
        }
        Some(Terms {
            limit,
            says_count_refused: self.keys.has("count_refused"),
            unit: unit.filter(|_| name != AlgorithmName::Concurrency),
            mode: self.mode.map(|mode| mode.0),
            enforce_percent: self.enforce_percent.and_then(|percent| u8::try_from(percent).ok()),
            on_store_error: self.on_store_error.map(|word| word.0),
            consistency: self.consistency.map(|word| word.0).unwrap_or_default(),
            when_over: self.when_over.unwrap_or(WhenOver::Refuse),
            refusal_status: self.refusal_status,
            cost: self.cost.unwrap_or(1),
        })
    }

    fn refuse_keys_of_other_algorithms(&self, reader: &mut Reader<'_, '_>, chosen: AlgorithmName) {
        for given in self.keys.iter() {
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

    fn amount(&self, reader: &mut Reader<'_, '_>) -> Option<u64> {
        if self.keys.has("requests_per_unit") {
            return self.requests_per_unit;
        }
        let message = "a limit without `requests_per_unit` refuses every request";
        let fault = Fault::new("zero_limit", message)
            .hint("add `requests_per_unit`; write 0 if that is intended");
        reader.warn_at(self.keys.location, fault);
        Some(0)
    }

    /// The unit as written. None when absent or faulty; the fault is reported.
    fn unit(&self, reader: &mut Reader<'_, '_>) -> Option<Unit> {
        let text = self.unit.as_ref()?;
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

    /// The time that the limit is per. None when absent or faulty; the fault is reported.
    fn window(
        &self,
        reader: &mut Reader<'_, '_>,
        algorithm: AlgorithmName,
        unit: Option<Unit>,
    ) -> Option<Window> {
        let is_calendar = self.calendar.unwrap_or_default();
        let zone = self.zone(reader, is_calendar);
        if algorithm == AlgorithmName::Concurrency {
            return None;
        }
        let (location, fault) = match (self.keys.get("unit"), self.keys.get("per")) {
            (Some(_), Some(per)) => {
                let fault = Fault::new("unit_and_per", "`unit` and `per` exclude each other")
                    .hint("remove one of them");
                (per.key_location, fault)
            }
            (None, None) => {
                let fault = Fault::new("no_unit", "the limit has no unit of time")
                    .hint(format!("add `unit`: {}; or `per`, such as `5m`", one_of(Unit::WORDS)))
                    .compat("invalid rate limit unit ''");
                (self.keys.location, fault)
            }
            (None, Some(per)) if is_calendar => {
                let message = "`calendar` needs `unit` instead of `per`";
                let fault = Fault::new("calendar_without_unit", message)
                    .hint("use `unit`: `day`, `week`, `month` or `year`");
                (per.key_location, fault)
            }
            (None, Some(_)) => return self.per.map(|per| Window::Every(per.0)),
            (Some(_), None) if !is_calendar => {
                return unit.map(|unit| Window::Every(unit.period()));
            }
            (Some(given), None) => {
                let unit = unit?;
                if let Some(calendar) = unit.calendar() {
                    return zone.map(|zone| Window::Calendar(calendar, zone));
                }
                let message = format!("the calendar has no `{}`", unit.as_str());
                let fault = Fault::new("calendar_without_unit", message)
                    .hint("use `unit`: `day`, `week`, `month` or `year`; or remove `calendar`");
                (given.location, fault)
            }
        };
        reader.error_at(location, fault);
        None
    }

    /// The calendar's time zone. None when faulty.
    fn zone(&self, reader: &mut Reader<'_, '_>, is_calendar: bool) -> Option<TimeZone> {
        if !self.keys.has("time_zone") {
            return Some(TimeZone::UTC);
        }
        let LocatedValue { value: name, location, key } = self.time_zone.as_ref()?;
        if !is_calendar {
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
        let hint = did_you_mean(&name.0, names.iter().map(String::as_str))
            .unwrap_or_else(|| "use a name such as `Europe/Berlin`".to_owned());
        let message = format!("unknown time zone `{}`", name.0);
        reader.error_at(*location, Fault::new("unknown_time_zone", message).hint(hint));
        None
    }

    fn algorithm(
        &self,
        reader: &mut Reader<'_, '_>,
        name: AlgorithmName,
        amount: Option<u64>,
        window: Option<Window>,
    ) -> Option<Algorithm> {
        let count_refused = self.count_refused.unwrap_or_default();
        let rounding = self.rounding.map(|word| word.0).unwrap_or_default();
        let amount = amount?;
        let made = match (name, window) {
            (AlgorithmName::Concurrency, _) => {
                let time_to_live = self.time_to_live.map_or(TIME_TO_LIVE, |interval| interval.0);
                Concurrency::new(amount, time_to_live).map(Algorithm::from)
            }
            (_, None) => return None,
            (AlgorithmName::FixedWindow, Some(window)) => {
                Ok(FixedWindow::new(amount, window).counting_refused(count_refused).into())
            }
            // Reported already: `calendar` has no meaning for the other algorithms.
            (_, Some(Window::Calendar(..))) => return None,
            (AlgorithmName::TokenBucket, Some(Window::Every(period))) => {
                Ok(TokenBucket::new(amount, period, self.burst.unwrap_or(amount)).into())
            }
            (AlgorithmName::LeakyBucket, Some(Window::Every(period))) => {
                Ok(LeakyBucket::new(amount, period, self.queue.unwrap_or(amount)).into())
            }
            (AlgorithmName::SlidingLog, Some(Window::Every(period))) => {
                SlidingLog::new(amount, period)
                    .map(|log| log.counting_refused(count_refused).into())
            }
            (AlgorithmName::SlidingWindow, Some(Window::Every(period))) => {
                let slices = self.buckets.and_then(|buckets| u16::try_from(buckets).ok());
                SlidingWindow::new(amount, period, slices.unwrap_or(1))
                    .map(|window| window.counting_refused(count_refused).rounded(rounding).into())
            }
        };
        let refuse = |error: tidegate_algorithms::ParameterError| {
            let location = self.keys.value_location("requests_per_unit");
            reader.error_at(location, Fault::new("out_of_range", error.to_string()));
        };
        made.map_err(refuse).ok()
    }
}

fn soft(reader: &mut Reader<'_, '_>, soft: &LocatedValue<SoftKeys>) -> Option<Soft> {
    let keys = &soft.value;
    if !keys.keys.has("over") || !keys.keys.has("for") {
        let fault = Fault::new("incomplete_soft", "`soft` needs `over` and `for`")
            .hint("write `soft: {over: 20%, for: 30s}`");
        reader.error_at(soft.key, fault);
    }
    Some(Soft { over_percent: keys.over?.0, lasting: keys.lasting?.0 })
}
