"""The local backend: agents and programs as processes of this host, in a local environment."""

from __future__ import annotations

import subprocess
import time
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from lab.backends.base import RecordedBackend
from lab.backends.boot import Boot
from lab.backends.checks import Check
from lab.backends.gpu_record import Handover, Holder, holder_of
from lab.backends.local import isolation, state
from lab.backends.local.checks import LIMIT_S, check_namespaces, check_tensorflow
from lab.backends.local.environment import LocalEnvironment
from lab.backends.local.state import START, EnvironmentRecord, Isolation, StateDir
from lab.backends.log_tail import last_lines
from lab.backends.names import LOCAL
from lab.backends.process import ProcessHandle
from lab.backends.python import (
    base_environ,
    missing_python,
    missing_runtimes,
    module_command,
    python_of,
)
from lab.backends.state import state_errors
from lab.base.errors import LabError
from lab.base.formatting import counted
from lab.base.image_digest import digest
from lab.base.log import LOG
from lab.cluster.placement.plan import Plan
from lab.protocol.volume import Volume

if TYPE_CHECKING:
    from lab.backends.checks import Host

_BOOT_WITHIN_S = 60.0
_POLL_S = 0.05


class LocalBackend(RecordedBackend):
    """Pseudo-nodes as processes of this host."""

    name = LOCAL

    def unavailable_reason(self) -> str | None:
        """Why processes can run no framework here, with a hint; None if they can."""
        return missing_runtimes()

    def checks(self, host: Host) -> Iterator[Check]:
        """Yield also checks of TensorFlow and of namespaces; see `Backend`."""
        yield from super().checks(host)
        tensorflow = partial(check_tensorflow, base_environ(), gpus=False)
        yield Check("TensorFlow", tensorflow, LIMIT_S)
        yield Check("namespaces", lambda: check_namespaces(isolation.unavailable_reason()), 40)

    def gpu_checks(self) -> Iterator[Check]:
        """Yield the check of TensorFlow with GPUs; see `Backend`."""
        tensorflow = partial(check_tensorflow, base_environ(), gpus=True)
        yield Check("TensorFlow", tensorflow, LIMIT_S)

    def missing_image(self, plan: Plan, *, root: Path) -> str | None:
        """Why no Python with the plan's runtime is here, with a hint; None if one is."""
        return missing_python(plan, root)

    def notices(self, plan: Plan) -> list[str]:
        """One line for each feature of the plan that this backend does not support here."""
        return state.notices_of(plan, isolation.unavailable_reason(state.namespaces_cache()))

    def environments(self) -> type[LocalEnvironment]:
        """Return the class of its environments; see `RecordedBackend`."""
        return LocalEnvironment

    def boot(self, plan: Plan, *, root: Path) -> LocalBoot:
        """Return the steps of a boot; see `Backend`."""
        return LocalBoot(plan, root.resolve(), self)


