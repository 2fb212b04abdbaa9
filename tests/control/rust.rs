//! The interface by another client that is not ours: what the `varlink` crate generates of its description.

use std::sync::{Arc, RwLock};
use std::{panic, thread};

use dunnage_testing::wait::{self, Deadline};
use dunnage_testing::{Sandbox, Step};
use dunnage_varlink::{
    Connection, ErrorKind, EventKind, IDL, OrgVarlinkServiceClient, OrgVarlinkServiceInterface, ServiceError, State,
    VarlinkClient, VarlinkClientInterface,
};

use crate::{process, running, socket_of};
use dunnage_testing::decode;

type Connected = Arc<RwLock<Connection>>;

/// Has a client call, on connections that it may make. The crate waits for answers without a bound, so this waits for it.
fn by_client(sandbox: &Sandbox, calls: impl FnOnce(&dyn Fn() -> Connected) + Send + 'static) {
    let address = format!("unix:{}", socket_of(sandbox).display());
    let client = thread::spawn(move || calls(&|| Connection::with_address(&address).expect("a connection")));
    wait::eventually(Deadline::usual(), "the client", || client.is_finished());
    client.join().unwrap_or_else(|failure| panic::resume_unwind(failure));
}

#[test]
fn the_interface_is_what_the_varlink_crate_can_read() {
    let sandbox = Sandbox::new();
    let _monitor = running(&sandbox);
    by_client(&sandbox, |connect| {
        let mut service = OrgVarlinkServiceClient::new(connect());
        let info = service.get_info().expect("information");
        for interface in info.interfaces {
            let description = service.get_interface_description(interface.clone()).expect("a description");
            let description = description.description.expect("a text");
            let parsed = IDL::try_from(description.as_str()).unwrap_or_else(|error| panic!("{interface}: {error}"));
            assert_eq!(parsed.name, interface);
        }
    });
}

#[test]
fn the_varlink_crate_is_a_client() {
    let sandbox = Sandbox::new();
    let monitor = running(&sandbox);
    by_client(&sandbox, |connect| {
        let (mut shim, mut other) = (VarlinkClient::new(connect()), VarlinkClient::new(connect()));
        let status = shim.status().call().expect("the status");
        assert_eq!((status.state, status.exit_code), (State::running, None));
        assert_eq!(status.processes[0].target, "container");

        let mut events = other.events();
        let mut events = events.more().expect("events").map(|event| event.expect("an event").event);
        assert_eq!(events.next().expect("an event").kind, EventKind::subscribed);

        let hello = || process([Step::out("hello\n"), Step::Exit(3)]);
        let done = shim.exec_sync(hello(), Some(20_000), None, Some(true)).call().expect("an exec");
        assert_eq!((done.exit_code, done.timed_out, done.truncated), (3, false, false));
        assert_eq!(decode(&done.stdout.into()), "hello\n");
        for kind in [EventKind::started, EventKind::exited] {
            let event = events.next().expect("an event");
            assert_eq!((event.kind, event.target.as_deref()), (kind, Some("exec-1")));
        }

        let mut exec = shim.exec(hello(), false, false, None);
        let replies: Vec<_> = exec.more().expect("replies").map(|reply| reply.expect("a reply")).collect();
        let [started, exited] = &replies[..] else { panic!("{replies:?}") };
        assert_eq!(started.started.as_ref().map(|started| started.exec_id.as_str()), Some("exec-2"));
        assert_eq!(exited.exited.as_ref().map(|exited| exited.exit_code), Some(3));

        shim.reopen_logs().call().expect("new logs");
        shim.signal("container".into(), "CONT".into(), None).call().expect("a signal");
    });
    by_client(&sandbox, |connect| {
        let mut shim = VarlinkClient::new(connect());
        shim.shutdown(10_000).call().expect("the end");
    });
    assert_eq!(monitor.exit_code(), "143");
}

#[test]
fn the_varlink_crate_understands_the_errors() {
    let sandbox = Sandbox::new();
    let _monitor = running(&sandbox);
    by_client(&sandbox, |connect| {
        let mut shim = VarlinkClient::new(connect());
        let error = shim.signal("exec-9".into(), "TERM".into(), None).call().expect_err("there is no such exec");
        let ErrorKind::NotFound(Some(parameters)) = error.kind() else { panic!("{error:?}") };
        assert_eq!(parameters.target, "exec-9");
        // One of varlink's own.
        let error = shim.resize("container".into(), 24, 80).call().expect_err("it has no terminal");
        let Some(ServiceError::InvalidParameter(parameter)) = error.source_varlink_kind() else { panic!("{error:?}") };
        assert_eq!(parameter, "target");
        let error = shim.events().call().expect_err("there is more than one answer");
        let Some(ServiceError::VarlinkErrorReply(reply)) = error.source_varlink_kind() else { panic!("{error:?}") };
        assert_eq!(reply.error.as_deref(), Some("org.varlink.service.ExpectedMore"));
        // The connection goes on.
        assert_eq!(shim.status().call().expect("the status").state, State::running);
    });
}
