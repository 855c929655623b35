"""A real browser, headless: the system's Chromium, driven by Playwright."""

from __future__ import annotations

import base64
import contextlib
from collections.abc import Iterator
from typing import Any

import pytest
from playwright.sync_api import Page, sync_playwright

from tests.support import engine as engines
from tests.support.conditions import lacking


class Tab:
    """A tab of a browser."""

    def __init__(self, page: Page) -> None:
        self.page = page

    def open(self, url: str) -> None:
        self.page.goto(url)

    def run(self, script: str) -> Any:
        return self.page.evaluate(script)

    def show_on(self, width: int, *, dark: bool = False, still: bool = False) -> None:
        """Set the width in pixels, and what the reader prefers: dark colours, less motion."""
        motion: Any = "reduce" if still else "no-preference"
        self.page.emulate_media(color_scheme="dark" if dark else "light", reduced_motion=motion)
        self.page.set_viewport_size({"width": width, "height": 1000})

    def picture(self) -> bytes:
        """What the tab shows, in the WebP format."""
        data = self._command("Page.captureScreenshot", format="webp", quality=80)["data"]
        return base64.b64decode(data)

    def sign_in(self, url: str, user: str, password: str) -> None:
        self.open(f"{url}/hub/login")
        self.page.fill("#username_input", user)
        self.page.fill("#password_input", password)
        self.page.click("#login_submit")
        self.page.wait_for_url(lambda found: "/hub/login" not in found)

    def cookies(self) -> list[dict[str, Any]]:
        return self._command("Network.getAllCookies")["cookies"]

    def _command(self, method: str, **parameters: Any) -> Any:
        return self.page.context.new_cdp_session(self.page).send(method, parameters)


@contextlib.contextmanager
def a_browser(names: str = "") -> Iterator[Tab]:
    """Start a browser without any data for as long as the block lasts.

    Args:
        names: Host names that lead to this host, as a pattern: `*.example.org`.

    Raises:
        engines.NoEngine: Chromium could not be installed.
    """
    engines.install("chromium")
    rules = [f"--host-resolver-rules=MAP {names} 127.0.0.1"] if names else []
    with sync_playwright() as playwright:
        chromium = playwright.chromium.launch(
            executable_path="/usr/bin/chromium", args=["--disable-quic", *rules]
        )
        # The certificate is the test's own.
        context = chromium.new_context(ignore_https_errors=True)
        context.set_default_timeout(60_000)
        yield Tab(context.new_page())
        chromium.close()


@pytest.fixture(scope="module")
def browser() -> Iterator[Tab]:
    try:
        engines.install("chromium")
    except engines.NoEngine as error:
        lacking(f"no Chromium, so these pages are NOT tested here: {error}")
    with a_browser() as tab:
        yield tab