class LocalBoot(Boot[LocalEnvironment]):
    """The steps that start a supervisor, and wait for the agents that it starts."""

    backend = LOCAL

    def __init__(self, plan: Plan, root: Path, backend: RecordedBackend) -> None:
        super().__init__(plan, root)
        self._backend = backend
        self._state_dir = StateDir.of(plan.name)
        self._cache = state.namespaces_cache()
        self._kind = Isolation.NAMESPACES
        self._supervisor: subprocess.Popen[bytes] | None = None
        self._record: EnvironmentRecord | None = None
        self._kept = False

    def prepare(self) -> None:
        """Refuse an environment that is up, and ports that are in use."""
        name = self.plan.name
        existing = self._backend.find(name)
        if existing is not None:
            raise LabError(
                f"the local environment {name!r} is already up, booted from {existing.folder}",
                f"use it, or remove it with `lab down {name}`",
            )
        if isolation.unavailable_reason(self._cache) is not None:
            self._kind = Isolation.PROCESSES
            taken = [task.address for up in self._backend.all() for task in up.tasks()]
            self.plan = state.beside(self.plan, taken)
            state.check_ports_free(state.ports_of(state.addresses_of(self.plan, self._kind)))
        self._kept = self._state_dir.kept.exists()

    def holder(self) -> Holder:
        """Return the holder of the plan's GPUs."""
        return holder_of(self.plan, backend=self.backend, where=str(self._state_dir.directory))

    def start(self, lock: int | None, hold: Handover) -> LocalEnvironment:
        """Start the supervisor, and wait until every agent runs; see `Boot`."""
        del lock
        plan, kind, root = self.plan, self._kind, self.root
        with state_errors():
            self._state_dir.clear()
        self._supervisor = supervisor = self._start_supervisor(hold)
        try:
            self._record = record = EnvironmentRecord(
                project=plan.name,
                cluster_sha256=plan.cluster_sha256,
                root=str(root),
                isolation=kind,
                process=ProcessHandle.of(supervisor.pid),
                interpreter=python_of(plan, root),
                nodes=state.nodes_of(plan, kind),
                tasks=state.tasks_of(plan, kind, root=root, runs=self._state_dir.runs),
                runtime=plan.runtime,
                sources_sha256=digest(),
            )
            with state_errors():
                self._state_dir.write(record)
            assert supervisor.stdin is not None  # noqa: S101 (narrows the type)
            with supervisor.stdin as stdin:
                stdin.write(START)
        except (ProcessLookupError, BrokenPipeError) as error:
            raise self._ended_at_once(supervisor) from error
        self._wait_for_agents(supervisor)
        tasks, nodes = counted(len(record.tasks), "task"), len(record.nodes)
        LOG.info(f"local: booted {tasks} on {counted(nodes, 'pseudo-node')} ({kind})")
        return LocalEnvironment(self._state_dir, record)

    def undo(self) -> None:
        """Remove what a failed boot started; see `Boot`."""
        isolation.clear_cache(self._cache)  # namespaces may be forbidden since the last probe
        if self._record is not None and self._state_dir.read() == self._record:
            environment = LocalEnvironment(self._state_dir, self._record)
            environment.end(gently=False, keep_volume=self._kept)
            return
        if self._supervisor is not None:
            # It still waits for its first line of input, and has started nothing.
            self._supervisor.kill()
            self._supervisor.wait()
        self._state_dir.remove(keep_volume=self._kept)

    def _start_supervisor(self, hold: Handover) -> subprocess.Popen[bytes]:
        prefix = isolation.UNSHARE if self._kind is Isolation.NAMESPACES else ()
        module = module_command("lab.backends.local.supervisor")
        with state_errors():
            log = self._state_dir.log.open("ab")
        with log:
            return subprocess.Popen(
                [*prefix, *module, str(self._state_dir.directory)],
                env=base_environ(),
                cwd="/",
                stdin=subprocess.PIPE,
                stdout=log,
                stderr=log,
                start_new_session=True,
                pass_fds=() if hold is None else (hold,),
            )

    def _wait_for_agents(self, supervisor: subprocess.Popen[bytes]) -> None:
        state_dir = self._state_dir
        volume = Volume(state_dir.runs)
        missing = [task.name for task in self.plan.tasks]
        deadline = time.monotonic() + _BOOT_WITHIN_S
        while missing:
            if supervisor.poll() is not None:
                raise self._ended_at_once(supervisor)
            ended = next((task for task in missing if state_dir.ended(task).exists()), None)
            if ended is not None or time.monotonic() > deadline:
                task = ended or missing[0]
                printed = last_lines(state_dir.output(task), 3) or "no output"
                if ended:
                    raise LabError(f"the agent of {task} ended immediately: {printed}")
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

    def _ended_at_once(self, supervisor: subprocess.Popen[bytes]) -> LabError:
        printed = last_lines(self._state_dir.log, 3) or f"exit code {supervisor.wait()}"
        return LabError(f"the local environment {self.plan.name!r} failed to start: {printed}")
