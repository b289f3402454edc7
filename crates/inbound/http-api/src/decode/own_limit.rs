//! A limit that a request brings along.

use std::borrow::Cow;
use std::time::Duration;

use serde::de::{Error, MapAccess};
use tidegate_engine::{FixedWindow, Limit, Period, Unit, Window};

use super::object::{Object, number, required, some_number, some_text};

/// So much in each window.
#[derive(Debug)]
pub(super) struct OwnLimit(Limit);

impl OwnLimit {
    pub(super) fn into_limit(self) -> Limit {
        self.0
    }
}

#[derive(Debug, Default)]
pub(super) struct LimitDraft<'a> {
    requests_per_unit: Option<u64>,
    unit: Option<Cow<'a, str>>,
    per_ms: Option<u64>,
}

impl<'a> Object<'a> for OwnLimit {
    type Draft = LimitDraft<'a>;
    const CALLED: &'static str =
        "a limit: an object with `requests_per_unit`, and `unit` or `per_ms`";
    const FIELDS: &'static [&'static str] = &["requests_per_unit", "unit", "per_ms"];

    fn fill<A: MapAccess<'a>>(
        draft: &mut Self::Draft,
        field: usize,
        map: &mut A,
    ) -> Result<(), A::Error> {
        match field {
            0 => draft.requests_per_unit = Some(number(map)?),
            1 => draft.unit = some_text(map)?,
            _ => draft.per_ms = some_number(map)?,
        }
        Ok(())
    }

    fn finish<E: Error>(draft: Self::Draft) -> Result<Self, E> {
        let amount = required(draft.requests_per_unit, "requests_per_unit")?;
        let period = match (draft.unit, draft.per_ms) {
            (Some(unit), None) => Unit::from_word(&unit).map(Unit::period).ok_or_else(|| {
                let words = Unit::WORDS.join(", ");
                E::custom(format!("there is no unit `{unit}`; there are: {words}"))
            })?,
            (None, Some(per)) => Period::new(Duration::from_millis(per)).map_err(E::custom)?,
            _ => return Err(E::custom("a limit has either `unit` or `per_ms`")),
        };
        Ok(OwnLimit(Limit::new(FixedWindow::new(amount, Window::Every(period)))))
    }
}
