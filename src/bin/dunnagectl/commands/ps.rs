//! `ps`: which containers there are.

use std::io::{self, IsTerminal};
use std::time::{Instant, SystemTime};

use clap::{ArgMatches, Command, arg};
use serde_json::{Value, json};

use super::status::{command_of, container_of, processes, state};
use super::{Entry, service};
use crate::client::{Connection, PATIENCE};
use crate::definition::json as json_option;
use crate::error::{Failure, Result};
use crate::output::{Colour, Look, note, print, print_json};
use crate::shims::{Place, Shim, short};
use crate::table::{Cell, Table};
use crate::when;

pub(super) static COMMANDS: &[Entry] = &[Entry { define, run }];

fn define() -> Command {
    Command::new("ps")
        .about("List the containers and services that have a control socket")
        .arg(arg!(--"no-trunc" "Show ids and commands as long as they are"))
        .arg(arg!(-q --quiet "Show the ids alone"))
        .arg(json_option())
}

fn run(place: &Place, matches: &ArgMatches) -> Result<u8> {
    let shims = place.all()?;
    if matches.get_flag("quiet") {
        let ids: Vec<String> = shims.iter().map(|shim| format!("{}\n", shim.id())).collect();
        return print(&ids.concat()).map(|()| 0);
    }
    if shims.is_empty() && io::stdout().is_terminal() {
        let directory = place.directory().display();
        note(&format!("no container has a control socket in {directory}; see FILES in dunnagectl(1)"));
    }
    let answers = ask(shims);
    if matches.get_flag("json") {
        answers.iter().filter_map(|answer| answer.status.as_ref().ok()).try_for_each(print_json)?;
    } else {
        print_table(&answers, matches.get_flag("no-trunc"))?;
    }
    for answer in &answers {
        if let Err(Failure::Told(text)) = &answer.status {
            note(text);
        }
    }
    Ok(if answers.iter().all(|answer| answer.status.is_ok()) { 0 } else { crate::FAILED })
}

fn print_table(answers: &[Answer], is_whole: bool) -> Result<()> {
    let mut table = Table::new(&["ID", "NAME", "STATE", "SINCE", "PID", "EXECS", "COMMAND"]);
    for answer in answers {
        table.add(row(answer, is_whole));
    }
    let look = Look::of_stdout();
    print(&table.render(if is_whole { Look { width: None, ..look } } else { look }))
}

/// A container, as it answers or as it does not.
struct Answer {
    shim: Shim,
    status: Result<Value>,
}

/// Asks all at once: however many do not answer, it takes no longer than for one.
fn ask(shims: Vec<Shim>) -> Vec<Answer> {
    let deadline = Instant::now() + PATIENCE;
    let call = |shim: Shim| {
        let connection = Connection::open(&shim).and_then(|mut connection| {
            connection.ask("Status", &json!({}))?;
            Ok(connection)
        });
        (shim, connection)
    };
    let asked: Vec<_> = shims.into_iter().map(call).collect();
    let answer = |(shim, connection): (Shim, Result<Connection>)| {
        let status = connection.and_then(|mut connection| connection.answer(deadline));
        Answer { shim, status }
    };
    asked.into_iter().map(answer).collect()
}

fn row(answer: &Answer, is_whole: bool) -> Vec<Cell> {
    let shown = |id| if is_whole { id } else { short(id) };
    let Ok(status) = &answer.status else {
        return vec![shown(answer.shim.id()).into(), "-".into(), Cell::coloured("no answer", Colour::Red)];
    };
    let service = Some(&status["service"]).filter(|service| service.is_object());
    // Of a service, what clients reach stands for it.
    let container = service.map_or_else(|| container_of(status), service::current);
    let since = container.and_then(|process| when::since(process["started"].as_str()?, SystemTime::now()));
    let execs = processes(status).len().saturating_sub(usize::from(container.is_some()));
    let pid = container.and_then(|process| process["pid"].as_i64());
    let (state, colour) = state(status);
    vec![
        shown(status["id"].as_str().unwrap_or_default()).into(),
        status["name"].as_str().unwrap_or("-").into(),
        Cell::coloured(&state, colour),
        since.unwrap_or_else(|| "-".to_owned()).into(),
        pid.map_or_else(|| "-".to_owned(), |pid| pid.to_string()).into(),
        service.map_or_else(|| execs.to_string(), |_| "-".to_owned()).into(),
        service.map_or_else(|| pid.map(command_of).unwrap_or_default(), service::summary).into(),
    ]
}
