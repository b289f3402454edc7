//! From parser events to a tree.

use foldhash::fast::FixedState;
use granit_parser::{ErrorKind, Event, Parser, ScanError, Span, Tag};

use super::{Children, DEPTH_MAX, NODES_MAX, Node, NodeId, NodeKind, Scalar, ScalarStyle, Yaml};
use crate::problems::{Fault, Location, Problems};

/// The parser accepts deeper nesting than we do, so that the message is ours.
const PARSER_DEPTH_MAX: usize = DEPTH_MAX * 2;

/// Mappings with up to this many pairs are searched for duplicates by comparing all pairs.
const SMALL_MAPPING_MAX: u32 = 16;

/// Reads the first document of a text.
///
/// Reports problems. Returns no tree when the text is not YAML or exceeds a maximum.
pub fn parse<'s>(file: u32, text: &'s str, problems: &mut Problems<'_>) -> Option<Yaml<'s>> {
    let mut build = Build::new(file, text, problems);
    let options = granit_parser::options! {
        emit_comments: false,
        flow_nesting_limit: PARSER_DEPTH_MAX,
        block_nesting_limit: PARSER_DEPTH_MAX,
    };
    for next in Parser::new_from_str_with_options(text, options) {
        match next {
            Ok((Event::DocumentStart(..), span)) if build.ended => {
                let fault = Fault::new("several_documents", "only the first document is read")
                    .hint("put the others into files of their own");
                build.problems.warn(build.location(span), fault);
                break;
            }
            Ok((event, span)) => build.take(event, span)?,
            Err(error) => {
                let start = build.byte(error.marker().byte_offset());
                return build.stop(Location { file, start, end: start }, syntax(&error));
            }
        }
    }
    Some(build.yaml)
}

/// A collection whose end has not been read.
struct OpenCollection {
    id: NodeId,
    is_mapping: bool,
    /// The index of its first child in `pending`.
    start: usize,
}

/// The size of a subtree, with aliases counted as copies.
#[derive(Clone, Copy)]
struct SubtreeSize {
    nodes: u32,
    depth: u32,
}

struct Build<'s, 'p, 'q> {
    file: u32,
    text: &'s str,
    problems: &'p mut Problems<'q>,
    yaml: Yaml<'s>,
    /// By node.
    sizes: Vec<SubtreeSize>,
    open: Vec<OpenCollection>,
    /// Children of open collections.
    pending: Vec<NodeId>,
    /// Node by anchor; the parser numbers anchors from one.
    anchors: Vec<Option<NodeId>>,
    /// The number of nodes so far, with aliases counted as copies.
    total: usize,
    ended: bool,
}

impl<'s, 'p, 'q> Build<'s, 'p, 'q> {
    fn new(file: u32, text: &'s str, problems: &'p mut Problems<'q>) -> Self {
        // Rule files have a value every six to eight bytes.
        let likely = text.len() / 8;
        Build {
            file,
            text,
            problems,
            yaml: Yaml {
                nodes: Vec::with_capacity(likely),
                children: Vec::with_capacity(likely),
                root: None,
            },
            sizes: Vec::with_capacity(likely),
            open: Vec::new(),
            pending: Vec::new(),
            anchors: Vec::new(),
            total: 0,
            ended: false,
        }
    }

    /// Adds what an event brings. `None` ends the reading; the problem is reported.
    fn take(&mut self, event: Event<'s>, span: Span) -> Option<()> {
        let location = self.location(span);
        match event {
            Event::Scalar(text, style, anchor, tag) => {
                let style = scalar_style(style, tag.as_deref());
                let id = self.add(location, NodeKind::Scalar(Scalar { text, style }))?;
                self.name(anchor, id);
                self.attach(id);
            }
            Event::SequenceStart(_, anchor, _) => self.start(location, anchor, false)?,
            Event::MappingStart(_, anchor, _) => self.start(location, anchor, true)?,
            Event::SequenceEnd | Event::MappingEnd => self.end(location),
            Event::Alias(anchor) => self.alias(location, anchor)?,
            Event::DocumentEnd => self.ended = true,
            _ => {}
        }
        Some(())
    }

    /// Reports the problem that ends the reading.
    fn stop<T>(&mut self, location: Location, fault: Fault) -> Option<T> {
        self.problems.error(location, fault);
        None
    }

    fn start(&mut self, location: Location, anchor: usize, is_mapping: bool) -> Option<()> {
        if self.open.len() >= DEPTH_MAX {
            return self.stop(location, too_deep());
        }
        let id = self.add(location, NodeKind::Sequence(Children::default()))?;
        self.name(anchor, id);
        self.open.push(OpenCollection { id, is_mapping, start: self.pending.len() });
        Some(())
    }

    fn end(&mut self, location: Location) {
        let Some(open) = self.open.pop() else { return };
        let mut size = SubtreeSize { nodes: 1, depth: 1 };
        for child in self.pending.get(open.start..).unwrap_or_default() {
            let child = self.sizes[child.0 as usize];
            size.nodes = size.nodes.saturating_add(child.nodes);
            size.depth = size.depth.max(child.depth + 1);
        }
        self.sizes[open.id.0 as usize] = size;
        let before = self.yaml.children.len();
        self.yaml.children.extend(self.pending.drain(open.start..));
        // Both fit: a file has fewer children than nodes, and those are counted.
        let children = Children {
            start: u32::try_from(before).unwrap_or(u32::MAX),
            count: u32::try_from(self.yaml.children.len() - before).unwrap_or(u32::MAX),
        };
        let node = &mut self.yaml.nodes[open.id.0 as usize];
        node.kind = if open.is_mapping {
            NodeKind::Mapping(children)
        } else {
            NodeKind::Sequence(children)
        };
        node.location.end = location.end.max(node.location.end);
        if open.is_mapping {
            self.report_duplicates(children);
        }
        self.attach(open.id);
    }

