//! Why a call is not answered with what it asks for (K4).

use dunnage_runtime::driver::TooManyBroadcasts;
use serde_json::{Value, json};

use crate::json::Wrong;

/// See the module.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Refusal {
    InterfaceNotFound {
        interface: String,
    },
    MethodNotFound {
        method: String,
    },
    InvalidParameter {
        parameter: String,
    },
    /// The method answers more than once, and the caller did not say that it takes that.
    ExpectedMore,
    NotFound {
        target: String,
    },
    Busy {
        reason: String,
    },
    ShuttingDown,
    LaunchRefused {
        reason: String,
    },
    LaunchFailed {
        reason: String,
    },
    Runtime {
        exit_code: i32,
        stderr: String,
    },
    StartUncertain {
        reason: String,
    },
    Unproven {
        left: Vec<i32>,
        /// What else is known of what is left, such as its cgroup.
        reason: Option<String>,
    },
    NoDelegation,
    NoKill,
    NotSwitchable {
        reason: String,
    },
    /// What was asked is no start, and could not be done.
    Failed {
        reason: String,
    },
}

/// What a refusal says of the process that the call would have started (G7).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Ran {
    Nothing,
    Maybe,
}

impl Refusal {
    /// This parameter is not as it has to be.
    pub(crate) fn invalid(parameter: &str) -> Self {
        Self::InvalidParameter { parameter: parameter.to_owned() }
    }

    /// Whether something may have run. A method that starts nothing has started nothing, whatever it says.
    #[cfg_attr(not(test), expect(dead_code, reason = "the interface file says it to clients"))]
    pub(crate) fn ran(&self) -> Ran {
        match self {
            Self::StartUncertain { .. } | Self::Unproven { .. } | Self::NoDelegation | Self::NoKill => Ran::Maybe,
            Self::InterfaceNotFound { .. }
            | Self::MethodNotFound { .. }
            | Self::InvalidParameter { .. }
            | Self::ExpectedMore
            | Self::NotFound { .. }
            | Self::Busy { .. }
            | Self::ShuttingDown
            | Self::LaunchRefused { .. }
            | Self::LaunchFailed { .. }
            | Self::Runtime { .. }
            | Self::NotSwitchable { .. }
            | Self::Failed { .. } => Ran::Nothing,
        }
    }

    /// The error's name and its parameters.
    fn describe(&self) -> (&'static str, Value) {
        match self {
            Self::InterfaceNotFound { interface } => {
                ("org.varlink.service.InterfaceNotFound", json!({"interface": interface}))
            }
            Self::MethodNotFound { method } => ("org.varlink.service.MethodNotFound", json!({"method": method})),
            Self::InvalidParameter { parameter } => {
                ("org.varlink.service.InvalidParameter", json!({"parameter": parameter}))
            }
            Self::ExpectedMore => ("org.varlink.service.ExpectedMore", json!({})),
            Self::NotFound { target } => ("org.dunnage.shim.NotFound", json!({"target": target})),
            Self::Busy { reason } => ("org.dunnage.shim.Busy", json!({"reason": reason})),
            Self::ShuttingDown => ("org.dunnage.shim.ShuttingDown", json!({})),
            Self::LaunchRefused { reason } => ("org.dunnage.shim.LaunchRefused", json!({"reason": reason})),
            Self::LaunchFailed { reason } => ("org.dunnage.shim.LaunchFailed", json!({"reason": reason})),
            Self::Runtime { exit_code, stderr } => {
                ("org.dunnage.shim.Runtime", json!({"exit_code": exit_code, "stderr": stderr}))
            }
            Self::StartUncertain { reason } => ("org.dunnage.shim.StartUncertain", json!({"reason": reason})),
            Self::Unproven { left, reason } => ("org.dunnage.shim.Unproven", json!({"left": left, "reason": reason})),
            Self::NoDelegation => ("org.dunnage.shim.NoDelegation", json!({})),
            Self::NoKill => ("org.dunnage.shim.NoKill", json!({})),
            Self::NotSwitchable { reason } => ("org.dunnage.shim.NotSwitchable", json!({"reason": reason})),
            Self::Failed { reason } => ("org.dunnage.shim.Failed", json!({"reason": reason})),
        }
    }
}

impl From<TooManyBroadcasts> for Refusal {
    fn from(_: TooManyBroadcasts) -> Self {
        Self::Busy { reason: "too many signals to all wait already".to_owned() }
    }
}

impl From<Wrong> for Refusal {
    fn from(wrong: Wrong) -> Self {
        Self::InvalidParameter { parameter: wrong.key }
    }
}

/// A refusal as it is sent.
pub(super) fn encode_refusal(refusal: &Refusal) -> Vec<u8> {
    let (error, parameters) = refusal.describe();
    json!({"error": error, "parameters": parameters}).to_string().into_bytes()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::control::DESCRIPTION;
    use crate::control::idl::Interface;

    /// One of each error of the interface.
    fn refusals() -> [Refusal; 12] {
        let text = || "text".to_owned();
        [
            Refusal::NotFound { target: text() },
            Refusal::Busy { reason: text() },
            Refusal::ShuttingDown,
            Refusal::LaunchRefused { reason: text() },
            Refusal::LaunchFailed { reason: text() },
            Refusal::Runtime { exit_code: 1, stderr: text() },
            Refusal::StartUncertain { reason: text() },
            Refusal::Unproven { left: vec![7], reason: Some(text()) },
            Refusal::NoDelegation,
            Refusal::NoKill,
            Refusal::NotSwitchable { reason: text() },
            Refusal::Failed { reason: text() },
        ]
    }

    fn name(refusal: &Refusal) -> &'static str {
        refusal.describe().0.strip_prefix("org.dunnage.shim.").expect("an error of ours")
    }

    #[test]
    fn k4_errors_are_those_of_the_interface_file() {
        let interface = Interface::ours();
        assert_eq!(refusals().len(), interface.errors.len());
        for refusal in refusals() {
            let message: Value = serde_json::from_slice(&encode_refusal(&refusal)).expect("JSON");
            let described = &interface.errors[name(&refusal)];
            interface.check_fields(described, &message["parameters"]).unwrap_or_else(|error| panic!("{error}"));
        }
        let message: Value = serde_json::from_slice(&encode_refusal(&Refusal::invalid("x"))).expect("JSON");
        let expected = json!({"error": "org.varlink.service.InvalidParameter", "parameters": {"parameter": "x"}});
        assert_eq!(message, expected);
    }

    #[test]
    fn g7_the_interface_file_says_of_each_error_whether_something_ran() {
        for refusal in refusals() {
            let (before, _) = DESCRIPTION.split_once(&format!("\nerror {}(", name(&refusal))).expect("its definition");
            let comment = before.rsplit("\n\n").next().unwrap_or_default();
            let (said, not_said) = match refusal.ran() {
                Ran::Nothing => ("Nothing runs", "may"),
                Ran::Maybe => ("may", "Nothing runs"),
            };
            assert!(comment.contains(said) && !comment.contains(not_said), "{refusal:?}: {comment}");
        }
    }
}
