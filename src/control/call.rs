//! Reads calls: a message in, a request with checked parameters out.

mod generations;

use std::time::Duration;

use nix::sys::signal::Signal;
use serde_json::value::RawValue;

use super::refusal::Refusal;
use crate::json::Fields;
pub(crate) use generations::{GateAnswer, GenerationRequest, Launch};

/// The interface that is served, beside varlink's own.
pub(super) const INTERFACE: &str = "org.dunnage.shim";

/// Varlink's own.
pub(super) const SERVICE: &str = "org.varlink.service";

/// How much of an exec's output is kept of each stream, unless the caller says otherwise, and at most.
const USUAL_OUTPUT: usize = 1 << 20;
pub(super) const MAX_OUTPUT: usize = 8 << 20;

/// The largest number of rows or columns, as on the `ctl` fifo.
pub(super) const MAX_SIZE: u16 = 1000;

/// A message that is a call.
#[derive(Debug)]
pub(crate) struct Call<'a> {
    /// The caller wants no answer.
    pub(crate) oneway: bool,
    /// What it asks for, or why it cannot have it.
    pub(crate) request: Result<Request<'a>, Refusal>,
}

/// What can be asked for.
#[derive(Debug)]
pub(crate) enum Request<'a> {
    /// `org.varlink.service.GetInfo`.
    GetInfo,
    /// `org.varlink.service.GetInterfaceDescription`.
    GetInterfaceDescription(String),
    Status,
    ExecSync(ExecSync<'a>),
    Exec(Exec<'a>),
    Signal {
        target: String,
        signal: Signal,
        /// Not the process alone, but all.
        all: bool,
    },
    Resize {
        target: String,
        height: u16,
        width: u16,
    },
    CloseStdin {
        target: String,
    },
    ReopenLogs,
    Events,
    Shutdown {
        timeout: Duration,
    },
    /// What only a shim with a service has.
    Generations(GenerationRequest),
}

/// A process whose output is the answer.
#[derive(Debug)]
pub(crate) struct ExecSync<'a> {
    /// The OCI process, as JSON.
    pub(crate) process: &'a str,
    pub(crate) timeout: Option<Duration>,
    /// How much is kept of each stream.
    pub(crate) max_output: usize,
    pub(crate) cancel_on_disconnect: bool,
}

/// A process for attach clients.
#[derive(Debug)]
pub(crate) struct Exec<'a> {
    /// The OCI process, as JSON.
    pub(crate) process: &'a str,
    pub(crate) terminal: bool,
    pub(crate) stdin: bool,
    pub(crate) timeout: Option<Duration>,
}

/// How a method is called.
struct Method {
    name: &'static str,
    /// It answers more than once.
    streams: bool,
    read: for<'a> fn(&mut Fields<'a>) -> Result<Request<'a>, Refusal>,
}

const fn method(name: &'static str, read: for<'a> fn(&mut Fields<'a>) -> Result<Request<'a>, Refusal>) -> Method {
    Method { name, streams: false, read }
}

const fn stream(name: &'static str, read: for<'a> fn(&mut Fields<'a>) -> Result<Request<'a>, Refusal>) -> Method {
    Method { name, streams: true, read }
}

static SERVICE_METHODS: &[Method] = &[
    method("GetInfo", |_| Ok(Request::GetInfo)),
    method("GetInterfaceDescription", |fields| Ok(Request::GetInterfaceDescription(fields.required("interface")?))),
];

static METHODS: &[Method] = &[
    method("Status", |_| Ok(Request::Status)),
    method("ExecSync", |fields| {
        Ok(Request::ExecSync(ExecSync {
            process: fields.object("process")?,
            timeout: fields.duration("timeout_ms")?,
            max_output: match fields.optional("max_output")? {
                None => USUAL_OUTPUT,
                Some(max) if max <= MAX_OUTPUT => max,
                Some(_) => return Err(Refusal::invalid("max_output")),
            },
            cancel_on_disconnect: fields.optional("cancel_on_disconnect")?.unwrap_or(false),
        }))
    }),
    stream("Exec", |fields| {
        Ok(Request::Exec(Exec {
            process: fields.object("process")?,
            terminal: fields.required("terminal")?,
            stdin: fields.required("stdin")?,
            timeout: fields.duration("timeout_ms")?,
        }))
    }),
    method("Signal", |fields| {
        Ok(Request::Signal {
            target: fields.required("target")?,
            signal: signal(fields, "signal")?,
            all: fields.optional("all")?.unwrap_or(false),
        })
    }),
    method("Resize", |fields| {
        let target = fields.required("target")?;
        Ok(Request::Resize { target, height: size(fields, "height")?, width: size(fields, "width")? })
    }),
    method("CloseStdin", |fields| Ok(Request::CloseStdin { target: fields.required("target")? })),
    method("ReopenLogs", |_| Ok(Request::ReopenLogs)),
    stream("Events", |_| Ok(Request::Events)),
    method("Shutdown", |fields| {
        let timeout = fields.duration("timeout_ms")?.ok_or(Refusal::invalid("timeout_ms"))?;
        Ok(Request::Shutdown { timeout })
    }),
];

/// Reads a message. Nothing: it is no call, and there is no answering it.
pub(crate) fn parse(message: &[u8]) -> Option<Call<'_>> {
    let mut fields = Fields::parse(message).ok()?;
    let oneway = fields.optional("oneway").ok().flatten().unwrap_or(false);
    Some(Call { oneway, request: read(&mut fields) })
}

fn read<'a>(call: &mut Fields<'a>) -> Result<Request<'a>, Refusal> {
    let name: String = call.required("method")?;
    let more = call.optional("more")?.unwrap_or(false);
    if call.optional("upgrade")?.unwrap_or(false) {
        return Err(Refusal::invalid("upgrade"));
    }
    let method = find(&name)?;
    if method.streams && !more {
        return Err(Refusal::ExpectedMore);
    }
    let mut parameters = match call.optional::<&RawValue>("parameters")? {
        None => Fields::default(),
        Some(parameters) => Fields::parse(parameters.get().as_bytes()).map_err(|_| Refusal::invalid("parameters"))?,
    };
    let request = (method.read)(&mut parameters)?;
    parameters.end()?;
    Ok(request)
}

