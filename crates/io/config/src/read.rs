//! From what was written to what is meant, one value at a time.
//!
//! A reader that returns `None` has reported why; the caller goes on with the other keys, so that all
//! problems come out together, and gives up its own value only at the end.

use std::collections::BTreeMap;
use std::fmt::Display;
use std::net::SocketAddr;
use std::ops::RangeInclusive;
use std::path::PathBuf;
use std::time::Duration;

use crate::address::Address;
use crate::report::{Position, Report, quoted};
use crate::scalar::{self, BadDuration, Kind};
use crate::tree::{Entry, Node, Value};

/// The longest path of a Unix socket, bytes: `sun_path` holds 108, one of them the end (unix(7)).
pub const LONGEST_UNIX_PATH: usize = 107;

/// A value, and the path that leads to it.
#[derive(Clone, Debug)]
pub struct Cursor<'a> {
    node: &'a Node,
    path: String,
    report: &'a Report,
}

impl<'a> Cursor<'a> {
    /// The whole document.
    pub fn root(node: &'a Node, report: &'a Report) -> Self {
        Cursor { node, path: String::new(), report }
    }

    /// Where the value begins.
    pub fn at(&self) -> Position {
        self.node.at
    }

    /// The path of keys that leads to the value, such as `services[0].probe`; `config` for the whole document.
    pub fn key(&self) -> &str {
        if self.path.is_empty() { "config" } else { &self.path }
    }

