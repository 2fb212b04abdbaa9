//! A bundle's config.json: what the shim needs to know of it, and the one that the runtime gets instead.

use std::borrow::Cow;
use std::path::{Path, PathBuf};

use dunnage_runtime::generation::{Limit, Tier};
use nix::unistd::{Gid, Uid};
use serde_json::value::{RawValue, to_raw_value};

use super::object::Object;
use crate::generations::{Owner, tier};
use crate::json::{Fields, Wrong};
use crate::staged::manifest::is_reserved;

/// Where the container sees the directory of its generation's sockets.
pub(crate) const HOME: &str = "/run/dunnage";

/// The annotations that are limits begin with it.
const TIER: &str = "org.dunnage.tier.";

/// What the shim needs to know.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Facts {
    /// The root file system, absolute or in the bundle.
    pub(super) root: PathBuf,
    /// Who the process is outside of the container.
    pub(super) owner: Owner,
    /// The build's own limits (G9).
    pub(super) tier: Option<Tier>,
    /// What the runtime executes itself, outside of the container.
    pub(super) hooks: Vec<PathBuf>,
}

/// What the runtime's own differs in.
#[derive(Clone, Copy, Debug)]
pub(super) struct Changes<'a> {
    /// The staged bundle, which relative paths begin at.
    pub(super) directory: &'a Path,
    pub(super) root: &'a Path,
    /// The cgroup, as runtimes name it.
    pub(super) cgroup: &'a str,
    pub(super) tier: &'a Tier,
    /// What the container sees at [`HOME`].
    pub(super) home: &'a Path,
    /// `NAME=VALUE` each.
    pub(super) variables: &'a [String],
    /// Arguments after the program's own name, if they are not the build's.
    pub(super) args: Option<&'a [String]>,
}

/// Reads what the shim needs to know, and sees that the text can be rewritten. The error is one line.
pub(super) fn read(text: &[u8]) -> Result<Facts, String> {
    let mut config = parse(text)?;
    let nowhere = Path::new("/");
    let changes = Changes {
        directory: nowhere,
        root: nowhere,
        cgroup: "/",
        tier: &Tier::UNLIMITED,
        home: nowhere,
        variables: &[],
        args: Some(&[]),
    };
    let read = facts(&config).and_then(|facts| apply(&mut config, &changes).map(|()| facts));
    read.map_err(|wrong| wrong.to_string())
}

/// The text for the runtime.
pub(super) fn rewrite(text: &[u8], changes: &Changes<'_>) -> Result<Vec<u8>, String> {
    let mut config = parse(text)?;
    apply(&mut config, changes).map_err(|wrong| wrong.to_string())?;
    serde_json::to_vec(&config).map_err(|error| error.to_string())
}

fn parse(text: &[u8]) -> Result<Object<'_>, String> {
    serde_json::from_slice(text).map_err(|error| format!("it is no JSON object: {error}"))
}

fn facts(config: &Object<'_>) -> Result<Facts, Wrong> {
    let root = config.inside("root", |root| path(root, "path"))?;
    let (uid, gid) = config.inside("process", |process| {
        // There is nobody to give it to.
        if process.get("terminal")? == Some(true) {
            return Err(Wrong::new("terminal", "is true, and a generation has no terminal"));
        }
        process.inside("user", |user| Ok((user.get("uid")?.unwrap_or(0), user.get("gid")?.unwrap_or(0))))
    })?;
    let owner = config.inside("linux", |linux| {
        Ok(Owner {
            user: Uid::from_raw(outside(linux, "uidMappings", uid)?),
            group: Gid::from_raw(outside(linux, "gidMappings", gid)?),
        })
    })?;
    Ok(Facts { root, owner, tier: tier_of(config)?, hooks: hooks(config)? })
}

fn path(object: &Object<'_>, name: &str) -> Result<PathBuf, Wrong> {
    let path: String = object.required(name)?;
    if path.is_empty() || path.contains('\0') {
        return Err(Wrong::new(name, format!("is no path: {path:?}")));
    }
    Ok(path.into())
}

/// Which id outside of the container's user namespace, if it has one, `id` is.
fn outside(linux: &Object<'_>, mappings: &str, id: u32) -> Result<u32, Wrong> {
    let namespaces: Vec<Object<'_>> = linux.get("namespaces")?.unwrap_or_default();
    let mut has_own_users = false;
    for namespace in &namespaces {
        has_own_users |= namespace.get::<Cow<'_, str>>("type")?.as_deref() == Some("user");
    }
    if !has_own_users {
        return Ok(id);
    }
    for mapping in linux.required::<Vec<Object<'_>>>(mappings)? {
        let (inside, outside): (u32, u32) = (mapping.required("containerID")?, mapping.required("hostID")?);
        let size: u32 = mapping.required("size")?;
        match id.checked_sub(inside).filter(|&offset| offset < size) {
            None => {}
            Some(offset) => {
                let id = outside.checked_add(offset).filter(|&id| id != u32::MAX);
                return id.ok_or_else(|| Wrong::new(mappings, "leads to ids that there are not"));
            }
        }
    }
    Err(Wrong::new(mappings, format!("has no id for {id}, who the process is to run as")))
}

