//! From the document to who calls: values of requests, tokens, API keys, categories.

use http::header::HeaderName;
use tidegate_document::{Fault, GivenKeys, LocatedValue, OrOff, Problems, Text, one_of};
use tidegate_overload::Category;

use super::kinds::{CategoryWord, MethodName, SecretSource, ValueSource};
use super::routes::refuse_key;
use super::table::{ApiKeysKeys, CallerKeys, CategoriesKeys, CategoryRuleKeys, JwtKeys};
use super::{header_name, put, size, strings};
use crate::settings::{
    ApiKeySettings, CategoryRule, CategorySettings, JwtKey, JwtSettings, KeySetUrl, PresentedIn,
    ValueFrom,
};

/// The keys that say where a value comes from.
pub(super) struct ValueKeys<'k> {
    pub(super) keys: &'k GivenKeys,
    pub(super) from: Option<ValueSource>,
    pub(super) value: Option<Text>,
    pub(super) name: Option<LocatedValue<Text>>,
    pub(super) v4_bits: Option<u64>,
    pub(super) v6_bits: Option<u64>,
}

/// Where a value of a request comes from.
pub(super) fn value(given: ValueKeys<'_>, problems: &mut Problems<'_>) -> Option<ValueFrom> {
    // A word that is not known is reported already.
    if given.from.is_none() && given.keys.has("from") {
        return None;
    }
    let from = given.from.unwrap_or(ValueSource::Fixed);
    let needed: &[&str] = match from {
        ValueSource::Fixed => &["value"],
        ValueSource::Header
        | ValueSource::Cookie
        | ValueSource::PathParameter
        | ValueSource::Query
        | ValueSource::Claim => &["name"],
        ValueSource::Address
        | ValueSource::PathTemplate
        | ValueSource::Path
        | ValueSource::Method
        | ValueSource::Host
        | ValueSource::Plan
        | ValueSource::ApiKeyName
        | ValueSource::Route => &[],
    };
    let possible: &[&str] =
        if from == ValueSource::Address { &["v4_bits", "v6_bits"] } else { needed };
    for key in ["name", "value", "v4_bits", "v6_bits"] {
        if !possible.contains(&key) {
            refuse_key(given.keys, key, from.as_str(), problems);
        }
    }
    for key in needed.iter().filter(|key| !given.keys.has(key)) {
        let message = format!("`from: {}` needs `{key}`", from.as_str());
        problems.error(given.keys.location, Fault::new("missing_key", message));
    }
    let name = given.name;
    let text = || name.as_ref().map(|name| name.value.0.clone());
    Some(match from {
        ValueSource::Fixed => ValueFrom::Fixed(given.value?.0),
        ValueSource::Address => ValueFrom::Address {
            v4_bits: bits(given.v4_bits, 32),
            v6_bits: bits(given.v6_bits, 64),
        },
        ValueSource::Header => ValueFrom::Header(field(name.as_ref()?, problems)?),
        ValueSource::Cookie => ValueFrom::Cookie(text()?),
        ValueSource::PathTemplate => ValueFrom::PathTemplate,
        ValueSource::PathParameter => ValueFrom::PathParameter(text()?),
        ValueSource::Path => ValueFrom::Path,
        ValueSource::Method => ValueFrom::Method,
        ValueSource::Host => ValueFrom::Host,
        ValueSource::Query => ValueFrom::Query(text()?),
        ValueSource::Claim => ValueFrom::Claim(text()?),
        ValueSource::Plan => ValueFrom::Plan,
        ValueSource::ApiKeyName => ValueFrom::ApiKeyName,
        ValueSource::Route => ValueFrom::Route,
    })
}

fn bits(given: Option<u64>, default: u8) -> u8 {
    given.and_then(|bits| u8::try_from(bits).ok()).unwrap_or(default)
}

/// The name of a header field, where names of other things are possible too.
fn field(name: &LocatedValue<Text>, problems: &mut Problems<'_>) -> Option<HeaderName> {
    let text = &name.value.0;
    let invalid = |_| {
        let message = format!("`{text}` is not the name of a header field");
        let fault = Fault::new("invalid_header", message);
        problems.error(name.location, fault.hint("use letters, digits and `-`, such as `X-User`"));
    };
    HeaderName::from_bytes(text.as_bytes()).map_err(invalid).ok()
}

