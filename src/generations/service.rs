//! The service file: what a service is, where its things are, and how its generations run.

use std::ffi::OsStr;
use std::fs::File;
use std::io::{self, Read};
use std::path::{Path, PathBuf};
use std::time::Duration;

use dunnage_runtime::generation::Tier;

use super::hook::SwitchHook;
use super::paths::Places;
use super::tier;
use crate::error::{Context, Result};
use crate::json::{Fields, Wrong};
use crate::socket_file::MAX_SOCKET_PATH;

/// The longest file: many times what anybody has to say.
const MAX_LENGTH: u64 = 1 << 20;

/// How long the switch hook has unless the file says otherwise.
const HOOK_TIME: Duration = Duration::from_secs(10);

/// What is to be served.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Service {
    pub(crate) layout: Layout,
    /// `tier`: the limits of what has none of its own.
    pub(crate) tier: Tier,
    /// `live_link`: what cold starts go through.
    pub(crate) live_link: Option<PathBuf>,
    /// `sidecar`, `args`: what the sidecar's program is given instead of the manifest's arguments.
    pub(crate) sidecar_args: Option<Vec<String>>,
    /// `switch_hook`
    pub(crate) switch_hook: Option<SwitchHook>,
}

/// How generations run.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Layout {
    /// As processes of the shim itself.
    Flat(Places),
    /// As containers.
    Nested(Places, Runtime),
    /// One at a time on the canonical socket, for a reason if that is not what was asked for (G1).
    Foreign(Places, Option<String>),
    /// Not at all.
    Barred(Places, Bar),
    /// As processes of a systemd unit.
    Unit,
}

/// Why nothing is started.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Bar {
    pub(crate) kind: BarKind,
    /// `reason`, in the configuration's words.
    pub(crate) reason: String,
}

/// Which of the two layouts it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum BarKind {
    Fenced,
    Conflict,
}

/// `runtime`: what creates containers.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Runtime {
    pub(crate) path: PathBuf,
    /// What comes before the subcommand.
    pub(crate) args: Vec<String>,
}

impl Service {
    /// Reads the file at `path`, of the service `name`.
    pub(crate) fn read(path: &Path, name: &OsStr) -> Result<Self> {
        let what = || format!("cannot use the service file {}", path.display());
        let text = read(path).context(what)?;
        Self::parse(&text, name).context(what)
    }

    /// Reads the text of such a file.
    pub(super) fn parse(text: &[u8], name: &OsStr) -> Result<Self, String> {
        // serde's text has line and column, and says what an object of the file must be.
        let no_object = |error| format!("it is no JSON object of known keys: {error}");
        let fields = Fields::parse(text).map_err(no_object)?;
        fields.whole(|fields| Self::of(fields, name)).map_err(|wrong| wrong.to_string())
    }

    fn of(fields: &mut Fields<'_>, name: &OsStr) -> Result<Self, Wrong> {
        let sidecar = fields.nested("sidecar", |fields| strings(fields, "args"))?;
        Ok(Self {
            layout: Layout::of(fields, name)?,
            tier: tier::read(fields, "tier")?.unwrap_or(Tier::UNLIMITED),
            live_link: path(fields, "live_link")?,
            sidecar_args: sidecar,
            switch_hook: fields.nested("switch_hook", |fields| {
                Ok(SwitchHook {
                    path: required_path(fields, "path")?,
                    args: strings(fields, "args")?,
                    timeout: fields.duration("timeout_ms")?.unwrap_or(HOOK_TIME),
                })
            })?,
        })
    }
}

impl Layout {
    fn of(fields: &mut Fields<'_>, name: &OsStr) -> Result<Self, Wrong> {
        let layout: String = fields.required("layout")?;
        let reason: Option<String> = fields.optional("reason")?;
        let runtime = fields.nested("runtime", |fields| {
            Ok(Runtime { path: required_path(fields, "path")?, args: strings(fields, "args")? })
        })?;
        let (run_dir, cgroup) = (path(fields, "run_dir")?, path(fields, "cgroup")?);
        let canonical = path(fields, "canonical_socket")?;
        if layout == "unit" {
            return Ok(Self::Unit);
        }
        let needed = |value: Option<PathBuf>, key| value.ok_or_else(|| Wrong::missing(key));
        let places = Places {
            service: name.to_owned(),
            run_dir: needed(run_dir, "run_dir")?,
            canonical: needed(canonical, "canonical_socket")?,
            cgroup: needed(cgroup, "cgroup")?,
        };
        let bar = |kind, places| {
            let reason = reason.clone().filter(|reason| !reason.is_empty());
            let reason = reason.ok_or_else(|| Wrong::new("reason", format!("is missing, which {layout} must have")))?;
            Ok(Self::Barred(places, Bar { kind, reason }))
        };
        match &*layout {
            "flat" => Self::beside_others(places, None),
            "nested" => {
                let runtime = runtime.ok_or_else(|| Wrong::new("runtime", "is missing, which nested must have"))?;
                Self::beside_others(places, Some(runtime))
            }
            "foreign" => Self::alone(places, None),
            "fenced" => bar(BarKind::Fenced, places),
            "conflict" => bar(BarKind::Conflict, places),
            _ => Err(Wrong::new("layout", "is none of flat, nested, foreign, fenced, conflict and unit")),
        }
    }