    /// The file, as the caller named it.
    pub fn file(&self) -> &'a str {
        self.report.file()
    }

    /// Reports a problem with the value as it is.
    pub fn problem<T>(&self, message: impl Display) -> Option<T> {
        self.report.add(self.node.at, self.key(), message.to_string());
        None
    }

    /// Reports that something else was expected.
    pub fn expected<T>(&self, what: impl Display) -> Option<T> {
        self.problem(format!("expected {what}, found {}", found(self.node)))
    }

    /// A string: quoted, or such that YAML does not take it for anything else.
    pub fn text(&self, what: &str) -> Option<&'a str> {
        match &self.node.value {
            Value::Scalar { text, plain } => match scalar::kind(text) {
                Kind::Text => Some(text),
                _ if !plain => Some(text),
                Kind::Null => self.expected(what),
                _ => self.expected(format!("{what} (in quotes if it is one)")),
            },
            _ => self.expected(what),
        }
    }

    /// Whether it is a single value.
    pub fn is_scalar(&self) -> bool {
        matches!(self.node.value, Value::Scalar { .. })
    }

    /// Whether it is a mapping.
    pub fn is_mapping(&self) -> bool {
        matches!(self.node.value, Value::Map(_))
    }

    /// A single value, whatever YAML takes it for.
    pub fn scalar(&self, what: &str) -> Option<&'a str> {
        match &self.node.value {
            Value::Scalar { text, .. } => Some(text),
            _ => self.expected(what),
        }
    }

    /// A string that passes `valid`.
    pub fn text_if(&self, what: &str, valid: impl Fn(&str) -> bool) -> Option<&'a str> {
        let text = self.text(what)?;
        if valid(text) { Some(text) } else { self.expected(what) }
    }

    /// One of a few words.
    pub fn one_of<T: Copy>(&self, choices: &[(&str, T)]) -> Option<T> {
        let what = choices.iter().map(|(word, _)| *word).collect::<Vec<_>>().join(" or ");
        let text = self.text(&what)?;
        match choices.iter().find(|(word, _)| *word == text) {
            Some((_, choice)) => Some(*choice),
            None => self.expected(what),
        }
    }

    /// `true` or `false`.
    pub fn boolean(&self) -> Option<bool> {
        match self.kind() {
            Some(Kind::Bool(value)) => Some(value),
            _ => self.expected_bare("true or false"),
        }
    }

    /// A whole number.
    pub fn integer(&self, bounds: RangeInclusive<u64>) -> Option<u64> {
        let value = match self.kind() {
            Some(Kind::Integer(Some(value))) => u64::try_from(value).ok(),
            _ => None,
        };
        match value {
            Some(value) if bounds.contains(&value) => Some(value),
            _ => self.expected_bare(format!(
                "a whole number from {} to {}",
                bounds.start(),
                bounds.end()
            )),
        }
    }

    /// A number.
    pub fn number(&self, bounds: RangeInclusive<f64>) -> Option<f64> {
        let value = match self.kind() {
            Some(Kind::Integer(Some(value))) => value as f64,
            Some(Kind::Float(value)) => value,
            _ => f64::NAN,
        };
        if bounds.contains(&value) {
            return Some(value);
        }
        self.expected_bare(format!("a number from {} to {}", bounds.start(), bounds.end()))
    }

    /// A span of time.
    pub fn duration(&self, bounds: RangeInclusive<Duration>) -> Option<Duration> {
        let what = format!("a time from {} to {}", short(*bounds.start()), short(*bounds.end()));
        let text = self.scalar(&format!("{what}, such as 100ms or 2s"))?;
        match scalar::duration(text) {
            Ok(span) if bounds.contains(&span) => Some(span),
            Ok(_) | Err(BadDuration::TooLong) => self.expected(what),
            Err(BadDuration::NoUnit) => {
                self.expected(format!("{what} with its unit (us, ms, s, m or h)"))
            }
            Err(BadDuration::Shape) => {
                self.expected(format!("{what}: a number and a unit (us, ms, s, m or h)"))
            }
        }
    }

    /// `host:port`.
    pub fn address(&self) -> Option<Address> {
        let text = self.text("host:port, such as \"127.0.0.1:9001\"")?;
        match text.parse::<Address>() {
            Ok(address) => Some(address),
            Err(expected) => self.problem(format!("{expected}, found {}", quoted(text))),
        }
    }

    /// Where to listen: an IP address of this machine, or all of them, and a port.
    pub fn listen(&self) -> Option<SocketAddr> {
        let what = "an IP address and a port, such as \"127.0.0.1:7400\"";
        match self.text(what)?.parse::<SocketAddr>() {
            Ok(address) if address.port() > 0 => Some(address),
            _ => self.expected(what),
        }
    }

    /// The path of a Unix socket.
    pub fn unix_path(&self) -> Option<PathBuf> {
        let what = format!("the path of a Unix socket, 1 to {LONGEST_UNIX_PATH} bytes");
        self.text_if(&what, |path| (1..=LONGEST_UNIX_PATH).contains(&path.len())).map(PathBuf::from)
    }

    /// The items of a list.
    pub fn items(&self, what: &str) -> Option<Vec<Cursor<'a>>> {
        match &self.node.value {
            Value::List(items) => {
                let item = |(index, node)| Cursor {
                    node,
                    path: format!("{}[{index}]", self.path),
                    report: self.report,
                };
                Some(items.iter().enumerate().map(item).collect())
            }
            _ => self.expected(what),
        }
    }

    /// The items, where a single value may stand for a list of one.
    pub fn items_or_one(&self) -> Vec<Cursor<'a>> {
        match self.node.value {
            Value::List(_) => self.items("a list").unwrap_or_default(),
            _ => vec![self.clone()],
        }
    }

    /// The entries of a mapping whose keys are the user's own; a key given twice is reported.
    pub fn entries(&self, what: &str) -> Option<Vec<Keyed<'a>>> {
        let Value::Map(entries) = &self.node.value else {
            return self.expected(what);
        };
        let mut kept: Vec<Keyed<'a>> = Vec::with_capacity(entries.len());
        let mut first_at: BTreeMap<&str, Position> = BTreeMap::new();
        for Entry { key, key_at, value } in entries {
            let path = join(&self.path, key);
            if let Some(first) = first_at.get(key.as_str()) {
                let message = format!("expected once, found again (first on line {})", first.line);
                self.report.add(*key_at, &path, message);
                continue;
            }
            first_at.insert(key, *key_at);
            let value = Cursor { node: value, path, report: self.report };
            kept.push(Keyed { key, key_at: *key_at, value });
        }
        Some(kept)
    }

    /// The value of a key of a mapping that has been read.
    pub fn value(&self, key: &str) -> Option<Cursor<'a>> {
        let path = join(&self.path, key);
        self.node.get(key).map(|node| Cursor { node, path, report: self.report })
    }

    /// A mapping with these keys and no others.
    pub fn fields(&self, known: &'static [&'static str]) -> Option<Fields<'a>> {
        let entries = self.entries(&format!("a mapping with {}", known.join(", ")))?;
        let mut fields = Fields { of: self.clone(), entries: Vec::new(), misspelt: Vec::new() };
        for entry in entries {
            if known.contains(&entry.key) {
                fields.entries.push(entry);
                continue;
            }
            let close = closest(entry.key, known);
            let hint = close.map(|close| format!("did you mean {close:?}? ")).unwrap_or_default();
            fields.misspelt.extend(close);
            entry.problem::<()>(format!("unknown key; {hint}expected one of {}", known.join(", ")));
        }
        Some(fields)
    }

    /// Says so when a number or truth value was expected and stands in quotes.
    fn expected_bare<T>(&self, what: impl Display) -> Option<T> {
        match &self.node.value {
            Value::Scalar { text, plain: false } if scalar::kind(text) != Kind::Text => {
                self.expected(format!("{what} without quotes"))
            }
            _ => self.expected(what),
        }
    }

    fn kind(&self) -> Option<Kind> {
        match &self.node.value {
            Value::Scalar { text, plain: true } => Some(scalar::kind(text)),
            _ => None,
        }
    }
}

