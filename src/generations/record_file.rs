//! The record of a service as text: what a shim that is started anew reads (G29). Read strictly: a record that is not
//! understood whole proves nothing.

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;

use dunnage_runtime::cgroup::{InvalidName, Name};
use dunnage_runtime::generation::{Number, Numbers, Process, Progress, Record, Role, Run, Sidecar};
use nix::unistd::{Gid, Uid};
use serde_json::{Value, json};

use super::sockets::Owner;
use super::tier;
use crate::json::{Fields, Wrong};

/// What the text must say that it is.
const VERSION: u32 = 1;

/// What is kept of a service.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Kept {
    pub(crate) record: Record,
    pub(crate) particulars: BTreeMap<Role, Particulars>,
}

/// What a run is known by beside what is decided about it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Particulars {
    /// What was executed.
    pub(crate) path: PathBuf,
    pub(crate) owner: Owner,
    /// When, as told in a status.
    pub(crate) started: Option<String>,
}

/// The text for these.
pub(crate) fn encode(service: &str, record: &Record, particulars: &BTreeMap<Role, Particulars>) -> Vec<u8> {
    let run = |role, run: &Run| encode_run(run, particulars.get(&role));
    let generations: Vec<Value> = record
        .generations
        .iter()
        .map(|(&number, its)| json!({"n": number.get(), "run": run(Role::Generation(number), its)}))
        .collect();
    let holds: Vec<Value> =
        record.holds.iter().map(|(build, reason)| json!({"build": build, "reason": reason})).collect();
    let sidecar = record.sidecar.as_ref().map(|sidecar| {
        let its = sidecar.run.as_ref().map(|its| run(Role::Sidecar, its));
        json!({"n": sidecar.of.get(), "wanted": sidecar.wanted, "run": its})
    });
    let text = json!({
        "version": VERSION,
        "service": service,
        "used": record.used.ranges().collect::<Vec<_>>(),
        "refused": record.refused.iter().map(|number| number.get()).collect::<Vec<_>>(),
        "holds": holds,
        "current": record.current.map(Number::get),
        "switching": record.switching.map(Number::get),
        "parent": record.parent.as_ref().map(tier::encode),
        "generations": generations,
        "worker": record.worker.as_ref().map(|its| run(Role::Worker, its)),
        "sidecar": sidecar,
    });
    let mut text = text.to_string().into_bytes();
    text.push(b'\n');
    text
}

fn encode_run(run: &Run, particulars: Option<&Particulars>) -> Value {
    let (state, process) = match run.progress {
        Progress::Pending => ("pending", None),
        Progress::Running(process) => ("running", Some(process)),
        Progress::Exited => ("exited", None),
    };
    let own = particulars.map(|its| {
        let (user, group) = (its.owner.user.as_raw(), its.owner.group.as_raw());
        json!({"path": its.path.to_string_lossy(), "user": user, "group": group, "started": its.started})
    });
    json!({
        "build": run.build,
        "staged_path": run.staged.as_ref().map(|path| path.to_string_lossy()),
        "digest": run.digest,
        "tier": tier::encode(&run.tier),
        "state": state,
        "pid": process.map(|process| process.pid),
        "start_time": process.map(|process| process.start_time),
        "cgroups": run.cgroups.iter().map(Name::as_str).collect::<Vec<_>>(),
        "unmarked": run.unmarked.iter().map(Name::as_str).collect::<Vec<_>>(),
        "executed": own,
    })
}

/// What a text says, if it is the record of that service.
pub(crate) fn decode(service: &str, text: &[u8]) -> Result<Kept, String> {
    let fields = Fields::parse(text).map_err(|error| error.to_string())?;
    fields.whole(|fields| read(fields, service)).map_err(|wrong| wrong.to_string())
}

