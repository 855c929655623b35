"""Damaged run directories, and the output of every command for them."""

from __future__ import annotations

import json
import os
import random
import shutil
from collections.abc import Iterator
from pathlib import Path

from tests.hostile.calls import Column, Fault, call
from tests.hostile.values import changed_json

ROOT = Path(__file__).parents[2]
SAMPLES = ROOT / "notebooks/samples"
_INDEX = json.loads((SAMPLES / "index.json").read_text())
GOOD, BAD = _INDEX["sync"]["run"], _INDEX["chapter"]["run"]

LIGHT = (
    ("runs",),
    ("runs", "--json"),
    ("show", BAD),
    ("show", BAD, "--json"),
    ("show", "last"),
    ("compare", BAD, GOOD),
    ("collect", BAD),
    ("predict", BAD),
)
HEAVY = (
    ("report", BAD),
    ("report", BAD, GOOD, "--json"),
    ("tensorboard", BAD, "--write-only"),
)


def attack(seed: int, folder: Path) -> Iterator[Fault]:
    """Damage a run, and call every command on it; the dear ones on one run of twenty."""
    store = folder / "runs"
    copy_runs(store)
    done = damage(store / BAD, seed)
    for arguments in LIGHT + (HEAVY if seed % 20 == 0 else ()):
        output = call([*arguments, "--runs-dir", str(store)])
        found = list(output.faults())
        if arguments[0] == "runs" and GOOD not in output.out:
            found.append(output.fault(Column.MESSAGE, "a run is hidden by another"))
        for fault in found:
            yield Fault(fault.column, f"{done}: {fault.words}")


def copy_runs(store: Path) -> None:
    """A run store: a good run, and one for the damage."""
    shutil.rmtree(store, ignore_errors=True)
    for name in (GOOD, BAD):
        shutil.copytree(SAMPLES / name, store / name)
        for each in (store / name).rglob("*"):
            each.chmod(0o755 if each.is_dir() else 0o644)


def damage(run: Path, seed: int) -> str:
    """Damage one file of a run.

    Returns:
        A text about the damage.
    """
    rng = random.Random(seed)  # noqa: S311
    files = sorted(path for path in run.rglob("*") if path.suffix in {".json", ".jsonl"})
    path = rng.choice([run / "run.json", run / "summary.json", rng.choice(files)])
    how = rng.randrange(10)
    if how == 0:
        kind = rng.choice(("pipe", "link", "loop", "folder", "socket", "missing"))
        _replace(path, kind)
        return f"{path.name} is {kind}"
    if how == 1:
        path.write_bytes(rng.randbytes(rng.randrange(2_000)))
        return f"{path.name} holds random bytes"
    text = path.read_text("utf-8")
    if path.suffix == ".jsonl":
        lines = text.splitlines() or ["{}"]
        place = rng.randrange(len(lines))
        lines[place] = changed_json(lines[place], rng)
        text = "\n".join(lines) + "\n"
    else:
        text = changed_json(text, rng)
    path.write_bytes(text.encode("utf-8", "surrogatepass"))
    return f"{path.name} is changed"


def _replace(path: Path, kind: str) -> None:
    path.unlink()
    if kind == "pipe":
        os.mkfifo(path)
    elif kind == "folder":
        path.mkdir()
    elif kind == "link":
        path.symlink_to("/dev/zero")
    elif kind == "loop":
        path.symlink_to(path.name)
    elif kind == "socket":
        os.mknod(path, 0o140644)
