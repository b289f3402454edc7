//! Descriptors: the nodes of the rule tree, as written.

use ipnet::IpNet;
use tidegate_algorithms::Mode;

use super::reader::{Field, Fields, Reader};
use super::{Counting, Descriptor, Limits, Values, limit, metadata};
use crate::address::{Grouping, parse_cidr};
use crate::diagnostics::{Fault, Spot};
use crate::vocabulary::Place;
use crate::yaml::{Kind, NodeId, Plain, Scalar};

/// The descriptors of a mapping that can have some.
pub(crate) fn read_all(reader: &mut Reader<'_, '_>, fields: &Fields) -> Vec<Descriptor> {
    let Some(field) = fields.get("descriptors") else {
        return Vec::new();
    };
    reader.items(field).into_iter().filter_map(|item| read(reader, item)).collect()
}

// Recursion ends with the tree, which is never deeper than its maximum.
fn read(reader: &mut Reader<'_, '_>, id: NodeId) -> Option<Descriptor> {
    let fields = reader.fields(id, Place::Descriptor);
    let key = key(reader, &fields);
    let values = values(reader, &fields);
    let grouping = grouping(reader, &fields, &values);
    let share = fields.get("share_threshold").filter(|_| reader.flag(&fields, "share_threshold"));
    let shareable = matches!(values, Values::Like(_) | Values::Within(_));
    let counting = match (&values, grouping) {
        (Values::Exactly(_), _) => Counting::Together,
        _ if share.is_some() && shareable => Counting::Together,
        (_, Some(grouping)) => Counting::ByNetwork(grouping),
        _ => Counting::Apart,
    };
    let limits = limits(reader, &fields, &values, grouping);
    let mode = mode(reader, &fields);
    let enforce_percent =
        reader.count(&fields, "enforce_percent").and_then(|percent| u8::try_from(percent).ok());
    let quota = reader.flag(&fields, "quota_mode");
    let detailed_metric = reader.flag(&fields, "detailed_metric");
    let value_to_metric = reader.flag(&fields, "value_to_metric");
    let metadata = fields.get("metadata").and_then(|field| metadata::read(reader, field.value));
    if matches!(limits, Limits::None) {
        warn_without_limit(reader, &fields);
    }
    let children = read_all(reader, &fields);
    Some(Descriptor {
        spot: head(&fields, reader),
        key: key?,
        values,
        counting,
        misused_share: share.filter(|_| !shareable).map(|field| reader.yaml.spot(field.key_id)),
        limits,
        mode,
        enforce_percent,
        quota,
        detailed_metric,
        value_to_metric,
        metadata,
        children,
    })
}

/// The part of a descriptor to point at when the whole is meant.
fn head(fields: &Fields, reader: &Reader<'_, '_>) -> Spot {
    let named = fields.get("value").or_else(|| fields.get("cidr"));
    match named.or_else(|| fields.get("key")) {
        Some(field) => reader.yaml.spot(field.value),
        None => fields.spot,
    }
}

fn key(reader: &mut Reader<'_, '_>, fields: &Fields) -> Option<String> {
    let (written, spot) = match fields.get("key") {
        Some(field) => (reader.text(field)?.what, reader.yaml.spot(field.value)),
        None => (String::new(), fields.spot),
    };
    if written.is_empty() {
        let fault = Fault::new("no_key", "a descriptor has no key")
            .hint("add `key: NAME`")
            .compat("descriptor has empty key");
        reader.error_at(spot, fault);
        return None;
    }
    Some(written)
}

fn values(reader: &mut Reader<'_, '_>, fields: &Fields) -> Values {
    let value = fields
        .get("value")
        .and_then(|field| reader.text(field))
        .map(|value| value.what)
        .filter(|value| !value.is_empty());
    let cidr = fields.get("cidr").map(|field| (field, cidrs(reader, field)));
    match (value, cidr) {
        (Some(_), Some((field, _))) => {
            let fault = Fault::new("value_and_cidr", "`value` and `cidr` both say what matches")
                .hint("keep one of the two");
            reader.error(field.key_id, fault);
            Values::Any
        }
        (Some(value), None) if value.contains('*') => Values::Like(value),
        (Some(value), None) => Values::Exactly(value),
        (None, Some((_, ranges))) => Values::Within(ranges),
        (None, None) => Values::Any,
    }
}

fn cidrs(reader: &mut Reader<'_, '_>, field: Field) -> Vec<IpNet> {
    let yaml = reader.yaml;
    let alone = [field.value];
    let items: &[NodeId] = match &yaml.node(field.value).kind {
        Kind::Sequence(items) => yaml.items(*items),
        Kind::Scalar(_) | Kind::Mapping(_) => &alone,
    };
    if items.is_empty() {
        let fault = Fault::new("invalid_cidr", "`cidr` holds no address range")
            .hint("write it as `10.0.0.0/8` or `2001:db8::/32`");
        reader.error(field.value, fault);
    }
    let mut ranges = Vec::new();
    for item in items {
        let Some(written) = reader.text_of(*item, "cidr") else {
            continue;
        };
        match parse_cidr(&written.what) {
            Ok(range) if ranges.contains(&range) => {
                let fault = Fault::new("invalid_cidr", format!("`{range}` is given twice"))
                    .hint("keep one of the two");
                reader.error_at(written.spot, fault);
            }
            Ok(range) => ranges.push(range),
            Err((message, hint)) => {
                reader.error_at(written.spot, Fault::new("invalid_cidr", message).hint(hint));
            }
        }
    }
    ranges
}

