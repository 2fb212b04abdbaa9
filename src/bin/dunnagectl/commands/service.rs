//! What a status says of a service, in words.

use std::time::SystemTime;

use serde_json::Value;

use super::status::{ago, number, table, word};
use crate::output::{Colour, clean};
use crate::table::{Cell, Table};
use crate::tier;

/// Names and values, if it is a service.
pub(super) fn facts(service: &Value) -> Vec<(&'static str, Option<String>)> {
    if !service.is_object() {
        return Vec::new();
    }
    let current = service["current"].as_u64().map_or_else(|| "none".to_owned(), |n| format!("gen-{n}"));
    let parent = &service["parent"];
    vec![
        ("layout", service["layout"].as_str().map(clean)),
        ("current", Some(current)),
        ("parent", parent.is_object().then(|| tier::words(parent))),
    ]
}

/// Generations, what runs beside them, and what is held.
pub(super) fn tables(service: &Value, now: SystemTime) -> [Option<Table>; 4] {
    let headings = ["GENERATION", "BUILD", "STATE", "CURRENT", "PID", "STARTED", "TIER", "CGROUPS", "SAYS"];
    [
        table(&service["generations"], &headings, |generation| {
            vec![
                number_of("gen-", &generation["n"]),
                word(&generation["build"]),
                state(&generation["state"]),
                Cell::coloured(if generation["current"] == true { "yes" } else { "" }, Colour::Green),
                number(&generation["pid"]),
                started(generation, now),
                tier::words(&generation["tier"]).into(),
                cgroups(&generation["cgroups"]).into(),
                generation["status"].as_str().unwrap_or_default().into(),
            ]
        }),
        table(&listed(&service["worker"]), &["WORKER", "STATE", "PID", "STARTED", "TIER"], |worker| {
            vec![
                word(&worker["build"]),
                state(&worker["state"]),
                number(&worker["pid"]),
                started(worker, now),
                tier::words(&worker["tier"]).into(),
            ]
        }),
        table(&listed(&service["sidecar"]), &["SIDECAR OF", "PID", "STARTED AGAIN"], |sidecar| {
            vec![number_of("gen-", &sidecar["n"]), number(&sidecar["pid"]), number(&sidecar["restarts"])]
        }),
        table(&service["holds"], &["HELD BUILD", "REASON"], |hold| vec![word(&hold["build"]), word(&hold["reason"])]),
    ]
}

/// What is current and how many run, where there is one line for all.
pub(super) fn summary(service: &Value) -> String {
    let generations = generations(service);
    let running = generations.iter().filter(|generation| generation["state"] == "running").count();
    let current = current(service).map(|generation| {
        format!("gen-{} ({}), ", generation["n"], clean(generation["build"].as_str().unwrap_or_default()))
    });
    let plural = if running == 1 { "generation runs" } else { "generations run" };
    format!("{}{running} {plural}", current.unwrap_or_default())
}

/// The generation that clients reach.
pub(super) fn current(service: &Value) -> Option<&Value> {
    generations(service).iter().find(|generation| generation["current"] == true)
}

fn generations(service: &Value) -> &[Value] {
    service["generations"].as_array().map(Vec::as_slice).unwrap_or_default()
}

/// One that is there, as a list.
fn listed(value: &Value) -> Value {
    if value.is_object() { Value::Array(vec![value.clone()]) } else { Value::Null }
}

fn number_of(prefix: &str, number: &Value) -> Cell {
    format!("{prefix}{number}").into()
}

fn started(row: &Value, now: SystemTime) -> Cell {
    let ago = ago(&row["started"], now);
    if ago.is_empty() { "-".into() } else { ago.into() }
}

fn state(state: &Value) -> Cell {
    let state = state.as_str().unwrap_or("?");
    let colour = match state {
        "running" => Colour::Green,
        "starting" => Colour::Yellow,
        "unproven" => Colour::Red,
        _ => Colour::Plain,
    };
    Cell::coloured(state, colour)
}

/// Names of cgroups, of which only the last component tells them apart.
fn cgroups(cgroups: &Value) -> String {
    let all = cgroups.as_array().into_iter().flatten().filter_map(Value::as_str);
    let names: Vec<&str> = all.map(|path| path.rsplit('/').next().unwrap_or(path)).collect();
    names.join(", ")
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use serde_json::json;

    use super::*;
    use crate::output::Look;

    fn service() -> Value {
        let generation = |n: u64, state: &str, pid: Option<i64>| {
            json!({
                "n": n, "build": "v4", "path": null, "digest": null, "state": state, "current": n == 7,
                "tier": {"memory_max": "max", "pids_max": "9"}, "cgroups": ["/sys/fs/cgroup/web/gen-6", "moved"],
                "pid": pid, "started": "1970-01-01T00:00:00Z", "socket": null, "status": "at\u{1b}work",
            })
        };
        json!({
            "layout": "flat", "current": 7, "parent": {"pids_max": "18"}, "tier": {},
            "generations": [generation(6, "unproven", None), generation(7, "running", Some(5))],
            "sidecar": {"n": 7, "pid": null, "restarts": 3},
            "worker": {"build": "v3", "path": "/b", "state": "running", "tier": {}, "pid": 8, "started": null},
            "holds": [{"build": "v2", "reason": "leaks"}],
        })
    }

    #[test]
    fn a_service_is_told_in_tables() {
        let now = SystemTime::UNIX_EPOCH + Duration::from_secs(200);
        let look = Look { coloured: false, width: None };
        let text: String = tables(&service(), now).into_iter().flatten().map(|table| table.render(look)).collect();
        for line in [
            "gen-6       v4     unproven           -    3 min ago  pids 9  gen-6, moved  at work",
            "gen-7       v4     running   yes      5    3 min ago  pids 9  gen-6, moved  at work",
            "v3      running  8    -        no limits",
            "gen-7       -    3",
            "v2          leaks",
        ] {
            assert!(text.lines().any(|shown| shown == line), "{line:?} is not in\n{text}");
        }
        let facts = facts(&service());
        assert!(facts.contains(&("current", Some("gen-7".to_owned()))), "{facts:?}");
        assert!(facts.contains(&("parent", Some("pids 18".to_owned()))), "{facts:?}");
    }

    #[test]
    fn a_service_has_one_line_among_containers() {
        assert_eq!(summary(&service()), "gen-7 (v4), 1 generation runs");
        assert_eq!(summary(&json!({"generations": []})), "0 generations run");
    }

    #[test]
    fn a_container_is_no_service() {
        assert_eq!(facts(&Value::Null), []);
        assert!(tables(&Value::Null, SystemTime::UNIX_EPOCH).into_iter().flatten().next().is_none());
    }
}
