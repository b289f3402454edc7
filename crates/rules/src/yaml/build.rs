//! From parser events to a tree.

use std::borrow::Cow;

use foldhash::fast::FixedState;
use granit_parser::{ErrorKind, Event, Parser, ScalarStyle, ScanError, Span, Tag};

use super::{DEPTH_MAX, Kind, NODES_MAX, Node, NodeId, Scalar, Style, Yaml};
use crate::diagnostics::{Fault, Problems, Spot};

/// The parser may nest a little deeper than we allow, so that the message is ours.
const PARSER_DEPTH_MAX: usize = DEPTH_MAX * 2;

/// Up to this many pairs are compared with one another to find duplicates.
const SMALL_MAPPING_MAX: usize = 16;

/// Reads the first document of a text.
///
/// Problems are reported; what comes back is the tree, unless the text is not
/// YAML or breaks a maximum.
pub(crate) fn parse<'s>(file: u32, text: &'s str, problems: &mut Problems<'_>) -> Option<Yaml<'s>> {
    let mut build = Build::new(file, text);
    let options = granit_parser::options! {
        emit_comments: false,
        flow_nesting_limit: PARSER_DEPTH_MAX,
        block_nesting_limit: PARSER_DEPTH_MAX,
    };
    for next in Parser::new_from_str_with_options(text, options) {
        let taken = match next {
            Ok((event, span)) => build.take(event, span, problems),
            Err(error) => Err(Stop::new(build.error_spot(&error), syntax(&error))),
        };
        match taken {
            Ok(Flow::More) => {}
            Ok(Flow::Done) => break,
            Err(stop) => {
                problems.error(stop.spot, *stop.fault);
                return None;
            }
        }
    }
    Some(Yaml { nodes: build.nodes, root: build.root })
}

enum Flow {
    More,
    Done,
}

/// A fault after which there is nothing to read.
struct Stop {
    spot: Spot,
    fault: Box<Fault>,
}

impl Stop {
    fn new(spot: Spot, fault: Fault) -> Self {
        Stop { spot, fault: Box::new(fault) }
    }
}

/// A collection whose end has not come.
struct Open {
    id: NodeId,
    is_mapping: bool,
    children: Vec<NodeId>,
}

/// What walking a node would take, aliases included.
#[derive(Clone, Copy)]
struct Size {
    nodes: usize,
    depth: usize,
}

struct Build<'s> {
    file: u32,
    text: &'s str,
    nodes: Vec<Node<'s>>,
    sizes: Vec<Size>,
    open: Vec<Open>,
    /// Node by anchor; the parser numbers anchors from one.
    anchors: Vec<Option<NodeId>>,
    root: Option<NodeId>,
    /// Nodes so far, aliases counted as what they stand for.
    total: usize,
    ended: bool,
}

impl<'s> Build<'s> {
    fn new(file: u32, text: &'s str) -> Self {
        Build {
            file,
            text,
            nodes: Vec::new(),
            sizes: Vec::new(),
            open: Vec::new(),
            anchors: Vec::new(),
            root: None,
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
        let spot = self.spot(span);
        match event {
            Event::Scalar(text, style, anchor, tag) => {
                let style = scalar_style(style, tag.as_deref());
                let id = self.add(spot, Kind::Scalar(Scalar { text, style }))?;
                self.name(anchor, id);
                self.attach(id);
            }
            Event::SequenceStart(_, anchor, _) => self.start(spot, anchor, false)?,
            Event::MappingStart(_, anchor, _) => self.start(spot, anchor, true)?,
            Event::SequenceEnd | Event::MappingEnd => self.end(spot, problems),
            Event::Alias(anchor) => self.alias(spot, anchor)?,
            Event::DocumentEnd => self.ended = true,
            Event::DocumentStart(..) if self.ended => {
                let fault = Fault::new("several_documents", "only the first document is read")
                    .hint("put each domain into a file of its own");
                problems.warn(spot, fault);
                return Ok(Flow::Done);
            }
            _ => {}
        }
        Ok(Flow::More)
    }

    fn start(&mut self, spot: Spot, anchor: usize, is_mapping: bool) -> Result<(), Stop> {
        if self.open.len() >= DEPTH_MAX {
            return Err(Stop::new(spot, too_deep()));
        }
        let id = self.add(spot, Kind::Sequence(Box::default()))?;
        self.name(anchor, id);
        self.open.push(Open { id, is_mapping, children: Vec::new() });
        Ok(())
    }

    fn end(&mut self, spot: Spot, problems: &mut Problems<'_>) {
        let Some(open) = self.open.pop() else { return };
        let mut size = Size { nodes: 1, depth: 1 };
        for child in &open.children {
            let child = self.sizes[child.0 as usize];
            size.nodes = size.nodes.saturating_add(child.nodes);
            size.depth = size.depth.max(child.depth + 1);
        }
        let index = open.id.0 as usize;
        self.sizes[index] = size;
        let kind = if open.is_mapping {
            let pairs = open.children.chunks_exact(2);
            Kind::Mapping(pairs.map(|pair| (pair[0], pair[1])).collect())
        } else {
            Kind::Sequence(open.children.into())
        };
        self.nodes[index].kind = kind;
        self.nodes[index].spot.end = spot.end.max(self.nodes[index].spot.end);
        self.report_duplicates(open.id, problems);
        self.attach(open.id);
    }

    fn alias(&mut self, spot: Spot, anchor: usize) -> Result<(), Stop> {
        let target = self.anchors.get(anchor).copied().flatten();
        let Some(target) = target else {
            let fault = Fault::new("yaml_syntax", "an alias to nothing");
            return Err(Stop::new(spot, fault));
        };
        if self.open.iter().any(|open| open.id == target) {
            let fault = Fault::new("recursive_alias", "this alias is part of what it stands for")
                .hint("an alias can only stand for something that is complete");
            return Err(Stop::new(spot, fault));
        }
        let size = self.sizes[target.0 as usize];
        if self.open.len() + size.depth > DEPTH_MAX {
            return Err(Stop::new(spot, too_deep()));
        }
        self.count(spot, size.nodes)?;
        self.attach(target);
        Ok(())
    }

    fn add(&mut self, spot: Spot, kind: Kind<'s>) -> Result<NodeId, Stop> {
        self.count(spot, 1)?;
        let Ok(index) = u32::try_from(self.nodes.len()) else {
            return Err(Stop::new(spot, too_large()));
        };
        self.nodes.push(Node { spot, kind });
        self.sizes.push(Size { nodes: 1, depth: 0 });
        Ok(NodeId(index))
    }

    fn count(&mut self, spot: Spot, nodes: usize) -> Result<(), Stop> {
        self.total = self.total.saturating_add(nodes);
        if self.total > NODES_MAX {
            return Err(Stop::new(spot, too_large()));
        }
        Ok(())
    }

    /// Remembers what an anchor stands for; zero is no anchor.
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
        match self.open.last_mut() {
            Some(open) => open.children.push(id),
            None => self.root = Some(id),
        }
    }

