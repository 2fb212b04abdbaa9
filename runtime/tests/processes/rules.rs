//! One test for each rule that the kernel has a part in. Runtimes are shell scripts; `$F` is their PID file.

use std::ffi::{CStr, CString};
use std::fs::{self, File};
use std::os::fd::AsFd;
use std::path::PathBuf;
use std::process::Command;
use std::time::{Duration, Instant};

use dunnage_runtime::driver::{Broadcasted, StartError};
use dunnage_runtime::privileges;
use dunnage_runtime::reaper::{CallSpec, ChildId, ExitStatus, Failure, Outcome, Timeout, Timing};
use dunnage_runtime::sys::{Answer, Birth, Launch, Privileges, Progress, Task, Verdict, Way};
use nix::mount::{MsFlags, mount};
use nix::sys::signal::{SigSet, Signal};
use nix::unistd::Pid;

use super::shim::{CREATE, EXEC, Shim, ms, patience, short, state_of, time_on_cpu, zombies};

macro_rules! rules {
    ($($name:ident),* $(,)?) => {
        /// All tests by name.
        pub(crate) const RULES: &[(&str, fn())] = &[$((stringify!($name), $name)),*];
    };
}

rules! {
    r1_every_status_goes_to_its_owner_while_orphans_die,
    r2_a_process_that_ends_before_its_runtime_keeps_its_status,
    r3_an_orphan_is_reaped_after_its_grace,
    r3_an_init_that_waits_for_the_zombies_of_a_failed_exec_can_exit,
    r4_a_recycled_pid_is_not_accepted,
    r7_at_rest_there_is_no_timer,
    r8_ten_thousand_orphans_hold_nothing_up,
    r9_a_signal_to_all_reaches_every_process_of_the_container_and_no_other,
    r9_a_signal_to_all_of_an_exec_leaves_the_container_alone,
    r9_sigkill_to_all_leaves_nothing_of_what_forks_all_the_time,
    r9_a_signal_to_all_reaches_processes_of_other_users,
    r9_a_signal_to_all_that_cannot_be_found_stops_nobody,
    r10_a_stranger_is_neither_accepted_nor_killed,
    r11_a_status_that_another_reaped_comes_from_the_kernel,
    r11_a_status_that_nobody_reaps_is_unknown,
    r11_a_zombie_that_comes_down_to_the_shim_is_reaped,
    r11_a_zombie_of_another_user_is_waited_for,
    r12_a_runtime_that_hangs_is_killed_with_its_group,
    r12_a_runtime_that_ignores_sigkill_holds_nothing_up,
    r13_calls_go_on_beside_a_runtime_that_hangs,
    r14_a_failed_runtime_still_writes_its_pid_file,
    r15_a_failed_call_kills_its_process_and_no_other,
    r16_a_terminal_that_does_not_come_fails_the_call,
    r17_an_exec_is_killed_with_every_descendant,
    r17_a_storm_of_forks_does_not_get_away,
    r17_an_exec_that_ended_in_time_keeps_its_status,
    r18_a_signal_goes_to_the_process_and_not_its_group,
    r19_a_shutdown_tells_and_then_kills,
    r20_a_process_stuck_in_the_kernel_is_named,
    r22_the_status_of_a_task_is_not_swept,
    g5_what_was_executed_is_known_until_it_is_asked_for,
    g10_neither_mask_nor_umask_leaks_in,
    r22_a_process_with_thousands_of_children_is_killed_in_slices,
    r22_many_execs_killed_at_once_share_a_turn,
    r22_a_signal_to_thousands_is_sent_in_slices,
}

/// A process that lives until it is killed.
const LIVES: &str = "sleep 1000 & echo -n $! > $F";

/// Has a command run as somebody who is not root.
const OF_USER: &str = "setpriv --reuid 1000 --regid 1000 --clear-groups";

fn is_alive(pid: Pid) -> bool {
    !matches!(state_of(pid), None | Some('Z' | 'X'))
}

fn failure(shim: &mut Shim) -> Failure {
    match shim.next() {
        Outcome::Failed { failure, .. } => failure,
        other => panic!("not failed: {other:?}"),
    }
}

fn r1_every_status_goes_to_its_owner_while_orphans_die() {
    let mut shim = Shim::new(short());
    for code in 0..20 {
        // The orphans are there before, during and after.
        let script = format!("(sleep 0.01 &) ; (true &) ; (sleep 0.2; exit {code}) & echo -n $! > $F");
        let (child, _) = shim.started(CREATE, &script);
        assert_eq!(shim.exited(child), ExitStatus::Code(code));
    }
    let (child, _) = shim.started(CREATE, "sh -c 'sleep 0.2; kill -40 $$' & echo -n $! > $F");
    assert_eq!(shim.exited(child), ExitStatus::Signal(40));
    shim.run_until("orphans are swept", || zombies() == 0);
}

