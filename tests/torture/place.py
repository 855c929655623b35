"""The place of one run: a project, a state directory and a temporary directory."""

from __future__ import annotations

import shutil
import subprocess
import tempfile
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.support import commands
from tests.torture.case import Case
from tests.torture.records import Home, object_of


@dataclass(frozen=True, slots=True)
class Place:
    """A folder that holds all that one run makes outside of the engine."""

    folder: Path
    case: Case

    @classmethod
    def make(cls, case: Case) -> Place:
        """A project with programs, data and the case's config."""
        folder = Path(tempfile.mkdtemp(prefix=f"lab-torture-{case.seed}-"))
        for name in ("scripts", "data"):
            shutil.copytree(commands.ROOT / name, folder / name)
        (folder / "cluster.yaml").write_text(case.config(), encoding="utf-8")
        for name in ("state", "tmp"):
            (folder / name).mkdir()
        return cls(folder, case)

    @property
    def state(self) -> Path:
        return self.folder / "state"

    def lab(self, *arguments: str, **variables: str) -> subprocess.Popen[bytes]:
        environ = {**commands.environ(self.folder), "TMPDIR": str(self.folder / "tmp"), **variables}
        with (self.folder / "said").open("ab") as err, (self.folder / "out").open("ab") as out:
            return subprocess.Popen(
                commands.command(*arguments),
                cwd=self.folder,
                env=environ,
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=err,
                start_new_session=True,
            )

    def said_json(self) -> Mapping[str, Any] | None:
        """The summary that the last command printed, or None."""
        lines = (self.folder / "out").read_bytes().splitlines()
        return object_of(lines[-1]) if lines else None

    def run(self) -> Path | None:
        runs = [path.parent for path in self.folder.glob("runs/*/run.json")]
        return next((path for path in runs if not path.is_symlink()), None)

    def home(self) -> Home:
        run = self.run()
        return Home() if run is None else Home.read(run)


def ended(command: subprocess.Popen[bytes], deadline: float) -> int | None:
    """Wait for a command; its exit code, or None where it was killed at the deadline."""
    try:
        return command.wait(max(0.0, deadline - time.monotonic()))
    except subprocess.TimeoutExpired:
        command.kill()
        command.wait()
        return None
