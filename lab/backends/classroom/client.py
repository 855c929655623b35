"""Requests of a seat to the queue of its class."""

from __future__ import annotations

import http.client
import json
import os
import time
import urllib.error
import urllib.request
from contextlib import closing
from dataclasses import dataclass
from http.client import HTTPResponse
from typing import Any, Final, Self

from lab.backends.classroom.protocol import ERRORS, POLL_S, TOKEN
from lab.errors import ConfigError, LabError
from lab.text import short
from lab.variables import LAB_QUEUE_URL

_TIMEOUT_S: Final = POLL_S + 20.0
"""Seconds without data after which a request fails."""

_AGAIN_S: Final = 0.5
_RELAY_FAILED: Final = frozenset({502, 503, 504})


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
            path: The path.
            body: The value that is sent as JSON; None: nothing.

        Raises:
            LabError: The queue refuses, or does not answer.
        """
        request = urllib.request.Request(  # noqa: S310  (the teacher sets the address)
            f"{self.url}{path}",
            data=None if body is None else json.dumps(body).encode(),
            method=method,
            headers={"Authorization": f"token {self.token}"},
        )
        with closing(_answer(request, self.patience_s)) as answer:
            try:
                return json.loads(answer.read())
            except (ValueError, RecursionError, OSError, http.client.HTTPException) as error:
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
