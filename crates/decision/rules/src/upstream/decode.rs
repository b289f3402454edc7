//! From YAML to the values of a rule file, with the type errors of Go's YAML library.

use tidegate_document::{NodeId, NodeKind, PlainValue, Scalar};

use super::ParsedFile;

/// A rule file.
#[derive(Debug, Default)]
pub(super) struct UpstreamFile {
    pub(super) domain: String,
    pub(super) descriptors: Vec<UpstreamDescriptor>,
}

/// A descriptor, as far as it can be refused.
#[derive(Debug, Default)]
pub(super) struct UpstreamDescriptor {
    pub(super) key: String,
    pub(super) value: String,
    pub(super) rate_limit: Option<UpstreamLimit>,
    pub(super) descriptors: Vec<UpstreamDescriptor>,
    pub(super) share_threshold: bool,
}

/// A limit, as far as it can be refused.
#[derive(Debug, Default)]
pub(super) struct UpstreamLimit {
    pub(super) unit: String,
    pub(super) unlimited: bool,
    pub(super) name: String,
    pub(super) replaces: Vec<String>,
}

/// Reads values, and collects the errors of values with another type.
pub(super) struct Decoder<'y> {
    tree: ParsedFile<'y>,
    errors: Vec<String>,
}

impl<'y> Decoder<'y> {
    pub(super) const fn new(tree: ParsedFile<'y>) -> Self {
        Decoder { tree, errors: Vec::new() }
    }

    /// All errors as one text; empty if there are none.
    pub(super) fn errors(&self) -> String {
        if self.errors.is_empty() {
            return String::new();
        }
        let errors: String = self.errors.iter().map(|error| format!("\n  {error}")).collect();
        format!("error loading config file: yaml: unmarshal errors:{errors}")
    }

    /// Adds the error of a node that has another type than Go's `expected`.
    pub(super) fn refuse(&mut self, node: NodeId, expected: &str) {
        let found = match &self.tree.yaml.node(node).kind {
            NodeKind::Sequence(_) => "!!seq".to_owned(),
            NodeKind::Mapping(_) => "!!map".to_owned(),
            NodeKind::Scalar(scalar) => format!("{} `{}`", tag(scalar), shorten(&scalar.text)),
        };
        let line = self.tree.line(node);
        self.errors.push(format!("line {line}: cannot unmarshal {found} into {expected}"));
    }

    pub(super) fn root(&mut self, node: NodeId) -> UpstreamFile {
        let mut root = UpstreamFile::default();
        for (name, value) in self.fields(node) {
            match &*name {
                "domain" => self.text(value, &mut root.domain),
                "descriptors" => self.descriptors(value, &mut root.descriptors),
                _ => {}
            }
        }
        root
    }

    // The depth of the recursion is bounded by that of the tree.
    fn descriptors(&mut self, node: NodeId, into: &mut Vec<UpstreamDescriptor>) {
        *into = self.list(node, "[]config.YamlDescriptor", Self::descriptor);
    }

    fn descriptor(&mut self, node: NodeId) -> Option<UpstreamDescriptor> {
        let mut descriptor = UpstreamDescriptor::default();
        for (name, value) in self.mapping(node, "config.YamlDescriptor")? {
            match &*name {
                "key" => self.text(value, &mut descriptor.key),
                "value" => self.text(value, &mut descriptor.value),
                "rate_limit" => descriptor.rate_limit = self.rate_limit(value),
                "descriptors" => self.descriptors(value, &mut descriptor.descriptors),
                "share_threshold" => self.flag(value, &mut descriptor.share_threshold),
                "shadow_mode" | "quota_mode" | "detailed_metric" | "value_to_metric" => {
                    self.flag(value, &mut false);
                }
                _ => {}
            }
        }
        Some(descriptor)
    }

