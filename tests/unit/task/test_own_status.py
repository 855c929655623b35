"""What the agent measures of a program: signs of life, CPU time, and kills for lack of memory."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from lab.protocol.volume.clock import Stopwatch
from lab.task.agent.own_status import SignsOfLife
from lab.task.agent.process import (
    ChildProcess,
    cpu_time_s,
    is_stopped,
    oom_kills,
    shared_oom_counters,
)
from tests.support.agents import wait_for


@pytest.mark.parametrize(
    ("patience_s", "looks", "counts"),
    [
        (300.0, [(10, 1, 0.0), (20, 1, 0.0), (30, 2, 0.0)], [1, 1, 2]),
        # A program that hangs uses less than 0.01 cores, one that computes silently more than 0.02.
        (300.0, [(10, 0, 0.1), (20, 0, 0.2), (30, 0, 0.5), (40, 0, 10.5)], [0, 0, 1, 2]),
        (300.0, [(10, 0, None), (20, 0, None)], [1, 2]),  # unknown
        (300.0, [(1, 1, 1.0), (9, 2, 9.0), (10, 3, 10.0), (11, 4, 11.0)], [0, 0, 1, 1]),
        (0.0, [(10, 1, 9.0), (99, 2, None)], [0, 0]),
        (3.0, [(1, 1, 0.0), (2, 1, 0.0), (3, 2, 0.0)], [1, 1, 2]),
    ],
)
def test_signs_of_life(
    patience_s: float,
    looks: list[tuple[float, int, float | None]],
    counts: list[int],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Looks: the time, the printed lines, and the CPU time."""
    now = 0.0
    monkeypatch.setattr(time, "monotonic", lambda: now)
    signs = SignsOfLife(patience_s)
    found = []
    for now, lines, cpu_s in looks:  # noqa: B007 (the clock reads it)
        found.append(signs.count(lines, lambda cpu_s=cpu_s: cpu_s))
    assert found == counts


def test_a_stopwatch_measures_how_long_a_value_stays(monkeypatch: pytest.MonkeyPatch) -> None:
    now = 100.0
    monkeypatch.setattr(time, "monotonic", lambda: now)
    watch = Stopwatch()
    found = []
    for passed_s, value, counts in [
        (0.5, 1, True),
        (0.5, 1, True),
        (0.5, 1, True),
        (3600.0, 1, True),  # this process was paused
        (0.5, 2, True),
        (0.5, 2, True),
        (0.5, 2, False),
        (0.5, 2, True),
    ]:
        now += passed_s
        found.append(watch.look(value, counts=counts))
    assert found == [0.0, 0.5, 1.0, 2.0, 0.0, 0.5, 0.0, 0.5]


def test_the_cpu_time_of_a_program_and_its_processes() -> None:
    before = cpu_time_s()
    burn = "import time\nwhile time.process_time() < 0.3: pass\n"
    nested = f"import subprocess, sys; subprocess.run([sys.executable, '-c', {burn!r}]);"
    waits = "print(flush=True); sys.stdin.read()"
    with subprocess.Popen(
        [sys.executable, "-c", nested + waits], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as program:
        program.stdout.readline()
        while_it_runs = cpu_time_s()
    after = cpu_time_s()
    assert while_it_runs is not None
    assert while_it_runs >= 0.25 + (before or 0.0)
    assert after is None or after >= while_it_runs  # None: this process has no child any more


@pytest.mark.parametrize("stops", ["os.getpid()", "child.pid"])
def test_a_stopped_program_is_known_by_itself_and_its_processes(stops: str) -> None:
    code = (
        "import os, subprocess, sys\n"
        "child = subprocess.Popen(['cat'], stdin=subprocess.PIPE)\n"
        f"print({stops}, flush=True)\n"
        "sys.stdin.read()\n"
    )
    with subprocess.Popen(
        [sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as program:
        stopped = int(program.stdout.readline())
        assert not is_stopped(program.pid)
        os.kill(stopped, signal.SIGSTOP)
        wait_for(lambda: is_stopped(program.pid), "its stop")
        os.kill(stopped, signal.SIGCONT)
        wait_for(lambda: not is_stopped(program.pid), "its continuation")
    assert not is_stopped(program.pid)


def test_a_pause_stops_the_sessions_of_a_launcher_too(tmp_path: Path) -> None:
    code = (
        "import subprocess, sys, time\n"
        "child = subprocess.Popen(['sleep', '600'], start_new_session=True)\n"
        "print(child.pid, flush=True)\n"
        "time.sleep(600)\n"
    )
    program = ChildProcess([sys.executable, "-c", code], os.environ, tmp_path, has_sessions=True)
    with os.fdopen(program.output) as lines:
        child = int(lines.readline())
        for number, stopped in ((signal.SIGSTOP, True), (signal.SIGCONT, False)):
            program.signal(number)
            wait_for(lambda stopped=stopped: is_stopped(child) is stopped, f"signal {number}")
        program.signal(signal.SIGKILL)
        os.kill(child, signal.SIGKILL)
        assert program.reap() == -signal.SIGKILL


def test_out_of_memory_kills_are_counted(tmp_path: Path) -> None:
    first, second = tmp_path / "memory.events", tmp_path / "memory.oom_control"
    assert oom_kills((first, second)) is None
    second.write_text("oom_kill_disable 0\nunder_oom 0\noom_kill 2\n")
    assert oom_kills((first, second)) == 2
    first.write_text("low 0\nhigh 0\nmax 4\noom 1\noom_kill 3\n")
    assert oom_kills((first, second)) == 3


def test_the_counters_of_a_shared_cgroup_are_read_before_that_of_the_host(tmp_path: Path) -> None:
    groups = tmp_path / "cgroup"
    assert [*map(str, shared_oom_counters(groups))] == ["/proc/vmstat"]
    groups.write_text("9:name=systemd:/\n4:memory:/user/a:b\n3:cpuset:/\n0::/user.slice/s.scope\n")
    assert [*map(str, shared_oom_counters(groups))] == [
        "/sys/fs/cgroup/memory/user/a:b/memory.oom_control",
        "/sys/fs/cgroup/user.slice/s.scope/memory.events",
        "/proc/vmstat",
    ]
