"""The place of one run: a project, a state directory and a temporary directory."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from tests.torture.case import Case, description
from tests.torture.records import Home, highest_step, object_of

ROOT: Final = Path(__file__).parents[2]
_KEPT: Final = {"LAB_IMAGE", "LAB_BASE_IMAGE", "LAB_TENSORFLOW", "LAB_BUILD_NETWORK"}


def foreign(variable: str) -> bool:
    """Whether a variable of the harness would make a run unlike everybody's."""
    lab = variable.startswith("LAB_") and variable not in _KEPT
    # Without bytecode each import of TensorFlow compiles it anew.
    return lab or variable.startswith("PYTHON") or variable == "TF_CONFIG"


@dataclass(frozen=True, slots=True)
class Place:
    """A folder that holds all that one run makes outside of the engine.

    Attributes:
        folder: It.
        case: The run.
        environ: The variables of every command.
    """

    folder: Path
    case: Case
    environ: Mapping[str, str]

    @classmethod
    def make(cls, case: Case, variables: Mapping[str, str]) -> Place:
        """A project with programs, data and the case's config.

        Args:
            case: The run.
            variables: Further variables of every command, such as the address of the engine.
        """
        folder = Path(tempfile.mkdtemp(prefix=f"lab-torture-{case.seed}-"))
        for name in ("scripts", "data"):
            shutil.copytree(ROOT / name, folder / name)
        (folder / "cluster.yaml").write_text(description(case), encoding="utf-8")
        for name in ("state", "tmp"):
            (folder / name).mkdir()
        kept = {name: value for name, value in os.environ.items() if not foreign(name)}
        own = {
            "PYTHONPATH": str(ROOT),
            "LAB_STATE": str(folder / "state"),
            "TMPDIR": str(folder / "tmp"),
        }
        return cls(folder, case, {**kept, **variables, **own})

    @property
    def state(self) -> Path:
        """`LAB_STATE`."""
        return self.folder / "state"

    @property
    def runs(self) -> Path:
        """The run store."""
        return self.folder / "runs"

    def lab(
        self, *arguments: str, environ: Mapping[str, str] | None = None
    ) -> subprocess.Popen[bytes]:
        """Start a command of the lab, away from the terminal, so that Ctrl-C is not its own."""
        with (self.folder / "said").open("ab") as err, (self.folder / "out").open("ab") as out:
            err.write(f"$ lab {' '.join(arguments)}\n".encode())
            err.flush()
            return subprocess.Popen(
                [sys.executable, "-m", "lab", *arguments],
                cwd=self.folder,
                env={**self.environ, **(environ or {})},
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=err,
                start_new_session=True,
            )

    def done(self, within_s: float, *arguments: str) -> int | None:
        """Run a command to its end; its exit code, or None where it was killed."""
        return ended(self.lab(*arguments), time.monotonic() + within_s)

    def said_json(self) -> Mapping[str, Any] | None:
        """The summary that the last command printed, or None."""
        lines = (self.folder / "out").read_bytes().splitlines()
        try:
            found = json.loads(lines[-1]) if lines else None
        except ValueError:
            return None
        return found if isinstance(found, dict) else None

    def run(self) -> Path | None:
        """The directory of the run, as soon as there is one."""
        found = [
            path.parent for path in self.runs.glob("*/run.json") if not path.parent.is_symlink()
        ]
        return found[0] if found else None

    def home(self) -> Home:
        """The collected files so far."""
        run = self.run()
        return Home() if run is None else Home.read(run)

    def submitted(self) -> bool:
        """Whether the agents have been notified."""
        run = self.run()
        return run is not None and object_of(run / "run.json").get("submitted_unix") is not None

    def status(self, task: str) -> Mapping[str, Any]:
        """The state of a task, as far as it is collected; else empty."""
        run = self.run()
        return {} if run is None else object_of(run / "status" / f"{task}.json")

    def global_step(self) -> int:
        """The progress of the training, by the collected records."""
        return highest_step(line for lines in self._tails() for line in lines)

    def remove(self) -> None:
        """Away with all of it."""
        shutil.rmtree(self.folder)

    def _tails(self) -> Iterator[Sequence[bytes]]:
        for path in self.runs.glob("*/tasks/*.jsonl"):
            with path.open("rb") as file:
                size = file.seek(0, os.SEEK_END)
                file.seek(max(0, size - 4096))
                yield file.read().splitlines()


def ended(command: subprocess.Popen[bytes], deadline: float) -> int | None:
    """Wait for a command; its exit code, or None where it was killed at the deadline."""
    try:
        return command.wait(max(0.0, deadline - time.monotonic()))
    except subprocess.TimeoutExpired:
        command.kill()
        command.wait()
        return None
