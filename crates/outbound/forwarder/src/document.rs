//! The forwarder's document: YAML, with a location for every problem.
//!
//! [`ForwardDocument::read`] turns a text into targets, record types and their processors, and reports all its problems
//! at once. `table` declares every key; reader, [`forward_schema`] and [`forward_reference`] come from it.
//!
//! Not here: files. The caller reads the text, and [`ProcessorPlan::build`] reads the files that it names.

mod kinds;
mod table;
mod targets;
#[cfg(test)]
mod tests;
mod types;

use std::collections::HashMap;

use serde_json::json;
use tidegate_capacity::{CapacityDocument, StoreLost, Target};
use tidegate_document::{
    Fault, LocatedValue, Location, PlainDialect, Problem, Problems, Reader, Report, Source, Text,
    definitions, did_you_mean, parse, property, reference,
};
use tidegate_queue::RECORD_TYPE_BYTES_MAX;

use crate::forwarder::Forwarder;
use crate::processor_plan::ProcessorPlan;
use crate::settings::TypeSettings;
use table::DocumentKeys;

/// The largest document: 256 types of a kilobyte, four times over.
pub const FORWARD_DOCUMENT_BYTES_MAX: usize = 1024 * 1024;

/// The JSON Schema (draft 2020-12) of a forwarder's document.
pub fn forward_schema() -> serde_json::Value {
    let root = DocumentKeys::mapping();
    json!({
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "Tidegate forwarder",
        "description": "Throttled services and the types of records that are sent to them.",
        "$ref": format!("#/$defs/{}", root.name),
        "$defs": definitions(root, property),
    })
}

/// The tables of all keys, as Markdown; docs/forward-reference.md has them.
pub fn forward_reference() -> String {
    reference(DocumentKeys::mapping())
}

/// A document that was read.
#[derive(Debug)]
pub struct ForwardDocument {
    /// The throttled services.
    pub targets: Vec<Target>,
    /// The types of records.
    pub types: Vec<TypePlan>,
    /// Header fields of records that are kept although they are secrets; lower case.
    pub kept_secrets: Vec<String>,
    /// The tenant of each token that belongs to one, by the token's name.
    pub tenants: HashMap<String, String>,
    /// Problems that leave it usable.
    pub warnings: Vec<Problem>,
}

/// A type of records as it is configured.
#[derive(Clone, Debug)]
pub struct TypePlan {
    /// Its settings.
    pub settings: TypeSettings,
    /// The name of its target.
    pub target: String,
    /// How its records are processed.
    pub processor: ProcessorPlan,
}

impl ForwardDocument {
    /// Reads a document.
    ///
    /// # Errors
    /// With all problems of the text.
    pub fn read(source: Source) -> Result<Self, Report> {
        let sources = [source];
        let mut problems = Problems::new(&sources);
        let [source] = &sources;
        let read = read(source, &mut problems);
        let has_errors = problems.has_errors();
        let report = problems.into_report();
        match read {
            Some(document) if !has_errors => {
                Ok(ForwardDocument { warnings: report.problems().to_vec(), ..document })
            }
            _ => Err(report),
        }
    }

    /// The target of a type.
    pub fn target_of(&self, plan: &TypePlan) -> Option<&Target> {
        self.targets.iter().find(|target| target.name == plan.target)
    }
}

fn read(source: &Source, problems: &mut Problems<'_>) -> Option<ForwardDocument> {
    let bytes = source.text.len();
    if bytes > FORWARD_DOCUMENT_BYTES_MAX {
        let message =
            format!("the document has {bytes} bytes; the maximum is {FORWARD_DOCUMENT_BYTES_MAX}");
        problems.error(Location::default(), Fault::new("too_large", message));
        return None;
    }
    let yaml = parse(0, &source.text, problems)?;
    if yaml.root().is_none_or(|root| yaml.is_null(root)) {
        let fault = Fault::new("missing_key", "the document is empty")
            .hint("it needs `targets` and `types`");
        problems.error(Location::default(), fault);
        return None;
    }
    let keys: Option<DocumentKeys> = Reader::new(&yaml, problems, &PlainDialect).root();
    Some(document(keys?, problems))
}

