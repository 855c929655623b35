"""The handouts of a class: a page to print, with the address and the token of each seat."""

from __future__ import annotations

from importlib.resources import files
from pathlib import Path
from urllib.parse import urlencode

import segno
from jinja2 import StrictUndefined, Template

from lab.teach.classroom.class_dir import ClassDir, write_private
from lab.teach.classroom.config import TEACHER


def write_handouts(folder: ClassDir, page: Path) -> None:
    """Write the handouts of a class as a page that only this user can read.

    Args:
        folder: The class.
        page: The HTML file.

    Raises:
        LabError: The class cannot be read.
        OSError: The page cannot be written.
    """
    plan, tokens = folder.stored().plan, folder.tokens().seats
    users = [seat.name for seat in plan.seats] + ([TEACHER] if TEACHER in tokens else [])
    handouts = [
        {"user": user, "token": tokens[user], "code": _code(plan.url, user)} for user in users
    ]
    source = files("lab.teach.classroom").joinpath("handouts.html.j2").read_text("utf-8")
    template = Template(source, autoescape=True, undefined=StrictUndefined)
    text = template.render(name=plan.name, url=plan.url, handouts=handouts, teacher=TEACHER)
    write_private(page, text)


def _code(base: str, user: str) -> str:
    """Return the QR code of the page for signing in, as an address of an image."""
    page = f"{base}/hub/login?{urlencode({'username': user})}"
    return segno.make(page, error="m").svg_data_uri(scale=3, border=2)
