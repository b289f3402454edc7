//! The top level of a rule file.

use tidegate_document::{
    Fault, LocatedValue, Location, NodeKind, Problems, Reader, Source, Yaml, parse,
};

use super::{Plan, RuleFile, Table};
use crate::dialect::RuleDialect;
use crate::options::SOURCE_BYTES_MAX;
use crate::table::{PlanKeys, RuleFileKeys, TableKeys};

/// Reads one source. None when nothing in it can be checked further.
pub(crate) fn read(file: u32, source: &Source, problems: &mut Problems<'_>) -> Option<RuleFile> {
    let start = Location { file, start: 0, end: 0 };
    if source.text.len() > SOURCE_BYTES_MAX {
        let message =
            format!("the file has {} bytes; the maximum is {SOURCE_BYTES_MAX}", source.text.len());
        let fault = Fault::new("too_large", message).hint("split the rules into several files");
        problems.error(start, fault);
        return None;
    }
    let yaml = parse(file, &source.text, problems)?;
    if !has_mapping(&yaml, start, problems) {
        return None;
    }
    let mut reader = Reader::new(&yaml, problems, &RuleDialect);
    let keys: RuleFileKeys = reader.root()?;
    let domain = domain(&mut reader, &keys);
    let plans = keys.plans.map(|plans| plans.0).unwrap_or_default();
    let plans = plans.into_iter().map(|(name, keys)| plan(&mut reader, name, keys)).collect();
    let tables = keys.tables.map(|tables| tables.0).unwrap_or_default();
    let tables = tables.into_iter().filter_map(|(name, keys)| table(&mut reader, name, keys));
    let tables = tables.collect();
    Some(RuleFile {
        domain: domain?,
        charge: keys.charge.map(|charge| charge.map(|word| word.0)),
        store_deadline: keys.store_deadline.map(|deadline| deadline.map(|interval| interval.0)),
        plans,
        tables,
        descriptors: keys.descriptors,
    })
}

/// Whether the file has a mapping at its top level; reports when not.
fn has_mapping(yaml: &Yaml<'_>, start: Location, problems: &mut Problems<'_>) -> bool {
    let hint = "a rule file starts with `domain: NAME`";
    let Some(root) = yaml.root().filter(|root| !yaml.is_null(*root)) else {
        let fault = Fault::new("no_domain", "the file is empty")
            .hint(hint)
            .compat("config file cannot have empty domain");
        problems.error(start, fault);
        return false;
    };
    if matches!(yaml.node(root).kind, NodeKind::Mapping(_)) {
        return true;
    }
    let message = format!("a rule file is a mapping, not {}", yaml.describe(root));
    let fault = Fault::new("wrong_type", message)
        .hint(hint)
        .compat("error loading config file: the document is no mapping");
    problems.error(yaml.location(root), fault);
    false
}

fn domain(reader: &mut Reader<'_, '_>, keys: &RuleFileKeys) -> Option<LocatedValue<String>> {
    let start = Location { end: keys.keys.location.start, ..keys.keys.location };
    let (name, location) = match (&keys.domain, keys.keys.has("domain")) {
        (Some(domain), _) => (domain.value.0.clone(), domain.location),
        (None, true) => return None,
        (None, false) => (String::new(), start),
    };
    if name.is_empty() {
        let fault = Fault::new("no_domain", "the file names no domain")
            .hint("add `domain: NAME` at the top level")
            .compat("config file cannot have empty domain");
        reader.error_at(location, fault);
        return None;
    }
    Some(LocatedValue { value: name, location, key: location })
}

fn plan(reader: &mut Reader<'_, '_>, name: LocatedValue<String>, keys: PlanKeys) -> Plan {
    if name.value.is_empty() {
        reader.error_at(name.location, Fault::new("empty_name", "a plan has an empty name"));
    }
    if !keys.keys.has("limits") {
        let message = format!("plan `{}` has no limits", name.value);
        let hint = "give it `limits`; `limits: [{unlimited: true}]` for none";
        reader.error_at(name.location, Fault::new("no_limits", message).hint(hint));
    }
    Plan { name, limits: keys.limits.map(|limits| limits.0).unwrap_or_default() }
}

fn table(
    reader: &mut Reader<'_, '_>,
    name: LocatedValue<String>,
    keys: TableKeys,
) -> Option<Table> {
    if name.value.is_empty() {
        reader.error_at(name.location, Fault::new("empty_name", "a table has an empty name"));
    }
    if !keys.keys.has("key") {
        let message = format!("table `{}` does not say whose rows it has", name.value);
        let hint = "add `key`: the key of the entry whose value is looked up, such as `client`";
        reader.error_at(name.location, Fault::new("no_table_key", message).hint(hint));
    }
    let (key, file) = (keys.key?, keys.file);
    Some(Table { name, key: key.map(|key| key.0), file: file.map(|file| file.map(|name| name.0)) })
}