    fn alias(&mut self, location: Location, anchor: usize) -> Option<()> {
        let Some(target) = self.anchors.get(anchor).copied().flatten() else {
            return self.stop(location, Fault::new("yaml_syntax", "this alias has no anchor"));
        };
        if self.open.iter().any(|open| open.id == target) {
            let fault = Fault::new("recursive_alias", "this alias is part of its own anchor")
                .hint("an alias must come after the end of its anchor");
            return self.stop(location, fault);
        }
        let size = self.sizes[target.0 as usize];
        if self.open.len() + size.depth as usize > DEPTH_MAX {
            return self.stop(location, too_deep());
        }
        self.count(location, size.nodes)?;
        self.attach(target);
        Some(())
    }

    fn add(&mut self, location: Location, kind: NodeKind<'s>) -> Option<NodeId> {
        self.count(location, 1)?;
        // Fits, because nodes are counted.
        let id = NodeId(u32::try_from(self.yaml.nodes.len()).unwrap_or(u32::MAX));
        self.yaml.nodes.push(Node { location, kind });
        self.sizes.push(SubtreeSize { nodes: 1, depth: 0 });
        Some(id)
    }

    fn count(&mut self, location: Location, nodes: u32) -> Option<()> {
        self.total = self.total.saturating_add(nodes as usize);
        if self.total > NODES_MAX {
            return self.stop(location, too_large());
        }
        Some(())
    }

    /// Stores the node of an anchor; zero is no anchor.
    fn name(&mut self, anchor: usize, id: NodeId) {
        if anchor == 0 {
            return;
        }
        if self.anchors.len() <= anchor {
            self.anchors.resize(anchor + 1, None);
        }
        self.anchors[anchor] = Some(id);
    }

    fn attach(&mut self, id: NodeId) {
        match self.open.last() {
            Some(_) => self.pending.push(id),
            None => self.yaml.root = Some(id),
        }
    }

    fn report_duplicates(&mut self, children: Children) {
        let yaml = &self.yaml;
        // A merge key may come more than once.
        let text = |key: NodeId| {
            let scalar = yaml.scalar(key).filter(|_| !yaml.is_merge(key))?;
            Some(&*scalar.text)
        };
        let keys = || yaml.pairs(children).map(|(key, _)| key);
        // Almost every mapping is small: comparing pairs is faster than a hash table.
        let small = children.count <= SMALL_MAPPING_MAX * 2;
        let mut table: hashbrown::HashMap<&str, NodeId, FixedState> = hashbrown::HashMap::default();
        for (at, key) in keys().enumerate() {
            let Some(name) = text(key) else { continue };
            let first = if small {
                keys().take(at).find(|other| text(*other) == Some(name))
            } else {
                table.insert(name, key)
            };
            if let Some(first) = first {
                let fault = Fault::new("duplicate_key", format!("key `{name}` is given twice"))
                    .related(yaml.location(first), "first given here")
                    .hint("keep one of the two");
                self.problems.error(yaml.location(key), fault);
            }
        }
    }

    fn location(&self, span: Span) -> Location {
        let start = self.byte(span.start.byte_offset());
        Location { file: self.file, start, end: self.byte(span.end.byte_offset()).max(start) }
    }

    fn byte(&self, offset: Option<usize>) -> u32 {
        let offset = offset.unwrap_or_default().min(self.text.len());
        u32::try_from(offset).unwrap_or(u32::MAX)
    }
}

fn scalar_style(style: granit_parser::ScalarStyle, tag: Option<&Tag>) -> ScalarStyle {
    let tagged_text = tag.is_some_and(|tag| tag.is_yaml_core_schema_tag("str"));
    let tagged_other = tag.is_some_and(Tag::is_yaml_core_schema) && !tagged_text;
    // `!!int "10"` is the number; `!!str 10` is the text.
    if tagged_other || (style == granit_parser::ScalarStyle::Plain && !tagged_text) {
        ScalarStyle::Plain
    } else {
        ScalarStyle::Text
    }
}

fn syntax(error: &ScanError) -> Fault {
    let info = error.info();
    let quote = Some("put quotes around a text that starts with `*`");
    let (info, hint) = match error.kind() {
        ErrorKind::RecursionLimitExceeded => return too_deep(),
        ErrorKind::UnknownAnchor => ("no anchor of this name comes before this alias", quote),
        ErrorKind::MissingAnchorOrAliasName => (&*info, quote),
        ErrorKind::TabInBlockIndentation
        | ErrorKind::TabNotAllowed
        | ErrorKind::TabInIndentation => {
            ("tabs cannot be used for indentation", Some("indent with spaces"))
        }
        _ => (&*info, None),
    };
    Fault::new("yaml_syntax", format!("not valid YAML: {info}"))
        .maybe_hint(hint.map(str::to_owned))
        .compat(format!("error loading config file: {info}"))
}

fn too_deep() -> Fault {
    let message = format!("nested more than {DEPTH_MAX} levels deep");
    Fault::new("too_deep", message).hint("is a bracket not closed, or the indentation lost?")
}

fn too_large() -> Fault {
    let message = format!("more than {NODES_MAX} values; an alias counts each time it is used");
    Fault::new("too_large", message).hint("split it into several files")
}
