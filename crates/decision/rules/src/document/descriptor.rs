//! Descriptors: the nodes of the rule tree, as written.

use ipnet::IpNet;
use serde_json::json;
use tidegate_algorithms::Mode;
use tidegate_document::{
    Bounds, Fault, Given, Item, Located, Location, NodeKind, Reader, ScalarOr, Shape,
};

use super::{Counting, Descriptor, Limits, Values};
use crate::address::{Grouping, parse_cidr};
use crate::kinds::{PlanName, RuleText};
use crate::table::{DescriptorKeys, PlanChoiceKeys};

impl Item for Descriptor {
    const IS_SCALAR: bool = false;

    fn shape(bounds: &Bounds) -> Shape {
        <DescriptorKeys as Item>::shape(bounds)
    }

    fn read(reader: &mut Reader<'_, '_>, given: &Given) -> Option<Self> {
        let mut keys = DescriptorKeys::read(reader, given)?;
        let key = key(reader, &keys);
        let values = values(reader, &mut keys);
        let grouping = grouping(reader, &keys, &values);
        let share = keys.share_threshold.as_ref().filter(|share| share.value);
        let is_shareable = matches!(values, Values::Like(_) | Values::Within(_));
        let counting = match (&values, grouping) {
            (Values::Exactly(_), _) => Counting::Together,
            _ if share.is_some() && is_shareable => Counting::Together,
            (_, Some(grouping)) => Counting::ByNetwork(grouping),
            _ => Counting::Apart,
        };
        let misused_share = share.filter(|_| !is_shareable).map(|share| share.key);
        let limits = limits(reader, &mut keys, &values, grouping);
        if matches!(limits, Limits::None) {
            warn_without_limit(reader, &keys);
        }
        Some(Descriptor {
            location: head(&keys),
            key: key?,
            values,
            counting,
            misused_share,
            limits,
            mode: mode(reader, &keys),
            enforce_percent: keys.enforce_percent.and_then(|percent| u8::try_from(percent).ok()),
            quota: keys.quota_mode.unwrap_or_default(),
            detailed_metric: keys.detailed_metric.unwrap_or_default(),
            value_to_metric: keys.value_to_metric.unwrap_or_default(),
            metadata: keys.metadata.map(|metadata| metadata.0),
            children: keys.descriptors,
        })
    }
}

/// The part of a descriptor to point at when the whole is meant.
fn head(keys: &DescriptorKeys) -> Location {
    let name = ["value", "cidr", "key"].into_iter().find(|name| keys.keys.has(name));
    name.map_or(keys.keys.location, |name| keys.keys.value_location(name))
}

fn key(reader: &mut Reader<'_, '_>, keys: &DescriptorKeys) -> Option<String> {
    let key = match &keys.key {
        Some(key) => key.value.0.clone(),
        None if keys.keys.has("key") => return None,
        None => String::new(),
    };
    if key.is_empty() {
        let fault = Fault::new("no_key", "a descriptor has no key")
            .hint("add `key: NAME`")
            .compat("descriptor has empty key");
        reader.error_at(keys.keys.value_location("key"), fault);
        return None;
    }
    Some(key)
}

fn values(reader: &mut Reader<'_, '_>, keys: &mut DescriptorKeys) -> Values {
    let value = keys.value.take().map(|value| value.0).filter(|value| !value.is_empty());
    match (value, keys.keys.get("cidr")) {
        (Some(_), Some(cidr)) => {
            let fault = Fault::new("value_and_cidr", "`value` and `cidr` exclude each other")
                .hint("remove one of them");
            reader.error_at(cidr.key_location, fault);
            Values::Any
        }
        (Some(value), None) if value.contains('*') => Values::Like(value),
        (Some(value), None) => Values::Exactly(value),
        (None, Some(_)) => Values::Within(keys.cidr.take().map(|cidr| cidr.0).unwrap_or_default()),
        (None, None) => Values::Any,
    }
}

/// The ranges of `cidr`: one, or a list.
#[derive(Debug)]
pub(crate) struct AddressRanges(Vec<IpNet>);

impl Item for AddressRanges {
    const IS_SCALAR: bool = false;

    fn shape(_: &Bounds) -> Shape {
        let range = json!({"type": "string", "minLength": 1});
        let list = json!({"type": "array", "items": range, "minItems": 1});
        Shape::Other("an address range or a list of them", json!({"anyOf": [range, list]}))
    }

    fn read(reader: &mut Reader<'_, '_>, given: &Given) -> Option<Self> {
        let texts: Vec<Located<RuleText>> = Item::read(reader, given)?;
        let yaml = reader.yaml();
        if matches!(yaml.node(given.node).kind, NodeKind::Sequence(items) if yaml.items(items).is_empty())
        {
            let fault = Fault::new("invalid_cidr", "`cidr` has no address range")
                .hint("write it as `10.0.0.0/8` or `2001:db8::/32`");
            reader.error_at(given.location, fault);
        }
        let mut ranges = Vec::new();
        for text in texts {
            match parse_cidr(&text.value.0) {
                Ok(range) if ranges.contains(&range) => {
                    let fault = Fault::new("invalid_cidr", format!("`{range}` is given twice"))
                        .hint("remove one of them");
                    reader.error_at(text.location, fault);
                }
                Ok(range) => ranges.push(range),
                Err((message, hint)) => {
                    reader.error_at(text.location, Fault::new("invalid_cidr", message).hint(hint));
                }
            }
        }
        Some(AddressRanges(ranges))
    }
}

