"""Faults of networks: the client injects them while it follows a run, on either backend."""

from __future__ import annotations

import copy
import os
import signal
import subprocess
import threading
from argparse import ArgumentTypeError
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from lab.backends import network_faults
from lab.backends.compose.environment import ComposeEnvironment
from lab.backends.compose.network_faults import end_faults
from lab.backends.local import environment as local
from lab.backends.local import processes as inside
from lab.backends.local import state
from lab.backends.local.environment import LocalEnvironment
from lab.backends.local.state import Isolation
from lab.backends.process import ProcessHandle
from lab.backends.python import base_environ, module_command
from lab.errors import InputError, LabError
from lab.run import fault_injection as faultings
from lab.run.fault_injection import (
    FaultNotDelivered,
    NetworkFaults,
    check_followed,
    inject,
    parse_faults,
    resolve,
    warning,
)
from lab.task.probes.netfault import MODULE
from lab.task.protocol import Request, RunSpec, control
from lab.task.protocol.faults import parse
from tests.support.agents import wait_for
from tests.support.containers import an_engine, inspected
from tests.support.fakes import PLAN, FakeEnvironment
from tests.support.local import a_record

REQUEST = Request("r1", RunSpec("async", "mnist_async.py"), PLAN.cluster_spec())


# ---- While a run is followed


@pytest.fixture
def environment(tmp_path: Path) -> Iterator[FakeEnvironment]:
    made = FakeEnvironment(tmp_path, lambda _volume, _request: None)
    made.submit(REQUEST)
    yield made
    for thread in made.threads:
        thread.join()


def told(environment: FakeEnvironment) -> list[str]:
    folder = environment.volume.faults("r1")
    return [control.read_fault(path).text for path in control.injected_faults(folder).values()]


def test_network_faults_start_when_due(environment: FakeEnvironment) -> None:
    output: list[str] = []
    now = [50.0]
    texts = ("cut:5s tf2 after 3s", "kill worker-1", "link:rate=8kbit tf3 after 500 steps")
    faulting = NetworkFaults(environment, "r1", texts, output.append, lambda: now[0])
    now[0] += 2.9
    faulting.tick(499)
    assert environment.disturbed == []
    now[0] += 0.1
    faulting.tick(499)
    wait_for(lambda: told(environment) == ["cut:5s tf2 after 3s"], "the first is told")
    faulting.tick(500)
    wait_for(lambda: len(told(environment)) == 2, "the second is told")
    faulting.tick(501)
    assert environment.disturbed == [("tf2", "cut:5s"), ("tf3", "link:rate=8kbit,30s")]
    assert output == []


def test_a_refused_network_fault_is_printed_not_recorded(
    environment: FakeEnvironment,
) -> None:
    output: list[str] = []
    environment.unshakable = "this kernel has no netem"
    faulting = NetworkFaults(environment, "r1", ["link:delay=5ms tf2"], output.append)

    def has_said() -> bool:
        faulting.tick(None)
        return bool(output)

    wait_for(has_said, "the refusal")
    assert output == [
        "fault link:delay=5ms,30s tf2 was not injected: node tf2: this kernel has no netem"
    ]
    assert told(environment) == []


def test_a_defect_is_no_refusal(environment: FakeEnvironment) -> None:
    environment.inject_network_fault = lambda _node, _words: 1 / 0  # type: ignore[method-assign,assignment]
    faulting = NetworkFaults(environment, "r1", ["cut:5s tf2"], print)

    def fails() -> bool:
        try:
            faulting.tick(None)
        except ZeroDivisionError:
            return True
        return False

    wait_for(fails, "the defect")


def no_word(_run_id: str, _fault: str) -> None:
    raise LabError("the disk is full", "make room")


