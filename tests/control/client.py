"""Calls each method of the shim's interface with the varlink package. Arguments: the socket, and an OCI process."""

import base64
import json
import sys

import varlink

address, process = "unix:" + sys.argv[1], json.loads(sys.argv[2])


def connect():
    return varlink.Client.new_with_address(address).open("org.dunnage.shim", namespaced=False)


with connect() as shim, connect() as other:
    status = shim.Status()
    assert status["state"] == "running", status
    assert status["processes"][0]["target"] == "container", status
    # Strings or nothing, and numbers: the package checks what it gets against the description.
    assert all(limit is None or limit == "max" or limit.split()[0].isdigit() or limit.startswith("max ") for limit in status["limits"].values()), status
    assert status["counters"]["bytes_dropped"] == 0 and status["counters"]["lines_logged"] == 0, status

    events = other.Events(_more=True)
    assert next(events)["event"]["kind"] == "subscribed"

    executed = shim.ExecSync(process, None, None, None)
    assert executed["exit_code"] == 3 and not executed["timed_out"], executed
    assert base64.b64decode(executed["stdout"]) == b"hello\n", executed
    assert [next(events)["event"]["kind"] for _ in range(2)] == ["started", "exited"]

    started, exited = shim.Exec(process, False, False, None, _more=True)
    assert started["started"]["exec_id"] == exited["exited"]["exec_id"], (started, exited)
    assert exited["exited"]["exit_code"] == 3, exited

    shim.ReopenLogs()
    # Ignored by the processes of the container, so that nothing else of it is to be seen.
    shim.Signal("container", "CONT", True)
    shim.Signal("container", "CONT", None)
    for call, error in [
        (lambda: shim.Signal("exec-9", "TERM", None), "org.dunnage.shim.NotFound"),
        (lambda: shim.Signal("exec-9", "TERM", True), "org.dunnage.shim.NotFound"),
        (lambda: shim.Resize("container", 24, 80), "org.varlink.service.InvalidParameter"),
        (lambda: shim.CloseStdin("container"), "org.varlink.service.InvalidParameter"),
        (lambda: shim.Shutdown(1), "org.varlink.service.InvalidParameter"),
    ]:
        try:
            call()
        except varlink.VarlinkError as raised:
            assert raised.error() == error, raised
        else:
            raise AssertionError(error)
    shim.Shutdown(10000)

print("all well")
