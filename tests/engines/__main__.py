"""The command line; see the docstring of the package."""

from __future__ import annotations

import argparse
import re
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from itertools import groupby
from pathlib import Path

import tests.engines
from tests.engines.cells import CELLS, Cell
from tests.engines.client import a_client
from tests.engines.results import record
from tests.support import debian_engine as debian
from tests.support import engine as engines


def main(argv: Sequence[str]) -> int:
    """Run the cells; 1 where a test failed or an engine could not be had."""
    parser = argparse.ArgumentParser(
        prog="python -m tests.engines", description=tests.engines.__doc__
    )
    names = [each.name for each in CELLS]
    parser.add_argument(
        "cells", nargs="*", metavar="CELL", choices=[*names, []], help=f"of {', '.join(names)}"
    )
    asked = parser.parse_args(argv)
    good = True
    chosen = [each for each in CELLS if each.name in (asked.cells or names)]
    for suite, group in groupby(chosen, lambda each: each.suite):
        cells = list(group)
        packages = dict.fromkeys(name for each in cells for name in each.packages)
        try:
            _say(f"installing Debian {suite}")
            with debian.a_root(suite, (*debian.PACKAGES, *packages)) as root:
                for cell in cells:
                    good &= run_cell(cell, root)
        except engines.NoEngine as reason:
            _say(f"error: {suite}: {reason}")
            good = False
    return int(not good)


def run_cell(cell: Cell, root: Path) -> bool:
    _say(f"cell {cell.name}")
    visible = [engines.ROOT, Path(tempfile.gettempdir())]
    with (
        a_client(cell, root) as client,
        debian.a_debian_engine(
            root, visible, client, store=cell.store, cdi=cell.cdi, online=True
        ) as engine,
    ):
        variables = {"LAB_TEST_CDI": "1"} if cell.cdi else {}
        pytest = [sys.executable, "-m", "pytest", "-rfEs", *cell.tests]
        done = subprocess.run(
            ["nsenter", f"--net={engine.network}", *pytest],
            cwd=engines.ROOT,
            env={**engine.environment, **variables},
            stdout=subprocess.PIPE,
            text=True,
            check=False,
        )
        print(done.stdout, flush=True)
        row = {
            "Engine": _plain(engine.version),
            "Compose": _version(engine.environment, "compose", "version", "--short"),
            "buildx": _version(engine.environment, "buildx", "version") if cell.buildx else "none",
            "image store": cell.store,
            "GPUs by CDI": "yes" if cell.cdi else "no",
            "training": "yes" if cell.trains else "no",
            "date": datetime.now(UTC).date().isoformat(),
            "tests": outcome(done.stdout),
        }
        record(cell.name, row)
        return done.returncode == 0 and " passed" in row["tests"]


def _version(environment: Mapping[str, str], *command: str) -> str:
    """A plugin's version: `0.29.1` of `github.com/docker/buildx 0.29.1+ds1 0.29.1+ds1-4`."""
    words = engines.run(["docker", *command], environment=environment).split()
    return _plain(words[min(1, len(words) - 1)])


def _plain(version: str) -> str:
    """Debian's version as upstream's: `28.5.2` of `28.5.2+dfsg4`."""
    return version.removeprefix("v").partition("+")[0].partition("-")[0]


def outcome(printed: str) -> str:
    """The counts in the last line of pytest: `7 passed, 1 failed`; "" if it ended before that."""
    last = printed.strip().rpartition("\n")[2]
    return ", ".join(re.findall(r"\d+ (?:passed|failed|skipped|errors?)", last))


def _say(line: str) -> None:
    print(f"engines: {line}", flush=True)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
