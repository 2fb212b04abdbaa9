// The faults of generations, in the form of those of the reaper.

const FAULTS_OF_GENERATIONS: &[Fault] = &[
    Fault {
        name: "starts_a_used_number_again",
        file: "start.rs",
        right: "if self.record.is_used(number) {",
        put: Text("if !FAULT && self.record.is_used(number) {"),
    },
    Fault {
        name: "launches_before_the_record_is_written",
        file: "start.rs",
        right: "self.save_then(Then::Ask(id));",
        put: Statements("self.save(); self.handle_pending_recorded(Instant::now(), id, Ok(()));"),
    },
    Fault {
        name: "uses_a_number_up_that_was_never_written",
        file: "start.rs",
        right: "start.is_recorded() && !self.writes.is_unwritten(id)",
        put: Value("start.is_recorded()"),
    },
    Fault {
        name: "keeps_a_number_whose_record_failed",
        file: "start.rs",
        right: "self.record.withdraw(role);",
        put: Statements("self.record.refuse(role);"),
    },
    Fault {
        name: "frees_a_number_that_was_refused_late",
        file: "start.rs",
        right: "self.record.refuse(start.role);",
        put: Statements("self.record.withdraw(start.role);"),
    },
    Fault {
        name: "asks_the_gate_once",
        file: "gate.rs",
        right: "match asked {
            None",
        put: Text("match asked.filter(|_| !(FAULT && point == Point::Recorded)) {
            None"),
    },
    Fault {
        name: "goes_on_when_the_gate_is_late",
        file: "gate.rs",
        right: "self.fail_start(now, id, Failure::Refused(\"the gate was not answered in time\".into()));",
        put: Statements("self.go_on_after_gate(now, id);"),
    },
    Fault {
        name: "starts_for_a_caller_that_went_away",
        file: "gate.rs",
        right: "self.end_asked(now, request, \"the caller went away\");",
        put: Statements(""),
    },
    Fault {
        name: "starts_for_a_caller_that_spoke",
        file: "gate.rs",
        right: "self.end_asked(now, request, \"the gate is answered on another connection than that of the start\");",
        put: Statements(""),
    },
    Fault {
        name: "gives_another_reason_than_the_callers",
        file: "gate.rs",
        right: "Err(reason) => self.fail_start(now, id, Failure::Refused(reason)),",
        put: Text("Err(reason) => self.fail_start(now, id, Failure::Refused(if FAULT { format!(\"refused: {reason}\") } else { reason })),"),
    },
    Fault {
        name: "says_nothing_ran_of_an_uncertain_start",
        file: "start.rs",
        right: "self.answer(request, Err(Failure::StartUncertain(reason)));",
        put: Statements("self.answer(request, Err(Failure::LaunchFailed(reason)));"),
    },
    Fault {
        name: "says_nothing_ran_of_what_was_not_recorded",
        file: "writes.rs",
        right: "result.map(|()| reply).map_err(uncertain)",
        put: Value("result.map(|()| reply).map_err(Failure::Record)"),
    },
    Fault {
        name: "takes_an_exit_for_a_proof",
        file: "evict.rs",
        right: "settled && eviction.is_empty()",
        put: Value("settled"),
    },
    Fault {
        name: "does_not_wait_for_the_leader",
        file: "evict.rs",
        right: "self.leader(role).is_none() && !self.is_launching(role)",
        put: Value("!self.is_launching(role)"),
    },
    Fault {
        name: "does_not_wait_for_a_launch",
        file: "evict.rs",
        right: "self.leader(role).is_none() && !self.is_launching(role)",
        put: Value("self.leader(role).is_none()"),
    },
    Fault {
        name: "forgets_a_kill_during_a_launch",
        file: "start.rs",
        right: "if self.evictions.contains_key(&start.role) {
            self.start_kill",
        put: Text("if !FAULT && self.evictions.contains_key(&start.role) {
            self.start_kill"),
    },
    Fault {
        name: "never_answers_at_the_deadline",
        file: "evict.rs",
        right: "waiter.expired || all",
        put: Value("all"),
    },
    Fault {
        name: "proves_one_cgroup_of_many",
        file: "evict.rs",
        right: "self.findings.iter().all(|(_, finding)| *finding == Finding::Empty)",
        put: Value("self.has(&Finding::Empty)"),
    },
    Fault {
        name: "leaves_a_leader_that_left_its_cgroup",
        file: "evict.rs",
        right: "eviction.is_empty() && (mode == Mode::Kill || waited_for)",
        put: Value("false"),
    },
    Fault {
        name: "answers_one_of_several_callers",
        file: "evict.rs",
        right: "for waiter in eviction.waiters {",
        put: Text("for waiter in eviction.waiters.into_iter().take(if FAULT { 1 } else { usize::MAX }) {"),
    },
    Fault {
        name: "kills_what_is_empty",
        file: "evict.rs",
        right: "if !self.evictions.contains_key(&role) {
            self.look(role);",
        put: Text("if FAULT { self.start_kill(now, role); } else if !self.evictions.contains_key(&role) {
            self.look(role);"),
    },
    Fault {
        name: "takes_no_delegation_for_a_proof",
        file: "evict.rs",
        right: "Found::NoDelegation => Self::NoDelegation,",
        put: Text("Found::NoDelegation if FAULT => Self::Empty,
            Found::NoDelegation => Self::NoDelegation,"),
    },
    Fault {
        name: "waits_for_ever_without_delegation",
        file: "evict.rs",
        right: "settled && mode == Mode::Kill && eviction.has(&Finding::NoDelegation)",
        put: Value("false"),
    },
    Fault {
        name: "keeps_no_step_with_the_files",
        file: "parent.rs",
        right: "self.record.parent = Some(limits.are);",
        put: Statements("self.record.parent = Some(change.to);"),
    },
    Fault {
        name: "lowers_the_parent_beside_another",
        file: "parent.rs",
        right: "self.check_alone(number)?;",
        put: Statements(""),
    },
    Fault {
        name: "does_not_look_again_after_a_reclaim",
        file: "parent.rs",
        right: "Ok(()) => self.actions.push_back(Action::ReadMemory),",
        put: Text("Ok(()) if FAULT => { let to = change.to; self.set_parent(request, to, None) }
            Ok(()) => self.actions.push_back(Action::ReadMemory),"),
    },
    Fault {
        name: "lowers_memory_below_what_is_in_use",
        file: "parent.rs",
        right: "self.set_parent(request, to, Some(current));",
        put: Statements("self.set_parent(request, to, None);"),
    },
    Fault {
        name: "trusts_its_record_of_the_parent",
        file: "parent.rs",
        right: "if let Some(are) = limits
",
        put: Text("if let Some(are) = limits.filter(|_| !FAULT)
"),
    },
    Fault {
        name: "renames_before_the_intent",
        file: "switch.rs",
        right: "self.save_then(Then::Rename(request));",
        put: Statements("self.save(); self.handle_intent_recorded(request, Ok(()));"),
    },
    Fault {
        name: "switches_to_what_is_being_killed",
        file: "switch.rs",
        right: ".and_then(|()| self.check_switchable(number))",
        put: Text(".and_then(|()| if FAULT { Ok(()) } else { self.check_switchable(number) })"),
    },
    Fault {
        name: "trusts_its_record_of_the_link",
        file: "switch.rs",
        right: "self.record.current = number;",
        put: Statements(""),
    },
    Fault {
        name: "keeps_what_ended_current",
        file: "record.rs",
        right: "self.current.take_if(|current| *current == number);",
        put: Statements(""),
    },
    Fault {
        name: "runs_no_hook",
        file: "switch.rs",
        right: "self.actions.push_back(Action::RunHook(number));",
        put: Statements(""),
    },
    Fault {
        name: "switches_on_the_canonical_socket_itself",
        file: "switch.rs",
        right: "Layout::Overlapping => {}",
        put: Text("Layout::Foreign(_) if FAULT => {}
            Layout::Overlapping => {}"),
    },
    Fault {
        name: "starts_two_on_the_canonical_socket",
        file: "start.rs",
        right: "matches!(self.layout, Layout::Foreign(_)) && (starting",
        put: Text("!FAULT && matches!(self.layout, Layout::Foreign(_)) && (starting"),
    },
    Fault {
        name: "does_not_back_off",
        file: "sidecar.rs",
        right: "(last * 2).min(LONGEST)",
        put: Value("SHORTEST"),
    },
    Fault {
        name: "backs_off_without_bound",
        file: "sidecar.rs",
        right: "(last * 2).min(LONGEST)",
        put: Value("last * 2"),
    },
    Fault {
        name: "remembers_waits_after_a_long_life",
        file: "sidecar.rs",
        right: "now.duration_since(since) >= LONG_LIFE",
        put: Value("false"),
    },
    Fault {
        name: "restarts_a_sidecar_beside_its_rest",
        file: "mod.rs",
        right: "false if role == Role::Sidecar => self.start_kill(now, role),",
        put: Text("false if FAULT && role == Role::Sidecar => { self.record.end(role); self.sidecar_ended(now) }
            false if role == Role::Sidecar => self.start_kill(now, role),"),
    },
    Fault {
        name: "keeps_the_sidecar_of_what_ended",
        file: "mod.rs",
        right: "Role::Generation(number) => self.stop_sidecar_of(now, number),",
        put: Text("Role::Generation(number) if !FAULT => self.stop_sidecar_of(now, number),
            Role::Generation(_) => {}"),
    },
    Fault {
        name: "restarts_a_sidecar_that_was_killed",
        file: "sidecar.rs",
        right: "sidecar.wanted = false;
            self.save();",
        put: Text("sidecar.wanted = FAULT;
            self.save();"),
    },
    Fault {
        name: "forgets_holds_at_the_second_gate",
        file: "start.rs",
        right: "if let Some(reason) = self.held(&start.source, &opened.build) {",
        put: Text("if let Some(reason) = self.held(&start.source, &opened.build).filter(|_| !FAULT) {"),
    },
    Fault {
        name: "holds_staged_starts",
        file: "holds.rs",
        right: ".filter(|_| matches!(source, Source::Live { .. }))?",
        put: Text(".filter(|_| FAULT || matches!(source, Source::Live { .. }))?"),
    },
    Fault {
        name: "confirms_a_hold_before_it_is_written",
        file: "holds.rs",
        right: "self.save_then(Then::Confirm(request, Reply::Done));",
        put: Statements("self.save(); self.answer(request, Ok(Reply::Done));"),
    },
    Fault {
        name: "confirms_a_release_that_failed",
        file: "holds.rs",
        right: "self.answer(request, result.map(|()| Reply::Done).map_err(Failure::Record));",
        put: Statements("self.answer(request, Ok(Reply::Done));"),
    },
    Fault {
        name: "stops_the_worker_before_the_gate",
        file: "start.rs",
        right: "Ok(opened) if self.record.run(role).is_some() => self.ask(now, id, opened, Point::Prepared),",
        put: Text("Ok(opened) if FAULT && self.record.run(role).is_some() => self.replace(now, id, opened),
            Ok(opened) if self.record.run(role).is_some() => self.ask(now, id, opened, Point::Prepared),"),
    },
    Fault {
        name: "prepares_beside_the_worker",
        file: "start.rs",
        right: "Point::Prepared if self.record.run(role).is_some() => self.replace(now, id, opened),",
        put: Text("Point::Prepared if !FAULT && self.record.run(role).is_some() => self.replace(now, id, opened),"),
    },
    Fault {
        name: "moves_before_the_record",
        file: "moves.rs",
        right: "self.save_then(Then::Move(request));",
        put: Statements("self.save(); self.handle_move_recorded(request, Ok(()));"),
    },
    Fault {
        name: "forgets_where_it_was",
        file: "moves.rs",
        right: "run.cgroups.push(to.clone());",
        put: Statements("run.cgroups = vec![to.clone()];"),
    },
    Fault {
        name: "moves_on_while_it_is_killed",
        file: "moves.rs",
        right: "self.actions.push_back(Action::EndMove(number));",
        put: Statements(""),
    },
    Fault {
        name: "never_ends_a_move",
        file: "moves.rs",
        right: "self.deadlines.set(Timer::Move(number), now + limit);",
        put: Statements("let _ = (now, limit);"),
    },
    Fault {
        name: "starts_before_all_is_known",
        file: "restart.rs",
        right: "self.adopting = self.record.roles().collect();",
        put: Statements(""),
    },
    Fault {
        name: "takes_a_watched_one_for_gone",
        file: "restart.rs",
        right: "if !watched && let Some(run)",
        put: Text("if (FAULT || !watched) && let Some(run)"),
    },
    Fault {
        name: "says_running_of_what_is_empty",
        file: "evict.rs",
        right: "self.note_adopted(now, role, Occupancy::Empty);",
        put: Statements("self.note_adopted(now, role, Occupancy::Running);"),
    },
    Fault {
        name: "keeps_what_ended_in_the_record",
        file: "mod.rs",
        right: "false => self.look(role),",
        put: Text("false if FAULT => {}
            false => self.look(role),"),
    },
    Fault {
        name: "writes_the_record_twice_at_once",
        file: "writes.rs",
        right: "if !self.writes.busy {",
        put: Text("if FAULT || !self.writes.busy {"),
    },
    Fault {
        name: "leaves_what_changed_during_a_write",
        file: "writes.rs",
        right: "(serial < self.writes.latest && result.is_ok()) || !self.writes.waiting.is_empty()",
        put: Value("false"),
    },
    Fault {
        name: "takes_an_old_write_for_the_next_state",
        file: "writes.rs",
        right: "partition_point(|&(needed, _)| needed <= serial)",
        put: Text("partition_point(|&(needed, _)| FAULT || needed <= serial)"),
    },
    Fault {
        name: "starts_in_a_shutdown",
        file: "start.rs",
        right: "if self.shutdown.is_some() {",
        put: Text("if !FAULT && self.shutdown.is_some() {"),
    },
    Fault {
        name: "kills_nothing_in_a_shutdown",
        file: "mod.rs",
        right: "Timer::KillAll => self.kill_all(now),",
        put: Text("Timer::KillAll if FAULT => {}\n                Timer::KillAll => self.kill_all(now),"),
    },
    Fault {
        name: "leaves_what_leaders_leave_until_the_kill",
        file: "shutdown.rs",
        right: "self.kill_all(now);\n        }",
        put: Text("if !FAULT { self.kill_all(now); }\n        }"),
    },
    Fault {
        name: "never_ends_a_shutdown",
        file: "shutdown.rs",
        right: "self.deadlines.set(Timer::EndShutdown, end_at);",
        put: Statements("let _ = end_at;"),
    },
    Fault {
        name: "names_nothing_that_is_left",
        file: "shutdown.rs",
        right: "self.report(Outcome::ShutDown { left });",
        put: Statements("self.report(Outcome::ShutDown { left: Vec::new() });"),
    },
    Fault {
        name: "signals_what_was_reaped",
        file: "mod.rs",
        right: "if self.leader(role).is_none() => {}",
        put: Text("if !FAULT && self.leader(role).is_none() => {}"),
    },
];
