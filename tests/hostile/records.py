"""Records files with lines that are no records: every record beside them is still read."""

from __future__ import annotations

import json
import random
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from lab.run.dataframe import records_frame
from lab.run.store import RunDir
from tests.hostile.calls import Column, Fault, call
from tests.hostile.runs import BAD, GOOD, copy_runs
from tests.hostile.values import ODD, deep

COMMANDS: Final = (("show", GOOD, "--json"), ("compare", GOOD, BAD), ("runs", "--json"))
RARELY: Final = (("report", GOOD), ("tensorboard", GOOD, "--write-only"))
TASK: Final = "worker-0"


def attack(seed: int, folder: Path) -> Iterator[Fault]:
    """Put lines among a task's records, and look for the records again."""
    rng = random.Random(seed)  # noqa: S311
    store = folder / "runs"
    copy_runs(store)
    run = RunDir(store / GOOD)
    path = run.records(TASK)
    lines = path.read_bytes().splitlines(keepends=True)
    there = len(records_frame(run, [TASK]))
    added = [rng.choice(_DAMAGED)(rng) for _ in range(rng.randint(1, 20))]
    for line in added:
        place = rng.randrange(len(lines) + 1)
        lines.insert(place, line.replace(b"\n", b" ") + b"\n")
    path.write_bytes(b"".join(lines))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        found = len(records_frame(run, [TASK]))
    if found < there:  # of a line with one wrong field the others are kept
        yield Fault(Column.LOST, f"seed {seed}: {found} records of {there}")
    for arguments in COMMANDS + (RARELY if seed % 20 == 0 else ()):
        output = call([*arguments, "--runs-dir", str(store)])
        yield from output.faults()
        if output.code:
            yield output.fault(Column.MESSAGE, "damaged lines fail the command")


def _bytes(rng: random.Random) -> bytes:
    return b"\xff" + rng.randbytes(rng.randrange(2_000))


def _value(rng: random.Random) -> bytes:
    """JSON that is no object; NaN is written as NaN, as Python does."""
    odd = rng.choice([each for each in ODD if not isinstance(each, dict)])
    return json.dumps(odd).encode("utf-8", "surrogatepass")


def _field(rng: random.Random) -> bytes:
    """An object with an invalid kind, field or type for a record."""
    record = {"kind": "step", "time_unix": 1.0, "local_step": 1}
    key = rng.choice(("kind", "time_unix", "local_step"))
    return json.dumps({**record, key: {"deep": [rng.choice(("x", None))]}}).encode()


def _half(rng: random.Random) -> bytes:
    return b'{"kind": "step", "loss": 0.5'[: rng.randrange(1, 28)]


def _deep(_: random.Random) -> bytes:
    return deep('{"a":', "}").encode()


def _long(_: random.Random) -> bytes:
    return b'{"kind": "' + b"x" * 3_000_000


_DAMAGED: Final = (_bytes, _bytes, _value, _value, _field, _field, _half, _half, _deep, _long)