fn r2_a_process_that_ends_before_its_runtime_keeps_its_status() {
    let mut shim = Shim::new(short());
    // It is the shim's zombie, unclaimed for far longer than the grace, until the runtime names it.
    let (child, _) = shim.started(CREATE, "(sh -c 'sleep 0.2; exit 7' & echo -n $! > $D/p); sleep 1; cp $D/p $F");
    assert_eq!(shim.exited(child), ExitStatus::Code(7));
}

fn r3_an_orphan_is_reaped_after_its_grace() {
    let mut shim = Shim::new(short());
    let call = shim.call(CREATE, "(true &) ; exit 3");
    let Outcome::Failed { call: failed, .. } = shim.next() else { panic!("not failed") };
    assert_eq!(call, failed);
    shim.run_until("the orphan is swept", || zombies() == 0);
}

fn r3_an_init_that_waits_for_the_zombies_of_a_failed_exec_can_exit() {
    let mut shim = Shim::new(short());
    let below = "until P=$(cat /proc/$U/task/$U/children) && [ -n \"$P\" ]; do :; done; kill -9 $U";
    let (container, init) = shim.started(CREATE, &format!("unshare -pf sleep 1000 & U=$!; {below}; echo -n $P > $F"));
    // A process in there whose nsenter is gone: the shim's, and nobody has named it.
    let call = shim.call(EXEC, &format!("nsenter -t {init} -p sleep 0.1 & U=$!; {below}; echo $P > $D/exec; exit 1"));
    assert!(matches!(shim.next(), Outcome::Failed { call: failed, .. } if failed == call));
    let inside = shim.pid_in("exec");
    let until = Instant::now() + patience();
    while is_alive(inside) {
        assert!(Instant::now() < until, "the exec does not end");
    }
    shim.driver.signal_child(&shim.event_loop, Instant::now(), container, Signal::SIGKILL);
    assert_eq!(shim.exited(container), ExitStatus::Signal(9));
    assert_eq!(state_of(inside), None);
}

fn r4_a_recycled_pid_is_not_accepted() {
    // In this PID namespace alone. PIDs come again from 300 on.
    fs::write("/proc/sys/kernel/pid_max", "400").unwrap();
    let mut shim = Shim::new(Timing { orphan_max_defer: ms(300), ..short() });
    let call = shim.call(
        EXEC,
        // Above 300, so that the PID comes again.
        "until (sleep 0.05 & echo -n $! > $D/p); [ $(cat $D/p) -gt 300 ]; do :; done
         P=$(cat $D/p); while [ -d /proc/$P ]; do :; done
         until sleep 1000 & [ $! = $P ]; do kill -9 $!; wait $!; done
         echo -n $P > $F",
    );
    let outcome = shim.next();
    let pid = shim.pid_in("p");
    assert_eq!(outcome, Outcome::Failed { call, failure: Failure::Swept(pid) });
    assert!(is_alive(pid), "whoever has the PID now is left alone");
}

fn r7_at_rest_there_is_no_timer() {
    let mut shim = Shim::new(short());
    shim.started(CREATE, LIVES);
    shim.call(EXEC, "(true &) ; exit 1");
    failure(&mut shim);
    shim.run_until("the orphan is swept", || zombies() == 0);
    // The SIGCHLD of the last that was reaped may ask for one more look, a moment after the last one.
    shim.run_to_rest();
}

fn r8_ten_thousand_orphans_hold_nothing_up() {
    let mut shim = Shim::new(short());
    let (container, _) = shim.started(CREATE, LIVES);
    // They are all there before the loop sees the first.
    for _ in 0..10_000 {
        drop(Command::new("/bin/true").spawn().unwrap());
    }
    let until = Instant::now() + patience();
    while zombies() < 10_000 {
        assert!(Instant::now() < until, "{} zombies only", zombies());
    }
    shim.longest_round = Duration::ZERO;
    shim.run_until("the flood is swept", || zombies() == 0);
    assert!(shim.longest_round < ms(50), "a round took {:?}", shim.longest_round);
    println!("the longest of the rounds ran for {:?}", shim.longest_round);
    shim.driver.signal_child(&shim.event_loop, Instant::now(), container, Signal::SIGKILL);
    assert_eq!(shim.exited(container), ExitStatus::Signal(9));
}

