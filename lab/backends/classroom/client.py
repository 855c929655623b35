"""Requests of a seat to the queue of its class."""

from __future__ import annotations

import http.client
import io
import json
import os
import time
import urllib.error
import urllib.request
from collections.abc import Generator, Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass
from http.client import HTTPResponse
from typing import Any, Final, Self

from lab.backends.classroom.protocol import ERRORS, TOKEN, Gone
from lab.errors import ConfigError, LabError
from lab.text import short
from lab.variables import LAB_QUEUE_URL

_TIMEOUT_S: Final = 45.0
"""Seconds without data after which a request fails."""

_STREAM_S: Final = 15.0
"""The same for a stream, which has data once a second: the relay does not notice a dead queue."""

_AGAIN_S: Final = 0.5
_RELAY_FAILED: Final = frozenset({502, 503, 504})
_PIECE: Final = 1 << 16


@dataclass(frozen=True, slots=True)
class Queue:
    """The queue of the class.

    Attributes:
        url: Its address, `http://proxy:8083`.
        token: The token of this seat.
        patience_s: Seconds for which requests are repeated while the queue is down: JupyterHub
            starts it again.
    """

    url: str
    token: str
    patience_s: float = 60.0

    @classmethod
    def here(cls) -> Self | None:
        """Return the queue of the class whose seat this is; None outside a seat."""
        url, token = os.environ.get(LAB_QUEUE_URL), os.environ.get(TOKEN)
        return cls(url.rstrip("/"), token) if url and token else None

    def request(self, method: str, path: str, body: object = None) -> Any:  # noqa: ANN401  (JSON)
        """Send a request; return the value of the answer.

        Args:
            method: The HTTP method.
            path: The path after `/environments`.
            body: The value that is sent as JSON; None: nothing.

        Raises:
            LabError: The queue refuses, or does not answer.
        """
        data = None if body is None else json.dumps(body).encode()
        with self._open(method, path, data) as answer:
            try:
                return json.loads(answer.read())
            except (ValueError, RecursionError, OSError, http.client.HTTPException) as error:
                raise _unreachable(error) from error

    def upload(self, path: str, body: io.IOBase, size: int) -> None:
        """Send a file.

        Raises:
            LabError: The queue refuses, or does not answer.
        """
        with self._open("POST", path, body, {"Content-Length": str(size)}):
            pass

    def stream(self, path: str, body: object) -> Generator[bytes, None, None]:
        """Send a value as JSON; yield the pieces of the answer.

        Raises:
            Gone: The stream broke off.
            LabError: The queue refuses, or does not answer.
        """
        with self._open("POST", path, json.dumps(body).encode(), timeout_s=_STREAM_S) as answer:
            try:
                while piece := answer.read1(_PIECE):
                    yield piece
            except (OSError, http.client.HTTPException) as error:
                raise Gone(
                    f"the stream of the queue broke off: {short(str(error))}", "see `lab ls`"
                ) from error

    @contextmanager
    def _open(
        self,
        method: str,
        path: str,
        data: bytes | io.IOBase | None,
        headers: dict[str, str] | None = None,
        *,
        timeout_s: float = _TIMEOUT_S,
    ) -> Iterator[HTTPResponse]:
        request = urllib.request.Request(  # noqa: S310  (the teacher sets the address)
            f"{self.url}/environments{path}",
            data=data,
            method=method,
            headers={"Authorization": f"token {self.token}", **(headers or {})},
        )
        with closing(_answer(request, timeout_s, self.patience_s)) as answer:
            yield answer


def _answer(request: urllib.request.Request, timeout_s: float, patience_s: float) -> HTTPResponse:
    """Return the answer to a request; repeat the request while the queue is started again.

    Raises:
        LabError: The queue refuses, or does not answer in time.
    """
    # Without a proxy of the environment: the queue is in the network of the seat.
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    until = time.monotonic() + patience_s
    while True:
        if isinstance(request.data, io.IOBase):
            request.data.seek(0)
        try:
            answer: HTTPResponse = opener.open(request, timeout=timeout_s)
        except urllib.error.HTTPError as error:
            with error:
                if error.code not in _RELAY_FAILED or time.monotonic() > until:
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
    try:
        found = json.loads(error.read())
        problems = str(found["error"]).split("\n")
        if len(problems) > 1:
            return ConfigError(problems)
        return ERRORS[found["kind"]](str(found["error"]), str(found["fix"]))
    except (ValueError, KeyError, TypeError, OSError, RecursionError):
        return LabError(f"the queue of the class refused: {short(str(error))}", "ask your teacher")


def _unreachable(error: Exception) -> LabError:
    reason = getattr(error, "reason", None) or error
    return LabError(f"the queue of the class does not answer: {short(str(reason))}", "try again")
