"""Run the unit tests of one file, and print how many pass, and what the first failure says.

    python first_failure.py FILE

It prints one line: `9 of 9`, `4 of 9: HINT`, `none: HINT` if they cannot run, or `gap: HINT` if the
program is not written yet.
Any Python with the packages of the tests can run it: it imports nothing of lab.
"""

from __future__ import annotations

import contextlib
import importlib
import sys
import traceback
import unittest
from pathlib import Path
from types import TracebackType

_Error = tuple[type[BaseException], BaseException, TracebackType]


class FirstFailure(unittest.TestResult):
    """The number of tests that fail, and the error of the first one."""

    failed = 0
    first: BaseException | None = None

    def addFailure(self, test: unittest.TestCase, err: _Error) -> None:  # type: ignore[override]  # noqa: N802
        """Count a failure."""
        self.failed += 1
        self.first = self.first or err[1]

    addError = addFailure  # type: ignore[assignment]  # noqa: N815


def hint_of(error: BaseException, folder: Path) -> str:
    """Return what an error says: the message of a test, or the error and its line in a program."""
    message = " ".join(str(error).split())
    if isinstance(error, AssertionError) and message:
        return message
    kind = type(error).__name__
    if isinstance(error, SyntaxError):
        return f"{Path(error.filename or '').name}:{error.lineno}: {kind}: {error.msg}"
    frames = traceback.extract_tb(error.__traceback__)
    own = [frame for frame in frames if Path(frame.filename).parent == folder]
    place = f"{Path(own[-1].filename).name}:{own[-1].lineno}: " if own else ""
    return f"{place}{kind}: {message}"


def outcome(tests: Path) -> str:
    """Return the line that is printed."""
    sys.path.insert(0, str(tests.parent))
    unittest.TestCase.longMessage = False  # a message is a hint, without the values before it
    result = FirstFailure()
    try:
        module = importlib.import_module(tests.stem)
        suite = unittest.defaultTestLoader.loadTestsFromModule(module)
    except (Exception, SystemExit) as error:  # noqa: BLE001  (of the student's program)
        return f"none: {hint_of(error, tests.parent)}"
    suite.run(result)
    if isinstance(result.first, NotImplementedError):
        return f"gap: {result.first}"
    count = f"{result.testsRun - result.failed} of {result.testsRun}"
    return count if result.first is None else f"{count}: {hint_of(result.first, tests.parent)}"


if __name__ == "__main__":
    with contextlib.redirect_stdout(sys.stderr):  # what the program prints
        line = outcome(Path(sys.argv[1]).resolve())
    print(line)
