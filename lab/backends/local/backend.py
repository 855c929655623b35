"""Boots and finds local environments."""

from __future__ import annotations

import importlib.util
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from lab.backends import Backend, Check, Notify, no_check
from lab.backends.gpu_record import Handover, hold_gpus, holder_of
from lab.backends.local import isolation, manifest, state
from lab.backends.local.environment import LocalEnvironment
from lab.backends.local.log_tail import last_lines
from lab.backends.local.processes import base_environ, module_command
from lab.backends.local.state import START, EnvironmentRecord, Isolation, StateDir, remove_tree
from lab.backends.process import ProcessHandle
from lab.backends.state import lock_environment
from lab.errors import LabError
from lab.placement.plan import Plan
from lab.signals import ignore_signals
from lab.task.probes.version import digest
from lab.task.protocol import Volume
from lab.task.protocol.control import requests, state_of
from lab.tf_versions import IMAGES

_BOOT_WITHIN_S = 60.0
_POLL_S = 0.05


class LocalBackend(Backend):
    """Pseudo-nodes as processes of this machine."""

    name = "local"

    def unavailable_reason(self) -> str | None:
        """Why TensorFlow is missing here, with the fix; None where it is installed."""
        if importlib.util.find_spec("tensorflow") is None:
            return (
                f"TensorFlow is not installed for {sys.executable}; "
                "`pip install 'lab[tensorflow]'` installs it"
            )
        return None

    def missing_image(self, plan: Plan, *, root: Path) -> str | None:
        """Why there is no Python with this plan's TensorFlow, with the fix; None where it is."""
        image = IMAGES[plan.tensorflow]
        if not image.environment or image.python(root) is not None:
            return None
        return (
            f"there is no {image.environment} with TensorFlow {image.tensorflow};"
            f" `make {image.target}` makes it"
        )

    def up(
        self,
        plan: Plan,
        *,
        root: Path,
        notify: Notify,
        check: Check = no_check,
        share: bool = False,
    ) -> LocalEnvironment:
        """Boot an environment and wait until every agent is there; see `Backend`."""
        with ExitStack() as lock:
            with _state_directory():
                lock.enter_context(lock_environment(self.name, plan.name))
            return self._up(plan, root.resolve(), notify, check, share=share)

    def projects(self) -> list[str]:
        """Names of all environments that have a record."""
        return [place.directory.name for place in state.state_dirs()]

    def find_any(self, project: str) -> LocalEnvironment | None:
        """What is left of an environment: up, or dead with its run volume.

        Raises:
            LabError: Its record cannot be read.
        """
        if project not in self.projects():
            return None
        place = state.state_dir(project)
        record = place.read()
        return None if record is None else LocalEnvironment(place, record)

    def _up(
        self, plan: Plan, root: Path, notify: Notify, check: Check, *, share: bool
    ) -> LocalEnvironment:
        there = self.find(plan.name)
        if there is not None:
            raise LabError(
                f"the local environment {plan.name!r} is up already, for {there.folder}",
                f"use it, or take it down with `lab down {plan.name}`",
            )
        memory = state.namespaces_cache()
        why_not = isolation.unavailable_reason(memory)
        kind = Isolation.NAMESPACES if why_not is None else Isolation.PROCESSES
        if kind is Isolation.PROCESSES:
            self._check_ports(manifest.ports_of(manifest.addresses_of(plan, kind)))
        for notice in manifest.notices_of(plan, why_not):
            notify(notice)
        place = state.state_dir(plan.name)
        holder = holder_of(plan, backend=self.name, where=str(place.directory), folder=root)
        with hold_gpus(holder, share=share) as hold:
            try:
                return _boot(plan, kind, place, root=root, notify=notify, check=check, hold=hold)
            except LabError:
                isolation.clear_cache(memory)  # it may be that they have been forbidden since
                raise

    def _check_ports(self, ports: list[int]) -> None:
        """Its servers listen only while a run lasts, so that a look at the ports is not enough."""
        for other in self.all():
            addresses = [task.address for task in other.tasks()]
            shared = [each for each in addresses if each.startswith("localhost:")]
            both = sorted(set(ports) & set(manifest.ports_of(shared)))
            if both:
                raise LabError(
                    f"port {both[0]} belongs to the local environment {other.project!r}",
                    f"take that down with `lab down {other.project}`, "
                    "or choose another `port:` in the description",
                )
        manifest.check_ports_free(ports)


@contextmanager
def _state_directory() -> Iterator[None]:
    """Name the state directory in the error where the block fails."""
    try:
        yield
    except OSError as error:
        raise LabError(
            f"the state directory {state.base()} cannot be used: {error.strerror}",
            "make room on it, or name another one in LAB_STATE",
        ) from error


