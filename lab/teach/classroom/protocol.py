"""The messages between a seat and the queue of its class, and the requests that carry them.

A seat sends its token, which names the seat; each seat has at most one environment. The queue knows
only its order and its state. All data of a run is on the disk of the seat. All answers are JSON::

    GET    /environment               `Status`
    PUT    /environment               take a place in the queue: `Order`; the answer is a `Status`
    DELETE /environment?id=ID         give the place or the containers back
    DELETE /environment?seat=SEAT     for the teacher: end the environment of a seat

The answer to DELETE is whether it still waits or has containers. No request waits for a change. An
error has a status of `ERRORS` and is `{"error": …, "fix": …}`.
"""

from __future__ import annotations

import os
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from http import HTTPStatus
from typing import TYPE_CHECKING, Final, Self, TypeVar

from lab.base.errors import InputError, LabError
from lab.base.variables import LAB_QUEUE

if TYPE_CHECKING:
    from urllib3 import BaseHTTPResponse

PATIENCE_S: Final = 60.0
"""Seconds for which requests are repeated while the queue is down: JupyterHub restarts it."""

_TIMEOUT_S: Final = 30.0
"""Seconds without data after which a request fails."""

_END_S: Final = 90.0
"""Seconds that the queue has to end environments."""

_PAUSE_S: Final = 0.5
_NOT_NOW: Final = frozenset({429, 502, 503, 504})
"""The queue has not handled the request: it handles another one of this seat, or restarts."""

T = TypeVar("T")


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
        folder: The project's directory in the seat, with `scripts/`.
        directory: The directory of the environment in the seat, with `runs/` and `output/`.
        runtime: The runtime of its tasks.
    """

    id: str
    config: str
    with_gpus: bool
    folder: str
    directory: str
    runtime: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Status:
    """An environment of the queue.

    Attributes:
        id: Its id.
        state: Its state.
        position: The place in the queue, from 1; 0 if it does not wait.
        reason: Why it ends, or "".
        slice_s: The longest time that it trains if others wait, in seconds.
        provenance: What really runs, when it is up; see `Environment.provenance`.
    """

    id: str
    state: State
    position: int = 0
    reason: str = ""
    slice_s: float = 0.0
    provenance: Mapping[str, str] = field(default_factory=dict)


class Gone(LabError):  # noqa: N818  (a state)
    """The queue has no such environment of this seat."""


ERRORS: Final[Mapping[int, type[LabError]]] = {400: InputError, 404: Gone}
"""The HTTP status to the class of an error; any other status is a `LabError`."""


@dataclass(frozen=True, slots=True)
class Queue:
    """The queue of the class, as a client sees it.

    Attributes:
        url: Its address, `http://proxy:8083`.
        token: The token of this seat, or of the teacher.
    """

    url: str
    token: str

    @classmethod
    def here(cls) -> Self | None:
        """Return the queue of the class whose seat this is; None outside a seat."""
        url, _, token = os.environ.get(LAB_QUEUE, "").partition(" ")
        return cls(url.rstrip("/"), token) if url and token else None

    def request(
        self,
        kind: type[T],
        method: str,
        query: str = "",
        body: object = None,
        *,
        patience_s: float = PATIENCE_S,
    ) -> T:
        """Send a request; return the answer.

        Args:
            kind: The type of the answer.
            method: The HTTP method.
            query: The query: `?id=…`.
            body: The message; None for none.
            patience_s: Seconds for which to wait for a queue that is down.

        Raises:
            LabError: The queue refuses, does not answer, or has another version of lab.
        """
        import msgspec  # noqa: PLC0415  (only seats and their queue need both)
        import urllib3  # noqa: PLC0415

        # The queue may receive a request twice: a second one changes nothing.
        url, until = f"{self.url}/environment{query}", time.monotonic() + patience_s
        message = None if body is None else msgspec.json.encode(body)
        while True:
            try:
                answer = send(method, url, self.token, message)
                if answer.status not in _NOT_NOW or time.monotonic() > until:
                    return _decoded(answer, kind)
            except urllib3.exceptions.HTTPError as error:
                if time.monotonic() > until:
                    problem = f"the queue of the class does not answer: {error}"
                    raise LabError(problem, "try again") from error
            time.sleep(_PAUSE_S)

    def end(self, queries: Mapping[str, str]) -> None:
        """End environments, and wait until they have no containers.

        Args:
            queries: The query of each, `?id=…`, by a name for the error.

        Raises:
            LabError: The queue refuses, does not answer, or does not end them in time.
        """
        until, left = time.monotonic() + _END_S, list(queries)
        while left := [name for name in left if self.request(bool, "DELETE", queries[name])]:
            if time.monotonic() > until:
                problem = f"the queue has not ended the environment of {left[0]} after {_END_S:g} s"
                raise LabError(problem, "try again")
            time.sleep(_PAUSE_S)


def send(method: str, url: str, token: str, body: bytes | None = None) -> BaseHTTPResponse:
    """Send a request, not through the proxy of the user's variables: it would get the token.

    Raises:
        urllib3.exceptions.HTTPError: There is no answer.
    """
    import urllib3  # noqa: PLC0415

    with urllib3.PoolManager(timeout=_TIMEOUT_S, retries=False) as pool:
        headers = {"Authorization": f"token {token}"}
        return pool.request(method, url, body, headers=headers, redirect=False)


def _decoded(answer: BaseHTTPResponse, kind: type[T]) -> T:
    """Return the message of an answer, or raise the error that the queue reports."""
    import msgspec  # noqa: PLC0415

    try:
        if answer.status == HTTPStatus.OK:
            return msgspec.json.decode(answer.data, type=kind)
        reply = msgspec.json.decode(answer.data, type=dict[str, str])
        refusal = ERRORS.get(answer.status, LabError)(reply["error"], reply["fix"])
    except (msgspec.MsgspecError, KeyError) as error:
        problem = f"this version of lab does not know the queue's answer {answer.status}"
        raise LabError(f"{problem}: {error}", "ask your teacher") from error
    raise refusal
