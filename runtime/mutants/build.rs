//! Makes copies of what decides with all the faults in them, each behind a switch, and the simulators beside them. The
//! product knows nothing of this.

use std::fmt::Write;
use std::path::{Path, PathBuf};
use std::{env, fs};

include!("faults.rs");
include!("faults_of_generations.rs");

fn main() {
    let runtime = Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("the runtime crate").to_owned();
    let out = PathBuf::from(env::var_os("OUT_DIR").expect("cargo sets it"));
    let (sources, simulator) = (runtime.join("src"), runtime.join("tests/simulation"));
    for watched in [&sources, &simulator, &PathBuf::from("faults.rs"), &PathBuf::from("faults_of_generations.rs")] {
        println!("cargo::rerun-if-changed={}", watched.display());
    }
    println!("cargo::rerun-if-changed=build.rs");
    let mut modules = String::new();
    let mut first = 0;
    for (name, faults) in [("reaper", FAULTS), ("generation", FAULTS_OF_GENERATIONS)] {
        copy_with_faults(&sources.join(name), &out.join(name), faults, first);
        modules += &module(name, &out.join(name).join("mod.rs"));
        first += faults.len();
    }
    for name in ["checks", "generations/mod", "history", "kernel", "random", "search", "world"] {
        let module_name = name.split('/').next().unwrap_or(name);
        modules += &module(module_name, &simulator.join(name).with_extension("rs"));
    }
    // Of cgroups what decides knows the names alone.
    let cgroup_names = module("name", &sources.join("cgroup/name.rs"));
    writeln!(modules, "mod cgroup {{\n{cgroup_names}pub(crate) use name::Name;\n}}").expect("a string");
    let names: Vec<&str> = FAULTS.iter().chain(FAULTS_OF_GENERATIONS).map(|fault| fault.name).collect();
    writeln!(modules, "/// What the faults are, by number.\npub const FAULTS: &[&str] = &{names:?};")
        .expect("a string");
    writeln!(modules, "/// How many of them are faults of the reaper; the others are of generations.")
        .expect("a string");
    writeln!(modules, "pub const OF_REAPER: usize = {};", FAULTS.len()).expect("a string");
    fs::write(out.join("modules.rs"), modules).expect("written");
}

fn module(name: &str, path: &Path) -> String {
    format!("#[path = \"{}\"]\nmod {name};\n", path.display())
}

/// Copies the sources. The first of the faults has the number `first`.
fn copy_with_faults(from: &Path, to: &Path, faults: &[Fault], first: usize) {
    // Of an earlier build, whose sources may have had other names.
    let _ = fs::remove_dir_all(to);
    fs::create_dir_all(to).expect("a directory");
    for entry in fs::read_dir(from).expect("sources") {
        let path = entry.expect("an entry").path();
        let file = path.file_name().expect("a name");
        if path.is_dir() && file != "tests" {
            copy_with_faults(&path, &to.join(file), &[], first);
        } else if path.is_file() {
            // Without its own tests.
            let mut source = fs::read_to_string(&path).expect("a source").replace("#[cfg(test)]\nmod tests;\n", "");
            let (mut done, of_file) = (Vec::new(), faults.iter().filter(|fault| file == fault.file));
            for fault in of_file {
                if !done.contains(&fault.right) {
                    let count = source.matches(fault.right).count();
                    assert_eq!(count, 1, "{}: found {count} times in {}: {}", fault.name, fault.file, fault.right);
                    source = source.replace(fault.right, &with_faults(faults, first, fault.file, fault.right));
                    done.push(fault.right);
                }
            }
            fs::write(to.join(file), source).expect("written");
        }
    }
}

/// What is right, and all the faults that may take its place.
fn with_faults(faults: &[Fault], first: usize, file: &str, right: &str) -> String {
    let mut chain = String::new();
    let mut is_value = false;
    for (number, fault) in faults.iter().enumerate().filter(|(_, fault)| fault.file == file && fault.right == right) {
        let switch = format!("crate::is_on({})", first + number);
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
