//! The errors that monitors answer, in words.

use serde_json::Value;

use crate::error::one_line;

/// What the error says and what can be done, about the method that was called.
pub(crate) fn explain(method: &str, error: &str, parameters: &Value) -> String {
    let text = |name: &str| one_line(parameters[name].as_str().unwrap_or_default());
    let (interface, name) = error.rsplit_once('.').unwrap_or(("", error));
    match (interface, name) {
        ("org.dunnage.shim", "NotFound") => {
            let target = text("target");
            match method {
                "AnswerGate" => {
                    format!("no start asks by {target}: it was answered, or its time was over; nothing was done")
                }
                _ => format!("there is no {target}, or it has ended; dunnagectl status lists what runs"),
            }
        }
        ("org.dunnage.shim", "Busy") => format!("busy, and nothing was started: {}; try again later", text("reason")),
        ("org.dunnage.shim", "ShuttingDown") => {
            "the container has ended or is being ended; nothing runs for this call".to_owned()
        }
        ("org.dunnage.shim", "LaunchRefused") => format!("it was not let start, and nothing runs: {}", text("reason")),
        ("org.dunnage.shim", "LaunchFailed") => {
            format!("it could not be started, and nothing of it is left: {}", text("reason"))
        }
        ("org.dunnage.shim", "Runtime") => {
            let said = text("stderr");
            let said = if said.is_empty() { "it said nothing" } else { &said };
            format!("the runtime failed with status {}, and nothing runs: {said}", parameters["exit_code"])
        }
        ("org.dunnage.shim", "StartUncertain") => {
            let todo = match method {
                "Stage" | "Start" | "StartWorker" | "StartSidecar" => {
                    "dunnagectl status shows it, kill or empty end it"
                }
                _ => "look into the container",
            };
            format!("it may have run, and may run still: {}; {todo}", text("reason"))
        }
        ("org.dunnage.shim", "Unproven") => unproven(parameters, &text("reason")),
        ("org.dunnage.shim", "NoDelegation") => {
            "nothing is proven but the end of the process itself, as there is no cgroup that the monitor may use; what \
             it has forked may run still: delegate the service's cgroup"
                .to_owned()
        }
        ("org.dunnage.shim", "NoKill") => {
            "nothing is proven but the end of the process itself, as this kernel has no cgroup.kill (Linux 5.14); what \
             it has forked may run still: dunnagectl status names its cgroups"
                .to_owned()
        }
        ("org.dunnage.shim", "NotSwitchable") => {
            format!("this service has no such thing, and nothing was changed: {}", text("reason"))
        }
        ("org.dunnage.shim", "Failed") => format!("it could not be done: {}", text("reason")),
        ("org.varlink.service", "InvalidParameter") => invalid(method, &text("parameter")),
        ("org.varlink.service", "MethodNotFound" | "InterfaceNotFound") => {
            format!("this monitor does not know {method}: it is of another version than dunnagectl; status shows which")
        }
        // Of a later version, or ours of its own making.
        _ => {
            let parameters = if parameters.is_object() { format!(" {parameters}") } else { String::new() };
            one_line(&format!("{method} was refused: {name}{parameters}"))
        }
    }
}

fn unproven(parameters: &Value, reason: &str) -> String {
    let left = parameters["left"].as_array().map(Vec::as_slice).unwrap_or_default();
    let left: Vec<String> = left.iter().map(ToString::to_string).collect();
    let reason = if reason.is_empty() { String::new() } else { format!("; {reason}") };
    if left.is_empty() {
        return format!("it is not proven that nothing is left, and what is may run still{reason}; try again");
    }
    format!("these processes were not seen to end: {}{reason}; look at each in /proc/PID/stack", left.join(", "))
}

fn invalid(method: &str, parameter: &str) -> String {
    match (method, parameter) {
        ("Resize", "target") => "it has no terminal, so no size can be set".to_owned(),
        ("CloseStdin", "target") => "it has no stdin to be closed".to_owned(),
        ("Signal", "signal") => "there is no such signal; write it as TERM, SIGTERM or 15".to_owned(),
        ("Shutdown", "timeout_ms") => {
            "the timeout is too short: it must be above the monitor's --stop-budget (2 s), and at most 49 days"
                .to_owned()
        }
        (_, "staged_path") => "the path is not the absolute one of a file or bundle".to_owned(),
        (_, "digest") => "the digest is wrong: write sha256: and 64 digits, as sha256sum(1) prints them".to_owned(),
        (_, "build") => "a build's name has 1 to 255 bytes, and no control characters".to_owned(),
        ("Move", "cgroup") => "the cgroup's name must be that of a new directory, without a slash".to_owned(),
        _ if parameter.contains("memory_") || parameter.contains("cpu_") || parameter.contains("pids_") => {
            format!("the kernel takes no such {parameter}: max, or a number; cpu_max is QUOTA PERIOD in microseconds")
        }
        _ => format!("{method} does not take that {parameter}"),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn every_error_of_the_interface_is_explained_in_a_line() {
        let interface = include_str!("../../control/org.dunnage.shim.varlink");
        let names = interface.lines().filter_map(|line| line.strip_prefix("error ")?.split('(').next());
        let parameters =
            json!({"target": "exec-1", "reason": "a\nb", "exit_code": 1, "stderr": "\u{1b}[31mno\n", "left": [7]});
        let mut count = 0;
        for name in names {
            let text = explain("Exec", &format!("org.dunnage.shim.{name}"), &parameters);
            assert!(!text.contains("was refused"), "{name} has no words: {text}");
            assert!(!text.contains(char::is_control), "{text:?}");
            count += 1;
        }
        assert!(count >= 7, "{count} are few: is the interface still read?");
    }

    #[test]
    fn what_may_run_is_said() {
        let unproven = |parameters: &Value| explain("KillGeneration", "org.dunnage.shim.Unproven", parameters);
        let text = unproven(&json!({"left": [7, 8], "reason": "in gen-3"}));
        assert_eq!(text, "these processes were not seen to end: 7, 8; in gen-3; look at each in /proc/PID/stack");
        let text = unproven(&json!({"left": []}));
        assert_eq!(text, "it is not proven that nothing is left, and what is may run still; try again");
        let text = explain("Stage", "org.dunnage.shim.StartUncertain", &json!({"reason": "no answer"}));
        assert!(text.contains("may run still: no answer; dunnagectl status"), "{text}");
        let text = explain("Stage", "org.varlink.service.InvalidParameter", &json!({"parameter": "tier.cpu_max"}));
        assert!(text.contains("no such tier.cpu_max"), "{text}");
    }

    #[test]
    fn an_error_that_is_not_known_is_shown_as_it_is() {
        let text = explain("Stage", "org.dunnage.shim.OutOfLuck", &json!({"path": "/x"}));
        assert_eq!(text, r#"Stage was refused: OutOfLuck {"path":"/x"}"#);
    }
}
