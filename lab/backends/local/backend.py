"""The local backend: boots and finds environments of processes."""

from __future__ import annotations

import subprocess
import time
from contextlib import ExitStack
from pathlib import Path

from lab.backends import Backend, Check, no_check
from lab.backends.directory import remove_tree
from lab.backends.gpu_record import Handover, hold_gpus, holder_of
from lab.backends.local import isolation, manifest, state
from lab.backends.local.environment import LocalEnvironment
from lab.backends.local.state import START, EnvironmentRecord, Isolation, StateDir
from lab.backends.log_tail import last_lines
from lab.backends.process import ProcessHandle
from lab.backends.python import (
    base_environ,
    missing_python,
    missing_tensorflow,
    module_command,
    python_of,
)
from lab.backends.state import lock_environment, state_errors
from lab.errors import LabError, Notify
from lab.formatting import counted
from lab.image_digest import digest
from lab.placement.plan import Plan
from lab.signals import ignore_signals
from lab.volume import Volume

_BOOT_WITHIN_S = 60.0
_POLL_S = 0.05


class LocalBackend(Backend):
    """Pseudo-nodes as processes of this host."""

    name = "local"

    def unavailable_reason(self) -> str | None:
        """Why TensorFlow is missing here, with a hint; None if it is installed."""
        return missing_tensorflow()

    def missing_image(self, plan: Plan, *, root: Path) -> str | None:
        """Why no Python with the plan's TensorFlow is here, with a hint; None if one is."""
        return missing_python(plan, root)

    def up(
        self,
        plan: Plan,
        *,
        root: Path,
        notify: Notify,
        check: Check = no_check,
        share: bool = False,
    ) -> LocalEnvironment:
        """Boot an environment and wait until every agent runs; see `Backend`."""
        with ExitStack() as lock:
            with state_errors():
                lock.enter_context(lock_environment(self.name, plan.name))
            return self._up(plan, root.resolve(), notify, check, share=share)

    def projects(self) -> list[str]:
        """Names of all environments that have a record."""
        return [each.directory.name for each in state.state_dirs()]

    def find_any(self, project: str) -> LocalEnvironment | None:
        """The environment of this name: up, or stopped with its run volume; None: no record.

        Raises:
            LabError: Its record cannot be read.
        """
        if project not in self.projects():
            return None
        state_dir = state.state_dir(project)
        record = state_dir.read()
        return None if record is None else LocalEnvironment(state_dir, record)

    def notices(self, plan: Plan) -> list[str]:
        """One line for each feature of the plan that this backend does not support here."""
        return manifest.notices_of(plan, isolation.unavailable_reason(state.namespaces_cache()))

    def _up(
        self, plan: Plan, root: Path, notify: Notify, check: Check, *, share: bool
    ) -> LocalEnvironment:
        existing = self.find(plan.name)
        if existing is not None:
            raise LabError(
                f"the local environment {plan.name!r} is up already, booted from {existing.folder}",
                f"use it, or remove it with `lab down {plan.name}`",
            )
        cache = state.namespaces_cache()
        reason = isolation.unavailable_reason(cache)
        kind = Isolation.NAMESPACES if reason is None else Isolation.PROCESSES
        if kind is Isolation.PROCESSES:
            self._check_ports(manifest.ports_of(manifest.addresses_of(plan, kind)))
        state_dir = state.state_dir(plan.name)
        holder = holder_of(plan, backend=self.name, where=str(state_dir.directory), folder=root)
        with hold_gpus(holder, share=share, notify=notify) as hold:
            try:
                return _boot(
                    plan, kind, state_dir, root=root, notify=notify, check=check, hold=hold
                )
            except LabError:
                isolation.clear_cache(cache)  # namespaces may be forbidden since the last probe
                raise

    def _check_ports(self, ports: list[int]) -> None:
        """Refuse ports of other environments, even if no server listens there between runs."""
        for other in self.all():
            addresses = [task.address for task in other.tasks()]
            shared = [each for each in addresses if each.startswith("localhost:")]
            common = sorted(set(ports) & set(manifest.ports_of(shared)))
            if common:
                raise LabError(
                    f"port {common[0]} belongs to the local environment {other.project!r}",
                    f"remove that with `lab down {other.project}`, "
                    "or set another `port:` in the config",
                )
        manifest.check_ports_free(ports)


