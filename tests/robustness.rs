//! What the shim does when everything around it misbehaves.

use std::fs;

use dunnage_testing::wait::{self, Arrivals, Deadline};
use dunnage_testing::{Out, Running, Sandbox, Script, Status, Step, SyncPipe, Tool, descriptors};
use nix::fcntl::{FcntlArg, OFlag, fcntl};
use nix::libc;
use nix::unistd::pipe2;

/// What the long side has open, standard streams aside.
fn open_files(running: &Running<'_>) -> Vec<String> {
    let fds = descriptors(&running.long().proc_dir()).expect("a living shim");
    fds.range(3..).map(|(_, fd)| fd.target.clone()).collect()
}

fn exists(sandbox: &Sandbox, file: &str) -> bool {
    sandbox.bundle().join(file).exists()
}

#[test]
fn b11_while_it_delays_a_shim_holds_nothing_and_forgets_the_log() {
    let sandbox = Sandbox::with(&Script::new([Step::out("hello\n"), Step::Exit(0)]));
    let ran = sandbox.root().join("ran");
    let command = [Step::run(&["/bin/touch", &ran.to_string_lossy()])];
    let mut monitor = sandbox.monitor(&Tool::under_test()).exit_command(&command).option("--exit-delay", "300").start();
    monitor.pid();
    let long = monitor.long();
    wait::eventually(Deadline::usual(), "the delay", || !exists(&sandbox, "attach"));
    wait::eventually(Deadline::usual(), "a shim that holds nothing but its loop", || {
        open_files(&monitor).iter().all(|file| file.starts_with("anon_inode:"))
    });
    // The caller may have removed it: nobody wants a new one.
    fs::remove_file(sandbox.log()).expect("a log");
    long.signal(libc::SIGUSR1);
    long.signal(libc::SIGTERM);
    monitor.end();
    assert!(ran.exists());
    assert!(!sandbox.log().exists());
}

#[test]
fn a_shim_told_to_end_while_clients_take_the_rest_does_not_delay() {
    let payload = [Step::wait("go"), Step::Lines(Out::Stdout, 20_000, 50), Step::fire("written"), Step::wait("end")];
    let sandbox = Sandbox::with(&Script::new(payload));
    let [go, written, end, ran] = ["go", "written", "end", "ran"].map(|name| sandbox.event(name));
    let command = [Step::fire("ran")];
    let mut monitor = sandbox.monitor(&Tool::under_test()).exit_command(&command).option("--exit-delay", "300").start();
    monitor.pid();
    // It never reads, so that the end waits a second for it.
    let _client = monitor.attach();
    go.fire();
    written.wait();
    end.fire();
    assert_eq!(monitor.exit_code(), "0");
    monitor.long().signal(libc::SIGTERM);
    ran.wait();
    monitor.end();
}

#[test]
fn r22_a_disk_that_does_not_answer_keeps_no_shim() {
    let sandbox = Sandbox::with(&Script::new([Step::out("hello\n"), Step::Exit(3)]));
    let ran = sandbox.event("ran");
    // Each takes longer than all bounds of tests.
    let slow =
        "exec strace -f -qq -o /dev/null -e trace=fsync,fdatasync -e inject=fsync,fdatasync:delay_enter=1000000000";
    let monitor = sandbox.monitor(&Tool::under_test()).exit_command(&[Step::fire("ran")]);
    let mut monitor = monitor.option("--runtime-grace", "1").through(slow).start();
    monitor.pid();
    assert_eq!(monitor.exit_code(), "3");
    let long = monitor.long();
    // It waits for the disk now, but for whoever tells it to end.
    wait::eventually(Deadline::usual(), "the attach socket to go", || !exists(&sandbox, "attach"));
    long.signal(libc::SIGTERM);
    ran.wait();
    monitor.end();
}

#[test]
fn an_exit_file_that_cannot_be_synced_does_not_keep_the_other_from_it() {
    let sandbox = Sandbox::with(&Script::new([Step::Exit(3)]));
    let trace = sandbox.root().join("trace");
    let fail = format!("exec strace -f -qq -o {} -e trace=fsync -e inject=fsync:error=EIO:when=1", trace.display());
    let mut monitor = sandbox.monitor(&Tool::under_test()).through(&fail).start();
    monitor.pid();
    monitor.end();
    let trace = fs::read_to_string(trace).expect("a trace");
    // The first file; the second and its directory.
    assert_eq!(trace.lines().filter(|line| line.contains("fsync(")).count(), 3, "{trace}");
}

#[test]
fn the_exit_code_is_written_although_clients_want_every_descriptor() {
    let sandbox = Sandbox::with(&Script::new([Step::Spawn(vec![Step::Hang]), Step::wait("end"), Step::Exit(7)]));
    let [end, ran] = ["end", "ran"].map(|name| sandbox.event(name));
    let command = [Step::fire("ran")];
    let monitor = sandbox.monitor(&Tool::under_test()).flag("-i").exit_command(&command).through("ulimit -n 30; exec");
    let mut monitor = monitor.start();
    monitor.pid();
    monitor.long();
    let _clients: Vec<_> = (0..60).map(|_| monitor.attach()).collect();
    end.fire();
    assert_eq!(monitor.exit_code(), "7");
    ran.wait();
    monitor.end();
}

