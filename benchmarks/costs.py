"""What `lab` costs: throughput, start, time beside the programs, CPU time, and its commands."""

from __future__ import annotations

import contextlib
import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Final

from benchmarks import engine, pairs
from benchmarks.processes import ends, watched
from benchmarks.results import Outcome, Target
from benchmarks.trainings import (
    CLUSTER,
    CLUSTER_OF_8,
    PROGRAM,
    TASKS,
    Setting,
    Workplace,
    by_hand,
    by_lab,
    common_time,
    json_records,
    lab_run,
    must,
    print_progress,
    steps_per_second,
    with_progress,
)

THROUGHPUT: Final = {"local": Target("at least", 0.97), "compose": Target("at least", 0.95)}
STARTS: Final = (("local", False, 1.15), ("local", True, 1.15), ("compose", True, 1.4))
"""Backend, whether its environment is already running, and the limit of the ratio."""
REST: Final = Target("at most", 1.0)
OVERHEAD: Final = (
    ("overhead-local", CLUSTER, 3, 0.01),
    ("overhead-local-8", CLUSTER_OF_8, 7, 0.03),
)
"""Key, config, number of workers beside one parameter server, and the limit of the share."""
COMMANDS: Final = {
    "help": (["--help"], 0.12),
    "render": (["render", "--gpus", "index", "--output", "-"], 0.25),
}
"""Key to the arguments of `lab` and the limit in seconds."""

STEPS, QUICK_STEPS = 3_000, 1_500
LONG_STEPS: Final = 6_000
SETTLES_S: Final = 5.0
"""After this time a new environment has finished its own background work."""
_IMPORT: Final = "import tensorflow, time; print(time.time())"


@contextlib.contextmanager
def environment(place: Workplace, backend: str, *, wanted: bool = True) -> Iterator[str]:
    """Boot the benchmarks' environment for the block; with compose also provide an engine.

    Yields:
        The reason why there is none; "" if all is ready.
    """
    lab = [sys.executable, "-m", "lab"]
    where = ["--backend", backend, "--cluster", str(CLUSTER), "--gpus", "none"]
    with contextlib.ExitStack() as stack:
        why_not = stack.enter_context(engine.ready(place)) if backend == "compose" else ""
        if wanted and not why_not:
            must(place, "lab up", [*lab, "up", *where])
            down = [*lab, "down", "lab-bench", "--yes", "--discard"]
            stack.callback(must, place, "lab down", down)
            time.sleep(SETTLES_S)
        yield why_not


def throughput(setting: Setting) -> list[Outcome]:
    """Measure the rate of steps under `lab run`, relative to the same program without `lab`."""
    return [_throughput(setting, backend) for backend in setting.backends]


def _throughput(setting: Setting, backend: str) -> Outcome:
    steps = QUICK_STEPS if setting.quick else STEPS
    flags = (f"--global_steps={steps}", "--seed=1")
    with environment(setting.place, backend, wanted=False) as why_not:
        ways = {
            "`lab run`": lambda: steps_per_second(by_lab(setting.place, backend, flags).records),
            "by hand": lambda: steps_per_second(by_hand(setting.place, flags).records),
        }
        raw, details = _compared(setting, ways, "{:,.0f} steps/s".format, why_not)
    return Outcome(
        key=f"throughput-{backend}",
        what=f"training throughput, `lab run` on {backend} / by hand",
        unit="ratio",
        target=THROUGHPUT[backend],
        found=pairs.ratio(raw) if raw else None,
        how=f"mnist_async.py, softmax, 1 ps and 3 workers, {steps:,} global steps, seed 1; global"
        " steps per second while all workers train, from the step records of both sides. `lab run`"
        " boots and removes its environment each time, so that nothing of it runs while the other"
        " side trains (processes on 127.0.0.1, output into files, all in one session like jobs of"
        " one shell). Start and end are not counted.",
        why_not=why_not,
        details=details,
        raw={"pairs": raw},
    )


