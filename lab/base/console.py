"""Print lines to stderr and JSON to stdout, and ask questions on the terminal.

In a notebook, the lines are an output of the cell. The commands in messages begin with the `lab`
that the user can type.
"""

from __future__ import annotations

import contextlib
import os
import re
import shlex
import shutil
import sys
from collections import deque
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

from lab.base import log
from lab.base.errors import InputError
from lab.base.text import bounded, clipped, visible, wrapped

_INDENT: Final = "  "
"""The beginning of the further lines of a message."""

KEPT_NOTICES: Final = 200
"""The maximum number of notices that one output of a notebook shows."""


_COMMAND: Final = re.compile(r"`lab (?=[a-z-])")
"""The beginning of a command in a message."""


def show(line: str) -> None:
    """Write one safe line to stderr; a terminal wraps it at blanks.

    A closed terminal or pipe raises no error, so that it does not stop a clean-up.
    """
    line = with_command_name(line)
    with contextlib.suppress(OSError, ValueError):  # no terminal
        if columns := os.get_terminal_size(sys.stderr.fileno()).columns:
            line = "\n".join(wrapped(line, columns, indent=_INDENT))
    with contextlib.suppress(OSError):
        print(line, file=sys.stderr, flush=True)


def print_json(value: object) -> None:
    """Print indented JSON to stdout; JSON escapes control characters."""
    from lab.base.strict_json import dump  # noqa: PLC0415  (only for `--json`)

    print(dump(value, indent=2))


def confirm(question: str) -> None:
    """Ask on the terminal whether something may be removed.

    Raises:
        InputError: The answer is neither y nor yes, or stdin is not a terminal.
    """
    if not sys.stdin.isatty():
        raise InputError(f"cannot ask: {question} (stdin is not a terminal)", "add --yes")
    show(bounded(f"{question} [y/N]"))
    try:
        agrees = input().strip().lower() in {"y", "yes"}
    except EOFError:
        agrees = False
    if not agrees:
        raise InputError("nothing was removed", "answer y, or add --yes")


class Output:
    """Notices on stderr, and on a terminal one line that changes below them."""

    def draw(self, line: str) -> None:
        """Replace the line that changes; an empty line erases it.

        In a file or a pipe, the line is not written.
        """
        if sys.stderr.isatty():
            with contextlib.suppress(OSError):  # the terminal was closed
                width = shutil.get_terminal_size().columns - 1
                sys.stderr.write(f"\r\x1b[K{clipped(line, width)}")
                sys.stderr.flush()

    def show(self, line: str) -> None:
        """Write one safe line above the line that changes."""
        self.draw("")
        show(line)

    def print(self, line: str) -> None:
        """Write one line of a program."""
        self.show(bounded(line))


class NotebookOutput(Output):
    """One output of a cell: the notices, and the line that changes below them.

    The notebook saves its last content. Lines of programs are ordinary lines on stdout, because
    there may be many of them.
    """

    def __init__(self) -> None:
        self._notices: deque[str] = deque(maxlen=KEPT_NOTICES)
        self._count = 0
        self._line = ""
        self._handle: Any = None

    def draw(self, line: str) -> None:
        """Replace the line that changes; an empty line erases it."""
        if line != self._line:
            self._line = line
            self._update()

    def show(self, line: str) -> None:
        """Add a notice above the line that changes."""
        self._notices.append(with_command_name(line))
        self._count += 1
        self._update()

    def print(self, line: str) -> None:
        """Print one line of a program to stdout."""
        print(visible(line))

    def _update(self) -> None:
        """Show the notices and the line: at first as a new output, then in its place."""
        from IPython.display import display  # noqa: PLC0415  (IPython runs this code)

        hidden = self._count - len(self._notices)
        lines = [f"… {hidden:,} earlier lines"] if hidden else []
        lines += [*self._notices, *([visible(self._line)] if self._line else [])]
        data = {"text/plain": "\n".join(lines)}
        if self._handle is None:
            self._handle = display(data, raw=True, display_id=True)  # type: ignore[no-untyped-call]
        else:
            self._handle.update(data, raw=True)


def output() -> Output:
    """Return the output for the user: an output of the cell in a notebook, else stderr.

    IPython in a terminal has no kernel, so its lines go to stderr, too.
    """
    shell = getattr(sys.modules.get("IPython"), "get_ipython", lambda: None)()
    return NotebookOutput() if hasattr(shell, "kernel") else Output()


@contextlib.contextmanager
def messages_shown(by: Output | None = None, *, quiet: bool = False) -> Iterator[None]:
    """Show the messages of the block to the user, unless they are shown already, as in a command.

    Args:
        by: The output; None: `output()`.
        quiet: Show only warnings.
    """
    if log.is_shown() and not quiet:
        yield
    else:
        with log.shown_by((by or output()).show, quiet=quiet):
            yield


def command_name() -> str:
    """Return `lab` if the shell finds it, else its path, else the Python with `-m lab`."""
    script = Path(sys.executable).with_name("lab")
    in_path = shutil.which("lab")
    if in_path is not None and Path(in_path) == script:
        return "lab"
    return _path(script) if script.exists() else f"{_path(Path(sys.executable))} -m lab"


def with_command_name(line: str) -> str:
    """Return a message whose commands in backquotes can be copied and run as they are."""
    return _COMMAND.sub(lambda _: f"`{command_name()} ", line)


def _path(path: Path) -> str:
    """Return a path for the shell: relative and with a slash, if it is below this directory."""
    with contextlib.suppress(OSError):  # this directory was removed
        if path.parent.parent.is_relative_to(Path.cwd()):
            path = path.relative_to(Path.cwd())
    return shlex.quote(str(path))
