//! `events`: what happens to containers, as it happens.

use std::fs;
use std::os::fd::AsFd;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use clap::{ArgMatches, Command};
use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::inotify::{AddWatchFlags, InitFlags, Inotify};
use nix::sys::signal::Signal;
use serde_json::{Value, json};

use super::Entry;
use super::status::state;
use crate::client::{Connection, Incoming};
use crate::definition::{id, json as json_option};
use crate::error::{Context, Result, failure, one_line};
use crate::output::{Colour, Look, clean, note, print, print_json};
use crate::session::End;
use crate::shims::{Place, Shim};
use crate::when;

pub(super) static COMMANDS: &[Entry] = &[Entry { define, run }];

fn define() -> Command {
    Command::new("events")
        .about("Show what happens from now on, until the container's end")
        .long_about(
            "Show what happens from now on: to one container until its end, or without ID to all that have a control \
             socket, and those that get one, until ctrl-c.",
        )
        .args([json_option().help("Print each event as a JSON object with the container's id, a line each"), id()])
}

/// A container that is listened to.
struct Subscription {
    shim: Shim,
    /// Its name, or its id as far as it is shown.
    label: String,
    /// How it was when the listening began: what had happened by then is not told.
    state: String,
    connection: Connection,
    /// Which socket it is: one that is made anew at its path is another.
    socket: Option<u64>,
    /// Whether the container's end was told.
    ended: bool,
}

fn subscribe(shim: Shim) -> Result<Subscription> {
    let mut connection = Connection::open(&shim)?;
    connection.ask_for_more("Events", &json!({}))?;
    let status = shim.status()?;
    let label = clean(status["name"].as_str().unwrap_or(shim.label()));
    let socket = fs::metadata(shim.path()).ok().map(|socket| socket.ino());
    let (state, _) = state(&status);
    Ok(Subscription { shim, label, state, connection, socket, ended: false })
}

fn run(place: &Place, matches: &ArgMatches) -> Result<u8> {
    let id: Option<&String> = matches.get_one("id");
    let look = if matches.get_flag("json") { None } else { Some(Look::of_stdout()) };
    let is_one = id.is_some() || place.names_socket();
    let (mut subscriptions, arrivals) = if is_one {
        (vec![subscribe(place.find(id)?)?], None)
    } else {
        // It says why where there is no directory to watch.
        place.all()?;
        // Watched before it is read, so that none is overlooked.
        let arrivals = watch(place.directory())?;
        // Those that do not answer are seen in ps.
        (place.all()?.into_iter().filter_map(|shim| subscribe(shim).ok()).collect(), Some(arrivals))
    };
    loop {
        let mut kept = Vec::with_capacity(subscriptions.len());
        for mut subscription in subscriptions {
            match show(&mut subscription, look)? {
                Stream::Open => kept.push(subscription),
                Stream::Ended => {}
                Stream::Broken if is_one => return Err(subscription.connection.gone()),
                Stream::Broken => {
                    note(&format!("{}: the monitor is gone, and tells no more", subscription.label));
                }
            }
        }
        subscriptions = kept;
        if subscriptions.is_empty() && arrivals.is_none() {
            return Ok(0);
        }
        wait(&subscriptions, arrivals.as_ref())?;
        if let Some(arrivals) = &arrivals {
            let more = arrived(arrivals, place, &subscriptions)?;
            subscriptions.extend(more);
        }
    }
}

fn watch(directory: &Path) -> Result<Inotify> {
    let what = || format!("cannot watch {}, where control sockets appear", directory.display());
    let inotify = Inotify::init(InitFlags::IN_CLOEXEC | InitFlags::IN_NONBLOCK).context(what)?;
    // Monitors rename their sockets into place.
    inotify.add_watch(directory, AddWatchFlags::IN_MOVED_TO).context(what)?;
    Ok(inotify)
}

