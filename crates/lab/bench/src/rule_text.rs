//! Rule files of any size: tenants, paths of each tenant, users of each path.

use std::fmt::Write;

use tidegate_engine::{Entry, Options, Snapshot, Source, compile};

use crate::keys::{KEY_BYTES, write_key};
use crate::requests::RequestValues;

/// The domain of all rules here.
pub(crate) const DOMAIN: &str = "bench";
/// The length of a tenant's and of a path's name.
pub(crate) const NAME_BYTES: usize = 8;

/// The key of the only entry of a request to a server.
pub(crate) const USER: &str = "user";

const PATHS_PER_TENANT: u64 = 10;

/// The limits of each rule.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Limits {
    /// One, as short as possible.
    One,
    /// Two that never refuse in the time of a run.
    Two,
}

impl Limits {
    const fn text(self) -> &'static str {
        match self {
            Limits::One => "            rate_limit: {unit: second, requests_per_unit: 10}\n",
            Limits::Two => concat!(
                "            limits:\n",
                "              - {name: short, algorithm: token_bucket, unit: minute, ",
                "requests_per_unit: 1, burst: 30000000}\n",
                "              - {name: long, algorithm: token_bucket, per: 10m, ",
                "requests_per_unit: 10, burst: 30000000}\n",
            ),
        }
    }
}

/// The tenant that the rule with this number is for.
pub(crate) fn tenant_of(rule: u64) -> String {
    format!("t{:07}", rule / PATHS_PER_TENANT)
}

/// The path that the rule with this number is for.
pub(crate) fn path_of(rule: u64) -> String {
    format!("/p{:06}", rule % PATHS_PER_TENANT)
}

/// A rule file with this many rules, each at the third level of the tree.
pub(crate) fn rule_text(rules: u64, limits: Limits) -> String {
    let mut text = format!("domain: {DOMAIN}\ndescriptors:\n");
    for rule in 0..rules {
        let (tenant, path) = (tenant_of(rule), path_of(rule));
        if rule % PATHS_PER_TENANT == 0 {
            let _ = writeln!(text, "  - key: tenant\n    value: {tenant}\n    descriptors:");
        }
        let _ = writeln!(text, "      - key: path\n        value: {path}\n        descriptors:");
        text.push_str("          - key: user\n");
        text.push_str(limits.text());
    }
    text
}

/// A rule file with a rule for each of this many users and one for all others.
///
/// Each limit is a window of a day, as in rules of envoyproxy/ratelimit; no run uses it up or
/// lasts longer.
pub(crate) fn user_rules(users: u64) -> String {
    let limit = "    rate_limit: {unit: day, requests_per_unit: 4294967295}\n";
    let mut text = format!("domain: {DOMAIN}\ndescriptors:\n  - key: {USER}\n{limit}");
    for user in 0..users {
        let _ = write!(text, "  - key: {USER}\n    value: \"");
        write_key(user, KEY_BYTES, &mut text);
        let _ = write!(text, "\"\n{limit}");
    }
    text
}

/// A rule file with one rule for all users, whose limit has these keys.
pub(crate) fn one_rule(limit: &str) -> String {
    format!("domain: {DOMAIN}\ndescriptors:\n  - key: {USER}\n    rate_limit: {{{limit}}}\n")
}

/// Compiles a rule file.
///
/// # Errors
/// When the text is invalid, which would be a bug of this module.
pub(crate) fn compiled(text: String) -> anyhow::Result<Snapshot> {
    let sources = [Source::new("bench.yaml", text)];
    compile(&sources, &Options::default()).map_err(|report| anyhow::anyhow!("{report}"))
}

/// The entries of a request.
#[inline]
pub(crate) const fn entries<'a>(asked: &RequestValues<'a>) -> [Entry<'a>; 3] {
    [
        Entry { key: "tenant", value: asked.tenant },
        Entry { key: "path", value: asked.path },
        Entry { key: "user", value: asked.user },
    ]
}

#[cfg(test)]
mod tests {
    use tidegate_engine::Timestamp;

    use super::*;

    fn found(rules: u64, limits: Limits, rule: u64) -> Option<(String, usize)> {
        let snapshot = compiled(rule_text(rules, limits)).unwrap();
        let asked =
            RequestValues { tenant: &tenant_of(rule), path: &path_of(rule), user: "somebody" };
        let found = snapshot.domain(DOMAIN)?.find(&entries(&asked), Timestamp::EPOCH)?;
        Some((found.rule.path().to_owned(), snapshot.limits_of(found.rule).len()))
    }

    #[test]
    fn a_request_meets_the_rule_with_its_number() {
        let path = "tenant_t0000004.path_/p000002.user";
        assert_eq!(found(100, Limits::One, 42), Some((path.to_owned(), 1)));
        assert_eq!(found(100, Limits::Two, 42), Some((path.to_owned(), 2)));
        assert_eq!(found(100, Limits::One, 100), None);
    }

    #[test]
    fn a_file_has_as_many_rules_as_asked_for() {
        let snapshot = compiled(rule_text(100, Limits::Two)).unwrap();
        assert_eq!(snapshot.limits().len(), 200);
    }

    #[test]
    fn one_rule_limits_every_user_by_itself() {
        let snapshot = compiled(one_rule("unit: second, requests_per_unit: 5")).unwrap();
        let found = snapshot
            .domain(DOMAIN)
            .unwrap()
            .find(&[Entry { key: USER, value: "a" }], Timestamp::EPOCH);
        assert_eq!(found.unwrap().rule.path(), USER);
        assert_eq!(snapshot.limits().len(), 1);
    }

    #[test]
    fn a_user_has_a_rule_and_strangers_share_one() {
        let snapshot = compiled(user_rules(10)).unwrap();
        let rule_of = |user: u64| {
            let mut value = String::new();
            write_key(user, KEY_BYTES, &mut value);
            let found = snapshot
                .domain(DOMAIN)?
                .find(&[Entry { key: USER, value: &value }], Timestamp::EPOCH)?;
            Some(found.rule.path().to_owned())
        };
        assert_eq!(rule_of(10), rule_of(11));
        assert_ne!(rule_of(9), rule_of(10));
        assert_ne!(rule_of(9), rule_of(8));
        assert!(rule_of(10).is_some());
    }
}
