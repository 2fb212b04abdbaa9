//! Reads the interface file, so that tests can hold the code against it.

use std::collections::BTreeMap;

use serde_json::Value;

use super::DESCRIPTION;

/// Names and types, in order.
pub(super) type Fields = Vec<(String, Type)>;

#[derive(Debug, PartialEq, Eq)]
pub(super) enum Type {
    Bool,
    Int,
    String,
    Object,
    Named(String),
    Optional(Box<Type>),
    Array(Box<Type>),
    Struct(Fields),
    Enum(Vec<String>),
}

#[derive(Debug)]
pub(super) struct Method {
    pub(super) input: Fields,
    pub(super) output: Fields,
}

#[derive(Debug, Default)]
pub(super) struct Interface {
    pub(super) name: String,
    pub(super) types: BTreeMap<String, Type>,
    pub(super) methods: BTreeMap<String, Method>,
    pub(super) errors: BTreeMap<String, Fields>,
}

impl Interface {
    /// The one that is served.
    pub(super) fn ours() -> Self {
        Self::parse(DESCRIPTION)
    }

    fn parse(text: &str) -> Self {
        let mut tokens = Tokens::of(text);
        tokens.expect("interface");
        let mut interface = Self { name: tokens.next(), ..Self::default() };
        while let Some(kind) = tokens.take() {
            let name = tokens.next();
            assert!(name.starts_with(char::is_uppercase), "{name}");
            let known = match kind.as_str() {
                "type" => interface.types.insert(name.clone(), tokens.composite()).is_some(),
                "error" => interface.errors.insert(name.clone(), tokens.fields()).is_some(),
                "method" => {
                    let input = tokens.fields();
                    tokens.expect("->");
                    interface.methods.insert(name.clone(), Method { input, output: tokens.fields() }).is_some()
                }
                other => panic!("{other} is no keyword"),
            };
            assert!(!known, "{name} is there twice");
        }
        interface
    }

    /// Whether an object has the fields described, and no others.
    pub(super) fn check_fields(&self, fields: &Fields, value: &Value) -> Result<(), String> {
        let object = value.as_object().ok_or_else(|| format!("{value} is no object"))?;
        if let Some(name) = object.keys().find(|&name| fields.iter().all(|(known, _)| known != name)) {
            return Err(format!("{name} is not described"));
        }
        fields.iter().try_for_each(|(name, kind)| {
            self.check(kind, object.get(name).unwrap_or(&Value::Null)).map_err(|error| format!("{name}: {error}"))
        })
    }

    fn check(&self, kind: &Type, value: &Value) -> Result<(), String> {
        let fits = match kind {
            Type::Bool => value.is_boolean(),
            Type::Int => value.is_i64() || value.is_u64(),
            Type::String => value.is_string(),
            Type::Object => value.is_object(),
            Type::Enum(words) => value.as_str().is_some_and(|word| words.iter().any(|known| known == word)),
            Type::Named(name) => return self.check(&self.types[name], value),
            Type::Optional(_) if value.is_null() => true,
            Type::Optional(inner) => return self.check(inner, value),
            Type::Struct(fields) => return self.check_fields(fields, value),
            Type::Array(inner) => {
                let items = value.as_array().ok_or_else(|| format!("{value} is no array"))?;
                return items.iter().try_for_each(|item| self.check(inner, item));
            }
        };
        if fits { Ok(()) } else { Err(format!("{value} is no {kind:?}")) }
    }
}

/// The words and marks of the file, from the last to the first.
struct Tokens(Vec<String>);

impl Tokens {
    fn of(text: &str) -> Self {
        let code = text.lines().map(|line| line.split('#').next().unwrap_or_default());
        let mut spaced = String::new();
        for character in code.collect::<Vec<_>>().join("\n").chars() {
            if "(),:?".contains(character) {
                spaced.extend([' ', character, ' ']);
            } else {
                spaced.push(character);
            }
        }
        let spaced = spaced.replace("[]", " [] ");
        Self(spaced.split_whitespace().rev().map(str::to_owned).collect())
    }

    fn take(&mut self) -> Option<String> {
        self.0.pop()
    }

    fn next(&mut self) -> String {
        self.take().expect("more of the file")
    }

    fn expect(&mut self, token: &str) {
        assert_eq!(self.next(), token, "before {:?}", self.0.iter().rev().take(5).collect::<Vec<_>>());
    }

    /// Whether the next token is this one, which is taken then.
    fn eat(&mut self, token: &str) -> bool {
        self.0.pop_if(|next| next == token).is_some()
    }

    fn fields(&mut self) -> Fields {
        match self.composite() {
            Type::Struct(fields) => fields,
            other => panic!("{other:?} has no fields"),
        }
    }

    /// `(a: int, b: string)` or `(a, b)`.
    fn composite(&mut self) -> Type {
        self.expect("(");
        let (mut fields, mut words) = (Fields::new(), Vec::new());
        while !self.eat(")") {
            let name = self.next();
            if self.eat(":") {
                fields.push((name, self.kind()));
            } else {
                words.push(name);
            }
            if !self.eat(",") {
                self.expect(")");
                break;
            }
        }
        assert!(fields.is_empty() || words.is_empty(), "{fields:?} {words:?}");
        if words.is_empty() { Type::Struct(fields) } else { Type::Enum(words) }
    }

    fn kind(&mut self) -> Type {
        if self.eat("?") {
            return Type::Optional(Box::new(self.kind()));
        }
        if self.eat("[]") {
            return Type::Array(Box::new(self.kind()));
        }
        match self.next().as_str() {
            "bool" => Type::Bool,
            "int" => Type::Int,
            "string" => Type::String,
            "object" => Type::Object,
            name => Type::Named(name.to_owned()),
        }
    }
}

#[test]
fn the_file_is_read_as_it_is_meant() {
    let interface = Interface::parse(
        "# of ours\ninterface a.b\ntype T (x: ?[]int, # many\n y: U)\ntype U (one, two)\n\
         method M(t: T) -> ()\nerror E(why: string)",
    );
    assert_eq!(interface.name, "a.b");
    let many = Type::Optional(Box::new(Type::Array(Box::new(Type::Int))));
    let fields = vec![("x".to_owned(), many), ("y".to_owned(), Type::Named("U".to_owned()))];
    assert_eq!(interface.types["T"], Type::Struct(fields));
    assert_eq!(interface.types["U"], Type::Enum(vec!["one".to_owned(), "two".to_owned()]));
    assert_eq!(interface.methods["M"].output, []);
    let check = |value: Value| interface.check_fields(&interface.methods["M"].input, &value);
    assert_eq!(check(serde_json::json!({"t": {"x": [1], "y": "two"}})), Ok(()));
    for wrong in
        ["{}", r#"{"t": {"y": "three"}}"#, r#"{"t": {"x": ["1"], "y": "one"}}"#, r#"{"t": {"y": "one", "z": 1}}"#]
    {
        assert!(check(serde_json::from_str(wrong).unwrap()).is_err(), "{wrong}");
    }
}