#[test]
fn l01_without_dev_null_nothing_is_started() {
    let sandbox = Sandbox::with(&Script::new([Step::Exit(0)]));
    let private = "exec unshare --mount --propagation private sh -c 'mount -t tmpfs none /dev; exec \"$@\"' sh";
    let mut monitor = sandbox.monitor(&Tool::under_test()).through(private).start();
    assert_eq!(monitor.status(), Status::Exited(1));
    assert_eq!(monitor.stderr(), "dunnage: error: cannot open /dev/null: No such file or directory (os error 2)\n");
    assert_eq!(monitor.messages(), Vec::<serde_json::Value>::new());
    assert!(!sandbox.monitor_pid_file().exists());
}

#[test]
fn a_caller_that_never_reads_its_sync_pipe_is_given_up_although_signals_come() {
    let sandbox = Sandbox::with(&Script::new([Step::Exit(5)]));
    let (_reader, writer) = pipe2(OFlag::O_CLOEXEC | OFlag::O_NONBLOCK).expect("a pipe");
    while nix::unistd::write(&writer, &[b'x'; 4096]).is_ok() {}
    fcntl(&writer, FcntlArg::F_SETFL(OFlag::empty())).expect("a pipe that blocks");
    let monitor = sandbox.monitor(&Tool::under_test()).sync_pipe(SyncPipe::Absent);
    let monitor = monitor.fd(writer, 9).env("_OCI_SYNCPIPE", "9").start();
    let long = monitor.long();
    wait::eventually(Deadline::usual(), "a wait for the caller", || sandbox.pid_file().exists());
    for _ in 0..20 {
        long.signal(libc::SIGHUP);
        std::thread::sleep(std::time::Duration::from_millis(10));
    }
    assert_eq!(monitor.exit_code(), "5");
}

#[test]
fn i05_signals_that_come_as_soon_as_the_pid_is_known_are_survived() {
    for signal in [libc::SIGHUP, libc::SIGUSR1, libc::SIGUSR2, libc::SIGPIPE] {
        let sandbox = Sandbox::with(&Script::new([Step::Exit(5)]));
        let mut monitor = sandbox.monitor(&Tool::under_test()).start();
        monitor.long().signal(signal);
        monitor.pid();
        assert_eq!(monitor.exit_code(), "5", "signal {signal}");
    }
}

/// Past the user's limit of watches (`fs.epoll.max_user_watches`) the kernel refuses the ones for processes.
#[test]
fn r2_the_end_of_a_process_that_cannot_be_watched_is_noticed_all_the_same() {
    let sandbox = Sandbox::with(&Script::new([Step::wait("end"), Step::Exit(7)]));
    let end = sandbox.event("end");
    // The first two that fail are for the runtime and the container; those before are for signals, pipes, fifos and clients.
    let refuse = "-e trace=epoll_ctl -e inject=epoll_ctl:error=ENOSPC:when=7+2";
    let mut monitor = sandbox
        .monitor(&Tool::under_test())
        .option("--log-level", "warn")
        .through(&format!("exec strace -D -f -qqq -o \"$DUNNAGE_SANDBOX/trace\" {refuse}"))
        .start();
    monitor.pid();
    end.fire();
    assert_eq!(monitor.exit_code(), "7");
    monitor.end();
    let trace = fs::read_to_string(sandbox.root().join("trace")).expect("a trace");
    let refused = trace.lines().filter(|line| line.contains("EPOLL_CTL_ADD") && line.contains("INJECTED")).count();
    assert!(refused >= 2, "{trace}");
}

#[test]
fn r22_a_flood_of_requests_costs_turns_of_the_loop_and_not_one_reopening_each() {
    let sandbox = Sandbox::with(&Script::new([Step::wait("end"), Step::Exit(5)]));
    let end = sandbox.event("end");
    let mut monitor = sandbox.monitor(&Tool::under_test()).start();
    monitor.pid();
    let arrivals = Arrivals::watch(&[sandbox.root()]);
    // As many as the fifo holds at once.
    monitor.control(&"2 0 0\n".repeat(10_000));
    let mut reopened = 0;
    wait::eventually(Deadline::usual(), "a new log", || {
        reopened += new_logs(&arrivals);
        reopened > 0
    });
    end.fire();
    assert_eq!(monitor.exit_code(), "5");
    monitor.end();
    reopened += new_logs(&arrivals);
    assert!(reopened <= 40, "the log was reopened {reopened} times");
}

/// How many times a new log took its place.
fn new_logs(arrivals: &Arrivals) -> usize {
    arrivals.so_far().iter().filter(|(name, renamed)| name == "ctr.log" && *renamed).count()
}