/// A shell script of that name that notes each SIGUSR1 in a file of that name, once it has written its PID to another.
fn write_noter(shim: &Shim, name: &str) {
    let script = format!("trap \"echo got >> $D/{name}\" USR1; echo $$ > $D/{name}.pid; while :; do sleep 0.05; done");
    fs::write(shim.path(&format!("{name}.sh")), script).unwrap();
}

/// Runs the loop until each of these files has a line.
fn until_written(shim: &mut Shim, names: &[String]) {
    let paths: Vec<PathBuf> = names.iter().map(|name| shim.path(name)).collect();
    let has_a_line = |path: &PathBuf| fs::read_to_string(path).is_ok_and(|text| text.ends_with('\n'));
    shim.run_until(&names.join(", "), || paths.iter().all(has_a_line));
}

fn until_noting(shim: &mut Shim, names: &[&str]) {
    until_written(shim, &names.iter().map(|name| format!("{name}.pid")).collect::<Vec<_>>());
}

/// Each of them got the signal, and got it once.
fn each_noted_one(shim: &mut Shim, names: &[&str]) {
    until_written(shim, &names.iter().map(ToString::to_string).collect::<Vec<_>>());
    for name in names {
        assert_eq!(fs::read_to_string(shim.path(name)).unwrap(), "got\n", "{name}");
    }
}

/// The main process of a container, one below it, and a daemon whose parent has ended.
const OF_CONTAINER: [&str; 3] = ["main", "below", "daemon"];

fn container_of_three(shim: &mut Shim) -> ChildId {
    for name in OF_CONTAINER {
        write_noter(shim, name);
    }
    let script = "sh $D/below.sh & (setsid sh $D/daemon.sh &); . $D/main.sh";
    let (container, _) = shim.started(CREATE, &format!("export D; setsid sh -c '{script}' & echo -n $! > $F"));
    until_noting(shim, &OF_CONTAINER);
    container
}

fn r9_a_signal_to_all_reaches_every_process_of_the_container_and_no_other() {
    let mut shim = Shim::new(short());
    let container = container_of_three(&mut shim);
    write_noter(&shim, "exec");
    shim.started(EXEC, "export D; sh $D/exec.sh & echo -n $! > $F");
    // The runtime of a call is no process of the container's.
    write_noter(&shim, "runtime");
    shim.call(EXEC, "export D; . $D/runtime.sh");
    until_noting(&mut shim, &["exec", "runtime"]);
    shim.signal_all(container, Signal::SIGUSR1);
    each_noted_one(&mut shim, &OF_CONTAINER);
    each_noted_one(&mut shim, &["exec"]);
    assert!(!shim.path("runtime").exists());
    assert!(is_alive(Pid::from_raw(std::env::var("STRANGER").unwrap().parse().unwrap())));
}

fn r9_a_signal_to_all_of_an_exec_leaves_the_container_alone() {
    let mut shim = Shim::new(short());
    container_of_three(&mut shim);
    let names = ["exec", "child"];
    for name in names {
        write_noter(&shim, name);
    }
    let script = "export D; sh -c 'setsid sh $D/child.sh & . $D/exec.sh' & echo -n $! > $F";
    let (exec, _) = shim.started(EXEC, script);
    until_noting(&mut shim, &names);
    shim.signal_all(exec, Signal::SIGUSR1);
    each_noted_one(&mut shim, &names);
    for name in OF_CONTAINER {
        assert!(!shim.path(name).exists(), "{name} got a signal that was not for it");
    }
}

fn r9_sigkill_to_all_leaves_nothing_of_what_forks_all_the_time() {
    let mut shim = Shim::new(short());
    let storm = "(while :; do setsid sleep 1000 & done) &";
    let (container, _) = shim.started(CREATE, &format!("setsid sh -c '{storm} {storm} wait' & echo -n $! > $F"));
    shim.run_until("it forks", || living() > 50);
    shim.signal_all(container, Signal::SIGKILL);
    assert_eq!(shim.exited(container), ExitStatus::Signal(9));
    shim.run_until("all are dead", || living() == 0);
    assert!(shim.longest_round < ms(50), "a round took {:?}", shim.longest_round);
}

