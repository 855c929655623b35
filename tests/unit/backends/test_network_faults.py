"""Faults of networks: the client injects them while it follows a run, on either backend."""

from __future__ import annotations

import copy
import signal
import subprocess
import threading
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest.mock import Mock

import pytest

from lab.backends import network_faults
from lab.backends.compose.environment import ComposeEnvironment, end_faults
from lab.backends.local import environment as inside
from lab.backends.local import state
from lab.backends.local.environment import LocalEnvironment
from lab.backends.local.state import Isolation
from lab.backends.network_faults import wait_until_in_effect
from lab.base.errors import LabError
from lab.protocol.experiments.faults import parse
from lab.protocol.volume import Request, RunSpec, control
from lab.runner import fault_injection as faultings
from lab.runner.fault_injection import FaultNotDelivered, NetworkFaults, inject, warning
from tests.support.agents import wait_for
from tests.support.containers import an_engine, inspected
from tests.support.fakes import PLAN, FakeEnvironment, raising
from tests.support.local import a_record


@pytest.fixture
def environment(tmp_path: Path) -> Iterator[FakeEnvironment]:
    made = FakeEnvironment(tmp_path, lambda _volume, _request: None)
    made.submit(Request("r1", RunSpec("async", "mnist_async.py"), PLAN.cluster_spec()))
    yield made
    for thread in made.threads:
        thread.join()


def recorded(environment: FakeEnvironment) -> list[str]:
    folder = environment.volume.faults("r1")
    return [control.read_fault(path).text for path in control.injected_faults(folder).values()]