    /// Flat, or nested with a runtime, if their sockets have addresses (G1).
    fn beside_others(places: Places, runtime: Option<Runtime>) -> Result<Self, Wrong> {
        let longest = places.longest_control(runtime.is_some());
        let length = longest.as_os_str().len();
        if length > MAX_SOCKET_PATH {
            let reason = format!(
                "the longest control socket, {}, would have {length} bytes, and a socket's address has {MAX_SOCKET_PATH}: \
                 a shorter \"run_dir\" or service name is needed for generations side by side",
                longest.display()
            );
            return Self::alone(places, Some(reason));
        }
        check_length(&places.canonical)?;
        Ok(match runtime {
            None => Self::Flat(places),
            Some(runtime) => Self::Nested(places, runtime),
        })
    }

    fn alone(places: Places, reason: Option<String>) -> Result<Self, Wrong> {
        check_length(&places.on_canonical().control)?;
        Ok(Self::Foreign(places, reason))
    }

    /// Where things are. Of a unit's the shim knows nothing.
    pub(crate) fn places(&self) -> Option<&Places> {
        match self {
            Self::Flat(places) | Self::Nested(places, _) | Self::Foreign(places, _) | Self::Barred(places, _) => {
                Some(places)
            }
            Self::Unit => None,
        }
    }

    /// Why it is not what was asked for, or why nothing is started.
    pub(crate) fn reason(&self) -> Option<&str> {
        match self {
            Self::Foreign(_, reason) => reason.as_deref(),
            Self::Barred(_, bar) => Some(&bar.reason),
            Self::Flat(_) | Self::Nested(..) | Self::Unit => None,
        }
    }
}

/// Clients must be able to connect there.
fn check_length(socket: &Path) -> Result<(), Wrong> {
    if socket.as_os_str().len() <= MAX_SOCKET_PATH {
        return Ok(());
    }
    let why = format!("is too long: a socket's address has {MAX_SOCKET_PATH} bytes, {} does not fit", socket.display());
    Err(Wrong::new("canonical_socket", why))
}

fn read(path: &Path) -> io::Result<Vec<u8>> {
    let mut text = Vec::new();
    File::open(path)?.take(MAX_LENGTH + 1).read_to_end(&mut text)?;
    if text.len() as u64 > MAX_LENGTH {
        return Err(io::Error::other("it is longer than 1 MiB"));
    }
    Ok(text)
}

fn strings(fields: &mut Fields<'_>, name: &str) -> Result<Vec<String>, Wrong> {
    let strings: Vec<String> = fields.optional(name)?.unwrap_or_default();
    if strings.iter().any(|string| string.contains('\0')) {
        return Err(Wrong::new(name, "has a NUL in it, which no argument can have"));
    }
    Ok(strings)
}

/// A path that is the same wherever the shim is, and names something in a directory.
fn path(fields: &mut Fields<'_>, name: &str) -> Result<Option<PathBuf>, Wrong> {
    let Some(text) = fields.optional::<String>(name)? else { return Ok(None) };
    let path = PathBuf::from(&text);
    let goes_back = text.split('/').any(|component| component == "..");
    if path.is_absolute() && path.file_name().is_some() && !goes_back && !text.contains('\0') {
        // Without slashes at its end, and doubled ones.
        Ok(Some(path.components().collect()))
    } else {
        Err(Wrong::new(name, format!("is not an absolute path without \"..\": {text:?}")))
    }
}

