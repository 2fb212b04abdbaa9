//! Makes a copy of the reaper with all the faults in it, each behind a switch, and the simulator beside it. The product
//! knows nothing of this.

use std::path::{Path, PathBuf};
use std::{env, fs};

include!("faults.rs");

fn main() {
    let runtime = Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("the runtime crate").to_owned();
    let out = PathBuf::from(env::var_os("OUT_DIR").expect("cargo sets it"));
    let (reaper, simulator) = (runtime.join("src/reaper"), runtime.join("tests/simulation"));
    for watched in [&reaper, &simulator, &PathBuf::from("faults.rs"), &PathBuf::from("build.rs")] {
        println!("cargo::rerun-if-changed={}", watched.display());
    }
    copy_with_faults(&reaper, &out.join("reaper"));
    let mut modules = format!("#[path = {:?}]\nmod reaper;\n", out.join("reaper/mod.rs"));
    for module in ["checks", "history", "kernel", "random", "search", "world"] {
        let path = simulator.join(module).with_extension("rs");
        modules += &format!("#[path = {path:?}]\nmod {module};\n");
    }
    let names: Vec<&str> = FAULTS.iter().map(|fault| fault.name).collect();
    modules += &format!("/// What the faults are, by number.\npub const FAULTS: &[&str] = &{names:?};\n");
    fs::write(out.join("modules.rs"), modules).expect("written");
}

fn copy_with_faults(from: &Path, to: &Path) {
    fs::create_dir_all(to).expect("a directory");
    for entry in fs::read_dir(from).expect("the reaper's sources") {
        let path = entry.expect("an entry").path();
        if path.is_file() {
            let file = path.file_name().expect("a name");
            let mut source = fs::read_to_string(&path).expect("a source");
            let (mut done, of_file) = (Vec::new(), FAULTS.iter().filter(|fault| file == fault.file));
            for fault in of_file {
                if !done.contains(&fault.right) {
                    let count = source.matches(fault.right).count();
                    assert_eq!(count, 1, "{}: found {count} times in {}: {}", fault.name, fault.file, fault.right);
                    source = source.replace(fault.right, &with_faults(fault.file, fault.right));
                    done.push(fault.right);
                }
            }
            fs::write(to.join(file), source).expect("written");
        }
    }
}

/// What is right, and all the faults that may take its place.
fn with_faults(file: &str, right: &str) -> String {
    let mut text = String::new();
    let mut close = "";
    for (number, fault) in FAULTS.iter().enumerate().filter(|(_, fault)| fault.file == file && fault.right == right) {
        let switch = format!("crate::is_on({number})");
        match fault.put {
            Text(text) => return text.replace("FAULT", &switch),
            Value(wrong) => {
                text += &format!("{}if {switch} {{ {wrong} }} else ", if text.is_empty() { "(" } else { "" });
                close = ")";
            }
            Statements(wrong) => text += &format!("if {switch} {{ {wrong} }} else "),
        }
    }
    format!("{text}{{ {right} }}{close}")
}