fn read(fields: &mut Fields<'_>, service: &str) -> Result<Kept, Wrong> {
    let version: u32 = fields.required("version")?;
    if version != VERSION {
        return Err(Wrong::new("version", format!("is {version}, and this program reads {VERSION}")));
    }
    let whose: String = fields.required("service")?;
    if whose != service {
        return Err(Wrong::new("service", format!("is {whose:?}, another one than {service:?}")));
    }
    let mut kept = Kept::default();
    let ranges: Vec<(u64, u64)> = fields.required("used")?;
    if ranges.iter().any(|&(first, last)| first == 0 || first > last) {
        return Err(Wrong::new("used", "has a range that is none"));
    }
    kept.record.used = Numbers::from_ranges(ranges);
    for number in fields.required::<Vec<u64>>("refused")? {
        kept.record.refused.insert(to_number("refused", number)?);
    }
    for hold in fields.required::<Vec<Fields<'_>>>("holds")? {
        let (build, reason) = hold.whole(|hold| Ok((hold.required("build")?, hold.required("reason")?)))?;
        kept.record.holds.insert(build, reason);
    }
    kept.record.current = number(fields, "current")?;
    kept.record.switching = number(fields, "switching")?;
    kept.record.parent = tier::read(fields, "parent")?;
    for mut generation in fields.required::<Vec<Fields<'_>>>("generations")? {
        let number = number(&mut generation, "n")?.ok_or_else(|| Wrong::new("generations", "has one without n"))?;
        let run = read_run(&mut generation, "run", Role::Generation(number), &mut kept.particulars)?;
        let run = run.ok_or_else(|| Wrong::new("generations", "has one without run"))?;
        generation.end()?;
        if kept.record.generations.insert(number, run).is_some() {
            return Err(Wrong::new("generations", format!("has {number} twice")));
        }
    }
    kept.record.worker = read_run(fields, "worker", Role::Worker, &mut kept.particulars)?;
    let particulars = &mut kept.particulars;
    kept.record.sidecar = fields.nested("sidecar", |fields| {
        let of = number(fields, "n")?.ok_or_else(|| Wrong::missing("n"))?;
        let wanted = fields.required("wanted")?;
        Ok(Sidecar { of, wanted, run: read_run(fields, "run", Role::Sidecar, particulars)? })
    })?;
    Ok(kept)
}

fn read_run(
    fields: &mut Fields<'_>,
    name: &str,
    role: Role,
    particulars: &mut BTreeMap<Role, Particulars>,
) -> Result<Option<Run>, Wrong> {
    fields.nested(name, |fields| {
        let own = fields.nested("executed", |fields| {
            let path: String = fields.required("path")?;
            let (user, group) = (fields.required("user")?, fields.required("group")?);
            let owner = Owner { user: Uid::from_raw(user), group: Gid::from_raw(group) };
            Ok(Particulars { path: path.into(), owner, started: fields.optional("started")? })
        })?;
        if let Some(own) = own {
            particulars.insert(role, own);
        }
        let cgroups = cgroups(fields, "cgroups")?;
        if cgroups.is_empty() {
            return Err(Wrong::new("cgroups", "is empty: whether anything runs could not be proven"));
        }
        Ok(Run {
            build: fields.required("build")?,
            staged: fields.optional::<String>("staged_path")?.map(PathBuf::from),
            digest: fields.optional("digest")?,
            tier: tier::read(fields, "tier")?.ok_or_else(|| Wrong::missing("tier"))?,
            progress: progress(fields)?,
            cgroups,
            unmarked: BTreeSet::from_iter(self::cgroups(fields, "unmarked")?),
        })
    })
}

fn progress(fields: &mut Fields<'_>) -> Result<Progress, Wrong> {
    let state: String = fields.required("state")?;
    let (pid, start_time) = (fields.optional("pid")?, fields.optional("start_time")?);
    match (&*state, pid, start_time) {
        ("pending", None, None) => Ok(Progress::Pending),
        ("exited", None, None) => Ok(Progress::Exited),
        // Of 1 and below none is ever a process of a service's, and some mean many (kill(2)).
        ("running", Some(pid @ 2..), Some(start_time)) => Ok(Progress::Running(Process { pid, start_time })),
        _ => Err(Wrong::new("state", "does not go with pid and start_time, or is none")),
    }
}

fn cgroups(fields: &mut Fields<'_>, name: &str) -> Result<Vec<Name>, Wrong> {
    let names: Vec<String> = fields.required(name)?;
    let checked = |cgroup: String| {
        cgroup.parse().map_err(|error: InvalidName| Wrong::new(name, format!("has {cgroup:?}: {error}")))
    };
    names.into_iter().map(checked).collect()
}

fn number(fields: &mut Fields<'_>, name: &str) -> Result<Option<Number>, Wrong> {
    fields.optional(name)?.map(|number| to_number(name, number)).transpose()
}

