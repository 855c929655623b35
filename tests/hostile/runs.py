"""Damaged run directories: every command ends with one line, and no sound record is lost."""

from __future__ import annotations

import json
import os
import random
import shutil
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final

from lab.run.dataframe import records_frame
from lab.run.store import RunDir
from tests.hostile.calls import call
from tests.hostile.values import ODD, changed_json, deep

ROOT = Path(__file__).parents[2]
SAMPLES = ROOT / "notebooks/samples"
_INDEX = json.loads((SAMPLES / "index.json").read_text())
GOOD, BAD = _INDEX["sync"]["run"], _INDEX["chapter"]["run"]
TASK: Final = "worker-0"

# A pair each: what every run gets, and the dear commands that one run of twenty gets.
COMMANDS: Final = (
    (
        *(("runs",), ("runs", "--json"), ("show", BAD), ("show", BAD, "--json"), ("show", "last")),
        *(("compare", BAD, GOOD), ("collect", BAD), ("predict", BAD)),
    ),
    (("report", BAD), ("report", BAD, GOOD, "--json"), ("tensorboard", BAD, "--write-only")),
)
OF_RECORDS: Final = (
    (("show", GOOD, "--json"), ("compare", GOOD, BAD), ("runs", "--json")),
    (("report", GOOD), ("tensorboard", GOOD, "--write-only")),
)


def attack(seed: int, folder: Path) -> Iterator[str]:
    """Damage a file of a run, and call every command on it."""
    store = folder / "runs"
    copy_runs(store)
    done = damage(store / BAD, random.Random(seed))  # noqa: S311
    for words in COMMANDS[0] + (COMMANDS[1] if seed % 20 == 0 else ()):
        output = call(*words, "--runs-dir", str(store))
        yield from (f"{done}: {fault}" for fault in output.faults())
        if words[0] == "runs" and GOOD not in output.out:
            yield output.fault(f"{done}: a run is hidden by another")


def attack_records(seed: int, folder: Path) -> Iterator[str]:
    """Put lines among a task's records, and look for the records again."""
    rng = random.Random(seed)  # noqa: S311
    store = folder / "runs"
    copy_runs(store)
    run = RunDir(store / GOOD)
    path = run.records(TASK)
    lines = path.read_bytes().splitlines(keepends=True)
    there = len(records_frame(run, [TASK]))
    for _ in range(rng.randint(1, 20)):
        line = rng.choice(_DAMAGED)(rng).replace(b"\n", b" ") + b"\n"
        lines.insert(rng.randrange(len(lines) + 1), line)
    path.write_bytes(b"".join(lines))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        found = len(records_frame(run, [TASK]))
    if found < there:  # of a line with one wrong field the others are kept
        yield f"{found} records of {there}"
    for words in OF_RECORDS[0] + (OF_RECORDS[1] if seed % 20 == 0 else ()):
        output = call(*words, "--runs-dir", str(store))
        yield from output.faults()
        if output.code:
            yield output.fault("damaged lines fail the command")


def copy_runs(store: Path) -> None:
    """A run store: a good run, and one for the damage."""
    shutil.rmtree(store, ignore_errors=True)
    for name in (GOOD, BAD):
        shutil.copytree(SAMPLES / name, store / name)
        for each in (store / name).rglob("*"):
            each.chmod(0o755 if each.is_dir() else 0o644)


def damage(run: Path, rng: random.Random) -> str:
    """Damage one file of a run; a text about the damage."""
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


def _value(rng: random.Random) -> bytes:
    """JSON that is no object; NaN is written as NaN, as Python does."""
    odd = rng.choice([each for each in ODD if not isinstance(each, dict)])
    return json.dumps(odd).encode("utf-8", "surrogatepass")


def _field(rng: random.Random) -> bytes:
    """An object with an invalid kind, field or type for a record."""
    record = {"kind": "step", "time_unix": 1.0, "local_step": 1}
    return json.dumps(
        {**record, rng.choice([*record]): {"deep": [rng.choice(("x", None))]}}
    ).encode()


_Made = tuple[Callable[[random.Random], bytes], ...]
_OFTEN: Final[_Made] = (
    lambda rng: b"\xff" + rng.randbytes(rng.randrange(2_000)),
    _value,
    _field,
    lambda rng: b'{"kind": "step", "loss": 0.5'[: rng.randrange(1, 28)],
)
_DAMAGED: Final[_Made] = (
    *_OFTEN,
    *_OFTEN,
    lambda _: deep('{"a":', "}").encode(),
    lambda _: b'{"kind": "' + b"x" * 3_000_000,
)
