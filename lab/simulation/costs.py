"""What each part of a step costs, as measured."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from importlib import resources
from typing import Any, Final


@dataclass(frozen=True, slots=True)
class Costs:
    """What a step costs; seconds are of one core's time unless it says otherwise.

    Attributes:
        session_s: A worker's fixed cost of a step with parameter servers: Python, the session's own
            work.
        update_s: The chief's fixed cost of a synchronous update.
        eager_s: A worker's fixed cost of an all-reduce step.
        feed_s: An image that is drawn from the data set and fed to TensorFlow, before the step.
        image_s: The gradients of one image, and nothing else.
        device_s: Seconds in which an accelerator computes a batch's gradients, with no core busy;
            0: the cores compute them, for `image_s` each image.
        call_s: A remote call, at each of its two ends.
        hop_s: A call in the ring, at each of its two ends.
        byte_s: A byte that is sent, at each end.
        apply_byte_s: A byte of parameters that a gradient is applied to.
        crowding: How much longer work takes on a core where another task was last, as a share.
        wait_s: Seconds from a message's arrival until a thread takes it up; no core is busy.
        hop_wait_s: The same in the ring.
        call_bytes: Bytes on the wire of a call that carries nothing: both directions, with headers.
        spread: How much the time of computing varies: standard deviation / mean (log-normal).
    """

    session_s: float = 0.0
    update_s: float = 0.0
    eager_s: float = 0.0
    feed_s: float = 0.0
    image_s: float = 0.0
    device_s: float = 0.0
    call_s: float = 0.0
    hop_s: float = 0.0
    byte_s: float = 0.0
    apply_byte_s: float = 0.0
    crowding: float = 0.0
    wait_s: float = 0.0
    hop_wait_s: float = 0.0
    call_bytes: float = 0.0
    spread: float = 0.0

    def __post_init__(self) -> None:
        for name, value in asdict(self).items():
            if not 0 <= value < float("inf"):
                raise ValueError(f"{name} is {value}: no cost")

    def to_json(self) -> dict[str, Any]:
        """All of them by name."""
        return asdict(self)


FILE: Final = "costs.json"


def _measured() -> Costs:
    text = (resources.files(__package__) / FILE).read_text(encoding="utf-8")
    return Costs(**json.loads(text))


MEASURED: Final = _measured()
"""Those of TensorFlow 2.21 on one CPU; `python -m benchmarks scaling` measures and writes them."""
