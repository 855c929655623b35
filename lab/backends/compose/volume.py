"""The run volume of containers: a task's container reads and writes it, or one of its own."""

from __future__ import annotations

from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, Final

from lab.backends.engine.client import Engine, engine_errors
from lab.backends.engine.containers import PROJECT, RUNS_MOUNT, ContainerInfo
from lab.backends.run_volume import (
    MODULE,
    CalledVolume,
    NotFound,
    NoVolume,
    archive_of,
    raise_for_exit_code,
)
from lab.base.errors import LabError
from lab.base.variables import LAB_RUNS
from lab.protocol.volume import Chunk, Volume

if TYPE_CHECKING:
    from docker.types import CancellableStream

    Output = CancellableStream[tuple[bytes | None, bytes | None]]
    """Pieces of standard output and standard error as docker-py demultiplexes them."""


_OCI_TITLE: Final = "org.opencontainers.image.title=lab"


class ComposeVolume(CalledVolume):
    """The volume of one project."""

    def __init__(
        self, engine: Engine, project: str, inspect: Callable[[], Sequence[ContainerInfo]]
    ) -> None:
        """Set where to look for the volume.

        Args:
            engine: The engine.
            project: The project.
            inspect: Inspects the project's containers.
        """
        self._engine = engine
        self._project = project
        self._inspect = inspect
        self._called = ""  # the id of the container of the last call
        self._broken: set[str] = set()  # ids of containers that stopped during a call

    def pipe(self, *arguments: str) -> Generator[bytes, None, None]:
        """Call the module in a running task, else in a container of its own; see `CalledVolume`."""
        tasks = [info for info in self._inspect() if info.task]
        if running := [info for info in tasks if info.running]:
            best = min(running, key=lambda info: (info.id in self._broken, not info.up))
            self._called = best.id
            return call_in_task(self._engine, best.id, *arguments)
        with engine_errors("looking for the run volume"):
            client = self._engine.client()
            volumes = client.volumes.list(filters={"label": f"{PROJECT}={self._project}"})
            images = client.images.list(filters={"label": _OCI_TITLE})
        names = [info.volume for info in tasks if info.volume]
        names += [str(volume.name) for volume in volumes]
        if not names:
            raise NoVolume(f"environment {self._project} no longer exists", "boot it with `lab up`")
        ids = [info.image for info in tasks] + [str(image.id) for image in images]
        if not ids:
            raise LabError(
                f"there is no image to read the volume {names[0]}", "build it with `lab build`"
            )
        return call_in_reader(self._engine, self._project, names[0], ids[0], *arguments)

    def put(self, run_id: str, parts: Mapping[str, Path]) -> None:
        """Copy directories to the volume by a running task; see `RunVolume`."""
        if parts:
            running = next(info.id for info in self._inspect() if info.task and info.running)
            upload(self._engine, running, run_id, parts)

    def stream(
        self, run_id: str, offsets: Mapping[str, int], *, follow: bool, all_sizes: bool, rest: bool
    ) -> Generator[Chunk | None, None, None]:
        """Stream the files of a run; see `Environment.stream`.

        If the container stops, the next call prefers another one: for a moment the engine shows an
        ended container as running.
        """
        try:
            yield from super().stream(
                run_id, offsets, follow=follow, all_sizes=all_sizes, rest=rest
            )
        except NotFound:
            self._broken.add(self._called)
            raise


def call_in_task(
    engine: Engine, container_id: str, *arguments: str
) -> Generator[bytes, None, None]:
    """Call the volume's module in a running task container; see `CalledVolume`.

    The exec passes no `user`, so that it runs as the user of PID 1, which owns the volume.
    """
    doing = f"calling {arguments[0]} on the run volume"
    with engine_errors(doing):
        api = engine.client().api
        # The engine does not end an exec whose caller has ended. With `--leash` the module ends
        # itself at the end of its standard input, to which the client writes nothing.
        leash = ["--leash"] if "--follow" in arguments else []
        command = [*MODULE, *arguments, *leash]
        exec_id = api.exec_create(container_id, command, stdin=True)["Id"]
        output: Output = api.exec_start(exec_id, stream=True, demux=True)
    printed = yield from stdout_of(output, doing)
    with engine_errors(doing):
        code = engine.client().api.exec_inspect(exec_id)["ExitCode"]
    raise_for_exit_code(doing, code, printed)


def call_in_reader(
    engine: Engine, project: str, volume: str, image: str, *arguments: str
) -> Generator[bytes, None, None]:
    """Call the volume's module in a short-lived container, when no task container runs.

    It has the volume, but no network, no capabilities and a read-only root; see `CalledVolume`.
    """
    doing = f"calling {arguments[0]} on the run volume"
    with engine_errors(doing):
        container = engine.create(
            project,
            image,
            [*MODULE, *arguments],
            environment={LAB_RUNS: RUNS_MOUNT},
            volumes={volume: {"bind": RUNS_MOUNT, "mode": "rw"}},
            network_mode="none",
        )
    try:
        with engine_errors(doing):
            output: Output = container.attach(stream=True, logs=True, demux=True)
            container.start()
        printed = yield from stdout_of(output, doing)
        with engine_errors(doing):
            code = container.wait()["StatusCode"]
        raise_for_exit_code(doing, code, printed)
    finally:
        with engine_errors(doing):
            container.remove(force=True)


def stdout_of(output: Output, doing: str) -> Generator[bytes, None, bytes]:
    """Yield standard output; return the end of standard error."""
    printed = b""
    ended = False
    try:
        while True:
            with engine_errors(doing):
                piece = next(output, None)
            if piece is None:
                ended = True
                return printed
            stdout, stderr = piece
            if stderr:
                printed = (printed + stderr)[-4096:]
            if stdout:
                yield stdout
    finally:
        if not ended:
            # The caller has stopped reading. docker-py keeps the socket open until `close`.
            with suppress(OSError):
                output.close()


def upload(engine: Engine, container_id: str, run_id: str, parts: Mapping[str, Path]) -> None:
    """Copy directories for a new run into `incoming/<run_id>/` on the volume.

    Args:
        engine: The engine.
        container_id: A container that mounts the volume.
        run_id: The run.
        parts: Name in the run's directory to directory on this host.

    Raises:
        LabError: The engine refused.
    """
    inside = Volume(Path(RUNS_MOUNT)).incoming(run_id).relative_to(RUNS_MOUNT)
    for name, folder in parts.items():
        archive = archive_of(folder, PurePosixPath(inside / name))
        with engine_errors(f"copying {name} to the run volume"):
            done = engine.client().api.put_archive(container_id, RUNS_MOUNT, archive)
        if not done:
            raise LabError(f"the engine refused {folder}", "see `lab ps`, then try again")
