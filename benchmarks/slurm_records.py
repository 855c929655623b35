"""Records of programs in jobs of Slurm that are lost, in runs with and without faults.

    LAB_TEST_SLURM=1 python -m benchmarks slurm-records --pairs 10    ten more of the fifty runs

Each call continues the runs of the same commit in `results.json`.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from benchmarks import results, slurm
from benchmarks.measure import Setting, print_progress
from benchmarks.outcome import Outcome, Target
from benchmarks.pairs import Estimate
from benchmarks.trainings import ROOT, Workplace
from lab.records import format_record
from lab.run.prepare import git_state

KEY: Final = "slurm-records"
COMMAND: Final = "LAB_TEST_SLURM=1 python -m benchmarks slurm-records"
RUNS: Final = 50
NONE: Final = "no fault"
CONFIG: Final = ROOT / "clusters/slurm.yaml"
PROJECT: Final = "slurm"
WORKERS: Final = ("worker-0", "worker-1")
# Slurm 22.05 cannot start a job with GPUs again that it put back when a node of it was down.
FLAGS: Final = (
    *("--gpus", "none"),
    *("--global_steps=1500", "--record_every=1", "--checkpoint_every=1"),
)
STEPS: Final = 100
_STEP: Final = '"kind": "step"'
_POLL_S: Final = 0.05
_PATIENCE_S: Final = 100.0
_LEFT_S: Final = 10.0

PROGRAM: Final = '''\
"""Runs the program, and notes each record in a file of its own when the pipe has taken it."""
import os
import runpy

from lab.task.sdk import recorder

name = "-".join(os.environ[name] for name in ("LAB_RUN_ID", "LAB_TASK", "LAB_ATTEMPT"))
ledger = os.open(f"{ledger}/{{name}}-{{os.getpid()}}", os.O_WRONLY | os.O_CREAT | os.O_APPEND)
write_all = recorder.write_all


def write_and_note(descriptor, data):
    write_all(descriptor, data)
    os.write(ledger, data)


recorder.write_all = write_and_note
runpy.run_path("{program}", run_name="__main__")
'''
"""Stands in for `mnist_async.py` in the project of the runs."""

HOW: Final = (
    "Runs of mnist_async.py (1 ps and 2 workers, 1,500 global steps, a record of each) by `lab run"
    " --backend slurm` on a private Slurm of three nodes. A fault comes when each worker has"
    f" recorded {STEPS} steps, or when the programs start. Each program notes a record in a file"
    " of its own when the pipe to its agent has taken it, and the files of the run volume are kept."
    " A record is lost if one of them has it, and the run store does not, or a different one."
    " If the fault kills an agent, what it had not read is counted apart."
)


@dataclass(frozen=True, slots=True)
class Fault:
    """A fault of a run.

    Attributes:
        name: Its name in the list of runs.
        flags: Flags of `lab run`.
        act: Called once while the workers train; None: `lab` itself injects it.
        early: Whether `act` is called when the programs start.
        then: Commands of `lab` that collect the run after its client was killed.
        ends_agent: Whether it kills an agent, so that records in its pipe are not read.
    """

    name: str
    flags: Sequence[str] = ()
    act: Callable[[Run], None] | None = None
    early: bool = False
    then: Sequence[str] = ()
    ends_agent: bool = False


class Run:
    """One run, its client and its job.

    Attributes:
        client: The process of `lab run`.
    """

    def __init__(self, place: Workplace, number: int, fault: Fault | None) -> None:
        self.place = place
        self.fault = fault or Fault(NONE)
        self.number = number
        self.folder = place.folder / f"run-{number}"
        self.runs = self.folder / "runs"
        self.ledger = self.folder / "ledger"
        self._volume = self.folder / "volume"
        self._make_project()
        with (self.folder / "client").open("wb") as output:
            self.client = subprocess.Popen(
                self._lab("run", "async", *FLAGS, f"--seed={number}", *self.fault.flags),
                env=place.environ,
                cwd=self.folder,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
            )

    def _make_project(self) -> None:
        """Make a project's directory, whose program notes its records."""
        for folder in (self.folder / "scripts", self.folder / "data", self.ledger, self._volume):
            folder.mkdir(parents=True)
        for script in (ROOT / "scripts").iterdir():
            (self.folder / "scripts" / script.name).symlink_to(script)
        (self.folder / "cluster.yaml").write_bytes(CONFIG.read_bytes())
        program = self.folder / "scripts/mnist_async.py"
        program.unlink()
        source = ROOT / "scripts/mnist_async.py"
        program.write_text(PROGRAM.format(ledger=self.ledger, program=source))

    def _lab(self, *arguments: str) -> list[str]:
        command = [sys.executable, "-m", "lab", *arguments]
        if arguments[0] == "run":
            command += ["--backend", "slurm"]
        return command if arguments[0] == "down" else [*command, "--runs-dir", str(self.runs)]

    def slurm(self, *command: str) -> str:
        """Run a command of Slurm, and return its output; its failure is an error.

        Raises:
            subprocess.CalledProcessError: It failed.
        """
        return subprocess.run(
            command, env=self.place.environ, check=True, capture_output=True, text=True
        ).stdout

    def wait_for_nodes(self) -> None:
        """Wait until Slurm has all nodes again.

        Raises:
            TimeoutError: A node does not come back.
        """
        until = time.monotonic() + _PATIENCE_S
        while set(self.slurm("sinfo", "--noheader", "--Node", "--format=%T").split()) != {"idle"}:
            if time.monotonic() > until:
                raise TimeoutError("a node does not come back")
            time.sleep(_POLL_S)

    def jobs(self) -> list[int]:
        """The numbers of lab's jobs, each with its components."""
        lines = self.slurm("squeue", "--noheader", "--format=%A %j").splitlines()
        return sorted(int(line.split()[0]) for line in lines if " lab-" in line)

    def execute(self) -> dict[str, Any]:
        """Execute the run with its fault; return its row."""
        began = time.monotonic()
        acted, problem = self.fault.act is None, ""
        while self.client.poll() is None:
            if time.monotonic() - began > _PATIENCE_S:
                print_progress(f"the client hangs: {self.folder}")
                break
            time.sleep(_POLL_S)
            self._link()
            if not acted and self._is_due():
                acted = True
                problem = self._act()
        hangs = self.client.poll() is None
        if hangs:
            self.client.kill()
        codes = [self.client.wait(), *map(self._call, self.fault.then)]
        left = self._left()
        if left:
            self._call("down --yes --discard")
        return {
            "run": self.number,
            "fault": self.fault.name,
            "end": "hangs" if hangs else " and ".join(self._states()) or "no run",
            "exit": codes,
            **counted(self.ledger, self._volume, self.runs, ends_agent=self.fault.ends_agent),
            "left": left,
            "took_s": round(time.monotonic() - began, 1),
            "problem": problem if acted else "the run ended before the fault",
        }

    def _act(self) -> str:
        """Inject the fault; return the problem, or "" if it is injected."""
        assert self.fault.act is not None  # noqa: S101 (narrows the type)
        try:
            self.fault.act(self)
        except subprocess.CalledProcessError as error:
            return f"{error}: {error.stderr}"
        except (OSError, ValueError, IndexError) as error:
            return f"{type(error).__name__}: {error}"
        return ""

    def _is_due(self) -> bool:
        if self.fault.early:
            return any(self.ledger.iterdir())
        texts = {task: [f.read_text() for f in self._volume.glob(f"*-{task}")] for task in WORKERS}
        return all(sum(text.count(_STEP) for text in each) >= STEPS for each in texts.values())

    def _link(self) -> None:
        """Keep the files of records on the run volume, which `lab` removes."""
        volume = Path(self.place.environ["LAB_STATE"]) / "slurm" / PROJECT / "runs"
        with contextlib.suppress(FileNotFoundError):  # `lab` is removing it
            for file in volume.glob("*/tasks/*.jsonl"):
                kept = self._volume / f"{file.stat().st_ino}-{file.parts[-3]}-{file.stem}"
                if not kept.exists():
                    kept.hardlink_to(file)

    def _call(self, command: str) -> int:
        """Call `lab`, as a user does whose client was killed; return its exit code."""
        done = subprocess.run(
            self._lab(*command.split()),
            env=self.place.environ,
            cwd=self.folder,
            capture_output=True,
            text=True,
            check=False,
            timeout=_PATIENCE_S,
        )
        with (self.folder / "client").open("a") as output:
            output.write(f"$ lab {command}\n{done.stdout}{done.stderr}")
        return done.returncode

    def _states(self) -> list[str]:
        files = sorted(self.runs.glob("*/run.json"))
        return [str(json.loads(file.read_text())["state"]) for file in files]

    def _left(self) -> list[str]:
        """What `lab` has left: jobs, directories and processes; empty if all is as before."""
        until = time.monotonic() + _LEFT_S
        while left := [*self._left_now()]:
            if time.monotonic() > until:
                break
            time.sleep(_POLL_S)
        return left

    def _left_now(self) -> Iterator[str]:
        state = self.place.environ["LAB_STATE"]
        yield from (f"job {job}" for job in self.jobs())
        yield from (f"directory {path.name}" for path in Path(state).glob("slurm/*/"))
        yield from (f"process {name}" for _, name in processes(f"LAB_STATE={state}"))


