//! From the document to who asks: values of requests, tokens, API keys, categories.

use http::header::HeaderName;
use tidegate_overload::Category;
use tidegate_rules::reading::{Fault, Problems};

use super::routes::{header_value, methods};
use super::tree::Section;
use super::{put, size};
use crate::settings::{
    ApiKeySettings, CategoryRule, CategorySettings, JwtKey, JwtSettings, PresentedIn, ValueFrom,
};

/// What a value of a request is from.
pub(super) fn value(section: &Section, problems: &mut Problems<'_>) -> Option<ValueFrom> {
    let from = section.choice("from").unwrap_or("fixed");
    let named = matches!(from, "header" | "cookie" | "path_parameter" | "query" | "claim");
    let address = from == "address";
    let meanings =
        [("name", named), ("value", from == "fixed"), ("v4_bits", address), ("v6_bits", address)];
    for (key, has_meaning) in meanings {
        if section.has(key) && !has_meaning {
            let message = format!("`{key}` has no meaning with `from: {from}`");
            let fault = Fault::new("misplaced_key", message).hint(format!("remove `{key}`"));
            problems.error(section.spot(key), fault);
        }
    }
    let mut need = |key: &str| {
        let given = section.text(key).map(str::to_owned);
        if !section.has(key) {
            let message = format!("`from: {from}` needs `{key}`");
            problems.error(section.spot, Fault::new("missing_key", message));
        }
        given
    };
    Some(match from {
        "fixed" => ValueFrom::Fixed(need("value")?),
        "address" => ValueFrom::Address {
            v4_bits: bits(section.count("v4_bits"), 32),
            v6_bits: bits(section.count("v6_bits"), 64),
        },
        "header" => ValueFrom::Header(field(section, &need("name")?, problems)?),
        "cookie" => ValueFrom::Cookie(need("name")?),
        "path_template" => ValueFrom::PathTemplate,
        "path_parameter" => ValueFrom::PathParameter(need("name")?),
        "path" => ValueFrom::Path,
        "method" => ValueFrom::Method,
        "host" => ValueFrom::Host,
        "query" => ValueFrom::Query(need("name")?),
        "claim" => ValueFrom::Claim(need("name")?),
        "plan" => ValueFrom::Plan,
        "api_key_name" => ValueFrom::ApiKeyName,
        _ => ValueFrom::Route,
    })
}

fn bits(given: Option<u64>, otherwise: u8) -> u8 {
    given.and_then(|bits| u8::try_from(bits).ok()).unwrap_or(otherwise)
}

/// The name of a header field that stands at `name`.
fn field(section: &Section, name: &str, problems: &mut Problems<'_>) -> Option<HeaderName> {
    let wrong = |_| {
        let message = format!("`{name}` is no name of a header field");
        let fault = Fault::new("invalid_header", message);
        problems.error(section.spot("name"), fault.hint("letters, digits and `-`: `X-User`"));
    };
    HeaderName::from_bytes(name.as_bytes()).map_err(wrong).ok()
}

/// Where a secret is presented.
fn presented(
    section: &Section,
    otherwise: PresentedIn,
    problems: &mut Problems<'_>,
) -> Option<PresentedIn> {
    let name = section.text("name");
    let Some(from) = section.choice("from") else {
        // A name alone is one of the usual place.
        return match (&otherwise, name) {
            (PresentedIn::Header(_), Some(name)) => {
                field(section, name, problems).map(PresentedIn::Header)
            }
            (_, Some(_)) => {
                let fault = Fault::new("misplaced_key", "`name` has no meaning after `Bearer`")
                    .hint("say `from: header`, or remove `name`");
                problems.error(section.spot("name"), fault);
                None
            }
            (_, None) => Some(otherwise),
        };
    };
    if from == "bearer" {
        return Some(PresentedIn::Bearer);
    }
    let Some(name) = name else {
        if let ("header", PresentedIn::Header(_)) = (from, &otherwise) {
            return Some(otherwise);
        }
        let message = format!("`from: {from}` needs `name`");
        problems.error(section.spot("from"), Fault::new("missing_key", message));
        return None;
    };
    Some(match from {
        "header" => PresentedIn::Header(field(section, name, problems)?),
        "cookie" => PresentedIn::Cookie(name.to_owned()),
        _ => PresentedIn::Query(name.to_owned()),
    })
}

pub(super) fn jwt(section: &Section, problems: &mut Problems<'_>) -> Option<JwtSettings> {
    let key = match (section.text("key_set"), section.text("secret_file")) {
        (Some(path), None) => JwtKey::KeySet(path.into()),
        (None, Some(path)) => JwtKey::SecretFile(path.into()),
        (given, _) => {
            let message = match given {
                Some(_) => "`key_set` and `secret_file` exclude each other",
                None => "there is no key to verify tokens with",
            };
            let fault = Fault::new("exclusive", message).hint("give `key_set` or `secret_file`");
            problems.error(section.spot("secret_file"), fault);
            return None;
        }
    };
    let mut settings = JwtSettings::new(key);
    settings.presented_in = presented(section, PresentedIn::Bearer, problems)?;
    settings.issuer = section.text("issuer").map(str::to_owned);
    settings.audience = section.text("audience").map(str::to_owned);
    put(&mut settings.leeway_secs, section.duration("leeway").map(|leeway| leeway.as_secs()));
    put(&mut settings.remembered_max, section.count("remembered_max").map(size));
    Some(settings)
}

pub(super) fn api_keys(section: &Section, problems: &mut Problems<'_>) -> ApiKeySettings {
    let mut settings = ApiKeySettings::default();
    let usual = settings.presented_in.clone();
    put(&mut settings.presented_in, presented(section, usual, problems));
    let text = |key: &Section, name: &str| key.text(name).unwrap_or_default().to_owned();
    let keys = section.many("keys").iter();
    settings.keys =
        keys.map(|key| (text(key, "hash"), text(key, "name"), text(key, "plan"))).collect();
    settings.file = section.text("file").map(Into::into);
    settings
}

pub(super) fn categories(section: &Section, problems: &mut Problems<'_>) -> CategorySettings {
    let mut settings = CategorySettings::default();
    put(&mut settings.field, section.header("field").map(|name| Some(name.clone())));
    if section.is_off("field") {
        settings.field = None;
    }
    let rules = section.many("rules").iter();
    settings.rules = rules.filter_map(|section| category_rule(section, problems)).collect();
    put(&mut settings.caller, section.one("caller").and_then(|caller| value(caller, problems)));
    settings.timeout_field = section.header("timeout_field").cloned();
    put(&mut settings.tell, section.flag("tell"));
    settings
}

fn category_rule(section: &Section, problems: &mut Problems<'_>) -> Option<CategoryRule> {
    let word = section.choice("category")?;
    let category = Category::ALL.into_iter().find(|category| category.name() == word)?;
    let mut rule = CategoryRule::new(category);
    rule.routes = section.strings("routes");
    rule.methods = methods(section, problems);
    rule.plans = section.strings("plans");
    if let Some(header) = section.one("header") {
        let value = header.text("value").and_then(|text| header_value(header, text, problems));
        rule.header = header.header("name").cloned().zip(value);
    }
    Some(rule)
}