def test_an_active_fault_is_reported_without_a_run(
    environment: FakeEnvironment,
) -> None:
    environment.inject_fault = no_word  # type: ignore[method-assign,assignment]
    arguments = (
        "fault cut:5s tf2 is in effect, but run r1 has no record of it: the disk is full; make room"
    )
    with pytest.raises(FaultNotDelivered) as caught:
        inject(environment, "r1", parse("cut:5s tf2"))
    assert str(caught.value) == arguments
    with pytest.raises(LabError, match=r"^the disk is full; make room$"):
        inject(environment, "r1", parse("kill worker-1"))
    output: list[str] = []
    faulting = NetworkFaults(environment, "r1", ["cut:5s tf2"], output.append)
    faulting.tick(None)
    faulting.end()
    assert output == [arguments]
    assert environment.disturbed == [("tf2", "cut:5s")] * 2


def test_at_the_end_active_faults_are_awaited(
    environment: FakeEnvironment,
) -> None:
    output: list[str] = []
    go_on = threading.Event()

    def hang(_node: str, _words: object) -> None:
        threading.Timer(0.05, go_on.set).start()
        go_on.wait()
        raise LabError("node tf2: this kernel has no netem")

    environment.inject_network_fault = hang  # type: ignore[method-assign,assignment]
    texts = ("cut:5s tf2", "cut:5s tf3 after 500 steps")
    faulting = NetworkFaults(environment, "r1", texts, output.append)
    faulting.tick(None)
    faulting.end()
    assert output == ["fault cut:5s tf2 was not injected: node tf2: this kernel has no netem"]
    faulting.tick(500)  # no further fault starts
    faulting.end()
    assert len(output) == 1


def test_the_wait_at_the_end_is_short(
    environment: FakeEnvironment, monkeypatch: pytest.MonkeyPatch
) -> None:
    output: list[str] = []
    go_on = threading.Event()
    monkeypatch.setattr(faultings, "END_S", 0.05)
    environment.inject_network_fault = lambda _node, _words: go_on.wait()  # type: ignore[method-assign,assignment]
    faulting = NetworkFaults(environment, "r1", ["cut:5s tf2"], output.append)
    faulting.tick(None)
    faulting.end()
    faulting.end()
    go_on.set()
    assert output == [
        "fault cut:5s tf2 was started, but it may not be in effect: end it with `lab down mnist`"
    ]


def test_random_is_refused(environment: FakeEnvironment) -> None:
    with pytest.raises(ValueError, match="is still random"):
        NetworkFaults(environment, "r1", ["cut:5s random"], print)


def test_program_faults_are_only_sent(environment: FakeEnvironment) -> None:
    inject(environment, "r1", parse("pause:3s tf2"))
    assert (environment.disturbed, told(environment)) == ([], ["pause:3s tf2"])


def test_a_pause_that_looks_like_a_stall_is_warned_of() -> None:
    assert warning(parse("pause:9s ps-0"), 10) is None
    assert warning(parse("pause:90s ps-0"), 0) is None
    assert warning(parse("slow:0.1,90s ps-0"), 10) is None
    assert warning(parse("pause:10s ps-0"), 10) == (
        "fault pause:10s ps-0 lasts at least as long as --stall 10s: if all tasks wait for ps-0,"
        " the run fails before the fault ends"
    )


def test_the_faults_of_a_flag_are_drawn_and_warned_of() -> None:
    places = {each.name: each.node for each in PLAN.tasks}
    output: list[str] = []
    texts = resolve(
        parse_faults("kill random seed 3; pause:9m worker-1"), places, 300, output.append
    )
    assert texts == resolve(
        parse_faults("kill random seed 3; pause:9m worker-1"), places, 0, output.append
    )
    assert not any(parse(text).is_random for text in texts)
    assert [line[:29] for line in output] == ["warning: fault pause:540s wor"]
    with pytest.raises(InputError, match="no such fault: no task or node 'tf9'; did you mean"):
        resolve(parse_faults("cut:5s tf9"), places, 0, output.append)
    with pytest.raises(ValueError, match="a fault, such as kill worker-1 after 500 steps"):
        parse_faults("")
    with pytest.raises(ArgumentTypeError, match="no fault 'kil'; did you mean 'kill'"):
        parse_faults("kill worker-1; kil worker-1")


def test_a_run_without_a_client_has_no_network_faults() -> None:
    check_followed(parse_faults("kill worker-1; pause:3s tf2"))
    with pytest.raises(InputError, match=r"fault 'cut:5s tf2' needs an attached client, .*; le"):
        check_followed(parse_faults("kill worker-1; cut:5s tf2"))


