//! Descriptors: the nodes of the rule tree, as written.

use ipnet::IpNet;
use serde_json::json;
use tidegate_algorithms::Mode;
use tidegate_document::{
    Bounds, Fault, GivenKey, Item, LocatedValue, Location, Reader, ScalarOr, Shape,
};

use super::{CounterSharing, Descriptor, Limits, ValuePattern, is_empty_list};
use crate::address::{PrefixLengths, parse_cidr};
use crate::kinds::{PlanName, RuleText};
use crate::table::{DescriptorKeys, PlanChoiceKeys};

impl Item for Descriptor {
    fn shape(bounds: &Bounds) -> Shape {
        <DescriptorKeys as Item>::shape(bounds)
    }

    fn read(reader: &mut Reader<'_, '_>, given: &GivenKey) -> Option<Self> {
        let mut keys = DescriptorKeys::read(reader, given)?;
        let key = keys.key(reader);
        let values = keys.values(reader);
        let prefixes = keys.prefixes(reader, &values);
        let share = keys.share_threshold.as_ref().filter(|share| share.value);
        let is_shareable = matches!(values, ValuePattern::Like(_) | ValuePattern::Within(_));
        let sharing = match (&values, prefixes) {
            (ValuePattern::Exactly(_), _) => CounterSharing::All,
            _ if share.is_some() && is_shareable => CounterSharing::All,
            (_, Some(prefixes)) => CounterSharing::SameNetwork(prefixes),
            _ => CounterSharing::None,
        };
        let misused_share = share.filter(|_| !is_shareable).map(|share| share.key);
        let limits = keys.limits(reader, values == ValuePattern::Any && prefixes.is_none());
        let overrides = keys.overrides.take().map(|table| table.map(|name| name.0));
        if matches!(limits, Limits::None) && overrides.is_none() {
            keys.warn_without_limit(reader);
        }
        Some(Descriptor {
            location: keys.head(),
            key: key?,
            values,
            sharing,
            misused_share,
            limits,
            overrides,
            mode: keys.mode(reader),
            enforce_percent: keys.enforce_percent.and_then(|percent| u8::try_from(percent).ok()),
            quota: keys.quota_mode.unwrap_or_default(),
            detailed_metric: keys.detailed_metric.unwrap_or_default(),
            value_to_metric: keys.value_to_metric.unwrap_or_default(),
            metadata: keys.metadata.map(|metadata| metadata.0),
            children: keys.descriptors,
        })
    }
}

impl DescriptorKeys {
    /// The part of a descriptor to point at when the whole is meant.
    fn head(&self) -> Location {
        let name = ["value", "cidr", "key"].into_iter().find(|name| self.keys.has(name));
        name.map_or(self.keys.location, |name| self.keys.value_location(name))
    }

    fn key(&self, reader: &mut Reader<'_, '_>) -> Option<String> {
        let key = match &self.key {
            Some(key) => key.value.0.clone(),
            None if self.keys.has("key") => return None,
            None => String::new(),
        };
        if key.is_empty() {
            let fault = Fault::new("no_key", "a descriptor has no key")
                .hint("add `key: NAME`")
                .compat("descriptor has empty key");
            reader.error_at(self.keys.value_location("key"), fault);
            return None;
        }
        Some(key)
    }

    fn values(&mut self, reader: &mut Reader<'_, '_>) -> ValuePattern {
        let value = self.value.take().map(|value| value.0).filter(|value| !value.is_empty());
        match (value, self.keys.get("cidr")) {
            (Some(_), Some(cidr)) => {
                let fault = Fault::new("value_and_cidr", "`value` and `cidr` exclude each other")
                    .hint("remove one of them");
                reader.error_at(cidr.key_location, fault);
                ValuePattern::Any
            }
            (Some(value), None) if value.contains('*') => ValuePattern::Like(value),
            (Some(value), None) => ValuePattern::Exactly(value),
            (None, Some(_)) => {
                ValuePattern::Within(self.cidr.take().map(|cidr| cidr.0).unwrap_or_default())
            }
            (None, None) => ValuePattern::Any,
        }
    }