/// Those whose sockets have appeared, and that are not known already.
fn arrived(arrivals: &Inotify, place: &Place, known: &[Subscription]) -> Result<Vec<Subscription>> {
    let Ok(events) = arrivals.read_events() else { return Ok(Vec::new()) };
    let names: Vec<_> = events.into_iter().filter_map(|event| event.name).collect();
    let has_come = |shim: &Shim| names.iter().any(|name| name.to_string_lossy() == shim.id());
    let is_new =
        |one: &Subscription| known.iter().all(|other| (other.shim.id(), other.socket) != (one.shim.id(), one.socket));
    let come = place.all()?.into_iter().filter(has_come);
    Ok(come.filter_map(|shim| subscribe(shim).ok()).filter(is_new).collect())
}

fn wait(subscriptions: &[Subscription], arrivals: Option<&Inotify>) -> Result<()> {
    let connections = subscriptions.iter().map(|subscription| subscription.connection.as_fd());
    let all = connections.chain(arrivals.map(AsFd::as_fd));
    let mut fds: Vec<PollFd<'_>> = all.map(|fd| PollFd::new(fd, PollFlags::POLLIN)).collect();
    match poll(&mut fds, PollTimeout::NONE) {
        Ok(_) | Err(Errno::EINTR) => Ok(()),
        Err(error) => failure(format_args!("cannot wait: {}", error.desc())),
    }
}

/// Whether more may come.
enum Stream {
    Open,
    /// With the container.
    Ended,
    /// Before that.
    Broken,
}

/// Shows what has been told.
fn show(subscription: &mut Subscription, look: Option<Look>) -> Result<Stream> {
    loop {
        let mut answer = match subscription.connection.next()? {
            Incoming::Answer(answer) => answer,
            Incoming::Nothing => return Ok(Stream::Open),
            Incoming::End => return Ok(if subscription.ended { Stream::Ended } else { Stream::Broken }),
        };
        subscription.ended |= End::of_container(&answer).is_some();
        let mut event = answer["event"].take();
        if let Some(look) = look {
            print(&line(&event, &subscription.label, &subscription.state, look))?;
        } else {
            event["id"] = json!(subscription.shim.id());
            print_json(&event)?;
        }
    }
}

/// An event for people.
fn line(event: &Value, container: &str, state: &str, look: Look) -> String {
    let kind = event["kind"].as_str().unwrap_or_default();
    // One of a later version is shown as it is.
    let (text, colour) = words(kind, event, state).unwrap_or_else(|| (clean(kind).replace('_', " "), Colour::Plain));
    let time = look.paint(when::clock(event["time"].as_str().unwrap_or_default()), Colour::Faint);
    let target = clean(event["target"].as_str().unwrap_or("-"));
    let pid = event["pid"].as_i64().map(|pid| look.paint(&format!(" (pid {pid})"), Colour::Faint));
    format!("{time}  {container:<12}  {target:<9}  {}{}\n", look.paint(&text, colour), pid.unwrap_or_default())
}

/// What has happened, if it is known.
fn words(kind: &str, event: &Value, state: &str) -> Option<(String, Colour)> {
    let count = event["count"].as_u64().unwrap_or_default();
    let code = event["exit_code"].as_i64();
    Some(match kind {
        "subscribed" => (format!("listening: {state}"), Colour::Faint),
        "started" => ("started".to_owned(), Colour::Green),
        "exited" => (format!("exited {}", exit(code)), if code == Some(0) { Colour::Plain } else { Colour::Red }),
        "timed_out" => ("killed: its timeout was over".to_owned(), Colour::Red),
        "oom" => ("ran out of memory".to_owned(), Colour::Red),
        "orphan_swept" if count == 1 => ("an orphaned zombie was reaped".to_owned(), Colour::Plain),
        "orphan_swept" => (format!("{count} orphaned zombies were reaped"), Colour::Plain),
        "log_dropped" => (format!("{count} bytes of output could not be logged"), Colour::Red),
        "shutting_down" => ("is being ended".to_owned(), Colour::Yellow),
        "gate" => (gate(event), Colour::Yellow),
        "ready" => ("is ready".to_owned(), Colour::Green),
        "notified" => (message(event), Colour::Plain),
        "switched" => ("has the canonical socket now".to_owned(), Colour::Green),
        "killed" => ("was killed, and nothing of it is left".to_owned(), Colour::Yellow),
        "moved" => ("is in another cgroup".to_owned(), Colour::Plain),
        "missed" => (format!("{count} events missed: they came faster than they were read"), Colour::Yellow),
        _ => return None,
    })
}