fn r9_a_signal_to_all_reaches_processes_of_other_users() {
    let mut shim = Shim::new(short());
    privileges::lay_down();
    for signal in [Signal::SIGTERM, Signal::SIGKILL] {
        let script = format!("setsid {OF_USER} sh -c 'sleep 1000 & sleep 1000 & wait' & echo -n $! > $F");
        let (container, _) = shim.started(CREATE, &script);
        shim.run_until("all are there", || living() == 3);
        shim.signal_all(container, signal);
        assert_eq!(shim.exited(container), ExitStatus::Signal(signal as i32));
        shim.run_until("all are dead", || living() == 0);
    }
}

fn r9_a_signal_to_all_that_cannot_be_found_stops_nobody() {
    let mut shim = Shim::new(short());
    let (container, pid) = shim.started(CREATE, LIVES);
    // The mounts are the test's own.
    assert!(Command::new("mount").args(["-t", "tmpfs", "none", "/proc"]).status().unwrap().success());
    let id = shim.driver.signal_all(Instant::now(), container, Signal::SIGKILL).unwrap();
    shim.driver.handle_timeout(&shim.event_loop, Instant::now());
    assert_eq!(shim.driver.poll_broadcast(), Some(Broadcasted { id, reached: false }));
    assert!(Command::new("umount").args(["--no-mtab", "/proc"]).status().unwrap().success());
    assert_ne!(state_of(pid), Some('T'));
}

/// A runtime's script: a process with so many children that do nothing, all of them there before its PID is.
fn parent_of(count: u32) -> String {
    let child = "( read nothing < $D/fifo ) &";
    format!(
        "export D; mkfifo $D/fifo; setsid sh -c 'I=0; while [ $I -lt {count} ]; do {child} I=$((I+1)); done
         : > $D/ready; wait' & until [ -e $D/ready ]; do sleep 0.1; done; echo -n $! > $F"
    )
}

fn r22_a_process_with_thousands_of_children_is_killed_in_slices() {
    let mut shim = Shim::new(short());
    let (_, pid) = shim.started(with_timeout(100), &parent_of(4_000));
    let began = Instant::now();
    timed_out(&mut shim);
    println!("killed in {:?}, the longest round ran for {:?}", began.elapsed(), shim.longest_round);
    assert_eq!(state_of(pid), None);
    shim.run_until("all are dead and swept", || living() == 0 && zombies() == 0);
    assert!(shim.longest_round < ms(50), "a round took {:?}", shim.longest_round);
}

fn r22_many_execs_killed_at_once_share_a_turn() {
    let mut shim = Shim::new(short());
    // 32 trees of 40 each, whose time is over in the same moment.
    let tree = "setsid sh -c 'I=0; while [ $I -lt 40 ]; do sleep 1000 & I=$((I+1)); done; wait' & echo -n $! > $F";
    let execs: Vec<ChildId> = (0..32).map(|_| shim.started(EXEC, tree).0).collect();
    shim.run_until("all are there", || living() == 32 * 41);
    shim.longest_round = Duration::ZERO;
    let (began, ran) = (Instant::now(), time_on_cpu());
    for exec in &execs {
        shim.driver.cancel_child(&shim.event_loop, Instant::now(), *exec);
    }
    // What is asked for in one turn is begun in it. What else the machine does is not its fault.
    let ran = time_on_cpu().saturating_sub(ran);
    assert!(ran < ms(100), "{ran:?}");
    for _ in &execs {
        timed_out(&mut shim);
    }
    println!("killed in {:?}, the longest round ran for {:?}", began.elapsed(), shim.longest_round);
    assert!(shim.longest_round < ms(50), "a round took {:?}", shim.longest_round);
    shim.run_until("all are dead and swept", || living() == 0 && zombies() == 0);
}

fn r22_a_signal_to_thousands_is_sent_in_slices() {
    let mut shim = Shim::new(short());
    let (container, _) = shim.started(CREATE, &parent_of(4_000));
    let began = Instant::now();
    shim.signal_all(container, Signal::SIGTERM);
    println!("sent in {:?}, the longest round ran for {:?}", began.elapsed(), shim.longest_round);
    assert_eq!(shim.exited(container), ExitStatus::Signal(15));
    shim.run_until("all are dead and swept", || living() == 0 && zombies() == 0);
    assert!(shim.longest_round < ms(50), "a round took {:?}", shim.longest_round);
}

