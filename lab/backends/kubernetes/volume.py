"""The run volume of an environment on Kubernetes: a small pod of its own reads and writes it."""

from __future__ import annotations

import time
from collections.abc import Generator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Final

from lab.backends.kubernetes import status
from lab.backends.kubernetes.api import Api, ApiError
from lab.backends.kubernetes.pods import OWNER, PROJECT, SCRIPTS, Object, directory_of
from lab.backends.run_volume import CalledVolume, NoVolume, archive_of
from lab.base.errors import LabError
from lab.base.log import LOG
from lab.base.text import short

START_S: Final = 180.0
"""Seconds that a pod with a node has to start: it may pull its image."""

PROBLEMS: Final = "see docs/how-to/kubernetes.md, Problems"
CLAIM: Final = "PersistentVolumeClaim"

POLL_S: Final = 0.5


@dataclass(frozen=True)
class PodVolume(CalledVolume):
    """A run volume that the client reads and writes in a pod, which is started on demand.

    Attributes:
        api: The namespace.
        manifest: The pod, with the labels of all objects of its environment.
        own_claim: Whether lab has made the volume claim.
        folder: The project's directory.
    """

    api: Api
    manifest: Object
    own_claim: bool
    folder: str = ""

    @property
    def _labels(self) -> Mapping[str, str]:
        labels: Mapping[str, str] = self.manifest["metadata"]["labels"]
        return labels

    @property
    def _directory(self) -> str:
        return directory_of(self._labels[PROJECT], self._labels[OWNER])

    @property
    def name(self) -> str:
        """Its name."""
        return str(self.manifest["metadata"]["name"])

    def start(self) -> str:
        """Start the pod unless it runs, and return its name.

        Raises:
            NoVolume: The volume claim is gone.
            LabError: The pod does not start.
        """
        until = time.monotonic() + START_S
        while True:
            pods = self.api.list("Pod", self._labels)
            pod = next((pod for pod in pods if pod["metadata"]["name"] == self.name), None)
            if pod is None:
                self._create()
            elif status.is_ready(pod):
                return self.name
            elif status.was_ended(pod) and time.monotonic() < until:
                self.api.delete(pod)
            # A pod that is being deleted has failed for a moment; then it is gone.
            elif time.monotonic() > until or (status.failure(pod) and not status.is_deleted(pod)):
                why = f"{status.detail(pod)}{last_lines(self.api, pod)}"
                raise LabError(f"the pod of the run volume, {self.name}: {why}", self._hint(pod))
            time.sleep(POLL_S)

    def _hint(self, pod: Object) -> str:
        is_shared = self.own_claim and "affinity" not in self.manifest["spec"]
        if is_shared and status.is_waiting(pod):
            return "if only one node can mount the volumes here (ReadWriteOnce), use -o nodes=one"
        return PROBLEMS

    def _create(self) -> None:
        if self.own_claim and not self.api.list(CLAIM, self._labels):
            raise NoVolume(
                f"environment {self._labels[PROJECT]} no longer exists", "boot it with `lab up`"
            )
        try:
            self.api.create(self.manifest)
        except ApiError as error:
            same = ("fieldSelector", f"metadata.name={self.name}")
            pods = self.api.list("Pod", {}, [same]) if error.is_conflict else []
            owners = [pod["metadata"].get("labels", {}).get(OWNER) for pod in pods]
            if not error.is_conflict or any(owner != self._labels[OWNER] for owner in owners):
                raise
            # another command has started it

    def pipe(self, *arguments: str) -> Generator[bytes, None, None]:
        """Call the module in the pod; see `CalledVolume`."""
        leash = ["--leash"] if "--follow" in arguments else []
        return self.api.call(self.start(), [*self.module, *arguments, *leash])

    def run(self, command: Sequence[str], stdin: bytes = b"") -> bytes:
        """Run a command in the pod; return what it prints.

        Raises:
            LabError: The pod does not start, or the command fails.
        """
        return b"".join(self.api.call(self.start(), command, stdin))

    def put(self, run_id: str, parts: Mapping[str, Path]) -> None:
        """Copy the project's programs, and the parts of a run; see `RunVolume`."""
        self._upload(Path(self.folder, SCRIPTS), PurePosixPath(SCRIPTS))
        for name, folder in parts.items():
            self._upload(folder, PurePosixPath("incoming", run_id, name))

    def _upload(self, folder: Path, inside: PurePosixPath) -> None:
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
        self.run(command, archive)

    def remove_directory(self) -> None:
        """Remove the directory that lab has made on the user's claim."""
        command = ["rm", "-r", "-f", "--", self._directory]
        try:
            self.run(command)
        except LabError as error:  # no pod can be started, so that it may not exist at all
            LOG.warning(f"{self._directory} may be left on the volume claim: {error.what}")


def last_lines(api: Api, pod: Object) -> str:
    """The last lines that a pod has printed, for an error; "" if it has not started."""
    try:
        name = pod["metadata"]["name"]
        data = b"".join(api.logs(name, follow=False, tail=3, since=None))
    except LabError:
        return ""
    lines = data.decode(errors="replace").splitlines()
    shown = " / ".join(line.strip() for line in lines if line.strip())
    return f"; its last lines: {short(shown, 300)}" if shown else ""
