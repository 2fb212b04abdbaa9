//! dunnage: a container monitor for Podman and CRI-O, in place of conmon. All of it is in the library.

#![forbid(unsafe_code)]

use std::process::ExitCode;

fn main() -> ExitCode {
    dunnage::main()
}
