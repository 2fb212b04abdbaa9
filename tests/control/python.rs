//! The interface by a client that is not ours: Python's `varlink` package, which holds all that it gets against the
//! interface's own description.

use std::process::Command;

use dunnage_testing::{Sandbox, Step};

use crate::{process, running, socket_of};

#[test]
fn pythons_varlink_package_is_a_client() {
    let sandbox = Sandbox::new();
    let monitor = running(&sandbox);
    let output = Command::new("python3")
        .env("PYTHONPATH", concat!(env!("CARGO_MANIFEST_DIR"), "/target/python"))
        .arg(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/control/client.py"))
        .arg(socket_of(&sandbox))
        .arg(process([Step::out("hello\n"), Step::Exit(3)]).to_string())
        .output()
        .expect("python3");
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(!errors.contains("ModuleNotFoundError"), "{errors}\nscripts/test installs it");
    assert!(output.status.success(), "{errors}");
    assert_eq!(String::from_utf8_lossy(&output.stdout), "all well\n");
    assert_eq!(monitor.exit_code(), "143");
}