fn r10_a_stranger_is_neither_accepted_nor_killed() {
    let mut shim = Shim::new(short());
    let stranger = Pid::from_raw(std::env::var("STRANGER").unwrap().parse().unwrap());
    shim.call(CREATE, "echo -n $STRANGER > $F");
    assert_eq!(failure(&mut shim), Failure::NotOurs(stranger));
    shim.call(CREATE, "echo -n $STRANGER > $F; exit 1");
    assert_eq!(failure(&mut shim), Failure::Runtime(ExitStatus::Code(1)));
    for text in ["1", "0", "-7", "x"] {
        shim.call(CREATE, &format!("echo -n '{text}' > $F"));
        assert_eq!(failure(&mut shim), Failure::InvalidPid(format!("\"{text}\"")));
    }
    shim.call(CREATE, ": > $F");
    assert_eq!(failure(&mut shim), Failure::NoPid);
    assert!(is_alive(stranger));
}

/// A shell's sleep.
fn sleep(milliseconds: u64) -> String {
    format!("sleep {}", ms(milliseconds).as_secs_f64())
}

/// What is known of a status that another reaped: from 6.15 on the kernel tells.
fn as_the_kernel_tells(status: ExitStatus) -> ExitStatus {
    let release = fs::read_to_string("/proc/sys/kernel/osrelease").unwrap();
    let version: Vec<u32> = release.split(['.', '-']).map_while(|number| number.parse().ok()).take(2).collect();
    if version >= vec![6, 15] { status } else { ExitStatus::Unknown }
}

/// A process below one that stays, which does `then` when it has written the PID.
fn below(process: &str, then: &str) -> String {
    format!("sh -c '({process}) & echo -n $! > '$F'.new; mv '$F'.new '$F'; {then}' & until [ -e $F ]; do :; done")
}

fn r11_a_status_that_another_reaped_comes_from_the_kernel() {
    let mut shim = Shim::new(short());
    let (child, _) = shim.started(CREATE, &below(&format!("{}; exit 5", sleep(200)), "wait $!; exec sleep 1000"));
    assert_eq!(shim.exited(child), as_the_kernel_tells(ExitStatus::Code(5)));
    let (child, pid) = shim.started(CREATE, &below("exec sleep 1000", "wait $!; exec sleep 1000"));
    shim.driver.signal_child(&shim.event_loop, Instant::now(), child, Signal::SIGTERM);
    assert_eq!(shim.exited(child), as_the_kernel_tells(ExitStatus::Signal(15)));
    assert_eq!(state_of(pid), None);
}

fn r11_a_status_that_nobody_reaps_is_unknown() {
    let mut shim = Shim::new(short());
    let (child, pid) = shim.started(CREATE, &below(&format!("{}; exit 5", sleep(100)), "exec sleep 1000"));
    let began = Instant::now();
    assert_eq!(shim.exited(child), ExitStatus::Unknown);
    assert!(began.elapsed() >= ms(600));
    assert_eq!(state_of(pid), Some('Z'));
}

fn r11_a_zombie_that_comes_down_to_the_shim_is_reaped() {
    let mut shim = Shim::new(Timing { runtime_grace: Duration::from_secs(20), ..short() });
    let (child, pid) =
        shim.started(CREATE, &below(&format!("{}; exit 6", sleep(100)), &format!("exec {}", sleep(300))));
    assert_eq!(shim.exited(child), ExitStatus::Code(6));
    assert_eq!(state_of(pid), None);
}

fn r11_a_zombie_of_another_user_is_waited_for() {
    let mut shim = Shim::new(Timing { runtime_grace: Duration::from_secs(20), ..short() });
    privileges::lay_down();
    let process = format!("exec {OF_USER} sh -c \"{}; exit 6\"", sleep(100));
    let (child, pid) = shim.started(CREATE, &below(&process, &format!("exec {}", sleep(500))));
    assert_eq!(shim.exited(child), ExitStatus::Code(6));
    assert_eq!(state_of(pid), None);
}

fn r12_a_runtime_that_hangs_is_killed_with_its_group() {
    let limit = ms(300);
    let mut shim = Shim::new(Timing { create_runtime_timeout: limit, ..short() });
    shim.call(CREATE, "sleep 1000 & echo $! > $D/helper; wait");
    assert_eq!(failure(&mut shim), Failure::TimedOut(limit));
    let helper = shim.pid_in("helper");
    shim.run_until("the group is dead and swept", || state_of(helper).is_none());
}

