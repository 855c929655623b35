"""Requests of `lab` to JupyterHub, against a server that answers as it likes."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from lab.classroom.hub_api import HubApi
from lab.errors import LabError


@dataclass
class Hub:
    """The answer to each request, and the requests so far."""

    answer: bytes = b""
    requests: list[str] = field(default_factory=list)
    port: int = 0

    @property
    def api(self) -> HubApi:
        return HubApi(f"http://127.0.0.1:{self.port}/hub/api", "secret")


@pytest.fixture
def hub() -> Iterator[Hub]:
    found = Hub()

    class Answer(BaseHTTPRequestHandler):
        def answer(self) -> None:
            found.requests.append(self.path)
            self.wfile.write(found.answer)

        do_GET = do_POST = answer  # noqa: N815  (names of the library)

    with ThreadingHTTPServer(("127.0.0.1", 0), Answer) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        found.port = server.server_port
        yield found
        server.shutdown()
        thread.join()


def failure(hub: Hub) -> str:
    """The line about an answer, safe for a terminal."""
    assert not hub.api.answers()
    with pytest.raises(LabError) as caught:
        hub.api.start("ada")
    line = str(caught.value)
    assert line.isprintable()
    assert "secret" not in line
    assert len(line) < 300
    return line


LONG = json.dumps({"message": "ada is \x1b[2J pending stop " + "x" * 9_000}).encode()


@pytest.mark.parametrize(
    "content", [b"", b"<html>", b"[]", b'{"message": null}', b'{"a": 1}', b"\xff", LONG]
)
def test_a_refusal(hub: Hub, content: bytes) -> None:
    hub.answer = b"HTTP/1.1 404 Not Found\r\n\r\n" + content
    reason = r"ada is \x1b[2J pending stop xxx" if content == LONG else "404 Not Found"
    assert failure(hub).startswith(f"JupyterHub refused: {reason}")


@pytest.mark.parametrize(
    "raw",
    [
        b"",
        b"\x1b[2J\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\n[",
        b"HTTP/1.1 200 OK\r\n\r\nno JSON",
    ],
)
def test_an_answer_that_is_none(hub: Hub, raw: bytes) -> None:
    hub.answer = raw
    assert failure(hub).startswith("JupyterHub does not answer at http")


def test_a_redirection_is_not_followed(hub: Hub) -> None:
    hub.answer = b"HTTP/1.1 302 Found\r\nLocation: file:///etc/passwd\r\n\r\n"
    assert failure(hub).startswith("JupyterHub refused: ")


def test_without_jupyterhub(hub: Hub) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        hub.port = server.getsockname()[1]
    assert failure(hub) == (
        f"JupyterHub does not answer at {hub.api.url}; start it with `lab class up`"
    )


REQUEST = """
from lab.classroom.hub_api import HubApi
print(HubApi('http://127.0.0.1:1/hub/api', 'secret').answers())
"""


def test_the_user_s_web_proxy_gets_no_token(hub: Hub) -> None:
    hub.answer = b"HTTP/1.1 200 OK\r\n\r\n[]"
    proxy = dict.fromkeys(("http_proxy", "all_proxy"), f"http://127.0.0.1:{hub.port}")
    kept = {name: value for name, value in os.environ.items() if name.lower() != "no_proxy"}
    done = subprocess.run(
        [sys.executable, "-c", REQUEST],
        cwd=Path(__file__).parents[2],
        env={**kept, **proxy},
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout == "False\n"
    assert hub.requests == []