fn to_number(name: &str, number: u64) -> Result<Number, Wrong> {
    Number::new(number).ok_or_else(|| Wrong::new(name, "is 0, which is no generation"))
}

#[cfg(test)]
pub(crate) mod tests {
    use dunnage_runtime::generation::Tier;

    use super::*;

    pub(crate) fn example() -> Kept {
        let number = |number| Number::new(number).unwrap();
        let draining: Name = "draining".parse().unwrap();
        let run = |role, progress| Run {
            build: "b \"7\"".into(),
            staged: Some("/srv/builds/b7".into()),
            digest: Some(format!("sha256:{}", "0".repeat(64))),
            tier: Tier { cpu_weight: 7, ..Tier::UNLIMITED },
            progress,
            cgroups: vec![Name::of(role), draining.clone()],
            unmarked: BTreeSet::from([draining.clone()]),
        };
        let seven = Role::Generation(number(7));
        let mut kept = Kept::default();
        let running = Progress::Running(Process { pid: 4711, start_time: u64::MAX });
        kept.record.generations.insert(number(7), run(seven, running));
        kept.record.generations.insert(number(9), run(Role::Generation(number(9)), Progress::Pending));
        kept.record.used = Numbers::from_ranges([(1, 6), (8, 8)]);
        kept.record.refused.insert(number(3));
        kept.record.holds.insert("b6".into(), "it leaks".into());
        kept.record.current = Some(number(7));
        kept.record.switching = Some(number(9));
        kept.record.parent = Some(Tier::UNLIMITED);
        kept.record.worker = Some(Run { staged: None, digest: None, ..run(Role::Worker, Progress::Exited) });
        kept.record.sidecar = Some(Sidecar { of: number(7), wanted: true, run: Some(run(Role::Sidecar, running)) });
        let owner = Owner { user: Uid::from_raw(1000), group: Gid::from_raw(100) };
        let started = Some("2026-01-01T00:00:00.000000000Z".to_owned());
        kept.particulars.insert(seven, Particulars { path: "/srv/builds/b7".into(), owner, started });
        kept
    }

    #[test]
    fn g29_what_is_written_is_read_back() {
        for kept in [Kept::default(), example()] {
            let text = encode("web", &kept.record, &kept.particulars);
            assert_eq!(decode("web", &text), Ok(kept));
        }
    }

    #[test]
    fn g29_a_record_that_is_not_understood_is_refused() {
        let whole = || -> Value {
            let kept = example();
            serde_json::from_slice(&encode("web", &kept.record, &kept.particulars)).unwrap()
        };
        let changed = |change: &dyn Fn(&mut Value)| {
            let mut value = whole();
            change(&mut value);
            decode("web", value.to_string().as_bytes()).unwrap_err()
        };
        let error = changed(&|value| value["version"] = json!(2));
        assert_eq!(error, "\"version\" is 2, and this program reads 1");
        let error = changed(&|value| value["service"] = json!("mail"));
        assert_eq!(error, "\"service\" is \"mail\", another one than \"web\"");
        let error = changed(&|value| value["more"] = json!(1));
        assert_eq!(error, "\"more\" is not known");
        let error = changed(&|value| value["used"] = json!([[0, 4]]));
        assert_eq!(error, "\"used\" has a range that is none");
        let error = changed(&|value| value["current"] = json!(0));
        assert_eq!(error, "\"current\" is 0, which is no generation");
        let error = changed(&|value| value["worker"]["cgroups"] = json!(["../x"]));
        assert!(error.starts_with("\"worker.cgroups\" has \"../x\""), "{error}");
        let error = changed(&|value| value["worker"]["cgroups"] = json!([]));
        assert!(error.starts_with("\"worker.cgroups\" is empty"), "{error}");
        for pid in [json!(1), json!(-5), json!(null)] {
            let error = changed(&|value| value["sidecar"]["run"]["pid"] = pid.clone());
            assert!(error.starts_with("\"sidecar.run.state\""), "{error}");
        }
        changed(&|value| value["generations"][0]["n"] = value["generations"][1]["n"].clone());
        let text = whole().to_string();
        assert!(decode("web", &text.as_bytes()[..text.len() / 2]).is_err(), "a torn one");
    }
}
