//! Calls about staged generations.

use std::path::{Component, PathBuf};
use std::time::Duration;

use dunnage_runtime::generation::{Number, Tier};

use super::{Method, Refusal, Request, method, stream};
use crate::generations::{Digest, tier};
use crate::json::{Fields, Wrong};
use crate::whole_file::NAME_MAX;

/// How long a gate waits for its answer, and a move may take, unless the caller says otherwise.
const USUAL_TIME: Duration = Duration::from_secs(10);

/// The longest text that is kept of a caller: a build's name, why it is held, why a gate stays shut.
const MAX_TEXT: usize = 4096;

/// The longest name of a build, which becomes an environment variable and a field of many messages.
const MAX_BUILD: usize = 255;

/// What can be asked of a shim with a service.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum GenerationRequest {
    Layout,
    Paths(Number),
    Stage {
        number: Number,
        build: String,
        /// Absolute.
        path: PathBuf,
        launch: Launch,
    },
    /// A cold start, through the live link.
    Start {
        number: Number,
        /// What the link is expected to lead to.
        build: Option<String>,
        launch: Launch,
    },
    StartWorker {
        /// Otherwise it is named by what is started.
        build: Option<String>,
        /// Absolute; otherwise it is started through the live link.
        path: Option<PathBuf>,
        /// One that runs already is stopped first.
        replace: bool,
        launch: Launch,
    },
    Hold {
        build: String,
        reason: String,
    },
    Release {
        build: String,
    },
    AnswerGate {
        token: String,
        answer: GateAnswer,
    },
    Ready(Number),
    RaiseParent {
        incumbent: Tier,
        successor: Tier,
    },
    RestoreParent(Number),
    Switch(Number),
    KillGeneration {
        number: Number,
        timeout: Duration,
    },
    Empty {
        number: Number,
        timeout: Duration,
    },
    KillHost {
        timeout: Duration,
    },
    EmptyHost {
        timeout: Duration,
    },
    StartSidecar(Number),
    KillSidecar {
        timeout: Duration,
    },
    Move {
        number: Number,
        /// The name of the child that is made for it.
        cgroup: String,
        timeout: Duration,
    },
}

/// What all starts have in common.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Launch {
    /// What the bytes that are executed must have.
    pub(crate) digest: Option<Digest>,
    /// Otherwise the build's own, or the service's.
    pub(crate) tier: Option<Tier>,
    /// How long the caller may take to say whether to go on, if it wants to be asked.
    pub(crate) gate: Option<Duration>,
}

/// The caller's last word.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum GateAnswer {
    Proceed,
    Refuse {
        /// Given back with the refusal as it is.
        reason: String,
    },
}

