//! From the document to routes: what they take, where they lead, what limits them.

use http::Method;
use http::header::HeaderValue;
use tidegate_engine::RefusalStatus;
use tidegate_rules::reading::{Fault, Problems, one_of};

use super::callers::value;
use super::put;
use super::tree::Section;
use super::upstreams::timeouts;
use crate::settings::{
    AnswerSettings, CostSettings, DescriptorSettings, EntrySettings, HeaderEdit, HostHeader,
    Missing, PathMatch, PathRewrite, RouteSettings, UpstreamSettings,
};

pub(super) fn route(
    section: &Section,
    groups: &[UpstreamSettings],
    problems: &mut Problems<'_>,
) -> RouteSettings {
    let text = |key: &str| section.text(key).unwrap_or_default();
    let mut settings = RouteSettings::new(text("name"), text("upstreams"));
    settings.hosts = section.strings("hosts");
    exclusive(section, &["path", "template"], problems);
    put(&mut settings.path, section.text("path").map(|path| PathMatch::Prefix(path.to_owned())));
    put(
        &mut settings.path,
        section.text("template").map(|path| PathMatch::Template(path.to_owned())),
    );
    settings.methods = methods(section, problems);
    settings.rewrite = rewrite(section, problems);
    if section.choice("host_header") == Some("upstream") {
        settings.host_header = HostHeader::Upstream;
    }
    settings.request_headers = edits(section.many("request_headers"), problems);
    settings.response_headers = edits(section.many("response_headers"), problems);
    settings.templates = section.strings("templates");
    let descriptors = section.many("descriptors").iter();
    settings.descriptors = descriptors.map(|section| descriptor(section, problems)).collect();
    put(&mut settings.cost, cost(section, problems));
    if let Some(answers) = section.one("answers") {
        let text = |key: &str| answers.text(key).map(str::to_owned);
        settings.answers = AnswerSettings {
            json: text("json"),
            html: text("html"),
            refusal_status: answers.choice("refusal_status").and_then(RefusalStatus::from_word),
        };
    }
    if let Some(section) = section.one("timeouts") {
        let group = groups.iter().find(|group| group.name == settings.upstreams);
        let otherwise = group.map(|group| group.timeouts).unwrap_or_default();
        settings.timeouts = Some(timeouts(section, otherwise));
    }
    put(&mut settings.exempt, section.flag("exempt"));
    settings
}

/// Says so when more than one of these is there.
fn exclusive(section: &Section, keys: &[&str], problems: &mut Problems<'_>) {
    let given: Vec<&str> = keys.iter().copied().filter(|key| section.has(key)).collect();
    if let [first, second, ..] = given.as_slice() {
        let message = format!("`{first}` and `{second}` exclude each other");
        let fault = Fault::new("exclusive", message).hint("remove one of the two");
        problems.error(section.spot(second), fault);
    }
}

pub(super) fn methods(section: &Section, problems: &mut Problems<'_>) -> Vec<Method> {
    let mut methods = Vec::new();
    for (text, spot) in section.texts("methods") {
        match Method::from_bytes(text.as_bytes()) {
            Ok(method) if text.bytes().any(|byte| byte.is_ascii_lowercase()) => {
                let upper = text.to_ascii_uppercase();
                let message = format!("`{method}` is not `{upper}`: methods differ by case");
                let fault = Fault::new("invalid_method", message);
                problems.error(*spot, fault.hint(format!("write `{upper}`")));
            }
            Ok(method) => methods.push(method),
            Err(_) => {
                let fault = Fault::new("invalid_method", format!("`{text}` is no method"));
                problems.error(*spot, fault.hint("such as `GET` or `POST`"));
            }
        }
    }
    methods
}

fn rewrite(section: &Section, problems: &mut Problems<'_>) -> PathRewrite {
    let strips = section.flag("strip_prefix").unwrap_or(false);
    let replaced = section.text("replace_prefix");
    if strips && replaced.is_some() {
        exclusive(section, &["strip_prefix", "replace_prefix"], problems);
    }
    if section.has("template") && (strips || replaced.is_some()) {
        let key = if strips { "strip_prefix" } else { "replace_prefix" };
        let fault = Fault::new("exclusive", "a template has no prefix to take away")
            .hint("use `path`, or leave the path as it is");
        problems.error(section.spot(key), fault);
        return PathRewrite::Keep;
    }
    match replaced {
        Some(prefix) => PathRewrite::ReplacePrefix(prefix.to_owned()),
        None if strips => PathRewrite::StripPrefix,
        None => PathRewrite::Keep,
    }
}

