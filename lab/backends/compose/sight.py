"""What one container sees of the box's GPUs: asked inside, and of the engine."""

from __future__ import annotations

from dataclasses import replace

from lab.backends import looking
from lab.backends.compose.containers import Seen
from lab.backends.compose.engine import Engine, answering
from lab.errors import LabError
from lab.gpu.verification import Sight
from lab.task.sight import VARIABLES


def of_task(engine: Engine, seen: Seen, *, tensorflow: bool) -> Sight:
    """What a task sees: every source inside, and the engine's word."""
    if not seen.running:
        return _told(seen, Sight.untold(seen.detail))
    command = ["python", "-m", looking.MODULE, *looking.words(tensorflow=tensorflow)]
    try:
        with answering(f"asking {seen.task} what it sees"):
            api = engine.client().api
            # No user: it is PID 1's own then, which may read PID 1's variables.
            exec_id = api.exec_create(seen.id, command)["Id"]
            stdout, stderr = api.exec_start(exec_id, demux=True)
            code = api.exec_inspect(exec_id)["ExitCode"]
    except LabError as error:
        return _told(seen, Sight.untold(str(error)))
    return _told(seen, looking.answer(code, stdout or b"", stderr or b""))


def of_anchor(seen: Seen) -> Sight:
    """What a node's anchor was given; no program runs in it, so that nobody asks inside."""
    told = {name: value for name, value in seen.variables.items() if name in VARIABLES}
    return _told(seen, Sight(environment=told))


def _told(seen: Seen, sight: Sight) -> Sight:
    return replace(sight, isolated=True, engine=seen.gpus)
