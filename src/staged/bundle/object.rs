//! JSON objects of which some fields are changed. All others stay as they are, byte for byte.

use std::borrow::Cow;
use std::fmt;

use serde::de::{MapAccess, Visitor};
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use serde_json::value::{RawValue, to_raw_value};

use crate::json::Wrong;

/// An object as it was read, and as it was changed since.
#[derive(Debug, Default)]
pub(super) struct Object<'a>(Vec<(String, Cow<'a, RawValue>)>);

impl<'de> Deserialize<'de> for Object<'de> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Reader;

        impl<'de> Visitor<'de> for Reader {
            type Value = Object<'de>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an object")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
                let mut fields = Vec::new();
                while let Some((name, value)) = map.next_entry::<String, &RawValue>()? {
                    fields.push((name, Cow::Borrowed(value)));
                }
                Ok(Object(fields))
            }
        }

        deserializer.deserialize_map(Reader)
    }
}

impl Serialize for Object<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_map(self.0.iter().map(|(name, value)| (name, value)))
    }
}

impl Object<'_> {
    /// What a field is; nothing if it is not there, or `null`.
    pub(super) fn get<'b, T: Deserialize<'b>>(&'b self, name: &str) -> Result<Option<T>, Wrong> {
        match self.position(name)?.map(|position| self.0[position].1.get()) {
            None | Some("null") => Ok(None),
            Some(value) => serde_json::from_str(value).map(Some).map_err(|error| Wrong::of_value(name, &error)),
        }
    }

    /// What a field is that must be there.
    pub(super) fn required<'b, T: Deserialize<'b>>(&'b self, name: &str) -> Result<T, Wrong> {
        self.get(name)?.ok_or_else(|| Wrong::missing(name))
    }

    /// What `read` makes of the object that a field is; of an empty one if it is not there.
    pub(super) fn inside<T>(&self, name: &str, read: impl FnOnce(&Object<'_>) -> Result<T, Wrong>) -> Result<T, Wrong> {
        let inner: Object<'_> = self.get(name)?.unwrap_or_default();
        read(&inner).map_err(|wrong| wrong.within(name))
    }

    /// Gives a field a value, in its place or at the end.
    pub(super) fn set<T: Serialize + ?Sized>(&mut self, name: &str, value: &T) -> Result<(), Wrong> {
        let value = to_raw_value(value).map_err(|error| Wrong::new(name, error.to_string()))?;
        let value = Cow::Owned(value);
        match self.position(name)? {
            Some(position) => self.0[position].1 = value,
            None => self.0.push((name.to_owned(), value)),
        }
        Ok(())
    }

    /// Changes the object that a field is. It is made if it is not there, and goes if nothing is in it.
    pub(super) fn change(
        &mut self,
        name: &str,
        change: impl FnOnce(&mut Object<'_>) -> Result<(), Wrong>,
    ) -> Result<(), Wrong> {
        let mut inner: Object<'_> = self.get(name)?.unwrap_or_default();
        change(&mut inner).map_err(|wrong| wrong.within(name))?;
        if inner.0.is_empty() {
            return self.remove(name);
        }
        let changed = to_raw_value(&inner).map_err(|error| Wrong::new(name, error.to_string()))?;
        self.set(name, &changed)
    }

    /// Takes a field away.
    pub(super) fn remove(&mut self, name: &str) -> Result<(), Wrong> {
        if let Some(position) = self.position(name)? {
            self.0.remove(position);
        }
        Ok(())
    }

    /// The fields whose names begin with `prefix`, with the rest of their names.
    pub(super) fn beginning_with(&self, prefix: &str) -> impl Iterator<Item = (String, &RawValue)> {
        self.0.iter().filter_map(move |(name, value)| Some((name.strip_prefix(prefix)?.to_owned(), &**value)))
    }

    /// Runtimes in Go take a name for this one that differs from it in case alone, and of two the last; others take the
    /// first. So that all mean what is checked here, there may be one alone.
    fn position(&self, name: &str) -> Result<Option<usize>, Wrong> {
        let folded = fold(name);
        let mut found = self.0.iter().enumerate().filter(|(_, (known, _))| fold(known) == folded);
        match (found.next(), found.next()) {
            (None, _) => Ok(None),
            (Some((position, (known, _))), None) if known == name => Ok(Some(position)),
            _ => {
                Err(Wrong::new(name, "is there twice, or in other letters: runtimes do not agree on which one counts"))
            }
        }
    }
}

/// Equal for names that differ in case alone, by Unicode's simple folding.
fn fold(name: &str) -> String {
    name.chars().flat_map(char::to_uppercase).flat_map(char::to_lowercase).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn object(json: &str) -> Object<'_> {
        serde_json::from_str(json).unwrap()
    }

    #[test]
    fn what_is_not_changed_stays_byte_for_byte() {
        let mut changed =
            object(r#"{"b": {"x":  1e400, "y": {"deep": [ 1,2 ]}}, "a": 12345678901234567890123, "c": "\ud800"}"#);
        changed.change("b", |inner| inner.change("y", |inner| inner.set("new", &[1]))).unwrap();
        changed.set("d", "text").unwrap();
        let text = serde_json::to_string(&changed).unwrap();
        let expected =
            r#"{"b":{"x":1e400,"y":{"deep":[ 1,2 ],"new":[1]}},"a":12345678901234567890123,"c":"\ud800","d":"text"}"#;
        assert_eq!(text, expected);
        changed.change("b", |inner| inner.remove("x").and_then(|()| inner.remove("y"))).unwrap();
        assert!(changed.get::<&RawValue>("b").unwrap().is_none());
    }

    #[test]
    fn a_name_that_some_runtime_takes_for_another_is_refused() {
        for json in [
            r#"{"linux": 1, "linux": 2}"#,
            r#"{"Linux": 1}"#,
            r#"{"linux": 1, "LINUX": 2}"#,
            // U+212A and U+017F, which Go's reader takes for k and s.
            "{\"lin\u{212a}\": 1, \"link\": 1}",
            "{\"mount\u{17f}\": 1}",
        ] {
            let mut object = object(json);
            let wrong = ["linux", "link", "mounts"].iter().any(|name| object.get::<u64>(name).is_err());
            assert!(wrong, "{json}");
            let wrong = ["linux", "link", "mounts"].iter().any(|name| object.set(name, &3).is_err());
            assert!(wrong, "{json}");
        }
        assert_eq!(object(r#"{"linux": 1, "linuxes": 2}"#).get("linux"), Ok(Some(1)));
    }
}