fn edits(sections: &[Section], problems: &mut Problems<'_>) -> Vec<HeaderEdit> {
    sections.iter().filter_map(|section| edit(section, problems)).collect()
}

fn edit(section: &Section, problems: &mut Problems<'_>) -> Option<HeaderEdit> {
    const WAYS: [&str; 3] = ["set", "add", "remove"];
    exclusive(section, &WAYS, problems);
    let value = section.text("value").and_then(|text| header_value(section, text, problems));
    let mut needs_value = |key: &str| {
        if !section.has("value") {
            let message = format!("`{key}` needs a `value`");
            problems.error(section.spot(key), Fault::new("missing_key", message));
        }
    };
    if let Some(name) = section.header("set") {
        needs_value("set");
        return Some(HeaderEdit::Set(name.clone(), value?));
    }
    if let Some(name) = section.header("add") {
        needs_value("add");
        return Some(HeaderEdit::Add(name.clone(), value?));
    }
    if let Some(name) = section.header("remove") {
        if section.has("value") {
            let fault = Fault::new("exclusive", "what is removed has no value");
            problems.error(section.spot("value"), fault.hint("remove `value`"));
        }
        return Some(HeaderEdit::Remove(name.clone()));
    }
    if !WAYS.iter().any(|way| section.has(way)) {
        let fault = Fault::new("missing_key", "this changes no field");
        problems.error(section.spot, fault.hint(format!("give {}", one_of(&WAYS))));
    }
    None
}

pub(super) fn header_value(
    section: &Section,
    text: &str,
    problems: &mut Problems<'_>,
) -> Option<HeaderValue> {
    let value = HeaderValue::from_str(text);
    let wrong = |_| {
        let fault = Fault::new("invalid_header", "this cannot stand in a header field");
        problems.error(section.spot("value"), fault.hint("use printable characters of ASCII"));
    };
    value.map_err(wrong).ok()
}

fn descriptor(section: &Section, problems: &mut Problems<'_>) -> DescriptorSettings {
    let entries = section.many("entries").iter();
    let entries: Vec<EntrySettings> =
        entries.filter_map(|section| entry(section, problems)).collect();
    DescriptorSettings { entries, cost: cost(section, problems) }
}

fn entry(section: &Section, problems: &mut Problems<'_>) -> Option<EntrySettings> {
    let from = value(section, problems)?;
    let mut entry = EntrySettings::new(section.text("key")?, from);
    exclusive(section, &["when_missing", "default"], problems);
    if section.choice("when_missing") == Some("skip_entry") {
        entry.missing = Missing::SkipEntry;
    }
    if let Some(text) = section.text("default") {
        entry.missing = Missing::Use(text.to_owned());
    }
    Some(entry)
}

fn cost(section: &Section, problems: &mut Problems<'_>) -> Option<CostSettings> {
    if let Some(count) = section.count("cost") {
        return Some(CostSettings::Fixed(count));
    }
    let cost = section.one("cost")?;
    let from = cost.choice("from")?;
    if from == "body_bytes" {
        for key in ["name", "max"].into_iter().filter(|key| cost.has(key)) {
            let message = format!("`{key}` has no meaning with `from: body_bytes`");
            let fault = Fault::new("misplaced_key", message).hint(format!("remove `{key}`"));
            problems.error(cost.spot(key), fault);
        }
        return Some(CostSettings::BodyBytes);
    }
    for key in ["name", "max"].into_iter().filter(|key| !cost.has(key)) {
        let message = format!("`from: {from}` needs `{key}`");
        let fault = Fault::new("missing_key", message);
        problems.error(cost.spot, fault.hint("such as `name: X-Cost` and `max: 100`"));
    }
    let (name, max) = (cost.header("name")?.clone(), cost.count("max")?);
    Some(match from {
        "header" => CostSettings::Header { name, max },
        _ => CostSettings::Reported { name, max },
    })
}