def _compared(
    setting: Setting,
    ways: Mapping[str, Callable[[], float]],
    shown: Callable[[float], str],
    why_not: str,
) -> tuple[list[tuple[float, float]], dict[str, str]]:
    """Measure two ways in pairs; return the pairs, and the median of each way as a text."""
    one, other = (with_progress(name, measure, shown) for name, measure in ways.items())
    print_progress(f"{' / '.join(ways)}: {why_not or f'{setting.pairs} pairs'}")
    if why_not:
        return [], {}
    raw = pairs.interleaved(one, other, setting.pairs)
    columns = zip(ways, zip(*raw, strict=True), strict=True)
    return raw, {name: shown(pairs.estimate(values).median) for name, values in columns}


def start(setting: Setting) -> list[Outcome]:
    """Measure the time to the first step of every worker, relative to the import of TensorFlow."""
    print_progress(f"  first import, not counted: {import_at_once(setting.place, 1):.2f} s")
    return [_start(setting, *case) for case in STARTS if case[0] in setting.backends]


def _start(setting: Setting, backend: str, is_up: bool, limit: float) -> Outcome:
    up = " with the environment up" if is_up else ""
    with environment(setting.place, backend, wanted=is_up) as why_not:
        ways = {
            "`lab run`": lambda: first_steps(setting.place, backend),
            f"{len(TASKS)} imports at once": lambda: import_at_once(setting.place, len(TASKS)),
        }
        raw, details = _compared(setting, ways, "{:.2f} s".format, why_not)
    return Outcome(
        key=f"start-{backend}{'-up' if is_up else ''}",
        what=f"`lab run` on {backend}{up} to every first step / `import tensorflow` alone",
        unit="ratio",
        target=Target("at most", limit),
        found=pairs.ratio(raw) if raw else None,
        how=f"The time from the start of `lab run --backend {backend}`, with"
        f" {'a' if is_up else 'no'} running environment, to the first step record of the last"
        f" worker. It is divided by the time in which {len(TASKS)} processes, started together,"
        " complete `import tensorflow`. One import before the first pair writes bytecode and fills"
        " the page cache.",
        why_not=why_not,
        details=details,
        raw={"pairs": raw},
    )


def first_steps(place: Workplace, backend: str) -> float:
    """Return the seconds from the start of `lab run` to the first step of the last worker."""
    training = by_lab(place, backend, ("--epochs=1", "--seed=1", "--record_every=1"))
    return common_time(training.records)[0] - training.began_unix


def import_at_once(place: Workplace, count: int) -> float:
    """Return the seconds in which a number of processes import TensorFlow."""
    began = time.time()
    processes = [
        subprocess.Popen(
            [sys.executable, "-c", _IMPORT],
            env=place.environ,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
        )
        for _ in range(count)
    ]
    outputs = [process.communicate()[0] for process in processes]
    return max(float(output) for output in outputs) - began


def back_to_back(setting: Setting) -> list[Outcome]:
    """Measure the time that a run in a running environment takes in addition to its programs."""
    return [_back_to_back(setting, backend) for backend in setting.backends]


def _back_to_back(setting: Setting, backend: str) -> Outcome:
    values = list[tuple[float, float]]()
    with environment(setting.place, backend) as why_not:
        print_progress(f"back to back on {backend}: {why_not or f'{setting.pairs} runs'}")
        if not why_not:
            rest(setting.place, backend)  # not counted: the first run fills caches
            values = [rest(setting.place, backend) for _ in range(setting.pairs)]
    wholes = [whole for _, whole in values]
    return Outcome(
        key=f"back-to-back-{backend}",
        what=f"`lab run` on {backend} with the environment up, beside import and training",
        unit="s",
        target=REST,
        found=pairs.estimate([left for left, _ in values]) if values else None,
        how="Consecutive runs of mnist_async.py (1 ps and 3 workers, 200 global steps) in a running"
        " environment. The figure is the time of the whole process `lab run`, minus the time"
        " between the start of the first program and the last record of any program. The rest is"
        " the client's start, the submission, the programs' exit, the collection and the summary.",
        why_not=why_not,
        details={"the whole of `lab run`": f"{pairs.estimate(wholes).median:.2f} s"}
        if wholes
        else {},
        raw={"whole_s": wholes},
    )


