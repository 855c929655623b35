"""Damaged run directories: every command ends with one line, and no sound record is lost."""

from __future__ import annotations

import json
import os
import random
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final

from tests.hostile.calls import call
from tests.hostile.values import changed_json

ROOT = Path(__file__).parents[2]
SAMPLES = ROOT / "notebooks/samples"
_INDEX = json.loads((SAMPLES / "index.json").read_text())
GOOD, BAD = _INDEX["sync"]["run"], _INDEX["chapter"]["run"]
TASK: Final = "worker-0"

# A pair each: what every run gets, and the dear commands that one run of twenty gets.
COMMANDS: Final = (
    (
        *(("runs",), ("runs", "--json"), ("show", BAD), ("show", BAD, "--json"), ("show", "last")),
        *(("compare", BAD, GOOD), ("attach", BAD)),
    ),
    (("report", BAD), ("report", BAD, GOOD, "--json", "--tensorboard")),
)


def attack(seed: int, folder: Path) -> Iterator[str]:
    store = folder / "runs"
    copy_runs(store)
    done = damage(store / BAD, random.Random(seed))  # noqa: S311
    for words in COMMANDS[0] + (COMMANDS[1] if seed % 20 == 0 else ()):
        output = call(*words, "--runs-dir", str(store))
        yield from (f"{done}: {fault}" for fault in output.faults())
        if words[0] == "runs" and GOOD not in output.out:
            yield output.fault(f"{done}: a run is hidden by another")


def copy_runs(store: Path) -> None:
    shutil.rmtree(store, ignore_errors=True)
    for name in (GOOD, BAD):
        shutil.copytree(SAMPLES / name, store / name)
        for each in (store / name).rglob("*"):
            each.chmod(0o755 if each.is_dir() else 0o644)


def damage(run: Path, rng: random.Random) -> str:
    files = sorted(path for path in run.rglob("*") if path.suffix in {".json", ".jsonl"})
    path = rng.choice([run / "run.json", run / "summary.json", rng.choice(files)])
    how = rng.randrange(10)
    if how == 0:
        kind = rng.choice([*_KINDS])
        path.unlink()
        _KINDS[kind](path)
        return f"{path.name} is {kind}"
    if how == 1:
        path.write_bytes(rng.randbytes(rng.randrange(2_000)))
        return f"{path.name} holds random bytes"
    lines = path.read_text("utf-8").splitlines() or ["{}"]
    if path.suffix == ".json":
        lines = ["\n".join(lines)]
    place = rng.randrange(len(lines))
    lines[place] = changed_json(lines[place], rng)
    path.write_bytes("\n".join([*lines, ""]).encode("utf-8", "surrogatepass"))
    return f"{path.name} is changed"


_KINDS: Final[dict[str, Callable[[Path], object]]] = {
    "a pipe": os.mkfifo,
    "a folder": Path.mkdir,
    "a link": lambda path: path.symlink_to("/dev/zero"),
    "a loop": lambda path: path.symlink_to(path.name),
    "a socket": lambda path: os.mknod(path, 0o140644),
    "missing": lambda path: None,
}
