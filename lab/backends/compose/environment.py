"""An environment of containers: what `lab ps`, `run`, `collect`, `logs` and `down` talk to."""

from __future__ import annotations

import json
import platform
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import replace
from itertools import islice
from pathlib import Path
from typing import Any, Final

from lab.backends import NOTHING, Chunk, Keeps, Say, TaskInfo, Unless, looking, never, nothing
from lab.backends.compose import names, sight, sources, state
from lab.backends.compose.channel import Channel, ExecChannel, ReaderChannel
from lab.backends.compose.cli import child, compose_version, docker, lines_of
from lab.backends.compose.containers import Seen, read
from lab.backends.compose.delivery import deliver
from lab.backends.compose.disturb import calm, disturb
from lab.backends.compose.engine import Engine, Gone, answering
from lab.backends.compose.origin import compose_file
from lab.backends.compose.removal import NOTHING as EMPTY
from lab.backends.compose.removal import holdings, remove
from lab.backends.gpu_record import release
from lab.backends.hearing import check_hearing
from lab.errors import InputError, LabError
from lab.gpu.verification import Sight
from lab.task.frames import FrameError, read_frames
from lab.task.protocol import Request
from lab.task.text import visible

_LOG_PREFIX: Final = re.compile(r"^([a-z]+-[0-9]+)-[0-9]+( +\|)")
"""compose writes the container's number behind the task: `worker-0-1  | …`."""

_OCI_TITLE: Final = "org.opencontainers.image.title=lab"

_WORD: Final = 100_000
"""Bytes of one word of a command line; Linux refuses one of 128 KiB."""

_WORDS: Final = 10
"""Words with offsets; a command line has 2 MiB at most. Other files are sent as a whole."""


