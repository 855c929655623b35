"""One experiment without the helper: `LAB_EXPERIMENT=async docker compose up`."""

from __future__ import annotations

import shlex
from collections.abc import Sequence

from lab.task.agent.agent_config import AgentConfig
from lab.task.protocol import READY_S, Request, RunSpec, Volume, new_run_id
from lab.task.protocol.experiments import EXPERIMENTS, misfit
from lab.task.protocol.heartbeat import PeerMonitor
from lab.task.protocol.policy import outcome
from lab.task.protocol.results import unexpected
from lab.task.protocol.states import State
from lab.task.protocol.statuses import Statuses
from lab.task.text import short, suggestion


class OneshotError(ValueError):
    """The experiment cannot be started; the message says why and how to mend it."""


def request_for(place: AgentConfig) -> Request:
    """The request that `LAB_EXPERIMENT` and `LAB_FLAGS` ask for.

    Raises:
        OneshotError: There is no such experiment, or not on this cluster, or no such flags.
    """
    argv = arguments("LAB_FLAGS", place.flags)
    return request_of("LAB_EXPERIMENT", [place.experiment, *argv], place.cluster, place.tensorflow)


def arguments(variable: str, text: str) -> list[str]:
    """The words of a variable that is written as in a shell.

    Raises:
        OneshotError: It is not; a quotation mark is missing.
    """
    try:
        return shlex.split(text)
    except ValueError as error:
        raise OneshotError(f"{variable}: {error}; write it as in a shell") from error


def request_of(
    variable: str, arguments: Sequence[str], cluster: dict[str, list[str]], tensorflow: str
) -> Request:
    """The request for an experiment that a variable names.

    Args:
        variable: The variable, for messages.
        arguments: The experiment's name and its flags.
        cluster: TensorFlow's cluster spec of the environment.
        tensorflow: The version that the environment has, or "" where that is not known.

    Raises:
        OneshotError: There is no such experiment, or the cluster or TensorFlow does not fit it.
    """
    name, *flags = arguments
    experiment = EXPERIMENTS.get(name)
    if experiment is None:
        hint = suggestion(name, EXPERIMENTS).strip() or f"there are {', '.join(EXPERIMENTS)}"
        raise OneshotError(f"{variable}: no experiment {name!r}; {hint}")
    if why := misfit(experiment, {job: len(hosts) for job, hosts in cluster.items()}):
        raise OneshotError(f"{variable}: {name} {why}; change `jobs:` of the description")
    if tensorflow and tensorflow != experiment.tensorflow:
        raise OneshotError(
            f"{variable}: {name} needs TensorFlow {experiment.tensorflow}, and this"
            f" is {tensorflow}; render with --tensorflow {experiment.tensorflow}"
        )
    return Request(
        run_id=new_run_id(name),
        spec=RunSpec(name, args=tuple(flags), ready_s=READY_S).completed(experiment),
        cluster=cluster,
    )


class RunOutcome:
    """How the whole run has ended, for the leader, which is the last to leave."""

    def __init__(self, volume: Volume, request: Request, leader: str) -> None:
        self._volume = volume
        self._request = request
        self._statuses = Statuses(volume, request.run_id, request.tasks())
        self._unexpected: list[str] = []
        self._peers = PeerMonitor(volume, [task for task in request.tasks() if task != leader])

    def exit_code(self) -> int | None:
        """None while a task has not ended; 0 if the run succeeded and found what it had to, else 1.

        Raises:
            OSError: The volume cannot be written.
        """
        states = self._statuses.refresh()
        self._peers.check()
        self._peers.declare_lost(self._volume, self._request.run_id, states)
        if not all(status.state.ended for status in states.values()):
            return None
        state, _ = outcome(self._request, states)
        if state is State.SUCCEEDED:
            request = self._request
            records = [self._volume.records(request.run_id, task) for task in request.tasks()]
            wanted = EXPERIMENTS[request.spec.experiment].results
            self._unexpected = unexpected(records, wanted)
        return int(state is not State.SUCCEEDED or bool(self._unexpected))

    def lines(self) -> list[str]:
        """One line for each task, and for what was not found as it has to be."""
        wrong = [f"{short(name)}: not found, or not what it has to be" for name in self._unexpected]
        return wrong + [
            f"{task}: {status.state}" + (f": {status.reason}" if status.reason else "")
            for task, status in self._statuses.refresh().items()
        ]
