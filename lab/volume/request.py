"""The request: one run, as the task agents execute it."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass

from lab.volume.decoding import from_json
from lab.volume.names import RUN_ID, TASK, ClusterSpec, chief_of, task_names
from lab.volume.run_spec import RunSpec


@dataclass(frozen=True, slots=True)
class Request:
    """One run, as the task agents execute it.

    Attributes:
        run_id: The run's id, also the name of its directory.
        spec: The user's specification of the run.
        cluster: TensorFlow's cluster spec of the environment.
        submitted_unix: When it was submitted, in seconds since the epoch.
        autorun: Digest of the automatic run of `docker compose up`, if this is that run; or "".
    """

    run_id: str
    spec: RunSpec
    cluster: ClusterSpec
    submitted_unix: float = 0.0
    autorun: str = ""

    def tasks(self) -> list[str]:
        """Return the names of all tasks, in the cluster's order."""
        return task_names(self.cluster)

    def others(self) -> list[str]:
        """Return the tasks whose end ends the run: all tasks that are not services."""
        return [task for task in self.tasks() if not self.spec.is_service(task)]

    def ranks(self) -> list[str]:
        """Return the tasks of Horovod's ring in the order of their ranks: the chief is rank 0.

        Services and evaluators have no rank, and neither has a task without a program.
        """
        found = [
            task
            for task in self.others()
            if self.spec.horovod
            and self.spec.program_of(task) is not None
            and not task.startswith("evaluator-")
        ]
        return sorted(found, key=lambda task: task != self.chief)

    @property
    def chief(self) -> str | None:
        """The task that initializes and saves, if any."""
        return chief_of(self.tasks())

    def to_json(self) -> str:
        """Return one line of JSON."""
        return json.dumps(asdict(self))

    @classmethod
    def from_json(cls, text: str) -> Request:
        """Decode a request.

        Raises:
            ValueError: The text is not a request.
        """
        request = from_json(text, cls, "request")
        if not RUN_ID.fullmatch(request.run_id):
            raise ValueError(f"not a run id: {request.run_id!r}")
        for name in request.tasks():
            if not TASK.fullmatch(name):
                raise ValueError(f"not a task: {name!r}")
        return request
