//! The wording of libyaml, which the YAML library of Go descends from, for texts that are not YAML.

use granit_parser::{ErrorKind, ScanError};

/// What finds the error, which decides how its line is counted.
#[derive(Clone, Copy)]
enum Finder {
    /// The reader of tokens: lines count from one.
    Scanner,
    /// The reader of structure: lines count from zero, and the first is not named.
    Parser,
    /// The reader of values: no line is named.
    Composer,
}

/// What Go's YAML library says about the error, after `yaml: `.
pub(super) fn problem(error: &ScanError, text: &str) -> String {
    let (finder, words) = wording(error);
    let words = words.map_or_else(|| error.info().clone().to_string(), str::to_owned);
    let at = error.marker().byte_offset().unwrap_or_default().min(text.len());
    if matches!(finder, Finder::Composer) {
        let name: String = text.get(at..).unwrap_or_default().chars().skip(1).collect();
        let name = name.split(|letter: char| !letter.is_alphanumeric() && letter != '_').next();
        return format!("unknown anchor '{}' referenced", name.unwrap_or_default());
    }
    // libyaml notices some errors only later: a bracket that is not closed at the end, a key without a colon and a tab
    // in the indentation on the next line.
    let (at, lines_later) = match error.kind() {
        ErrorKind::UnclosedFlowCollection { .. }
        | ErrorKind::UnexpectedEofFlowSequence
        | ErrorKind::UnexpectedEofFlowMapping => (text.len(), 0),
        ErrorKind::SimpleKeyExpected
        | ErrorKind::InvalidSimpleKey
        | ErrorKind::TabInPlainScalar => (at, 1),
        _ => (at, 0),
    };
    let before = text.as_bytes().get(..at).unwrap_or_default();
    let line = lines_later + before.iter().filter(|byte| **byte == b'\n').count();
    let line = match finder {
        Finder::Scanner if line > 0 => line + 1,
        _ => line,
    };
    if line == 0 { words } else { format!("line {line}: {words}") }
}

fn wording(error: &ScanError) -> (Finder, Option<&'static str>) {
    use Finder::{Composer, Parser, Scanner};
    const SEQUENCE: &str = "did not find expected ',' or ']'";
    const MAPPING: &str = "did not find expected ',' or '}'";
    let words = match error.kind() {
        ErrorKind::UnknownAnchor => return (Composer, None),
        ErrorKind::UnexpectedEofFlowSequence
        | ErrorKind::ExpectedFlowSequenceSeparator
        | ErrorKind::UnclosedFlowCollection { open: '[' }
        | ErrorKind::MismatchedFlowCollectionEnd { open: '[', .. } => {
            return (Parser, Some(SEQUENCE));
        }
        ErrorKind::UnexpectedEofFlowMapping
        | ErrorKind::UnexpectedEofImplicitFlowMapping
        | ErrorKind::ExpectedFlowMappingSeparator
        | ErrorKind::UnclosedFlowCollection { .. }
        | ErrorKind::MismatchedFlowCollectionEnd { .. } => return (Parser, Some(MAPPING)),
        ErrorKind::UnexpectedEofBlockSequence | ErrorKind::ExpectedBlockSequenceEntry => {
            return (Parser, Some("did not find expected '-' indicator"));
        }
        ErrorKind::UnexpectedEofBlockMapping
        | ErrorKind::ExpectedBlockMappingKey
        | ErrorKind::InvalidIndentation => return (Parser, Some("did not find expected key")),
        ErrorKind::MisplacedFlowCollectionEnd if error.marker().index() > 0 => {
            return (Parser, Some("did not find expected key"));
        }
        ErrorKind::ExpectedNodeContent | ErrorKind::MisplacedFlowCollectionEnd => {
            return (Parser, Some("did not find expected node content"));
        }
        ErrorKind::ExpectedDocumentStart => {
            return (Parser, Some("did not find expected <document start>"));
        }
        ErrorKind::UndeclaredTagHandle => return (Parser, Some("found undefined tag handle")),
        ErrorKind::SimpleKeyExpected | ErrorKind::InvalidSimpleKey => "could not find expected ':'",
        ErrorKind::TabInBlockIndentation
        | ErrorKind::TabInIndentation
        | ErrorKind::TabInPlainScalar => "found a tab character that violates indentation",
        ErrorKind::UnexpectedCharacter { .. } | ErrorKind::TabNotAllowed => {
            "found character that cannot start any token"
        }
        ErrorKind::BlockSequenceEntryNotAllowed | ErrorKind::BlockEntryInFlowCollection => {
            "block sequence entries are not allowed in this context"
        }
        ErrorKind::MappingKeyNotAllowed => "mapping keys are not allowed in this context",
        ErrorKind::MappingValueNotAllowed | ErrorKind::InvalidColonPlacement => {
            "mapping values are not allowed in this context"
        }
        ErrorKind::UnclosedQuotedScalar | ErrorKind::InvalidQuotedScalarIndent => {
            "found unexpected end of stream"
        }
        ErrorKind::DocumentIndicatorInQuotedScalar => "found unexpected document indicator",
        ErrorKind::UnknownQuotedScalarEscape => "found unknown escape character",
        ErrorKind::InvalidQuotedScalarHexEscape => "did not find expected hexdecimal number",
        ErrorKind::MissingAnchorOrAliasName => {
            "did not find expected alphabetic or numeric character"
        }
        ErrorKind::ZeroBlockScalarIndent => "found an indentation indicator equal to 0",
        ErrorKind::InvalidBlockScalarHeader => "did not find expected comment or line break",
        _ => return (Scanner, None),
    };
    (Scanner, Some(words))
}