class ComposeEnvironment:
    """All that carries the label of one project.

    Attributes:
        backend: `compose`.
        project: The project's name.
        folder: The directory that its compose file's paths start from, or "" where only a volume
            is left.
        cluster_sha256: Digest of the description that it came from, or "" where only a volume is
            left.
        tensorflow: The version that its tasks have, or "" where only a volume is left.
        found: Its containers as they were when this object was made; what they were made from
            stays, how they are does not.
    """

    backend = "compose"

    def __init__(self, engine: Engine, project: str) -> None:
        self._engine = engine
        self._broken: set[str] = set()  # containers through which a call broke off
        self.project = project
        self.found = self.seen()
        task = next((each for each in self.found if each.task), None)
        self.folder = task.folder if task else ""
        self.cluster_sha256 = task.cluster_sha256 if task else ""
        self.tensorflow = task.tensorflow if task else ""

    @property
    def is_here(self) -> bool:
        """Whether the engine runs on this machine, by the name that it gives its own."""
        with answering("asking the engine for its machine"):
            name = str(self._engine.client().info().get("Name", ""))
        return name == platform.node()

    @property
    def sources_sha256(self) -> str:
        """Digest of lab's own code in its containers; "" where that is not one and the same."""
        firsts = {each.image: each.id for each in self.found}
        digests = {sources.of_container(self._engine, one, image) for image, one in firsts.items()}
        return digests.pop() if len(digests) == 1 else ""

    def seen(self) -> list[Seen]:
        """Every container of it, tasks in the plan's order behind the anchors."""
        found = [read(each) for each in self._inspected()]
        spec = next((each.cluster_spec() for each in found if each.task), {})
        order = [f"{job}-{i}" for job, hosts in spec.items() for i in range(len(hosts))]
        places = {task: place for place, task in enumerate(order, start=1)}
        return sorted(found, key=lambda each: (places.get(each.task, 0), each.service))

    def cluster_spec(self) -> dict[str, list[str]]:
        """TensorFlow's cluster spec; empty where only a volume is left."""
        return next((each.cluster_spec() for each in self.found if each.task), {})

    def tasks(self) -> list[TaskInfo]:
        """Every task, in the plan's order."""
        return [_task(each) for each in self.seen() if each.task]

    def submit(self, request: Request, parts: Mapping[str, Path] = NOTHING) -> None:
        """Hand a request to the agents; see `Environment`.

        Raises:
            LabError: Another run is under way, or no agent is there to hear of it.
        """
        with state.locked(self.project, shared=True):
            seen = self.seen()
            check_hearing(self.project, [_task(each) for each in seen if each.task])
            if parts:
                running = next(each.id for each in seen if each.task and each.running)
                deliver(self._engine, running, request.run_id, parts)
            _drain(self._channel(seen).call("submit", request.to_json()))

    def cancel(self, run_id: str, reason: str) -> None:
        """Ask the agents to end a run."""
        _drain(self._channel().call("cancel", run_id, reason))

    def kill(self, run_id: str, reason: str) -> None:
        """Ask the agents to end a run at once."""
        _drain(self._channel().call("kill", run_id, reason))

    def disturb(self, node: str, words: Sequence[str]) -> None:
        """Do a fault to a node's network; see `Environment`.

        Raises:
            LabError: The node does not run, or it was refused.
        """
        anchor = next((each for each in self.seen() if not each.task and each.node == node), None)
        if anchor is None or not anchor.running:
            detail = anchor.detail if anchor else "there is none of this name"
            raise LabError(f"node {node} does not run: {detail}", f"see `lab ps {self.project}`")
        disturb(self._engine, self.project, anchor, words)

    def tell(self, run_id: str, fault: str) -> None:
        """Put a fault on the volume, where the agents of a run find it."""
        _drain(self._channel().call("fault", run_id, fault))

    def runs(self) -> list[Request]:
        """All requests on the volume, oldest first."""
        try:
            channel = self._channel()
        except Gone:
            return []  # half booted: it has no volume yet
        text = b"".join(channel.call("requests")).decode("utf-8", errors="replace")
        try:
            return [Request.from_json(line) for line in text.splitlines()]
        except ValueError as error:
            raise LabError(
                f"the run volume of {self.project} holds {error}", "see `lab shell`"
            ) from error

    def mark_collected(self, run_id: str, directory: str) -> None:
        """Note into which directory of runs all of a run was collected; see `Environment`."""
        _drain(self._channel().call("collected", run_id, directory))

    def collected(self) -> Mapping[str, str]:
        """Run to the directory that is noted so; see `Environment`."""
        # Imported here: not every command asks.
        import msgspec  # noqa: PLC0415

        text = b"".join(self._channel().call("collected"))
        try:
            return msgspec.json.decode(text, type=dict[str, str])
        except (msgspec.MsgspecError, RecursionError) as error:
            raise LabError(f"the run volume of {self.project} says {error}") from error

    def ship(
        self,
        run_id: str,
        offsets: Mapping[str, int],
        *,
        follow: bool,
        all_sizes: bool = False,
        rest: bool = False,
    ) -> Iterator[Chunk | None]:
        """Bring a run home, from the given byte offsets on; see `Environment`."""
        given = {"--follow": follow, "--all-sizes": all_sizes, "--rest": rest}
        switches = [switch for switch, is_given in given.items() if is_given]
        arguments = ["ship", run_id, *islice(_words(offsets), _WORDS), *switches]
        channel = self._channel()
        with closing(channel.call(*arguments)) as stream:
            try:
                yield from read_frames(stream)
            except FrameError as error:
                self._avoid(channel)
                raise Gone(
                    f"run {run_id} broke off: {error}", f"go on with `lab collect {run_id}`"
                ) from error
            except Gone:
                self._avoid(channel)
                raise

    def _avoid(self, channel: Channel) -> None:
        """Prefer other containers: the engine shows one as running for a moment after its end."""
        if isinstance(channel, ExecChannel):
            self._broken.add(channel.container_id)

    def logs(
        self, tasks: Sequence[str], *, follow: bool, tail: int | None, since: float | None = None
    ) -> Iterator[str]:
        """Lines of the tasks' standard output, `worker-0  | …`; all tasks where none is named.

        Raises:
            InputError: There is no such task.
        """
        services = {each.task: each.service for each in self.seen() if each.task}
        wanted = [services[self._known(task, services)] for task in tasks] or [*services.values()]
        if not wanted:
            raise LabError(f"environment {self.project} has no containers", "bring it up: `lab up`")
        command = [
            docker(),
            "compose",
            *("--project-name", self.project),
            *("--ansi", "never"),
            "logs",
            "--no-color",
            *(["--follow"] if follow else []),
            *(["--tail", str(tail)] if tail is not None else []),
            *(["--since", f"{since:.6f}"] if since is not None else []),
            *wanted,
        ]
        with child(command) as process:
            for line in lines_of(process):
                yield _LOG_PREFIX.sub(r"\1\2", visible(line))

    def shell(self, task: str) -> list[str]:
        """The command line that opens a shell in the task's container.

        Raises:
            InputError: There is no such task.
            LabError: It does not run.
        """
        found = {each.task: each for each in self.seen() if each.task}
        seen = found[self._known(task, found)]
        if not seen.running:
            raise LabError(f"{task} does not run: {seen.detail}", "bring it up with `lab up`")
        return [docker(), "exec", "--interactive", "--tty", seen.name, "bash"]

    def look(self, *, tensorflow: bool) -> dict[str, Sight]:
        """What every task, and every node, sees of the box's GPUs now; see `Environment`."""
        seen = self.seen()

        def asking(task: Seen) -> Callable[[], Sight]:
            return lambda: sight.of_task(self._engine, task, tensorflow=tensorflow)

        asks = {each.task: asking(each) for each in seen if each.task}
        nodes = {each.service: sight.of_anchor(each) for each in seen if not each.task}
        return looking.ask_all(asks, tensorflow=tensorflow) | nodes

    def provenance(self) -> dict[str, str]:
        """Digest of the image that really runs, and versions of engine, kernel and compose."""
        image = next((each.image for each in self.found), "")
        with answering("asking the engine for its version"):
            told: dict[str, Any] = self._engine.client().version()
        return {
            "image": image,
            "tensorflow": self.tensorflow,
            "engine": str(told["Version"]),
            "kernel": str(told.get("KernelVersion", "")),
            "compose": compose_version(),
        }

    def description(self) -> tuple[str, str]:
        """The compose file that it was made from, or the containers as JSON where it is gone.

        The file is taken only where compose itself finds that the containers were made from it.
        """
        text = compose_file(self.project, self.found)
        if text is not None:
            return "docker-compose.yml", text
        return "containers.json", json.dumps(self._containers(), indent=2, sort_keys=True) + "\n"

    def down(self, say: Say, *, unless: Unless = never, keeps: Keeps = nothing) -> None:
        """Remove every container, network and volume with the project's label; see `Environment`.

        Raises:
            LabError: Another command boots it or takes it down now, or the engine refused.
        """
        with state.locked(self.project):
            unless()
            kept = holdings(self._engine, self.project).volumes if keeps() else EMPTY.volumes
            calm(self._engine, self.project)
            remove(self._engine, self.project, say, keep=replace(EMPTY, volumes=kept))
            if any(each.planned for each in self.found):
                release(self.backend, self.project, self._engine.id())
            state.forget(self.project)

    def _channel(self, seen: Sequence[Seen] | None = None) -> Channel:
        """A way to the volume: a task that runs, else a container made for the purpose."""
        seen = self.seen() if seen is None else seen
        running = [each for each in seen if each.task and each.running]
        if running:
            best = min(running, key=lambda each: (each.id in self._broken, not each.up))
            return ExecChannel(self._engine, best.id)
        with answering("looking for the run volume"):
            client = self._engine.client()
            volumes = client.volumes.list(filters={"label": f"{names.PROJECT}={self.project}"})
            images = client.images.list(filters={"label": _OCI_TITLE})
        volume = next((each.volume for each in seen if each.volume), None)
        if volume is None and volumes:
            volume = str(volumes[0].name)
        if volume is None:
            raise Gone(f"environment {self.project} has gone", "bring it up with `lab up`")
        image = next((each.image for each in seen if each.task), None)
        if image is None and images:
            image = str(images[0].id)
        if image is None:
            raise LabError(
                f"there is no image left to read the volume {volume} with",
                "build it with `lab build`",
            )
        return ReaderChannel(self._engine, self.project, volume, image)

    def _known(self, task: str, found: Mapping[str, object]) -> str:
        if task not in found:
            raise InputError(
                f"environment {self.project} has no task {visible(task)!r}",
                f"it has {', '.join(found) or 'none'}",
            )
        return task

    def _containers(self) -> list[dict[str, Any]]:
        """What the engine says of each container, without what changes from second to second."""
        kept = ("Name", "Image", "Path", "Args", "Config", "HostConfig", "Mounts")
        return sorted(
            ({key: each[key] for key in kept} for each in self._inspected()),
            key=lambda each: str(each["Name"]),
        )

    def _inspected(self) -> list[dict[str, Any]]:
        """The engine's inspection of each container; one that reads the volume is none of it."""
        found = self._engine.containers(f"{names.PROJECT}={self.project}")
        return [each.attrs for each in found if names.READER not in each.labels]


def _task(seen: Seen) -> TaskInfo:
    """A task's container as the backends' protocol describes it."""
    job, _, index = seen.task.rpartition("-")
    return TaskInfo(
        task=seen.task,
        node=seen.node,
        address=seen.cluster_spec()[job][int(index)],
        gpus=seen.planned,
        alive=seen.up,
        detail=seen.detail,
    )


def _words(offsets: Mapping[str, int]) -> Iterator[str]:
    """The offsets as JSON, in as many words of a command line as they need; at least one."""
    some: dict[str, int] = {}
    room = _WORD
    for path, size in offsets.items():
        needs = len(json.dumps({path: size}))
        if needs > room:
            yield json.dumps(some)
            some, room = {}, _WORD
        some[path] = size
        room -= needs
    yield json.dumps(some)


def _drain(pieces: Iterator[bytes]) -> None:
    for _ in pieces:
        pass
