"""Error messages about faulty containers; the engine's answers are made up."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import docker.errors
import pytest

from lab.backends.compose import ComposeBackend, readiness
from lab.backends.compose.channel import _raise_for_exit_code, upload
from lab.backends.compose.client import NotFound, engine_errors
from lab.backends.compose.containers import parse_inspection
from lab.backends.compose.environment import ComposeEnvironment
from lab.backends.compose.error_hints import explain
from lab.errors import InputError, LabError
from lab.task.protocol import Request, RunSpec
from tests.support.containers import a_task, an_engine, inspected
from tests.support.fakes import PLAN

REQUEST = Request("20260101-0000-async-aaaa", RunSpec("async", "mnist_async.py"), {"ps": ["tf1:1"]})


def an_environment(*containers: dict[str, Any], volumes: tuple[str, ...] = ()) -> Any:
    return ComposeEnvironment(an_engine(*containers, volumes=volumes), "mnist")


def test_an_environment_that_is_not_up() -> None:
    down = inspected(Status="exited", ExitCode=1)
    with pytest.raises(LabError, match=r"worker-1 of environment mnist is not up: exited .1.; see"):
        an_environment(down).submit(REQUEST)
    with pytest.raises(LabError, match=r"worker-1 is not running: exited \(1\); boot it"):
        an_environment(down).shell("worker-1")
    with pytest.raises(InputError, match=r"mnist has no task 'ps-9'; its tasks: worker-1"):
        an_environment(down).shell("ps-9")
    with pytest.raises(LabError, match=r"environment mnist has no containers; boot it"):
        list(an_environment().logs([], follow=False, tail=None))


def test_a_removed_environment() -> None:
    with pytest.raises(NotFound, match=r"environment mnist no longer exists; boot it"):
        an_environment().cancel("x", "y")
    with pytest.raises(LabError, match=r"no image is left to read the volume mnist_runs; build"):
        an_environment(volumes=("mnist_runs",)).cancel("x", "y")


class Saying(ComposeEnvironment):
    """An environment whose containers answer calls with these bytes."""

    answer = b""

    def _channel(self, seen: Any = None) -> Any:
        def call(*arguments: str) -> Iterator[bytes]:
            yield self.answer

        return SimpleNamespace(call=call)


def test_invalid_answers() -> None:
    environment = Saying(an_engine(), "mnist")
    environment.answer = b"{}\n"
    with pytest.raises(LabError, match=r"the run volume of mnist holds not a request"):
        environment.runs()
    for answer in (b"[]", b"{", b'{"r": 1}'):
        environment.answer = answer
        with pytest.raises(LabError, match=r"the run volume of mnist returned invalid notes: "):
            environment.collected()
    environment.answer = b"noise\n"
    with pytest.raises(
        NotFound, match=r"collecting run r stopped: .*; continue with `lab collect r`"
    ):
        list(environment.stream("r", {}, follow=False))


def test_calls_that_failed_without_output() -> None:
    for code in (1, 3, 4):
        with pytest.raises(LabError, match=r"no output"):
            _raise_for_exit_code("asking", code, b"")


def test_an_engine_that_takes_no_program(tmp_path: Path) -> None:
    with pytest.raises(LabError, match=r"the engine refused .*; see `lab ps`"):
        upload(an_engine(inspected()), "c0ffee", "r", {"program": tmp_path})


def test_removed_resources() -> None:
    gone = docker.errors.NotFound("404", explanation="No such container: c0ffee")
    message = "looking: No such container: c0ffee; see `lab ls`"
    with pytest.raises(NotFound, match=message), engine_errors("looking"):
        raise gone


@pytest.mark.parametrize(
    ("state", "message"),
    [
        ({"state": "exited", "exit_code": 2}, "worker-1 ended at once, exited (2)"),
        ({"health": "unhealthy"}, "worker-1 is unhealthy"),
        ({"health": "starting"}, "worker-1 is not up after 0 s: running (starting)"),
    ],
)
def test_containers_without_output(state: dict[str, Any], message: str) -> None:
    broken = replace(a_task(), **state)
    with pytest.raises(LabError) as caught:
        readiness.wait_until_up(an_engine(inspected()), lambda: [broken], print, timeout_s=0)
    assert caught.value.what == message


def test_an_environment_of_the_same_name() -> None:
    backend = ComposeBackend()
    backend._engine = an_engine(inspected())
    mine = replace(PLAN, cluster_sha256="other")
    with pytest.raises(
        LabError, match=r"environment mnist exists already, booted from another config"
    ):
        backend._refuse_another(mine, Path("/home/ada"))
    with pytest.raises(
        LabError, match=r"already, booted from another directory, /home/ada; remove it"
    ):
        backend._refuse_another(replace(PLAN, cluster_sha256="abc"), Path("/home/bob"))
    assert parse_inspection(inspected()).folder == "/home/ada"
    scripts = {"Type": "bind", "Source": "/home/bob/scripts", "Target": "/lab/scripts"}
    from_a_subdirectory, node = inspected(), inspected()
    from_a_subdirectory["HostConfig"]["Mounts"] = [scripts]
    del node["Config"]["Labels"]["lab.task"]
    backend._engine = an_engine(node, from_a_subdirectory)
    backend._refuse_another(replace(PLAN, cluster_sha256="abc"), Path("/home/bob"))


def test_unknown_errors_of_the_engine() -> None:
    assert (
        str(explain("booting", ["one", "odd thing"])) == "booting: odd thing; see the lines above"
    )
