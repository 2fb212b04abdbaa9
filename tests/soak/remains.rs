//! What is left on the machine by this program and all that it started.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::{env, fs, process};

/// What there is, each with what it is.
pub(crate) struct Remains(BTreeSet<String>);

impl Remains {
    /// As of now.
    pub(crate) fn now() -> Self {
        // All that is made has this in its name.
        let name = format!("dunnage-{}-", process::id());
        let mut found = BTreeSet::new();
        let mut note = |what: &str, which: String| found.insert(format!("{what} {which}"));
        let entries = |dir: &Path| fs::read_dir(dir).into_iter().flatten().filter_map(|entry| Some(entry.ok()?.path()));
        let ours = |path: &PathBuf| path.file_name().is_some_and(|file| file.to_string_lossy().starts_with(&name));
        for path in entries(&env::temp_dir()).filter(ours) {
            note("the directory", path.display().to_string());
        }
        let hierarchies = entries(Path::new("/sys/fs/cgroup")).chain([PathBuf::from("/sys/fs/cgroup")]);
        for path in hierarchies.flat_map(|hierarchy| entries(&hierarchy).collect::<Vec<_>>()).filter(ours) {
            note("the cgroup", path.display().to_string());
        }
        let lines = |file: &str| fs::read_to_string(file).unwrap_or_default();
        for mount in lines("/proc/self/mountinfo").lines().filter(|line| line.contains(&name)) {
            note("the mount", mount.to_owned());
        }
        for socket in lines("/proc/net/unix").lines().filter(|line| line.contains(&name)) {
            note("the socket", socket.to_owned());
        }
        for path in entries(Path::new("/proc")) {
            let environ = fs::read(path.join("environ")).unwrap_or_default();
            let is_ours = environ.split(|byte| *byte == 0).any(|variable| {
                let variable = String::from_utf8_lossy(variable);
                variable.starts_with("DUNNAGE_SANDBOX=") && variable.contains(&name)
            });
            if is_ours {
                let command = lines(&path.join("cmdline").display().to_string()).replace('\0', " ");
                note("the process", format!("{} {command}", path.display()));
            }
        }
        for (fd, what) in dunnage_testing::descriptors(Path::new("/proc/self")).expect("our own descriptors") {
            note("the descriptor", format!("{fd} {}", what.target));
        }
        // Zombies that were left to us, who wait for what we started alone.
        let children = lines(&format!("/proc/self/task/{0}/children", process::id()));
        for pid in children.split_whitespace() {
            note("the child", pid.to_owned());
        }
        Self(found)
    }

    /// What was not there before.
    pub(crate) fn since(&self, before: &Self) -> Vec<String> {
        self.0.difference(&before.0).cloned().collect()
    }
}
