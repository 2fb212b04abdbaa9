//! Builds that are prepared and started, and those who change them meanwhile.

use std::fs::{self, File, OpenOptions};
use std::io::{PipeReader, Read, Write};
use std::os::fd::AsFd;
use std::os::unix::fs::{FileExt, OpenOptionsExt, PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use dunnage_runtime::driver::Driver;
use dunnage_runtime::event_loop::{EventLoop, Events};
use dunnage_runtime::reaper::{ChildId, ExitStatus, Outcome, Timing};
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::unistd::Pid;
use sha2::{Digest as _, Sha256};

use super::executable::Guard;
use super::*;
use crate::generations::Digest;
use crate::source::Source;

/// What a start is watched under; which does not matter here.
const SOURCE: Source = Source::StartPipe;

/// A directory and a cgroup of the test's own, and the driver of a shim.
struct Bench {
    dir: PathBuf,
    cgroup: PathBuf,
    driver: Driver,
    event_loop: EventLoop<Source>,
    events: Events,
    /// What was told while something else was waited for.
    ended: Vec<(ChildId, ExitStatus)>,
}

impl Bench {
    fn new() -> Self {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let name = format!("dunnage-staged-{}-{}", Pid::this(), NEXT.fetch_add(1, Ordering::Relaxed));
        let root = ["/sys/fs/cgroup/unified", "/sys/fs/cgroup"].into_iter().map(Path::new);
        let root = root.into_iter().find(|root| root.join("cgroup.procs").exists()).expect("a cgroup2 mount");
        let (dir, cgroup) = (std::env::temp_dir().join(&name), root.join(&name));
        fs::create_dir(&dir).unwrap();
        fs::create_dir(&cgroup).unwrap();
        Self {
            dir,
            cgroup,
            driver: Driver::new(Timing::default()),
            event_loop: EventLoop::new().unwrap(),
            events: Events::with_capacity(16),
            ended: Vec::new(),
        }
    }

    /// A copy of a program of the host's. Made by another process: what another test's thread forks just now would have it
    /// open for writing as well, for a moment.
    fn build(&self, program: &str) -> PathBuf {
        let path = self.dir.join("build");
        assert!(Command::new("cp").args([program.as_ref(), &*path]).status().unwrap().success());
        path
    }

    fn manifest(&self, text: &str) {
        fs::write(self.dir.join("build.manifest.json"), text).unwrap();
    }

    fn prepare(&mut self, path: &Path, digest: Option<Digest>) -> Result<Prepared, String> {
        let staged = Staged { path: path.to_owned(), digest };
        let mut preparation = Preparation::start(&mut self.driver, &self.event_loop, staged).unwrap();
        loop {
            if let Some(result) = preparation.advance() {
                return result;
            }
            wait_for(&preparation);
        }
    }

    fn start(&mut self, prepared: Prepared) -> (Result<Started, NotStarted>, PipeReader) {
        let (reader, writer) = std::io::pipe().unwrap();
        let null = File::open("/dev/null").unwrap();
        let place = Place {
            cgroup: OpenOptions::new().read(true).open(&self.cgroup).unwrap().into(),
            stdio: [null.into(), writer.try_clone().unwrap().into(), writer.into()],
            variables: vec![c"DUNNAGE_GENERATION=1".to_owned()],
            oom_score_adj: None,
        };
        let started = Start::begin(&mut self.context(), prepared, place);
        let result = started.and_then(|mut start| {
            loop {
                if let Some(result) = start.advance(&mut self.context()) {
                    return result;
                }
                self.turn();
            }
        });
        (result, reader)
    }

    fn context(&mut self) -> Context<'_, Source> {
        Context { driver: &mut self.driver, event_loop: &self.event_loop, source: SOURCE }
    }

    /// One turn of the loop.
    fn turn(&mut self) {
        let deadline = Instant::now() + Duration::from_secs(30);
        let mut sources = Vec::new();
        // A signal ends a wait without events.
        while sources.is_empty() {
            assert!(Instant::now() < deadline, "nothing happened in 30 s");
            self.event_loop.wait(&mut self.events, Some(deadline)).unwrap();
            sources.extend(self.events.iter::<Source>().map(|event| event.source));
        }
        for source in sources {
            if let Source::Process(watched) = source {
                self.driver.handle_exit(&self.event_loop, Instant::now(), watched);
            }
        }
        while let Some(outcome) = self.driver.poll_outcome() {
            if let Outcome::Exited { child, status, .. } = outcome {
                self.ended.push((child, status));
            }
        }
    }

    fn exited(&mut self, started: Started) -> ExitStatus {
        loop {
            if let Some(&(_, status)) = self.ended.iter().find(|(child, _)| *child == started.child) {
                return status;
            }
            self.turn();
        }
    }

    /// Prepares and runs a build to its end.
    fn run(&mut self, path: &Path, digest: Option<Digest>) -> Result<(String, ExitStatus), String> {
        let prepared = self.prepare(path, digest)?;
        let (result, mut reader) = self.start(prepared);
        let started = result.map_err(|error| format!("{error:?}"))?;
        let mut output = String::new();
        reader.read_to_string(&mut output).unwrap();
        Ok((output, self.exited(started)))
    }

    /// Why the build in its directory is refused, without the file's name.
    fn refusal(&mut self, path: &Path, digest: Option<Digest>) -> String {
        let reason = self.prepare(path, digest).expect_err("a refusal");
        reason.strip_prefix(&format!("{}: ", path.display())).expect("the file's name").to_owned()
    }
}

