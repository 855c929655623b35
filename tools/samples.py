"""Make the sample runs in `notebooks/samples/`, for the notebooks and for `lab attach`.

Each sample is a real run, made by its command below. Only `run.json`, `summary.json`, the tasks'
last states and the records are kept: no model, no logs. The only change is the path of the Python
interpreter. A run whose files contain another path of this host is refused.

`python tools/samples.py` makes all samples (10 minutes on two cores). `python tools/samples.py sync
async` makes these two.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import shlex
import shutil
import socket
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
SAMPLES = ROOT / "notebooks/samples"
INDEX = SAMPLES / "index.json"

BOOK = "--cluster clusters/book.yaml --seed 1 --record_every 10 --epochs 3"
SLOW = '--fault "slow:0.3,5m worker-2 after 600 steps"'
LINKS = "--model mlp --seed 1 --record_every 5 --cluster notebooks/clusters"
PLAIN = f"run staleness --pause 0 --learning_rate 0.01 {LINKS}"


@dataclass(frozen=True)
class Recipe:
    """A command that makes sample runs.

    Attributes:
        names: The samples' names in the notebooks, in the order in which the runs start.
        command: The arguments of `lab`.
        shows: What the runs show.
        recording: The name of the run for `lab attach`, or "".
    """

    names: tuple[str, ...]
    command: str
    shows: str
    recording: str = ""


RECIPES = (
    Recipe(
        ("chapter",),
        'run async --epochs 50 --seed 1 --record_every 110 --start "worker-2: after 20,900'
        ' steps" --cluster clusters/book.yaml',
        "the whole chapter, with the book's late worker",
        recording="late-worker",
    ),
    Recipe(("async",), f"run async {BOOK}", "independent workers"),
    Recipe(("sync",), f"run sync {BOOK}", "one update for all workers"),
    Recipe(("async-straggler",), f"run async {BOOK} {SLOW}", "one slow worker, no worker waits"),
    Recipe(
        ("sync-straggler",),
        f"run sync {BOOK} {SLOW}",
        "one slow worker, all workers wait",
        recording="straggler",
    ),
    Recipe(
        ("killed-ps",),
        f"run async {BOOK} --checkpoint_every 2 --on-failure restart"
        ' --fault "kill ps-0 after 2000 steps"',
        "a killed parameter server: all tasks restart from the last checkpoint",
        recording="killed-ps",
    ),
    Recipe(
        ("sync-backup",),
        f"run sync {BOOK} {SLOW} --replicas_to_aggregate 2",
        "one slow worker, an update needs only the first two of three",
    ),
    Recipe(
        ("staleness-1", "staleness-8"),
        'sweep staleness --over "workers=1,8" --repeats 1 --seed 1 --record_every 1'
        " --cluster clusters/laptop.yaml",
        "one worker, and eight workers that update at the same time, at a learning rate of 1",
    ),
    Recipe(
        ("ring",),
        "run multiworker --model softmax --epochs 3 --seed 1 --record_every 10"
        " --cluster clusters/workers.yaml",
        "two workers without a parameter server",
    ),
    Recipe(
        ("links-1-worker",),
        f"{PLAIN}/lone-worker.yaml --global_steps 60",
        "one worker, one server, links of 100 Mbit/s",
    ),
    Recipe(
        ("links-4-workers",),
        f"{PLAIN}/one-server.yaml --global_steps 160",
        "four workers, one server, links of 100 Mbit/s",
    ),
    Recipe(
        ("links-2-servers",),
        f"{PLAIN}/two-servers.yaml --global_steps 160",
        "four workers, two servers, links of 100 Mbit/s",
    ),
    Recipe(
        ("links-average",),
        f"run async {LINKS}/lone-worker.yaml --global_steps 40",
        "one worker, which also keeps a moving average on the server",
    ),
    Recipe(
        ("links-ring",),
        f"run multiworker --global_steps 60 {LINKS}/ring.yaml",
        "four workers in a ring, links of 100 Mbit/s",
    ),
)


def main() -> None:
    """Make the named samples, or all."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument(
        "names", nargs="*", metavar="SAMPLE", help="make these samples (default: all)"
    )
    wanted = set(parser.parse_args().names)
    known = {name for recipe in RECIPES for name in recipe.names}
    if wanted - known:
        parser.error(
            f"unknown sample {min(wanted - known)!r}; use one of {', '.join(sorted(known))}"
        )
    with tempfile.TemporaryDirectory() as folder:
        # A run records whether the working tree has changes. To keep a sample is a change, so all
        # runs are made first.
        made = [
            (recipe, make(recipe, Path(folder) / recipe.names[0]))
            for recipe in RECIPES
            if not wanted or wanted & set(recipe.names)
        ]
        for recipe, runs in made:
            replace(recipe, runs)


