"""The directory of a class, who can read it, and the page with its passwords."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import xml.etree.ElementTree as ET
from dataclasses import replace
from html.parser import HTMLParser
from itertools import chain
from pathlib import Path
from unittest.mock import Mock
from urllib.parse import unquote

import pytest
import segno

from lab.backends.process import ProcessHandle
from lab.base.errors import LabError
from lab.teach.classroom.class_dir import ClassDir, class_dirs
from lab.teach.classroom.config import TEACHER
from lab.teach.classroom.handouts import write_handouts
from lab.teach.classroom.planning import ClassPlan
from tests.support.classes import a_plan, certificate, created, own_state, stored  # noqa: F401


def test_a_class_is_read_as_it_was_written(tmp_path: Path) -> None:
    found = a_plan(2, 2, cpus=0.5, disk=None, tls=certificate(tmp_path), slice="7m")
    folder = ClassDir(found.name)
    tokens = folder.create(stored(found))
    assert folder.stored() == stored(found)
    assert folder.tokens() == tokens


def test_every_seat_and_the_teacher_get_a_password_that_can_be_typed() -> None:
    tokens = created(a_plan(90)).tokens()
    assert set(tokens.seats) == {TEACHER, *(f"seat-{number:02}" for number in range(1, 91))}
    assert len({*tokens.seats.values(), tokens.proxy, tokens.service}) == 93
    # Without characters that look alike: 0 and o, 1, i and l.
    group = "[2-9a-hjkmnp-z]{4}"
    assert all(re.fullmatch(f"{group}-{group}-{group}", each) for each in tokens.seats.values())
    assert re.fullmatch("[0-9a-f]{64}", tokens.service)


@pytest.mark.parametrize("mask", [0o022, 0o077])
def test_only_the_user_can_read_a_class(mask: int) -> None:
    before = os.umask(mask)
    try:
        folder = created()
    finally:
        os.umask(before)
    assert folder.path.stat().st_mode & 0o777 == 0o700
    found = sorted(folder.path.rglob("*"))
    modes = {str(path.relative_to(folder.path)): path.stat().st_mode & 0o777 for path in found}
    assert modes == dict.fromkeys(("tokens.json", "class.json"), 0o600)


@pytest.mark.parametrize("mode", [0o640, 0o604, 0o620])
def test_tokens_that_other_users_can_read_are_not_used(mode: int) -> None:
    folder = created()
    (folder.path / "tokens.json").chmod(mode)
    with pytest.raises(LabError, match="other users can read the tokens; run `chmod 600 /"):
        folder.tokens()


CHANGES = {
    "empty": lambda _: b"",
    "no class": lambda _: b"{}",
    "deep": lambda _: b"[" * 100_000,
    "control characters": lambda _: b'{"plan": {"name": "\x1b[2J"}}',
    "surrogate": lambda _: b'{"plan": {"name": "\xed\xa0\x80"}}',
    "no network": lambda content: content.replace(b"10.89.0.0/28", b"10.89.0.0/99"),
    "no time": lambda content: content.replace(b'"slice_s":600.0', b'"slice_s":"soon"'),
}


@pytest.mark.parametrize("change", CHANGES)
def test_a_damaged_class_is_reported_in_one_line(change: str) -> None:
    folder = created()
    path = folder.path / "class.json"
    path.write_bytes(CHANGES[change](path.read_bytes()))
    with pytest.raises(
        LabError, match=r"cannot be read: .*; the work .* of `docker volume ls"
    ) as caught:
        folder.stored()
    assert str(caught.value).startswith(str(path))
    assert str(caught.value).isprintable()


def test_the_classes_of_this_user(tmp_path: Path) -> None:
    classes = tmp_path / "state" / "classes"
    assert class_dirs() == []
    folder = created()
    (classes / "b").mkdir()
    (classes / "w.lock").touch()
    assert class_dirs() == [ClassDir("b"), ClassDir("w")]
    assert not any(each.is_up for each in class_dirs())
    program = [sys.executable, "-c", "import time; time.sleep(600)"]
    with (
        subprocess.Popen([*program, "jupyterhub"], cwd=folder.path) as hub,
        subprocess.Popen(program, cwd=folder.path) as service,
        subprocess.Popen([*program, "jupyterhub"], cwd=classes / "b" / "..") as another,
    ):
        try:
            assert [each.is_up for each in class_dirs()] == [False, True]
            assert folder.hub() == ProcessHandle.of(hub.pid)
        finally:
            for process in (hub, service, another):
                process.kill()
    assert not folder.is_up


class Page(HTMLParser):
    """The texts of a page's elements, by tag; and the addresses of its images."""

    def __init__(self, content: str) -> None:
        super().__init__()
        self.texts: dict[str, list[str]] = {}
        self.images: list[str] = []
        self._tag = ""
        self.feed(content)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self._tag = tag
        self.images += [value or "" for name, value in attrs if tag == "img" and name == "src"]
        self.texts.setdefault(tag, [])

    def handle_data(self, data: str) -> None:
        if data.strip():
            self.texts.setdefault(self._tag, []).append(data)


