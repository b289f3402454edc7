//! The accepted differences, each with a case that shows it.

use crate::programs::{Backend, Variables};

/// A difference from upstream that is accepted.
#[derive(Debug)]
pub struct Difference {
    /// What differs.
    pub what: &'static str,
    /// Why it does.
    pub why: &'static str,
    /// What upstream does in the case, as the comparison shows it.
    pub upstream: &'static str,
    /// What Tidegate does in the case, as the comparison shows it.
    pub tidegate: &'static str,
    pub(crate) case: Case,
}

/// Rules, an environment and requests that show a difference.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Case {
    /// The name of the rule file.
    pub(crate) file: &'static str,
    /// The descriptors of the domain `case`, in YAML.
    pub(crate) rules: &'static str,
    /// `{root}` stands for the runtime directory.
    pub(crate) variables: &'static Variables<'static>,
    pub(crate) backend: Backend,
    /// Requests, one after the other; see [`Ask::parse`](crate::ask::Ask::parse).
    pub(crate) asks: &'static [&'static str],
    pub(crate) shown: CaseView,
}

/// What a case looks at.
#[derive(Clone, Copy, Debug)]
pub(crate) enum CaseView {
    /// The code of the last answer, or its error.
    Code,
    /// The value at this pointer of the last answer.
    Member(&'static str),
    /// Whether the rules load, or the error in the log.
    Load,
    /// A statistic of the descriptor.
    Statistic(&'static str),
    /// Whether `/stats` has the counters of limits.
    StatsPage,
    /// Whether the process goes on after SIGHUP.
    HangUp,
}

const CASE: Case = Case {
    file: "case.yaml",
    rules: "",
    variables: &[],
    backend: Backend::Redis,
    asks: &[],
    shown: CaseView::Code,
};

const NEWER: &str = "Newer versions of upstream do as Tidegate does.";

/// The differences. Rows about newer versions exist because the newest version that can be built is compared.
pub const DIFFERENCES: &[Difference] = &[
    Difference {
        what: "Key `a_b` with value `c` matches a rule for key `a` with value `b_c`",
        why: "Upstream joins key and value with `_` and compares one string; Tidegate compares them separately.",
        upstream: "OVER_LIMIT",
        tidegate: "OK",
        case: Case {
            rules: "- {key: a, value: b_c, rate_limit: {unit: day, requests_per_unit: 0}}",
            asks: &["a_b=c"],
            ..CASE
        },
    },
    Difference {
        what: "`*` at the end of `key`",
        why: "A pattern in upstream, by accident of the joining; an ordinary character in Tidegate.",
        upstream: "OVER_LIMIT",
        tidegate: "OK",
        case: Case {
            rules: "- {key: 'a*', rate_limit: {unit: day, requests_per_unit: 0}}",
            asks: &["ab=c"],
            ..CASE
        },
    },
    Difference {
        what: "`*` within `value`",
        why: NEWER,
        upstream: "OK",
        tidegate: "OVER_LIMIT",
        case: Case {
            rules: "- {key: a, value: 'b*d', rate_limit: {unit: day, requests_per_unit: 0}}",
            asks: &["a=bcd"],
            ..CASE
        },
    },
    Difference {
        what: "The same key twice in a mapping",
        why: "The last one counts in upstream; one of them is a mistake, so Tidegate refuses the file.",
        upstream: "loaded",
        tidegate: "refused",
        case: Case {
            rules: "- {key: a, key: b, rate_limit: {unit: day, requests_per_unit: 0}}",
            shown: CaseView::Load,
            ..CASE
        },
    },
    Difference {
        what: "`requests_per_unit` beyond 32 bits",
        why: "Tidegate counts in 64 bits; answers show at most 32.",
        upstream: "error loading config file: yaml: unmarshal errors:\\n  line 3: cannot unmarshal !!int `5000000000` into uint32",
        tidegate: "loaded",
        case: Case {
            rules: "- {key: a, rate_limit: {unit: day, requests_per_unit: 5000000000}}",
            shown: CaseView::Load,
            ..CASE
        },
    },
    Difference {
        what: "`metadata` in rules",
        why: NEWER,
        upstream: "config error, unknown key 'metadata'",
        tidegate: "loaded",
        case: Case {
            rules: "- {key: a, metadata: {b: c}, rate_limit: {unit: day, requests_per_unit: 0}}",
            shown: CaseView::Load,
            ..CASE
        },
    },
    Difference {
        what: "The error of `share_threshold` without a pattern",
        why: NEWER,
        upstream: "share_threshold can only be used with wildcard values (ending with '*'), but found key 'a_b'",
        tidegate: "share_threshold can only be used with wildcard values (containing '*'), but found key 'a_b'",
        case: Case {
            rules: "- {key: a, value: b, share_threshold: true}",
            shown: CaseView::Load,
            ..CASE
        },
    },
    Difference {
        what: "Files whose names begin with `..`",
        why: "A mounted volume keeps its files there, and upstream reads them a second time.",
        upstream: "OVER_LIMIT",
        tidegate: "OK",
        case: Case {
            file: "..case.yaml",
            rules: "- {key: a, rate_limit: {unit: day, requests_per_unit: 0}}",
            asks: &["a=b"],
            ..CASE
        },
    },
    Difference {
        what: "`RUNTIME_SUBDIRECTORY` is empty",
        why: "Upstream then has no rules, without an error; Tidegate reads `RUNTIME_ROOT/RUNTIME_APPDIRECTORY`.",
        upstream: "OK",
        tidegate: "OVER_LIMIT",
        case: Case {
            rules: "- {key: a, rate_limit: {unit: day, requests_per_unit: 0}}",
            variables: &[("RUNTIME_ROOT", "{root}/ratelimit"), ("RUNTIME_SUBDIRECTORY", "")],
            asks: &["a=b"],
            ..CASE
        },
    },
    Difference {
        what: "A quota that is used up",
        why: NEWER,
        upstream: "OK",
        tidegate: "OVER_LIMIT",
        case: Case {
            rules: "- {key: a, quota_mode: true, rate_limit: {unit: day, requests_per_unit: 0}}",
            asks: &["a=b"],
            ..CASE
        },
    },
    Difference {
        what: "`QUOTA_MODE`, and all limits are used up",
        why: NEWER,
        upstream: "OK",
        tidegate: "OVER_LIMIT",
        case: Case {
            rules: "- {key: a, rate_limit: {unit: day, requests_per_unit: 0}}",
            variables: &[("QUOTA_MODE", "true")],
            asks: &["a=b"],
            ..CASE
        },
    },
    Difference {
        what: "`quotaModeEnabled` in dynamic metadata",
        why: NEWER,
        upstream: "false",
        tidegate: "absent",
        case: Case {
            rules: "- {key: a, rate_limit: {unit: day, requests_per_unit: 1}}",
            variables: &[("RESPONSE_DYNAMIC_METADATA", "true")],
            asks: &["a=b"],
            shown: CaseView::Member("/dynamicMetadata/quotaModeEnabled"),
            ..CASE
        },
    },
    Difference {
        what: "`is_negative_hits`: a hit that is given back",
        why: NEWER,
        upstream: "OVER_LIMIT",
        tidegate: "OK",
        case: Case {
            rules: "- {key: a, rate_limit: {unit: day, requests_per_unit: 1}}",
            asks: &["a=b", "a=b#-1", "a=b"],
            ..CASE
        },
    },
    Difference {
        what: "An override with an unknown unit",
        why: "One bad request must not end the process.",
        upstream: "the process ends",
        tidegate: "error 3",
        case: Case {
            rules: "- {key: a, rate_limit: {unit: day, requests_per_unit: 1}}",
            asks: &["a=b@5/UNKNOWN"],
            ..CASE
        },
    },
    Difference {
        what: "An override of a descriptor that has a rule, with counters in memory",
        why: "Upstream's counters do not know their limit, so both count together; on Redis Tidegate keeps upstream's counters.",
        upstream: "OVER_LIMIT",
        tidegate: "OK",
        case: Case {
            rules: "- {key: a, rate_limit: {unit: day, requests_per_unit: 1}}",
            backend: Backend::Memory,
            asks: &["a=b", "a=b@1/DAY"],
            ..CASE
        },
    },
    Difference {
        what: "`over_limit` of a request with 5 hits on a limit of 3",
        why: "Upstream counts the part above the limit as over, and the rest as near; Tidegate counts the whole request, which is what is refused.",
        upstream: "2",
        tidegate: "5",
        case: Case {
            rules: "- {key: a, rate_limit: {unit: day, requests_per_unit: 3}}",
            asks: &["a=b#5"],
            shown: CaseView::Statistic("ratelimit.service.rate_limit.case.a.over_limit"),
            ..CASE
        },
    },
    Difference {
        what: "`/stats` on the debug port",
        why: "Upstream's library of statistics no longer fills the page; Tidegate's has every counter, under upstream's names.",
        upstream: "without limits",
        tidegate: "with limits",
        case: Case {
            rules: "- {key: a, rate_limit: {unit: day, requests_per_unit: 3}}",
            asks: &["a=b"],
            shown: CaseView::StatsPage,
            ..CASE
        },
    },
    Difference {
        what: "SIGHUP",
        why: "Tidegate reads the rules and the configuration again.",
        upstream: "ends",
        tidegate: "goes on",
        case: Case {
            rules: "- {key: a, rate_limit: {unit: day, requests_per_unit: 3}}",
            shown: CaseView::HangUp,
            ..CASE
        },
    },
];