def rest(place: Workplace, backend: str) -> tuple[float, float]:
    """Return the time of a run without its programs, and its total time, in seconds."""
    runs = Path(tempfile.mkdtemp(prefix="runs-", dir=place.folder))
    began = time.time()
    flags = ("--epochs=1", "--global_steps=200", "--seed=1")
    must(place, "lab run", lab_run(backend, runs, flags))
    whole_s = time.time() - began
    (run,) = runs.iterdir()
    statuses = [json.loads((run / f"status/{task}.json").read_text()) for task in TASKS]
    started = min(float(status["started_unix"]) for status in statuses)
    records = [each for task in TASKS for each in json_records(run / f"tasks/{task}.jsonl")]
    last = max(float(each["time_unix"]) for each in records)
    print_progress(f"  beside the programs: {whole_s - (last - started):.2f} s of {whole_s:.2f} s")
    return whole_s - (last - started), whole_s


def overhead(setting: Setting) -> list[Outcome]:
    """Measure the CPU time of the client and the agents while the programs train, on local."""
    return [_overhead(setting, *case) for case in OVERHEAD]


def _overhead(setting: Setting, key: str, cluster: Path, workers: int, limit: float) -> Outcome:
    steps = QUICK_STEPS if setting.quick else LONG_STEPS
    print_progress(f"overhead, {workers + 1} tasks: {setting.pairs} runs")
    one = with_progress(
        "client and agents / programs",
        lambda: share(setting.place, steps, cluster, workers),
        "{:.2%}".format,
    )
    return Outcome(
        key=key,
        what=f"CPU time of the client and the agents / of the programs, {workers + 1} tasks",
        unit="ratio",
        target=Target("at most", limit),
        found=pairs.estimate([one() for _ in range(setting.pairs)]),
        how="CPU seconds of the client, the supervisor, the fork server and the agents, relative to"
        f" the programs (mnist_async.py, softmax, 1 ps and {workers} workers, {steps:,} global"
        " steps) in the same time, from the kernel's counters, while all workers train. On local,"
        " with the plain view.",
    )


def share(place: Workplace, steps: int, cluster: Path, workers: int) -> float:
    """Return the CPU time of `lab` relative to the programs', while all workers trained.

    Raises:
        TrainingError: The run did not succeed.
        UnfitError: It was too short.
    """
    runs = Path(tempfile.mkdtemp(prefix="runs-", dir=place.folder))
    command = lab_run("local", runs, [f"--global_steps={steps}"], cluster)
    samples = watched(place, command, PROGRAM, workers + 1)
    records = {file.stem: json_records(file) for file in runs.glob("*/tasks/*.jsonl")}
    first, last = ends(samples, *common_time(records))
    programs = sum(last.cpu_s.values()) - sum(first.cpu_s.values())
    return (last.lab_s - first.lab_s) / programs


def commands(setting: Setting) -> list[Outcome]:
    """Measure the whole processes of short commands."""
    return [_command(setting, key, *case) for key, case in COMMANDS.items()]


def _command(setting: Setting, key: str, arguments: Sequence[str], limit: float) -> Outcome:
    what = f"lab {' '.join(arguments)}"

    def seconds(*command: str) -> float:
        began = time.perf_counter()
        must(setting.place, what, [sys.executable, *command])
        return time.perf_counter() - began

    seconds("-m", "lab", *arguments)  # not counted: it may write bytecode
    ways = {
        f"`{what}`": lambda: seconds("-m", "lab", *arguments),
        "`python -c pass`": lambda: seconds("-c", "pass"),
    }
    raw, details = _compared(setting, ways, "{:.3f} s".format, "")
    return Outcome(
        key=key,
        what=f"`{what}`",
        unit="s",
        target=Target("at most", limit),
        found=pairs.estimate([taken for taken, _ in raw]),
        how="The whole process, from its start to its end, with the project's `cluster.yaml`.",
        details=details,
        raw={"pairs": raw},
    )
