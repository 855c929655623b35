"""A browser that is signed in to a class."""

from __future__ import annotations

import http.client
import http.cookiejar
import re
import socket
import ssl
import subprocess
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import psutil

from lab.backends.state import state_directory
from lab.classroom.planning import ClassPlan
from lab.classroom.state import ClassDir
from lab.variables import LAB_STATE
from tests.support.docker import docker


def host() -> dict[str, list[str]]:
    """What a class could leave on this host."""
    rules = subprocess.run(["iptables-save"], capture_output=True, text=True, check=True).stdout
    state = str(state_directory())
    return {
        "containers": docker("ps", "--all", "--format", "{{.Names}}").split(),
        "networks": docker("network", "ls", "--format", "{{.Name}}").split(),
        "volumes": docker("volume", "ls", "--format", "{{.Name}}").split(),
        "interfaces": sorted(name for _, name in socket.if_nameindex()),
        "rules": re.sub(r" \[\d+:\d+\]|^#.*", "", rules, flags=re.MULTILINE).splitlines(),
        "processes": [
            " ".join(each.cmdline()) for each in psutil.process_iter() if started_with(each, state)
        ],
        "files": sorted(str(path) for path in Path(state).rglob("*") if not path.is_dir()),
    }


class Lookup(urllib.request.HTTPSHandler, urllib.request.HTTPHandler):
    """Connects to one address, whatever the name of the host, as with the names of a school."""

    def __init__(self, address: str) -> None:
        super().__init__(context=UNCHECKED)
        self._address = address

    def http_open(self, request: urllib.request.Request) -> Any:
        return self.do_open(self._connection(http.client.HTTPConnection), request)

    def https_open(self, request: urllib.request.Request) -> Any:
        https = partial(http.client.HTTPSConnection, context=UNCHECKED)
        return self.do_open(self._connection(https), request)

    def _connection(self, kind: Callable[..., Any]) -> Any:
        def made(host: str, **options: Any) -> Any:
            found = kind(host, **options)
            found._create_connection = lambda address, *others: socket.create_connection(
                (self._address, address[1]), *others
            )
            return found

        return made


class Browser:
    """A student's browser."""

    def __init__(
        self, url: str, *handlers: urllib.request.BaseHandler, address: str = "127.0.0.1"
    ) -> None:
        self.url = url
        self.cookies = http.cookiejar.CookieJar()
        self.opener = urllib.request.build_opener(
            urllib.request.HTTPCookieProcessor(self.cookies),
            Lookup(address),
            *handlers,
        )

    def get(self, page: str, form: dict[str, str] | None = None) -> tuple[int, str, str]:
        """The status, the final address and the content of a page, by its path or address."""
        data = None if form is None else urllib.parse.urlencode(form).encode()
        url = self.url + page if page.startswith("/") else page
        return self._open(urllib.request.Request(url, data))  # noqa: S310

    def ask(self, method: str, path: str) -> int:
        """The status of a request by a script of JupyterHub's own pages."""
        xsrf = next((each.value or "" for each in self.cookies if each.name == "_xsrf"), "")
        headers = {"X-XSRFToken": xsrf, "Content-Type": "application/json"}
        asked = urllib.request.Request(self.url + path, b"{}", headers, method=method)  # noqa: S310
        return self._open(asked)[0]

    def _open(self, request: urllib.request.Request) -> tuple[int, str, str]:
        try:
            with self.opener.open(request, timeout=30) as answer:
                return answer.status, answer.url, answer.read().decode()
        except urllib.error.HTTPError as error:
            with error:
                return error.code, error.url or "", error.read().decode()

    def sign_in(self, user: str, password: str) -> tuple[int, str, str]:
        self.get("/hub/login")
        xsrf = next(each.value for each in self.cookies if each.name == "_xsrf")
        form = {"username": user, "password": password, "_xsrf": xsrf or ""}
        return self.get("/hub/login", form)


def page_of(plan: ClassPlan, seat: str, path: str) -> str:
    """The address of a page of a seat; the path is one below the seat's own."""
    base = plan.url.replace("://", f"://{seat}.", 1) if plan.domain else plan.url
    return f"{base}/user/{seat}/{path}"


def signed_in(room: ClassDir, user: str) -> Browser:
    browser = Browser(room.stored().plan.url)
    code, url, page = browser.sign_in(user, room.tokens().seats[user])
    assert code == 200, f"{code} at {url}: {page[-1000:]}"
    return browser


def started_with(process: psutil.Process, state: str) -> bool:
    """Whether a process has this state directory: JupyterHub and its services."""
    try:
        return process.environ().get(LAB_STATE) == state
    except psutil.Error:
        return False


UNCHECKED = ssl._create_unverified_context()  # noqa: S323  (the certificate is the test's own)