fn required_path(fields: &mut Fields<'_>, name: &str) -> Result<PathBuf, Wrong> {
    path(fields, name)?.ok_or_else(|| Wrong::missing(name))
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use serde_json::{Value, json};

    use super::*;

    fn example() -> Value {
        serde_json::from_str(include_str!("../../docs/service.example.json")).unwrap()
    }

    fn schema() -> Value {
        serde_json::from_str(include_str!("../../docs/service.schema.json")).unwrap()
    }

    fn service(file: &Value) -> Result<Service, String> {
        let text = file.to_string();
        let mut fields = Fields::parse(text.as_bytes()).unwrap();
        let service = Service::of(&mut fields, "web".as_ref());
        service.and_then(|service| fields.end().map(|()| service)).map_err(|wrong| wrong.to_string())
    }

    fn with(key: &str, value: Value) -> Value {
        let mut file = example();
        file[key] = value;
        file
    }

    #[test]
    fn the_example_is_read_whole() {
        let service = service(&example()).unwrap();
        let Layout::Nested(places, runtime) = &service.layout else { panic!("{service:?}") };
        assert_eq!(places.run_dir, Path::new("/run/dunnage/web"));
        assert_eq!(places.canonical, Path::new("/run/web.sock"));
        assert_eq!(places.cgroup, Path::new("/sys/fs/cgroup/services/web"));
        assert_eq!(runtime.args, ["--root", "/run/runc-web"]);
        assert_eq!(service.tier.memory_max.to_string(), "536870912");
        assert_eq!(service.live_link.as_deref(), Some(Path::new("/srv/web/live")));
        assert_eq!(service.sidecar_args.unwrap(), ["--sidecar"]);
        let hook = service.switch_hook.unwrap();
        assert_eq!((hook.path.as_path(), hook.timeout), (Path::new("/usr/local/bin/purge"), Duration::from_secs(5)));
    }

    /// The keys that a schema has, `outer.inner` for nested ones.
    fn keys(schema: &Value, before: &str, found: &mut BTreeSet<String>) {
        for (key, described) in schema["properties"].as_object().into_iter().flatten() {
            found.insert(format!("{before}{key}"));
            keys(described, &format!("{before}{key}."), found);
        }
        if schema["type"] == "object" {
            assert_eq!(schema["additionalProperties"], false, "unknown keys are refused in {before}");
        }
    }

    #[test]
    fn the_schema_and_the_parser_know_the_same_keys() {
        let mut described = BTreeSet::new();
        keys(&schema(), "", &mut described);
        // Each key of the schema is one that the parser asks for: null is read as nothing.
        for key in &described {
            let (outer, inner) = key.split_once('.').unwrap_or((key, ""));
            let file = if inner.is_empty() { json!({ outer: null }) } else { json!({ outer: { inner: null } }) };
            let error = service(&file).unwrap_err();
            assert!(!error.contains("is not known"), "{error}");
        }
        // Each key that the parser asks for is one of the schema's.
        let source = include_str!("service.rs").split("\n#[cfg(test)]").next().unwrap();
        let calls = source.split("fields, \"").skip(1).chain(source.split("fields.").skip(1).filter_map(|call| {
            let (function, rest) = call.split_once("(\"")?;
            function.chars().all(|c| c.is_alphanumeric() || "_:<>".contains(c)).then_some(rest)
        }));
        let asked: BTreeSet<&str> = calls.map(|rest| rest.split('"').next().unwrap()).collect();
        let last = |key: &String| key.rsplit('.').next().unwrap().to_owned();
        let limits: BTreeSet<String> = tier::limits(&Tier::UNLIMITED).map(|(key, _)| key.to_owned()).into();
        let known: BTreeSet<String> = described.iter().map(last).filter(|key| !limits.contains(key)).collect();
        assert_eq!(asked, known.iter().map(String::as_str).collect());
        assert!(limits.iter().all(|limit| described.contains(&format!("tier.{limit}"))));
        // And the example shows them all, but for those that it cannot have.
        let mut shown = BTreeSet::new();
        for (key, value) in example().as_object().unwrap() {
            shown.insert(key.clone());
            shown.extend(value.as_object().into_iter().flatten().map(|(inner, _)| format!("{key}.{inner}")));
        }
        shown.insert("reason".to_owned());
        assert_eq!(shown, described);
    }

    #[test]
    fn the_schema_and_the_parser_know_the_same_layouts() {
        let layouts = schema()["properties"]["layout"]["enum"].clone();
        for layout in layouts.as_array().unwrap() {
            let mut file = with("layout", layout.clone());
            file["reason"] = json!("why");
            service(&file).unwrap_or_else(|error| panic!("{layout}: {error}"));
        }
        assert_eq!(layouts.as_array().unwrap().len(), 6);
        let error = service(&with("layout", json!("round"))).unwrap_err();
        assert_eq!(error, "\"layout\" is none of flat, nested, foreign, fenced, conflict and unit");
    }

    #[test]
    fn what_is_wrong_is_named() {
        let without = |key: &str| {
            let mut file = example();
            file.as_object_mut().unwrap().remove(key);
            file
        };
        let long = format!("/{}", "x".repeat(MAX_SOCKET_PATH));
        for (file, expected) in [
            (without("layout"), "\"layout\" is missing"),
            (without("run_dir"), "\"run_dir\" is missing"),
            (without("cgroup"), "\"cgroup\" is missing"),
            (without("canonical_socket"), "\"canonical_socket\" is missing"),
            (without("runtime"), "\"runtime\" is missing, which nested must have"),
            (with("layout", json!("fenced")), "\"reason\" is missing, which fenced must have"),
            (with("run_dir", json!("run")), "\"run_dir\" is not an absolute path without \"..\": \"run\""),
            (with("run_dir", json!("/run/../x")), "\"run_dir\" is not an absolute path without \"..\": \"/run/../x\""),
            (with("run_dir", json!("/")), "\"run_dir\" is not an absolute path without \"..\": \"/\""),
            (with("sidecar", json!({"args": ["a\0"]})), "\"sidecar.args\" has a NUL in it, which no argument can have"),
            (with("switch_hook", json!({"args": []})), "\"switch_hook.path\" is missing"),
            (with("switch_hook", json!({"path": "/x", "shell": 1})), "\"switch_hook.shell\" is not known"),
            (with("canary", json!(1)), "\"canary\" is not known"),
        ] {
            assert_eq!(service(&file).unwrap_err(), expected);
        }
        let error = service(&with("canonical_socket", json!(long))).unwrap_err();
        assert!(error.starts_with("\"canonical_socket\" is too long: a socket's address has 107 bytes"), "{error}");
    }

    #[test]
    fn what_is_no_file_of_json_is_refused_in_one_line() {
        let dir = std::env::temp_dir().join(format!("dunnage-service-file-{}", std::process::id()));
        std::fs::create_dir(&dir).unwrap();
        let path = dir.join("service.json");
        let error = |text: &str| {
            std::fs::write(&path, text).unwrap();
            Service::read(&path, "web".as_ref()).unwrap_err().to_string()
        };
        let (broken, long) = (error("{\n\"layout\": }"), error(&" ".repeat(2 << 20)));
        let wrong = error("{\"layout\": \"flat\"}");
        let missing = Service::read(&dir.join("none"), "web".as_ref()).unwrap_err().to_string();
        std::fs::remove_dir_all(&dir).unwrap();
        assert!(broken.contains("expected value at line 2 column 11"), "{broken}");
        assert!(long.ends_with("service.json: it is longer than 1 MiB"), "{long}");
        assert!(wrong.ends_with("service.json: \"run_dir\" is missing"), "{wrong}");
        assert!(missing.contains("none: No such file"), "{missing}");
    }

    #[test]
    fn g1_a_service_whose_sockets_have_no_address_is_foreign_and_says_why() {
        // RUN_DIR/web.gN.sock.control and RUN_DIR/gN/app.sock.control, N with 20 digits.
        for (layout, rest) in [("flat", "/web.g.sock.control".len() + 20), ("nested", "/g/app.sock.control".len() + 20)]
        {
            let run_dir = |length: usize| format!("/{}", "r".repeat(length - 1));
            let mut file = with("layout", json!(layout));
            file["run_dir"] = json!(run_dir(MAX_SOCKET_PATH - rest));
            let fits = service(&file).unwrap();
            assert!(matches!(fits.layout, Layout::Flat(_) | Layout::Nested(..)), "{fits:?}");
            assert_eq!(fits.layout.reason(), None);
            file["run_dir"] = json!(run_dir(MAX_SOCKET_PATH - rest + 1));
            let service = service(&file).unwrap();
            assert!(matches!(service.layout, Layout::Foreign(..)), "{service:?}");
            let reason = service.layout.reason().unwrap();
            assert!(reason.contains("would have 108 bytes") && reason.contains("18446744073709551615"), "{reason}");
        }
    }

    #[test]
    fn g1_a_foreign_service_has_a_control_socket_as_well() {
        let socket = |length: usize| json!(format!("/{}", "s".repeat(length - 1)));
        let room = MAX_SOCKET_PATH - ".control".len();
        for (layout, length, fits) in
            [("foreign", room, true), ("foreign", room + 1, false), ("flat", MAX_SOCKET_PATH, true)]
        {
            let mut file = with("layout", json!(layout));
            file["canonical_socket"] = socket(length);
            assert_eq!(service(&file).is_ok(), fits, "{layout} {length}");
        }
    }
}
