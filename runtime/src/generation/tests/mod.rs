//! The rules, one by one, on the decider alone.

mod killing;
mod parent;
mod restart;
mod sidecar;
mod starts;
mod switching;

use crate::cgroup::Name;
use std::time::Duration;

use super::*;

const N1: Role = Role::Generation(ONE);
const N2: Role = Role::Generation(TWO);
const ONE: Number = number(1);
const TWO: Number = number(2);
const LIMIT: Duration = Duration::from_secs(10);

const fn number(number: u64) -> Number {
    match Number::new(number) {
        Some(number) => number,
        None => panic!("numbers begin at 1"),
    }
}

/// A service, its clock, and a disk that takes every record at once unless it is told otherwise.
struct Play {
    service: Generations,
    now: Instant,
    disk: Record,
    /// What a write comes to; nothing for one that takes its time.
    write: Option<Result<(), String>>,
    requests: u64,
    pids: i32,
}

impl Play {
    fn new() -> Self {
        Self::on(Layout::Overlapping, Record::default())
    }

    fn on(layout: Layout, record: Record) -> Self {
        let now = Instant::now();
        let service = Generations::new(now, layout, record.clone(), 0);
        Self { service, now, disk: record, write: Some(Ok(())), requests: 0, pids: 100 }
    }

    /// All that is to be done now, writes of the record aside.
    fn actions(&mut self) -> Vec<Action> {
        let mut actions = Vec::new();
        while let Some(action) = self.service.poll_action() {
            match action {
                Action::WriteRecord(serial) => match self.write.clone() {
                    Some(result) => {
                        if result.is_ok() {
                            self.disk = self.service.record().clone();
                        }
                        self.service.handle_recorded(self.now, serial, &result);
                    }
                    None => actions.push(Action::WriteRecord(serial)),
                },
                other => actions.push(other),
            }
        }
        actions
    }

    /// What is told and answered now.
    fn told(&mut self) -> Vec<Outcome> {
        let reported = |action| match action {
            Action::Report(outcome) => Some(outcome),
            _ => None,
        };
        self.actions().into_iter().filter_map(reported).collect()
    }

    fn ask(&mut self, request: Request) -> RequestId {
        self.requests += 1;
        let id = RequestId(self.requests);
        self.service.handle_request(self.now, id, request);
        id
    }

    /// The one thing that is answered at once.
    fn answer_to(&mut self, request: Request) -> Result<Reply, Failure> {
        let id = self.ask(request);
        self.answer(id)
    }

    fn answer(&mut self, id: RequestId) -> Result<Reply, Failure> {
        let told = self.told();
        let answer = told.iter().find_map(|outcome| match outcome {
            Outcome::Answer(its, answer) if *its == id => Some(answer.clone()),
            _ => None,
        });
        answer.unwrap_or_else(|| panic!("no answer to {id:?} in {told:?}"))
    }

    fn advance(&mut self, time: Duration) {
        self.now += time;
        self.service.handle_timeout(self.now);
    }

    fn stage(&mut self, number: Number, gate: Option<Duration>) -> RequestId {
        self.ask(Request::Start(Launch { target: Target::Generation(number), source: staged(), tier: None, gate }))
    }

    /// The start that asks to be opened, which it is.
    fn opened(&mut self) -> StartId {
        let actions = self.actions();
        let [Action::Open { start, ref source, .. }] = actions[..] else { panic!("not opened: {actions:?}") };
        self.service.handle_opened(self.now, start, Ok(build_of(source)));
        start
    }

    /// The start up to where its cgroup is made.
    fn prepared(&mut self) -> StartId {
        let start = self.opened();
        let actions = self.actions();
        assert!(matches!(actions[..], [Action::Prepare(its, ..)] if its == start), "{actions:?}");
        self.service.handle_prepared(self.now, start, Ok(()));
        start
    }

    fn launched(&mut self, start: StartId) -> Process {
        self.pids += 1;
        let process = Process { pid: self.pids, start_time: 7 };
        self.service.handle_launched(self.now, start, Launched::Running(process));
        process
    }

    /// A generation that runs.
    fn running(&mut self, number: Number) -> Process {
        let request = self.stage(number, None);
        let start = self.prepared();
        assert_eq!(self.actions(), [Action::Launch(start, Role::Generation(number))]);
        let process = self.launched(start);
        assert!(self.answer(request).is_ok());
        process
    }

    fn gate(&mut self) -> (Token, Point) {
        match self.told()[..] {
            [.., Outcome::Gate { token, point, .. }] => (token, point),
            ref other => panic!("nobody is asked: {other:?}"),
        }
    }

    fn found(&mut self, role: Role, found: Found) {
        self.service.handle_found(self.now, role, &Name::of(role), found);
    }

    fn emptied(&mut self, role: Role) {
        self.service.handle_emptied(self.now, role, &Name::of(role));
    }

    /// Its leader was reaped, and nothing is left of it.
    fn gone(&mut self, role: Role) {
        self.service.handle_exited(self.now, role);
        self.actions();
        self.found(role, Found::Empty);
    }
}

fn staged() -> Source {
    Source::Staged { build: "b7".into(), path: "/staged/b7".into(), digest: None }
}

fn build_of(source: &Source) -> Opened {
    let build = if matches!(source, Source::Live { .. }) { "live" } else { "b7" };
    Opened { build: build.into(), digest: None, tier: Tier { memory_max: Limit::Value(100), ..Tier::UNLIMITED } }
}

fn refusal(reason: &str) -> Result<Reply, Failure> {
    Err(Failure::Refused(reason.into()))
}