pub(super) static METHODS: &[Method] = &[
    method("Layout", |_| asked(GenerationRequest::Layout)),
    method("Paths", |fields| asked(GenerationRequest::Paths(number(fields, "n")?))),
    stream("Stage", |fields| {
        let (number, build) = (number(fields, "n")?, build(fields)?.ok_or_else(|| Wrong::missing("build"))?);
        let path = path(fields, "staged_path")?.ok_or_else(|| Wrong::missing("staged_path"))?;
        asked(GenerationRequest::Stage { number, build, path, launch: launch(fields)? })
    }),
    stream("Start", |fields| {
        let (number, build) = (number(fields, "n")?, build(fields)?);
        asked(GenerationRequest::Start { number, build, launch: launch(fields)? })
    }),
    stream("StartWorker", |fields| {
        let (build, path) = (build(fields)?, path(fields, "staged_path")?);
        let replace = fields.optional("replace")?.unwrap_or(false);
        asked(GenerationRequest::StartWorker { build, path, replace, launch: launch(fields)? })
    }),
    method("Hold", |fields| {
        let build = build(fields)?.ok_or_else(|| Wrong::missing("build"))?;
        asked(GenerationRequest::Hold {
            build,
            reason: text(fields, "reason")?.ok_or_else(|| Wrong::missing("reason"))?,
        })
    }),
    method("Release", |fields| {
        asked(GenerationRequest::Release { build: build(fields)?.ok_or_else(|| Wrong::missing("build"))? })
    }),
    method("AnswerGate", |fields| {
        let (token, proceed) = (fields.required("token")?, fields.required("proceed")?);
        let reason = text(fields, "reason")?;
        let answer = if proceed {
            GateAnswer::Proceed
        } else {
            GateAnswer::Refuse { reason: reason.unwrap_or_else(|| "the caller's gate refused it".to_owned()) }
        };
        asked(GenerationRequest::AnswerGate { token, answer })
    }),
    method("Ready", |fields| asked(GenerationRequest::Ready(number(fields, "n")?))),
    method("RaiseParent", |fields| {
        let incumbent = tier::read(fields, "incumbent")?.ok_or_else(|| Wrong::missing("incumbent"))?;
        let successor = tier::read(fields, "successor")?.ok_or_else(|| Wrong::missing("successor"))?;
        asked(GenerationRequest::RaiseParent { incumbent, successor })
    }),
    method("RestoreParent", |fields| asked(GenerationRequest::RestoreParent(number(fields, "n")?))),
    method("Switch", |fields| asked(GenerationRequest::Switch(number(fields, "n")?))),
    method("KillGeneration", |fields| {
        asked(GenerationRequest::KillGeneration { number: number(fields, "n")?, timeout: timeout(fields)? })
    }),
    method("Empty", |fields| {
        asked(GenerationRequest::Empty { number: number(fields, "n")?, timeout: timeout(fields)? })
    }),
    method("KillHost", |fields| asked(GenerationRequest::KillHost { timeout: timeout(fields)? })),
    method("EmptyHost", |fields| asked(GenerationRequest::EmptyHost { timeout: timeout(fields)? })),
    method("StartSidecar", |fields| asked(GenerationRequest::StartSidecar(number(fields, "n")?))),
    method("KillSidecar", |fields| asked(GenerationRequest::KillSidecar { timeout: timeout(fields)? })),
    method("Move", |fields| {
        let (number, cgroup) = (child(fields, "child")?, cgroup(fields, "cgroup")?);
        let timeout = fields.duration("timeout_ms")?.unwrap_or(USUAL_TIME);
        asked(GenerationRequest::Move { number, cgroup, timeout })
    }),
];

#[expect(clippy::unnecessary_wraps, reason = "the table's functions may fail")]
fn asked<'a>(request: GenerationRequest) -> Result<Request<'a>, Refusal> {
    Ok(Request::Generations(request))
}

/// A generation's number, which varlink counts with a sign.
fn number(fields: &mut Fields<'_>, name: &str) -> Result<Number, Wrong> {
    let number: i64 = fields.required(name)?;
    u64::try_from(number).ok().and_then(Number::new).ok_or_else(|| Wrong::new(name, "is not 1 or above"))
}

/// A generation by its target: `gen-N`.
fn child(fields: &mut Fields<'_>, name: &str) -> Result<Number, Wrong> {
    let target: String = fields.required(name)?;
    let digits = target.strip_prefix("gen-").filter(|digits| !digits.starts_with(['0', '+']));
    let number = digits.and_then(|digits| digits.parse().ok()).and_then(Number::new);
    number.ok_or_else(|| Wrong::new(name, "is not the target of a generation, such as gen-3"))
}

/// A name for a cgroup beside the others.
fn cgroup(fields: &mut Fields<'_>, name: &str) -> Result<String, Wrong> {
    let cgroup: String = fields.required(name)?;
    let is_name = !matches!(&*cgroup, "" | "." | "..") && !cgroup.contains(['/', '\0', '\n']);
    if is_name && cgroup.len() <= NAME_MAX {
        Ok(cgroup)
    } else {
        Err(Wrong::new(name, "cannot be the name of a directory"))
    }
}