/// A start that asks, or that was told not to go on.
fn gate(event: &Value) -> String {
    let build = event["generation"]["build"].as_str().map(|build| format!(" ({})", clean(build)));
    let build = build.unwrap_or_default();
    match (event["generation"]["message"].as_str(), event["generation"]["gate"].as_str()) {
        (Some(reason), _) => format!("was not let start{build}: {}", one_line(reason)),
        (None, Some("recorded")) => format!("asks whether to start{build}: it is recorded"),
        (None, _) => format!("asks whether to start{build}: it is prepared"),
    }
}

/// What a generation says of itself.
fn message(event: &Value) -> String {
    let message = event["generation"]["message"].as_str().unwrap_or_default();
    format!("says {}", one_line(message))
}

/// An exit code for people.
pub(super) fn exit(code: Option<i64>) -> String {
    let signal = |code: i64| Signal::try_from(i32::try_from(code - 128).unwrap_or(0)).ok();
    match code {
        None | Some(-1) => "with a status that is not known".to_owned(),
        Some(code) => match signal(code) {
            Some(signal) => format!("with status {code} ({signal})"),
            None => format!("with status {code}"),
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shown(event: &Value) -> String {
        line(event, "box", "running", Look { coloured: false, width: None })
    }

    #[test]
    fn events_are_a_line_each() {
        let time = "2026-11-30T18:03:37.123456789+00:00";
        let subscribed = json!({"time": time, "kind": "subscribed"});
        assert_eq!(shown(&subscribed), "18:03:37  box           -          listening: running\n");
        let started = json!({"time": time, "kind": "started", "target": "container", "pid": 7});
        assert_eq!(shown(&started), "18:03:37  box           container  started (pid 7)\n");
        let exited = json!({"time": time, "kind": "exited", "target": "exec-1", "pid": 7, "exit_code": 137});
        assert_eq!(shown(&exited), "18:03:37  box           exec-1     exited with status 137 (SIGKILL) (pid 7)\n");
        let gate = json!({
            "time": time, "kind": "gate", "target": "gen-7", "generation": {"n": 7, "build": "v2", "gate": "recorded"}
        });
        assert_eq!(shown(&gate), "18:03:37  box           gen-7      asks whether to start (v2): it is recorded\n");
        let said =
            json!({"time": time, "kind": "notified", "target": "gen-7", "generation": {"message": "STATUS=up\n"}});
        assert_eq!(shown(&said), "18:03:37  box           gen-7      says STATUS=up\n");
        let later = json!({"time": time, "kind": "switched_over", "target": null});
        assert_eq!(shown(&later), "18:03:37  box           -          switched over\n");
    }

    #[test]
    fn every_event_of_the_interface_has_words() {
        let interface = include_str!("../../../control/org.dunnage.shim.varlink");
        let kinds = interface.split("type EventKind (").nth(1).and_then(|rest| rest.split(')').next()).unwrap();
        for kind in kinds.split(',').map(str::trim) {
            assert!(words(kind, &json!({}), "").is_some(), "{kind} has no words");
        }
    }

    #[test]
    fn exit_codes_name_the_signal() {
        assert_eq!(exit(Some(143)), "with status 143 (SIGTERM)");
        assert_eq!(exit(Some(3)), "with status 3");
        assert_eq!(exit(Some(255)), "with status 255");
        assert_eq!(exit(Some(-1)), "with a status that is not known");
    }
}