fn r12_a_runtime_that_ignores_sigkill_holds_nothing_up() {
    let freezer = Freezer::new();
    let limit = ms(300);
    let mut shim = Shim::new(Timing { create_runtime_timeout: limit, ..short() });
    let call = shim.call(CREATE, &format!("echo $$ > $D/runtime; {}", freezer.freeze_self()));
    let began = Instant::now();
    assert!(matches!(shim.next(), Outcome::Failed { call: failed, .. } if failed == call));
    assert!(began.elapsed() >= ms(600), "it had its grace");
    let runtime = shim.pid_in("runtime");
    assert!(is_alive(runtime));
    freezer.thaw();
    shim.run_until("it died and is swept", || state_of(runtime).is_none());
}

fn r13_calls_go_on_beside_a_runtime_that_hangs() {
    let mut shim = Shim::new(short());
    shim.call(CREATE, "sleep 1000");
    let (child, _) = shim.started(EXEC, "(sleep 0.3; exit 4) & echo -n $! > $F");
    assert_eq!(shim.exited(child), ExitStatus::Code(4));
}

fn r14_a_failed_runtime_still_writes_its_pid_file() {
    let mut shim = Shim::new(short());
    let call = shim.call(CallSpec { terminal: true, ..CREATE }, &format!("sleep 0.2; {LIVES}; cp $F $D/p; exit 1"));
    shim.driver.handle_terminal_failed(&shim.event_loop, Instant::now(), call);
    assert_eq!(failure(&mut shim), Failure::NoTerminal);
    assert_eq!(state_of(shim.pid_in("p")), None, "it was killed and reaped");
}

fn r15_a_failed_call_kills_its_process_and_no_other() {
    let mut shim = Shim::new(short());
    shim.call(CREATE, &format!("sleep 1000 & echo $! > $D/other; {LIVES}; cp $F $D/p; exit 1"));
    assert_eq!(failure(&mut shim), Failure::Runtime(ExitStatus::Code(1)));
    assert_eq!(state_of(shim.pid_in("p")), None, "it was killed and reaped");
    assert!(is_alive(shim.pid_in("other")));
}

fn r16_a_terminal_that_does_not_come_fails_the_call() {
    let mut shim = Shim::new(short());
    shim.call(CallSpec { terminal: true, ..CREATE }, &format!("{LIVES}; cp $F $D/p"));
    assert_eq!(failure(&mut shim), Failure::NoTerminal);
    assert_eq!(state_of(shim.pid_in("p")), None, "it was killed and reaped");
}

fn with_timeout(milliseconds: u64) -> CallSpec {
    CallSpec { timeout: Some(Timeout::SinceKnown(ms(milliseconds))), ..EXEC }
}

fn timed_out(shim: &mut Shim) {
    let outcome = shim.next();
    assert!(matches!(outcome, Outcome::TimedOut { .. }), "{outcome:?}");
}

fn r17_an_exec_is_killed_with_every_descendant() {
    let mut shim = Shim::new(short());
    let tree = "setsid sleep 1000 & echo $! > $D/a; sleep 1000 & echo $! > $D/b;
                setsid sh -c \"sleep 1000 & echo \\$! > $D/c; trap : TERM; wait\" & wait";
    let (_, pid) = shim.started(with_timeout(500), &format!("export D; setsid sh -c '{tree}' & echo -n $! > $F"));
    timed_out(&mut shim);
    assert_eq!(state_of(pid), None, "it was reaped before");
    for name in ["a", "b", "c"] {
        // It was sent SIGKILL, and is gone as soon as it gets a processor.
        let pid = shim.pid_in(name);
        shim.run_until("a descendant is dead", || !is_alive(pid));
    }
    shim.run_until("all are swept", || zombies() == 0);
}

fn r17_a_storm_of_forks_does_not_get_away() {
    let mut shim = Shim::new(short());
    let storm = "while :; do setsid sleep 1000 & done";
    let (_, _) = shim.started(with_timeout(300), &format!("setsid sh -c '{storm}' & echo -n $! > $F"));
    timed_out(&mut shim);
    let longest_round = shim.longest_round;
    shim.run_until("all are dead", || living() == 0);
    assert!(longest_round < ms(50), "a round took {longest_round:?}");
    shim.run_until("all are swept", || zombies() == 0);
}

/// How many processes live in this PID namespace, but for its init, the stranger and this one.
fn living() -> usize {
    let processes = fs::read_dir("/proc").unwrap().filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok());
    processes.map(Pid::from_raw).filter(|&pid| pid.as_raw() > 2 && pid != Pid::this() && is_alive(pid)).count()
}

