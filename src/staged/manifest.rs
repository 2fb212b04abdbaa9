//! What a build says of how it wants to be run: the file beside it, read strictly.

use std::ffi::CString;
use std::fmt;
use std::str::FromStr;

use caps::Capability;
use dunnage_runtime::generation::{Limit, Tier};
use dunnage_runtime::sys::{Capabilities, Privileges, ResourceLimit};
use nix::sys::resource::Resource;
use serde::de::{Error, Visitor};
use serde::{Deserialize, Deserializer};

use super::accounts::{Account, User};
use crate::generations::tier;
use crate::json::{Fields, Wrong};

/// A flat build's manifest.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Manifest {
    /// Arguments after the program's own name.
    pub(crate) args: Vec<CString>,
    /// `NAME=VALUE` each.
    pub(crate) env: Vec<CString>,
    pub(crate) cwd: CString,
    pub(crate) user: Option<User>,
    pub(crate) groups: Option<Vec<Account>>,
    pub(crate) privileges: Privileges,
    pub(crate) limits: Vec<ResourceLimit>,
    /// The build's own tier (G9).
    pub(crate) tier: Option<Tier>,
}

impl Default for Manifest {
    /// What a build without a manifest gets.
    fn default() -> Self {
        Self {
            args: Vec::new(),
            env: Vec::new(),
            cwd: c"/".to_owned(),
            user: None,
            groups: None,
            privileges: Privileges::default(),
            limits: Vec::new(),
            tier: None,
        }
    }
}

impl Manifest {
    /// Reads the whole text. The error is one line, without the file's name.
    pub(crate) fn parse(json: &[u8]) -> Result<Self, String> {
        let fields = Fields::parse(json).map_err(|error| error.to_string())?;
        fields.whole(Self::read).map_err(|wrong| wrong.to_string())
    }

    fn read(fields: &mut Fields<'_>) -> Result<Self, Wrong> {
        let usual = Self::default();
        Ok(Self {
            args: strings(fields, "args")?,
            env: environment(fields)?,
            cwd: cwd(fields)?.unwrap_or(usual.cwd),
            user: user(fields)?,
            groups: fields.optional::<Vec<Account>>("groups")?,
            privileges: privileges(fields)?,
            limits: limits(fields)?,
            tier: tier::read(fields, "tier")?,
        })
    }
}

/// What the shim says itself, and no manifest may.
pub(super) fn is_reserved(name: &str) -> bool {
    name.starts_with("DUNNAGE_") || name == "NOTIFY_SOCKET"
}

fn strings(fields: &mut Fields<'_>, key: &str) -> Result<Vec<CString>, Wrong> {
    let strings = fields.optional::<Vec<String>>(key)?.unwrap_or_default();
    strings.into_iter().map(|string| c_string(key, string)).collect()
}

fn c_string(key: &str, string: String) -> Result<CString, Wrong> {
    CString::new(string).map_err(|_| Wrong::new(key, "has a NUL in it"))
}

fn environment(fields: &mut Fields<'_>) -> Result<Vec<CString>, Wrong> {
    let variables = fields.optional::<Vec<String>>("env")?.unwrap_or_default();
    let mut names: Vec<&str> = Vec::with_capacity(variables.len());
    for variable in &variables {
        let name = variable.split_once('=').map(|(name, _)| name).filter(|name| !name.is_empty());
        let name = name.ok_or_else(|| Wrong::new("env", format!("has {variable:?}, which is not NAME=VALUE")))?;
        if is_reserved(name) {
            return Err(Wrong::new("env", format!("sets {name}, which the monitor sets")));
        }
        names.push(name);
    }
    names.sort_unstable();
    if let Some(&[twice, _]) = names.windows(2).find(|pair| matches!(pair, [one, next] if one == next)) {
        return Err(Wrong::new("env", format!("sets {twice} twice")));
    }
    variables.into_iter().map(|variable| c_string("env", variable)).collect()
}

fn cwd(fields: &mut Fields<'_>) -> Result<Option<CString>, Wrong> {
    match fields.optional::<String>("cwd")? {
        None => Ok(None),
        Some(path) if path.starts_with('/') => c_string("cwd", path).map(Some),
        Some(path) => Err(Wrong::new("cwd", format!("is not an absolute path: {path:?}"))),
    }
}

