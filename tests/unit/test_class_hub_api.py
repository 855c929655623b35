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

from lab.classroom.hub_api import HubApi, hub_api
from lab.errors import LabError
from tests.support.classes import a_plan


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
            found.requests.append(f"{self.command} {self.path}")
            self.wfile.write(found.answer)

        do_GET = do_POST = do_DELETE = answer  # noqa: N815  (names of the library)

    with ThreadingHTTPServer(("127.0.0.1", 0), Answer) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        found.port = server.server_port
        yield found
        server.shutdown()
        thread.join()


def test_what_is_asked_of_jupyterhub(hub: Hub) -> None:
    users = [{"name": "ada", "servers": {"": {"ready": True}}}, {"name": "teacher", "servers": {}}]
    hub.answer = b"HTTP/1.1 200 OK\r\n\r\n" + json.dumps(users).encode()
    assert hub.api.answers()
    assert hub.api.servers() == {"ada": {"ready": True}, "teacher": {}}
    hub.answer = b"HTTP/1.1 204 No Content\r\n\r\n"
    hub.api.start("ada")
    hub.api.stop("ada")
    hub.api.restore_routes()
    assert [each.replace("/hub/api/", "") for each in hub.requests] == [
        *("GET ", "GET users", "POST users/ada/server", "DELETE users/ada/server", "POST proxy"),
    ]
    assert hub_api(a_plan(), "x").url == "http://10.89.0.1:8081/hub/api"


LONG = json.dumps({"message": "ada is \x1b[2J pending stop " + "x" * 9_000}).encode()
REFUSED = b"HTTP/1.1 404 Not Found\r\n\r\n"
NO_ANSWER = "JupyterHub does not answer at http"


@pytest.mark.parametrize(
    ("answer", "line"),
    [
        *(
            (REFUSED + content, "JupyterHub refused: 404 Not Found")
            for content in (b"", b"<html>", b"[]", b'{"message": null}', b'{"a": 1}', b"\xff")
        ),
        (REFUSED + LONG, r"JupyterHub refused: ada is \x1b[2J pending stop xxx"),
        # A redirection is not followed.
        (b"HTTP/1.1 302 Found\r\nLocation: file:///etc/passwd\r\n\r\n", "JupyterHub refused: "),
        (b"", NO_ANSWER),
        (b"\x1b[2J\r\n\r\n", NO_ANSWER),
        (b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\n[", NO_ANSWER),
        (b"HTTP/1.1 200 OK\r\n\r\nno JSON", NO_ANSWER),
        (None, NO_ANSWER),
    ],
)
def test_any_other_answer_is_one_line_without_the_token(
    answer: bytes | None, line: str, hub: Hub
) -> None:
    if answer is None:  # nothing listens
        with socket.create_server(("127.0.0.1", 0)) as server:
            hub.port = server.getsockname()[1]
    hub.answer = answer or b""
    assert not hub.api.answers()
    with pytest.raises(LabError) as caught:
        hub.api.start("ada")
    found = str(caught.value)
    assert found.startswith(line)
    assert found.isprintable()
    assert "secret" not in found
    assert len(found) < 300
    if line == NO_ANSWER:
        assert caught.value.fix == "start it with `lab class up`"


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
