"""Horovod's ring, as the agent of one task sees it, and its rendezvous.

Horovod's launcher sets variables in which each rank finds its number and the rendezvous, at which
the ranks find each other. Here the agents do this. The agent of rank 0 starts the rendezvous before
its program and ends it after it. The other agents read its port from the run volume. Each attempt
of the run has its own rendezvous: `python -m lab.task.agent.ring HOST FILE ATTEMPT`.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from lab.protocol.experiments.faults import parse_trigger
from lab.protocol.volume import Request, Volume
from lab.protocol.volume.files import read_regular, write_atomically
from lab.protocol.volume.layout import READY_S
from lab.task.agent.agent_config import AgentConfig
from lab.task.agent.process import child_setup

WAITS: Final = "waits for the rendezvous of Horovod's rank 0"


class Ring:
    """The ring of one run; empty if the run does not use Horovod."""

    def __init__(self, config: AgentConfig, request: Request) -> None:
        """Prepare the ring; this starts nothing.

        Args:
            config: The settings of the task's agent.
            request: The run.
        """
        self._task = config.task
        self._ranks = request.ranks() if request.spec.horovod else []
        self._file = Volume(config.runs).rendezvous(request.run_id)
        self._server: subprocess.Popen[bytes] | None = None
        job, _, index = (self._ranks or [config.task])[0].rpartition("-")
        self._host = request.cluster[job][int(index)].rpartition(":")[0]
        starts = [parse_trigger(text).seconds or 0.0 for text in request.spec.start.values()]
        # A rank may take long until it calls `init`, and one with a scheduled start takes longer.
        self._timeout_s = READY_S + max(starts, default=0.0)

    def is_ready(self, attempt: int) -> bool:
        """Whether this task's program may start: the rendezvous of the attempt is served.

        Rank 0 starts the rendezvous.

        Raises:
            OSError: The rendezvous cannot be started, or has ended.
        """
        if self._task not in self._ranks:
            return True
        if self._task == self._ranks[0]:
            if self._server is None:
                # An earlier process of this agent may have written it.
                self._file.unlink(missing_ok=True)
                module = [sys.executable, "-P", "-m", "lab.task.agent.ring"]
                self._server = subprocess.Popen(
                    [*module, self._host, str(self._file), str(attempt)],
                    stdin=subprocess.DEVNULL,
                    preexec_fn=child_setup(),  # noqa: PLW1509 (the agent has one thread now)
                )
            elif self._server.poll() is not None:
                raise OSError(0, "Horovod's rendezvous has ended; see the agent's output")
        return bool(self.port(attempt))

    def environ(self, attempt: int) -> dict[str, str]:
        """Return the variables of this task's rank; empty if it has none.

        A task sees only its own GPUs, so it is the only rank of its host: its local rank is 0.
        """
        if self._task not in self._ranks:
            return {}
        rank, size = str(self._ranks.index(self._task)), str(len(self._ranks))
        return {
            "HOROVOD_RANK": rank,
            "HOROVOD_SIZE": size,
            "HOROVOD_HOSTNAME": self._task,
            "HOROVOD_LOCAL_RANK": "0",
            "HOROVOD_LOCAL_SIZE": "1",
            "HOROVOD_CROSS_RANK": rank,
            "HOROVOD_CROSS_SIZE": size,
            "HOROVOD_CONTROLLER": "gloo",
            "HOROVOD_CPU_OPERATIONS": "gloo",
            "HOROVOD_GLOO_RENDEZVOUS_ADDR": self._host,
            "HOROVOD_GLOO_RENDEZVOUS_PORT": str(self.port(attempt)),
            "HOROVOD_GLOO_TIMEOUT_SECONDS": f"{self._timeout_s:.0f}",
        }

    def close(self) -> None:
        """End the rendezvous, if this agent has started one."""
        if self._server is not None:
            self._server.kill()
            self._server.wait()
            self._server = None

    def port(self, attempt: int) -> int:
        """Return the port of the rendezvous of an attempt; 0: it is not served yet."""
        try:
            served, port = map(int, read_regular(self._file).split())
        except (OSError, ValueError):
            return 0
        return port if served == attempt else 0


def serve(arguments: Sequence[str]) -> None:
    """Serve a rendezvous until a signal ends the process; it takes a free port of the host.

    It is an HTTP server at which the ranks register the ports of their rings.

    Args:
        arguments: The host, the file that receives the attempt and the port, and the attempt.

    Raises:
        OSError: The host has no free port, or the file cannot be written.
    """
    # Only this process needs Horovod.
    from horovod.runner.http.http_server import (  # noqa: PLC0415
        RendezvousHandler,
        RendezvousHTTPServer,
    )

    host, path, attempt = arguments
    server = RendezvousHTTPServer((host, 0), RendezvousHandler, verbose=0)
    write_atomically(Path(path), f"{attempt} {server.server_address[1]}", durable=False)
    server.serve_forever()


if __name__ == "__main__":
    serve(sys.argv[1:])
