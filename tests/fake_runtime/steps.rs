//! One process doing its steps.

use std::env;
use std::error::Error;
use std::ffi::{CString, OsStr, OsString};
use std::fs::{self, File, OpenOptions};
use std::io::{self, Read, Write};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};
use std::process::exit;
use std::thread::sleep;
use std::time::Duration;

use dunnage_testing::script::{Out, Sink, Step, lines, noise};
use dunnage_testing::{Facts, Wire, tree};
use nix::pty::PtyMaster;
use nix::spawn::{PosixSpawnAttr, PosixSpawnFileActions, posix_spawn, posix_spawnp};
use nix::sys::signal::{SigSet, Signal, raise};
use nix::sys::wait::waitpid;
use nix::unistd::{self, Pid};

use crate::console;

type Result<T> = std::result::Result<T, Box<dyn Error>>;

/// A process, and what a runtime has in addition.
pub(crate) struct Process {
    /// The bundle: events and reports are here.
    directory: PathBuf,
    pub(crate) payload: Vec<Step>,
    pub(crate) pid_file: Option<PathBuf>,
    pub(crate) console_socket: Option<PathBuf>,
    payload_pid: Option<Pid>,
    master: Option<PtyMaster>,
    kept_open: Vec<OwnedFd>,
}

impl Process {
    pub(crate) fn new(directory: PathBuf) -> Self {
        Self {
            directory,
            payload: Vec::new(),
            pid_file: None,
            console_socket: None,
            payload_pid: None,
            master: None,
            kept_open: Vec::new(),
        }
    }

    pub(crate) fn run(&mut self, steps: &[Step]) -> Result<()> {
        steps.iter().try_for_each(|step| self.step(step))
    }

    fn step(&mut self, step: &Step) -> Result<()> {
        match step {
            Step::Sleep(millis) => sleep(Duration::from_millis(*millis)),
            Step::Await(event) => self.wait(event)?,
            // Opened without waiting for a reader: the test holds both ends.
            Step::Fire(event) => OpenOptions::new().write(true).open(self.directory.join(event))?.write_all(b".")?,
            Step::Print(to, text) => write(*to, text.as_bytes())?,
            Step::Noise(to, bytes, seed) => write(*to, &noise(*bytes, *seed))?,
            Step::Lines(to, count, width) => write(*to, &lines(*count, *width))?,
            Step::Flood(to) => {
                let block = lines(400, 80);
                loop {
                    write(*to, &block)?;
                }
            }
            Step::Stdin(bytes, to) => self.read(*bytes, to)?,
            Step::Close(fd) => unistd::close(*fd)?,
            Step::Block(signal) => set(*signal)?.thread_block()?,
            Step::AwaitSignal(signal) => {
                set(*signal)?.thread_block()?;
                set(*signal)?.wait()?;
            }
            Step::Setsid => {
                unistd::setsid()?;
            }
            Step::Spawn(steps) => {
                self.spawn(steps, Path::new(""))?;
            }
            Step::Run(argv) => {
                let argv = c_strings(argv.iter().map(|word| word.as_bytes().into()))?;
                let pid = posix_spawnp(
                    &argv[0],
                    &PosixSpawnFileActions::init()?,
                    &PosixSpawnAttr::init()?,
                    &argv,
                    &environment()?,
                )?;
                waitpid(pid, None)?;
            }
            Step::Exec(argv) => {
                let argv = c_strings(argv.iter().map(|word| word.as_bytes().into()))?;
                unistd::execvp(&argv[0], &argv)?;
            }
            Step::Report(file) => write_json(&self.directory.join(file), &Facts::collect()?)?,
            Step::Tree(file) => {
                let root = self.directory.parent().unwrap_or(&self.directory);
                write_json(&self.directory.join(file), &tree(root)?)?;
            }
            Step::Exit(status) => exit(*status),
            Step::Raise(signal) => raise(Signal::try_from(*signal)?)?,
            Step::Hang => loop {
                unistd::pause();
            },
            Step::Payload => self.start_payload()?,
            Step::PidFile(text) => {
                let text = self.with_pids(text)?;
                write_whole(self.pid_file()?, text.as_bytes())?;
            }
            Step::TornPidFile(first, event) => {
                let text = self.with_pids("{payload}")?;
                let (head, tail) = text.as_bytes().split_at(*first);
                let mut file = File::create(self.pid_file()?)?;
                file.write_all(head)?;
                self.wait(event)?;
                file.write_all(tail)?;
            }
            Step::Console(what) => {
                if let (Some(socket), Some(master)) = (&self.console_socket, &self.master) {
                    self.kept_open.extend(console::send(socket, *what, master)?);
                }
            }
        }
        Ok(())
    }

