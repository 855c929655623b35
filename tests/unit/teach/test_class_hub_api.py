"""A real JupyterHub with the settings of a class. Its seats and its proxy are not real."""

from __future__ import annotations

import os
import socket
from collections.abc import Iterator
from contextlib import ExitStack, closing
from dataclasses import replace
from http.client import HTTPConnection
from ipaddress import IPv4Network
from pathlib import Path
from typing import Any
from unittest import mock
from urllib.parse import urlencode

import pytest

from lab.teach.classroom import hub_api as module
from lab.teach.classroom import names, up_down
from lab.teach.classroom.class_dir import ClassDir
from lab.teach.classroom.config import TEACHER
from lab.teach.classroom.hub import MOST_FAILED
from lab.teach.classroom.hub_api import hub_api
from lab.teach.classroom.up_down import down, up
from tests.support.agents import ROOT, wait_for
from tests.support.browser import Browser
from tests.support.classes import a_plan, own_state, stored  # noqa: F401
from tests.support.hub import proxy_api

# Every address of 127.0.0.0/8 is one of this host: tests at the same time have their own ones.
NETWORK = IPv4Network((f"127.{64 + os.getpid() % 64}.{os.getpid() // 64 % 256}.0", 28))
# No proxy is before JupyterHub here.
PLAN = replace(a_plan(), proxy_network=NETWORK, port=names.HUB_PORT)
CONFIG = """\
load_subconfig({settings!r})
c.JupyterHub.spawner_class = "tests.support.hub.PageSpawner"
"""


def browser() -> Browser:
    return Browser(PLAN.url, address=names.gateway(NETWORK), follows=False)


def signed_in(user: str, password: str) -> Browser:
    found = browser()
    assert found.sign_in(user, password)[0] == 302
    return found


def answer_to(length: int) -> int | None:
    """The status for a request whose body has this length, before any of it; None: it waits."""
    connection = HTTPConnection(names.gateway(NETWORK), names.HUB_PORT, timeout=1)
    with closing(connection):
        connection.putrequest("POST", "/hub/login")
        connection.putheader("Content-Length", str(length))
        connection.endheaders()
        try:
            return connection.getresponse().status
        except TimeoutError:
            return None


def opens(seat: str) -> str:
    """The page at which JupyterHub lets a user into a seat, or refuses."""
    back = f"http://{seat}.{PLAN.domain}:{PLAN.port}/user/{seat}/oauth_callback"
    query = {"client_id": f"jupyterhub-user-{seat}", "redirect_uri": back, "response_type": "code"}
    return f"/hub/api/oauth2/authorize?{urlencode(query)}"


@pytest.fixture
def routes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[dict[str, Any]]:
    config = tmp_path / "config.py"
    config.write_text(CONFIG.format(settings=str(module._HUB_CONFIG)))
    monkeypatch.setattr(module, "_HUB_CONFIG", config)
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    folder, found = ClassDir(PLAN.name), {}
    with ExitStack() as stack:

        def start_proxy() -> None:
            address = names.proxy_address(NETWORK)
            token = folder.tokens().proxy
            found["routes"] = stack.enter_context(proxy_api(address, names.PROXY_API_PORT, token))

        seats = mock.Mock(start_proxy=start_proxy)
        monkeypatch.setattr(up_down, "Containers", lambda _: seats)
        up(stored(PLAN))
        try:
            yield found["routes"]
        finally:
            down(folder, tmp_path / "w.zip")
    with pytest.raises(ConnectionRefusedError):
        connect(names.gateway(NETWORK))


def test_a_new_proxy_gets_its_routes_again(routes: dict[str, Any]) -> None:
    before = set(routes)
    routes.clear()
    hub_api(PLAN, ClassDir(PLAN.name).tokens().service).restore_routes()
    assert set(routes) == before


def connect(address: str) -> None:
    socket.create_connection((address, names.HUB_PORT), timeout=5).close()


def test_no_user_makes_the_log_grow_without_limit(routes: dict[str, Any]) -> None:
    log = ClassDir(PLAN.name).log
    with log.open("a") as file:
        file.write("x" * 11_000_000)
    wait_for(lambda: log.stat().st_size < 1_000_000, "the log is not bounded")
    assert log.with_suffix(".log.1").stat().st_size > 11_000_000
    size = log.stat().st_size
    assert browser().sign_in("eve", "a password")[0] == 403
    assert size < log.stat().st_size < 1_000_000


def test_each_user_opens_only_what_is_theirs(routes: dict[str, Any]) -> None:
    tokens = ClassDir(PLAN.name).tokens().seats
    hosts = ("w.localhost", "ada.w.localhost/user/ada", "bob.w.localhost/user/bob")
    assert routes.keys() == {f"/{each}" for each in hosts}, "no page of JupyterHub at a seat"
    connect(names.gateway(NETWORK))
    with pytest.raises(ConnectionRefusedError):
        connect(str(NETWORK[3]))  # it listens at no other address of the host

    wrong = [("ada", tokens["bob"]), ("ada", ""), (TEACHER, tokens["ada"]), ("eve", "a password")]
    assert [browser().sign_in(*each)[0] for each in wrong] == [403] * 4
    ada, teacher = (signed_in(name, tokens[name]) for name in ("ada", TEACHER))
    pages = ("/hub/home", "/hub/admin", "/hub/spawn/bob", opens("ada"), opens("bob"))
    assert [ada.get(page)[0] for page in pages] == [200, 403, 404, 302, 403]
    assert [teacher.get(page)[0] for page in pages] == [200, 200, 302, 403, 403]
    assert browser().get("/hub/home")[0] == 302

    # A student makes no token, which would outlive the browser, and changes no password.
    assert ada.ask("DELETE", "/hub/api/users/ada/server") == 202, "its script may stop its seat"
    assert ada.ask("POST", "/hub/api/users/ada/tokens") == 403
    assert ada.get("/hub/auth/change-password")[0] == 404
    assert browser().sign_in("ada", "x" * 73)[0] == 400
    assert [answer_to(1 << 20), answer_to((1 << 20) + 1)] == [None, 400]
    failed = [browser().sign_in("bob", "guess")[0] for _ in range(MOST_FAILED + 1)]
    assert failed == [*[403] * MOST_FAILED, 429]
    code, _, page = browser().sign_in("bob", tokens["bob"])
    assert (code, "wait a minute" in page) == (429, True)