    fn report_duplicates(&self, id: NodeId, problems: &mut Problems<'_>) {
        let Kind::Mapping(pairs) = &self.nodes[id.0 as usize].kind else {
            return;
        };
        // Almost every mapping is small: comparing beats a table there.
        let mut table: hashbrown::HashMap<&str, Spot, FixedState> = hashbrown::HashMap::default();
        for (at, (key, _)) in pairs.iter().enumerate() {
            let Some(text) = self.key_text(*key) else {
                continue;
            };
            let first = if pairs.len() <= SMALL_MAPPING_MAX {
                let mut before = pairs[..at].iter().map(|(key, _)| *key);
                before
                    .find(|other| self.key_text(*other) == Some(text))
                    .map(|other| self.nodes[other.0 as usize].spot)
            } else {
                table.insert(text, self.nodes[key.0 as usize].spot)
            };
            if let Some(first) = first {
                let fault = Fault::new("duplicate_key", format!("key `{text}` is given twice"))
                    .related(first, "first given here")
                    .hint("keep one of the two");
                problems.error(self.nodes[key.0 as usize].spot, fault);
            }
        }
    }

    /// The text of a key that must be unique in its mapping.
    fn key_text(&self, key: NodeId) -> Option<&str> {
        match &self.nodes[key.0 as usize].kind {
            Kind::Scalar(Scalar { text, style: Style::Plain }) if text == "<<" => None,
            Kind::Scalar(scalar) => Some(&scalar.text),
            Kind::Sequence(_) | Kind::Mapping(_) => None,
        }
    }

    fn spot(&self, span: Span) -> Spot {
        let start = self.byte(span.start.byte_offset());
        Spot { file: self.file, start, end: self.byte(span.end.byte_offset()).max(start) }
    }

    fn error_spot(&self, error: &ScanError) -> Spot {
        let start = self.byte(error.marker().byte_offset());
        Spot { file: self.file, start, end: start }
    }

    fn byte(&self, offset: Option<usize>) -> u32 {
        let offset = offset.unwrap_or_default().min(self.text.len());
        u32::try_from(offset).unwrap_or(u32::MAX)
    }
}

fn scalar_style(style: ScalarStyle, tag: Option<&Tag>) -> Style {
    let tagged_text = tag.is_some_and(|tag| tag.is_yaml_core_schema_tag("str"));
    let tagged_other = tag.is_some_and(Tag::is_yaml_core_schema) && !tagged_text;
    // `!!int "10"` is the number; `!!str 10` is the text.
    if tagged_other || (style == ScalarStyle::Plain && !tagged_text) {
        Style::Plain
    } else {
        Style::Text
    }
}

fn syntax(error: &ScanError) -> Fault {
    if matches!(error.kind(), ErrorKind::RecursionLimitExceeded) {
        return too_deep();
    }
    let info: Cow<'static, str> = match error.kind() {
        ErrorKind::UnknownAnchor => "no anchor of this name stands before this alias".into(),
        ErrorKind::TabInBlockIndentation
        | ErrorKind::TabNotAllowed
        | ErrorKind::TabInIndentation => "a tab cannot be used as indentation".into(),
        _ => error.info().into(),
    };
    let hint = match error.kind() {
        ErrorKind::TabInBlockIndentation
        | ErrorKind::TabNotAllowed
        | ErrorKind::TabInIndentation => Some("indent with spaces"),
        ErrorKind::UnknownAnchor | ErrorKind::MissingAnchorOrAliasName => {
            Some("quote the text if it should start with `*`")
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
    let message = format!("more than {NODES_MAX} values, aliases counted each time they are used");
    Fault::new("too_large", message).hint("split the rules into several files")
}
