"""Requests of `lab` to JupyterHub."""

from __future__ import annotations

import json
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from lab.backends.classroom.protocol import send
from lab.classroom import names
from lab.classroom.planning import ClassPlan
from lab.errors import LabError
from lab.text import short

if TYPE_CHECKING:
    from urllib3 import BaseHTTPResponse

_REFUSED: Final = 300
"""The least HTTP status that is no success."""


@dataclass(frozen=True, slots=True)
class HubApi:
    """JupyterHub's REST API.

    Every request raises a `LabError` if JupyterHub does not answer, or refuses.

    Attributes:
        url: Its address, `http://10.89.0.1:8081/hub/api`.
        token: The token of the service `lab`.
    """

    url: str
    token: str

    def answers(self) -> bool:
        """Whether JupyterHub is ready for requests."""
        try:
            self._request("GET", "")
        except LabError:
            return False
        return True

    def servers(self) -> dict[str, Mapping[str, Any]]:
        """Return what JupyterHub knows about the server of each user; {}: it has none."""
        users = self._request("GET", "users")
        return {user["name"]: user["servers"].get("", {}) for user in users}

    def start(self, seat: str) -> None:
        """Request the start of a seat; it goes on after this call."""
        self._request("POST", f"users/{seat}/server")

    def stop(self, seat: str) -> None:
        """Request the stop of a seat, which may be stopped already."""
        self._request("DELETE", f"users/{seat}/server")

    def restore_routes(self) -> None:
        """Let JupyterHub give its routes to a proxy that has just started."""
        self._request("POST", "proxy")

    def _request(self, method: str, path: str) -> Any:  # noqa: ANN401  (JSON)
        import urllib3  # noqa: PLC0415  (`lab class validate` does not need it)

        try:
            answer = send(method, f"{self.url}/{path}", self.token)
            if answer.status < _REFUSED:
                return json.loads(answer.data) if answer.data else None
        except (urllib3.exceptions.HTTPError, ValueError) as error:
            what = f"JupyterHub does not answer at {self.url}"
            raise LabError(what, "start it with `lab class up`") from error
        raise LabError(f"JupyterHub refused: {short(_reason(answer))}")


def hub_api(plan: ClassPlan, token: str) -> HubApi:
    """Return JupyterHub's API for a class, with the token of the service `lab`."""
    return HubApi(f"{names.hub_url(plan.proxy_network)}/hub/api", token)


def _reason(answer: BaseHTTPResponse) -> str:
    with suppress(ValueError, LookupError, TypeError):
        if message := json.loads(answer.data)["message"]:
            return str(message)
    return f"{answer.status} {answer.reason}"