/// A value and the key it stands under.
#[derive(Debug)]
pub struct Keyed<'a> {
    /// The key.
    pub key: &'a str,
    /// The value.
    pub value: Cursor<'a>,
    key_at: Position,
}

impl Keyed<'_> {
    /// Reports a problem with the key.
    pub fn problem<T>(&self, message: impl Display) -> Option<T> {
        self.value.report.add(self.key_at, &self.value.path, message.to_string());
        None
    }
}

/// The known keys of a mapping.
#[derive(Debug)]
pub struct Fields<'a> {
    of: Cursor<'a>,
    entries: Vec<Keyed<'a>>,
    /// Keys that an unknown one was probably meant to be: not reported as missing as well.
    misspelt: Vec<&'static str>,
}

impl<'a> Fields<'a> {
    /// The value of a key, if it is there.
    pub fn get(&self, key: &str) -> Option<&Cursor<'a>> {
        self.entries.iter().find(|entry| entry.key == key).map(|entry| &entry.value)
    }

    /// A key that must be there.
    pub fn required<T>(
        &self,
        key: &str,
        what: &str,
        read: impl FnOnce(&Cursor<'a>) -> Option<T>,
    ) -> Option<T> {
        if let Some(cursor) = self.get(key) {
            return read(cursor);
        }
        if !self.misspelt.contains(&key) {
            let path = join(&self.of.path, key);
            self.of.report.add(self.of.node.at, &path, format!("missing; expected {what}"));
        }
        None
    }

    /// A key that may be there: `Some(None)` when it is not.
    pub fn optional<T>(
        &self,
        key: &str,
        read: impl FnOnce(&Cursor<'a>) -> Option<T>,
    ) -> Option<Option<T>> {
        self.get(key).map_or(Some(None), |cursor| read(cursor).map(Some))
    }

    /// A key that may be there, and what holds when it is not.
    pub fn or<T>(
        &self,
        key: &str,
        default: T,
        read: impl FnOnce(&Cursor<'a>) -> Option<T>,
    ) -> Option<T> {
        self.get(key).map_or(Some(default), read)
    }
}

fn join(path: &str, key: &str) -> String {
    let simple = |c: char| c.is_alphanumeric() || matches!(c, '_' | '-');
    let key = if !key.is_empty() && key.chars().all(simple) { key.to_owned() } else { quoted(key) };
    if path.is_empty() { key } else { format!("{path}.{key}") }
}

const UNITS_IN_KEYS: [&str; 3] = ["_ms", "_us", "_seconds"];

/// The known key that was probably meant: it begins the same, or at most a third of its letters
/// differ.
fn closest(key: &str, known: &[&'static str]) -> Option<&'static str> {
    // Long keys are no misspelling, and their distance costs the square of their length.
    if key.len() > 64 {
        return None;
    }
    let key = key.to_lowercase().replace('-', "_");
    // Elsewhere units stand in the key; here they stand in the value.
    let key = UNITS_IN_KEYS.iter().find_map(|unit| key.strip_suffix(unit)).unwrap_or(&key);
    if let Some(longer) = known.iter().find(|known| key.len() >= 3 && known.starts_with(key)) {
        return Some(*longer);
    }
    let distance = |known: &str| strsim::damerau_levenshtein(key, known);
    let best = known.iter().min_by_key(|known| distance(known))?;
    (distance(best) <= (best.len() / 3).max(1)).then_some(*best)
}

fn found(node: &Node) -> String {
    match &node.value {
        Value::List(items) if items.is_empty() => "an empty list".to_owned(),
        Value::List(_) => "a list".to_owned(),
        Value::Map(_) => "a mapping".to_owned(),
        Value::Refused(what) => (*what).to_owned(),
        Value::Scalar { text, plain: true } if scalar::kind(text) == Kind::Null => {
            "nothing".to_owned()
        }
        Value::Scalar { text, plain: true } if scalar::kind(text) != Kind::Text => text_only(text),
        Value::Scalar { text, .. } => quoted(text),
    }
}

/// A number or truth value as written; numbers can be long, but hold nothing that needs quotes.
fn text_only(text: &str) -> String {
    quoted(text).replace('"', "")
}

/// Whole hours read better than 3600s, and nanoseconds are no unit of a configuration.
fn short(span: Duration) -> String {
    match span.as_secs() {
        _ if span.is_zero() => "0s".to_owned(),
        seconds if seconds > 0 && seconds % 3600 == 0 => format!("{}h", seconds / 3600),
        _ => format!("{span:?}"),
    }
}
