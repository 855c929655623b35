"""Requests of `lab` to JupyterHub."""

from __future__ import annotations

import http.client
import json
import urllib.error
import urllib.request
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from lab.classroom import names
from lab.classroom.state import ClassDir
from lab.errors import LabError
from lab.text import short

_TIMEOUT_S: Final = 10.0

# JupyterHub is on this host: the proxy of the user's variables must not get the token.
_OPENER: Final = urllib.request.build_opener(urllib.request.ProxyHandler({}))


@dataclass(frozen=True, slots=True)
class HubApi:
    """JupyterHub's REST API.

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

    def users(self) -> list[Mapping[str, Any]]:
        """Return JupyterHub's users with their servers.

        Raises:
            LabError: JupyterHub does not answer, or refuses.
        """
        found: list[Mapping[str, Any]] = self._request("GET", "users")
        return found

    def start(self, seat: str) -> None:
        """Request the start of a seat; it goes on after this call.

        Raises:
            LabError: JupyterHub does not answer, or refuses.
        """
        self._request("POST", f"users/{seat}/server")

    def stop(self, seat: str) -> None:
        """Request the stop of a seat, which may be stopped already.

        Raises:
            LabError: JupyterHub does not answer, or refuses.
        """
        self._request("DELETE", f"users/{seat}/server")

    def _request(self, method: str, path: str) -> Any:  # noqa: ANN401  (JSON)
        request = urllib.request.Request(  # noqa: S310  (the scheme is fixed)
            f"{self.url}/{path}", method=method, headers={"Authorization": f"token {self.token}"}
        )
        try:
            with _OPENER.open(request, timeout=_TIMEOUT_S) as answer:
                content = answer.read()
            return json.loads(content) if content else None
        except urllib.error.HTTPError as error:
            with error:
                raise LabError(f"JupyterHub refused: {short(_reason(error))}") from error
        except (OSError, http.client.HTTPException, ValueError) as error:
            raise LabError(
                f"JupyterHub does not answer: {short(str(error))}", "start it with `lab class up`"
            ) from error


def hub_api(folder: ClassDir) -> HubApi:
    """Return JupyterHub's API for a class.

    Raises:
        LabError: The class's files cannot be read.
    """
    url = names.hub_url(folder.stored().plan.proxy_network)
    return HubApi(f"{url}/hub/api", folder.tokens().service)


def _reason(error: urllib.error.HTTPError) -> str:
    try:
        return str(json.loads(error.read())["message"] or error)
    except (ValueError, KeyError, TypeError, OSError, http.client.HTTPException):
        return str(error)
