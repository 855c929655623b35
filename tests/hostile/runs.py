"""Damaged run directories, and what every command says of them."""

from __future__ import annotations

import os
import random
import shutil
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import FrameType
from typing import Protocol

from lab.cli import main
from tests.hostile.values import changed_json

ROOT = Path(__file__).parents[2]
SAMPLES = ROOT / "notebooks/samples"
GOOD, BAD = "20261122-2104-sync-2193", "20261122-2044-async-f211"
WITHIN_S = 60
LONGEST = 2_000

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


@dataclass(frozen=True)
class Said:
    """How a command ended."""

    words: tuple[str, ...]
    code: int
    out: str
    err: str

    def fault(self) -> str:
        """What is wrong with that; "" where nothing is."""
        lines = self.err.splitlines()
        errors = sum(line.startswith("error: ") for line in lines)
        checks = {
            f"exit code {self.code}": self.code not in {0, 1, 2},
            "a traceback": "internal:" in self.err or "Traceback" in self.err,
            "a warning of a library": "Warning" in self.err,
            f"exit code {self.code}, lines of errors: {errors}": errors != (self.code != 0),
            "a message that is too long": max(map(len, lines), default=0) > LONGEST,
            "a control sequence": "\x1b" in self.err + self.out,
            "a run that is hidden by another": self.words[0] == "runs" and GOOD not in self.out,
        }
        return next((what for what, is_so in checks.items() if is_so), "")


def copy_runs(home: Path) -> None:
    """A directory of runs: a good one, and one that is to be damaged."""
    for name in (GOOD, BAD):
        shutil.copytree(SAMPLES / name, home / name)
        for each in (home / name).rglob("*"):
            each.chmod(0o755 if each.is_dir() else 0o644)


def damage(run: Path, seed: int) -> str:
    """Damage one file of a run.

    Returns:
        What was done, in words.
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


def say(words: tuple[str, ...], home: Path, capture: Capture) -> Said:
    """Run a command in this process, within a time."""
    capture.readouterr()
    with within(WITHIN_S):
        code = main([*words, "--runs-dir", str(home)])
    out, err = capture.readouterr()
    return Said(words, code, out, err)


class Capture(Protocol):
    """What `say` needs of pytest's `capsys`."""

    def readouterr(self) -> tuple[str, str]:
        """What was printed since."""


class Hang(BaseException):
    """A command did not end."""


@contextmanager
def within(seconds: int) -> Iterator[None]:
    """Raise `Hang` where the block takes longer."""

    def give_up(_number: int, _frame: FrameType | None) -> None:
        raise Hang

    before = signal.signal(signal.SIGALRM, give_up)
    signal.alarm(seconds)
    try:
        yield
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)
