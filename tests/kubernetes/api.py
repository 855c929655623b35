"""Requests to an API server, as they are: kubectl would check and change objects before."""

from __future__ import annotations

import json
import ssl
import urllib.error
import urllib.request
from collections.abc import Mapping
from dataclasses import dataclass
from http.client import HTTPResponse
from pathlib import Path
from typing import Any


@dataclass(frozen=True)
class Api:
    """An API server."""

    url: str
    certificate: Path
    token: str

    def open(self, path: str, body: Mapping[str, Any] | None = None) -> HTTPResponse:
        """Send a GET, or a POST of an object; the response."""
        request = urllib.request.Request(  # noqa: S310  # its scheme is https
            self.url + path,
            None if body is None else json.dumps(body).encode(),
            {"Authorization": f"Bearer {self.token}", "Content-Type": "application/json"},
        )
        trust = ssl.create_default_context(cafile=self.certificate)
        return urllib.request.urlopen(request, context=trust)  # noqa: S310

    def answer(self, path: str, body: Mapping[str, Any] | None = None) -> tuple[int, str]:
        try:
            with self.open(path, body) as response:
                return response.status, response.read().decode()
        except urllib.error.HTTPError as error:
            text = error.read().decode()
            try:
                return error.code, json.loads(text)["message"]
            except ValueError:
                return error.code, text
