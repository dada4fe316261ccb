//! What was written: the YAML document as a tree in which every node knows its place.
//!
//! Anchors are read over; aliases and tags are kept as [`Value::Refused`], so that the reader can
//! report them under the key they stand at and go on.

use saphyr_parser::{Event, Marker, Parser, ScalarStyle, Span, StrInput};

use crate::report::Position;

/// Deeper nesting than this is a mistake; the deepest schema needs 7.
const MAX_DEPTH: usize = 32;

/// A value and where it begins.
#[derive(Clone, Debug, PartialEq)]
pub struct Node {
    /// Where.
    pub at: Position,
    /// What.
    pub value: Value,
}

impl Node {
    /// A mapping without entries, at the beginning.
    pub const EMPTY: Node = Node { at: Position::START, value: Value::Map(Vec::new()) };

    /// The value of a key, if this is a mapping that has it.
    pub fn get(&self, key: &str) -> Option<&Node> {
        match &self.value {
            Value::Map(entries) => entries.iter().find(|e| e.key == key).map(|e| &e.value),
            _ => None,
        }
    }
}

/// What a node is.
#[derive(Clone, Debug, PartialEq)]
pub enum Value {
    /// A single value; `plain` when it stands without quotes and so may be a number.
    Scalar {
        /// Unescaped.
        text: String,
        /// Without quotes.
        plain: bool,
    },
    /// `- a` or `[a]`
    List(Vec<Node>),
    /// `a: b` or `{a: b}`
    Map(Vec<Entry>),
    /// Something a configuration does not need: named here.
    Refused(&'static str),
}

/// One `key: value`.
#[derive(Clone, Debug, PartialEq)]
pub struct Entry {
    /// The key.
    pub key: String,
    /// Where the key begins.
    pub key_at: Position,
    /// The value.
    pub value: Node,
}

/// Why a text is not a tree.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fault {
    /// Where.
    pub at: Position,
    /// What is wrong.
    pub message: String,
}

const TAG: &str = "a tag (`!…`): write the bare value";
const ALIAS: &str = "an alias (`*…`): write the value out";

enum Frame {
    List { at: Position, tagged: bool, items: Vec<Node> },
    Map { at: Position, tagged: bool, entries: Vec<Entry>, key: Option<(String, Position)> },
}

/// Reads a single document; `None` when there is nothing in it.
///
/// # Errors
/// The first breach of YAML's syntax, nesting deeper than [`MAX_DEPTH`], a second document, a key that
/// is not a plain name, or a control character.
pub fn read(text: &str) -> Result<Option<Node>, Fault> {
    let text = text.strip_prefix('\u{feff}').unwrap_or(text);
    refuse_control_characters(text)?;
    let mut parser: Parser<'_, StrInput<'_>> = Parser::new_from_str(text);
    let mut builder = Builder::default();
    while let Some(event) = parser.next_event() {
        let (event, span) = event.map_err(|error| Fault {
            at: position(*error.marker()),
            message: format!("not valid YAML: {}", error.info()),
        })?;
        builder.take(event, span)?;
    }
    Ok(builder.root)
}

/// The parser takes a NUL for the end of the file, and would silently ignore all that follows.
fn refuse_control_characters(text: &str) -> Result<(), Fault> {
    match text.find(|c: char| c.is_control() && !matches!(c, '\t' | '\n' | '\r' | '\u{85}')) {
        None => Ok(()),
        Some(index) => Err(Fault {
            at: Position::after(&text[..index]),
            message: "not valid YAML: a control character".to_owned(),
        }),
    }
}

fn position(mark: Marker) -> Position {
    Position { line: mark.line().max(1), column: mark.col() + 1 }
}

#[derive(Default)]
struct Builder {
    documents: usize,
    stack: Vec<Frame>,
    root: Option<Node>,
}

impl Builder {
    fn take(&mut self, event: Event<'_>, span: Span) -> Result<(), Fault> {
        let at = position(span.start);
        match event {
            Event::DocumentStart(_) => {
                self.documents += 1;
                if self.documents > 1 {
                    return fault(at, "expected a single document, found a second one");
                }
            }
            Event::Alias(_) => self.put(Node { at, value: Value::Refused(ALIAS) })?,
            Event::Scalar(text, style, _, tag) => {
                let plain = style == ScalarStyle::Plain;
                let value = match tag {
                    Some(_) => Value::Refused(TAG),
                    None => Value::Scalar { text: text.into_owned(), plain },
                };
                self.put(Node { at, value })?;
            }
            Event::SequenceStart(_, tag) => {
                self.push(Frame::List { at, tagged: tag.is_some(), items: Vec::new() })?;
            }
            Event::MappingStart(_, tag) => {
                let entries = Vec::new();
                self.push(Frame::Map { at, tagged: tag.is_some(), entries, key: None })?;
            }
            Event::SequenceEnd | Event::MappingEnd => self.pop()?,
            Event::Nothing | Event::StreamStart | Event::StreamEnd | Event::DocumentEnd => {}
        }
        Ok(())
    }