/// Where a token or an API key is.
fn presented(
    from: Option<LocatedValue<SecretSource>>,
    name: Option<LocatedValue<Text>>,
    default: PresentedIn,
    problems: &mut Problems<'_>,
) -> Option<PresentedIn> {
    let Some(from) = from else {
        // Without `from`, a name replaces that of the default.
        return match (&default, name) {
            (PresentedIn::Header(_), Some(name)) => field(&name, problems).map(PresentedIn::Header),
            (_, Some(name)) => {
                let fault =
                    Fault::new("misplaced_key", "`name` has no meaning with `from: bearer`")
                        .hint("add `from: header`, or remove `name`");
                problems.error(name.location, fault);
                None
            }
            (_, None) => Some(default),
        };
    };
    let mut needed = || {
        if name.is_none() {
            let message = format!("`from: {}` needs `name`", from.value.as_str());
            problems.error(from.location, Fault::new("missing_key", message));
        }
        name.as_ref().map(|name| name.value.0.clone())
    };
    match (from.value, &name, &default) {
        (SecretSource::Bearer, ..) => Some(PresentedIn::Bearer),
        (SecretSource::Header, None, PresentedIn::Header(_)) => Some(default),
        (SecretSource::Header, Some(name), _) => field(name, problems).map(PresentedIn::Header),
        (SecretSource::Header, None, _) => needed().and(None),
        (SecretSource::Cookie, ..) => needed().map(PresentedIn::Cookie),
        (SecretSource::Query, ..) => needed().map(PresentedIn::Query),
    }
}

pub(super) fn jwt(keys: JwtKeys, problems: &mut Problems<'_>) -> Option<JwtSettings> {
    const SOURCES: [&str; 3] = ["key_set", "key_set_url", "secret_file"];
    keys.keys.exclude_each_other(&SOURCES, problems);
    for key in ["key_set_cache", "key_set_authority"] {
        if keys.keys.has(key) && !keys.keys.has("key_set_url") {
            let fault = Fault::new("misplaced_key", format!("`{key}` needs `key_set_url`"));
            problems.error(keys.keys.value_location(key), fault);
        }
    }
    let key = match (keys.key_set, keys.key_set_url, keys.secret_file) {
        (Some(path), ..) => JwtKey::KeySet(path.0.into()),
        (None, Some(url), _) => {
            let mut set = KeySetUrl::new(url);
            put(&mut set.cache, keys.key_set_cache);
            set.authority = keys.key_set_authority.map(|path| path.0.into());
            JwtKey::KeySetUrl(set)
        }
        (None, None, Some(path)) => JwtKey::SecretFile(path.0.into()),
        (None, None, None) => {
            let fault = Fault::new("exclusive", "there is no key to verify tokens with")
                .hint(format!("give {}", one_of(&SOURCES)));
            problems.error(keys.keys.value_location("secret_file"), fault);
            return None;
        }
    };
    let mut settings = JwtSettings::new(key);
    settings.presented_in = presented(keys.from, keys.name, PresentedIn::Bearer, problems)?;
    settings.issuer = keys.issuer.map(String::from);
    settings.audience = keys.audience.map(String::from);
    put(&mut settings.leeway_secs, keys.leeway.map(|leeway| leeway.as_secs()));
    put(&mut settings.remembered_max, keys.remembered_max.map(size));
    put(&mut settings.when_invalid, keys.when_invalid);
    Some(settings)
}

pub(super) fn api_keys(keys: ApiKeysKeys, problems: &mut Problems<'_>) -> ApiKeySettings {
    let mut settings = ApiKeySettings::default();
    let default = settings.presented_in.clone();
    put(&mut settings.presented_in, presented(keys.from, keys.name, default, problems));
    let text = |text: Option<Text>| text.map(String::from).unwrap_or_default();
    let listed = keys.keys_list.into_iter();
    settings.keys = listed.map(|key| (text(key.hash), text(key.name), text(key.plan))).collect();
    settings.file = keys.file.map(|path| path.0.into());
    put(&mut settings.when_unknown, keys.when_unknown);
    settings
}

pub(super) fn categories(keys: CategoriesKeys, problems: &mut Problems<'_>) -> CategorySettings {
    let mut settings = CategorySettings::default();
    let header = |field: OrOff<_>| field.into_option().as_ref().and_then(header_name);
    put(&mut settings.field, keys.field.map(header));
    settings.rules = keys.rules.into_iter().filter_map(category_rule).collect();
    put(&mut settings.caller, keys.caller.and_then(|keys| caller(keys, problems)));
    put(&mut settings.timeout_field, keys.timeout_field.map(header));
    put(&mut settings.tell, keys.tell);
    settings
}

fn caller(keys: CallerKeys, problems: &mut Problems<'_>) -> Option<ValueFrom> {
    let CallerKeys { keys, from, value: fixed, name, v4_bits, v6_bits } = keys;
    value(ValueKeys { keys: &keys, from, value: fixed, name, v4_bits, v6_bits }, problems)
}

fn category_rule(keys: CategoryRuleKeys) -> Option<CategoryRule> {
    let mut rule = CategoryRule::new(match keys.category? {
        CategoryWord::Critical => Category::Critical,
        CategoryWord::Post => Category::Post,
        CategoryWord::Get => Category::Get,
        CategoryWord::Test => Category::Test,
    });
    rule.routes = strings(keys.routes);
    rule.methods = keys.methods.into_iter().map(|MethodName(method)| method).collect();
    rule.plans = strings(keys.plans);
    if let Some(header) = keys.header {
        let name = header.name.as_ref().and_then(header_name);
        rule.header = name.zip(header.value.map(|value| value.0));
    }
    Some(rule)
}
