"""The page with the passwords of a class."""

from __future__ import annotations

import xml.etree.ElementTree as ET
from dataclasses import replace
from datetime import datetime, timedelta
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote

import pytest
import segno

from lab.classroom import handouts
from lab.classroom.config import Times
from lab.classroom.handouts import write_handouts
from lab.classroom.planning import ClassPlan
from lab.classroom.state import TEACHER
from lab.errors import InputError
from tests.support.classes import a_plan, certificate, created


@pytest.fixture(autouse=True)
def state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LAB_STATE", str(tmp_path / "state"))


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


def page_of(place: Path, plan: ClassPlan | None = None, url: str | None = None) -> Page:
    folder = created(plan)
    write_handouts(folder, place / "page.html", url)
    return Page((place / "page.html").read_text("utf-8"))


def test_every_seat_and_the_teacher_are_there_once(tmp_path: Path) -> None:
    folder = created(a_plan(("ada", "bob", "cy")))
    write_handouts(folder, tmp_path / "page.html", None)
    found = Page((tmp_path / "page.html").read_text("utf-8")).texts
    tokens = folder.tokens()
    assert found["h2"] == ["ada", "bob", "cy", TEACHER]
    lines = found["dd"]
    assert [lines[at : at + 3] for at in range(0, len(lines), 3)] == [
        ["http://127.0.0.1:8000", name, tokens.seats[name]]
        for name in ("ada", "bob", "cy", TEACHER)
    ]
    text = (tmp_path / "page.html").read_text("utf-8")
    assert tokens.service not in text
    assert tokens.proxy not in text


def test_the_qr_code_is_the_page_for_signing_in(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    coded: list[str] = []
    make = segno.make

    def noted(content: str, **options: str) -> segno.QRCode:
        coded.append(content)
        return make(content, **options)

    monkeypatch.setattr(handouts.segno, "make", noted)
    page = page_of(tmp_path, url="https://lab.example.org:8443/")
    assert coded == [
        f"https://lab.example.org:8443/hub/login?username={name}"
        for name in ("ada", "bob", TEACHER)
    ]
    assert len(set(page.images)) == 3
    for each in page.images:
        kind, _, drawing = each.partition(",")
        assert kind == "data:image/svg+xml;charset=utf-8"
        assert ET.fromstring(unquote(drawing)).tag == "{http://www.w3.org/2000/svg}svg"  # noqa: S314


def test_the_address_is_text_not_html(tmp_path: Path) -> None:
    url = "https://a<script>alert(1)<b>\"'&amp;"
    page = page_of(tmp_path, url=url)
    assert "".join(page.texts["dd"]).count(url) == 3
    assert not {"script", "b"} & set(page.texts)


@pytest.mark.parametrize(
    "url",
    [
        "javascript:alert(1)",
        "ftp://host",
        "file:///etc/passwd",
        "lab.example.org",
        "//lab.example.org",
        "https://",
        "https:///",
        "https://host/path",
        "https://host?x=1",
        "https://host#x",
        "https://user:pw@host",
        "https://ho st",
        "https://host\nx",
        "https://host\n",
        "https://" + "x" * 5_000,
        "",
    ],
)
def test_only_the_address_of_a_class_is_accepted(url: str, tmp_path: Path) -> None:
    with pytest.raises(InputError) as caught:
        page_of(tmp_path, url=url)
    assert str(caught.value).startswith("--url: '")
    assert str(caught.value).endswith(
        " is not the address of a class; write it as https://HOST:PORT"
    )
    assert str(caught.value).isprintable()
    assert not (tmp_path / "page.html").exists()


@pytest.mark.parametrize(
    "url",
    ["http://10.0.0.1:8000", "HTTPS://host", "https://[::1]:8000/", "https://h\u00f6rsaal.de"],
)
def test_addresses_of_classes(url: str, tmp_path: Path) -> None:
    assert url.rstrip("/") in page_of(tmp_path, url=url).texts["dd"]


def test_a_proxy_on_all_addresses_needs_a_url(tmp_path: Path) -> None:
    for address in ("0.0.0.0", "::"):  # noqa: S104
        plan = replace(a_plan(tls=certificate(tmp_path)), name=f"n{len(address)}", address=address)
        with pytest.raises(InputError) as caught:
            page_of(tmp_path, plan)
        assert str(caught.value) == (
            "the proxy listens on all addresses, and browsers need one; name it with --url "
            "https://HOST:PORT"
        )
        write_handouts(created(replace(plan, name=f"m{len(address)}")), tmp_path / "p", "https://h")


def test_only_the_user_can_read_the_page(tmp_path: Path) -> None:
    page = tmp_path / "page.html"
    page.write_text("earlier")
    page.chmod(0o666)
    folder = created()
    write_handouts(folder, page, None)
    assert page.stat().st_mode & 0o777 == 0o600
    assert "earlier" not in page.read_text()
    page.unlink()
    page.symlink_to(tmp_path / "other")
    write_handouts(folder, page, None)
    assert page.is_file() and not page.is_symlink()
    assert [path.name for path in tmp_path.iterdir() if path.name.startswith(".")] == []


def test_a_page_in_a_directory_that_is_missing(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError) as caught:
        write_handouts(created(), tmp_path / "no" / "page.html", None)
    assert caught.value.filename == str(tmp_path / "no" / "page.html")


DAY = datetime(2026, 12, 1, 9).astimezone()


@pytest.mark.parametrize(
    ("start", "end", "expected"),
    [
        (None, None, "w"),
        (DAY, None, "w, from 2026-12-01 09:00"),
        (None, DAY, "w, until 2026-12-01 09:00"),
        (DAY, DAY + timedelta(hours=3), "w, 2026-12-01 09:00 to 12:00"),
        (DAY, DAY + timedelta(days=2), "w, 2026-12-01 09:00 to 2026-12-03 09:00"),
    ],
)
def test_the_times(
    start: datetime | None, end: datetime | None, expected: str, tmp_path: Path
) -> None:
    times = Times.model_construct(start=start, end=end, slice=timedelta(minutes=10))
    assert page_of(tmp_path, a_plan(times=times)).texts["p"] == [expected] * 3
