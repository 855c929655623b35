"""A browser that is signed in to a class."""

from __future__ import annotations

import re
import socket
import subprocess
from pathlib import Path
from typing import Any

import httpcore
import httpx
import psutil

from lab.backends.state import state_directory
from lab.base.variables import LAB_STATE
from lab.teach.classroom.class_dir import ClassDir
from lab.teach.classroom.planning import ClassPlan
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


class _OneHost(httpcore.SyncBackend):
    """Connects to one address, whatever the name of the host, as with the names of a school."""

    def __init__(self, address: str) -> None:
        super().__init__()
        self._address = address

    def connect_tcp(self, host: str, *rest: Any, **options: Any) -> httpcore.NetworkStream:
        return super().connect_tcp(self._address, *rest, **options)


class Browser:
    """A student's browser."""

    def __init__(self, url: str, *, address: str = "127.0.0.1", follows: bool = True) -> None:
        # The certificate is the test's own.
        transport = httpx.HTTPTransport(verify=False)
        transport._pool._network_backend = _OneHost(address)
        self.client = httpx.Client(
            base_url=url, transport=transport, follow_redirects=follows, timeout=30
        )

    def get(self, page: str, form: dict[str, str] | None = None) -> tuple[int, str, str]:
        answer = self.client.request("GET" if form is None else "POST", page, data=form)
        return answer.status_code, str(answer.url), answer.text

    def ask(self, method: str, path: str) -> int:
        """The status of a request by a script of JupyterHub's own pages."""
        headers = {"X-XSRFToken": self._xsrf(), "Content-Type": "application/json"}
        return self.client.request(method, path, content=b"{}", headers=headers).status_code

    def sign_in(self, user: str, password: str) -> tuple[int, str, str]:
        self.get("/hub/login")
        form = {"username": user, "password": password, "_xsrf": self._xsrf()}
        return self.get("/hub/login", form)

    def _xsrf(self) -> str:
        cookies = self.client.cookies.jar
        return next((each.value or "" for each in cookies if each.name == "_xsrf"), "")


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
    try:
        return process.environ().get(LAB_STATE) == state
    except psutil.Error:
        return False
