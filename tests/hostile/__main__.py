"""Large numbers of attacks, by hand.

    python -m tests.hostile --runs 2000 [--first 0]

Exit code 1: a command failed other than in one line.
"""

from __future__ import annotations

import argparse
import contextlib
import io
import os
import sys
import tempfile
import time
from pathlib import Path

from rich.progress import track

from tests.hostile.runs import BAD, HEAVY, LIGHT, Hang, Said, copy_runs, damage, say


class Captured:
    """Standard output and error of commands that run in this process."""

    def __init__(self) -> None:
        self.out, self.err = io.StringIO(), io.StringIO()

    def readouterr(self) -> tuple[str, str]:
        """What was printed since."""
        texts = self.out.getvalue(), self.err.getvalue()
        for stream in (self.out, self.err):
            stream.seek(0)
            stream.truncate()
        return texts


def main() -> None:
    """Damage as many run directories as asked for, and call every command on each."""
    parser = argparse.ArgumentParser(prog="python -m tests.hostile", description=__doc__)
    parser.add_argument("--runs", type=int, default=2000, help="run directories to damage")
    parser.add_argument("--first", type=int, default=0, help="the first seed (default: 0)")
    asked = parser.parse_args()
    faults: list[str] = []
    began = time.monotonic()
    for seed in track(range(asked.first, asked.first + asked.runs), "damaged runs"):
        faults += _attack(seed)
    commands = asked.runs * len(LIGHT + HEAVY)
    print(*faults, sep="\n")
    print(f"{asked.runs:,} runs, {commands:,} commands, {len(faults):,} faults,", end=" ")
    print(f"{time.monotonic() - began:.0f} s")
    sys.exit(bool(faults))


def _attack(seed: int) -> list[str]:
    """The faults of all commands on one damaged run."""
    captured = Captured()
    with tempfile.TemporaryDirectory(prefix="lab-hostile-") as folder, contextlib.chdir(folder):
        os.environ["LAB_STATE"] = str(Path(folder, "state"))
        home = Path("runs")
        home.mkdir()
        copy_runs(home)
        done = damage(home / BAD, seed)
        found = []
        for words in LIGHT + HEAVY:
            try:
                with (
                    contextlib.redirect_stdout(captured.out),
                    contextlib.redirect_stderr(captured.err),
                ):
                    said = say(words, home, captured)
            except Hang:
                said = Said(words, -1, "", "it did not end")
            if said.fault():
                last = " ".join(said.err.splitlines()[-1:])
                found.append(f"seed {seed}, {done}: {' '.join(words)}: {said.fault()}: {last}")
        return found


if __name__ == "__main__":
    main()