    fn rate_limit(&mut self, node: NodeId) -> Option<UpstreamLimit> {
        if self.tree.yaml.is_null(node) {
            return None;
        }
        let mut limit = UpstreamLimit::default();
        for (name, value) in self.mapping(node, "config.YamlRateLimit")? {
            match &*name {
                "requests_per_unit" => self.count(value),
                "unit" => self.text(value, &mut limit.unit),
                "unlimited" => self.flag(value, &mut limit.unlimited),
                "name" => self.text(value, &mut limit.name),
                "replaces" => {
                    limit.replaces = self.list(value, "[]config.yamlReplaces", Self::replaced);
                }
                _ => {}
            }
        }
        Some(limit)
    }

    fn replaced(&mut self, node: NodeId) -> Option<String> {
        let mut replaced = String::new();
        for (name, value) in self.mapping(node, "config.yamlReplaces")? {
            if name == "name" {
                self.text(value, &mut replaced);
            }
        }
        Some(replaced)
    }

    fn list<T>(
        &mut self,
        node: NodeId,
        expected: &str,
        mut item: impl FnMut(&mut Self, NodeId) -> Option<T>,
    ) -> Vec<T> {
        let yaml = self.tree.yaml;
        match &yaml.node(node).kind {
            NodeKind::Sequence(items) => {
                let items = yaml.items(*items).iter();
                items.filter_map(|node| item(self, *node)).collect()
            }
            _ if yaml.is_null(node) => Vec::new(),
            _ => {
                self.refuse(node, expected);
                Vec::new()
            }
        }
    }

    /// The fields of a mapping; none of a null.
    fn mapping(&mut self, node: NodeId, expected: &str) -> Option<Vec<(String, NodeId)>> {
        match self.tree.yaml.node(node).kind {
            NodeKind::Mapping(_) => Some(self.fields(node)),
            _ if self.tree.yaml.is_null(node) => Some(Vec::new()),
            _ => {
                self.refuse(node, expected);
                None
            }
        }
    }

    fn fields(&self, node: NodeId) -> Vec<(String, NodeId)> {
        let pairs = self.tree.pairs(node).into_iter();
        let name =
            |key: NodeId| self.tree.yaml.scalar(key).map(|key| key.text.clone().into_owned());
        pairs.filter_map(|(key, value)| Some((name(key)?, value))).collect()
    }

    /// Any scalar is text; a null is none.
    fn text(&mut self, node: NodeId, into: &mut String) {
        match self.tree.yaml.scalar(node) {
            Some(scalar) if scalar.plain() == PlainValue::Null => into.clear(),
            Some(scalar) => *into = scalar.text.clone().into_owned(),
            None => self.refuse(node, "string"),
        }
    }

    fn flag(&mut self, node: NodeId, into: &mut bool) {
        match self.tree.yaml.scalar(node).map(Scalar::plain) {
            Some(PlainValue::Bool(flag)) => *into = flag,
            Some(PlainValue::Null) => {}
            _ => self.refuse(node, "bool"),
        }
    }

    fn count(&mut self, node: NodeId) {
        let fits = match self.tree.yaml.scalar(node).map(Scalar::plain) {
            Some(PlainValue::Integer(number)) => u32::try_from(number).is_ok(),
            Some(PlainValue::Null) => true,
            _ => false,
        };
        if !fits {
            self.refuse(node, "uint32");
        }
    }
}

fn tag(scalar: &Scalar<'_>) -> &'static str {
    match scalar.plain() {
        PlainValue::Null => "!!null",
        PlainValue::Bool(_) => "!!bool",
        PlainValue::Integer(_) => "!!int",
        PlainValue::Float(_) => "!!float",
        PlainValue::Text => "!!str",
    }
}

/// The value as the YAML library shows it: the start of one longer than ten bytes.
fn shorten(text: &str) -> String {
    if text.len() <= 10 {
        return text.to_owned();
    }
    let start = text.get(..text.floor_char_boundary(7)).unwrap_or_default();
    format!("{start}...")
}