fn document(keys: DocumentKeys, problems: &mut Problems<'_>) -> ForwardDocument {
    let names = |names: Vec<Option<&LocatedValue<Text>>>| -> Vec<(String, Location)> {
        names.into_iter().flatten().map(|name| (name.value.0.clone(), name.location)).collect()
    };
    let target_names = names(keys.targets.iter().map(|target| target.name.as_ref()).collect());
    let type_names = names(keys.types.iter().map(|each| each.name.as_ref()).collect());
    check_unique("target", &target_names, problems);
    check_unique("type", &type_names, problems);
    check_types(&keys, problems);
    for (name, location) in &target_names {
        check_name(name, *location, problems);
    }
    let mut lost = HashMap::new();
    let mut targets = Vec::new();
    for target in keys.targets {
        let rule = target.store_lost.map_or_else(StoreLost::default, kinds::StoreLostWord::rule);
        if let Some(read) = targets::target(target, problems) {
            lost.insert(read.name.clone(), rule);
            targets.push(read);
        }
    }
    let mut types = Vec::new();
    for each in keys.types {
        let Some(named) = &each.target else { continue };
        let (target, location) = (named.value.0.clone(), named.location);
        if !target_names.iter().any(|(name, _)| *name == target) {
            let hint = did_you_mean(&target, target_names.iter().map(|(name, _)| name.as_str()));
            let fault = Fault::new("unknown_target", format!("there is no target `{target}`"));
            problems.error(location, fault.maybe_hint(hint));
        }
        let pool = each.pool.as_ref().map(|pool| (pool.value.0.clone(), pool.location));
        let known = targets.iter().find(|known: &&Target| known.name == target);
        check_pool(known, pool.as_ref(), location, problems);
        let Some((mut settings, processor)) = types::record_type(each, problems) else { continue };
        settings.store_lost = lost.get(&target).copied().unwrap_or_default();
        types.push(TypePlan { settings, target, processor });
    }
    warn_unused(&target_names, &types, problems);
    let tenants = keys.tenants.into_iter();
    ForwardDocument {
        targets,
        types,
        kept_secrets: keys.kept_secrets.iter().map(|name| name.as_str().to_lowercase()).collect(),
        tenants: tenants.filter_map(|each| Some((each.token?.0, each.tenant?.0))).collect(),
        warnings: Vec::new(),
    }
}

fn check_types(keys: &DocumentKeys, problems: &mut Problems<'_>) {
    let number = keys.types.len();
    let message = match number {
        0 if keys.keys.has("types") && !problems.has_errors() => {
            "there is no record type, so that nothing is sent".to_owned()
        }
        _ if number > Forwarder::TYPES_MAX => {
            format!("{number} record types; the maximum is {}", Forwarder::TYPES_MAX)
        }
        _ => return,
    };
    problems.error(keys.keys.value_location("types"), Fault::new("wrong_number", message));
}

/// The name of a target is a key in the lease store and a part of paths.
fn check_name(name: &str, location: Location, problems: &mut Problems<'_>) {
    let plain = |letter: char| letter.is_ascii_alphanumeric() || "-_.".contains(letter);
    if name.len() > RECORD_TYPE_BYTES_MAX || !name.chars().all(plain) {
        let message = format!(
            "the name of a target has 1 to {RECORD_TYPE_BYTES_MAX} letters, digits, `-`, `_` or `.`"
        );
        problems.error(location, Fault::new("invalid_name", message));
    }
}

fn check_unique(what: &str, names: &[(String, Location)], problems: &mut Problems<'_>) {
    for (index, (name, location)) in names.iter().enumerate() {
        let earlier = names.iter().take(index).find(|(other, _)| other == name);
        if let Some((_, first)) = earlier {
            let fault = Fault::new("duplicate_name", format!("there are two {what}s `{name}`"))
                .related(*first, "the first is here")
                .hint("give each a name of its own");
            problems.error(*location, fault);
        }
    }
}

/// A type whose pool its target does not have would get no slots and never send.
fn check_pool(
    target: Option<&Target>,
    pool: Option<&(String, Location)>,
    target_location: Location,
    problems: &mut Problems<'_>,
) {
    let Some(target) = target else { return };
    let name = pool.map_or(CapacityDocument::DEFAULT_POOL, |(name, _)| name);
    let pools: Vec<&str> = target.pools.iter().map(|pool| pool.name.as_str()).collect();
    // Each target has the default pool.
    if pools.contains(&name) || name == CapacityDocument::DEFAULT_POOL {
        return;
    }
    let message = format!("the target `{}` has no pool `{name}`", target.name);
    let hint = match pools.is_empty() {
        true => "remove `pool`, or give the target `pools`".to_owned(),
        false => did_you_mean(name, pools.iter().copied())
            .unwrap_or_else(|| format!("it has: {}", pools.join(", "))),
    };
    let location = pool.map_or(target_location, |(_, location)| *location);
    problems.error(location, Fault::new("unknown_pool", message).hint(hint));
}

fn warn_unused(targets: &[(String, Location)], types: &[TypePlan], problems: &mut Problems<'_>) {
    for (name, location) in targets {
        if !problems.has_errors() && !types.iter().any(|plan| plan.target == *name) {
            let message = format!("no type sends to the target `{name}`");
            problems.warn(*location, Fault::new("no_effect", message));
        }
    }
}

/// Replaces a default by what is given.
fn put<T>(target: &mut T, given: Option<T>) {
    if let Some(given) = given {
        *target = given;
    }
}

/// A count as large as this machine can have.
fn size(count: u64) -> usize {
    usize::try_from(count).unwrap_or(usize::MAX)
}

/// A number that the bounds of its key keep within 32 bits.
fn count(number: u64) -> u32 {
    u32::try_from(number).unwrap_or(u32::MAX)
}

/// A number that the bounds of its key keep within 16 bits.
fn small(number: u64) -> u16 {
    u16::try_from(number).unwrap_or(u16::MAX)
}