fn r17_an_exec_that_ended_in_time_keeps_its_status() {
    let mut shim = Shim::new(short());
    let (child, pid) = shim.started(with_timeout(300), "(sleep 0.05; exit 4) & echo -n $! > $F");
    // The loop is held up until long after.
    let (until, deadline) = (Instant::now() + patience(), Instant::now() + ms(300));
    while is_alive(pid) || Instant::now() < deadline {
        assert!(Instant::now() < until, "it does not end");
    }
    assert_eq!(shim.exited(child), ExitStatus::Code(4));
}

fn r18_a_signal_goes_to_the_process_and_not_its_group() {
    let mut shim = Shim::new(short());
    let script = "setsid sh -c 'sleep 1000 & echo $! > '$D'/other; exec sleep 1000' & echo -n $! > $F
                  until [ -s $D/other ]; do :; done";
    let (child, _) = shim.started(CREATE, script);
    shim.driver.handle_termination(&shim.event_loop, Instant::now(), Signal::SIGTERM);
    assert_eq!(shim.exited(child), ExitStatus::Signal(15));
    assert!(is_alive(shim.pid_in("other")));
}

/// A shutdown's bounds, short.
fn shutdown_timing() -> Timing {
    Timing {
        in_flight_wait: ms(200),
        stopped_exit_wait: ms(50),
        stopped_output_wait: ms(20),
        stop_budget: ms(1_100),
        ..short()
    }
}

fn r19_a_shutdown_tells_and_then_kills() {
    let mut shim = Shim::new(shutdown_timing());
    let deaf = "sh -c 'trap \"\" TERM; : > '$D'/deaf; while :; do sleep 1; done' & echo -n $! > $F
                until [ -e $D/deaf ]; do :; done";
    let (deaf, _) = shim.started(CREATE, deaf);
    let (good, _) = shim.started(CREATE, LIVES);
    let hanging = shim.call(EXEC, "sleep 1000");
    let began = Instant::now();
    shim.shutdown(ms(1_500));
    assert!(matches!(shim.try_call(EXEC, LIVES), Err(StartError::ShuttingDown)));
    assert_eq!(shim.exited(good), ExitStatus::Signal(15));
    assert!(matches!(shim.next(), Outcome::Failed { call, failure: Failure::ShuttingDown } if call == hanging));
    let until = Instant::now() + patience();
    let mut outcomes = Vec::new();
    while outcomes.len() < 2 && Instant::now() < until {
        outcomes.extend(shim.outcomes());
    }
    let expected = [Outcome::Exited { child: deaf, status: ExitStatus::Signal(9) }, Outcome::ShutDown { left: vec![] }];
    assert_eq!(outcomes, expected);
    assert!((ms(400)..ms(1_500)).contains(&began.elapsed()), "{:?}", began.elapsed());
}

fn r20_a_process_stuck_in_the_kernel_is_named() {
    let freezer = Freezer::new();
    let mut shim = Shim::new(shutdown_timing());
    let script = format!("sh -c '{}' & echo -n $! > $F", freezer.freeze_self());
    let (_, pid) = shim.started(CREATE, &script);
    freezer.wait_until_frozen();
    let began = Instant::now();
    shim.shutdown(ms(1_200));
    assert_eq!(shim.next(), Outcome::ShutDown { left: vec![pid] });
    assert!(began.elapsed() >= ms(1_200));
    freezer.thaw();
}

/// A cgroup of the v1 freezer: what is frozen in it does not die of SIGKILL.
struct Freezer(PathBuf);

impl Freezer {
    fn new() -> Self {
        let name = fs::read_link("/proc/self/ns/pid").unwrap();
        let mut freezer = PathBuf::from("/sys/fs/cgroup/freezer");
        if !freezer.exists() {
            // Over the others, in the mount namespace of the test.
            freezer = "/sys/fs/cgroup".into();
            mount(None::<&str>, &freezer, Some("cgroup"), MsFlags::empty(), Some("freezer")).unwrap();
        }
        let dir = freezer.join(format!("dunnage-{}", name.display()));
        fs::create_dir(&dir).unwrap();
        Self(dir)
    }

    /// What a shell does to be frozen.
    fn freeze_self(&self) -> String {
        let dir = self.0.display();
        format!("echo $$ > {dir}/cgroup.procs; echo FROZEN > {dir}/freezer.state; sleep 1000")
    }

    fn wait_until_frozen(&self) {
        let until = Instant::now() + patience();
        while fs::read_to_string(self.0.join("freezer.state")).unwrap().trim() != "FROZEN" {
            assert!(Instant::now() < until, "it is not frozen");
        }
    }

    fn thaw(&self) {
        fs::write(self.0.join("freezer.state"), "THAWED").unwrap();
    }
}

