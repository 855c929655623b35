"""The clock of one node, which can be set while its processes run."""

from __future__ import annotations

import shutil
import struct
import subprocess
from dataclasses import dataclass
from pathlib import Path
from typing import Final

SOURCE: Final = Path(__file__).with_name("clock.c")
_BYTES: Final = struct.Struct("=q")


class NoCompilerError(Exception):
    """The clock cannot be compiled; the message has the reason."""


@dataclass(frozen=True, slots=True)
class Clock:
    """A time of day that is wrong in all processes of a node.

    Attributes:
        environ: The variables of every command that starts such processes.
        file: The file with the offset in nanoseconds.
    """

    environ: dict[str, str]
    file: Path

    def set(self, seconds: float) -> None:
        """Advance the clock by these seconds from now on."""
        # In place: the programs have this very file mapped.
        with self.file.open("r+b") as file:
            file.write(_BYTES.pack(int(seconds * 10**9)))


def make(folder: Path, node: str) -> Clock:
    """A clock that is right until it is set.

    Raises:
        NoCompilerError: There is no C compiler, or it failed.
    """
    compiler = shutil.which("cc") or shutil.which("gcc")
    if compiler is None:
        raise NoCompilerError("no C compiler; install gcc and libc6-dev")
    library, file = folder / "clock.so", folder / "clock.set"
    flags = ["-shared", "-fPIC", "-O1", "-Wall", "-Wextra", "-Werror"]
    done = subprocess.run(
        [compiler, *flags, "-o", library, SOURCE, "-ldl"],
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode != 0:
        raise NoCompilerError(f"{SOURCE} does not compile:\n{done.stderr[-2000:]}")
    file.write_bytes(_BYTES.pack(0))
    environ = {"LD_PRELOAD": str(library), "CLOCK_FILE": str(file), "CLOCK_NODE": node}
    return Clock(environ, file)