def _boot(
    plan: Plan,
    kind: Isolation,
    state_dir: StateDir,
    *,
    root: Path,
    notify: Notify,
    check: Check,
    hold: Handover,
) -> LocalEnvironment:
    with state_errors():
        kept = state_dir.clear(notify)
        state_dir.runs.mkdir(parents=True, mode=0o700, exist_ok=True)
        log = state_dir.log.open("ab")
    prefix = isolation.UNSHARE if kind is Isolation.NAMESPACES else ()
    with log:
        supervisor = subprocess.Popen(
            [*prefix, *module_command("lab.backends.local.supervisor"), str(state_dir.directory)],
            env=base_environ(),
            cwd="/",
            stdin=subprocess.PIPE,
            stdout=log,
            stderr=log,
            start_new_session=True,
        )
    record = None
    try:
        record = _record_of(plan, kind, state_dir, root, ProcessHandle.of(supervisor.pid))
        with state_errors():
            state_dir.write(record)
        hold(record.process)
        assert supervisor.stdin is not None  # noqa: S101 (narrows the type)
        with supervisor.stdin as stdin:
            stdin.write(START)
        environment = LocalEnvironment(state_dir, record)
        _wait_for_agents(environment, supervisor, state_dir)
        tasks, nodes = counted(len(record.tasks), "task"), len(record.nodes)
        notify(f"local: booted {tasks} on {counted(nodes, 'pseudo-node')} ({kind})")
        check(environment)
    except (ProcessLookupError, BrokenPipeError) as error:
        boot_error = _ended_at_once(plan.name, supervisor, state_dir)
        _undo(state_dir, supervisor, record, keep_volume=kept)
        raise boot_error from error
    except BaseException:
        _undo(state_dir, supervisor, record, keep_volume=kept)
        raise
    return environment


def _record_of(
    plan: Plan, kind: Isolation, state_dir: StateDir, root: Path, supervisor: ProcessHandle
) -> EnvironmentRecord:
    return EnvironmentRecord(
        project=plan.name,
        cluster_sha256=plan.cluster_sha256,
        root=str(root),
        isolation=kind,
        process=supervisor,
        interpreter=python_of(plan, root),
        nodes=manifest.nodes_of(plan, kind),
        tasks=manifest.tasks_of(plan, kind, root=root, runs=state_dir.runs),
        tensorflow=plan.tensorflow,
        sources_sha256=digest(),
    )


def _wait_for_agents(
    environment: LocalEnvironment, supervisor: subprocess.Popen[bytes], state_dir: StateDir
) -> None:
    volume = Volume(state_dir.runs)
    missing = [task.task for task in environment.tasks()]
    deadline = time.monotonic() + _BOOT_WITHIN_S
    while missing:
        if supervisor.poll() is not None:
            raise _ended_at_once(environment.project, supervisor, state_dir)
        ended = next((task for task in missing if state_dir.ended(task).exists()), None)
        if ended is not None or time.monotonic() > deadline:
            task = ended or missing[0]
            printed = last_lines(state_dir.output(task), 3) or "no output"
            if ended:
                raise LabError(f"the agent of {task} ended at once: {printed}")
            raise LabError(
                f"the agent of {task} did not start within {_BOOT_WITHIN_S:.0f} s: {printed}"
            )
        missing = [
            task
            for task in missing
            if not volume.agent(task).exists() or state_dir.read_agent(task) is None
        ]
        if missing:
            time.sleep(_POLL_S)


def _ended_at_once(
    project: str, supervisor: subprocess.Popen[bytes], state_dir: StateDir
) -> LabError:
    printed = last_lines(state_dir.log, 3) or f"exit code {supervisor.wait()}"
    return LabError(f"the local environment {project!r} failed to start: {printed}")


def _undo(
    state_dir: StateDir,
    supervisor: subprocess.Popen[bytes],
    record: EnvironmentRecord | None,
    *,
    keep_volume: bool,
) -> None:
    """Remove what a failed boot started."""
    with ignore_signals():
        if record is not None and state_dir.read() == record:
            LocalEnvironment(state_dir, record).end(gently=False, keep_volume=keep_volume)
            return
        # The supervisor still waits for its first line of input, and has started nothing.
        supervisor.kill()
        supervisor.wait()
        if not keep_volume:
            remove_tree(state_dir.directory)