def counted(ledger: Path, volume: Path, runs: Path, *, ends_agent: bool = False) -> dict[str, int]:
    """Count the records that the programs wrote, and that are collected.

    Args:
        ledger: The directory of the programs' own notes.
        volume: The directory of the files of the run volume.
        runs: The run store.
        ends_agent: Whether an agent was killed. Then records that no agent has read are not lost.
    """
    written = {line for file in ledger.iterdir() for line in file.read_text().split("\n")[:-1]}
    received = {line for file in volume.iterdir() for line in _records(file)}
    collected = [line for file in runs.glob("*/tasks/*") for line in _records(file)]
    return {
        "written": len(written),
        "collected": len(collected),
        "lost": len((received if ends_agent else written | received) - set(collected)),
        "twice": len(collected) - len(set(collected)),
        "unread": len(written - received),
    }


def processes(*variables: str) -> Iterator[tuple[int, str]]:
    """Yield the number and the command of each process with these environment variables."""
    wanted = {variable.encode() for variable in variables}
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            if wanted <= {*(folder / "environ").read_bytes().split(b"\0")}:
                command = (folder / "cmdline").read_bytes().replace(b"\0", b" ")
                yield int(folder.name), command.decode(errors="replace")
        except OSError:
            continue  # the process has ended


def _records(file: Path) -> Iterator[str]:
    """Yield the whole records in a file of JSON lines, in the form in which programs write them."""
    for line in file.read_text().split("\n")[:-1]:
        yield format_record(json.loads(line))


