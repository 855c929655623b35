"""A real browser, headless: Chromium, by its DevTools protocol."""

from __future__ import annotations

import base64
import contextlib
import json
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil
import websocket

from tests.support import engine as engines
from tests.support.agents import wait_for

_S = 60.0
_OPTIONS = (
    *("--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run"),
    *("--disable-background-networking", "--disable-component-update", "--disable-sync"),
    # A page that the user clicked may open windows. The certificate is the test's own.
    *("--disable-popup-blocking", "--ignore-certificate-errors", "--remote-debugging-port=0"),
)


class Tab:
    """A tab of a browser; all its tabs share their cookies."""

    def __init__(self, browser: websocket.WebSocket) -> None:
        self._browser, self._number = browser, 0
        target = self._send("Target.createTarget", url="about:blank")["targetId"]
        attached = self._send("Target.attachToTarget", targetId=target, flatten=True)
        self._session = {"sessionId": attached["sessionId"]}

    def open(self, url: str) -> None:
        """Load a page, and wait until it is complete."""
        before = self._evaluate("performance.timeOrigin")
        self._send("Page.navigate", url=url)
        loaded = f"document.readyState === 'complete' && performance.timeOrigin !== {before}"
        wait_for(lambda: self._evaluate(loaded), f"the page {url}", _S)

    def run(self, script: str) -> Any:
        """The value of an expression in the page; of a promise, its result."""
        answer = self._call(script)
        assert "exceptionDetails" not in answer, answer["exceptionDetails"]
        return answer["result"].get("value")

    def show_on(self, width: int, *, dark: bool = False, still: bool = False) -> None:
        """Set the width in pixels, and what the reader prefers: dark colours, less motion."""
        features = {
            "prefers-color-scheme": "dark" if dark else "light",
            "prefers-reduced-motion": "reduce" if still else "no-preference",
        }
        named = [{"name": name, "value": value} for name, value in features.items()]
        self._send("Emulation.setEmulatedMedia", features=named)
        size = {"width": width, "height": 1000, "deviceScaleFactor": 1}
        self._send("Emulation.setDeviceMetricsOverride", mobile=False, **size)

    def picture(self) -> bytes:
        """What the tab shows, in the WebP format."""
        self._send("Emulation.setScrollbarsHidden", hidden=True)
        data = self._send("Page.captureScreenshot", format="webp", quality=80)["data"]
        return base64.b64decode(data)

    def press(self, key: str, code: int) -> None:
        """Press and release a key, such as `ArrowRight`, 39."""
        for event in ("keyDown", "keyUp"):
            named = {"key": key, "code": key, "windowsVirtualKeyCode": code}
            self._send("Input.dispatchKeyEvent", type=event, **named)

    def sign_in(self, url: str, user: str, password: str) -> None:
        """Sign in by the form, as a user does."""
        self.open(f"{url}/hub/login")
        fields = {"username_input": user, "password_input": password}
        for name, value in fields.items():
            self.run(f"document.getElementById('{name}').value = {json.dumps(value)}")
        self.run("document.getElementById('login_submit').click()")
        left = "document.readyState === 'complete' && !location.pathname.startsWith('/hub/login')"
        wait_for(lambda: self._evaluate(left), f"{user} has signed in", _S)

    def cookies(self) -> list[dict[str, Any]]:
        """All cookies of the browser."""
        found: list[dict[str, Any]] = self._send("Storage.getCookies")["cookies"]
        return found

    def _evaluate(self, script: str) -> Any:
        """The value of an expression; None while the page changes."""
        return self._call(script).get("result", {}).get("value")

    def _call(self, script: str) -> dict[str, Any]:
        options = {"awaitPromise": True, "returnByValue": True, "userGesture": True}
        try:
            return self._send("Runtime.evaluate", expression=script, **options)
        except RefusedError:  # the page changes
            return {"exceptionDetails": "the page has changed"}

    def _send(self, method: str, **parameters: Any) -> dict[str, Any]:
        self._number += 1
        session = getattr(self, "_session", {})
        if method.startswith(("Target.", "Storage.")):
            session = {}
        message = {"id": self._number, "method": method, "params": parameters, **session}
        self._browser.send(json.dumps(message))
        while True:
            answer = json.loads(self._browser.recv())
            if answer.get("id") == self._number and answer.get("sessionId") == session.get(
                "sessionId"
            ):
                if "error" in answer:
                    raise RefusedError(answer["error"]["message"])
                found: dict[str, Any] = answer["result"]
                return found


class RefusedError(Exception):
    """The browser refuses a command."""


@contextlib.contextmanager
def a_browser(names: str = "") -> Iterator[Tab]:
    """Start a browser without any data for as long as the block lasts.

    Args:
        names: Host names that lead to this host, as a pattern: `*.example.org`.

    Raises:
        engines.NoEngine: Chromium could not be installed.
    """
    engines.install("chromium")
    with tempfile.TemporaryDirectory(prefix="lab-chromium-") as home:
        rules = [f"--host-resolver-rules=MAP {names} 127.0.0.1"] if names else []
        command = ["setpriv", "--pdeathsig", "KILL", "chromium", *_OPTIONS, *rules]
        with subprocess.Popen(
            [*command, f"--user-data-dir={home}", "about:blank"],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        ) as process:
            try:
                file = Path(home, "DevToolsActivePort")
                wait_for(lambda: file.exists() and file.read_text().count("\n"), "Chromium", _S)
                port, path = file.read_text().split()
                address = f"ws://127.0.0.1:{port}{path}"
                connection = websocket.create_connection(address, timeout=_S, suppress_origin=True)
                with contextlib.closing(connection):
                    yield Tab(connection)
            finally:
                # Its other processes write to its directory until they end, too.
                others = psutil.Process(process.pid).children(recursive=True)
                process.terminate()
                _, left = psutil.wait_procs(others, _S)
                assert not left
