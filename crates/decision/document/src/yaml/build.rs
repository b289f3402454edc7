//! From parser events to a tree.

use std::borrow::Cow;

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
    let mut build = Build::new(file, text);
    let options = granit_parser::options! {
        emit_comments: false,
        flow_nesting_limit: PARSER_DEPTH_MAX,
        block_nesting_limit: PARSER_DEPTH_MAX,
    };
    for next in Parser::new_from_str_with_options(text, options) {
        let step = match next {
            Ok((event, span)) => build.take(event, span, problems),
            Err(error) => Err(Stop::new(build.error_location(&error), syntax(&error))),
        };
        match step {
            Ok(Flow::More) => {}
            Ok(Flow::Done) => break,
            Err(stop) => {
                problems.error(stop.location, *stop.fault);
                return None;
            }
        }
    }
    Some(build.yaml)
}

enum Flow {
    More,
    Done,
}

/// A fault that ends the reading.
struct Stop {
    location: Location,
    fault: Box<Fault>,
}

impl Stop {
    fn new(location: Location, fault: Fault) -> Self {
        Stop { location, fault: Box::new(fault) }
    }
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
struct Size {
    nodes: u32,
    depth: u32,
}

struct Build<'s> {
    file: u32,
    text: &'s str,
    yaml: Yaml<'s>,
    /// By node.
    sizes: Vec<Size>,
    open: Vec<OpenCollection>,
    /// Children of open collections.
    pending: Vec<NodeId>,
    /// Node by anchor; the parser numbers anchors from one.
    anchors: Vec<Option<NodeId>>,
    /// The number of nodes so far, with aliases counted as copies.
    total: usize,
    ended: bool,
}

impl<'s> Build<'s> {
    fn new(file: u32, text: &'s str) -> Self {
        // Rule files have a value every six to eight bytes.
        let likely = text.len() / 8;
        Build {
            file,
            text,
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

    fn take(
        &mut self,
        event: Event<'s>,
        span: Span,
        problems: &mut Problems<'_>,
    ) -> Result<Flow, Stop> {
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
            Event::SequenceEnd | Event::MappingEnd => self.end(location, problems),
            Event::Alias(anchor) => self.alias(location, anchor)?,
            Event::DocumentEnd => self.ended = true,
            Event::DocumentStart(..) if self.ended => {
                let fault = Fault::new("several_documents", "only the first document is read")
                    .hint("put the others into files of their own");
                problems.warn(location, fault);
                return Ok(Flow::Done);
            }
            _ => {}
        }
        Ok(Flow::More)
    }

    fn start(&mut self, location: Location, anchor: usize, is_mapping: bool) -> Result<(), Stop> {
        if self.open.len() >= DEPTH_MAX {
            return Err(Stop::new(location, too_deep()));
        }
        let id = self.add(location, NodeKind::Sequence(Children::default()))?;
        self.name(anchor, id);
        self.open.push(OpenCollection { id, is_mapping, start: self.pending.len() });
        Ok(())
    }

    fn end(&mut self, location: Location, problems: &mut Problems<'_>) {
        let Some(open) = self.open.pop() else { return };
        let mut size = Size { nodes: 1, depth: 1 };
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
            self.report_duplicates(children, problems);
        }
        self.attach(open.id);
    }

    fn alias(&mut self, location: Location, anchor: usize) -> Result<(), Stop> {
        let target = self.anchors.get(anchor).copied().flatten();
        let Some(target) = target else {
            let fault = Fault::new("yaml_syntax", "this alias has no anchor");
            return Err(Stop::new(location, fault));
        };
        if self.open.iter().any(|open| open.id == target) {
            let fault = Fault::new("recursive_alias", "this alias is part of its own anchor")
                .hint("an alias must come after the end of its anchor");
            return Err(Stop::new(location, fault));
        }
        let size = self.sizes[target.0 as usize];
        if self.open.len() + size.depth as usize > DEPTH_MAX {
            return Err(Stop::new(location, too_deep()));
        }
        self.count(location, size.nodes)?;
        self.attach(target);
        Ok(())
    }

    fn add(&mut self, location: Location, kind: NodeKind<'s>) -> Result<NodeId, Stop> {
        self.count(location, 1)?;
        let Ok(index) = u32::try_from(self.yaml.nodes.len()) else {
            return Err(Stop::new(location, too_large()));
        };
        self.yaml.nodes.push(Node { location, kind });
        self.sizes.push(Size { nodes: 1, depth: 0 });
        Ok(NodeId(index))
    }

    fn count(&mut self, location: Location, nodes: u32) -> Result<(), Stop> {
        self.total = self.total.saturating_add(nodes as usize);
        if self.total > NODES_MAX {
            return Err(Stop::new(location, too_large()));
        }
        Ok(())
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

    fn report_duplicates(&self, children: Children, problems: &mut Problems<'_>) {
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
                problems.error(yaml.location(key), fault);
            }
        }
    }

    fn location(&self, span: Span) -> Location {
        let start = self.byte(span.start.byte_offset());
        Location { file: self.file, start, end: self.byte(span.end.byte_offset()).max(start) }
    }

    fn error_location(&self, error: &ScanError) -> Location {
        let start = self.byte(error.marker().byte_offset());
        Location { file: self.file, start, end: start }
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
    if matches!(error.kind(), ErrorKind::RecursionLimitExceeded) {
        return too_deep();
    }
    let info: Cow<'static, str> = match error.kind() {
        ErrorKind::UnknownAnchor => "no anchor of this name comes before this alias".into(),
        ErrorKind::TabInBlockIndentation
        | ErrorKind::TabNotAllowed
        | ErrorKind::TabInIndentation => "tabs cannot be used for indentation".into(),
        _ => error.info().into(),
    };
    let hint = match error.kind() {
        ErrorKind::TabInBlockIndentation
        | ErrorKind::TabNotAllowed
        | ErrorKind::TabInIndentation => Some("indent with spaces"),
        ErrorKind::UnknownAnchor | ErrorKind::MissingAnchorOrAliasName => {
            Some("put quotes around a text that starts with `*`")
        }
        _ => None,
    };
    let compat = format!("error loading config file: {info}");
    Fault::new("yaml_syntax", format!("not valid YAML: {info}"))
        .maybe_hint(hint.map(str::to_owned))
        .compat(compat)
}

fn too_deep() -> Fault {
    let message = format!("nested more than {DEPTH_MAX} levels deep");
    Fault::new("too_deep", message).hint("is a bracket not closed, or the indentation lost?")
}

fn too_large() -> Fault {
    let message = format!("more than {NODES_MAX} values; an alias counts each time it is used");
    Fault::new("too_large", message).hint("split it into several files")
}