impl Drop for Freezer {
    fn drop(&mut self) {
        self.thaw();
        for pid in fs::read_to_string(self.0.join("cgroup.procs")).unwrap_or_default().lines() {
            if let Ok(pid) = pid.parse() {
                let _ = nix::sys::signal::kill(Pid::from_raw(pid), Signal::SIGKILL);
            }
        }
        let until = Instant::now() + patience();
        while fs::remove_dir(&self.0).is_err() && Instant::now() < until {}
    }
}

fn r22_the_status_of_a_task_is_not_swept() {
    let mut shim = Shim::new(Timing { orphan_grace: Duration::ZERO, ..short() });
    let mut tasks: Vec<Task> = Vec::new();
    for number in 0..20_u8 {
        let work = || Ok(Answer { bytes: vec![number], fds: Vec::new() });
        tasks.push(shim.driver.start_task(&shim.event_loop, &[], work).unwrap());
    }
    for _ in 0..tasks.len() {
        assert!(matches!(shim.next(), Outcome::Exited { status: ExitStatus::Code(0), .. }));
    }
    for (number, task) in (0..).zip(&mut tasks) {
        assert_eq!(task.advance().unwrap().unwrap().bytes, [number]);
    }
    // One that is given up is killed, and reaped as well.
    let work = || {
        std::thread::sleep(Duration::from_secs(600));
        Ok(Answer::default())
    };
    drop(shim.driver.start_task(&shim.event_loop, &[], work).unwrap());
    assert!(matches!(shim.next(), Outcome::Exited { status: ExitStatus::Signal(9), .. }));
    assert_eq!((shim.driver.orphans_swept(), zombies()), (0, 0));
}

/// Starts a program, with what it prints in that file, in the topmost cgroup.
fn launch(path: &str, args: &[CString], output: &File) -> Birth {
    let root = ["/sys/fs/cgroup/unified", "/sys/fs/cgroup"].map(PathBuf::from);
    let root = root.iter().find(|root| root.join("cgroup.procs").exists()).expect("a cgroup2 mount");
    let (cgroup, null) = (File::open(root).unwrap(), File::open("/dev/null").unwrap());
    let program = File::open(path).unwrap();
    let launch = Launch {
        executable: program.as_fd(),
        args,
        environment: &[],
        cgroup: cgroup.as_fd(),
        stdio: [null.as_fd(), output.as_fd(), output.as_fd()],
        cwd: c"/",
        identity: None,
        privileges: Privileges::default(),
        limits: &[],
        oom_score_adj: None,
    };
    launch.start(Way::MovesItself).unwrap()
}

fn g10_neither_mask_nor_umask_leaks_in() {
    let mut shim = Shim::new(short());
    nix::sys::stat::umask(nix::sys::stat::Mode::from_bits_truncate(0o077));
    SigSet::from_iter([Signal::SIGUSR2, Signal::SIGTERM]).thread_block().unwrap();
    let path = shim.path("output");
    let args = [c"grep", c"-E", c"^(Umask|SigBlk)", c"/proc/self/status"].map(CStr::to_owned);
    // A shell would set its own mask.
    let birth = launch("/bin/grep", &args, &File::create(&path).unwrap());
    let child = shim.driver.expect_child(birth.pid());
    shim.driver.watch_child(&shim.event_loop, child, birth.into_spawned());
    assert_eq!(shim.exited(child), ExitStatus::Code(0));
    assert_eq!(fs::read_to_string(path).unwrap(), "Umask:\t0022\nSigBlk:\t0000000000000000\n");
}

fn g5_what_was_executed_is_known_until_it_is_asked_for() {
    let mut shim = Shim::new(short());
    let birth = launch("/bin/true", &[c"true".to_owned()], &File::create(shim.path("output")).unwrap());
    let pid = birth.pid();
    let child = shim.driver.expect_child(pid);
    shim.run_until("it is a zombie", || state_of(pid) == Some('Z'));
    // Others are swept meanwhile.
    let (other, _) = shim.started(CREATE, "(true &) ; (sleep 0.2; exit 3) & echo -n $! > $F");
    assert_eq!(shim.exited(other), ExitStatus::Code(3));
    shim.run_until("orphans are swept", || zombies() == 1);
    assert_eq!(birth.progress(), Progress::Decided(Verdict::Executed));
    shim.driver.watch_child(&shim.event_loop, child, birth.into_spawned());
    assert_eq!(shim.exited(child), ExitStatus::Code(0));
    assert_eq!(zombies(), 0);
}
