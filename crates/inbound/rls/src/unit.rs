//! Units of time by the numbers and names of Envoy's proto files.

use tidegate_engine::Unit;

/// The number of a unit; zero if a limit has none.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct UnitNumber(u8);

/// By number. `WEEK` was added last, so the numbers are not in the order of length.
const UNITS: [(Option<Unit>, &str); 8] = [
    (None, "UNKNOWN"),
    (Some(Unit::Second), "SECOND"),
    (Some(Unit::Minute), "MINUTE"),
    (Some(Unit::Hour), "HOUR"),
    (Some(Unit::Day), "DAY"),
    (Some(Unit::Month), "MONTH"),
    (Some(Unit::Year), "YEAR"),
    (Some(Unit::Week), "WEEK"),
];

impl UnitNumber {
    /// The unit of a number.
    pub(super) fn read(number: i32) -> Option<Unit> {
        let index = usize::try_from(number).ok()?;
        UNITS.get(index).and_then(|(unit, _)| *unit)
    }

    /// The number of a name.
    pub(super) fn of_name(name: &str) -> Option<i32> {
        (0..).zip(UNITS).find(|(_, (_, known))| *known == name).map(|(number, _)| number)
    }

    /// The number of a unit.
    #[inline]
    pub(super) const fn of(unit: Option<Unit>) -> Self {
        UnitNumber(match unit {
            None => 0,
            Some(Unit::Second) => 1,
            Some(Unit::Minute) => 2,
            Some(Unit::Hour) => 3,
            Some(Unit::Day) => 4,
            Some(Unit::Month) => 5,
            Some(Unit::Year) => 6,
            Some(Unit::Week) => 7,
        })
    }

    /// The number.
    pub(super) const fn get(self) -> u8 {
        self.0
    }

    /// The name.
    pub(super) fn name(self) -> &'static str {
        UNITS.get(usize::from(self.0)).map_or("UNKNOWN", |(_, name)| name)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_names_and_units_agree() {
        for (number, (unit, name)) in (0..).zip(UNITS) {
            assert_eq!(UnitNumber::read(number), unit);
            assert_eq!(UnitNumber::of_name(name), Some(number));
            assert_eq!(i32::from(UnitNumber::of(unit).get()), number);
            assert_eq!(UnitNumber::of(unit).name(), name);
        }
        assert_eq!(UnitNumber::read(8), None);
        assert_eq!(UnitNumber::read(-1), None);
        assert_eq!(UnitNumber::of_name("FORTNIGHT"), None);
    }
}