/// `USER`, or `USER:GROUP`; a number alone may be one in JSON too.
fn user(fields: &mut Fields<'_>) -> Result<Option<User>, Wrong> {
    let Some(Named(text)) = fields.optional("user")? else { return Ok(None) };
    let (user, group) = text.split_once(':').map_or((&*text, None), |(user, group)| (user, Some(group)));
    let account = |text| {
        Account::parse(text)
            .ok_or_else(|| Wrong::new("user", format!("has {text:?}, which is neither name nor number")))
    };
    Ok(Some(User { user: account(user)?, group: group.map(account).transpose()? }))
}

fn privileges(fields: &mut Fields<'_>) -> Result<Privileges, Wrong> {
    let (bounding, ambient) = fields
        .nested("capabilities", |fields| Ok((capabilities(fields, "bounding")?, capabilities(fields, "ambient")?)))?
        .unwrap_or_default();
    let ambient = ambient.unwrap_or_default();
    if bounding.is_some_and(|bounding| !bounding.contains(ambient)) {
        return Err(Wrong::new("capabilities.ambient", "has one that \"bounding\" has not"));
    }
    Ok(Privileges { bounding, ambient, no_new_privs: fields.optional("no_new_privs")?.unwrap_or(true) })
}

fn capabilities(fields: &mut Fields<'_>, key: &str) -> Result<Option<Capabilities>, Wrong> {
    let Some(names) = fields.optional::<Vec<String>>(key)? else { return Ok(None) };
    let capability = |name: &String| {
        Capability::from_str(name).map_err(|_| Wrong::new(key, format!("has {name:?}, which is no capability")))
    };
    names.iter().map(capability).collect::<Result<_, _>>().map(Some)
}

/// As the OCI runtime specification writes them.
fn limits(fields: &mut Fields<'_>) -> Result<Vec<ResourceLimit>, Wrong> {
    const KEY: &str = "rlimits";
    let mut limits: Vec<ResourceLimit> = Vec::new();
    for fields in fields.optional::<Vec<Fields<'_>>>(KEY)?.unwrap_or_default() {
        let limit = fields.whole(limit).map_err(|wrong| wrong.within(KEY))?;
        if limits.iter().any(|other| other.resource == limit.resource) {
            return Err(Wrong::new(KEY, format!("has {} twice", name_of(limit.resource))));
        }
        limits.push(limit);
    }
    Ok(limits)
}

fn limit(fields: &mut Fields<'_>) -> Result<ResourceLimit, Wrong> {
    let name = fields.required::<String>("type")?;
    let resource = RESOURCES.iter().find(|(known, _)| *known == name).map(|&(_, resource)| resource);
    let resource = resource.ok_or_else(|| Wrong::new("type", format!("is no resource limit: {name:?}")))?;
    let (soft, hard) = (value(fields, "soft")?, value(fields, "hard")?);
    if soft > hard {
        return Err(Wrong::new("soft", format!("is above \"hard\" for {name}")));
    }
    Ok(ResourceLimit { resource, soft, hard })
}

fn value(fields: &mut Fields<'_>, key: &str) -> Result<u64, Wrong> {
    let Named(text) = fields.required(key)?;
    match text.parse() {
        Ok(Limit::Value(value)) => Ok(value),
        Ok(Limit::Max) => Ok(u64::MAX),
        Err(error) => Err(Wrong::new(key, format!("is wrong: {error}"))),
    }
}