/// A text that people and messages get to see: a line, not too long.
fn text(fields: &mut Fields<'_>, name: &str) -> Result<Option<String>, Wrong> {
    let text: Option<String> = fields.optional(name)?;
    match &text {
        Some(text) if text.is_empty() || text.len() > MAX_TEXT || text.contains('\0') => {
            Err(Wrong::new(name, "is empty, too long, or has a NUL in it"))
        }
        _ => Ok(text),
    }
}

fn build(fields: &mut Fields<'_>) -> Result<Option<String>, Wrong> {
    let build = text(fields, "build")?;
    match &build {
        Some(build) if build.len() > MAX_BUILD || build.contains(char::is_control) => {
            Err(Wrong::new("build", "is too long, or has control characters in it"))
        }
        _ => Ok(build),
    }
}

fn path(fields: &mut Fields<'_>, name: &str) -> Result<Option<PathBuf>, Wrong> {
    let Some(path) = text(fields, name)?.map(PathBuf::from) else { return Ok(None) };
    let names_a_file = matches!(path.components().next_back(), Some(Component::Normal(_)));
    if path.is_absolute() && names_a_file {
        Ok(Some(path))
    } else {
        Err(Wrong::new(name, "is not the absolute path of a file"))
    }
}

fn launch(fields: &mut Fields<'_>) -> Result<Launch, Wrong> {
    let digest = fields.optional::<String>("digest")?.map(|digest| digest.parse());
    let digest = digest.transpose().map_err(|error| Wrong::new("digest", format!("is wrong: {error}")))?;
    let tier = tier::read(fields, "tier")?;
    let gate = fields.optional("gate")?.unwrap_or(false);
    let time = fields.duration("gate_timeout_ms")?.unwrap_or(USUAL_TIME);
    Ok(Launch { digest, tier, gate: gate.then_some(time) })
}

