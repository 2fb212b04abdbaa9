//! The process of an exec: as the container's own, in what is not said otherwise.

use std::fs;
use std::path::{Path, PathBuf};

use serde_json::{Value, json};

use crate::error::{Context, Result, failure};

/// What the command line says of it.
#[derive(Debug, Default)]
pub(crate) struct Wanted {
    pub(crate) args: Vec<String>,
    pub(crate) terminal: bool,
    /// `NAME=VALUE`.
    pub(crate) env: Vec<String>,
    pub(crate) cwd: Option<PathBuf>,
    /// `UID`, or `UID:GID`.
    pub(crate) user: Option<(u32, u32)>,
}

/// The process object, after the one in the bundle's `config.json`: environment, directory, user, capabilities, limits
/// and labels are the container's.
pub(crate) fn describe(bundle: &Path, wanted: Wanted) -> Result<Value> {
    let path = bundle.join("config.json");
    let what = || format!("cannot read {}, after which processes are executed", path.display());
    let text = fs::read(&path).context(what)?;
    let mut config: Value = serde_json::from_slice(&text).context(what)?;
    let process = config["process"].take();
    if !process.is_object() {
        return failure(format_args!("{} describes no process, after which others are executed", path.display()));
    }
    Ok(adapt(process, wanted))
}

fn adapt(mut process: Value, wanted: Wanted) -> Value {
    if let Some(fields) = process.as_object_mut() {
        // The terminal's size is told once it is there.
        fields.remove("consoleSize");
    }
    process["args"] = json!(wanted.args);
    process["terminal"] = json!(wanted.terminal);
    let base = process["env"].as_array().into_iter().flatten().filter_map(Value::as_str);
    process["env"] = json!(environment(base, &wanted.env));
    if let Some(cwd) = wanted.cwd {
        process["cwd"] = json!(cwd.to_string_lossy());
    }
    if let Some((uid, gid)) = wanted.user {
        process["user"] = json!({"uid": uid, "gid": gid});
        if uid != 0 {
            // What the container's root may do, another user may not. Left out, runtimes would give all of it.
            let bounding = process["capabilities"]["bounding"].take();
            let none = json!([]);
            process["capabilities"] = json!({
                "bounding": if bounding.is_array() { bounding } else { none.clone() },
                "effective": none, "permitted": none, "inheritable": none, "ambient": none,
            });
        }
    }
    process
}

/// Variables, the later ones of a name in place of the earlier.
fn environment<'a>(base: impl Iterator<Item = &'a str>, more: &'a [String]) -> Vec<String> {
    let mut variables: Vec<String> = Vec::new();
    for variable in base.chain(more.iter().map(String::as_str)) {
        let (name, _) = variable.split_once('=').unwrap_or((variable, ""));
        let is_same = |known: &String| known.split_once('=').map_or(known.as_str(), |(name, _)| name) == name;
        variables.retain(|known| !is_same(known));
        variables.push(variable.to_owned());
    }
    variables
}

/// Reads `UID` or `UID:GID`.
pub(crate) fn user(text: &str) -> Result<(u32, u32), String> {
    let (uid, gid) = text.split_once(':').unwrap_or((text, "0"));
    match (uid.parse(), gid.parse()) {
        (Ok(uid), Ok(gid)) => Ok((uid, gid)),
        _ => Err(format!("{text} is not UID or UID:GID: names are known only in the container, give numbers")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn container() -> Value {
        json!({
            "terminal": true, "consoleSize": {"height": 1, "width": 1}, "args": ["init"], "cwd": "/srv",
            "env": ["PATH=/bin", "TERM=xterm"], "user": {"uid": 0, "gid": 0, "additionalGids": [7]},
            "capabilities": {"bounding": ["CAP_KILL"], "effective": ["CAP_KILL"], "permitted": ["CAP_KILL"]},
            "noNewPrivileges": true
        })
    }

    #[test]
    fn it_is_as_the_containers_own_but_for_what_is_said() {
        let process = adapt(container(), Wanted { args: vec!["ls".to_owned()], ..Wanted::default() });
        assert_eq!(process["args"], json!(["ls"]));
        assert_eq!(process["terminal"], false);
        assert_eq!(process.get("consoleSize"), None);
        for same in ["cwd", "env", "user", "capabilities", "noNewPrivileges"] {
            assert_eq!(process[same], container()[same], "{same}");
        }
        let env = vec!["TERM=dumb".to_owned(), "NEW=a=b".to_owned()];
        let wanted = Wanted { env, cwd: Some("/tmp".into()), ..Wanted::default() };
        let process = adapt(container(), wanted);
        assert_eq!(process["env"], json!(["PATH=/bin", "TERM=dumb", "NEW=a=b"]));
        assert_eq!(process["cwd"], "/tmp");
    }

    #[test]
    fn another_user_has_none_of_roots_capabilities() {
        let process = adapt(container(), Wanted { user: Some((1000, 100)), ..Wanted::default() });
        assert_eq!(process["user"], json!({"uid": 1000, "gid": 100}));
        let none = json!([]);
        let wanted = json!({
            "bounding": ["CAP_KILL"], "effective": none, "permitted": none, "inheritable": none, "ambient": none
        });
        assert_eq!(process["capabilities"], wanted);
        assert_eq!(user("1000:100"), Ok((1000, 100)));
        assert_eq!(user("1000"), Ok((1000, 0)));
        assert!(user("nobody").is_err() && user("1:").is_err() && user("-1").is_err());
    }
}
