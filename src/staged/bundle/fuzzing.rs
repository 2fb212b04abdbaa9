//! What rewriting a bundle is held to.

use std::path::Path;

use dunnage_runtime::generation::{Limit, Tier};
use serde_json::{Value, json};

use super::config::{self, Changes, HOME};

/// A config.json.
pub(crate) fn bundles(text: &[u8]) {
    let tier = Tier { memory_max: Limit::Value(4096), ..Tier::UNLIMITED };
    let variables = ["DUNNAGE_GENERATION=7".to_owned()];
    let changes = Changes {
        directory: Path::new("/staged"),
        root: Path::new("/staged/rootfs"),
        cgroup: "/web/gen-7",
        tier: &tier,
        home: Path::new("/run/web/g7"),
        variables: &variables,
        args: None,
    };
    let facts = config::read(text);
    let rewritten = config::rewrite(text, &changes);
    for error in [facts.as_ref().err(), rewritten.as_ref().err()].into_iter().flatten() {
        assert!(!error.is_empty());
    }
    let (Ok(_), Ok(rewritten)) = (facts, rewritten) else { return };
    // What a reader makes of it that keeps the last of two names.
    let (Ok(before), Ok(after)) = (serde_json::from_slice::<Value>(text), serde_json::from_slice::<Value>(&rewritten))
    else {
        return;
    };
    assert_eq!(after["root"]["path"], "/staged/rootfs");
    assert_eq!(after["linux"]["cgroupsPath"], "/web/gen-7");
    assert_eq!(after["linux"]["resources"]["unified"]["memory.max"], "4096");
    let env = after["process"]["env"].as_array().expect("a list");
    let ours = |variable: &&Value| variable.as_str().is_some_and(|variable| variable.starts_with("DUNNAGE_"));
    assert_eq!(env.iter().filter(ours).collect::<Vec<_>>(), [&json!("DUNNAGE_GENERATION=7")]);
    assert_eq!(after["mounts"].as_array().and_then(|mounts| mounts.last()).expect("a mount")["destination"], HOME);

    assert_eq!(untouched(before), untouched(after.clone()), "all else stays");
    let again: Value =
        serde_json::from_slice(&config::rewrite(&rewritten, &changes).expect("as it was")).expect("JSON");
    assert_eq!(again["linux"], after["linux"]);
    assert_eq!(again["process"], after["process"]);
}

/// Without what is the shim's.
fn untouched(mut config: Value) -> Value {
    let mut take = |outer: &str, keys: &[&str]| {
        let Some(object) = config.pointer_mut(outer).and_then(Value::as_object_mut) else { return };
        for key in keys {
            object.remove(*key);
        }
    };
    take("/root", &["path"]);
    take("/process", &["env"]);
    take("/linux/resources/memory", &["limit", "swap"]);
    take("/linux/resources/cpu", &["quota", "period", "shares"]);
    take("/linux/resources", &["pids"]);
    take(
        "/linux/resources/unified",
        &["memory.max", "memory.high", "memory.swap.max", "cpu.max", "cpu.weight", "pids.max"],
    );
    take("/linux", &["cgroupsPath"]);
    take("", &["mounts"]);
    // Objects with nothing in them may have come or gone.
    for outer in ["/linux/resources", "/linux", ""] {
        let Some(object) = config.pointer_mut(outer).and_then(Value::as_object_mut) else { continue };
        object.retain(|key, value| {
            let nothing = value.is_null() || value.as_object().is_some_and(serde_json::Map::is_empty);
            !(nothing && ["memory", "cpu", "unified", "resources", "linux"].contains(&key.as_str()))
        });
    }
    config
}
