//! The top level of a rule file.

use tidegate_algorithms::Charge;

use super::reader::{Fields, Reader};
use super::{Placed, Plan, RuleFile, descriptor, limit};
use crate::diagnostics::{Fault, Problems, Spot};
use crate::source::{SOURCE_BYTES_MAX, Source};
use crate::vocabulary::Place;
use crate::yaml::{Kind, parse};

/// Reads one source. None when nothing in it can be checked further.
pub(crate) fn read(file: u32, source: &Source, problems: &mut Problems<'_>) -> Option<RuleFile> {
    let start = Spot { file, start: 0, end: 0 };
    if source.text.len() > SOURCE_BYTES_MAX {
        let message =
            format!("the file has {} bytes; the most is {SOURCE_BYTES_MAX}", source.text.len());
        let fault = Fault::new("too_large", message).hint("split the rules into several files");
        problems.error(start, fault);
        return None;
    }
    let yaml = parse(file, &source.text, problems)?;
    let Some(root) = yaml.root().filter(|root| !yaml.is_null(*root)) else {
        let fault = Fault::new("no_domain", "the file is empty")
            .hint("a rule file starts with `domain: NAME`")
            .compat("config file cannot have empty domain");
        problems.error(start, fault);
        return None;
    };
    let mut reader = Reader::new(&yaml, problems);
    if !matches!(yaml.node(root).kind, Kind::Mapping(_)) {
        let message = format!("a rule file is a mapping, not {}", yaml.describe(root));
        let fault = Fault::new("wrong_type", message)
            .hint("a rule file starts with `domain: NAME`")
            .compat("error loading config file: the document is no mapping");
        reader.error(root, fault);
        return None;
    }
    let fields = reader.fields(root, Place::Root);
    let domain = domain(&mut reader, &fields);
    let charge = reader.choice(&fields, "charge", Charge::WORDS, Charge::from_word);
    let store_deadline = reader.duration(&fields, "store_deadline");
    let plans = plans(&mut reader, &fields);
    let descriptors = descriptor::read_all(&mut reader, &fields);
    Some(RuleFile { domain: domain?, charge, store_deadline, plans, descriptors })
}

fn domain(reader: &mut Reader<'_, '_>, fields: &Fields) -> Option<Placed<String>> {
    let written = match fields.get("domain") {
        Some(field) => reader.text(field)?,
        None => {
            Placed { what: String::new(), spot: Spot { end: fields.spot.start, ..fields.spot } }
        }
    };
    if written.what.is_empty() {
        let fault = Fault::new("no_domain", "the file names no domain")
            .hint("add `domain: NAME` at the top level")
            .compat("config file cannot have empty domain");
        reader.error_at(written.spot, fault);
        return None;
    }
    Some(written)
}

fn plans(reader: &mut Reader<'_, '_>, fields: &Fields) -> Vec<Plan> {
    let Some(field) = fields.get("plans") else {
        return Vec::new();
    };
    let yaml = reader.yaml;
    if !matches!(yaml.node(field.value).kind, Kind::Mapping(_)) {
        reader.wrong_kind(field.value, "plans", "a mapping of names to plans");
        return Vec::new();
    }
    let mut plans = Vec::new();
    for (name, plan) in reader.pairs(field.value) {
        let Some(name) = reader.text_of(name, "the name of a plan") else {
            continue;
        };
        if name.what.is_empty() {
            let fault = Fault::new("empty_name", "a plan has an empty name");
            reader.error_at(name.spot, fault);
        }
        if !matches!(yaml.node(plan).kind, Kind::Mapping(_)) {
            reader.wrong_kind(plan, &name.what, "a mapping with `limits`");
            continue;
        }
        let fields = reader.fields(plan, Place::Plan);
        let limits = match fields.get("limits") {
            Some(list) => limit::read_list(reader, list),
            None => {
                let message = format!("plan `{}` has no limits", name.what);
                let hint = "give it `limits`; `limits: [{unlimited: true}]` for none";
                reader.error_at(name.spot, Fault::new("no_limits", message).hint(hint));
                Vec::new()
            }
        };
        plans.push(Plan { name, limits });
    }
    plans
}