const RESOURCES: &[(&str, Resource)] = &[
    ("RLIMIT_AS", Resource::RLIMIT_AS),
    ("RLIMIT_CORE", Resource::RLIMIT_CORE),
    ("RLIMIT_CPU", Resource::RLIMIT_CPU),
    ("RLIMIT_DATA", Resource::RLIMIT_DATA),
    ("RLIMIT_FSIZE", Resource::RLIMIT_FSIZE),
    ("RLIMIT_LOCKS", Resource::RLIMIT_LOCKS),
    ("RLIMIT_MEMLOCK", Resource::RLIMIT_MEMLOCK),
    ("RLIMIT_MSGQUEUE", Resource::RLIMIT_MSGQUEUE),
    ("RLIMIT_NICE", Resource::RLIMIT_NICE),
    ("RLIMIT_NOFILE", Resource::RLIMIT_NOFILE),
    ("RLIMIT_NPROC", Resource::RLIMIT_NPROC),
    ("RLIMIT_RSS", Resource::RLIMIT_RSS),
    ("RLIMIT_RTPRIO", Resource::RLIMIT_RTPRIO),
    ("RLIMIT_RTTIME", Resource::RLIMIT_RTTIME),
    ("RLIMIT_SIGPENDING", Resource::RLIMIT_SIGPENDING),
    ("RLIMIT_STACK", Resource::RLIMIT_STACK),
];

/// What a limit is called.
pub(super) fn name_of(resource: Resource) -> &'static str {
    RESOURCES.iter().find(|&&(_, known)| known == resource).map_or("a resource limit", |&(name, _)| name)
}

/// A number, or text that may be one.
struct Named(String);

impl<'de> Deserialize<'de> for Named {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Reader;

        impl Visitor<'_> for Reader {
            type Value = Named;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a string or a number")
            }

            fn visit_str<E: Error>(self, text: &str) -> Result<Named, E> {
                Ok(Named(text.to_owned()))
            }

            fn visit_u64<E: Error>(self, number: u64) -> Result<Named, E> {
                Ok(Named(number.to_string()))
            }
        }

        deserializer.deserialize_any(Reader)
    }
}

impl<'de> Deserialize<'de> for Account {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let Named(text) = Named::deserialize(deserializer)?;
        Self::parse(&text).ok_or_else(|| D::Error::custom(format!("{text:?} is neither name nor number")))
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn parse(manifest: &Value) -> Result<Manifest, String> {
        Manifest::parse(manifest.to_string().as_bytes())
    }

    #[test]
    fn g10_a_manifest_says_all_that_it_can() {
        let manifest = parse(&json!({
            "args": ["--port", ""], "env": ["A=1", "B=x=y", "C="], "cwd": "/srv", "user": "app:www", "groups": ["adm", 5],
            "capabilities": {"bounding": ["CAP_CHOWN", "CAP_NET_BIND_SERVICE"], "ambient": ["CAP_NET_BIND_SERVICE"]},
            "no_new_privs": false,
            "rlimits": [{"type": "RLIMIT_NOFILE", "soft": 1024, "hard": "max"}],
            "tier": {"memory_max": "1048576"},
        }));
        let strings =
            |strings: &[&str]| strings.iter().map(|&string| CString::new(string).unwrap()).collect::<Vec<_>>();
        let expected = Manifest {
            args: strings(&["--port", ""]),
            env: strings(&["A=1", "B=x=y", "C="]),
            cwd: c"/srv".to_owned(),
            user: Some(User { user: Account::Name("app".into()), group: Some(Account::Name("www".into())) }),
            groups: Some(vec![Account::Name("adm".into()), Account::Id(5)]),
            privileges: Privileges {
                bounding: Some([Capability::CAP_CHOWN, Capability::CAP_NET_BIND_SERVICE].into_iter().collect()),
                ambient: [Capability::CAP_NET_BIND_SERVICE].into_iter().collect(),
                no_new_privs: false,
            },
            limits: vec![ResourceLimit { resource: Resource::RLIMIT_NOFILE, soft: 1024, hard: u64::MAX }],
            tier: Some(Tier { memory_max: Limit::Value(1 << 20), ..Tier::UNLIMITED }),
        };
        assert_eq!(manifest, Ok(expected));
    }

    #[test]
    fn g10_what_it_does_not_say_is_little() {
        assert_eq!(parse(&json!({})), Ok(Manifest::default()));
        let usual = Manifest::default();
        assert!(usual.privileges.no_new_privs && usual.env.is_empty() && usual.tier.is_none());
        assert_eq!(parse(&json!({"user": 1000})).unwrap().user.unwrap().user, Account::Id(1000));
    }