impl Drop for Bench {
    fn drop(&mut self) {
        let _ = fs::write(self.cgroup.join("cgroup.kill"), "1");
        let gone = (0..100_000).any(|_| {
            thread::yield_now();
            fs::remove_dir(&self.cgroup).is_ok()
        });
        if !gone {
            eprintln!("{} cannot be removed", self.cgroup.display());
        }
        let _ = fs::remove_dir_all(&self.dir);
    }
}

fn wait_for(fd: &impl AsFd) {
    let mut fds = [PollFd::new(fd.as_fd(), PollFlags::POLLIN)];
    assert_eq!(poll(&mut fds, PollTimeout::from(30_000u16)), Ok(1), "nothing happened in 30 s");
}

fn digest_of(path: &Path) -> Digest {
    Digest(Sha256::digest(fs::read(path).unwrap()).into())
}

const TRUE: &str = "/bin/true";
const FALSE: &str = "/bin/false";

#[test]
fn g4_what_is_no_executable_is_refused_and_not_touched() {
    let mut bench = Bench::new();
    let dir = bench.dir.clone();
    let at = |name: &str| dir.join(name);
    let build = bench.build(TRUE);
    symlink(&build, at("link")).unwrap();
    symlink("/nowhere", at("dangling")).unwrap();
    fs::write(at("script"), "#!/bin/sh\n").unwrap();
    fs::write(at("plain"), "text").unwrap();
    for name in ["script", "plain"] {
        fs::set_permissions(at(name), fs::Permissions::from_mode(0o755)).unwrap();
    }
    fs::set_permissions(at("plain"), fs::Permissions::from_mode(0o644)).unwrap();
    nix::unistd::mkfifo(&at("fifo"), nix::sys::stat::Mode::from_bits_truncate(0o755)).unwrap();
    let script = "it is a script: stage its interpreter, with the script among the manifest's \"args\"";
    for (path, reason) in [
        (at("link"), "it is a symlink"),
        (at("dangling"), "it is a symlink"),
        (at("fifo"), "it is not a regular file"),
        (at(""), "it is not a regular file"),
        ("/dev/null".into(), "it is not a regular file"),
        ("/proc/self/exe".into(), "it is a symlink"),
        (
            Path::new("/proc/self/root").join(build.strip_prefix("/").unwrap()),
            "its path leads through a link of /proc's, or too many",
        ),
        (at("script"), script),
        (at("plain"), "it is not executable"),
        (at("missing"), "cannot open it: No such file or directory"),
        ("bin/true".into(), "it is not an absolute path"),
    ] {
        assert_eq!(bench.refusal(&path, None), reason, "{}", path.display());
    }
    // Symlinks before the last component are the caller's own.
    symlink(&dir, at("current")).unwrap();
    assert_eq!(bench.run(&at("current").join("build"), None), Ok((String::new(), ExitStatus::Code(0))));
}

#[test]
fn g4_a_digest_that_does_not_match_is_refused() {
    let mut bench = Bench::new();
    let build = bench.build(TRUE);
    let (right, wrong) = (digest_of(&build), digest_of(Path::new(FALSE)));
    let prepared = bench.prepare(&build, Some(right)).unwrap();
    assert_eq!(prepared.executable().guard(), Guard::Lease);
    assert_eq!(bench.start(prepared).0.map(|started| bench.exited(started)), Ok(ExitStatus::Code(0)));
    assert_eq!(bench.refusal(&build, Some(wrong)), format!("its digest is {right}, not {wrong}"));
    // By a copy as well.
    let _writer = OpenOptions::new().append(true).open(&build).unwrap();
    assert_eq!(bench.refusal(&build, Some(wrong)), format!("its digest is {right}, not {wrong}"));
}

