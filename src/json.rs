//! JSON objects, read strictly: each key once, each of its type, none that nobody asks for.

use std::fmt;
use std::num::NonZeroU32;
use std::time::Duration;

use serde::de::{Error, MapAccess, Visitor};
use serde::{Deserialize, Deserializer};
use serde_json::value::RawValue;

/// The most fields that are read of an object: more than any has, and no more than a moment's work (R22).
pub(crate) const MAX_FIELDS: usize = 32;

/// A field that is not as it has to be.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Wrong {
    /// Its name; `outer.inner` for one of an object in the object.
    pub(crate) key: String,
    /// What is wrong with it.
    pub(crate) why: String,
}

impl Wrong {
    /// What `key` is.
    pub(crate) fn new(key: &str, why: impl Into<String>) -> Self {
        Self { key: key.to_owned(), why: why.into() }
    }

    /// A field that must be there is not.
    pub(crate) fn missing(key: &str) -> Self {
        Self::new(key, "is missing")
    }

    /// Its value, by serde's words.
    pub(crate) fn of_value(key: &str, error: &serde_json::Error) -> Self {
        let text = error.to_string();
        // The place is one in the value, which nobody looks at alone.
        let what = text.rsplit_once(" at line ").map_or(&*text, |(what, _)| what);
        Self::new(key, format!("is wrong: {what}"))
    }

    /// It was a field of an object that is the field `key`.
    pub(crate) fn within(self, key: &str) -> Self {
        Self { key: format!("{key}.{}", self.key), why: self.why }
    }
}

impl fmt::Display for Wrong {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "\"{}\" {}", self.key, self.why)
    }
}

/// The fields of an object, each read when it is asked for. One that is `null` is not there.
#[derive(Default)]
pub(crate) struct Fields<'a>(Vec<(String, &'a RawValue)>);

impl<'de> Deserialize<'de> for Fields<'de> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Reader;

        impl<'de> Visitor<'de> for Reader {
            type Value = Fields<'de>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, "an object of at most {MAX_FIELDS} fields, each there once")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
                let mut fields: Vec<(String, &RawValue)> = Vec::new();
                while let Some((name, value)) = map.next_entry::<String, &RawValue>()? {
                    if fields.len() == MAX_FIELDS || fields.iter().any(|(known, _)| *known == name) {
                        return Err(A::Error::invalid_length(fields.len(), &self));
                    }
                    fields.push((name, value));
                }
                Ok(Fields(fields))
            }
        }

        deserializer.deserialize_map(Reader)
    }
}

impl<'a> FromIterator<(String, &'a RawValue)> for Fields<'a> {
    /// Of a part of an object. One that is there twice is left over at the end.
    fn from_iter<I: IntoIterator<Item = (String, &'a RawValue)>>(fields: I) -> Self {
        Self(fields.into_iter().collect())
    }
}

impl<'a> Fields<'a> {
    /// Those of an object that is the whole text.
    pub(crate) fn parse(json: &'a [u8]) -> serde_json::Result<Self> {
        serde_json::from_slice(json)
    }

    /// What `read` makes of all of them.
    pub(crate) fn whole<T>(mut self, read: impl FnOnce(&mut Self) -> Result<T, Wrong>) -> Result<T, Wrong> {
        let value = read(&mut self)?;
        self.end().map(|()| value)
    }

    /// A field that may be missing.
    pub(crate) fn optional<T: Deserialize<'a>>(&mut self, name: &str) -> Result<Option<T>, Wrong> {
        let position = self.0.iter().position(|(known, _)| known == name);
        match position.map(|position| self.0.swap_remove(position).1) {
            None => Ok(None),
            Some(value) if value.get() == "null" => Ok(None),
            Some(value) => serde_json::from_str(value.get()).map(Some).map_err(|error| Wrong::of_value(name, &error)),
        }
    }

    /// A field that must be there.
    pub(crate) fn required<T: Deserialize<'a>>(&mut self, name: &str) -> Result<T, Wrong> {
        self.optional(name)?.ok_or_else(|| Wrong::missing(name))
    }

    /// The text of an object.
    pub(crate) fn object(&mut self, name: &str) -> Result<&'a str, Wrong> {
        let text = self.required::<&RawValue>(name)?.get();
        if text.starts_with('{') { Ok(text) } else { Err(Wrong::new(name, "is no object")) }
    }

    /// What `read` makes of the object that a field is, if it is there.
    pub(crate) fn nested<T>(
        &mut self,
        name: &str,
        read: impl FnOnce(&mut Fields<'a>) -> Result<T, Wrong>,
    ) -> Result<Option<T>, Wrong> {
        let Some(fields) = self.optional::<Fields<'a>>(name)? else { return Ok(None) };
        fields.whole(read).map(Some).map_err(|wrong| wrong.within(name))
    }

    /// Milliseconds: seven weeks at most, and never none, which some take for no limit and others for no time.
    pub(crate) fn duration(&mut self, name: &str) -> Result<Option<Duration>, Wrong> {
        Ok(self.optional(name)?.map(|millis: NonZeroU32| Duration::from_millis(millis.get().into())))
    }

    /// Nothing may be left that was not asked for.
    pub(crate) fn end(&mut self) -> Result<(), Wrong> {
        match self.0.pop() {
            None => Ok(()),
            Some((unknown, _)) => Err(Wrong { key: unknown, why: "is not known".to_owned() }),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fields(json: &str) -> Fields<'_> {
        Fields::parse(json.as_bytes()).unwrap()
    }

    #[test]
    fn what_is_wrong_is_named_with_its_key() {
        for (json, expected) in [
            (r#"{"inner": {"limit": 1}}"#, "\"inner.limit\" is wrong: invalid type: integer `1`, expected a string"),
            (r#"{"inner": {"limit": "1", "extra": 1}}"#, "\"inner.extra\" is not known"),
            (r#"{"inner": {}}"#, "\"inner.limit\" is missing"),
            (r#"{"inner": {"limit": "1"}, "limit": "2"}"#, "\"limit\" is not known"),
        ] {
            let mut fields = fields(json);
            let inner = fields.nested("inner", |fields| fields.required::<String>("limit"));
            let wrong = inner.and_then(|_| fields.end()).unwrap_err();
            assert_eq!(wrong.to_string(), expected);
        }
    }

    #[test]
    fn null_is_as_good_as_nothing() {
        let mut fields = fields(r#"{"timeout": null}"#);
        assert_eq!(fields.duration("timeout"), Ok(None));
        assert_eq!(fields.nested("inner", |_| Ok(())), Ok(None));
        assert_eq!(fields.end(), Ok(()));
    }

    #[test]
    fn an_object_with_a_key_twice_or_too_many_is_none() {
        assert!(Fields::parse(br#"{"a": 1, "a": 1}"#).is_err());
        let many: Vec<String> = (0..=MAX_FIELDS).map(|number| format!("\"{number}\": 0")).collect();
        assert!(Fields::parse(format!("{{{}}}", many.join(",")).as_bytes()).is_err());
    }
}
