"""The unit tests of a program that a student writes, in a process of their own."""

from __future__ import annotations

import os
import re
import signal
import subprocess
from contextlib import suppress
from pathlib import Path
from typing import Final

from lab.backends.python import base_environ, missing_runtime
from lab.base.errors import InputError
from lab.base.text import LONGEST_REASON, printed, short
from lab.checks import first_failure
from lab.cluster.experiments import experiment_named
from lab.cluster.project import SCRIPTS
from lab.protocol.runtimes import RUNTIMES

SECONDS: Final = 60.0
"""How long the tests may take; a program that waits for itself never ends."""

_SAID: Final = re.compile(r"(gap|none|\d+ of \d+)(: .*)?")


def run_tests(name: str, root: Path) -> str:
    """Run the tests of an experiment's program: of `ring.py`, those in `ring_tests.py`.

    Args:
        name: The experiment.
        root: The project's directory.

    Returns:
        `9 of 9`, `4 of 9: HINT`, `none: HINT` if they cannot run, or `gap: HINT` if the program is
        not written yet.

    Raises:
        InputError: There is no such experiment, no file with tests, or no Python for it.
    """
    experiment = experiment_named(name, root)
    runtime, program = RUNTIMES[experiment.runtime], root / SCRIPTS / experiment.program
    tests = program.with_name(f"{program.stem}_tests.py")
    if not tests.is_file():
        raise InputError(f"there is no {tests}", "`lab init --course` writes the example course")
    if reason := missing_runtime(runtime, root):
        raise InputError(reason)
    with subprocess.Popen(
        [str(runtime.python(root)), "-P", first_failure.__file__, str(tests)],
        env=base_environ(),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        start_new_session=True,
    ) as process:
        try:
            said, _ = process.communicate(timeout=SECONDS)
        except subprocess.TimeoutExpired:
            return f"none: the tests did not end within {SECONDS:.0f} s; is there an endless loop?"
        finally:
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)  # also what the program started
    line = printed(said.rpartition(b"\n")[0].rpartition(b"\n")[2])
    if not _SAID.fullmatch(line):
        return f"none: the tests ended early, with exit code {process.returncode}"
    return short(line, LONGEST_REASON)
