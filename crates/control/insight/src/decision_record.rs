//! One line of the decision log: everything that is needed to decide the request again.

use std::borrow::Cow;

use serde::{Deserialize, Serialize};
use tidegate_words::words;

/// One decision, as the log has it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct DecisionRecord<'a> {
    /// The instant by which the limits decided, in nanoseconds since 1970.
    pub time_ns: u64,
    /// Counts the decisions that were to be logged, from 0; a gap means lost lines.
    pub sequence: u64,
    /// The domain.
    pub domain: Cow<'a, str>,
    /// The descriptors.
    pub descriptors: Vec<RecordedDescriptor<'a>>,
    /// The cost of descriptors without their own.
    #[serde(default = "one", skip_serializing_if = "is_one")]
    pub cost: u64,
    /// What was asked for.
    #[serde(default, skip_serializing_if = "RecordedVerb::is_check")]
    pub verb: RecordedVerb,
    /// The version of the rules, in hexadecimal digits.
    pub rules: Cow<'a, str>,
    /// The answer.
    pub verdict: RecordedVerdict,
    /// The limits that refused, in shadow too.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub refused_by: Vec<RecordedLimit<'a>>,
    /// One of this many decisions is logged.
    #[serde(default = "one", skip_serializing_if = "is_one")]
    pub one_of: u64,
    /// Whether values of callers are hashed.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub hashed: bool,
}

/// One descriptor.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct RecordedDescriptor<'a> {
    /// Keys and values, in order.
    pub entries: Vec<(Cow<'a, str>, Cow<'a, str>)>,
    /// Its cost, if it has its own.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cost: Option<u64>,
    /// Whether its cost was refunded.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub refund: bool,
    /// Whether the request brought its own limit, which the log does not have.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub own_limit: bool,
}

/// A limit that refused.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct RecordedLimit<'a> {
    /// The path of the rule.
    pub rule: Cow<'a, str>,
    /// The limit's name, or its position from 1.
    pub limit: Cow<'a, str>,
    /// Whether it is in shadow, so that the request passed.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub shadow: bool,
}

macro_rules! serde_words {
    ($($name:ident),+) => {$(
        impl Serialize for $name {
            fn serialize<S: serde::Serializer>(&self, out: S) -> Result<S::Ok, S::Error> {
                out.serialize_str(self.as_str())
            }
        }

        impl<'de> Deserialize<'de> for $name {
            fn deserialize<D: serde::Deserializer<'de>>(input: D) -> Result<Self, D::Error> {
                let word = Cow::<'de, str>::deserialize(input)?;
                $name::from_word(&word).ok_or_else(|| {
                    serde::de::Error::unknown_variant(&word, $name::WORDS)
                })
            }
        }
    )+};
}

words! {
    /// What a request asked for.
    #[derive(Default)]
    pub enum RecordedVerb {
        /// Decide, and charge if admitted.
        #[default]
        Check = "check",
        /// Charge what is left, up to the cost.
        Take = "take",
        /// Charge, also beyond the limit.
        Charge = "charge",
        /// Give back.
        Refund = "refund",
        /// Forget the counters.
        Reset = "reset",
    }
}

words! {
    /// The answer to a request.
    pub enum RecordedVerdict {
        /// It passed.
        Admitted = "admitted",
        /// It was refused.
        Refused = "refused",
        /// The store could not decide, and the request passed.
        UndecidedAdmitted = "undecided_admitted",
        /// The store could not decide, and the request was refused.
        UndecidedRefused = "undecided_refused",
        /// Everything was switched off.
        SwitchedOff = "switched_off",
    }
}

serde_words!(RecordedVerb, RecordedVerdict);

impl RecordedVerb {
    fn is_check(&self) -> bool {
        *self == RecordedVerb::Check
    }
}

const fn one() -> u64 {
    1
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde passes a reference")]
const fn is_one(number: &u64) -> bool {
    *number == 1
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_record_survives_json_and_leaves_out_what_is_usual() {
        let entries = vec![("user".into(), "a\"b\n".into())];
        let record = DecisionRecord {
            time_ns: 1_800_000_000_123_456_789,
            sequence: 7,
            domain: "api".into(),
            descriptors: vec![RecordedDescriptor { entries, ..RecordedDescriptor::default() }],
            cost: 1,
            verb: RecordedVerb::Check,
            rules: "00ff".into(),
            verdict: RecordedVerdict::Refused,
            refused_by: vec![RecordedLimit {
                rule: "user".into(),
                limit: "1".into(),
                shadow: false,
            }],
            one_of: 1,
            hashed: false,
        };
        let text = serde_json::to_string(&record).unwrap();
        let expected = concat!(
            r#"{"time_ns":1800000000123456789,"sequence":7,"domain":"api","#,
            r#""descriptors":[{"entries":[["user","a\"b\n"]]}],"rules":"00ff","#,
            r#""verdict":"refused","refused_by":[{"rule":"user","limit":"1"}]}"#,
        );
        assert_eq!(text, expected);
        assert_eq!(serde_json::from_str::<DecisionRecord<'_>>(&text).unwrap(), record);
    }
}