#[test]
fn g4_a_file_that_is_open_for_writing_is_run_from_a_sealed_copy() {
    let mut bench = Bench::new();
    let build = bench.build(TRUE);
    let digest = digest_of(&build);
    let mut writer = OpenOptions::new().write(true).open(&build).unwrap();
    let prepared = bench.prepare(&build, Some(digest)).unwrap();
    assert_eq!(prepared.executable().guard(), Guard::Seals);
    writer.write_all(&fs::read(FALSE).unwrap()).unwrap();
    let copy = File::from(prepared.executable().as_fd().try_clone_to_owned().unwrap());
    for offset in [0, copy.metadata().unwrap().len()] {
        assert!(copy.write_at(b"evil", offset).is_err(), "{offset}");
    }
    assert!(copy.set_len(0).is_err());
    drop(copy);
    assert_eq!(bench.start(prepared).0.map(|started| bench.exited(started)), Ok(ExitStatus::Code(0)));
}

#[test]
fn g4_who_breaks_the_lease_waits_until_a_copy_is_made() {
    let mut bench = Bench::new();
    let build = bench.build(TRUE);
    let prepared = bench.prepare(&build, Some(digest_of(&build))).unwrap();
    assert!(prepared.executable().is_unchanged());
    let open = OpenOptions::new().write(true).custom_flags(libc::O_NONBLOCK).open(&build);
    assert_eq!(open.unwrap_err().kind(), std::io::ErrorKind::WouldBlock);
    assert!(!prepared.executable().is_unchanged());
    thread::scope(|scope| {
        let writer = scope.spawn(|| fs::write(&build, fs::read(FALSE).unwrap()).unwrap());
        let (result, _) = bench.start(prepared);
        assert_eq!(result.map(|started| bench.exited(started)), Ok(ExitStatus::Code(0)));
        writer.join().unwrap();
    });
    assert_eq!(bench.run(&build, None).unwrap().1, ExitStatus::Code(1));
}

#[test]
fn g4_a_file_that_is_replaced_is_run_as_it_was_checked() {
    let mut bench = Bench::new();
    let build = bench.build(TRUE);
    let prepared = bench.prepare(&build, Some(digest_of(&build))).unwrap();
    let other = bench.dir.join("other");
    fs::copy(FALSE, &other).unwrap();
    fs::rename(&other, &build).unwrap();
    assert_eq!(bench.start(prepared).0.map(|started| bench.exited(started)), Ok(ExitStatus::Code(0)));
}

/// The attack's end, also when the test fails: it would go on for ever.
struct Over<'a>(&'a AtomicBool);
impl Drop for Over<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// Runs the build over and over while `attack` does too. How often it ran, and was refused.
fn under_attack(digest: bool, attack: impl Fn(&Path) + Sync) -> (u32, u32) {
    let mut bench = Bench::new();
    let build = bench.build(TRUE);
    let digest = digest.then(|| digest_of(&build));
    let (mut ran, mut refused) = (0, 0);
    let is_over = AtomicBool::new(false);
    thread::scope(|scope| {
        let over = Over(&is_over);
        let attacker = scope.spawn(|| {
            while !is_over.load(Ordering::Relaxed) {
                attack(&build);
            }
        });
        // Until the attack has hit too, where it does.
        while ran + refused < 150 || (ran * refused == 0 && ran + refused < 3000) {
            match bench.run(&build, digest) {
                Ok((_, status)) => {
                    assert_eq!(status, ExitStatus::Code(0), "what was not checked ran");
                    ran += 1;
                }
                Err(_) => refused += 1,
            }
        }
        drop(over);
        attacker.join().unwrap();
    });
    (ran, refused)
}

#[test]
fn g4_what_is_written_during_the_check_never_runs() {
    let (good, evil) = (fs::read(TRUE).unwrap(), fs::read(FALSE).unwrap());
    let (ran, refused) = under_attack(true, |build| {
        for bytes in [&evil, &good] {
            // While it is executed that is refused, and while there is a lease it waits.
            let _ = OpenOptions::new().write(true).open(build).and_then(|mut file| file.write_all(bytes));
        }
    });
    assert!(ran > 0, "{ran} ran, {refused} were refused");
}

#[test]
fn g4_what_is_renamed_over_it_during_the_check_never_runs() {
    let (ran, refused) = under_attack(true, |build| {
        let other = build.with_extension("other");
        for program in [FALSE, TRUE] {
            fs::copy(program, &other).unwrap();
            fs::rename(&other, build).unwrap();
        }
    });
    assert!(ran > 0 && refused > 0, "{ran} ran, {refused} were refused");
}

#[test]
fn g4_a_symlink_that_takes_its_place_is_never_followed() {
    let (ran, refused) = under_attack(false, |build| {
        let (kept, link) = (build.with_extension("kept"), build.with_extension("link"));
        fs::hard_link(build, &kept).unwrap();
        symlink(FALSE, &link).unwrap();
        fs::rename(&link, build).unwrap();
        fs::rename(&kept, build).unwrap();
    });
    assert!(ran > 0 && refused > 0, "{ran} ran, {refused} were refused");
}

