"""The service of the queue: `python -m lab.classroom.queue.service`.

JupyterHub starts it, and starts it again when it ends. The variable `LAB_CLASS` names the class.
"""

from __future__ import annotations

import asyncio
import logging
import os
import signal
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any, Final

from tornado.httpserver import HTTPServer
from tornado.web import HTTPError

from lab.backends.engine.client import Engine
from lab.backends.state import locked
from lab.classroom import names
from lab.classroom.names import SERVICE
from lab.classroom.queue.folder import QueueDir, capacity_of
from lab.classroom.queue.handlers import LIMITS, TEACHER, SeatOf, application
from lab.classroom.queue.host import EngineHost
from lab.classroom.queue.turns import Turns
from lab.classroom.state import ClassDir, StoredClass
from lab.parent_death import set_pdeathsig
from lab.variables import LAB_CLASS

_STOP_S: Final = 8.0
"""Seconds for the steps that are under way at the end; JupyterHub waits 10 s."""

_TOKEN_S: Final = 30
"""Seconds for which a token counts as valid without asking JupyterHub again."""


def hub_seat(seats: Collection[str], teacher: str) -> SeatOf:
    """Return a function that asks JupyterHub for the seat of a token.

    Args:
        seats: The names of the seats.
        teacher: The service whose token is the teacher's.
    """
    from jupyterhub.services.auth import HubAuth  # noqa: PLC0415

    auth = HubAuth(cache_max_age=_TOKEN_S)

    async def seat_of(token: str) -> str | None:
        try:
            found: Mapping[str, Any] | None = await auth.user_for_token(token, sync=False)
        except HTTPError as error:
            raise HTTPError(503, reason="JupyterHub does not answer") from error
        if found is None or not auth.check_scopes(auth.access_scopes, found):
            return None
        kind, name = found.get("kind"), str(found.get("name"))
        if (kind, name) == ("service", teacher):
            return TEACHER
        return name if kind == "user" and name in seats else None

    return seat_of


def turns_of(folder: ClassDir, stored: StoredClass) -> Turns:
    """Return the turns of a class.

    Raises:
        LabError: Its files cannot be read.
    """
    plan, queue = stored.plan, QueueDir(folder)
    seats = {seat.name: seat for seat in plan.seats}
    host = EngineHost(plan.name, seats, Path(stored.root), Engine())
    return Turns(plan.name, queue.ledger(), capacity_of(plan), queue.path, host)


async def serve(turns: Turns, seat_of: SeatOf, address: str, port: int) -> None:
    """Serve the seats until SIGTERM. The environments stay as they are."""
    stopped = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, stopped.set)
    server = HTTPServer(application(turns, seat_of), **LIMITS)
    server.listen(port, address)
    work = asyncio.create_task(turns.run())
    await stopped.wait()
    work.cancel()
    server.stop()
    await turns.finish_steps(_STOP_S)


def main() -> None:
    """Serve the class of the variable `LAB_CLASS`."""
    logging.basicConfig(format="%(asctime)s queue: %(message)s")
    set_pdeathsig(os.getppid())  # a new JupyterHub starts a new service
    folder = ClassDir(os.environ[LAB_CLASS])
    stored = folder.stored()
    plan = stored.plan
    seat_of = hub_seat({seat.name for seat in plan.seats}, SERVICE)
    address = names.gateway(plan.proxy_network)
    with locked(QueueDir(folder).lock, f"the queue of the class {plan.name!r}"):
        asyncio.run(serve(turns_of(folder, stored), seat_of, address, names.QUEUE_PORT))
        # The threads of boots may wait for the engine; the next service repeats their steps.
        os._exit(0)


if __name__ == "__main__":
    main()
