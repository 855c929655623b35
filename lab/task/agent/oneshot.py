"""One experiment without a client: `LAB_EXPERIMENT=async docker compose up`."""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence

from lab.experiments.registry import EXPERIMENTS, misfit
from lab.records.results import unexpected
from lab.task.agent.agent_config import AgentConfig
from lab.text import short, suggestion
from lab.volume import READY_S, Request, RunSpec, TaskStatus, Volume, new_run_id
from lab.volume.heartbeat import PeerMonitor
from lab.volume.outcome import outcome
from lab.volume.record_digest import altered
from lab.volume.states import State
from lab.volume.statuses import Statuses


class OneshotError(ValueError):
    """The experiment cannot be started; the message contains the reason and a hint."""


def request_for(config: AgentConfig) -> Request:
    """The request that `LAB_EXPERIMENT` and `LAB_FLAGS` describe.

    Raises:
        OneshotError: The experiment is unknown or does not fit the cluster, or the flags are
            invalid.
    """
    argv = arguments("LAB_FLAGS", config.flags)
    return request_of(
        "LAB_EXPERIMENT", [config.experiment, *argv], config.cluster, config.tensorflow
    )


def arguments(variable: str, text: str) -> list[str]:
    """Split a variable into arguments, as a shell does.

    Raises:
        OneshotError: A quotation mark is missing.
    """
    try:
        return shlex.split(text)
    except ValueError as error:
        raise OneshotError(f"{variable}: {error}; write it as in a shell") from error


def request_of(
    variable: str, arguments: Sequence[str], cluster: dict[str, list[str]], tensorflow: str
) -> Request:
    """Return the request for an experiment that a variable names.

    Args:
        variable: The variable, for messages.
        arguments: The experiment's name and its flags.
        cluster: TensorFlow's cluster spec of the environment.
        tensorflow: The environment's TensorFlow version, or "" if unknown.

    Raises:
        OneshotError: The experiment is unknown, or does not fit the cluster or TensorFlow.
    """
    name, *flags = arguments
    experiment = EXPERIMENTS.get(name)
    if experiment is None:
        hint = suggestion(name, EXPERIMENTS).strip() or f"there are {', '.join(EXPERIMENTS)}"
        raise OneshotError(f"{variable}: no experiment {name!r}; {hint}")
    if why := misfit(experiment, {job: len(hosts) for job, hosts in cluster.items()}):
        raise OneshotError(f"{variable}: {name} {why}; change `jobs:` in the config")
    if tensorflow and tensorflow != experiment.tensorflow:
        raise OneshotError(
            f"{variable}: {name} needs TensorFlow {experiment.tensorflow}, but the"
            f" environment has {tensorflow}; render with --tensorflow {experiment.tensorflow}"
        )
    return Request(
        run_id=new_run_id(name),
        spec=RunSpec(name, args=tuple(flags), ready_s=READY_S).completed(experiment),
        cluster=cluster,
    )


def missed(volume: Volume, request: Request, statuses: Mapping[str, TaskStatus]) -> list[str]:
    """Why a run has failed although its tasks have succeeded, as lines; empty if it has not.

    Raises:
        OSError: Its records cannot be read.
    """
    records = {task: volume.records(request.run_id, task) for task in request.tasks()}
    if reason := altered(records, statuses):
        return [reason]
    wanted = EXPERIMENTS[request.spec.experiment].results
    return [f"not as expected: {short(name)}" for name in unexpected(records.values(), wanted)]


class RunOutcome:
    """The outcome of the whole run, for the leader, which exits last."""

    def __init__(self, volume: Volume, request: Request, leader: str) -> None:
        self._volume = volume
        self._request = request
        self._statuses = Statuses(volume, request.run_id, request.tasks())
        self._missed: list[str] = []
        self._peers = PeerMonitor(volume, [task for task in request.tasks() if task != leader])

    def exit_code(self) -> int | None:
        """The exit code: 0 if the run succeeded with the expected results, else 1.

        Returns:
            The code; None while a task has not ended.

        Raises:
            OSError: The volume cannot be read or written.
        """
        states = self._statuses.refresh()
        self._peers.check()
        self._peers.declare_lost(self._volume, self._request.run_id, states)
        if not all(status.state.ended for status in states.values()):
            return None
        state, _ = outcome(self._request, states)
        if state is State.SUCCEEDED:
            self._missed = missed(self._volume, self._request, states)
        return int(state is not State.SUCCEEDED or bool(self._missed))

    def lines(self) -> list[str]:
        """The lines of `missed`, and one for each task."""
        return self._missed + [
            f"{task}: {status.state}" + (f": {status.reason}" if status.reason else "")
            for task, status in self._statuses.refresh().items()
        ]