    /// The prefixes by which addresses are counted, if values are addresses.
    fn prefixes(
        &self,
        reader: &mut Reader<'_, '_>,
        values: &ValuePattern,
    ) -> Option<PrefixLengths> {
        let implied = matches!(values, ValuePattern::Within(_)).then_some(PrefixLengths::DEFAULT);
        let prefixes = match self.address.as_ref() {
            None | Some(ScalarOr::Scalar(false)) => return implied,
            Some(ScalarOr::Scalar(true)) => PrefixLengths::DEFAULT,
            Some(ScalarOr::Mapping(lengths)) => {
                let length =
                    |length: Option<u64>| length.and_then(|length| u8::try_from(length).ok());
                let (v4, v6) = (length(lengths.v4), length(lengths.v6));
                PrefixLengths::new(v4.unwrap_or(32), v6.unwrap_or(64))
            }
        };
        if matches!(values, ValuePattern::Exactly(_) | ValuePattern::Like(_))
            && let Some(address) = self.keys.get("address")
        {
            let message = "`address` has no meaning together with `value`";
            let fault = Fault::new("address_and_value", message)
                .hint("remove `value` to match every address, or use `cidr`");
            reader.error_at(address.key_location, fault);
        }
        Some(prefixes)
    }

    /// The limits; `takes_any_value` says whether the descriptor matches every value, which a plan named by the value
    /// needs.
    fn limits(&mut self, reader: &mut Reader<'_, '_>, takes_any_value: bool) -> Limits {
        let names = ["rate_limit", "limits", "plan"];
        let given: Vec<&GivenKey> = names.iter().filter_map(|name| self.keys.get(name)).collect();
        if let [first, second, ..] = given.as_slice() {
            let message =
                format!("`{}` and `{}` exclude each other", first.key.name, second.key.name);
            let fault = Fault::new("several_limit_keys", message)
                .related(first.key_location, "the other is here")
                .hint("put all limits into `limits`, or into a plan");
            reader.error_at(second.key_location, fault);
        }
        let Some(first) = given.first().map(|given| given.key.name) else { return Limits::None };
        // Read and checked even when another key comes first.
        let plan = self.plan.take().map(|keys| plan(reader, keys, takes_any_value));
        match first {
            "rate_limit" => Limits::Own(self.rate_limit.take().into_iter().collect()),
            "limits" => Limits::Own(self.limits.take().map(|limits| limits.0).unwrap_or_default()),
            _ => plan.unwrap_or(Limits::Own(Vec::new())),
        }
    }

    fn mode(&self, reader: &mut Reader<'_, '_>) -> Option<Mode> {
        let mode = self.mode.as_ref().map(|mode| (mode.value.0, mode.location));
        match (mode, self.shadow_mode.unwrap_or_default()) {
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
    fn warn_without_limit(&self, reader: &mut Reader<'_, '_>) {
        for name in
            ["mode", "enforce_percent", "shadow_mode", "quota_mode", "detailed_metric", "metadata"]
        {
            if let Some(given) = self.keys.get(name) {
                let message = format!("`{name}` has no effect on a descriptor without a limit");
                let fault = Fault::new("no_effect", message)
                    .hint("move it to the descriptors that have limits, or add a limit");
                reader.warn_at(given.key_location, fault);
            }
        }
    }
}

fn plan(
    reader: &mut Reader<'_, '_>,
    plan: LocatedValue<ScalarOr<PlanName, PlanChoiceKeys>>,
    takes_any_value: bool,
) -> Limits {
    let choice = match plan.value {
        ScalarOr::Scalar(PlanName(value)) => {
            return Limits::Plan(LocatedValue { value, location: plan.location, key: plan.key });
        }
        ScalarOr::Mapping(choice) => choice,
    };
    if !choice.keys.has("from") {
        let fault = Fault::new("incomplete_plan", "`plan` does not say where its name is")
            .hint("write `plan: {from: value}`, or `plan: NAME`");
        reader.error_at(plan.key, fault);
    }
    if !takes_any_value {
        let message = "a plan named by the value needs a descriptor that matches every value";
        let fault = Fault::new("plan_needs_any_value", message)
            .hint("remove `value`, `cidr` and `address`");
        reader.error_at(plan.key, fault);
    }
    Limits::PlanNamedByValue { default: choice.default.map(|default| default.map(|name| name.0)) }
}

/// The ranges of `cidr`: one, or a list.
#[derive(Debug)]
pub(crate) struct AddressRanges(Vec<IpNet>);

impl Item for AddressRanges {
    fn shape(_: &Bounds) -> Shape {
        let range = json!({"type": "string", "minLength": 1});
        let list = json!({"type": "array", "items": range, "minItems": 1});
        Shape::Other("an address range or a list of them", json!({"anyOf": [range, list]}))
    }

    fn read(reader: &mut Reader<'_, '_>, given: &GivenKey) -> Option<Self> {
        let texts: Vec<LocatedValue<RuleText>> = Item::read(reader, given)?;
        if is_empty_list(reader, given) {
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