def test_network_faults_start_when_due(
    environment: FakeEnvironment, notices: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    now = [50.0]
    clock = SimpleNamespace(monotonic=lambda: now[0])
    monkeypatch.setattr("lab.runner.fault_injection.time", clock)
    texts = ("cut:5s tf2 after 3s", "kill worker-1", "link:rate=8kbit tf3 after 500 steps")
    faulting = NetworkFaults(environment, "r1", texts)
    now[0] += 2.9
    faulting.tick(499)
    assert environment.disturbed == []
    now[0] += 0.1
    faulting.tick(499)
    wait_for(lambda: recorded(environment) == ["cut:5s tf2 after 3s"], "the first is recorded")
    faulting.tick(500)
    wait_for(lambda: len(recorded(environment)) == 2, "the second is recorded")
    faulting.tick(501)
    assert environment.disturbed == [("tf2", "cut:5s"), ("tf3", "link:rate=8kbit,30s")]
    assert notices == []


def test_a_network_fault_without_a_time_waits_for_the_first_step(
    environment: FakeEnvironment,
) -> None:
    faulting = NetworkFaults(environment, "r1", ["cut:5s tf2"])
    faulting.tick(None)
    assert environment.disturbed == []
    faulting.tick(1)
    wait_for(lambda: environment.disturbed == [("tf2", "cut:5s")], "the fault")


def test_an_active_fault_is_reported_without_a_record(
    environment: FakeEnvironment, monkeypatch: pytest.MonkeyPatch, notices: list[str]
) -> None:
    monkeypatch.setattr(
        environment, "inject_fault", raising(LabError("the disk is full", "make room"))
    )
    line = (
        "fault cut:5s tf2 is in effect, but run r1 has no record of it: the disk is full; make room"
    )
    with pytest.raises(FaultNotDelivered) as caught:
        inject(environment, "r1", parse("cut:5s tf2"))
    assert str(caught.value) == line
    with pytest.raises(LabError, match=r"^the disk is full; make room$"):
        inject(environment, "r1", parse("kill worker-1"))
    faulting = NetworkFaults(environment, "r1", ["cut:5s tf2"])
    wait_for(lambda: faulting.tick(1) or notices, "the report")
    faulting.end()
    assert notices == [line]
    assert environment.disturbed == [("tf2", "cut:5s")] * 2


@pytest.mark.parametrize("in_time", [True, False])
def test_at_the_end_active_faults_are_awaited_for_a_short_time(
    environment: FakeEnvironment, monkeypatch: pytest.MonkeyPatch, in_time: bool, notices: list[str]
) -> None:
    go_on = threading.Event()

    def hang(_node: str, _words: object) -> None:
        if in_time:
            threading.Timer(0.05, go_on.set).start()
        go_on.wait()
        raise LabError("node tf2: this kernel has no netem")

    if not in_time:
        monkeypatch.setattr(faultings, "END_S", 0.05)
    monkeypatch.setattr(environment, "inject_network_fault", hang)
    texts = ("cut:5s tf2", "cut:5s tf3 after 500 steps")
    faulting = NetworkFaults(environment, "r1", texts)
    faulting.tick(1)
    faulting.end()
    faulting.tick(500)  # no further fault starts
    faulting.end()
    go_on.set()
    refused = "fault cut:5s tf2 was not injected: node tf2: this kernel has no netem"
    unknown = "was started, but it may not be in effect: end it with `lab down mnist`"
    assert notices == [refused if in_time else f"fault cut:5s tf2 {unknown}"]


@pytest.mark.parametrize(
    ("fault", "stall_s", "warns"),
    [
        ("pause:9s ps-0", 10, False),
        ("pause:10s ps-0", 10, True),
        ("cut:11s tf1", 10, True),
        ("pause:90s ps-0", 0, False),
        ("slow:0.1,90s ps-0", 10, False),
    ],
)
def test_a_pause_that_looks_like_a_stall_is_warned_of(
    fault: str, stall_s: float, warns: bool
) -> None:
    line = warning(parse(fault), stall_s)
    assert (line is not None) is warns
    assert line is None or f"{fault} lasts at least as long as --stall 10s: if all tasks" in line


@pytest.fixture
def stored(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> LocalEnvironment:
    monkeypatch.setenv("LAB_STATE", str(tmp_path / "state"))
    place = state.StateDir.of("demo")
    place.runs.mkdir(parents=True)
    return LocalEnvironment(place, a_record())


def test_nodes_without_a_network_or_an_agent(stored: LocalEnvironment) -> None:
    with pytest.raises(LabError, match="node tf2 has no running agent; see `lab ps demo`"):
        stored.inject_network_fault("tf2", ["cut:5s"])
    with pytest.raises(LabError, match="no run 'r1' on this volume"):
        stored.inject_fault("r1", "kill worker-1")
    record = replace(a_record(), isolation=Isolation.PROCESSES)
    with pytest.raises(LabError, match=r"tf2 has no network of its own: .*; use other faults"):
        LocalEnvironment(state.StateDir.of("demo"), record).inject_network_fault("tf2", ["cut:5s"])


def test_a_refused_process(monkeypatch: pytest.MonkeyPatch) -> None:
    def refusal(*command: str, words: tuple[str, ...] = ()) -> str:
        if command:
            monkeypatch.setattr(inside, "module_command", lambda _module: list(command))
        with pytest.raises((LabError, FileNotFoundError)) as caught:
            inside.inject_fault("tf2", [], list(words), {})
        return str(caught.value)

    assert refusal(words=("cut:9999s",)).startswith("node tf2: 'cut:9999s' has a missing")
    script = "echo a warning >&2; echo 'error: no netem; load it' >&2"
    assert refusal("sh", "-c", script) == "node tf2: no netem; load it"
    assert refusal("true") == "node tf2: it ended without output"
    assert "nonsense-of-lab" in refusal("nonsense-of-lab")
    # A reader of its pipe would wait for ever.
    monkeypatch.setattr(network_faults, "START_S", 0.05)
    assert "the fault did not take effect within" in refusal("sleep", "86400")


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
        wait_until_in_effect(node, began)

    monkeypatch.setattr(network_faults, "START_S", 0.05)
    monkeypatch.setattr(inside, "REVERT_S", 0.05 if stubborn else 30)
    monkeypatch.setattr(inside, "module_command", lambda _module: ["sh", "-c", script])
    monkeypatch.setattr(inside, "wait_until_in_effect", too_late)
    monkeypatch.setattr("lab.backends.local.environment.subprocess.Popen", Noted)
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


def sidecar(out: bytes = b"", err: bytes = b"", fault: BaseException | None = None) -> Mock:
    made = Mock(status="running")
    made.attach.return_value = (piece for piece in [(None, err), (out, None)] if any(piece))
    made.start.side_effect = fault
    return made


def calls(made: Mock) -> list[str]:
    return [name for name, *_ in made.method_calls]


def injected(made: Mock, node: str = "tf3", **state: object) -> dict[str, Any]:
    anchor = copy.deepcopy(inspected(**state))
    anchor["Id"] = "a11c0e"
    anchor["Config"]["Env"] = ["LAB_NODE=tf3", "LAB_LINK=8000 0"]
    del anchor["Config"]["Labels"]["lab.task"]
    engine = an_engine(anchor, inspected())
    asked: dict[str, Any] = {}

    def create(image: str, command: list[str], **options: object) -> Mock:
        asked.update(options, image=image, command=command)
        return made

    engine.client().containers.create = create
    ComposeEnvironment(engine, "mnist").inject_network_fault(node, ["cut:5s"])
    return asked


def test_a_container_on_the_nodes_network() -> None:
    made = sidecar(b"eth0 is off the network for 5 s\n", b"a warning\n")
    asked = injected(made)
    assert calls(made) == ["attach", "start"]
    assert made.attach.return_value.gi_frame is None  # closed, or the socket would stay open
    assert asked["command"] == ["python", "-m", "lab.protocol.network.fault", "cut:5s"]
    assert asked["network_mode"] == "container:a11c0e"
    assert (asked["cap_drop"], asked["cap_add"]) == (["ALL"], ["NET_ADMIN"])
    assert asked["environment"] == {"LAB_LINK": "8000 0"}
    # `lab down` finds it, and it is not a part of the environment.
    assert asked["labels"] == {
        "com.docker.compose.project": "",
        "lab.project": "mnist",
        "lab.reader": "mnist",
        "lab.fault": "tf3",
    }
    assert asked["auto_remove"]


@pytest.mark.parametrize(
    ("made", "error"),
    [
        (
            sidecar(err=b"error: this kernel has no netem; load it\n"),
            r"^node tf3: this kernel has no netem; load it$",
        ),
        (
            sidecar(fault=ConnectionError("Connection aborted")),
            "injecting a fault into node tf3: no Docker engine answers",
        ),
        (sidecar(fault=KeyboardInterrupt()), None),
    ],
    ids=["refused", "no engine", "Ctrl-C"],
)
def test_a_container_without_effect_reverts_and_is_removed(made: Mock, error: str | None) -> None:
    with pytest.raises((LabError, KeyboardInterrupt), match=error):
        injected(made)
    # Stopped before it is removed: a killed one leaves the node unchanged.
    assert calls(made) == ["attach", "start", "stop", "remove"]


@pytest.mark.parametrize(
    ("node", "state", "message"),
    [
        ("tf9", {}, "node tf9 is not running: there is no such node; see `lab ps mnist`"),
        ("tf3", {"Status": "exited", "ExitCode": 1}, "node tf3 is not running: exited"),
    ],
)
def test_a_stopped_node(node: str, state: dict[str, Any], message: str) -> None:
    with pytest.raises(LabError, match=message):
        injected(sidecar(), node, **state)


def test_faults_end_before_an_environment_is_removed(monkeypatch: pytest.MonkeyPatch) -> None:
    """The engine removes them itself, and refuses a concurrent removal."""
    made, never = sidecar(), sidecar()
    never.status = "created"  # one that never ran is neither stopped nor awaited
    engine, left = an_engine(), list[list[Mock]]()
    monkeypatch.setattr(engine, "containers", lambda *_labels: left.pop(0))
    monkeypatch.setattr(
        engine, "for_each", lambda _doing, found, action: [action(each) for each in found]
    )
    for left in ([[made, made], [made], []], [[never, made], [never, made], [never]]):
        end_faults(engine, "mnist")
        assert left == []
    assert (calls(made), calls(never)) == (["stop"] * 3, [])
