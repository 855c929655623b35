"""The messages between a seat and the queue of its class, and the requests that carry them.

A seat sends its token, which names the seat: it has one environment at most. The queue knows its
order and its state alone. All data of a run is on the disk of the seat. All answers
are JSON::

    GET    /environment               `Status`
    PUT    /environment               take a place in the queue: `Order`; the answer is a `Status`
    POST   /environment               inject a network fault: `NetworkFault`
    DELETE /environment?id=ID         give the place or the containers back
    DELETE /environment?seat=SEAT     for the teacher: end the environment of a seat

The answer to DELETE is whether it still waits or has containers. No request waits for a change. An
error has a status of `ERRORS` and is `{"error": …, "fix": …}`.
"""

from __future__ import annotations

import http.client
import os
import time
import urllib.error
import urllib.request
from collections.abc import Mapping
from contextlib import closing
from dataclasses import dataclass, field
from enum import StrEnum
from http.client import HTTPResponse
from typing import Final, Self, TypeVar

from lab.errors import InputError, LabError
from lab.text import short
from lab.variables import LAB_QUEUE_TOKEN, LAB_QUEUE_URL

PATIENCE_S: Final = 60.0
"""Seconds for which requests are repeated while the queue is down: JupyterHub starts it again."""

_TIMEOUT_S: Final = 30.0
"""Seconds without data after which a request fails."""

_AGAIN_S: Final = 0.5
_NOT_NOW: Final = frozenset({429, 502, 503, 504})
"""The queue has not done the request: it does another one of this seat, or is started again."""

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
        tensorflow: The TensorFlow version of its tasks.
    """

    id: str
    config: str
    with_gpus: bool
    folder: str
    directory: str
    tensorflow: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Status:
    """An environment of the queue.

    Attributes:
        id: Its id.
        state: Its state.
        position: The place in the queue, from 1; 0: it does not wait.
        wait_s: An estimate of the time until its turn, in seconds.
        reason: Why it ends, or "".
        lines: The progress of its boot.
        provenance: What really runs, when it is up; see `Environment.provenance`.
    """

    id: str
    state: State
    position: int = 0
    wait_s: float = 0.0
    reason: str = ""
    lines: tuple[str, ...] = ()
    provenance: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class NetworkFault:
    """A fault in the network of a node; see `Environment.inject_network_fault`."""

    node: str
    arguments: tuple[str, ...]


class Gone(LabError):  # noqa: N818  (a state)
    """The queue has no such environment of this seat."""


ERRORS: Final[Mapping[int, type[LabError]]] = {400: InputError, 404: Gone}
"""The HTTP status to the class of an error; each other one is a `LabError`."""


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
        url, token = os.environ.get(LAB_QUEUE_URL), os.environ.get(LAB_QUEUE_TOKEN)
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
            body: The message; None: nothing.
            patience_s: Seconds for which to wait for a queue that is down.

        Raises:
            LabError: The queue refuses, does not answer, or has another version of lab.
        """
        import msgspec  # noqa: PLC0415  (only seats and their queue need it)

        request = urllib.request.Request(  # noqa: S310  (the teacher sets the address)
            f"{self.url}/environment{query}",
            data=None if body is None else msgspec.json.encode(body),
            method=method,
            headers={"Authorization": f"token {self.token}"},
        )
        with closing(_answer(request, patience_s)) as answer:
            try:
                return msgspec.json.decode(answer.read(), type=kind)
            except msgspec.MsgspecError as error:
                raise LabError(
                    f"the queue has another version of lab than this seat: {error}",
                    "ask your teacher",
                ) from error
            except (OSError, http.client.HTTPException) as error:
                raise _unreachable(error) from error


def _answer(request: urllib.request.Request, patience_s: float) -> HTTPResponse:
    """Return the answer to a request; repeat the request while the queue is started again.

    Raises:
        LabError: The queue refuses, or does not answer in time.
    """
    # Without a proxy of the environment: the queue is in the network of the seat.
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    until = time.monotonic() + patience_s
    while True:
        try:
            answer: HTTPResponse = opener.open(request, timeout=_TIMEOUT_S)
        except urllib.error.HTTPError as error:
            with error:
                if error.code not in _NOT_NOW or time.monotonic() > until:
                    raise _refused(error) from error
        except (OSError, http.client.HTTPException) as error:
            if not _can_repeat(request, error) or time.monotonic() > until:
                raise _unreachable(error) from error
        else:
            return answer
        time.sleep(_AGAIN_S)


def _can_repeat(request: urllib.request.Request, error: Exception) -> bool:
    """Whether the queue has not received the request, or may receive it twice."""
    refused = isinstance(getattr(error, "reason", error), ConnectionRefusedError)
    return refused or request.get_method() != "POST"


def _refused(error: urllib.error.HTTPError) -> LabError:
    """Return the error that the queue reports."""
    import msgspec  # noqa: PLC0415

    try:
        found = msgspec.json.decode(error.read(), type=dict[str, str])
        return ERRORS.get(error.code, LabError)(found["error"], found["fix"])
    except (msgspec.MsgspecError, KeyError, OSError):
        return LabError(f"the queue of the class refused: {short(str(error))}", "ask your teacher")


def _unreachable(error: Exception) -> LabError:
    reason = getattr(error, "reason", None) or error
    return LabError(f"the queue of the class does not answer: {short(str(reason))}", "try again")