def _boot(
    plan: Plan,
    kind: Isolation,
    place: StateDir,
    *,
    root: Path,
    notify: Notify,
    check: Check,
    hold: Handover,
) -> LocalEnvironment:
    with _state_directory():
        kept = _clear(place)
        place.runs.mkdir(parents=True, mode=0o700, exist_ok=True)
        log = place.log.open("ab")
    prefix = isolation.UNSHARE if kind is Isolation.NAMESPACES else ()
    with log:
        supervisor = subprocess.Popen(
            [*prefix, *module_command("lab.backends.local.supervisor"), str(place.directory)],
            env=base_environ(),
            cwd="/",
            stdin=subprocess.PIPE,
            stdout=log,
            stderr=log,
            start_new_session=True,
        )
    record = None
    try:
        record = _record_of(plan, kind, place, root, ProcessHandle.of(supervisor.pid))
        place.write(record)
        hold(record.process)
        assert supervisor.stdin is not None  # noqa: S101 (a pipe was asked for)
        with supervisor.stdin as stdin:
            stdin.write(START)
        environment = LocalEnvironment(place, record)
        _wait_for_agents(environment, supervisor, place)
        notify(
            f"local: {len(record.tasks)} tasks on {len(record.nodes)} pseudo-nodes are up ({kind})"
        )
        check(environment)
    except (ProcessLookupError, BrokenPipeError) as error:
        fault = _ended_at_once(plan.name, supervisor, place)
        _undo(place, supervisor, record, keep_volume=kept)
        raise fault from error
    except BaseException:
        _undo(place, supervisor, record, keep_volume=kept)
        raise
    return environment


def _record_of(
    plan: Plan, kind: Isolation, place: StateDir, root: Path, supervisor: ProcessHandle
) -> EnvironmentRecord:
    # The Python that has the plan's TensorFlow: this one, or that of an environment beside it.
    image = IMAGES[plan.tensorflow]
    python = image.python(root) if image.environment else None
    return EnvironmentRecord(
        project=plan.name,
        cluster_sha256=plan.cluster_sha256,
        root=str(root),
        isolation=kind,
        process=supervisor,
        interpreter=str(python or sys.executable),
        nodes=manifest.nodes_of(plan, kind),
        tasks=manifest.tasks_of(plan, kind, root=root, runs=place.runs),
        tensorflow=plan.tensorflow,
        sources_sha256=digest(),
    )


def _clear(place: StateDir) -> bool:
    """Remove what a dead environment has left, except ended runs of a volume that is to stay.

    Returns:
        Whether the volume stays.
    """
    volume = Volume(place.runs)
    kept = {each.run_id for each in requests(volume) if state_of(volume, each).ended}
    if not place.kept.exists():
        if place.directory.is_dir():
            remove_tree(place.directory)
        return False
    for path in (*place.directory.iterdir(), *place.runs.iterdir(), *volume.requests.iterdir()):
        if path in {place.runs, place.record, place.kept, volume.requests} or path.stem in kept:
            continue
        remove_tree(path)
    return True


def _wait_for_agents(
    environment: LocalEnvironment, supervisor: subprocess.Popen[bytes], place: StateDir
) -> None:
    volume = Volume(place.runs)
    missing = [task.task for task in environment.tasks()]
    deadline = time.monotonic() + _BOOT_WITHIN_S
    while missing:
        if supervisor.poll() is not None:
            raise _ended_at_once(environment.project, supervisor, place)
        ended = next((task for task in missing if place.ended(task).exists()), None)
        if ended is not None or time.monotonic() > deadline:
            task = ended or missing[0]
            printed = last_lines(place.output(task), 3) or "it said nothing"
            if ended:
                raise LabError(f"the agent of {task} ended at once: {printed}")
            raise LabError(
                f"the agent of {task} did not come within {_BOOT_WITHIN_S:.0f} s: {printed}"
            )
        missing = [task for task in missing if not volume.agent(task).exists()]
        if missing:
            time.sleep(_POLL_S)


def _ended_at_once(project: str, supervisor: subprocess.Popen[bytes], place: StateDir) -> LabError:
    printed = last_lines(place.log, 3) or f"exit code {supervisor.wait()}"
    return LabError(f"the local environment {project!r} did not come up: {printed}")


def _undo(
    place: StateDir,
    supervisor: subprocess.Popen[bytes],
    record: EnvironmentRecord | None,
    *,
    keep_volume: bool,
) -> None:
    """Take down what this call started."""
    with ignore_signals():
        if record is not None and place.read() == record:
            LocalEnvironment(place, record).end(gently=False, keep_volume=keep_volume)
            return
        # It waits for its first line of input, and has started nothing.
        supervisor.kill()
        supervisor.wait()
        if not keep_volume:
            remove_tree(place.directory)