    fn push(&mut self, frame: Frame) -> Result<(), Fault> {
        let (Frame::List { at, .. } | Frame::Map { at, .. }) = &frame;
        if self.stack.len() >= MAX_DEPTH {
            return fault(*at, &format!("expected at most {MAX_DEPTH} levels of nesting"));
        }
        self.stack.push(frame);
        Ok(())
    }

    fn pop(&mut self) -> Result<(), Fault> {
        let (at, tagged, value) = match self.stack.pop() {
            Some(Frame::List { at, tagged, items }) => (at, tagged, Value::List(items)),
            Some(Frame::Map { at, tagged, entries, .. }) => (at, tagged, Value::Map(entries)),
            // The parser only ends what it began.
            None => return Ok(()),
        };
        let value = if tagged { Value::Refused(TAG) } else { value };
        self.put(Node { at, value })
    }

    fn put(&mut self, node: Node) -> Result<(), Fault> {
        match self.stack.last_mut() {
            None => self.root = Some(node),
            Some(Frame::List { items, .. }) => items.push(node),
            Some(Frame::Map { entries, key, .. }) => match key.take() {
                None => match node.value {
                    Value::Scalar { text, .. } => *key = Some((text, node.at)),
                    _ => return fault(node.at, "expected a plain name as the key"),
                },
                Some((key, key_at)) => {
                    // The place of an empty value is where the next token stands, lines below.
                    let empty = matches!(&node.value, Value::Scalar { text, plain: true } if text.is_empty());
                    let at = if empty { key_at } else { node.at };
                    entries.push(Entry { key, key_at, value: Node { at, ..node } });
                }
            },
        }
        Ok(())
    }
}

fn fault<T>(at: Position, message: &str) -> Result<T, Fault> {
    Err(Fault { at, message: message.to_owned() })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(line: usize, column: usize) -> Position {
        Position { line, column }
    }

    #[test]
    fn every_node_knows_its_place() {
        let text = "a: 1\nb:\n  - {c: \"2\"}\n  - d: e\n    f:\n";
        let Some(Node { value: Value::Map(top), at: start }) = read(text).unwrap() else {
            panic!("not a map")
        };
        assert_eq!(start, at(1, 1));
        assert_eq!((top[0].key_at, top[0].value.at), (at(1, 1), at(1, 4)));
        let Value::List(items) = &top[1].value.value else { panic!("not a list") };
        assert_eq!(top[1].value.at, at(3, 3));
        let (Value::Map(flow), Value::Map(block)) = (&items[0].value, &items[1].value) else {
            panic!("not maps")
        };
        assert_eq!((items[0].at, flow[0].key_at, flow[0].value.at), (at(3, 5), at(3, 6), at(3, 9)));
        assert_eq!(flow[0].value.value, Value::Scalar { text: "2".into(), plain: false });
        assert_eq!((items[1].at, block[0].value.at), (at(4, 5), at(4, 8)));
        assert_eq!(block[1].value.at, block[1].key_at, "nothing stands where its key does");
    }

    #[test]
    fn what_a_configuration_does_not_need_is_a_fault_or_refused() {
        assert_eq!(read("# only a comment\n").unwrap(), None);
        for (text, line, column) in [
            ("a: [1\nb: 2", 2, 2),
            ("a: 1\n---\nb: 2\n", 2, 1),
            ("[a]: 1\n", 1, 1),
            ("a: 1\nb: \u{0}", 2, 4),
            ("a:\n\t- b", 2, 2),
            ("a: 'b", 1, 4),
        ] {
            let fault = read(text).unwrap_err();
            assert_eq!((fault.at.line, fault.at.column), (line, column), "{text:?}: {fault:?}");
        }
        let deep = "[".repeat(MAX_DEPTH + 1);
        assert!(read(&deep).unwrap_err().message.contains("nesting"));
        let Some(Node { value: Value::Map(top), .. }) =
            read("a: &x 1\nb: *x\nc: !!str 1\n").unwrap()
        else {
            panic!("not a map")
        };
        assert_eq!(top[1].value.value, Value::Refused(ALIAS));
        assert_eq!(top[2].value.value, Value::Refused(TAG));
    }
}
