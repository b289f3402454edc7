//! The file: from YAML to what is given for which field.

use std::collections::BTreeMap;

use tidegate_document::{
    Fault, Location, NodeId, NodeKind, PlainValue, Problems, Scalar, Yaml, closest, one_of, parse,
};
use tidegate_rules::Source;

use super::fields::Config;
use super::kinds::Plurality;
use super::layers::{Given, Origin};
use super::section::{Entry, join};

/// The largest configuration file; the example with every field has 8 KiB.
pub(super) const FILE_BYTES_MAX: usize = 1024 * 1024;

/// What a path stands for.
#[derive(Clone, Debug)]
enum Known {
    Section,
    Field { words: String, plurality: Plurality },
}

struct Reader<'y, 's, 'p, 'g> {
    yaml: &'y Yaml<'s>,
    source: &'s Source,
    problems: &'y mut Problems<'p>,
    given: &'g mut Vec<Given<'s>>,
    known: BTreeMap<String, Known>,
}

/// Reads the file, which is the first of the sources.
pub(super) fn read<'s>(
    source: &'s Source,
    problems: &mut Problems<'_>,
    given: &mut Vec<Given<'s>>,
) {
    if source.text.len() > FILE_BYTES_MAX {
        let message =
            format!("the file has {} bytes; the most is {FILE_BYTES_MAX}", source.text.len());
        problems.error(Location::default(), Fault::new("too_large", message));
        return;
    }
    let Some(yaml) = parse(0, &source.text, problems) else { return };
    let Some(root) = yaml.root().filter(|root| !yaml.is_null(*root)) else { return };
    let mut reader = Reader { yaml: &yaml, source, problems, given, known: known() };
    reader.section(root, "");
}

fn known() -> BTreeMap<String, Known> {
    let mut config = Config::default();
    let entry = |entry: Entry<'_>| match entry {
        Entry::Section { path, .. } => (path, Known::Section),
        Entry::Field(field) => {
            let words = field.value.shape().words();
            (field.path, Known::Field { words, plurality: field.value.plurality() })
        }
    };
    config.entries().into_iter().map(entry).collect()
}

impl Reader<'_, '_, '_, '_> {
    // Recursion ends with the sections, which do not contain themselves.
    fn section(&mut self, id: NodeId, path: &str) {
        let yaml = self.yaml;
        if !matches!(yaml.node(id).kind, NodeKind::Mapping(_)) {
            let place = if path.is_empty() { "the file".to_owned() } else { format!("`{path}`") };
            let message = format!("{place} takes a mapping, not {}", yaml.describe(id));
            let mut fault = Fault::new("wrong_type", message);
            if let Some(key) = self.children(path).next() {
                fault = fault.hint(format!("it holds keys such as `{key}`"));
            }
            self.problems.error(yaml.location(id), fault);
            return;
        }
        let merged = yaml.merged_pairs(id);
        for stray in merged.strays {
            let message = format!("`<<` takes a mapping, not {}", yaml.describe(stray));
            self.problems.error(yaml.location(stray), Fault::new("wrong_type", message));
        }
        for (key, value) in merged.pairs {
            let Some(name) = self.name(key) else { continue };
            let path = join(path, &name);
            match self.known.get(&path).cloned() {
                None => self.unknown(key, &path),
                Some(_) if yaml.is_null(value) => {}
                Some(Known::Section) => self.section(value, &path),
                Some(Known::Field { words, plurality }) => {
                    self.field(key, value, &path, &words, plurality);
                }
            }
        }
    }

    fn name(&mut self, key: NodeId) -> Option<String> {
        let yaml = self.yaml;
        match yaml.scalar(key) {
            Some(scalar) if scalar.plain() == PlainValue::Text => {
                Some(scalar.text.clone().into_owned())
            }
            _ => {
                let message = format!("a key must be text, not {}", yaml.describe(key));
                self.problems.error(yaml.location(key), Fault::new("key_not_text", message));
                None
            }
        }
    }

    fn field(&mut self, key: NodeId, value: NodeId, path: &str, words: &str, plurality: Plurality) {
        let yaml = self.yaml;
        let nodes: Vec<NodeId> = match &yaml.node(value).kind {
            NodeKind::Scalar(_) => vec![value],
            NodeKind::Sequence(items) if plurality == Plurality::Many => {
                yaml.items(*items).to_vec()
            }
            NodeKind::Sequence(_) | NodeKind::Mapping(_) => {
                let message = format!("`{path}` takes {words}, not {}", yaml.describe(value));
                self.problems.error(yaml.location(value), Fault::new("wrong_type", message));
                return;
            }
        };
        let mut scalars = Vec::with_capacity(nodes.len());
        for node in &nodes {
            let Some(scalar) = yaml.scalar(*node).filter(|_| !yaml.is_null(*node)) else {
                let found = yaml.describe(*node);
                let message = format!("an item of `{path}` is {words}, not {found}");
                self.problems.error(yaml.location(*node), Fault::new("wrong_type", message));
                return;
            };
            let text = scalar.text.clone();
            scalars.push(Scalar { text: text.into_owned().into(), style: scalar.style });
        }
        let start = usize::try_from(yaml.location(key).start).unwrap_or(usize::MAX);
        let before = self.source.text.get(..start).unwrap_or_default();
        let line = before.bytes().filter(|byte| *byte == b'\n').count() + 1;
        self.given.push(Given {
            path: path.to_owned(),
            words: scalars,
            locations: nodes.iter().map(|node| yaml.location(*node)).collect(),
            location: yaml.location(value),
            origin: Origin::File { name: self.source.name.clone(), line },
        });
    }

    /// The keys that belong under a path.
    fn children<'a>(&'a self, path: &'a str) -> impl Iterator<Item = &'a str> {
        self.known.keys().filter_map(move |known| {
            let below = match path {
                "" => Some(known.as_str()),
                _ => known.strip_prefix(path).and_then(|rest| rest.strip_prefix('.')),
            };
            below.filter(|rest| !rest.contains('.'))
        })
    }

    fn unknown(&mut self, key: NodeId, path: &str) {
        let (section, name) = path.rsplit_once('.').unwrap_or(("", path));
        let elsewhere = || {
            let here = format!(".{name}");
            let is_here = |known: &&String| known.as_str() == name || known.ends_with(&here);
            let found: Vec<&str> = self.known.keys().filter(is_here).map(String::as_str).collect();
            (!found.is_empty()).then(|| format!("it belongs at {}", one_of(&found)))
        };
        let siblings: Vec<&str> = self.children(section).collect();
        let hint = closest(name, siblings.iter().copied())
            .map(|near| format!("did you mean `{near}`?"))
            .or_else(elsewhere)
            .unwrap_or_else(|| match section {
                "" => format!("the top level knows {}", siblings.join(", ")),
                _ => format!("`{section}` knows {}", siblings.join(", ")),
            });
        let place = match section {
            "" => "at the top level".to_owned(),
            _ => format!("in `{section}`"),
        };
        let fault = Fault::new("unknown_key", format!("unknown key `{name}` {place}")).hint(hint);
        self.problems.error(self.yaml.location(key), fault);
    }
}
