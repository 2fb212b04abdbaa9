//! Makes a copy of the reaper with all the faults in it, each behind a switch, and the simulator beside it. The product
//! knows nothing of this.

use std::fmt::Write;
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
    let mut modules = module("reaper", &out.join("reaper/mod.rs"));
    for name in ["checks", "history", "kernel", "random", "search", "world"] {
        modules += &module(name, &simulator.join(name).with_extension("rs"));
    }
    let names: Vec<&str> = FAULTS.iter().map(|fault| fault.name).collect();
    writeln!(modules, "/// What the faults are, by number.\npub const FAULTS: &[&str] = &{names:?};")
        .expect("a string");
    fs::write(out.join("modules.rs"), modules).expect("written");
}

fn module(name: &str, path: &Path) -> String {
    format!("#[path = \"{}\"]\nmod {name};\n", path.display())
}

fn copy_with_faults(from: &Path, to: &Path) {
    fs::create_dir_all(to).expect("a directory");
    for entry in fs::read_dir(from).expect("the reaper's sources") {
        let path = entry.expect("an entry").path();
        if path.is_file() {
            let file = path.file_name().expect("a name");
            // Without the reaper's own tests.
            let mut source = fs::read_to_string(&path).expect("a source").replace("#[cfg(test)]\nmod tests;\n", "");
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
    let mut chain = String::new();
    let mut is_value = false;
    for (number, fault) in FAULTS.iter().enumerate().filter(|(_, fault)| fault.file == file && fault.right == right) {
        let switch = format!("crate::is_on({number})");
        let wrong = match fault.put {
            Text(text) => return text.replace("FAULT", &switch),
            Statements(wrong) => wrong,
            Value(wrong) => {
                is_value = true;
                wrong
            }
        };
        write!(chain, "if {switch} {{ {wrong} }} else ").expect("a string");
    }
    if is_value { format!("({chain}{{ {right} }})") } else { format!("{chain}{{ {right} }}") }
}