fn tier_of(config: &Object<'_>) -> Result<Option<Tier>, Wrong> {
    let annotations: Object<'_> = config.get("annotations")?.unwrap_or_default();
    let mut limits = annotations.beginning_with(TIER).peekable();
    if limits.peek().is_none() {
        return Ok(None);
    }
    let read = limits.collect::<Fields<'_>>().whole(tier::of);
    read.map(Some).map_err(|wrong| wrong.within(TIER.trim_end_matches('.')).within("annotations"))
}

/// Those that the runtime executes outside of the container: all but `startContainer`.
fn hooks(config: &Object<'_>) -> Result<Vec<PathBuf>, Wrong> {
    config.inside("hooks", |hooks| {
        let mut paths = Vec::new();
        for kind in ["prestart", "createRuntime", "createContainer", "poststart", "poststop"] {
            for hook in hooks.get::<Vec<Object<'_>>>(kind)?.unwrap_or_default() {
                paths.push(path(&hook, "path").map_err(|wrong| wrong.within(kind))?);
            }
        }
        Ok(paths)
    })
}

fn apply(config: &mut Object<'_>, changes: &Changes<'_>) -> Result<(), Wrong> {
    config.change("root", |root| root.set("path", changes.root))?;
    config.change("process", |process| {
        set_args(process, changes.args)?;
        set_variables(process, changes.variables)
    })?;
    mount(config, changes)?;
    config.change("linux", |linux| {
        linux.set("cgroupsPath", changes.cgroup)?;
        linux.change("resources", |resources| set_limits(resources, changes.tier))
    })
}

fn set_args(process: &mut Object<'_>, args: Option<&[String]>) -> Result<(), Wrong> {
    let Some(args) = args else { return Ok(()) };
    let own: Vec<String> = process.required("args")?;
    let all: Vec<&String> = own.first().into_iter().chain(args).collect();
    process.set("args", &all)
}

/// In place of any that a build has by these names.
fn set_variables(process: &mut Object<'_>, variables: &[String]) -> Result<(), Wrong> {
    let own: Vec<String> = process.get("env")?.unwrap_or_default();
    let is_kept = |variable: &&String| {
        let name = variable.split_once('=').map_or(variable.as_str(), |(name, _)| name);
        !is_reserved(name)
    };
    let all: Vec<&String> = own.iter().filter(is_kept).chain(variables).collect();
    process.set("env", &all)
}

/// Adds the generation's directory as the last mount, so that none covers it.
fn mount(config: &mut Object<'_>, changes: &Changes<'_>) -> Result<(), Wrong> {
    let mut mounts: Vec<Object<'_>> = config.get("mounts")?.unwrap_or_default();
    for mount in &mut mounts {
        make_absolute(mount, changes.directory).map_err(|wrong| wrong.within("mounts"))?;
    }
    let mut home = Object::default();
    home.set("destination", HOME)?;
    home.set("type", "bind")?;
    home.set("source", changes.home)?;
    home.set("options", &["bind", "rw", "nosuid", "nodev", "noexec"])?;
    mounts.push(home);
    let mounts = to_raw_value(&mounts).map_err(|error| Wrong::new("mounts", error.to_string()))?;
    config.set("mounts", &mounts)
}

/// What is mounted from the bundle is still the staged one's.
fn make_absolute(mount: &mut Object<'_>, directory: &Path) -> Result<(), Wrong> {
    let kind: Option<Cow<'_, str>> = mount.get("type")?;
    let options: Vec<Cow<'_, str>> = mount.get("options")?.unwrap_or_default();
    let is_bind = kind.as_deref() == Some("bind") || options.iter().any(|option| option == "bind" || option == "rbind");
    let source: Option<PathBuf> = mount.get("source")?;
    match source.filter(|source| is_bind && source.is_relative()) {
        None => Ok(()),
        Some(source) => mount.set("source", &directory.join(source)),
    }
}

/// The tier's own limits take the place of the bundle's, in the kernel's words: others are converted by the runtimes, each
/// in its way. Those of what no tier speaks of stay.
fn set_limits(resources: &mut Object<'_>, tier: &Tier) -> Result<(), Wrong> {
    let mut swap = None;
    resources.change("memory", |memory| {
        swap = swap_of(memory)?;
        memory.remove("limit")
    })?;
    resources.change("cpu", |cpu| ["quota", "period", "shares"].iter().try_for_each(|name| cpu.remove(name)))?;
    resources.remove("pids")?;
    resources.change("unified", |unified| {
        if let Some(swap) = swap
            && unified.get::<&RawValue>("memory.swap.max")?.is_none()
        {
            unified.set("memory.swap.max", &swap)?;
        }
        for ((key, limit), (_, usual)) in tier::limits(tier).into_iter().zip(tier::limits(&Tier::UNLIMITED)) {
            let file = key.replacen('_', ".", 1);
            // What the cgroup has anyway may be of a controller that it has not.
            if limit == usual { unified.remove(&file) } else { unified.set(&file, &limit) }?;
        }
        Ok(())
    })
}

/// Takes the limit for swap away, which is one for memory and swap together in the bundle, and tells it alone.
fn swap_of(memory: &mut Object<'_>) -> Result<Option<String>, Wrong> {
    let swap = match (memory.get::<i64>("limit")?, memory.get::<i64>("swap")?) {
        (_, Some(-1)) => Limit::Max,
        (Some(limit @ 1..), Some(both)) if both >= limit => Limit::Value((both - limit).unsigned_abs()),
        _ => return Ok(None),
    };
    memory.remove("swap")?;
    Ok(Some(swap.to_string()))
}
