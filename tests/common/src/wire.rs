//! JSON without derive: the static build of this workspace has no procedural macros.

use std::collections::BTreeMap;

use serde_json::{Map, Value};

/// What goes through a file as JSON.
pub trait Wire: Sized {
    /// As JSON.
    fn to_json(&self) -> Value;
    /// Out of JSON, if it is that.
    fn from_json(value: &Value) -> Option<Self>;
}

/// Declares an enum whose variants are written as lists: the name, then the values.
macro_rules! wire_enum {
    ($(#[$doc:meta])* pub enum $name:ident {
        $($(#[$variant_doc:meta])* $variant:ident $(($($field:ident: $type:ty),+))?,)+
    }) => {
        $(#[$doc])*
        #[derive(Clone, Debug, PartialEq, Eq)]
        pub enum $name {
            $($(#[$variant_doc])* $variant $(($($type),+))?,)+
        }

        impl $crate::wire::Wire for $name {
            fn to_json(&self) -> serde_json::Value {
                match self {
                    $(Self::$variant $(($($field),+))? => serde_json::Value::Array(vec![
                        stringify!($variant).into(), $($($crate::wire::Wire::to_json($field)),+)?
                    ]),)+
                }
            }

            fn from_json(value: &serde_json::Value) -> Option<Self> {
                let (name, values) = value.as_array()?.split_first()?;
                let mut values = values.iter();
                let found = match name.as_str()? {
                    $(stringify!($variant) => {
                        $($(let $field = $crate::wire::Wire::from_json(values.next()?)?;)+)?
                        Self::$variant $(($($field),+))?
                    })+
                    _ => return None,
                };
                values.next().is_none().then_some(found)
            }
        }
    };
}

/// Declares a struct that is written as an object.
macro_rules! wire_struct {
    ($(#[$doc:meta])* pub struct $name:ident {
        $($(#[$field_doc:meta])* pub $field:ident: $type:ty,)+
    }) => {
        $(#[$doc])*
        #[derive(Clone, Debug, Default, PartialEq, Eq)]
        pub struct $name {
            $($(#[$field_doc])* pub $field: $type,)+
        }

        impl $crate::wire::Wire for $name {
            fn to_json(&self) -> serde_json::Value {
                let mut object = serde_json::Map::new();
                $(object.insert(stringify!($field).into(), $crate::wire::Wire::to_json(&self.$field));)+
                object.into()
            }

            fn from_json(value: &serde_json::Value) -> Option<Self> {
                Some(Self { $($field: $crate::wire::Wire::from_json(value.get(stringify!($field))?)?,)+ })
            }
        }
    };
}

pub(crate) use {wire_enum, wire_struct};

macro_rules! wire_number {
    ($($number:ty),+) => {
        $(impl Wire for $number {
            fn to_json(&self) -> Value {
                (*self).into()
            }

            fn from_json(value: &Value) -> Option<Self> {
                value.as_i64().and_then(|number| number.try_into().ok())
            }
        })+
    };
}

wire_number!(i32, u64, usize);

impl Wire for String {
    fn to_json(&self) -> Value {
        self.as_str().into()
    }

    fn from_json(value: &Value) -> Option<Self> {
        value.as_str().map(str::to_owned)
    }
}

impl<T: Wire> Wire for Option<T> {
    fn to_json(&self) -> Value {
        self.as_ref().map_or(Value::Null, Wire::to_json)
    }

    fn from_json(value: &Value) -> Option<Self> {
        if value.is_null() { Some(None) } else { T::from_json(value).map(Some) }
    }
}

impl<T: Wire> Wire for Vec<T> {
    fn to_json(&self) -> Value {
        self.iter().map(Wire::to_json).collect()
    }

    fn from_json(value: &Value) -> Option<Self> {
        value.as_array()?.iter().map(Wire::from_json).collect()
    }
}

impl<K: ToString + std::str::FromStr + Ord, V: Wire> Wire for BTreeMap<K, V> {
    fn to_json(&self) -> Value {
        self.iter().map(|(key, value)| (key.to_string(), value.to_json())).collect::<Map<_, _>>().into()
    }

    fn from_json(value: &Value) -> Option<Self> {
        value.as_object()?.iter().map(|(key, value)| Some((key.parse().ok()?, V::from_json(value)?))).collect()
    }
}
