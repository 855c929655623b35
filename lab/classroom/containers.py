"""The seats of a class as containers of the Docker engine."""

from __future__ import annotations

import zipfile
from collections.abc import Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Final

from lab.backends.engine.client import Engine, engine_errors
from lab.classroom import names
from lab.classroom.disks import SeatDisk
from lab.classroom.engine import (
    contents,
    create_container,
    create_networks,
    create_volume,
    create_volumes,
    remove_all,
    remove_containers,
    remove_volume,
    seat_containers,
    start_proxy,
)
from lab.classroom.planning import SeatPlan
from lab.classroom.run_report import MAX_REPORT_BYTES, REPORT, RunReport, parse_report
from lab.classroom.state import ClassDir, StoredClass
from lab.classroom.work import SeatVolume
from lab.errors import LabError
from lab.log import LOG
from lab.text import short

if TYPE_CHECKING:
    from docker.models.containers import Container

_COLLECT_S: Final = 120.0
"""Seconds that the collection of a seat's runs may take."""


class Containers:
    """A container, a network and a volume for each seat, and the proxy.

    JupyterHub starts and stops the seats. Every method raises a `LabError` if the engine or the
    host refuses.
    """

    def __init__(self, stored: StoredClass) -> None:
        """Use the engine that the environment variables name.

        Args:
            stored: The class.
        """
        self._plan = stored.plan
        self._image = stored.image
        self._engine = Engine()
        folder = ClassDir(self._plan.name).disks
        self._disks = {
            each.name: SeatDisk(folder, each.name, each.disk_bytes)
            for each in self._plan.seats
            if self._plan.disk_enforced and each.disk_bytes is not None
        }

    def create(self) -> None:
        """Create the networks, the volumes and the disks."""
        create_networks(self._engine, self._plan)
        create_volumes(self._engine, self._plan, self._disks)
        self.attach_storage()

    def attach_storage(self) -> None:
        """Attach the disks, if their limits are enforced."""
        for disk in self._disks.values():
            disk.attach()

    def start_proxy(self) -> None:
        """Start the proxy's containers."""
        token = ClassDir(self._plan.name).tokens().proxy
        start_proxy(self._engine, self._plan, self._image, token)

    def is_stopped(self, seat: str) -> bool:
        """Return whether no container of the seat was started."""
        found = seat_containers(self._engine, self._plan.name, seat)
        return all(each.status == "created" for each in found)

    def stop(self, seat: str = "") -> None:
        """Remove the containers of a seat or of the class."""
        remove_containers(self._engine, self._plan.name, seat)

    def collect(self, seats: Sequence[str]) -> None:
        """Collect the runs of the queue that seats have not collected, on their volumes.

        Each seat has a container with its volume; several run at once. A failure is reported: the
        archive then has the run volume.

        Args:
            seats: The seats.
        """
        containers, doing = [], "collecting the runs of the queue"
        try:
            for seat in self._plan.seats:
                disk = self._disks.get(seat.name)
                if seat.name in seats and (disk is None or disk.image.exists()):
                    if disk is not None:
                        disk.attach()
                    containers.append(self._collector(seat))
            for name, printed in self._engine.for_each(doing, containers, _collected):
                if printed:
                    LOG.warning(f"{name}: not all runs of the queue are collected: {printed}")
        except LabError as error:  # the class must end, and the run volumes are in the archive
            LOG.warning(f"not all runs of the queue are collected: {error}")

    def _collector(self, seat: SeatPlan) -> Container:
        """Create the container that collects the runs of a seat."""
        name = self._plan.name
        with engine_errors(f"collecting the runs of {seat.name}"):
            return create_container(
                self._engine,
                self._image,
                ["python", "-P", "-m", "lab.classroom.seat_collect"],
                labels={names.CLASS: name, names.SEAT: seat.name},
                volumes={names.seat_object(name, seat.name): {"bind": names.MOUNT}},
                network_mode="none",
                mem_limit=seat.memory_bytes or 0,
            )

    def save(self, seat: str, archive: zipfile.ZipFile, folder: str) -> int:
        """Add the files of the seat's volume to an archive.

        Args:
            seat: The seat.
            archive: The archive.
            folder: The directory in the archive.

        Returns:
            The number of links and special files that were left out.

        Raises:
            OSError: The archive cannot be written.
        """
        if disk := self._disks.get(seat):
            if not disk.image.exists():  # its creation failed
                return 0
            disk.attach()
        volume = SeatVolume(self._engine, self._plan.name, seat, self._image)
        return volume.save(archive, folder)

    def replace_storage(self, seat: str) -> None:
        """Replace the volume of a stopped seat, and its disk."""
        name, disk = self._plan.name, self._disks.get(seat)
        remove_volume(self._engine, name, seat)
        create_volume(self._engine, name, seat, disk)
        if disk:  # no container uses it, otherwise the engine had refused
            disk.remove()
            disk.attach()

    def contents(self) -> dict[str, int]:
        """Return the number of containers, networks and volumes."""
        return contents(self._engine, self._plan.name)

    def remove(self) -> None:
        """Remove the containers, the networks, the volumes and the disks."""
        remove_all(self._engine, self._plan.name)
        for disk in self._disks.values():
            disk.remove()

    def reports(self) -> dict[str, RunReport | None]:
        """Run the report command in every seat's container, in several at once."""
        containers = [
            each
            for each in self._engine.containers(f"{names.CLASS}={self._plan.name}", names.SEAT)
            if each.status == "running"
        ]
        doing = "reading the runs of the seats"
        return dict(self._engine.for_each(doing, containers, self._newest_run))

    def _newest_run(self, container: Container) -> tuple[str, RunReport | None]:
        api = self._engine.client().api
        seat, content = container.labels[names.SEAT], b""
        # A student's container may have no process or memory left for the command.
        with suppress(LabError), engine_errors(f"reading the runs of {seat}"):
            exec_id = api.exec_create(container.id, list(REPORT), stderr=False, workdir="/")["Id"]
            for chunk in api.exec_start(exec_id, stream=True):
                content += chunk
                if len(content) > MAX_REPORT_BYTES:
                    break
        return seat, parse_report(content)


def _collected(container: Container) -> tuple[str, str]:
    """Run a container that collects, and remove it; return its seat, and why it failed or ""."""
    import requests.exceptions  # noqa: PLC0415  (takes 0.2 s)

    try:
        container.start()
        code = container.wait(timeout=_COLLECT_S)["StatusCode"]
        lines = container.logs(tail=1, stdout=False).decode("utf-8", errors="replace").strip()
    except (requests.exceptions.ConnectionError, requests.exceptions.Timeout):
        code, lines = 1, f"it takes more than {_COLLECT_S:g} s"
    finally:
        container.remove(force=True)
    return container.labels[names.SEAT], short(lines or f"exit code {code}") if code else ""
