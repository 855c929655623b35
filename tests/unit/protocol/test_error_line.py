"""The line that names the reason of a failure, from the output of real Python programs."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from lab.protocol.records.error_line import ErrorLineFinder

CALLS_LIBRARY = "import json\n\ndef load():\n    return json.loads('{')\n"
RUNNER = (
    "import os, runpy, sys; sys.argv.pop(0); sys.path[0] = os.path.dirname(sys.argv[0]);"
    "runpy.run_path(sys.argv[0], run_name='__main__')"
)


def line_of(
    folder: Path, code: str, *before: str, exit_code: int = 1, shown_folder: str = ""
) -> str:
    """The line for a program that fails, in the directory `folder`."""
    (folder / "train.py").write_text(code)
    ended = subprocess.run(
        [sys.executable, *before, str(folder / "train.py")],
        check=False,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        cwd="/",
        env={"PATH": os.environ["PATH"], "PYTHONDONTWRITEBYTECODE": "1"},
    )
    assert ended.returncode == exit_code
    finder = ErrorLineFinder(str(folder), shown_folder)
    for line in ended.stdout.split(b"\n"):
        finder.feed(line)
    return finder.error_line()


@pytest.mark.parametrize(
    ("code", "line"),
    [
        ("\n\nraise ValueError('bad')", "train.py:3: ValueError: bad"),
        ("import models.net\nmodels.net.load()", "models/net.py:4: json.decoder.JSONDecodeError: "),
        ("import nothing_such", "train.py:1: ModuleNotFoundError: No module named 'nothing_such'"),
        ("import models.broken", "models/broken.py:2: SyntaxError: "),
        ("x = 1\n  y = 2", "train.py:2: IndentationError: unexpected indent"),
        (
            "try:\n    open('/no')\nexcept OSError as error:\n    raise ValueError('b') from error",
            "train.py:4: ValueError: b",
        ),
        ("def f():\n    f()\nf()", "train.py:2: RecursionError: maximum recursion depth exceeded"),
        ("raise ValueError('first\\nsecond')", "train.py:1: ValueError: first"),
        ("raise ValueError('\\n\\n  late')", "train.py:1: ValueError: late"),
        ("assert 1 == 2", "train.py:1: AssertionError"),
        (
            "import threading\nthread = threading.Thread(target=lambda: 1 / 0)\n"
            "thread.start(); thread.join(); raise SystemExit(1)",
            "train.py:2: ZeroDivisionError: division by zero",
        ),
        (
            "class Late:\n    def __del__(self):\n        raise OSError('at the exit')\n"
            "late = Late()\nraise ValueError('own')",
            "train.py:5: ValueError: own",
        ),
        ("import sys; sys.exit('error: no data')", "error: no data"),
    ],
)
@pytest.mark.parametrize("runner", [(), ("-c", RUNNER)], ids=["direct", "runner"])
def test_the_place_is_the_innermost_one_in_the_program(
    tmp_path: Path, code: str, line: str, runner: tuple[str, ...]
) -> None:
    (tmp_path / "models").mkdir()
    (tmp_path / "models" / "net.py").write_text(CALLS_LIBRARY)
    (tmp_path / "models" / "broken.py").write_text("x = 1\nfor\n")
    assert line_of(tmp_path, code, *runner).startswith(line)


def test_a_directory_behind_a_link(tmp_path: Path) -> None:
    (tmp_path / "real").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "real")
    (tmp_path / "real" / "own.py").write_text("raise KeyError('k')\n")
    code = "import os, sys; sys.path[0] = os.path.realpath(sys.path[0]); import own"
    assert line_of(tmp_path / "link", code) == "own.py:1: KeyError: 'k'"


def test_a_message_of_argparse(tmp_path: Path) -> None:
    code = "import argparse; argparse.ArgumentParser('x').parse_args(['--oops'])"
    assert line_of(tmp_path, code, "-c", RUNNER, exit_code=2) == (
        "x: error: unrecognized arguments: --oops"
    )


def test_the_place_begins_with_the_directory_that_the_user_typed(tmp_path: Path) -> None:
    line = line_of(tmp_path, "raise ValueError('bad')", shown_folder="examples/mnist")
    assert line == "examples/mnist/train.py:1: ValueError: bad"


def test_the_traceback_of_a_rank(tmp_path: Path) -> None:
    program = tmp_path / "own.py"
    finder = ErrorLineFinder(str(tmp_path))
    for line in (
        "[rank1]: Traceback (most recent call last):",
        f'[rank1]:   File "{program}", line 5, in <module>',
        "[rank1]:     dist.all_reduce(t)",
        "[rank1]: RuntimeError: Connection closed by peer",
    ):
        finder.feed(line.encode())
    assert finder.error_line() == "own.py:5: RuntimeError: Connection closed by peer"


OF_TORCHRUN = (
    "E1127 13:24:58.839000 10 x/api.py:1002] failed (exitcode: {}) local_rank: {} (pid: 16) of x",
    "Traceback (most recent call last):",
    "torch.distributed.elastic.multiprocessing.errors.ChildFailedError: ",
    "=====",
)


@pytest.mark.parametrize(
    ("code", "rank", "printed", "reason"),
    [
        (3, 1, "", "the process of local rank 1 ended with exit code 3"),
        (-9, 0, "", "the process of local rank 0 ended with exit code -9"),
        # The first one printed that it lost the second one, which failed first.
        (1, 1, "RuntimeError: closed", "the process of local rank 1 ended with exit code 1"),
        (1, 0, "ValueError: bad", "ValueError: bad"),
    ],
)
def test_the_process_of_torchrun_that_failed_first(
    code: int, rank: int, printed: str, reason: str
) -> None:
    finder = ErrorLineFinder()
    for line in (printed, OF_TORCHRUN[0].format(code, rank), *OF_TORCHRUN[1:]):
        finder.feed(line.encode())
    assert finder.error_line() == reason
