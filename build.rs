//! Tells the program which commit it was built from: `DUNNAGE_COMMIT`, shown by `--version`.

use std::path::Path;
use std::process::Command;

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    // Sources unpacked inside another repository (a distribution's packaging) have a prefix there: not our commit.
    let ours = git(&["rev-parse", "--show-prefix"]).is_some_and(|prefix| prefix.is_empty());
    let commit = if ours { git(&["rev-parse", "--short=12", "HEAD"]) } else { None };
    println!("cargo::rustc-env=DUNNAGE_COMMIT={}", commit.as_deref().unwrap_or("unknown"));
    if ours {
        // HEAD itself changes with the branch, its log with every commit. A file that does not exist would make
        // every build run this again.
        for name in ["HEAD", "logs/HEAD"] {
            if let Some(file) = git(&["rev-parse", "--git-path", name]).filter(|file| Path::new(file).exists()) {
                println!("cargo::rerun-if-changed={file}");
            }
        }
    }
}

/// What git prints for `arguments`, without the final newline; nothing if there is no git or it refuses.
fn git(arguments: &[&str]) -> Option<String> {
    let output = Command::new("git").args(arguments).output().ok()?;
    let text = String::from_utf8(output.stdout).ok()?;
    output.status.success().then(|| text.trim_end().to_owned())
}
