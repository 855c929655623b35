"""The clock of one task or one node, which can be set while its programs run."""

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
    """A time of day that is wrong in one task's programs, or in all processes of a node.

    Attributes:
        library: The library to preload.
        file: The file with the offset in nanoseconds.
        variable: `CLOCK_TASK` or `CLOCK_NODE`.
        target: The task or the node.
    """

    library: Path
    file: Path
    variable: str
    target: str

    @property
    def environ(self) -> dict[str, str]:
        """The variables of every process that starts such programs."""
        return {
            "LD_PRELOAD": str(self.library),
            "CLOCK_FILE": str(self.file),
            self.variable: self.target,
        }

    def set(self, seconds: float) -> None:
        """Advance the clock by these seconds from now on."""
        # In place: the programs have this very file mapped.
        with self.file.open("r+b") as file:
            file.write(_BYTES.pack(int(seconds * 10**9)))


def make(folder: Path, target: str, variable: str = "CLOCK_TASK") -> Clock:
    """A clock that is right until it is set.

    Raises:
        NoCompilerError: There is no C compiler, or it failed.
    """
    compiler = shutil.which("cc") or shutil.which("gcc")
    if compiler is None:
        raise NoCompilerError("no C compiler; install gcc and libc6-dev")
    library, file = folder / "clock.so", folder / "clock.set"
    arguments: list[str | Path] = [
        compiler,
        "-shared",
        "-fPIC",
        "-O1",
        "-Wall",
        "-Wextra",
        "-Werror",
    ]
    done = subprocess.run(
        [*arguments, "-o", library, SOURCE, "-ldl"], capture_output=True, text=True, check=False
    )
    if done.returncode != 0:
        raise NoCompilerError(f"{SOURCE} does not compile:\n{done.stderr[-2000:]}")
    file.write_bytes(_BYTES.pack(0))
    return Clock(library, file, variable, target)