#[test]
fn g5_what_is_killed_at_birth_is_started_the_other_way() {
    let mut bench = Bench::new();
    let build = bench.build(TRUE);
    fs::write(bench.cgroup.join("cgroup.kill"), "1").unwrap();
    assert_eq!(bench.run(&build, None), Ok((String::new(), ExitStatus::Code(0))));
}

#[test]
fn g10_the_manifest_says_how_it_runs() {
    let mut bench = Bench::new();
    let build = bench.build("/bin/sh");
    bench.manifest(
        r#"{"args": ["-c", "tr '\\0' '\\n' </proc/self/environ; id -u; id -G; ulimit -n; pwd -P; echo \"$0\""],
            "env": ["ONE=1"], "user": "7:8", "groups": [9], "cwd": "/usr",
            "rlimits": [{"type": "RLIMIT_NOFILE", "soft": 99, "hard": "99"}]}"#,
    );
    let (output, _) = bench.run(&build, None).unwrap();
    let expected = format!("ONE=1\nDUNNAGE_GENERATION=1\n7\n8 9\n99\n/usr\n{}\n", build.display());
    assert_eq!(output, expected);
}

#[test]
fn g10_what_cannot_be_set_up_is_named_and_nothing_ran() {
    let mut bench = Bench::new();
    let build = bench.build("/bin/echo");
    for (manifest, reason) in [
        (
            r#"{"rlimits": [{"type": "RLIMIT_NOFILE", "soft": "max", "hard": "max"}]}"#,
            "cannot set RLIMIT_NOFILE: Operation not permitted",
        ),
        (r#"{"cwd": "/no/such/place"}"#, "cannot enter /no/such/place: No such file or directory"),
        (r#"{"user": "7:8", "cwd": "/root"}"#, "cannot enter /root: Permission denied"),
    ] {
        bench.manifest(manifest);
        let prepared = bench.prepare(&build, None).unwrap();
        let (result, mut reader) = bench.start(prepared);
        let expected = format!("{}: {reason}", build.display());
        assert_eq!(result, Err(NotStarted::Failed(expected)));
        let mut output = String::new();
        reader.read_to_string(&mut output).unwrap();
        assert_eq!(output, "", "{manifest}");
    }
    let text = File::create(bench.dir.join("text")).unwrap();
    text.set_permissions(fs::Permissions::from_mode(0o755)).unwrap();
    drop(text);
    let error = bench.run(&bench.dir.join("text"), None).unwrap_err();
    assert!(error.contains("cannot execute it: Exec format error"), "{error}");
}

#[test]
fn g10_a_manifest_that_is_wrong_is_named() {
    let mut bench = Bench::new();
    let build = bench.build(TRUE);
    let manifest = bench.dir.join("build.manifest.json");
    for (text, reason) in [
        ("{\"arg\": 1}", "\"arg\" is not known"),
        ("{", "EOF while parsing an object at line 1 column 1"),
        ("{\"user\": \"nobody-knows\"}", "/etc/passwd has no user \"nobody-knows\""),
        (&" ".repeat(256 << 10 | 1), "it is larger than 262144 bytes"),
    ] {
        bench.manifest(text);
        let error = bench.prepare(&build, None).unwrap_err();
        assert_eq!(error, format!("{}: {reason}", manifest.display()));
    }
    fs::remove_file(&manifest).unwrap();
    symlink("/etc/passwd", &manifest).unwrap();
    let error = bench.prepare(&build, None).unwrap_err();
    assert_eq!(error, format!("{}: it is a symlink", manifest.display()));
}

#[test]
fn g9_the_tier_is_the_manifests() {
    let mut bench = Bench::new();
    let build = bench.build(TRUE);
    assert_eq!(bench.prepare(&build, None).unwrap().manifest().tier, None);
    bench.manifest(r#"{"tier": {"pids_max": "7"}}"#);
    let tier = bench.prepare(&build, None).unwrap().manifest().tier.unwrap();
    assert_eq!(tier.pids_max.to_string(), "7");
}

#[test]
fn r22_a_large_file_is_checked_beside_the_loop() {
    let bench = Bench::new();
    let build = bench.build(TRUE);
    OpenOptions::new().write(true).open(&build).unwrap().set_len(4 << 30).unwrap();
    let mut driver = Driver::new(Timing::default());
    let staged = Staged { path: build, digest: Some(Digest([0; 32])) };
    let mut preparation = Preparation::start(&mut driver, &bench.event_loop, staged).unwrap();
    assert!(preparation.advance().is_none(), "4 GiB were read at once");
    // Given up, and so killed.
    drop(preparation);
}