    #[test]
    fn g10_each_way_of_being_wrong_has_its_line() {
        let limit =
            |soft: Value, hard: Value| json!({"rlimits": [{"type": "RLIMIT_CORE", "soft": soft, "hard": hard}]});
        for (manifest, error) in [
            (json!({"arg": []}), "\"arg\" is not known"),
            (json!({"args": "x"}), "\"args\" is wrong: invalid type: string \"x\", expected a sequence"),
            (json!({"args": [1]}), "\"args\" is wrong: invalid type: integer `1`, expected a string"),
            (json!({"args": ["a\0b"]}), "\"args\" has a NUL in it"),
            (json!({"env": ["A"]}), "\"env\" has \"A\", which is not NAME=VALUE"),
            (json!({"env": ["=A"]}), "\"env\" has \"=A\", which is not NAME=VALUE"),
            (json!({"env": ["A=1", "B=1", "A=2"]}), "\"env\" sets A twice"),
            (json!({"env": ["NOTIFY_SOCKET=/x"]}), "\"env\" sets NOTIFY_SOCKET, which the monitor sets"),
            (json!({"env": ["DUNNAGE_BUILD=x"]}), "\"env\" sets DUNNAGE_BUILD, which the monitor sets"),
            (json!({"env": ["A=\0"]}), "\"env\" has a NUL in it"),
            (json!({"cwd": "srv"}), "\"cwd\" is not an absolute path: \"srv\""),
            (json!({"cwd": "/\0"}), "\"cwd\" has a NUL in it"),
            (json!({"user": ""}), "\"user\" has \"\", which is neither name nor number"),
            (json!({"user": "app:"}), "\"user\" has \"\", which is neither name nor number"),
            (json!({"user": 4_294_967_295_u32}), "\"user\" has \"4294967295\", which is neither name nor number"),
            (json!({"user": -1}), "\"user\" is wrong: invalid type: integer `-1`, expected a string or a number"),
            (json!({"groups": [4_294_967_295_u32]}), "\"groups\" is wrong: \"4294967295\" is neither name nor number"),
            (json!({"no_new_privs": 1}), "\"no_new_privs\" is wrong: invalid type: integer `1`, expected a boolean"),
            (
                json!({"capabilities": {"bounding": ["CAP_FLY"]}}),
                "\"capabilities.bounding\" has \"CAP_FLY\", which is no capability",
            ),
            (json!({"capabilities": {"effective": []}}), "\"capabilities.effective\" is not known"),
            (
                json!({"capabilities": {"bounding": [], "ambient": ["CAP_CHOWN"]}}),
                "\"capabilities.ambient\" has one that \"bounding\" has not",
            ),
            (json!({"rlimits": [{"type": "NOFILE"}]}), "\"rlimits.type\" is no resource limit: \"NOFILE\""),
            (json!({"rlimits": [{"type": "RLIMIT_CORE", "soft": 1}]}), "\"rlimits.hard\" is missing"),
            (limit(json!(2), json!(1)), "\"rlimits.soft\" is above \"hard\" for RLIMIT_CORE"),
            (limit(json!("1k"), json!(1)), "\"rlimits.soft\" is wrong: it is neither a number nor \"max\""),
            (json!({"tier": {"memory": "1"}}), "\"tier.memory\" is not known"),
        ] {
            assert_eq!(parse(&manifest), Err(error.to_owned()), "{manifest}");
        }
        let twice = json!({"type": "RLIMIT_CORE", "soft": 0, "hard": 0});
        assert_eq!(parse(&json!({"rlimits": [twice, twice]})), Err("\"rlimits\" has RLIMIT_CORE twice".into()));
    }

    #[test]
    fn g10_what_is_no_object_is_refused_with_its_place() {
        for (text, error) in [
            ("", "EOF while parsing a value at line 1 column 0"),
            ("{", "EOF while parsing an object at line 1 column 1"),
            ("{\"args\": []} x", "trailing characters at line 1 column 14"),
        ] {
            assert_eq!(Manifest::parse(text.as_bytes()), Err(error.to_owned()), "{text}");
        }
        for text in ["[]", "1", "{\"args\": [], \"args\": []}", "\u{feff}{}"] {
            assert!(Manifest::parse(text.as_bytes()).is_err(), "{text}");
        }
        assert!(Manifest::parse(b"{\"args\": [\"\xff\"]}").is_err());
    }
}