def _kill_client(run: Run) -> None:
    run.client.kill()


def _interrupt(run: Run) -> None:
    run.client.send_signal(signal.SIGINT)


def _scancel(run: Run) -> None:
    run.slurm("scancel", str(run.jobs()[0]))


def _requeue(run: Run) -> None:
    job = run.jobs()[0]
    run.slurm("scontrol", "requeue", str(job))
    _start_again(run, job)


def _node_down(run: Run) -> None:
    job = run.jobs()[0]
    run.slurm("scontrol", "update", "NodeName=n3", "State=down", "Reason=benchmark")
    _start_again(run, job)
    run.slurm("scontrol", "update", "NodeName=n3", "State=idle")


def _kill_node(run: Run) -> None:
    """Kill the daemons of a node and its tasks; then Slurm notices it, and the node starts again.

    With its default configuration, Slurm notices it after 5 minutes.
    """
    conf = f"SLURM_CONF={run.place.environ['SLURM_CONF']}"
    for number, command in processes(conf, "SLURMD_NODENAME=n3"):
        if command.rstrip().endswith("lab.task.agent"):
            os.kill(_parent(number), signal.SIGKILL)
        os.kill(number, signal.SIGKILL)
    for number, command in processes(conf):
        if command.startswith("slurmd ") and command.split()[-1] == "n3":
            os.kill(number, signal.SIGKILL)
    run.slurm("scontrol", "update", "NodeName=n3", "State=down", "Reason=benchmark")
    run.slurm("env", "--unset=LAB_STATE", "slurmd", "-N", "n3")


def _kill_node_of_job(run: Run) -> None:
    job = run.jobs()[0]
    _kill_node(run)
    _start_again(run, job)


def _parent(number: int) -> int:
    return int(Path(f"/proc/{number}/stat").read_text().rpartition(")")[2].split()[1])


def _start_again(run: Run, job: int) -> None:
    """Let a job that is in the queue again start at once: Slurm would wait for two minutes."""
    until = time.monotonic() + _PATIENCE_S
    while True:
        printed = run.slurm("squeue", "--noheader", f"--jobs={job}", "--format=%A %T")
        components = dict(line.split() for line in printed.splitlines())
        if set(components.values()) == {"PENDING"}:
            break
        if time.monotonic() > until:
            raise TimeoutError(f"job {job} is not in the queue again")
        time.sleep(_POLL_S)
    for number in components:
        run.slurm("scontrol", "update", f"JobId={number}", "StartTime=now")


def _time_limit(run: Run) -> None:
    run.slurm("scancel", "--batch", "--signal=USR1", str(run.jobs()[0]))


def _kill_agent(run: Run) -> None:
    (agent,) = [
        number
        for number, command in processes(
            f"LAB_STATE={run.place.environ['LAB_STATE']}", "LAB_TASK=worker-1"
        )
        if command.rstrip().endswith("lab.task.agent")
    ]
    os.kill(agent, signal.SIGKILL)


def _kill_client_and_job(run: Run) -> None:
    _kill_client(run)
    _scancel(run)