/// How addresses are grouped, if values are addresses.
fn grouping(reader: &mut Reader<'_, '_>, fields: &Fields, values: &Values) -> Option<Grouping> {
    let implied = matches!(values, Values::Within(_)).then_some(Grouping::DEFAULT);
    let Some(field) = fields.get("address") else {
        return implied;
    };
    let yaml = reader.yaml;
    let grouping = match yaml.scalar(field.value).map(Scalar::plain) {
        Some(Plain::Bool(true)) => Some(Grouping::DEFAULT),
        Some(Plain::Bool(false)) => None,
        Some(_) => {
            reader.wrong_kind(field.value, "address", "`true` or a mapping with `v4` and `v6`");
            return implied;
        }
        None => {
            let parts = reader.mapping(field, Place::Address)?;
            let mut length = |name| {
                let length = reader.count(&parts, name);
                length.and_then(|length| u8::try_from(length).ok())
            };
            let (v4, v6) = (length("v4"), length("v6"));
            Some(Grouping::new(v4.unwrap_or(32), v6.unwrap_or(64)))
        }
    };
    if grouping.is_some() && matches!(values, Values::Exactly(_) | Values::Like(_)) {
        let fault = Fault::new("address_and_value", "`address` has no meaning beside `value`")
            .hint("leave `value` out to take every address, or use `cidr`");
        reader.error(field.key_id, fault);
    }
    grouping.or(implied)
}

fn limits(
    reader: &mut Reader<'_, '_>,
    fields: &Fields,
    values: &Values,
    grouping: Option<Grouping>,
) -> Limits {
    let given: Vec<Field> =
        ["rate_limit", "limits", "plan"].iter().filter_map(|name| fields.get(name)).collect();
    if let [first, second, ..] = given.as_slice() {
        let (one, other) = (first.key.name, second.key.name);
        let message = format!("`{one}` and `{other}` cannot stand together");
        let fault = Fault::new("several_limit_keys", message)
            .related(reader.yaml.spot(first.key_id), "the other is here")
            .hint("put all limits into `limits`, or into a plan");
        reader.error(second.key_id, fault);
    }
    let mut found = Limits::None;
    for field in given.iter().rev() {
        found = match field.key.name {
            "rate_limit" if matches!(reader.yaml.node(field.value).kind, Kind::Mapping(_)) => {
                Limits::Own(limit::read(reader, field.value).into_iter().collect())
            }
            "rate_limit" => {
                reader.wrong_kind(field.value, "rate_limit", "a mapping");
                Limits::Own(Vec::new())
            }
            "limits" => Limits::Own(limit::read_list(reader, *field)),
            _ => plan(reader, *field, values, grouping),
        };
    }
    found
}

fn plan(
    reader: &mut Reader<'_, '_>,
    field: Field,
    values: &Values,
    grouping: Option<Grouping>,
) -> Limits {
    if reader.yaml.scalar(field.value).is_some() {
        return match reader.text(field) {
            Some(name) => Limits::Plan(name),
            None => Limits::Own(Vec::new()),
        };
    }
    let Some(fields) = reader.mapping(field, Place::PlanChoice) else {
        return Limits::Own(Vec::new());
    };
    let from = reader.choice(&fields, "from", &["value"], |word| (word == "value").then_some(()));
    if from.is_none() && fields.get("from").is_none() {
        let fault = Fault::new("incomplete_plan", "`plan` does not say where its name is")
            .hint("write `plan: {from: value}`, or `plan: NAME`");
        reader.error(field.key_id, fault);
    }
    if *values != Values::Any || grouping.is_some() {
        let fault = Fault::new(
            "plan_needs_any_value",
            "a plan named by the value needs a descriptor that takes every value",
        )
        .hint("remove `value`, `cidr` and `address`");
        reader.error(field.key_id, fault);
    }
    let default = fields.get("default").and_then(|field| reader.text(field));
    Limits::PlanNamedByValue { default }
}

fn mode(reader: &mut Reader<'_, '_>, fields: &Fields) -> Option<Mode> {
    let mode = reader.choice(fields, "mode", Mode::WORDS, Mode::from_word);
    let shadow = reader.flag(fields, "shadow_mode");
    match (mode, shadow) {
        (Some(mode), true) if mode.what != Mode::Shadow => {
            let message = format!("`shadow_mode: true` contradicts `mode: {}`", mode.what.as_str());
            let fault = Fault::new("contradicting_modes", message).hint("keep one of the two");
            reader.error_at(mode.spot, fault);
            Some(Mode::Shadow)
        }
        (_, true) => Some(Mode::Shadow),
        (mode, false) => mode.map(|mode| mode.what),
    }
}

/// Keys that only say something about limits, where there are none.
fn warn_without_limit(reader: &mut Reader<'_, '_>, fields: &Fields) {
    for name in
        ["mode", "enforce_percent", "shadow_mode", "quota_mode", "detailed_metric", "metadata"]
    {
        if let Some(field) = fields.get(name) {
            let message = format!("`{name}` has no effect on a descriptor without a limit");
            let fault = Fault::new("no_effect", message)
                .hint("move it to the descriptors that have limits, or add a limit here");
            reader.warn(field.key_id, fault);
        }
    }
}
