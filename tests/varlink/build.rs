//! Has varlink's generator write the client of the interface that the shim describes.

use std::path::Path;
use std::{env, fs, str};

const INTERFACE: &str = "../../src/control/org.dunnage.shim.varlink";

fn main() {
    println!("cargo::rerun-if-changed={INTERFACE}");
    let interface = fs::read(INTERFACE).expect("the interface");
    let mut code = Vec::new();
    varlink_generator::generate(&mut interface.as_slice(), &mut code, false).expect("varlink_parser understands it");
    let code = str::from_utf8(&code).expect("code is text");
    // The generator does not escape a method whose name is a word of Rust's.
    let code = code.replace("fn move (", "fn r#move (").replace(". move (", ". r#move (");
    let directory = env::var_os("OUT_DIR").expect("cargo says where to write");
    fs::write(Path::new(&directory).join("shim.rs"), code).expect("the client");
}
