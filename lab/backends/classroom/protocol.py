"""The messages between a seat and the queue of its class, over HTTP.

A seat sends the token of its own server. All answers are JSON, except the streams of a run and of
logs. `ENV` is the id of an environment of this seat::

    GET    /environments              the environments of the seat: a list of `Status`
    POST   /environments              a place in the queue: `Order`; the answer is a `Status`
    DELETE /environments?seat=SEAT    for the teacher: end all environments of a seat; with
                                      `&keep=1`, keep their run volumes
    GET    /environments/ENV          `Status`; with `?revision=N`, when it has changed
    DELETE /environments/ENV          remove it; with `?keep=1`, keep its run volume
    GET    /environments/ENV/READ     the answer of a method of `Environment`: one of `READS`
    POST   /environments/ENV/post     write a message for a run: `Message`
    POST   /environments/ENV/fault    inject a network fault: `NetworkFault`
    POST   /environments/ENV/submit   one line with the request, then the parts as a tar file
    POST   /environments/ENV/stream   `StreamOptions`; the answer is frames, as on a run volume
    POST   /environments/ENV/logs     `LogOptions`; the answer is lines

An error is `{"error": …, "fix": …, "kind": …}` with one of `ERRORS`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Final

from lab.backends.environment import Command
from lab.backends.state import Busy
from lab.errors import InputError, LabError

TOKEN: Final = "JUPYTERHUB_API_TOKEN"  # noqa: S105  (a variable's name)
"""The variable with the token of the seat."""

READS: Final = ("tasks", "cluster_spec", "runs", "collected", "provenance", "boot_file", "sources")

NO_FOLLOW_S: Final = 60.0
"""Seconds without a request after which a waiting environment loses its place."""

POLL_S: Final = 10.0
"""Seconds after which a request for a change is answered without a change."""

MAX_JSON_BYTES: Final = 1 << 20
MAX_CONFIG_CHARACTERS: Final = 1 << 16
MAX_PARTS_BYTES: Final = 256 << 20
"""The maximum size of the parts of a run: its program, its files and its checkpoints."""

MAX_FILES: Final = 10_000
"""The maximum number of files, directories and pieces of these parts."""


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
        config: The text of the cluster config.
        with_gpus: Whether the environment gets the GPUs of the config; otherwise none.
        cluster_sha256: The digest of the config, for the seat itself.
        folder: The project's directory in the seat, for the seat itself.
        tensorflow: The TensorFlow version of its tasks.
    """

    config: str
    with_gpus: bool
    cluster_sha256: str
    folder: str
    tensorflow: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Status:
    """An environment of the queue.

    Attributes:
        id: Its id.
        name: Its name in the seat's config.
        state: Its state.
        folder: The project's directory in the seat.
        cluster_sha256: The digest of its config.
        tensorflow: The TensorFlow version of its tasks.
        position: The place in the queue, from 1; 0: it does not wait.
        wait_s: An estimate of the time until its turn, in seconds.
        reason: Why it ended, or "".
        failed: Whether its boot failed.
        lines: The progress of its boot.
        revision: A number that changes with each change.
    """

    id: str
    name: str
    state: State
    folder: str
    cluster_sha256: str
    tensorflow: str
    position: int = 0
    wait_s: float = 0.0
    reason: str = ""
    failed: bool = False
    lines: tuple[str, ...] = ()
    revision: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Message:
    """A message for a run; see `Environment.post`."""

    command: Command
    run_id: str
    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class NetworkFault:
    """A fault in the network of a node; see `Environment.inject_network_fault`."""

    node: str
    arguments: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamOptions:
    """The options of the stream of a run; see `Environment.stream`."""

    run_id: str
    offsets: Mapping[str, int] = field(default_factory=dict)
    follow: bool = False
    all_sizes: bool = False
    rest: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class LogOptions:
    """The options of a stream of logs; see `Environment.logs`."""

    tasks: tuple[str, ...] = ()
    follow: bool = False
    tail: int | None = None
    since: float | None = None


class Gone(LabError):  # noqa: N818  (a state)
    """The queue has no such environment of this seat, or a part of it is gone."""


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
