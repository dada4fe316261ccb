//! JSON as it was written: keys in order, none lost when one is given twice, and every value's place.

use std::fmt;

use serde::Deserialize;
use serde::de::{Deserializer, MapAccess, Visitor};
use serde_json::value::RawValue;

/// A JSON value and where it begins in its text, a byte offset.
#[derive(Clone, Debug, PartialEq)]
pub struct Json {
    /// Where.
    pub at: usize,
    /// What.
    pub value: Value,
}

/// What a JSON value is.
#[derive(Clone, Debug, PartialEq)]
pub enum Value {
    /// `null`
    Null,
    /// `true`, `false`
    Bool,
    /// A whole number.
    Integer(i64),
    /// Any other number; whole ones beyond 64 bits as well.
    Float(f64),
    /// `"…"`
    Text(String),
    /// `[…]`
    List(Vec<Json>),
    /// `{…}`
    Object(Vec<(String, Json)>),
}

impl Json {
    /// Reads a text.
    ///
    /// # Errors
    /// Where and how the text is not JSON.
    pub fn read(text: &str) -> Result<Json, serde_json::Error> {
        // All of it, for the place of the first error: what is read below no longer knows its surroundings.
        serde_json::from_str::<serde_json::Value>(text)?;
        Json::from_raw(text, serde_json::from_str(text)?)
    }

    fn from_raw(text: &str, raw: &RawValue) -> Result<Json, serde_json::Error> {
        let part = raw.get();
        let value = match part.as_bytes().first() {
            Some(b'[') => {
                let items: Vec<&RawValue> = serde_json::from_str(part)?;
                let items = items.into_iter().map(|item| Json::from_raw(text, item));
                Value::List(items.collect::<Result<_, _>>()?)
            }
            Some(b'{') => {
                let Entries(entries) = serde_json::from_str(part)?;
                let entries =
                    entries.into_iter().map(|(key, value)| Ok((key, Json::from_raw(text, value)?)));
                Value::Object(entries.collect::<Result<_, _>>()?)
            }
            _ => match serde_json::from_str(part)? {
                serde_json::Value::Bool(_) => Value::Bool,
                serde_json::Value::String(text) => Value::Text(text),
                serde_json::Value::Number(number) => number.as_i64().map_or_else(
                    || Value::Float(number.as_f64().unwrap_or(f64::NAN)),
                    Value::Integer,
                ),
                _ => Value::Null,
            },
        };
        // A raw value is a part of the text.
        Ok(Json { at: part.as_ptr() as usize - text.as_ptr() as usize, value })
    }

    /// The name of its type, for messages.
    pub fn kind(&self) -> &'static str {
        match self.value {
            Value::Null => "null",
            Value::Bool => "a boolean",
            Value::Integer(_) | Value::Float(_) => "a number",
            Value::Text(_) => "a string",
            Value::List(_) => "a list",
            Value::Object(_) => "an object",
        }
    }
}

/// The entries of an object, unread.
struct Entries<'a>(Vec<(String, &'a RawValue)>);

impl<'de> Deserialize<'de> for Entries<'de> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct All;

        impl<'de> Visitor<'de> for All {
            type Value = Entries<'de>;

            fn expecting(&self, formatter: &mut fmt::Formatter) -> fmt::Result {
                formatter.write_str("an object")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut object: A) -> Result<Self::Value, A::Error> {
                let mut entries = Vec::new();
                while let Some(entry) = object.next_entry()? {
                    entries.push(entry);
                }
                Ok(Entries(entries))
            }
        }

        deserializer.deserialize_map(All)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_value_knows_its_place_and_nothing_is_lost() {
        let text = " {\"a\": [1, -2.5,\n\"\\u00e9\"], \"a\": {\"b\" : null}}";
        let Json { at: 1, value: Value::Object(entries) } = Json::read(text).unwrap() else {
            panic!("an object at 1")
        };
        let [(one, Json { at: 7, value: Value::List(items) }), (two, inner)] = &entries[..] else {
            panic!("two entries")
        };
        assert_eq!((one.as_str(), two.as_str(), inner.at), ("a", "a", text.find("{\"b").unwrap()));
        let items: Vec<_> = items.iter().map(|item| (item.at, item.value.clone())).collect();
        let text = Value::Text("é".to_owned());
        assert_eq!(items, [(8, Value::Integer(1)), (11, Value::Float(-2.5)), (17, text)]);
    }

    #[test]
    fn what_is_nested_too_deep_is_refused_and_no_stack_overflows() {
        assert!(Json::read(&"[".repeat(1_000_000)).is_err());
        assert!(Json::read(&format!("{}{}", "[".repeat(200), "]".repeat(200))).is_err());
    }
}