    fn start_payload(&mut self) -> Result<()> {
        let mut terminal = PathBuf::new();
        if self.console_socket.is_some() {
            let (master, path) = console::open()?;
            self.master = Some(master);
            terminal = path;
        }
        self.payload_pid = Some(self.spawn(&self.payload, &terminal)?);
        Ok(())
    }

    /// Started by `posix_spawn`, which changes no signal state on the way, as `std::process::Command` would.
    fn spawn(&self, steps: &[Step], terminal: &Path) -> Result<Pid> {
        let json = steps.to_vec().to_json().to_string();
        let argv = [
            OsStr::new("fake-runtime"),
            OsStr::new("steps"),
            self.directory.as_os_str(),
            terminal.as_os_str(),
            OsStr::new(&json),
        ];
        let argv = c_strings(argv.into_iter().map(|word| word.as_bytes().into()))?;
        let nothing = PosixSpawnFileActions::init()?;
        Ok(posix_spawn(&env::current_exe()?, &nothing, &PosixSpawnAttr::init()?, &argv, &environment()?)?)
    }

    fn wait(&self, event: &str) -> io::Result<()> {
        File::open(self.directory.join(event))?.read_exact(&mut [0])
    }

    fn read(&self, bytes: Option<usize>, to: &Sink) -> Result<()> {
        let mut file = match to {
            Sink::File(name) => Some(File::create(self.directory.join(name))?),
            Sink::Stdout | Sink::Nowhere => None,
        };
        let mut left = bytes.unwrap_or(usize::MAX);
        let mut buffer = vec![0; 64 * 1024];
        while left > 0 {
            let wanted = left.min(buffer.len());
            let count = unistd::read(io::stdin().as_fd(), &mut buffer[..wanted])?;
            if count == 0 {
                break;
            }
            left -= count;
            match (to, &mut file) {
                (Sink::Stdout, _) => write(Out::Stdout, &buffer[..count])?,
                (_, Some(file)) => file.write_all(&buffer[..count])?,
                (_, None) => {}
            }
        }
        Ok(())
    }

    fn pid_file(&self) -> Result<&Path> {
        Ok(self.pid_file.as_deref().ok_or("no --pid-file was given")?)
    }

    fn with_pids(&self, text: &str) -> Result<String> {
        let mut text =
            text.replace("{self}", &unistd::getpid().to_string()).replace("{parent}", &unistd::getppid().to_string());
        if text.contains("{payload}") {
            let payload = self.payload_pid.ok_or("the payload was not started")?;
            text = text.replace("{payload}", &payload.to_string());
        }
        Ok(text)
    }
}

/// Past the standard library's buffers: a step's bytes go out as they are asked for.
fn write(to: Out, mut bytes: &[u8]) -> nix::Result<()> {
    while !bytes.is_empty() {
        let count = match to {
            Out::Stdout => unistd::write(io::stdout().as_fd(), bytes)?,
            Out::Stderr => unistd::write(io::stderr().as_fd(), bytes)?,
        };
        bytes = &bytes[count..];
    }
    Ok(())
}

pub(crate) fn write_json(path: &Path, value: &impl Wire) -> io::Result<()> {
    write_whole(path, format!("{:#}", value.to_json()).as_bytes())
}

/// Readers see all of the file or none of it.
fn write_whole(path: &Path, bytes: &[u8]) -> io::Result<()> {
    let mut temporary = path.as_os_str().to_owned();
    temporary.push(".tmp");
    fs::write(&temporary, bytes)?;
    fs::rename(&temporary, path)
}

fn set(signal: i32) -> Result<SigSet> {
    Ok(SigSet::from(Signal::try_from(signal)?))
}

fn environment() -> Result<Vec<CString>> {
    c_strings(env::vars_os().map(|(name, value)| {
        let parts: [&OsStr; 3] = [&name, OsStr::new("="), &value];
        OsString::from_iter(parts).into_vec()
    }))
}

fn c_strings(words: impl Iterator<Item = Vec<u8>>) -> Result<Vec<CString>> {
    Ok(words.map(CString::new).collect::<std::result::Result<_, _>>()?)
}
