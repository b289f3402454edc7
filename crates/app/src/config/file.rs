//! The file: from YAML to values for fields.

use tidegate_document::{
    Dialect, Fault, GivenKey, Location, MappingType, NodeId, NodeKind, Problems, Reader, Scalar,
    Shape, Source, did_you_mean, one_of, parse,
};

use super::fields::Config;
use super::layers::{LayerValue, Origin};

/// The largest configuration file; the example with every field has 8 KiB.
pub(super) const FILE_BYTES_MAX: usize = 1024 * 1024;

/// Reads the file, which is the first of the sources.
pub(super) fn read<'s>(
    source: &'s Source,
    problems: &mut Problems<'_>,
    values: &mut Vec<LayerValue<'s>>,
) {
    if source.text.len() > FILE_BYTES_MAX {
        let message =
            format!("the file has {} bytes; the maximum is {FILE_BYTES_MAX}", source.text.len());
        problems.error(Location::default(), Fault::new("too_large", message));
        return;
    }
    let Some(yaml) = parse(0, &source.text, problems) else { return };
    if yaml.root().is_none_or(|root| yaml.is_null(root)) {
        return;
    }
    let mut reader = Reader::new(&yaml, problems, &ConfigDialect).recording_locations();
    if let Some(root) = reader.root_given() {
        section(&mut reader, &root, Config::mapping(), values, source);
    }
}

// The depth of the recursion is bounded by that of the declaration.
fn section<'s>(
    reader: &mut Reader<'_, '_>,
    given: &GivenKey,
    mapping: &'static MappingType,
    values: &mut Vec<LayerValue<'s>>,
    source: &Source,
) {
    let Some(keys) = reader.keys(given, mapping) else { return };
    for given in keys.iter() {
        reader.within(given, None, |reader| match given.key.shape() {
            Shape::Mapping(below) => section(reader, given, below, values, source),
            shape => values.extend(field(reader, given, &shape, source)),
        });
    }
}

fn field<'s>(
    reader: &mut Reader<'_, '_>,
    given: &GivenKey,
    shape: &Shape,
    source: &Source,
) -> Option<LayerValue<'s>> {
    let yaml = reader.yaml();
    let single = [given.node];
    let nodes: &[NodeId] = match (&yaml.node(given.node).kind, shape) {
        (NodeKind::Scalar(_), _) => &single,
        (NodeKind::Sequence(items), Shape::List(_)) => yaml.items(*items),
        (NodeKind::Sequence(_) | NodeKind::Mapping(_), _) => {
            reader.wrong_type(given, &shape.words());
            return None;
        }
    };
    let mut scalars = Vec::with_capacity(nodes.len());
    for node in nodes {
        let Some(scalar) = yaml.scalar(*node).filter(|_| !yaml.is_null(*node)) else {
            let words = match shape {
                Shape::List(item) => item.words(),
                shape => shape.words(),
            };
            reader.wrong_type(&given.item(*node, yaml.location(*node)), &words);
            return None;
        };
        let text = scalar.text.clone().into_owned();
        scalars.push(Scalar { text: text.into(), style: scalar.style });
    }
    let start = usize::try_from(given.key_location.start).unwrap_or(usize::MAX);
    let before = source.text.get(..start).unwrap_or_default();
    let line = before.bytes().filter(|byte| *byte == b'\n').count() + 1;
    Some(LayerValue {
        path: reader.path().to_owned(),
        scalars,
        locations: nodes.iter().map(|node| yaml.location(*node)).collect(),
        location: given.location,
        origin: Origin::File { name: source.name.clone(), line },
    })
}

/// The dialect of the configuration file: keys are named by their path.
#[derive(Debug)]
struct ConfigDialect;

impl Dialect for ConfigDialect {
    fn names_paths(&self) -> bool {
        true
    }

    fn unknown_key(
        &self,
        reader: &mut Reader<'_, '_>,
        mapping: &'static MappingType,
        name: &str,
        key: NodeId,
        _value: NodeId,
    ) {
        let paths = Config::paths();
        let elsewhere = || {
            let suffix = format!(".{name}");
            let is_named = |path: &&String| path.as_str() == name || path.ends_with(&suffix);
            let found: Vec<&str> = paths.iter().filter(is_named).map(String::as_str).collect();
            (!found.is_empty()).then(|| format!("it belongs at {}", one_of(&found)))
        };
        let hint = did_you_mean(name, mapping.names()).or_else(elsewhere).unwrap_or_else(|| {
            format!("the keys are {}", mapping.names().collect::<Vec<_>>().join(", "))
        });
        let section = match reader.path() {
            "" => "at the top level".to_owned(),
            path => format!("in `{path}`"),
        };
        let fault = Fault::new("unknown_key", format!("unknown key `{name}` {section}")).hint(hint);
        reader.error_at(reader.yaml().location(key), fault);
    }
}
