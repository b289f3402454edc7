//! The error of envoyproxy/ratelimit for rule files that it refuses, word for word.
//!
//! Alerts search the log for its texts. It stops at its first error, in its own order: the syntax of a file, the names
//! of its keys, the types of its values; then, over all files, what the rules say. So this reads the files once more, in
//! that order, and only when they are refused.

mod decode;
mod load;

use std::fmt::Write;

use tidegate_document::{
    Children, Location, NodeId, NodeKind, PlainValue, Problems, Scalar, Source, Yaml, parse,
};

use crate::row_file::is_row_file;
use crate::table::homes_of;
use decode::{Decoder, UpstreamFile};

/// The text that envoyproxy/ratelimit logs when it refuses these files, as `<file>: <error>`; the name of a source is its
/// name there. `None` if it accepts them.
pub fn upstream_error(sources: &[Source], merge_domains: bool) -> Option<String> {
    let named = |source: &Source, error: String| format!("{}: {error}", source.name);
    let mut roots = Vec::with_capacity(sources.len());
    for (index, source) in (0_u32..).zip(sources) {
        if is_row_file(&source.name) {
            continue;
        }
        match read(index, source, sources) {
            Ok(root) => roots.push((source, root)),
            Err(FileError::Text(error)) => return Some(named(source, error)),
            Err(FileError::Other) => return None,
        }
    }
    let mut domains = load::LoadedDomains::default();
    for (source, root) in roots {
        if let Err(error) = domains.load(&root, merge_domains) {
            return Some(named(source, error));
        }
    }
    None
}

/// Why a file is not read further.
enum FileError {
    /// The error of envoyproxy/ratelimit.
    Text(String),
    /// A maximum of ours; envoyproxy/ratelimit has none.
    Other,
}

impl From<String> for FileError {
    fn from(text: String) -> Self {
        FileError::Text(text)
    }
}

fn read(index: u32, source: &Source, sources: &[Source]) -> Result<UpstreamFile, FileError> {
    let mut problems = Problems::new(sources);
    let Some(yaml) = parse(index, &source.text, &mut problems) else {
        let report = problems.into_report();
        let syntax = report.problems().iter().find(|problem| problem.code == "yaml_syntax");
        let text = syntax.and_then(|problem| problem.compat_message.clone());
        return Err(text.map_or(FileError::Other, FileError::Text));
    };
    let tree = ParsedFile { yaml: &yaml, text: &source.text };
    let Some(root) = yaml.root().filter(|root| !yaml.is_null(*root)) else {
        return Ok(UpstreamFile::default());
    };
    let mut decoder = Decoder::new(tree);
    if !matches!(yaml.node(root).kind, NodeKind::Mapping(_)) {
        decoder.refuse(root, "map[interface {}]interface {}");
        return Err(decoder.errors().into());
    }
    tree.check_keys(root)?;
    let decoded = decoder.root(root);
    match decoder.errors() {
        errors if errors.is_empty() => Ok(decoded),
        errors => Err(errors.into()),
    }
}

/// A parsed file.
#[derive(Clone, Copy)]
struct ParsedFile<'y> {
    yaml: &'y Yaml<'y>,
    text: &'y str,
}

impl<'y> ParsedFile<'y> {
    /// The first key that is not known, and the first value of a type that rules do not have.
    // The depth of the recursion is bounded by that of the tree.
    fn check_keys(self, mapping: NodeId) -> Result<(), String> {
        if !self.yaml.merged_pairs(mapping).strays.is_empty() {
            let problem = "map merge requires map or sequence of maps as the value";
            return Err(format!("error loading config file: yaml: {problem}"));
        }
        for (key, value) in self.pairs(mapping) {
            let name = match self.yaml.scalar(key) {
                Some(scalar) if scalar.plain() == PlainValue::Text => &*scalar.text,
                _ => {
                    let key = self.display(key);
                    return Err(format!("config error, key is not of type string: {key}"));
                }
            };
            if !homes_of(name).any(|(_, key)| crate::table::is_upstream(key)) {
                return Err(format!("config error, unknown key '{name}'"));
            }
            if name == "metadata" {
                continue;
            }
            match &self.yaml.node(value).kind {
                NodeKind::Mapping(_) => self.check_keys(value)?,
                NodeKind::Sequence(items) => self.check_items(*items)?,
                NodeKind::Scalar(scalar) => check_scalar(scalar)?,
            }
        }
        Ok(())
    }

    fn check_items(self, items: Children) -> Result<(), String> {
        for item in self.yaml.items(items) {
            if !matches!(self.yaml.node(*item).kind, NodeKind::Mapping(_)) {
                let item = self.display(*item);
                return Err(format!(
                    "config error, yaml file contains list of type other than map: {item}"
                ));
            }
            self.check_keys(*item)?;
        }
        Ok(())
    }

    /// The pairs of a mapping, with those of its merge keys. Of equal keys the last counts.
    fn pairs(self, mapping: NodeId) -> Vec<(NodeId, NodeId)> {
        self.yaml.merged_pairs(mapping).pairs
    }

    /// A value as Go's `%v` shows it.
    // The depth of the recursion is bounded by that of the tree.
    fn display(self, node: NodeId) -> String {
        match &self.yaml.node(node).kind {
            NodeKind::Scalar(scalar) => match scalar.plain() {
                PlainValue::Null => "<nil>".to_owned(),
                PlainValue::Bool(flag) => flag.to_string(),
                PlainValue::Integer(number) => number.to_string(),
                PlainValue::Float(number) => number.to_string(),
                PlainValue::Text => scalar.text.clone().into_owned(),
            },
            NodeKind::Sequence(items) => self.display_all("[", self.yaml.items(*items), "]"),
            NodeKind::Mapping(_) => {
                let mut shown = "map[".to_owned();
                for (index, (key, value)) in self.pairs(node).into_iter().enumerate() {
                    let space = if index > 0 { " " } else { "" };
                    let (key, value) = (self.display(key), self.display(value));
                    let _ = write!(shown, "{space}{key}:{value}");
                }
                shown + "]"
            }
        }
    }

    fn display_all(self, open: &str, items: &[NodeId], close: &str) -> String {
        let items: Vec<String> = items.iter().map(|item| self.display(*item)).collect();
        format!("{open}{}{close}", items.join(" "))
    }

    /// The line of a node, from one.
    fn line(self, node: NodeId) -> usize {
        let Location { start, .. } = self.yaml.location(node);
        let before = self.text.get(..start as usize).unwrap_or(self.text);
        before.bytes().filter(|byte| *byte == b'\n').count() + 1
    }
}

/// Refuses a number with a fraction and one beyond 63 bits: Go reads both as other types than `int`.
fn check_scalar(scalar: &Scalar<'_>) -> Result<(), String> {
    let is_int = match scalar.plain() {
        PlainValue::Integer(number) => i64::try_from(number).is_ok(),
        PlainValue::Float(_) => false,
        PlainValue::Null | PlainValue::Bool(_) | PlainValue::Text => true,
    };
    if is_int { Ok(()) } else { Err("error checking config".to_owned()) }
}

#[cfg(test)]
mod tests;
