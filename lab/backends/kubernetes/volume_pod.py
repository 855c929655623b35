"""The pod in which the client reads and writes the run volume of an environment."""

from __future__ import annotations

import time
from collections.abc import Generator, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Final

from lab.backends.engine.client import NotFound
from lab.backends.kubernetes import status
from lab.backends.kubernetes.api import Api, ApiError, CallError
from lab.backends.kubernetes.pods import OWNER, Object, directory_of
from lab.backends.kubernetes.state import EnvironmentRecord
from lab.backends.volume_calls import MODULE, archive_of, raise_for_exit_code
from lab.errors import LabError
from lab.log import LOG
from lab.text import short, visible

START_S: Final = 180.0
"""Seconds that a pod with a node has to start: it may pull its image."""

PROBLEMS: Final = "see docs/how-to/kubernetes.md, Problems"
CLAIM: Final = "PersistentVolumeClaim"

_POLL_S: Final = 0.5


@dataclass(frozen=True, slots=True)
class PodChannel:
    """Calls of the volume's module in a pod."""

    api: Api
    pod: str

    def call(self, *arguments: str) -> Generator[bytes, None, None]:
        """Call the module; see `Channel`."""
        leash = ["--leash"] if "--follow" in arguments else []
        try:
            yield from self.api.call(self.pod, [*MODULE, *arguments, *leash])
        except CallError as error:
            doing = f"calling {arguments[0]} on the run volume"
            raise_for_exit_code(doing, error.code, error.what.encode())


class VolumePod:
    """The pod of the run volume, which is started on demand."""

    def __init__(self, api: Api, record: EnvironmentRecord, labels: Mapping[str, str]) -> None:
        self._api, self._record, self._labels = api, record, labels

    def name(self) -> str:
        """Start the pod unless it runs, and return its name.

        Raises:
            NotFound: The volume claim is gone.
            LabError: The pod does not start.
        """
        name, until = str(self._record.reader["metadata"]["name"]), time.monotonic() + START_S
        while True:
            pods = self._api.list("Pod", self._labels)
            pod = next((pod for pod in pods if pod["metadata"]["name"] == name), None)
            if pod is None:
                self._start()
            elif status.is_ready(pod):
                return name
            elif status.was_ended(pod) and time.monotonic() < until:
                self._api.delete(pod)
            elif status.failure(pod) or time.monotonic() > until:
                why = f"{status.detail(pod)}{last_lines(self._api, pod)}"
                raise LabError(f"the pod of the run volume, {name}: {why}", self._hint(pod))
            time.sleep(_POLL_S)

    def _hint(self, pod: Object) -> str:
        is_shared = self._record.own_claim and "affinity" not in self._record.reader["spec"]
        if is_shared and status.is_waiting(pod):
            return "if only one node can mount the volumes here (ReadWriteOnce), use -o nodes=one"
        return PROBLEMS

    def _start(self) -> None:
        if self._record.own_claim and not self._api.list(CLAIM, self._labels):
            raise NotFound(
                f"environment {self._record.project} no longer exists", "boot it with `lab up`"
            )
        try:
            self._api.create(self._record.reader)
        except ApiError as error:
            name = ("fieldSelector", f"metadata.name={self._record.reader['metadata']['name']}")
            pods = self._api.list("Pod", {}, [name]) if error.is_conflict else []
            owners = [pod["metadata"].get("labels", {}).get(OWNER) for pod in pods]
            if not error.is_conflict or any(owner != self._record.owner for owner in owners):
                raise
            # another command has started it

    def call(self, command: Sequence[str], stdin: bytes = b"") -> Iterator[bytes]:
        """Yield what a command in the pod prints.

        Raises:
            LabError: The pod does not start, or the command fails.
        """
        return self._api.call(self.name(), command, stdin)

    def upload(self, folder: Path, inside: PurePosixPath) -> None:
        """Copy a directory to the run volume, if there is one.

        Raises:
            LabError: The volume refuses it.
        """
        if not folder.is_dir():
            return
        archive = archive_of(folder, inside)
        # The standard input of a call has no end.
        unpack = 'head -c "$1" | tar -x -f - -C "$2"'
        command = ["sh", "-c", unpack, "sh", str(len(archive)), self._directory]
        for _ in self.call(command, archive):
            pass

    def remove_directory(self) -> None:
        """Remove the directory that lab has made on the user's claim."""
        command = ["rm", "-r", "-f", "--", self._directory]
        try:
            for _ in self.call(command):
                pass
        except LabError as error:  # no pod can be started, so that it may not exist at all
            LOG.warning(f"{self._directory} may be left on the volume claim: {error.what}")

    @property
    def _directory(self) -> str:
        return directory_of(self._record.project, self._record.owner)


def last_lines(api: Api, pod: Object) -> str:
    """The last lines that a pod has printed, for an error; "" if it has not started."""
    try:
        name = pod["metadata"]["name"]
        data = b"".join(api.logs(name, follow=False, tail=3, since=None))
    except LabError:
        return ""
    lines = " / ".join(visible(line.strip()) for line in data.splitlines() if line.strip())
    return f"; its last lines: {short(lines, 300)}" if lines else ""
