//! `logs`: what a container has written.

use std::io;
use std::os::fd::AsFd;
use std::path::Path;

use clap::{Arg, ArgMatches, Command, arg, value_parser};
use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::inotify::{AddWatchFlags, InitFlags, Inotify};
use serde_json::{Value, json};

use super::Entry;
use crate::client::{Connection, Incoming};
use crate::definition::{id, json as json_option};
use crate::error::{Context, Failure, Result, failure};
use crate::log_file::{LogFile, Record};
use crate::output::print_json;
use crate::session::{End, write_all};
use crate::shims::{Place, Shim};

pub(super) static COMMANDS: &[Entry] = &[Entry { define, run }];

fn define() -> Command {
    Command::new("logs")
        .about("Show what a container has written: its stdout on stdout, its stderr on stderr")
        .long_about(
            "Show what a container has written, from its log file (k8s-file): its stdout on stdout, its stderr on \
             stderr. Of logs that are rotated, the present file is shown.",
        )
        .arg(arg!(-f --follow "Go on with what it writes, until it ends"))
        .arg(
            Arg::new("tail")
                .long("tail")
                .short('n')
                .value_name("N")
                .value_parser(value_parser!(usize))
                .help("Begin with the last N lines"),
        )
        .arg(arg!(-t --timestamps "Begin each line with the time when it was written"))
        .args([json_option().help("Print each record as a JSON object, a line each"), id()])
}

/// How records are shown.
struct Printer {
    timestamps: bool,
    json: bool,
    /// Whether the last record of stdout, and that of stderr, was a piece of a line.
    in_line: [bool; 2],
}

fn run(place: &Place, matches: &ArgMatches) -> Result<u8> {
    let shim = place.find(matches.get_one("id"))?;
    let follow = matches.get_flag("follow");
    // From here on its end is told, whenever it comes.
    let mut news = None;
    if follow {
        let mut connection = Connection::open(&shim)?;
        connection.ask_for_more("Events", &json!({}))?;
        news = Some(connection);
    }
    let status = shim.status()?;
    let path = path_of(&shim, &status)?;
    let what = || format!("cannot read the log {}", path.display());
    // Watched before it is read, so that nothing is overlooked.
    let watch = if follow { Some(watch(path)?) } else { None };
    let mut log = LogFile::open(path).context(what)?;
    if let Some(lines) = matches.get_one::<usize>("tail") {
        log.seek_to_last(*lines).context(what)?;
    }
    let mut printer =
        Printer { timestamps: matches.get_flag("timestamps"), json: matches.get_flag("json"), in_line: [false; 2] };
    loop {
        // All output is in the log before anybody is told of the end.
        let ended = match &mut news {
            Some(news) => has_ended(news)?,
            None => true,
        };
        printer.print(&mut log)?;
        while log.is_replaced().context(what)? {
            printer.print(&mut log)?;
            log.follow().context(what)?;
            printer.print(&mut log)?;
        }
        match (&watch, &news) {
            (Some(watch), Some(news)) if !ended => wait(watch, news)?,
            _ => return Ok(0),
        }
    }
}

/// Where the log file is.
fn path_of<'a>(shim: &Shim, status: &'a Value) -> Result<&'a Path> {
    let logs: Vec<&str> = status["logs"].as_array().into_iter().flatten().filter_map(Value::as_str).collect();
    if let Some(path) = logs.iter().find_map(|log| log.strip_prefix("k8s-file:")) {
        return Ok(Path::new(path));
    }
    let label = shim.label();
    if logs.contains(&"journald") {
        let id = status["id"].as_str().unwrap_or_default();
        return failure(format_args!("{label} logs to the journal: journalctl CONTAINER_ID_FULL={id}"));
    }
    failure(format_args!("{label} has no log (--log-path none or passthrough)"))
}

fn watch(path: &Path) -> Result<Inotify> {
    let directory = path.parent().unwrap_or(Path::new("/"));
    let what = || format!("cannot watch {}", directory.display());
    let inotify = Inotify::init(InitFlags::IN_CLOEXEC | InitFlags::IN_NONBLOCK).context(what)?;
    let events = AddWatchFlags::IN_MODIFY | AddWatchFlags::IN_CREATE | AddWatchFlags::IN_MOVED_TO;
    inotify.add_watch(directory, events).context(what)?;
    Ok(inotify)
}

/// Waits until something happens to the log, or is told.
fn wait(watch: &Inotify, news: &Connection) -> Result<()> {
    let mut fds = [PollFd::new(watch.as_fd(), PollFlags::POLLIN), PollFd::new(news.as_fd(), PollFlags::POLLIN)];
    match poll(&mut fds, PollTimeout::NONE) {
        Ok(_) | Err(Errno::EINTR) => {}
        Err(error) => return failure(format_args!("cannot wait: {}", error.desc())),
    }
    // What it was is seen in the file.
    let _ = watch.read_events();
    Ok(())
}

/// Whether the container has ended.
fn has_ended(news: &mut Connection) -> Result<bool> {
    loop {
        match news.next()? {
            Incoming::Answer(answer) if End::of_container(&answer).is_some() => return Ok(true),
            Incoming::Answer(_) => {}
            Incoming::Nothing => return Ok(false),
            Incoming::End => return Err(news.gone()),
        }
    }
}

impl Printer {
    /// Prints what the log has more.
    fn print(&mut self, log: &mut LogFile) -> Result<()> {
        log.read(|line| self.print_record(line))
    }

    fn print_record(&mut self, line: &[u8]) -> Result<()> {
        let Some(record) = Record::parse(line) else {
            // Not ours; shown as it is.
            return write_all(io::stdout().as_fd(), &[line, b"\n"].concat());
        };
        if self.json {
            return print_json(&json!({
                "time": record.time,
                "stream": if record.is_stderr { "stderr" } else { "stdout" },
                "partial": record.partial,
                "text": String::from_utf8_lossy(record.text),
            }));
        }
        let in_line = &mut self.in_line[usize::from(record.is_stderr)];
        let mut shown = Vec::with_capacity(line.len() + 1);
        if self.timestamps && !*in_line {
            shown.extend_from_slice(record.time.as_bytes());
            shown.push(b' ');
        }
        shown.extend_from_slice(record.text);
        if !record.partial {
            shown.push(b'\n');
        }
        *in_line = record.partial;
        if record.is_stderr { write_all(io::stderr().as_fd(), &shown) } else { write_all(io::stdout().as_fd(), &shown) }
    }
}

impl From<io::Error> for Failure {
    fn from(error: io::Error) -> Self {
        Self::Told(format!("cannot read the log: {error}"))
    }
}
