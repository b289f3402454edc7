//! From the document to routes: what they match, where they lead, what limits them.

use tidegate_document::{Fault, GivenKeys, Problems, ScalarOr, one_of};

use super::callers::{ValueKeys, value};
use super::kinds::{CostWord, MethodName, MissingWord};
use super::table::{CostKeys, DescriptorKeys, EntryKeys, HeaderEditKeys, RouteKeys};
use super::upstreams::timeouts;
use super::{header_name, networks, put, strings};
use crate::settings::{
    AnswerSettings, CostSettings, DescriptorSettings, EntrySettings, HeaderEdit, PathMatch,
    PathRewrite, RouteSettings, UpstreamSettings, WhenMissing,
};

pub(super) fn route(
    keys: RouteKeys,
    groups: &[UpstreamSettings],
    problems: &mut Problems<'_>,
) -> RouteSettings {
    keys.keys.exclude_each_other(&["path", "template"], problems);
    let rewrite = rewrite(&keys, problems);
    let name = keys.name.map(String::from).unwrap_or_default();
    let upstreams = keys.upstreams.map(String::from).unwrap_or_default();
    let mut settings = RouteSettings::new(name, upstreams);
    settings.hosts = strings(keys.hosts);
    put(&mut settings.path, keys.path.map(|path| PathMatch::Prefix(path.0)));
    put(&mut settings.path, keys.template.map(|path| PathMatch::Template(path.0)));
    settings.methods = keys.methods.into_iter().map(|MethodName(method)| method).collect();
    settings.rewrite = rewrite;
    put(&mut settings.host_header, keys.host_header);
    settings.request_headers = edits(keys.request_headers, problems);
    settings.response_headers = edits(keys.response_headers, problems);
    settings.templates = strings(keys.templates);
    settings.descriptors =
        keys.descriptors.into_iter().map(|keys| descriptor(keys, problems)).collect();
    put(&mut settings.cost, cost(keys.cost, problems));
    if let Some(answers) = keys.answers {
        let (json, html) = (answers.json.map(String::from), answers.html.map(String::from));
        let refusal_status = answers.refusal_status;
        settings.answers = AnswerSettings { json, html, refusal_status };
    }
    if let Some(keys) = keys.timeouts {
        let group = groups.iter().find(|group| group.name == settings.upstreams);
        let inherited = group.map(|group| group.timeouts).unwrap_or_default();
        settings.timeouts = Some(timeouts(keys, inherited));
    }
    settings.allow = networks(keys.allow);
    settings.deny = networks(keys.deny);
    settings.escaped_slashes = keys.escaped_slashes;
    put(&mut settings.exempt, keys.exempt);
    settings
}

fn rewrite(keys: &RouteKeys, problems: &mut Problems<'_>) -> PathRewrite {
    let strips = keys.strip_prefix.unwrap_or(false);
    let replaced = keys.replace_prefix.as_ref();
    if strips {
        keys.keys.exclude_each_other(&["strip_prefix", "replace_prefix"], problems);
    }
    if keys.template.is_some() && (strips || replaced.is_some()) {
        let key = if strips { "strip_prefix" } else { "replace_prefix" };
        let fault = Fault::new("exclusive", "a template has no prefix to remove")
            .hint("use `path` instead of `template`, or keep the whole path");
        problems.error(keys.keys.value_location(key), fault);
        return PathRewrite::Keep;
    }
    match replaced {
        Some(prefix) => PathRewrite::ReplacePrefix(prefix.0.clone()),
        None if strips => PathRewrite::StripPrefix,
        None => PathRewrite::Keep,
    }
}

fn edits(edits: Vec<HeaderEditKeys>, problems: &mut Problems<'_>) -> Vec<HeaderEdit> {
    edits.into_iter().filter_map(|keys| edit(keys, problems)).collect()
}

fn edit(keys: HeaderEditKeys, problems: &mut Problems<'_>) -> Option<HeaderEdit> {
    const EDITS: [&str; 3] = ["set", "add", "remove"];
    keys.keys.exclude_each_other(&EDITS, problems);
    let Some(edit) = EDITS.into_iter().find(|edit| keys.keys.has(edit)) else {
        let fault = Fault::new("missing_key", "this changes no header field");
        problems.error(keys.keys.location, fault.hint(format!("give {}", one_of(&EDITS))));
        return None;
    };
    match (edit, keys.keys.has("value")) {
        ("remove", true) => {
            let fault = Fault::new("exclusive", "`remove` takes no `value`");
            problems.error(keys.keys.value_location("value"), fault.hint("remove `value`"));
        }
        ("set" | "add", false) => {
            let fault = Fault::new("missing_key", format!("`{edit}` needs a `value`"));
            problems.error(keys.keys.value_location(edit), fault);
        }
        _ => {}
    }
    let value = keys.value.map(|value| value.0);
    if let Some(name) = keys.set {
        return Some(HeaderEdit::Set(header_name(&name)?, value?));
    }
    if let Some(name) = keys.add {
        return Some(HeaderEdit::Add(header_name(&name)?, value?));
    }
    header_name(&keys.remove?).map(HeaderEdit::Remove)
}

