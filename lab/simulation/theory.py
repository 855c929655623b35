"""How many bytes a step has to move, by what it is, whoever makes it."""

from __future__ import annotations

from lab.simulation.model import Shape, Way


def least_bytes(shape: Shape) -> float:
    """Bytes between all tasks per global step: parameters down and gradients up, and nothing else.

    With parameter servers each worker that takes part reads all parameters of S bytes and sends as
    many: 2 S, in a synchronous step n times. In a ring each of n workers sends 2 (n - 1) / n times
    S (P. Patarasuk and X. Yuan, 2009).
    """
    size = shape.parameter_bytes
    match shape.way:
        case Way.ASYNC:
            return 2 * size
        case Way.SYNC:
            return 2 * size * shape.workers
        case Way.RING:
            return 2 * (shape.workers - 1) * size
