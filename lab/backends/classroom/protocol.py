"""The messages between a seat and the queue of its class, over HTTP.

A seat sends the token of its own server, which names the seat: it has one environment at most. The
queue knows its order and its state alone. All data of a run is on the disk of the seat. All answers
are JSON::

    GET    /environment               `Status`; with `?revision=N`, when it has changed
    PUT    /environment               a place in the queue: `Order`; the answer is a `Status`
    DELETE /environment?id=ID         give the place or the containers back
    POST   /environment/fault         inject a network fault: `NetworkFault`
    DELETE /environments?seat=SEAT    for the teacher: end the environment of a seat

An error is `{"error": …, "fix": …, "kind": …}` with one of `ERRORS`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Final

from lab.backends.state import Busy
from lab.errors import InputError, LabError

TOKEN: Final = "JUPYTERHUB_API_TOKEN"  # noqa: S105  (a variable's name)
"""The variable with the token of the seat."""

NO_FOLLOW_S: Final = 60.0
"""Seconds without a request after which a waiting environment loses its place."""

POLL_S: Final = 10.0
"""Seconds after which a request for a change is answered without a change."""

MAX_BODY_BYTES: Final = 1 << 16
MAX_CONFIG_CHARACTERS: Final = 1 << 14


class State(StrEnum):
    """The states of an environment of the queue, in this order."""

    WAITING = "waiting"
    GRANTED = "granted"
    UP = "up"
    ENDING = "ending"
    ENDED = "ended"


@dataclass(frozen=True, slots=True, kw_only=True)
class Order:
    """What a seat asks for.

    Attributes:
        id: The id of the environment, which the seat makes: 16 hexadecimal digits. A repeated order
            with the same id changes nothing.
        config: The cluster config, as JSON.
        with_gpus: Whether the environment gets the GPUs of the config; otherwise none.
        cluster_sha256: The digest of the config.
        folder: The project's directory in the seat, with `scripts/`.
        directory: The directory of the environment in the seat, with `runs/` and `output/`.
        tensorflow: The TensorFlow version of its tasks.
    """

    id: str
    config: str
    with_gpus: bool
    cluster_sha256: str
    folder: str
    directory: str
    tensorflow: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Status:
    """An environment of the queue.

    Attributes:
        id: Its id.
        name: Its name in the seat's config.
        state: Its state.
        position: The place in the queue, from 1; 0: it does not wait.
        wait_s: An estimate of the time until its turn, in seconds.
        reason: Why it ends, or "".
        lines: The progress of its boot.
        provenance: What really runs, when it is up; see `Environment.provenance`.
        revision: A number that changes with each change.
    """

    id: str
    name: str
    state: State
    position: int = 0
    wait_s: float = 0.0
    reason: str = ""
    lines: tuple[str, ...] = ()
    provenance: Mapping[str, str] = field(default_factory=dict)
    revision: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class NetworkFault:
    """A fault in the network of a node; see `Environment.inject_network_fault`."""

    node: str
    arguments: tuple[str, ...]


class Gone(LabError):  # noqa: N818  (a state)
    """The queue has no environment of this seat."""


GONE: Final = "gone"
"""The kind of an error about something that no longer exists."""

FAILED: Final = "failed"
"""The kind of an error that is not one of the seat."""

ERRORS: Final[Mapping[str, type[LabError]]] = {
    "input": InputError,
    "busy": Busy,
    GONE: Gone,
    FAILED: LabError,
}
"""The kind of an error to its class; the most special classes are first."""


def kind_of(error: LabError) -> str:
    """Return the kind of an error."""
    return next(kind for kind, each in ERRORS.items() if isinstance(error, each))
