//! Numbers with other forms: workers, shares, percentages.

use serde_json::{Value, json};
use tidegate_document::{
    Bounds, Fault, Kind, PlainValue, Scalar, SettingKind, Share, kind, wrong_type,
};

/// How many threads serve.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Workers {
    /// One per core.
    #[default]
    Auto,
    /// This number.
    Count(u32),
}

impl Kind for Workers {
    fn words() -> String {
        "a whole number or `auto`".to_owned()
    }

    fn schema(bounds: &Bounds) -> Value {
        json!({"anyOf": [{"const": "auto"}, u32::schema(bounds)]})
    }

    fn parse(scalar: &Scalar<'_>, bounds: &Bounds) -> Result<Self, Fault> {
        if scalar.text == "auto" {
            return Ok(Workers::Auto);
        }
        match scalar.plain() {
            PlainValue::Integer(_) => u32::parse(scalar, bounds).map(Workers::Count),
            _ => Err(wrong_type::<Self>(scalar)),
        }
    }
}

impl SettingKind for Workers {
    fn show(&self) -> Value {
        match self {
            Workers::Auto => Value::from("auto"),
            Workers::Count(count) => Value::from(*count),
        }
    }
}

/// Declares a share that is written as a number; `$unit` is how many millionths the number 1 means.
macro_rules! share_kind {
    (
        $(#[$about:meta])+
        $name:ident, $unit:literal, $words:literal, $kind:literal, $hint:literal
    ) => {
        $(#[$about])+
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
        pub struct $name(Share);

        impl $name {
            /// In millionths of the whole; at most a million.
            pub const fn millionths(self) -> u32 {
                self.0.millionths()
            }
        }

        kind! {
            $name: $words,
            json!({"anyOf": [
                {"type": "number", "minimum": 0, "maximum": 1_000_000 / $unit},
                {"type": "string", "pattern": "^[0-9]{0,3}(\\.[0-9]*)?%?$"},
            ]}),
            |scalar| {
                let text = &*scalar.text;
                let share = match text.strip_suffix('%') {
                    Some(percent) => Share::parse_decimal(percent, 10_000),
                    None => Share::parse_decimal(text, $unit),
                };
                share.map($name).ok_or_else(|| {
                    Fault::new("invalid_share", format!("`{text}` is not {}", $kind)).hint($hint)
                })
            },
            show |share| share.0.show_decimal($unit)
        }
    };
}

share_kind! {
    /// A share of one.
    Ratio, 1_000_000, "a share such as `0.8` or `80%`", "a share of one",
    "write a number from 0 to 1 such as `0.8`, or a percentage such as `80%`"
}

share_kind! {
    /// A percentage.
    Percent, 10_000, "a percentage from 0 to 100", "a percentage", "write a number from 0 to 100"
}