RESTART: Final = ("--on-failure", "restart")
LATER: Final = ("attach last", "down --yes")
KILL_WORKER: Final = ("--fault", "kill worker-1 after 300 steps")
FAULTS: Final = (
    Fault("kill a worker", KILL_WORKER),
    Fault("kill a worker, restart", (*KILL_WORKER, *RESTART)),
    Fault("kill a worker, continue", (*KILL_WORKER, "--on-failure", "continue")),
    Fault("kill the ps", ("--fault", "kill ps-0 after 300 steps")),
    Fault("kill the ps, restart", ("--fault", "kill ps-0 after 300 steps", *RESTART)),
    Fault("pause a worker", ("--fault", "pause:2s worker-0 after 300 steps")),
    Fault("stop a worker", ("--fault", "stop worker-1 after 300 steps")),
    Fault("set a node down", act=_node_down),
    Fault("kill a node", act=_kill_node, ends_agent=True),
    Fault("kill a node, restart", RESTART, _kill_node_of_job, ends_agent=True),
    Fault("requeue", act=_requeue),
    Fault("requeue, restart", RESTART, _requeue),
    Fault("scancel", act=_scancel),
    Fault("scancel at the start", act=_scancel, early=True),
    Fault("kill -9 the client, attach", act=_kill_client, then=LATER),
    Fault("kill -9 the client at the start, attach", act=_kill_client, early=True, then=LATER),
    Fault(
        "kill -9 the client, scancel, collect",
        act=_kill_client_and_job,
        then=("collect", "down --yes"),
    ),
    Fault("Ctrl-C", act=_interrupt),
    Fault("kill -9 an agent", act=_kill_agent, ends_agent=True),
    Fault("the time limit is near", act=_time_limit),
)


def fault_of(number: int) -> Fault | None:
    """Return the fault of a run; two of five runs have one.

    Args:
        number: The run, from 0 to `RUNS` - 1.
    """
    block, position = divmod(number, 5)
    return {1: FAULTS[2 * block], 3: FAULTS[2 * block + 1]}.get(position)


def measure(setting: Setting) -> list[Outcome]:
    """Make the next runs; their number is that of the pairs."""
    commit = (git_state(ROOT) or {}).get("commit", "")
    rows = [] if setting.quick else to_continue(results.read(), commit)
    with slurm.ready(setting.place) as why_not:
        print_progress(f"slurm-records: {why_not or f'{len(rows)} of {RUNS} runs were made'}")
        for number in range(len(rows), min(len(rows) + setting.pairs, RUNS) if not why_not else 0):
            run = Run(setting.place, number, fault_of(number))
            rows.append({**run.execute(), "commit": commit})
            print_progress(f"  {json.dumps(rows[-1])}")
            try:
                run.wait_for_nodes()
            except TimeoutError as error:
                print_progress(str(error))
                break
    return [lost(rows, why_not)]


def unmeasured() -> list[Outcome]:
    """Return the row without a figure, for RESULTS.md before the first measurement."""
    return [lost([], f"run `{COMMAND}`")]


def to_continue(kept: results.Rows, commit: str) -> list[dict[str, Any]]:
    """Return the kept runs of a commit; none if all have been made."""
    rows = [dict(row) for row in kept[KEY]["raw"]["runs"]] if KEY in kept else []
    same = [row for row in rows if row["commit"] == commit]
    return same if len(same) < RUNS else []


def lost(rows: Sequence[Mapping[str, Any]], why_not: str) -> Outcome:
    """Return the lost records of all runs: a sum, because a median could hide a loss."""
    total = sum(row["lost"] for row in rows)
    values = tuple(float(row["lost"]) for row in rows)
    faults = sum(row["fault"] != NONE for row in rows)
    return Outcome(
        key=KEY,
        what="records lost on Slurm, in all runs",
        unit="records",
        target=Target("at most", 0),
        found=Estimate(total, total, total, values) if rows else None,
        how=HOW,
        why_not="" if rows else why_not,
        details={
            "runs": f"{len(rows)} of {RUNS}, {faults} of them with a fault",
            "records in all": f"{sum(row['collected'] for row in rows):,}",
            "collected twice": f"{sum(row['twice'] for row in rows):,}",
            "not read by a killed agent": f"{sum(row['unread'] for row in rows):,}",
            "faults that were not injected": str(sum(bool(row["problem"]) for row in rows)),
            "runs that left a job, a process or a directory": str(
                sum(bool(row["left"]) for row in rows)
            ),
            **ends(rows),
        }
        if rows
        else {},
        raw={"runs": list(rows)},
    )


def ends(rows: Sequence[Mapping[str, Any]]) -> dict[str, str]:
    """Return how the runs with each fault have ended: `2 succeeded, 1 hangs`."""
    found: dict[str, Counter[str]] = {}
    for row in rows:
        found.setdefault(row["fault"], Counter())[row["end"]] += 1
    return {
        fault: ", ".join(f"{count} {end}" if count > 1 else end for end, count in each.items())
        for fault, each in found.items()
    }