fn timeout(fields: &mut Fields<'_>) -> Result<Duration, Wrong> {
    fields.duration("timeout_ms")?.ok_or_else(|| Wrong::missing("timeout_ms"))
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::super::{INTERFACE, parse};
    use super::*;

    fn request(method: &str, parameters: &Value) -> Result<GenerationRequest, Refusal> {
        let message = json!({"method": format!("{INTERFACE}.{method}"), "parameters": parameters, "more": true});
        match parse(message.to_string().as_bytes()).unwrap().request {
            Ok(Request::Generations(request)) => Ok(request),
            Ok(other) => panic!("{other:?}"),
            Err(refusal) => Err(refusal),
        }
    }

    fn generation(number: u64) -> Number {
        Number::new(number).unwrap()
    }

    #[test]
    fn g3_a_start_is_read_with_all_that_it_may_say() {
        let asked = request(
            "Stage",
            &json!({
                "n": 3, "build": "v42", "staged_path": "/srv/builds/v42",
                "digest": format!("sha256:{}", "0f".repeat(32)),
                "tier": {"memory_max": "1048576", "cpu_max": "50000 100000"}, "gate": true, "gate_timeout_ms": 5,
            }),
        );
        let tier =
            Tier { memory_max: "1048576".parse().unwrap(), cpu_max: "50000".parse().unwrap(), ..Tier::UNLIMITED };
        let digest = Some(format!("sha256:{}", "0f".repeat(32)).parse().unwrap());
        let launch = Launch { digest, tier: Some(tier), gate: Some(Duration::from_millis(5)) };
        let (build, path) = ("v42".to_owned(), "/srv/builds/v42".into());
        assert_eq!(asked, Ok(GenerationRequest::Stage { number: generation(3), build, path, launch }));

        let asked = request("Start", &json!({"n": i64::MAX, "gate": false, "gate_timeout_ms": 5}));
        let launch = Launch { digest: None, tier: None, gate: None };
        let number = generation(i64::MAX.unsigned_abs());
        assert_eq!(asked, Ok(GenerationRequest::Start { number, build: None, launch }));
    }

    #[test]
    fn g6_a_gate_has_ten_seconds_unless_said_otherwise() {
        let asked = request("StartWorker", &json!({"staged_path": "/srv/worker", "gate": true}));
        let launch = Launch { digest: None, tier: None, gate: Some(Duration::from_secs(10)) };
        let path = Some("/srv/worker".into());
        assert_eq!(asked, Ok(GenerationRequest::StartWorker { build: None, path, replace: false, launch }));
    }

    #[test]
    fn g6_a_gates_answer_keeps_its_reason_as_it_is() {
        let answer = |parameters: Value| match request("AnswerGate", &parameters) {
            Ok(GenerationRequest::AnswerGate { token, answer }) if token == "t" => answer,
            other => panic!("{other:?}"),
        };
        assert_eq!(answer(json!({"token": "t", "proceed": true})), GateAnswer::Proceed);
        let reason = " lost the\tlease \u{1f512}\n";
        let refused = answer(json!({"token": "t", "proceed": false, "reason": reason}));
        assert_eq!(refused, GateAnswer::Refuse { reason: reason.to_owned() });
        assert!(matches!(answer(json!({"token": "t", "proceed": false})), GateAnswer::Refuse { .. }));
    }

    #[test]
    fn k4_a_wrong_parameter_is_named() {
        let start = |key: &str, value: Value| {
            let mut parameters = json!({"n": 1, "build": "b", "staged_path": "/b"});
            parameters[key] = value;
            ("Stage", parameters)
        };
        for ((method, parameters), wrong) in [
            (start("n", json!(0)), "n"),
            (start("n", json!(-1)), "n"),
            (start("n", json!(i64::MAX.unsigned_abs() + 1)), "n"),
            (start("n", json!("1")), "n"),
            (start("build", json!("")), "build"),
            (start("build", json!("a\nb")), "build"),
            (start("build", json!("b".repeat(256))), "build"),
            (start("staged_path", json!("b")), "staged_path"),
            (start("staged_path", json!("/")), "staged_path"),
            (start("staged_path", json!("/b/..")), "staged_path"),
            (start("staged_path", json!("/b\0")), "staged_path"),
            (start("digest", json!("sha256:00")), "digest"),
            (start("tier", json!({"memory_max": "1M"})), "tier.memory_max"),
            (start("tier", json!({"io_max": "1"})), "tier.io_max"),
            (start("tier", json!({"cpu_weight": "0"})), "tier.cpu_weight"),
            (start("gate_timeout_ms", json!(0)), "gate_timeout_ms"),
            (("KillGeneration", json!({"n": 1, "timeout_ms": 0})), "timeout_ms"),
            (("Move", json!({"child": "host", "cgroup": "x"})), "child"),
            (("Move", json!({"child": "gen-0", "cgroup": "x"})), "child"),
            (("Move", json!({"child": "gen-03", "cgroup": "x"})), "child"),
            (("Move", json!({"child": "gen-3", "cgroup": "../x"})), "cgroup"),
            (("Move", json!({"child": "gen-3", "cgroup": ".."})), "cgroup"),
            (("Hold", json!({"build": "b", "reason": ""})), "reason"),
        ] {
            let refusal = request(method, &parameters).unwrap_err();
            assert_eq!(refusal, Refusal::invalid(wrong), "{method} {parameters}");
        }
    }

    #[test]
    fn g28_a_move_has_ten_seconds_unless_said_otherwise() {
        let moved = |timeout| {
            let (number, cgroup) = (generation(3), "drained".to_owned());
            Ok(GenerationRequest::Move { number, cgroup, timeout })
        };
        let asked =
            |timeout: Value| request("Move", &json!({"child": "gen-3", "cgroup": "drained", "timeout_ms": timeout}));
        assert_eq!(asked(json!(null)), moved(Duration::from_secs(10)));
        assert_eq!(asked(json!(7)), moved(Duration::from_millis(7)));
    }
}
