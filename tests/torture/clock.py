"""The clock of one node, which can be set while its processes run."""

from __future__ import annotations

import struct
import subprocess
from dataclasses import dataclass
from pathlib import Path
from typing import Final

SOURCE: Final = Path(__file__).with_name("clock.c")
_BYTES: Final = struct.Struct("=q")


@dataclass(frozen=True, slots=True)
class Clock:
    """A time of day that is wrong in all processes of a node."""

    environ: dict[str, str]
    file: Path

    def set(self, seconds: float) -> None:
        """Advance the clock by these seconds from now on."""
        # In place: the programs have this very file mapped.
        with self.file.open("r+b") as file:
            file.write(_BYTES.pack(int(seconds * 10**9)))


def make(folder: Path, node: str) -> Clock:
    """A clock that is right until it is set. It needs a C compiler."""
    library, file = folder / "clock.so", folder / "clock.set"
    flags = ["-shared", "-fPIC", "-O1", "-Wall", "-Wextra", "-Werror"]
    subprocess.run(["cc", *flags, "-o", library, SOURCE, "-ldl"], check=True)
    file.write_bytes(_BYTES.pack(0))
    environ = {"LD_PRELOAD": str(library), "CLOCK_FILE": str(file), "CLOCK_NODE": node}
    return Clock(environ, file)