ONE_ADDRESS = replace(a_plan(), domain="")


def page_of(place: Path, plan: ClassPlan | None = None) -> Page:
    folder = created(plan or ONE_ADDRESS)
    write_handouts(folder, place / "page.html")
    return Page((place / "page.html").read_text("utf-8"))


def test_every_seat_and_the_teacher_are_there_once(tmp_path: Path) -> None:
    found = page_of(tmp_path, a_plan(("ada", "bob", "cy"))).texts
    tokens, users = ClassDir("w").tokens(), ["ada", "bob", "cy", TEACHER]
    assert found["h2"] == users
    assert found["dd"] == list(chain(*([name, tokens.seats[name]] for name in users)))
    text = (tmp_path / "page.html").read_text("utf-8")
    assert tokens.service not in text
    assert tokens.proxy not in text


def test_the_qr_code_is_the_page_for_signing_in(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    make = Mock(side_effect=segno.make)
    monkeypatch.setattr(segno, "make", make)
    page = page_of(tmp_path)
    assert [call.args[0] for call in make.call_args_list] == [
        f"http://127.0.0.1:8000/hub/login?username={name}" for name in ("ada", "bob")
    ]
    assert len(set(page.images)) == 2
    for each in page.images:
        kind, _, drawing = each.partition(",")
        assert kind == "data:image/svg+xml;charset=utf-8"
        assert ET.fromstring(unquote(drawing)).tag == "{http://www.w3.org/2000/svg}svg"  # noqa: S314


def test_the_address_is_text_not_html(tmp_path: Path) -> None:
    hostile = "a<script>alert(1)<b>\"'&amp;"
    page = page_of(tmp_path, replace(a_plan(), domain=hostile))
    assert "".join(page.texts["span"]).count(hostile) == 3
    assert not {"script", "b"} & set(page.texts)


def test_the_address_is_divided_before_its_dots_only(tmp_path: Path) -> None:
    """A hyphen at the end of a line could be read as one more."""
    plan = a_plan(domain="my-lab.a-school.org", tls=certificate(tmp_path))
    parts = ["https://my-lab", ".a-school", ".org:8000"]
    assert page_of(tmp_path, plan).texts["span"] == parts * 3


def test_only_the_user_can_read_the_page(tmp_path: Path) -> None:
    page = tmp_path / "page.html"
    page.write_text("earlier")
    page.chmod(0o666)
    folder = created()
    write_handouts(folder, page)
    assert page.stat().st_mode & 0o777 == 0o600
    assert "earlier" not in page.read_text()
    page.unlink()
    page.symlink_to(tmp_path / "other")
    write_handouts(folder, page)
    assert page.is_file() and not page.is_symlink()
    assert {path.name for path in tmp_path.iterdir()} == {"page.html", "other", "state"}
    with pytest.raises(FileNotFoundError, match=r"no/page\.html"):
        write_handouts(folder, tmp_path / "no" / "page.html")