fn find(name: &str) -> Result<&'static Method, Refusal> {
    let (interface, method) = name.rsplit_once('.').ok_or_else(|| Refusal::invalid("method"))?;
    let methods = match interface {
        SERVICE => [SERVICE_METHODS, &[]],
        INTERFACE => [METHODS, generations::METHODS],
        _ => return Err(Refusal::InterfaceNotFound { interface: interface.to_owned() }),
    };
    let found = methods.into_iter().flatten().find(|known| known.name == method);
    found.ok_or_else(|| Refusal::MethodNotFound { method: name.to_owned() })
}

fn size(fields: &mut Fields<'_>, name: &str) -> Result<u16, Refusal> {
    Some(fields.required(name)?).filter(|&size| size <= MAX_SIZE).ok_or(Refusal::invalid(name))
}

fn signal(fields: &mut Fields<'_>, name: &str) -> Result<Signal, Refusal> {
    parse_signal(&fields.required::<String>(name)?).ok_or(Refusal::invalid(name))
}

fn parse_signal(text: &str) -> Option<Signal> {
    if let Ok(number) = text.parse::<i32>() {
        return Signal::try_from(number).ok();
    }
    let name = text.to_ascii_uppercase();
    if name.starts_with("SIG") { name.parse().ok() } else { format!("SIG{name}").parse().ok() }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;
    use crate::control::idl::{Interface, Type};
    use crate::json::MAX_FIELDS;

    /// The call that the message is, and its request's name.
    fn request(message: &Value) -> Result<String, Refusal> {
        let text = message.to_string();
        let call = parse(text.as_bytes()).expect("a call");
        call.request.map(|request| format!("{request:?}"))
    }

    fn call(method: &str, parameters: &Value) -> Result<String, Refusal> {
        request(&json!({"method": format!("{INTERFACE}.{method}"), "parameters": parameters, "more": true}))
    }

    fn invalid(parameter: &str) -> Result<String, Refusal> {
        Err(Refusal::InvalidParameter { parameter: parameter.to_owned() })
    }

    /// A value that a parameter of this name and type may have.
    fn sample(name: &str, kind: &Type) -> Value {
        match kind {
            Type::Bool => json!(true),
            Type::Int => json!(5),
            Type::String => json!(match name {
                "signal" => "SIGTERM",
                "staged_path" => "/srv/builds/7",
                "child" => "gen-7",
                "digest" => "sha256:e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855",
                _ => "container",
            }),
            Type::Named(tier) if tier == "Tier" => json!({"memory_max": "max"}),
            Type::Object => json!({"args": ["true"]}),
            Type::Optional(inner) => sample(name, inner),
            other => panic!("no parameter has the type {other:?}"),
        }
    }

    #[test]
    fn the_interface_file_has_the_methods_that_are_served_and_their_parameters() {
        let interface = Interface::ours();
        assert_eq!(interface.name, INTERFACE);
        let methods = [METHODS, generations::METHODS].into_iter().flatten();
        let mut served: Vec<&str> = methods.map(|method| method.name).collect();
        served.sort_unstable();
        assert_eq!(interface.methods.keys().collect::<Vec<_>>(), served);

        for (name, method) in &interface.methods {
            let whole: Value =
                method.input.iter().map(|(field, kind)| (field.to_owned(), sample(field, kind))).collect();
            call(name, &whole).unwrap_or_else(|error| panic!("{name} {whole}: {error:?}"));
            for (field, kind) in &method.input {
                let mut without = whole.clone();
                without.as_object_mut().unwrap().remove(field);
                let result = call(name, &without);
                if matches!(kind, Type::Optional(_)) {
                    assert!(result.is_ok(), "{name} without {field}: {result:?}");
                } else {
                    assert_eq!(result, invalid(field), "{name} without {field}");
                }
                // Of no parameter's type.
                for wrong in [json!([1]), json!(1.5)] {
                    let mut wrongly = whole.clone();
                    wrongly[field] = wrong;
                    assert_eq!(call(name, &wrongly), invalid(field), "{name} {wrongly}");
                }
            }
            let mut more = whole.clone();
            more["surprise"] = json!(1);
            assert_eq!(call(name, &more), invalid("surprise"), "{name}");
        }
    }

    #[test]
    fn k2_what_is_no_call_is_told_from_what_is_a_wrong_one() {
        for no_call in ["", "x", "[]", "1", "\"method\"", "{", "{}x", "{\"method\": }", "\u{feff}{}", "nul"] {
            assert!(parse(no_call.as_bytes()).is_none(), "{no_call:?}");
        }
        let method = "\"method\": \"org.dunnage.shim.Status\"";
        assert!(parse(format!("{{{method}, {method}}}").as_bytes()).is_none(), "a field twice");
        let many: Vec<String> = (0..MAX_FIELDS).map(|number| format!(", \"{number}\": 0")).collect();
        let many = many.concat();
        assert!(parse(format!("{{{method}{many}}}").as_bytes()).is_none(), "too many fields");
        let parameters = many.trim_start_matches(',');
        let message = format!("{{{method}, \"parameters\": {{{parameters}, \"more\": 0}}}}");
        assert_eq!(parse(message.as_bytes()).unwrap().request.err(), invalid("parameters").err());
        assert!(parse(b"{\"method\": \"\xff\"}").is_none_or(|call| call.request.is_err()));
        for (wrong, parameter) in [
            (json!({}), "method"),
            (json!({"method": 1}), "method"),
            (json!({"method": "Status"}), "method"),
            (json!({"method": "org.dunnage.shim.Status", "parameters": []}), "parameters"),
            (json!({"method": "org.dunnage.shim.Status", "more": "yes"}), "more"),
            (json!({"method": "org.dunnage.shim.Status", "upgrade": true}), "upgrade"),
        ] {
            assert_eq!(request(&wrong), invalid(parameter), "{wrong}");
        }
        let unknown = "org.dunnage.shim.Surprise";
        assert_eq!(request(&json!({"method": unknown})), Err(Refusal::MethodNotFound { method: unknown.to_owned() }));
        assert_eq!(
            request(&json!({"method": "org.dunnage.other.Status"})),
            Err(Refusal::InterfaceNotFound { interface: "org.dunnage.other".to_owned() })
        );
        assert_eq!(request(&json!({"method": "org.dunnage.shim.Events"})), Err(Refusal::ExpectedMore));
    }

    #[test]
    fn k2_deeply_nested_json_is_refused_or_passed_on_and_never_followed() {
        let deep = "[".repeat(100_000);
        assert!(parse(deep.as_bytes()).is_none());
        let text = format!("{{\"method\": \"org.dunnage.shim.ExecSync\", \"parameters\": {deep}");
        assert!(parse(text.as_bytes()).is_none());
    }

    #[test]
    fn numbers_have_their_bounds() {
        for (method, whole, name, good, bad) in [
            ("ExecSync", json!({"process": {}}), "timeout_ms", [1, 4_294_967_295], [0, 4_294_967_296_i64]),
            ("ExecSync", json!({"process": {}}), "max_output", [0, 8 << 20], [-1, (8 << 20) + 1]),
            ("Resize", json!({"target": "container", "width": 1}), "height", [0, 1000], [-1, 1001]),
            ("Shutdown", json!({}), "timeout_ms", [1, 60_000], [0, -1]),
        ] {
            let with = |value: i64| {
                let mut parameters = whole.clone();
                parameters[name] = json!(value);
                call(method, &parameters)
            };
            for value in good {
                assert!(with(value).is_ok(), "{method} {name} {value}");
            }
            for value in bad {
                assert_eq!(with(value), invalid(name), "{method} {name} {value}");
            }
        }
    }

    #[test]
    fn signals_have_names_and_numbers() {
        for (text, signal) in [
            ("SIGTERM", Some(Signal::SIGTERM)),
            ("term", Some(Signal::SIGTERM)),
            ("USR1", Some(Signal::SIGUSR1)),
            ("9", Some(Signal::SIGKILL)),
            ("0", None),
            ("65", None),
            ("", None),
            ("SIG", None),
            ("SIGSIGTERM", None),
        ] {
            assert_eq!(parse_signal(text), signal, "{text:?}");
        }
    }
}
