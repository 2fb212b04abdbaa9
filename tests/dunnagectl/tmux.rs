//! `dunnagectl` as a person uses it: typed at a shell's prompt in tmux, and seen on its screen.

use std::ffi::OsString;
use std::fs;
use std::path::PathBuf;

use dunnage_testing::wait::{self, Deadline};
use dunnage_testing::{Bundle, Dunnagectl, Program, Running, Runtime, Sandbox, dunnagectl};

/// A shell in a window of a tmux of its own, which ends with the sandbox.
struct Shell {
    socket: PathBuf,
    environment: Vec<(OsString, OsString)>,
}

impl Shell {
    /// A window of 24 rows and 80 columns, at the prompt.
    fn new(sandbox: &Sandbox) -> Self {
        let program = dunnagectl::path();
        let programs = program.parent().expect("it is in a directory").display();
        let mut environment = Dunnagectl::new(sandbox).environment();
        environment.retain(|(name, _)| name != "PATH");
        environment.push(("PATH".into(), format!("{programs}:/usr/bin:/bin").into()));
        let shell = Self { socket: sandbox.root().join("tmux"), environment };
        shell.tmux(&["-f", "/dev/null", "new-session", "-d", "-x", "80", "-y", "24", "exec sh"]);
        shell.shows("#");
        shell
    }

    fn tmux(&self, args: &[&str]) -> String {
        let tmux = ["/usr/bin/tmux".into(), "-S".into(), self.socket.clone().into()];
        let command: Vec<OsString> = tmux.into_iter().chain(args.iter().map(OsString::from)).collect();
        Program::start(&command, &self.environment).finish().ok()
    }

    /// Types text, with no key after it.
    fn types(&self, text: &str) {
        self.tmux(&["send-keys", "-l", text]);
    }

    /// Presses keys, as tmux names them.
    fn presses(&self, keys: &[&str]) {
        self.tmux(&[&["send-keys"], keys].concat());
    }

    /// Types a command, whose status is shown after its end. The screen is empty before.
    fn runs(&self, command: &str) {
        self.tmux(&["send-keys", "-R"]);
        self.types(&format!("{command}; echo \"status=$?=\""));
        self.presses(&["Enter"]);
    }

    /// Waits until the screen has this text.
    fn shows(&self, text: &str) {
        self.is(&format!("{text:?}"), |screen| screen.contains(text));
    }

    fn is(&self, what: &str, wanted: impl Fn(&str) -> bool) {
        let mut screen = String::new();
        let shown = wait::whether(Deadline::usual(), || {
            screen = self.tmux(&["capture-pane", "-p"]);
            wanted(&screen)
        });
        assert!(shown, "waited in vain for {what} on the screen, which has\n{}", screen.trim_end());
    }

    /// Waits for a command's end, after which the terminal has to be what it was: one that shows what is typed.
    fn ended_with(&self, status: i32) {
        self.shows(&format!("status={status}=\n#"));
        self.types("typed");
        self.shows("# typed");
        self.presses(&["C-u"]);
        self.is("an empty line", |screen| !screen.contains("typed"));
    }

    fn resizes(&self, rows: u16, columns: u16) {
        self.tmux(&["resize-window", "-x", &columns.to_string(), "-y", &rows.to_string()]);
    }
}

/// A container that runs for as long as its stdin is open.
fn container(bundle: &Bundle) -> Running<'_> {
    let mut monitor = bundle.monitor().control_dir().flag("-i").start();
    monitor.pid();
    bundle.start();
    monitor
}

fn end(bundle: &Bundle, monitor: &Running<'_>) {
    bundle.kill("KILL");
    assert_eq!(monitor.exit_code(), "137");
    monitor.end();
    bundle.delete();
}

