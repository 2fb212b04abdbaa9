//! Programs started in cgroups of the tests' own.

use std::fs::{self, File};
use std::io::{PipeReader, Read};
use std::os::fd::AsFd;
use std::os::unix::fs::{OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use caps::Capability;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::signal::Signal;

use super::*;
use crate::reaper::ExitStatus;
use crate::sys::Spawned;

/// A cgroup that ends with the test, and the one above it.
struct Cgroup {
    parent: PathBuf,
    path: PathBuf,
    dir: File,
}

impl Cgroup {
    fn new() -> Self {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let root = ["/sys/fs/cgroup/unified", "/sys/fs/cgroup"].into_iter().map(Path::new);
        let root = root.into_iter().find(|root| root.join("cgroup.procs").exists()).expect("a cgroup2 mount");
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let parent = root.join(format!("dunnage-launch-{}-{number}", Pid::this()));
        let path = parent.join("gen-1");
        fs::create_dir_all(&path).unwrap();
        let dir = File::options().read(true).custom_flags(libc::O_PATH | libc::O_DIRECTORY).open(&path).unwrap();
        Self { parent, path, dir }
    }

    /// As /proc/PID/cgroup has it.
    fn name(&self) -> String {
        format!("/{}/gen-1", self.parent.file_name().unwrap().to_str().unwrap())
    }

    fn kill(&self) {
        fs::write(self.path.join("cgroup.kill"), "1").unwrap();
    }
}

impl Drop for Cgroup {
    fn drop(&mut self) {
        let _raised = privileges::raise();
        // Whatever a failed test left.
        let _ = fs::write(self.parent.join("cgroup.kill"), "1");
        for dir in [&self.path, &self.parent] {
            let gone = (0..1000).any(|_| {
                let gone = fs::remove_dir(dir).is_ok();
                std::thread::yield_now();
                gone
            });
            if !gone {
                eprintln!("{} cannot be removed", dir.display());
            }
        }
    }
}

fn wait_for(fd: &impl AsFd) {
    let mut fds = [PollFd::new(fd.as_fd(), PollFlags::POLLIN)];
    assert_eq!(poll(&mut fds, PollTimeout::from(30_000u16)), Ok(1), "nothing happened in 30 s");
}

fn verdict(birth: &Birth) -> Verdict {
    wait_for(birth);
    let until = Instant::now() + Duration::from_secs(30);
    loop {
        match birth.progress() {
            Progress::Decided(verdict) => return verdict,
            Progress::Settling => assert!(Instant::now() < until, "it does not settle"),
            Progress::Waiting => panic!("it is readable, and nothing is known"),
        }
    }
}

fn reap(birth: Birth) -> ExitStatus {
    let Spawned { pidfd, .. } = birth.into_spawned();
    wait_for(&pidfd);
    pidfd.try_reap().unwrap().unwrap()
}

fn strings(strings: &[&str]) -> Vec<CString> {
    strings.iter().map(|&string| CString::new(string).unwrap()).collect()
}

/// How a script is started.
struct Plan {
    executable: File,
    cwd: PathBuf,
    identity: Option<Identity>,
    privileges: Privileges,
    limits: Vec<ResourceLimit>,
    oom_score_adj: Option<i32>,
}

/// Starts a shell script, changed as the test likes.
fn start(cgroup: &Cgroup, script: &str, way: Way, change: impl FnOnce(&mut Plan)) -> (Birth, PipeReader) {
    let mut plan = Plan {
        executable: File::open("/bin/sh").unwrap(),
        cwd: "/".into(),
        identity: None,
        privileges: Privileges::default(),
        limits: Vec::new(),
        oom_score_adj: None,
    };
    change(&mut plan);
    let null = File::open("/dev/null").unwrap();
    let (reader, writer) = io::pipe().unwrap();
    let cwd = CString::new(plan.cwd.into_os_string().into_encoded_bytes()).unwrap();
    let launch = Launch {
        executable: plan.executable.as_fd(),
        args: &strings(&["sh", "-c", script]),
        environment: &strings(&["PATH=/usr/bin:/bin", "ONE=1"]),
        cgroup: cgroup.dir.as_fd(),
        stdio: [null.as_fd(), writer.as_fd(), writer.as_fd()],
        cwd: &cwd,
        identity: plan.identity.as_ref(),
        privileges: plan.privileges,
        limits: &plan.limits,
        oom_score_adj: plan.oom_score_adj,
    };
    (launch.start(way).unwrap(), reader)
}

/// What the script printed.
fn output(script: &str, change: impl FnOnce(&mut Plan)) -> String {
    let cgroup = Cgroup::new();
    let (birth, mut reader) = start(&cgroup, script, Way::BornInside, change);
    assert_eq!(verdict(&birth), Verdict::Executed);
    let mut output = String::new();
    reader.read_to_string(&mut output).unwrap();
    assert_eq!(reap(birth), ExitStatus::Code(0), "{output}");
    output
}

/// Why nothing was executed.
fn failure(change: impl FnOnce(&mut Plan)) -> Failure {
    let cgroup = Cgroup::new();
    let (birth, mut reader) = start(&cgroup, "echo ran", Way::BornInside, change);
    let Verdict::Failed(failure) = verdict(&birth) else { panic!("it was executed") };
    let mut output = String::new();
    reader.read_to_string(&mut output).unwrap();
    assert_eq!((output.as_str(), reap(birth)), ("", ExitStatus::Code(127)));
    failure
}

const NOBODY: u32 = 65_534;

fn nobody() -> Identity {
    Identity { uid: NOBODY, gid: 3, groups: vec![5, 7] }
}

#[test]
fn g5_both_ways_lead_into_the_cgroup() {
    for way in [Way::BornInside, Way::MovesItself] {
        let cgroup = Cgroup::new();
        let (birth, mut reader) = start(&cgroup, "grep ^0:: /proc/self/cgroup", way, |_| {});
        assert_eq!(verdict(&birth), Verdict::Executed);
        let mut output = String::new();
        reader.read_to_string(&mut output).unwrap();
        assert!(output.trim_end().ends_with(&cgroup.name()), "{way:?}: {output}");
        assert_eq!(reap(birth), ExitStatus::Code(0));
    }
}

#[test]
fn g5_what_the_kernel_kills_at_birth_is_told_from_what_ran() {
    for killed in [
        |cgroup: &Cgroup| cgroup.kill(),
        |cgroup: &Cgroup| {
            fs::write(cgroup.parent.join("cgroup.kill"), "1").unwrap();
        },
    ] {
        let cgroup = Cgroup::new();
        killed(&cgroup);
        let (birth, mut reader) = start(&cgroup, "echo ran", Way::BornInside, |_| {});
        let mut output = String::new();
        reader.read_to_string(&mut output).unwrap();
        // A kernel may do without that.
        match verdict(&birth) {
            Verdict::Executed => assert_eq!((output.as_str(), reap(birth)), ("ran\n", ExitStatus::Code(0))),
            verdict => {
                assert_eq!((verdict, output.as_str()), (Verdict::KilledBefore, ""));
                assert_eq!(reap(birth), ExitStatus::Signal(libc::SIGKILL));
            }
        }
        let (birth, mut reader) = start(&cgroup, "echo ran", Way::MovesItself, |_| {});
        reader.read_to_string(&mut output).unwrap();
        assert_eq!(verdict(&birth), Verdict::Executed);
        assert!(output.ends_with("ran\n"));
        assert_eq!(reap(birth), ExitStatus::Code(0));
    }
}

#[test]
fn g5_a_program_killed_at_once_has_run_all_the_same() {
    let cgroup = Cgroup::new();
    let (birth, _reader) = start(&cgroup, "kill -KILL $$", Way::BornInside, |_| {});
    let mut fds = [PollFd::new(birth.pidfd().as_fd(), PollFlags::POLLIN)];
    assert_eq!(poll(&mut fds, PollTimeout::from(30_000u16)), Ok(1));
    assert_eq!(verdict(&birth), Verdict::Executed);
    assert_eq!(reap(birth), ExitStatus::Signal(libc::SIGKILL));
}

#[test]
fn g5_a_verdict_is_right_whenever_the_kill_comes() {
    let (mut before, mut after) = (0, 0);
    for round in 0_u32..300 {
        let cgroup = Cgroup::new();
        let (birth, mut reader) = start(&cgroup, "echo ran; exec sleep 600", Way::MovesItself, |_| {});
        for _ in 0..round * 1000 {
            std::hint::spin_loop();
        }
        nix::sys::signal::kill(birth.pid(), Signal::SIGKILL).unwrap();
        let mut output = String::new();
        reader.read_to_string(&mut output).unwrap();
        match verdict(&birth) {
            Verdict::KilledBefore => {
                assert_eq!(output, "");
                before += 1;
            }
            Verdict::Executed => after += 1,
            other => panic!("{other:?}"),
        }
        assert_eq!(reap(birth), ExitStatus::Signal(libc::SIGKILL));
    }
    println!("{before} before the exec, {after} after");
}

#[test]
fn g10_nothing_of_this_process_leaks_in() {
    // One without O_CLOEXEC, and a mask. What is ignored: SIGPIPE is in every Rust program.
    let leak = File::open("/etc/passwd").unwrap();
    nix::fcntl::fcntl(&leak, nix::fcntl::FcntlArg::F_SETFD(nix::fcntl::FdFlag::empty())).unwrap();
    let mut blocked = nix::sys::signal::SigSet::empty();
    blocked.add(Signal::SIGUSR2);
    blocked.thread_block().unwrap();
    let script = "for fd in /proc/self/fd/*; do echo ${fd##*/}; done; umask; pwd -P; tr '\\0' '\\n' </proc/self/environ; \
                  grep -E '^(Sig(Blk|Ign)|NoNewPrivs|CapAmb|CapInh)' /proc/self/status; readlink /proc/self/fd/0; \
                  read pid comm state ppid group session rest </proc/$$/stat; [ $$ = $session ] && echo leads";
    let output = output(script, |_| {});
    blocked.thread_unblock().unwrap();
    let zero = "0000000000000000";
    // The shell has its own list of descriptors open as 3.
    let expected = format!(
        "0\n1\n2\n3\n0022\n/\nPATH=/usr/bin:/bin\nONE=1\nNoNewPrivs:\t1\nSigBlk:\t{zero}\nSigIgn:\t{zero}\n\
         CapInh:\t{zero}\nCapAmb:\t{zero}\n/dev/null\nleads\n"
    );
    let sorted = |text: &str| {
        let mut lines: Vec<String> = text.lines().map(str::to_owned).collect();
        lines.sort();
        lines
    };
    assert_eq!(sorted(&output), sorted(&expected), "{output}");
}

#[test]
fn g10_user_groups_and_nothing_else() {
    let identity = nobody();
    let output = output("grep -E '^(Uid|Gid|Groups|CapEff|CapPrm|CapInh|CapAmb)' /proc/self/status", |plan| {
        plan.identity = Some(identity);
    });
    let none = "0000000000000000";
    assert_eq!(
        output,
        format!(
            "Uid:\t{NOBODY}\t{NOBODY}\t{NOBODY}\t{NOBODY}\nGid:\t3\t3\t3\t3\nGroups:\t5 7 \n\
             CapInh:\t{none}\nCapPrm:\t{none}\nCapEff:\t{none}\nCapAmb:\t{none}\n"
        )
    );
}

#[test]
fn g10_capabilities_are_those_given() {
    let bounding = Capabilities::from_iter([Capability::CAP_NET_BIND_SERVICE, Capability::CAP_CHOWN]);
    let ambient = Capabilities::from_iter([Capability::CAP_NET_BIND_SERVICE]);
    let script = "grep -E '^Cap' /proc/self/status";
    for no_new_privs in [true, false] {
        let privileges = Privileges { bounding: Some(bounding), ambient, no_new_privs };
        let of_user = output(script, |plan| {
            plan.identity = Some(nobody());
            plan.privileges = privileges;
        });
        let (one, both) = ("0000000000000400", "0000000000000401");
        let expected = format!("CapInh:\t{one}\nCapPrm:\t{one}\nCapEff:\t{one}\nCapBnd:\t{both}\nCapAmb:\t{one}\n");
        assert_eq!(of_user, expected);
        let of_root = output(script, |plan| plan.privileges = privileges);
        let expected = format!("CapInh:\t{one}\nCapPrm:\t{both}\nCapEff:\t{both}\nCapBnd:\t{both}\nCapAmb:\t{one}\n");
        assert_eq!(of_root, expected);
    }
}

#[test]
fn g10_a_user_is_set_by_a_shim_that_has_laid_its_capabilities_down() {
    let output = output("id -u; grep ^CapBnd /proc/self/status", |plan| {
        // This thread's, and so this test's alone.
        privileges::lay_down();
        plan.identity = Some(nobody());
        plan.privileges.bounding = Some(Capabilities::default());
    });
    assert_eq!(output, format!("{NOBODY}\nCapBnd:\t0000000000000000\n"));
}

#[test]
fn g10_a_capability_that_cannot_be_granted_is_named() {
    let missing = (0..41).find(|&number| {
        // SAFETY: takes integers.
        unsafe { libc::prctl(libc::PR_CAPBSET_READ, number, 0, 0, 0) == 0 }
    });
    let Some(missing) = missing else { return println!("skipped: this process has all capabilities") };
    let missing = u8::try_from(missing).unwrap();
    let failure = failure(|plan| plan.privileges.ambient = Capabilities(1 << missing));
    assert_eq!(failure, Failure { step: Step::Ambient(missing), errno: Errno::EPERM });
}

#[test]
fn g10_resource_limits_are_set_and_one_that_cannot_be_is_named() {
    let lower = ResourceLimit { resource: Resource::RLIMIT_NOFILE, soft: 30, hard: 40 };
    let core = ResourceLimit { resource: Resource::RLIMIT_CORE, soft: 0, hard: 0 };
    let text = output("ulimit -Sn; ulimit -Hn; ulimit -Hc", |plan| {
        plan.limits = vec![lower, core];
    });
    assert_eq!(text, "30\n40\n0\n");
    let wrong = ResourceLimit { resource: Resource::RLIMIT_NOFILE, soft: 40, hard: 30 };
    let failure = failure(|plan| plan.limits = vec![core, wrong]);
    assert_eq!(failure, Failure { step: Step::Limit(1), errno: Errno::EINVAL });
    assert_eq!(failure.to_string(), "cannot set resource limit 2: Invalid argument");
}

#[test]
fn g10_the_working_directory_is_entered_as_the_user() {
    let dir = std::env::temp_dir().join(format!("dunnage-launch-{}", Pid::this()));
    fs::create_dir(&dir).unwrap();
    fs::set_permissions(&dir, fs::Permissions::from_mode(0o700)).unwrap();
    assert_eq!(output("pwd -P", |plan| plan.cwd.clone_from(&dir)).trim_end(), dir.to_str().unwrap());
    let failure = failure(|plan| {
        plan.identity = Some(nobody());
        plan.cwd.clone_from(&dir);
    });
    fs::remove_dir(&dir).unwrap();
    assert_eq!(failure, Failure { step: Step::Cwd, errno: Errno::EACCES });
}

#[test]
fn what_cannot_be_executed_says_why() {
    let passwd = File::open("/etc/passwd").unwrap();
    let failure = failure(|plan| plan.executable = passwd);
    assert_eq!(failure, Failure { step: Step::Execute, errno: Errno::EACCES });
    assert_eq!(failure.to_string(), "cannot execute it: Permission denied");
}

#[test]
fn oom_score_is_put_back() {
    let output = output("cat /proc/self/oom_score_adj", |plan| {
        plan.oom_score_adj = Some(700);
        plan.identity = Some(nobody());
    });
    assert_eq!(output, "700\n");
}

#[test]
fn there_is_no_verdict_before_there_is_one() {
    let cgroup = Cgroup::new();
    fs::write(cgroup.path.join("cgroup.freeze"), "1").unwrap();
    let (birth, _reader) = start(&cgroup, "exit 3", Way::BornInside, |_| {});
    assert_eq!(birth.progress(), Progress::Waiting);
    fs::write(cgroup.path.join("cgroup.freeze"), "0").unwrap();
    assert_eq!(verdict(&birth), Verdict::Executed);
    assert_eq!(reap(birth), ExitStatus::Code(3));
}

/// A child that lives without a program and holds nothing of the report, as in the middle of an execve or of its end.
/// It executes `program` once it is told to, and ends if that is none.
fn closed_before_its_program(program: &CStr) -> (Birth, io::PipeWriter) {
    let (report, writer) = pipe2(OFlag::O_CLOEXEC | OFlag::O_NONBLOCK).unwrap();
    drop(writer);
    let (gate, go) = io::pipe().unwrap();
    let args = [program.as_ptr(), ptr::null()];
    // SAFETY: the child keeps to calls that are safe there, on what lives in its copy of this memory, and never returns.
    let child = unsafe {
        let child = child::fork().unwrap();
        if child.is_none() {
            let mut byte = 0_u8;
            libc::close(go.as_raw_fd());
            libc::read(gate.as_raw_fd(), (&raw mut byte).cast(), 1);
            libc::execv(args[0], args.as_ptr());
            libc::_exit(1);
        }
        child
    };
    let (pid, pidfd) = child.expect("this is the parent");
    (Birth::new(pid, pidfd, report), go)
}

#[test]
fn g5_what_closes_its_descriptors_before_it_has_executed_is_waited_for() {
    for (program, wanted, status) in
        [(c"/bin/true", Verdict::Executed, 0), (c"/does/not/exist", Verdict::KilledBefore, 1)]
    {
        let (birth, go) = closed_before_its_program(program);
        wait_for(&birth);
        assert_eq!(birth.progress(), Progress::Settling);
        drop(go);
        assert_eq!(verdict(&birth), wanted);
        assert_eq!(reap(birth), ExitStatus::Code(status));
    }
}