/// How addresses are grouped, if values are addresses.
fn grouping(
    reader: &mut Reader<'_, '_>,
    keys: &DescriptorKeys,
    values: &Values,
) -> Option<Grouping> {
    let implied = matches!(values, Values::Within(_)).then_some(Grouping::DEFAULT);
    let Some(address) = &keys.address else { return implied };
    let grouping = match address {
        ScalarOr::Scalar(true) => Some(Grouping::DEFAULT),
        ScalarOr::Scalar(false) => None,
        ScalarOr::Mapping(lengths) => {
            let length = |length: Option<u64>| length.and_then(|length| u8::try_from(length).ok());
            let (v4, v6) = (length(lengths.v4), length(lengths.v6));
            Some(Grouping::new(v4.unwrap_or(32), v6.unwrap_or(64)))
        }
    };
    if grouping.is_some()
        && matches!(values, Values::Exactly(_) | Values::Like(_))
        && let Some(address) = keys.keys.get("address")
    {
        let fault =
            Fault::new("address_and_value", "`address` has no meaning together with `value`")
                .hint("remove `value` to match every address, or use `cidr`");
        reader.error_at(address.key_location, fault);
    }
    grouping.or(implied)
}

fn limits(
    reader: &mut Reader<'_, '_>,
    keys: &mut DescriptorKeys,
    values: &Values,
    grouping: Option<Grouping>,
) -> Limits {
    let names = ["rate_limit", "limits", "plan"];
    let given: Vec<&Given> = names.iter().filter_map(|name| keys.keys.get(name)).collect();
    if let [first, second, ..] = given.as_slice() {
        let message = format!("`{}` and `{}` exclude each other", first.key.name, second.key.name);
        let fault = Fault::new("several_limit_keys", message)
            .related(first.key_location, "the other is here")
            .hint("put all limits into `limits`, or into a plan");
        reader.error_at(second.key_location, fault);
    }
    let Some(first) = given.first().map(|given| given.key.name) else { return Limits::None };
    // Read and checked even when another key comes first.
    let plan = keys.plan.take().map(|located| plan(reader, located, values, grouping));
    let limits = match first {
        "rate_limit" => keys.rate_limit.take().into_iter().collect(),
        "limits" => keys.limits.take().map(|limits| limits.0).unwrap_or_default(),
        _ => return plan.unwrap_or(Limits::Own(Vec::new())),
    };
    Limits::Own(limits)
}

fn plan(
    reader: &mut Reader<'_, '_>,
    plan: Located<ScalarOr<PlanName, PlanChoiceKeys>>,
    values: &Values,
    grouping: Option<Grouping>,
) -> Limits {
    let choice = match plan.value {
        ScalarOr::Scalar(PlanName(value)) => {
            return Limits::Plan(Located { value, location: plan.location, key: plan.key });
        }
        ScalarOr::Mapping(choice) => choice,
    };
    if choice.from.is_none() && !choice.keys.has("from") {
        let fault = Fault::new("incomplete_plan", "`plan` does not say where its name is")
            .hint("write `plan: {from: value}`, or `plan: NAME`");
        reader.error_at(plan.key, fault);
    }
    if *values != Values::Any || grouping.is_some() {
        let message = "a plan named by the value needs a descriptor that matches every value";
        let fault = Fault::new("plan_needs_any_value", message)
            .hint("remove `value`, `cidr` and `address`");
        reader.error_at(plan.key, fault);
    }
    Limits::PlanNamedByValue { default: choice.default.map(|default| default.map(|name| name.0)) }
}

fn mode(reader: &mut Reader<'_, '_>, keys: &DescriptorKeys) -> Option<Mode> {
    let mode = keys.mode.as_ref().map(|mode| (mode.value.0, mode.location));
    match (mode, keys.shadow_mode.unwrap_or_default()) {
        (Some((mode, location)), true) if mode != Mode::Shadow => {
            let message = format!("`shadow_mode: true` contradicts `mode: {}`", mode.as_str());
            let fault = Fault::new("contradicting_modes", message).hint("remove one of them");
            reader.error_at(location, fault);
            Some(Mode::Shadow)
        }
        (_, true) => Some(Mode::Shadow),
        (mode, false) => mode.map(|(mode, _)| mode),
    }
}

/// Warns of keys that only say something about limits, where there are none.
fn warn_without_limit(reader: &mut Reader<'_, '_>, keys: &DescriptorKeys) {
    for name in
        ["mode", "enforce_percent", "shadow_mode", "quota_mode", "detailed_metric", "metadata"]
    {
        if let Some(given) = keys.keys.get(name) {
            let message = format!("`{name}` has no effect on a descriptor without a limit");
            let fault = Fault::new("no_effect", message)
                .hint("move it to the descriptors that have limits, or add a limit");
            reader.warn_at(given.key_location, fault);
        }
    }
}
