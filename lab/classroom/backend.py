"""Where the seats of a class run."""

from __future__ import annotations

import zipfile
from collections.abc import Mapping
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from lab.classroom.run_report import RunReport
    from lab.classroom.state import StoredClass


class SeatBackend(Protocol):
    """The programs and the storage of one class. JupyterHub starts and stops the seats.

    Every method raises a `LabError` if the host or its engine refuses.
    """

    @property
    def list_command(self) -> str:
        """The command that lists the programs of the seats, for messages."""

    @property
    def hub_url(self) -> str:
        """The address of JupyterHub, without a path."""

    @property
    def hub_variables(self) -> Mapping[str, str]:
        """Variables for the process of JupyterHub."""

    def create(self) -> None:
        """Create what the programs need: networks, and an empty storage for each seat."""

    def attach_storage(self) -> None:
        """Attach the storage of every seat again, after a restart of the host."""

    def start_proxy(self) -> None:
        """Start the proxy of the class, or prepare its start by JupyterHub."""

    def is_stopped(self, seat: str) -> bool:
        """Return whether no program of a seat runs."""

    def stop(self, seat: str = "") -> None:
        """End the programs of a seat, or those of the class; the storage stays."""

    def save(self, seat: str, archive: zipfile.ZipFile, folder: str) -> int:
        """Add the files of a seat to an archive.

        Args:
            seat: The seat.
            archive: The archive.
            folder: The directory in the archive.

        Returns:
            The number of links and special files that were left out.

        Raises:
            OSError: The archive cannot be written.
        """

    def replace_storage(self, seat: str) -> None:
        """Replace the storage of a stopped seat by an empty one."""

    def contents(self) -> Mapping[str, int]:
        """Return the number of parts that the class has now, by kind: `{"container": 4}`."""

    def remove(self) -> None:
        """End the programs of the class, and remove all that `create` made."""

    def reports(self) -> Mapping[str, RunReport | None]:
        """Return the newest run of each seat that runs, as the seat reports it."""


def seat_backend(stored: StoredClass) -> SeatBackend:
    """Return where the seats of a class run."""
    if stored.plan.is_local:
        from lab.classroom.processes import Processes  # noqa: PLC0415  (only these classes)

        return Processes(stored)
    from lab.classroom.containers import Containers  # noqa: PLC0415  (docker-py)

    return Containers(stored)
