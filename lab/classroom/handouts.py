"""The handouts of a class: a page to print, with the address and the token of each seat."""

from __future__ import annotations

import re
from importlib.resources import files
from pathlib import Path
from typing import Final
from urllib.parse import urlencode

import segno
from jinja2 import Environment, StrictUndefined

from lab.classroom.config import TEACHER
from lab.classroom.planning import ClassPlan
from lab.classroom.state import ClassDir, write_private
from lab.errors import InputError

_ADDRESS: Final = re.compile(r"https?://[^\s/?#@\\]{1,255}/?", re.IGNORECASE)


def write_handouts(folder: ClassDir, page: Path, url: str | None) -> None:
    """Write the handouts of a class as a page that only this user can read.

    Args:
        folder: The class.
        page: The HTML file.
        url: The address for browsers of a class without a domain; None: the one at which the proxy
            listens.

    Raises:
        InputError: The address is no address of a page, or the class has a domain, or the proxy
            listens on all addresses and none is given.
        LabError: The class cannot be read.
        OSError: The page cannot be written.
    """
    plan, tokens = folder.stored().plan, folder.tokens().seats
    base = _base(plan, url)
    users = [seat.name for seat in plan.seats] + ([TEACHER] if TEACHER in tokens else [])
    handouts = [{"user": user, "token": tokens[user], "code": _code(base, user)} for user in users]
    template = Environment(autoescape=True, undefined=StrictUndefined).from_string(
        files("lab.classroom").joinpath("handouts.html.j2").read_text("utf-8")
    )
    text = template.render(name=plan.name, url=base, handouts=handouts, teacher=TEACHER)
    write_private(page, text)


def _base(plan: ClassPlan, url: str | None) -> str:
    """Return the address for browsers, without a path."""
    if url is None:
        if not plan.domain and plan.address == "0.0.0.0":  # noqa: S104  (compared, not bound)
            raise InputError(
                "the proxy listens on all addresses, and browsers need one",
                "name it with --url https://HOST:PORT",
            )
        return plan.url
    if plan.domain:
        raise InputError(f"--url: the address of this class is {plan.url}", "leave out --url")
    if not _ADDRESS.fullmatch(url):
        raise InputError(
            f"--url: {url!r} is not the address of a class", "write it as https://HOST:PORT"
        )
    return url.rstrip("/")


def _code(base: str, user: str) -> str:
    """Return the QR code of the page for signing in, as an address of an image."""
    page = f"{base}/hub/login?{urlencode({'username': user})}"
    return segno.make(page, error="m").svg_data_uri(scale=3, border=2)
