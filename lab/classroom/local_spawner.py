"""A spawner of JupyterHub that starts the JupyterLab of a seat as a process of this user."""

from __future__ import annotations

import asyncio
import os
import subprocess
from typing import Any

from jupyterhub.spawner import LocalProcessSpawner

from lab.classroom.processes import Processes
from lab.classroom.state import ClassDir
from lab.errors import LabError
from lab.variables import LAB_CLASS


class ProcessSpawner(LocalProcessSpawner):  # type: ignore[misc]
    """Starts JupyterLab in the seat's home directory; ends all processes of the seat with it."""

    def make_preexec_fn(self, name: str) -> None:
        """Change nothing: seats have no user of their own."""

    def user_env(self, env: dict[str, str]) -> dict[str, str]:
        """Add nothing to the variables of the class, for the same reason."""
        return env

    def load_state(self, state: dict[str, Any]) -> None:
        """Ignore the process of an earlier JupyterHub: `lab class up` has ended it."""
        super().load_state({key: value for key, value in state.items() if key != "pid"})

    async def start(self) -> tuple[str, int]:
        """Fill the home directory, and start JupyterLab.

        Raises:
            OSError: JupyterLab cannot be started.
        """
        seats, seat = _seats(), self.user.name
        try:
            await asyncio.to_thread(seats.prepare, seat)
        except OSError:
            # The server starts nevertheless, so that the student can delete files on a full disk.
            self.log.exception("the home directory of %s is not complete", seat)
        with seats.output(seat).open("wb") as output:
            self.popen_kwargs = {
                "cwd": seats.directory(seat),
                "stdin": subprocess.DEVNULL,
                "stdout": output,
                "stderr": subprocess.STDOUT,
            }
            address: tuple[str, int] = await super().start()
        return address

    async def poll(self) -> int | None:
        """Return the exit code, after the end of all processes of the seat; None while it runs."""
        status: int | None = await super().poll()
        if status is not None:
            try:
                await asyncio.to_thread(_seats().stop, self.user.name)
            except LabError:
                self.log.exception("ending the processes of %s", self.user.name)
        return status


def _seats() -> Processes:
    return Processes(ClassDir(os.environ[LAB_CLASS]).stored())
