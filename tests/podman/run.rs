//! `podman run` in the foreground.

use dunnage_testing::wait::Deadline;
use dunnage_testing::{Log, Podman, Runtime, Status, script};
use std::fs;
use std::time::Duration;

/// The log drivers.
const DRIVERS: [&str; 2] = ["k8s-file", "none"];

#[test]
fn exit_codes() {
    let podman = Podman::new(Runtime::Runc);
    for driver in DRIVERS {
        let run = |code: &str| podman.run(&["run", "--log-driver", driver], &["sh", "-c", &format!("exit {code}")]);
        run("0").exited(0);
        run("3").exited(3);
        run("255").exited(255);
    }
}

#[test]
fn killed() {
    let podman = Podman::new(Runtime::Runc);
    let mut run = podman.start_container(&["run", "--name", "c"], &["sh", "-c", "echo ready; exec sleep 1000"]);
    run.expect("ready");
    podman.ok(&["kill", "c"]);
    assert_eq!(run.finish().status, Status::Exited(137));
    assert_eq!(podman.inspect("c", "{{.State.ExitCode}}"), "137");
}

#[test]
fn both_streams() {
    let podman = Podman::new(Runtime::Runc);
    for driver in DRIVERS {
        let script = "echo out; echo err >&2; printf 'no end'";
        let run = podman.run(&["run", "--log-driver", driver], &["sh", "-c", script]);
        assert_eq!(run.stderr(), "err\n");
        assert_eq!(run.ok(), "out\nno end");
    }
}

#[test]
fn ten_mib_through_cat() {
    let podman = Podman::new(Runtime::Runc);
    let bytes = script::noise(10 << 20, 1);
    for driver in DRIVERS {
        let mut run = podman.start_container(&["run", "-i", "--name", driver, "--log-driver", driver], &["cat"]);
        run.send(&bytes);
        let run = run.finish();
        assert_eq!(run.status, Status::Exited(0), "{}", run.stderr());
        assert!(run.stdout == bytes, "{} of {} bytes came back, or others", run.stdout.len(), bytes.len());
    }
    let log = fs::read(podman.inspect("k8s-file", "{{.HostConfig.LogConfig.Path}}")).expect("the log");
    assert!(Log::parse(&log).is(&bytes, b""), "the log has other bytes");
}

#[test]
fn ten_mib_of_output_to_the_end() {
    let podman = Podman::new(Runtime::Runc);
    let (bytes, volume) = podman.volume_with_noise(10 << 20);
    let run = podman.run(&["run", "--volume", &volume], &["sh", "-c", "cat /data/noise; exit 9"]);
    assert_eq!(run.status, Status::Exited(9), "{}", run.stderr());
    assert!(run.stdout == bytes, "{} of {} bytes came, or others", run.stdout.len(), bytes.len());
}

#[test]
fn stdin_is_closed_without_i() {
    let podman = Podman::new(Runtime::Runc);
    let mut run = podman.start_container(&["run"], &["cat"]);
    run.send(b"nobody reads this");
    assert_eq!(run.finish().ok(), "");
}

#[test]
fn removed_at_its_end() {
    let podman = Podman::new(Runtime::Runc);
    podman.run(&["run", "--rm"], &["sh", "-c", "exit 4"]).exited(4);
    // The exit command removes it too, and is faster or slower than Podman itself.
    podman.all_ended();
    assert_eq!(podman.ok(&["ps", "--all", "--quiet"]), "");
    podman.run(&["run", "--rm", "--detach"], &["true"]).ok();
    podman.all_ended();
    assert_eq!(podman.ok(&["ps", "--all", "--quiet"]), "");
}

#[test]
fn twenty_at_once() {
    let podman = Podman::new(Runtime::Runc);
    let names: Vec<String> = (0..20).map(|number| format!("c{number}")).collect();
    // Twenty Podmans at once take their time on a small machine.
    let bound = || Deadline::after(Duration::from_secs(120));
    let runs: Vec<_> = names
        .iter()
        .map(|name| {
            let script = format!("echo {name}; read line; echo $line; exit ${{line#c}}");
            let mut run = podman.start_container(&["run", "-i", "--name", name], &["sh", "-c", &script]);
            run.send(format!("{name}\n").as_bytes());
            run
        })
        .collect();
    for (number, (name, run)) in names.iter().zip(runs).enumerate() {
        let code = i32::try_from(number).expect("a small number");
        assert_eq!(run.finish_by(bound()).exited(code), format!("{name}\n{name}\n"));
    }
    for name in &names {
        assert_eq!(podman.ok(&["logs", name]), format!("{name}\n{name}\n"));
    }
    podman.start(&["rm", "--all"]).finish_by(bound()).ok();
}