# ---- Output of the injecting process


def test_a_refusal_names_the_node_and_a_hint() -> None:
    error = network_faults.refused("node tf2", b"a warning\nerror: no netem; load it\n")
    assert (error.what, error.fix) == ("node tf2: no netem", "load it")
    assert str(network_faults.refused("node tf2", b"")) == "node tf2: it ended without output"


# ---- Processes


@pytest.fixture
def stored(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> LocalEnvironment:
    monkeypatch.setenv("LAB_STATE", str(tmp_path / "state"))
    place = state.state_dir("demo")
    place.runs.mkdir(parents=True)
    return LocalEnvironment(place, a_record())


def test_processes_without_namespaces_have_no_network_of_their_own(
    stored: LocalEnvironment,
) -> None:
    record = replace(stored._record, isolation=Isolation.PROCESSES)
    with pytest.raises(LabError, match=r"tf2 has no network of its own: .*; use other faults"):
        LocalEnvironment(stored._state_dir, record).inject_network_fault("tf2", ["cut:5s"])


def test_a_node_without_an_agent(stored: LocalEnvironment) -> None:
    with pytest.raises(LabError, match="node tf2 has no running agent; see `lab ps demo`"):
        stored.inject_network_fault("tf2", ["cut:5s"])


def test_a_fault_joins_the_network_of_the_nodes_agent(
    stored: LocalEnvironment, monkeypatch: pytest.MonkeyPatch
) -> None:
    done: list[tuple[Any, ...]] = []
    own = ProcessHandle.of(os.getpid())
    agents = {task.task: replace(own, pid=n) for n, task in enumerate(stored._record.tasks, 100)}
    monkeypatch.setattr(stored, "_agents", lambda: agents)
    monkeypatch.setattr(local, "inject_fault", lambda *given: done.append(given))
    stored.inject_network_fault("tf2", ["cut:5s"])
    node, enter, arguments, link = done[0]
    first = next(task.task for task in stored._record.tasks if task.node == "tf2")
    assert (node, arguments) == ("tf2", ["cut:5s"])
    assert enter[:3] == ["nsenter", "-t", str(agents[first].pid)]
    assert "-n" in enter
    assert link == {"LAB_LINK_RATE_BITS": str(10**8)}


def test_a_fault_of_a_missing_run(stored: LocalEnvironment) -> None:
    with pytest.raises(LabError, match="no run 'r1' on this volume"):
        stored.inject_fault("r1", "kill worker-1")


def test_a_refused_process(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(
        LabError, match=r"^node tf2: 9999s is not a valid duration of a fault; give at most 3600s"
    ):
        inside.inject_fault("tf2", [], ["cut:9999s"], {})
    # A reader of its pipe would wait for ever.
    monkeypatch.setattr(inside, "module_command", lambda _module: ["sleep", "86400"])
    monkeypatch.setattr(network_faults, "START_S", 0.05)
    with pytest.raises(
        LabError, match=r"node tf2: the fault did not take effect within .*; check wh"
    ):
        inside.inject_fault("tf2", [], [], {})
    monkeypatch.setattr(inside, "module_command", lambda _module: ["nonsense-of-lab"])
    with pytest.raises(FileNotFoundError):
        inside.inject_fault("tf2", [], [], {})


@pytest.mark.parametrize(
    ("at_the_end", "ends_by"), [("touch {}/reverted; exit", signal.SIGTERM), ("", signal.SIGKILL)]
)
def test_a_late_process_reverts_its_fault(
    at_the_end: str, ends_by: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A child of the process that enters the node, which ends by the signal and forwards none."""
    trap = f"trap '{at_the_end.format(tmp_path)}' TERM"
    script = f"{trap}; touch {tmp_path}/begun; sleep 60 & wait"
    stubborn = "" if at_the_end else "trap '' TERM; "
    enter = ["sh", "-c", stubborn + '"$@" & wait', "sh"]
    codes: list[int] = []

    class Noted(subprocess.Popen[bytes]):
        def wait(self, timeout: float | None = None) -> int:
            codes.append(super().wait(timeout))
            return codes[-1]

    def too_late(node: str, began: Callable[[], bytes | None]) -> None:
        wait_for((tmp_path / "begun").exists, "its begin")
        network_faults.wait_until_in_effect(node, began)

    monkeypatch.setattr(inside, "module_command", lambda _module: ["sh", "-c", script])
    monkeypatch.setattr(inside, "_REVERT_S", 0.05 if stubborn else 30)
    monkeypatch.setattr(network_faults, "START_S", 0.05)
    monkeypatch.setattr(inside, "wait_until_in_effect", too_late)
    monkeypatch.setattr("lab.backends.local.processes.subprocess.Popen", Noted)
    with pytest.raises(LabError, match="node tf2: the fault did not take effect within"):
        inside.inject_fault("tf2", enter, [], {})
    assert codes[-1] == -ends_by
    if at_the_end:
        wait_for((tmp_path / "reverted").exists, "its revert")


def test_an_active_fault_outlives_its_caller(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    script = f"echo holds; sleep 0.2; touch {tmp_path}/over"
    monkeypatch.setattr(inside, "module_command", lambda _module: ["sh", "-c", script])
    inside.inject_fault("tf2", [], [], {})
    wait_for((tmp_path / "over").exists, "its end")


# ---- Containers


class Sidecar:
    """A container with this output, first the bytes of standard output."""

    def __init__(self, out: bytes, err: bytes) -> None:
        self.pieces = [piece for piece in [(None, err), (out, None)] if any(piece)]
        self.did: list[str] = []
        self.status = "running"
        self.stuck: threading.Event | None = None

    def attach(self, **_: object) -> Stream:
        return Stream(self)

    def start(self) -> None:
        self.did.append("start")

    def remove(self, **_: object) -> None:
        self.did.append("remove")

    def stop(self, **_: object) -> None:
        self.did.append("stop")
        if self.stuck is not None:
            self.stuck.set()


class Stream:
    def __init__(self, sidecar: Sidecar) -> None:
        self._sidecar = sidecar

    def __next__(self) -> tuple[bytes | None, bytes | None]:
        if self._sidecar.stuck is not None:
            self._sidecar.stuck.wait()
        if not self._sidecar.pieces:
            raise StopIteration
        return self._sidecar.pieces.pop(0)

    def close(self) -> None:
        self._sidecar.did.append("close")


def an_anchor(**state: object) -> dict[str, Any]:
    made = copy.deepcopy(inspected(**state))
    made["Id"] = "a11c0e"
    made["Config"]["Env"] = ["LAB_NODE=tf3", "LAB_LINK_RATE_BITS=8000"]
    del made["Config"]["Labels"]["lab.task"]
    return made


def with_sidecar(made: Sidecar, *containers: dict[str, Any]) -> tuple[ComposeEnvironment, Any]:
    engine = an_engine(*containers)
    asked: dict[str, Any] = {}

    def create(image: str, command: list[str], **options: object) -> Sidecar:
        asked.update(options, image=image, command=command)
        return made

    engine.client().containers.create = create  # type: ignore[method-assign,assignment]
    return ComposeEnvironment(engine, "mnist"), asked


def test_a_container_on_the_nodes_network() -> None:
    made = Sidecar(b"eth0 is off the network for 5 s\n", b"a warning\n")
    environment, asked = with_sidecar(made, an_anchor(), inspected())
    environment.inject_network_fault("tf3", ["cut:5s"])
    assert made.did == ["start", "close"]
    assert asked["command"] == ["python", "-m", "lab.task.probes.netfault", "cut:5s"]
    assert asked["network_mode"] == "container:a11c0e"
    assert (asked["cap_drop"], asked["cap_add"]) == (["ALL"], ["NET_ADMIN"])
    assert asked["environment"] == {"LAB_LINK_RATE_BITS": "8000"}
    # `lab down` finds it, and it is not a part of the environment.
    assert asked["labels"] == {
        "com.docker.compose.project": "",
        "lab.project": "mnist",
        "lab.reader": "mnist",
        "lab.fault": "tf3",
    }
    assert asked["auto_remove"]


def test_a_container_that_is_refused_by_its_kernel() -> None:
    made = Sidecar(b"", b"error: this kernel has no netem; load it\n")
    environment, _ = with_sidecar(made, an_anchor(), inspected())
    with pytest.raises(LabError, match=r"^node tf3: this kernel has no netem; load it$"):
        environment.inject_network_fault("tf3", ["link:delay=5us,5s"])


def test_a_container_that_could_not_be_started_is_removed() -> None:
    made = Sidecar(b"", b"")
    environment, _ = with_sidecar(made, an_anchor(), inspected())

    def refuse() -> None:
        raise ConnectionError("Connection aborted")

    made.start = refuse  # type: ignore[method-assign]
    with pytest.raises(LabError, match="injecting a fault into node tf3: no Docker engine answers"):
        environment.inject_network_fault("tf3", ["cut:5s"])
    assert made.did == ["stop", "remove"]


def test_a_container_without_output_is_ended() -> None:
    made = Sidecar(b"", b"")
    made.stuck = threading.Event()
    environment, _ = with_sidecar(made, an_anchor(), inspected())
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(network_faults, "START_S", 0.05)
        with pytest.raises(LabError, match=r"^node tf3: the fault did not take effect within 0"):
            environment.inject_network_fault("tf3", ["cut:5s"])
    # Stopped before it is removed: a killed one leaves the node unchanged.
    assert made.did == ["start", "stop", "remove"]


def test_a_container_reverts_its_fault_after_an_interrupt() -> None:
    made = Sidecar(b"", b"")
    environment, _ = with_sidecar(made, an_anchor(), inspected())

    def interrupt() -> None:
        made.did.append("start")
        raise KeyboardInterrupt

    made.start = interrupt  # type: ignore[method-assign]
    with pytest.raises(KeyboardInterrupt):
        environment.inject_network_fault("tf3", ["cut:5s"])
    assert made.did == ["start", "stop", "remove"]


@pytest.mark.parametrize(
    ("node", "state", "message"),
    [
        ("tf9", {}, "node tf9 is not running: there is no such node; see `lab ps mnist`"),
        ("tf3", {"Status": "exited", "ExitCode": 1}, "node tf3 is not running: exited"),
    ],
)
def test_a_stopped_node(node: str, state: dict[str, Any], message: str) -> None:
    environment, _ = with_sidecar(Sidecar(b"", b""), an_anchor(**state), inspected())
    with pytest.raises(LabError, match=message):
        environment.inject_network_fault(node, ["cut:5s"])


def test_faults_end_before_an_environment_is_removed(monkeypatch: pytest.MonkeyPatch) -> None:
    """The engine removes them itself, and refuses a concurrent removal."""
    made = Sidecar(b"", b"")
    engine = an_engine()
    left = [[made, made], [made], []]
    monkeypatch.setattr(engine, "containers", lambda *_labels: left.pop(0))
    monkeypatch.setattr(
        engine, "for_each", lambda _doing, found, action: [action(each) for each in found]
    )
    end_faults(engine, "mnist")
    assert made.did == ["stop", "stop"]
    assert left == []
    # One that never ran is neither stopped nor awaited.
    never = Sidecar(b"", b"")
    never.status = "created"
    left = [[never, made], [never, made], [never]]
    end_faults(engine, "mnist")
    assert (made.did, never.did) == (["stop"] * 3, [])
    left = [[never], [never]]
    end_faults(engine, "mnist")
    assert (never.did, left) == ([], [])


def test_the_volume_gets_the_faults() -> None:
    asked: list[tuple[str, ...]] = []

    class Listening(ComposeEnvironment):
        def _channel(self, seen: Any = None) -> Any:
            def call(*arguments: str) -> Iterator[bytes]:
                asked.append(arguments)
                yield b""

            return SimpleNamespace(call=call)

    Listening(an_engine(), "mnist").inject_fault("r1", "kill worker-1")
    assert asked == [("fault", "r1", "kill worker-1")]


def test_the_module_exists_by_its_name() -> None:
    done = subprocess.run(
        module_command(MODULE), env=base_environ(), capture_output=True, check=False
    )
    assert (done.returncode, done.stderr[:12]) == (2, b"error: usage")