def make(recipe: Recipe, folder: Path) -> list[Path]:
    """Run a recipe's command, and return its run directories in the order of their starts."""
    args = [*shlex.split(recipe.command), "--backend", "local", "--gpus", "none"]
    command = [sys.executable, "-m", "lab", *args, "--runs-dir", str(folder)]
    subprocess.run(command, cwd=ROOT, check=True)
    runs = sorted(folder.iterdir(), key=_started)
    if len(runs) != len(recipe.names):
        raise SystemExit(
            f"error: lab {recipe.command}: made {len(runs)} runs, expected {len(recipe.names)}"
        )
    return runs


def replace(recipe: Recipe, runs: Sequence[Path]) -> None:
    """Replace a recipe's samples by new runs."""
    index = json.loads(INDEX.read_text()) if INDEX.is_file() else {}
    for name, run in zip(recipe.names, runs, strict=True):
        keep(run)  # first, so that a refused run does not remove the old sample
        if name in index and index[name]["run"] != run.name:
            shutil.rmtree(SAMPLES / index[name]["run"], ignore_errors=True)
        shown = f"lab {recipe.command}"
        index[name] = {"run": run.name, "command": shown, "shows": recipe.shows}
        if recipe.recording:
            index[name]["recording"] = recipe.recording
    INDEX.write_text(json.dumps(index, indent=2, sort_keys=True) + "\n")


def keep(run: Path) -> None:
    """Copy the files of a run that the notebooks read.

    Raises:
        SystemExit: A file contains a path or the name of this host.
    """
    for name, text in texts_of(run).items():
        path = SAMPLES / run.name / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)


def texts_of(run: Path) -> dict[str, str]:
    """Return the files of a run that verdicts and notebooks read, without a path of this host.

    Raises:
        SystemExit: A file contains a path or the name of this host.
    """
    info = json.loads((run / "run.json").read_text())
    info["provenance"]["interpreter"] = Path(info["provenance"]["interpreter"]).name
    texts = {"run.json": json.dumps(info, indent=2) + "\n"}
    states, records = sorted(run.glob("status/*.json")), sorted(run.glob("tasks/*.jsonl"))
    for path in [run / "summary.json", *states, *records]:
        texts[str(path.relative_to(run))] = path.read_text()
    for name, text in texts.items():
        for place in places():
            if re.search(rf"(?<!\w){re.escape(place)}(?!\w)", text):
                raise SystemExit(
                    f"error: {run.name}/{name} contains {place}, a path or name of this host"
                )
    return texts


def places() -> Iterator[str]:
    """Return what no sample may contain: directories and the name of this host."""
    folders = {Path.home(), ROOT, Path(sys.prefix), Path(tempfile.gettempdir())}
    yield from (str(folder) for folder in folders if folder.parent != folder)
    yield from (os.environ[name] for name in ("LAB_STATE", "LAB_RUNS_DIR") if name in os.environ)
    yield socket.gethostname()


def _started(run: Path) -> float:
    started: float = json.loads((run / "run.json").read_text())["started_unix"]
    return started


if __name__ == "__main__":
    main()