fn descriptor(keys: DescriptorKeys, problems: &mut Problems<'_>) -> DescriptorSettings {
    let entries = keys.entries.into_iter().filter_map(|keys| entry(keys, problems)).collect();
    DescriptorSettings { entries, cost: cost(keys.cost, problems) }
}

fn entry(keys: EntryKeys, problems: &mut Problems<'_>) -> Option<EntrySettings> {
    check_default(&keys, problems);
    let value = value(
        ValueKeys {
            keys: &keys.keys,
            from: keys.from,
            value: keys.value,
            name: keys.name,
            v4_bits: keys.v4_bits,
            v6_bits: keys.v6_bits,
        },
        problems,
    )?;
    let mut entry = EntrySettings::new(keys.key?.0, value);
    entry.when_missing = match (keys.default, keys.when_missing) {
        (Some(text), _) => Some(WhenMissing::Use(text.0)),
        (None, word) => word.and_then(|word| match word {
            MissingWord::Skip | MissingWord::SkipDescriptor => Some(WhenMissing::SkipDescriptor),
            MissingWord::SkipEntry => Some(WhenMissing::SkipEntry),
            MissingWord::Reject => Some(WhenMissing::Reject),
            MissingWord::Default => None,
        }),
    };
    Some(entry)
}

/// `default` alone means `when_missing: default`; both must agree.
fn check_default(keys: &EntryKeys, problems: &mut Problems<'_>) {
    let word = keys.when_missing;
    if word == Some(MissingWord::Default) && !keys.keys.has("default") {
        let fault = Fault::new("missing_key", "`when_missing: default` needs `default`")
            .hint("such as `default: anonymous`");
        problems.error(keys.keys.value_location("when_missing"), fault);
    } else if word.is_some_and(|word| word != MissingWord::Default) {
        keys.keys.exclude_each_other(&["when_missing", "default"], problems);
    }
}

fn cost(
    cost: Option<ScalarOr<u64, CostKeys>>,
    problems: &mut Problems<'_>,
) -> Option<CostSettings> {
    let keys = match cost? {
        ScalarOr::Scalar(count) => return Some(CostSettings::Fixed(count)),
        ScalarOr::Mapping(keys) => keys,
    };
    let from = keys.from?;
    let possible: &[&str] = match from {
        CostWord::Header => &["name", "min", "max"],
        CostWord::Reported => &["name", "max"],
        CostWord::BodyBytes => &["min"],
    };
    for key in ["name", "min", "max"] {
        if !possible.contains(&key) {
            refuse_key(&keys.keys, key, from.as_str(), problems);
        } else if key != "min" && !keys.keys.has(key) {
            let fault =
                Fault::new("missing_key", format!("`from: {}` needs `{key}`", from.as_str()))
                    .hint("such as `name: X-Cost` and `max: 100`");
            problems.error(keys.keys.location, fault);
        }
    }
    let min = keys.min.unwrap_or(1);
    if keys.max.is_some_and(|max| min > max) {
        let fault = Fault::new("out_of_range", "`min` is larger than `max`");
        problems.error(keys.keys.value_location("min"), fault);
    }
    let named = || Some((header_name(keys.name.as_ref()?)?, keys.max?));
    match from {
        CostWord::BodyBytes => Some(CostSettings::BodyBytes { min }),
        CostWord::Header => named().map(|(name, max)| CostSettings::Header { name, min, max }),
        CostWord::Reported => named().map(|(name, max)| CostSettings::Reported { name, max }),
    }
}

/// Reports a key that has no meaning with the chosen `from`.
pub(super) fn refuse_key(keys: &GivenKeys, key: &str, from: &str, problems: &mut Problems<'_>) {
    if keys.has(key) {
        let message = format!("`{key}` has no meaning with `from: {from}`");
        let fault = Fault::new("misplaced_key", message).hint(format!("remove `{key}`"));
        problems.error(keys.value_location(key), fault);
    }
}