#[test]
fn in_tmux_a_file_is_edited_with_vi() {
    let bundle = Bundle::new(Runtime::Runc, "cat");
    let monitor = container(&bundle);
    let shell = Shell::new(bundle.sandbox());
    shell.runs(&format!("dunnagectl exec -it {} vi /file", bundle.sandbox().id()));
    shell.shows("- /file");
    shell.types("ihello");
    shell.shows("hello");
    // Alone, or it would begin a key of its own.
    shell.presses(&["Escape"]);
    shell.shows("- /file [Modified]");
    shell.types(":wq");
    shell.shows(":wq");
    shell.presses(&["Enter"]);
    shell.ended_with(0);
    let file = bundle.sandbox().bundle().join("rootfs/file");
    assert_eq!(fs::read_to_string(file).expect("what vi wrote"), "hello\n");
    end(&bundle, &monitor);
}

#[test]
fn in_tmux_top_fills_the_window_and_is_left_or_quit() {
    let bundle = Bundle::new(Runtime::Runc, "cat");
    let monitor = container(&bundle);
    let shell = Shell::new(bundle.sandbox());
    let id = bundle.sandbox().id();
    shell.runs(&format!("dunnagectl exec -it {id} top"));
    shell.shows("PID  PPID");
    shell.presses(&["C-p", "C-q"]);
    shell.shows("dunnagectl: detached: exec-1 goes on");
    shell.ended_with(0);
    shell.runs(&format!("dunnagectl exec -it {id} top"));
    shell.shows("PID  PPID");
    shell.types("q");
    shell.ended_with(0);
    end(&bundle, &monitor);
}

#[test]
fn in_tmux_ctrl_c_and_another_size_reach_the_process_whose_status_is_the_commands() {
    let bundle = Bundle::new(Runtime::Runc, "cat");
    let monitor = container(&bundle);
    let script = "trap 'exit 42' INT; trap 'echo size $(stty size).' WINCH; echo size $(stty size).; while :; do sleep 1000 & wait $!; done";
    fs::write(bundle.sandbox().bundle().join("rootfs/script"), script).expect("a script");
    let shell = Shell::new(bundle.sandbox());
    shell.runs(&format!("dunnagectl exec -it {} sh /script", bundle.sandbox().id()));
    shell.shows("size 24 80.");
    shell.resizes(40, 120);
    shell.shows("size 40 120.");
    shell.presses(&["C-c"]);
    shell.ended_with(42);
    end(&bundle, &monitor);
}

#[test]
fn in_tmux_a_containers_terminal_is_attached_to_resized_left_and_ended() {
    let script =
        "trap 'exit 7' INT; trap 'echo size $(stty size).' WINCH; while :; do read line && echo \"<$line>\"; done";
    let bundle = Bundle::new(Runtime::Runc, script).terminal();
    let mut monitor = bundle.monitor().control_dir().flag("-t").start();
    monitor.pid();
    bundle.start();
    let shell = Shell::new(bundle.sandbox());
    let id = bundle.sandbox().id();
    shell.runs(&format!("dunnagectl attach {id}"));
    shell.shows("size 24 80.");
    shell.resizes(40, 120);
    shell.shows("size 40 120.");
    shell.types("hello");
    shell.presses(&["Enter"]);
    shell.shows("<hello>");
    shell.presses(&["C-p", "C-q"]);
    shell.shows("dunnagectl: detached: the container goes on");
    shell.ended_with(0);

    // By other keys: what only begins like them goes to the container.
    shell.resizes(30, 100);
    shell.runs(&format!("dunnagectl attach --detach-keys ctrl-a,d {id}"));
    shell.shows("size 30 100.");
    shell.presses(&["C-a", "x", "Enter"]);
    shell.shows("x>");
    shell.presses(&["C-a", "d"]);
    shell.shows("dunnagectl: detached: the container goes on");
    shell.ended_with(0);

    shell.resizes(24, 80);
    shell.runs(&format!("dunnagectl attach {id}"));
    shell.shows("size 24 80.");
    shell.presses(&["C-c"]);
    shell.ended_with(7);
    assert_eq!(monitor.exit_code(), "7");
    monitor.end();
    bundle.delete();
}
