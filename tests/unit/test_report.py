"""`lab report`: the content of the page, the place of its files, and its escaping."""

from __future__ import annotations

import importlib
import json
import re
from base64 import b64encode
from collections.abc import Iterator
from dataclasses import asdict
from hashlib import sha256
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest
from syrupy.assertion import SnapshotAssertion

from lab.cli import main
from lab.plots.registry import CHARTS
from lab.report import build
from lab.reproduce import view
from lab.reproduce.statistics import Interval
from lab.reproduce.verdicts import Result, Verdict
from lab.run.run_info import RunInfo
from lab.run.store import RunDir
from lab.task.protocol import RunSpec
from lab.task.protocol.states import State
from tests.support import recorded
from tests.support.specs import HOSTILE

FIRST, SECOND, THIRD = (f"2026010{n}-0000-async-aaaa" for n in (1, 2, 3))
SCRIPT = Path(build.__file__).with_name("full_screen.js").read_text(encoding="utf-8")
POLICY = (
    "default-src 'none'; style-src 'unsafe-inline';"
    f" script-src 'sha256-{b64encode(sha256(SCRIPT.encode()).digest()).decode()}'; img-src data:"
)
STEPS = 1100
NONE = "–"  # noqa: RUF001  (as tables have it)
FIGURES = ("cluster", "loss", "progress", "staleness", "throughput", "waiting")


class Page(HTMLParser):
    """The text that a browser would show."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.tags: set[str] = set()
        self.attributes: list[tuple[str, str]] = []
        self.rows: list[list[str]] = []
        self.text = ""
        self.feed(re.sub(r"<(style|script)[^>]*>.*?</\1>", "", html, flags=re.DOTALL))
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.add(tag)
        self.attributes += [(name, value or "") for name, value in attrs]
        if tag == "tr":
            self.rows.append([])
        if tag in {"td", "th"}:
            self.rows[-1].append("")

    def handle_endtag(self, tag: str) -> None:
        if tag == "table":
            self.rows.append([])

    def handle_data(self, data: str) -> None:
        self.text += data
        if self.rows and self.rows[-1]:
            self.rows[-1][-1] += data.strip("\n")


@pytest.fixture
def store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("LAB_RUNS_DIR", raising=False)
    monkeypatch.setattr(importlib.import_module("lab.service.report"), "backends", list)
    # Few pixels are enough here, and take a fraction of the time.
    monkeypatch.setattr("lab.plots.style._DPI", 30)
    return tmp_path / "runs"


@pytest.fixture
def blank(monkeypatch: pytest.MonkeyPatch) -> None:
    """Empty pictures, for tests of the page's text: drawing takes most of the time."""
    monkeypatch.setattr("lab.plots.style._saved", lambda *_, **__: b"\x89PNG")


def report(*arguments: str) -> int:
    return main(["report", *arguments])


def html_of(*arguments: str) -> str:
    """The HTML of a report of these runs."""
    assert report(*arguments, "--output", "made.html") == 0
    return Path("made.html").read_text(encoding="utf-8")


def append(run: RunDir, task: str, *lines: object) -> None:
    with run.records(task).open("a", encoding="utf-8") as file:
        file.writelines(
            f"{line if isinstance(line, str) else json.dumps(line)}\n" for line in lines
        )


def test_one_run_becomes_a_page_and_figures_in_its_directory(
    store: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run = recorded.make(store, FIRST, steps=STEPS)
    assert report("last", "--json") == 0
    output = capsys.readouterr()
    found = json.loads(output.out)
    assert found["report"] == f"runs/{FIRST}/report.html"
    names = {Path(file).name for file in found["figures"]}
    assert names == {f"{name}.{ending}" for name in FIGURES for ending in ("png", "svg")}
    assert all((run.path / "figures" / name).stat().st_size > 1000 for name in names)
    assert "Loss: " in output.err
    html = (run.path / "report.html").read_text(encoding="utf-8")
    page = Page(html)
    assert html.count("<img ") == len(FIGURES)
    assert found["conclusion"] in page.text
    # It loads nothing, and its policy allows its own script only.
    assert ("content", POLICY) in page.attributes
    assert re.findall(r"<script[^>]*>(.*?)</script>", html, re.DOTALL) == [SCRIPT]
    for name, value in page.attributes:
        if name in {"src", "href", "srcset", "data", "action", "background", "poster"}:
            assert re.fullmatch(r"data:image/png;base64,[A-Za-z0-9+/=]+", value), name
        assert not name.startswith("on"), name
        assert name != "style"
    assert not {"link", "iframe", "object", "embed", "form", "base"} & set(page.tags)
    bare = re.sub(r"data:image/png;base64,[A-Za-z0-9+/=]+", "", html.replace(SCRIPT, ""))
    assert not re.search(r"https?:|//|@import|url\(|@font-face", bare)


PAGES: dict[str, list[dict[str, Any]]] = {
    "one run": [{}],
    "repeats of one length": [{}, {"seed": 2}],
    "repeats, and an unequal length": [{}, {"seed": 2}, {"steps": 2 * STEPS}],
    "a failed repeat": [{}, {"seed": 2}, {"seed": 9, "state": State.FAILED}],
    "a fault without a record": [{"faults": ("kill worker-1 after 500000 steps",)}],
}


@pytest.mark.usefixtures("blank")
@pytest.mark.parametrize("name", PAGES)
def test_the_text_of_the_page(name: str, store: Path, snapshot: SnapshotAssertion) -> None:
    for run_id, facts in zip((FIRST, SECOND, THIRD), PAGES[name], strict=False):
        recorded.make(store, run_id, **{"steps": STEPS, **facts})
    ids = [FIRST, SECOND, THIRD][: len(PAGES[name])]
    page = Page(html_of(*ids))
    for word in ("Groups", "±", "95%", "Faint"):
        assert (word in page.text) is ("repeat" in name), word
    assert ("Unequal lengths" in page.text) is ("unequal" in name)
    assert [line.strip() for line in page.text.splitlines() if line.strip()] == snapshot


@pytest.mark.usefixtures("blank")
def test_a_run_is_shown_once_however_it_is_named(
    store: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for run_id in (FIRST, SECOND):
        recorded.make(store, run_id, steps=STEPS)
    assert report("20260101-0", SECOND, "last", "20260101-0", "--output", "all.html") == 0
    assert capsys.readouterr().out == "all.html\n"
    assert {path.name for path in Path("all-figures").iterdir()} >= {"loss.png", "loss.svg"}
    rows = Page(Path("all.html").read_text(encoding="utf-8")).rows
    assert [row[0] for row in rows if row and row[0].startswith("2026")] == [FIRST, SECOND]


@pytest.mark.usefixtures("blank")
def test_the_form_of_the_page(store: Path) -> None:
    recorded.make(store, FIRST, steps=STEPS)
    label = "<script>alert(1)</script>"
    html = html_of(FIRST, "--label", label)
    # The label is escaped.
    assert label not in html
    for tag in ("title", "h1"):
        assert f"<{tag}>async: &lt;script&gt;alert(1)&lt;/script&gt;</{tag}>" in html
    assert f"{label}: async with 3 workers reached" in Page(html).text
    # The script adds the buttons; it needs a heading, an image and a caption of each figure.
    figure = (
        r'<section class="figure">\s*<h2>[^<]+</h2>\s*<figure>\s*<div class="wide">'
        r"<img [^>]+></div>\s*<figcaption>"
    )
    assert len(re.findall(figure, html)) == len(FIGURES)


def test_nothing_of_a_run_becomes_markup(store: Path) -> None:
    """Any text in a run's files is shown unchanged."""
    texts = ("experiment", "program", "reason", "backend", "cluster_file")
    hostile: dict[str, Any] = {
        **dict.fromkeys(texts, HOSTILE),
        **dict.fromkeys(("args", "faults", "gpus"), (HOSTILE,)),
        **{name: {HOSTILE: HOSTILE} for name in ("hyperparameters", "versions", "provenance")},
        "state": State.FAILED,
        "git": {"commit": HOSTILE, "dirty": True},
        "start": {"worker-1": HOSTILE},
        "tasks": ({"task": "worker-0", "node": HOSTILE, "gpus": [HOSTILE]},),
    }
    for number, run_id in enumerate((FIRST, SECOND)):
        run = recorded.make(store, run_id, steps=STEPS, **hostile)
        fault = {"kind": "event", "message": f"fault: {HOSTILE}{number}"}
        append(run, "worker-0", {**fault, "time_unix": recorded.BEGAN_UNIX + 4}, "<script>",
               {"kind": HOSTILE, "message": HOSTILE, "name": HOSTILE})  # fmt: skip
        recorded.write(run, "ps-0", iter([{"kind": "result", "name": HOSTILE, "value": 1.0}]))
        samples = {"task": HOSTILE, "gpu": HOSTILE, "time_unix": recorded.BEGAN_UNIX + 5}
        run.gpu_samples.write_text(json.dumps({**samples, "utilisation": 0.5}) + "\n")
    claim = dict.fromkeys(("claim", "text", "kind", "where", "verdict", "why", "unit"), HOSTILE)
    claims = {**dict.fromkeys(("name", "source", "summary"), HOSTILE), "claims": [claim],
              "runs": {HOSTILE: {HOSTILE: HOSTILE}}, "excluded": {HOSTILE: HOSTILE}}  # fmt: skip
    Path("claims.json").write_text(json.dumps(claims))
    usual = {"html", "head", "meta", "title", "body", "header", "h1", "h2", "p", "main", "ul", "li",
             "b", "span", "section", "div", "table", "thead", "tbody", "tr", "th", "td", "figure",
             "img", "figcaption", "footer", "br", "strong"}  # fmt: skip
    for runs in ((FIRST,), (FIRST, SECOND)):
        html = html_of(*runs, "--verdicts", "claims.json")
        assert html.count("<script") == 1
        page = Page(html)
        assert "<script>alert(1)</script> $x^$" in page.text
        assert "\\x1b]0;t\\x07" in page.text
        assert not {"\x1b", "\x07", "\u202e"} & set(page.text)
        assert page.tags <= usual


def test_the_page_reports_missing_and_damaged_records(store: Path) -> None:
    run = RunDir(store / FIRST)
    facts = {"reason": "no memory", "submitted_unix": 1.0, "collected": True}
    run.create(RunInfo(FIRST, RunSpec("async"), state=State.FAILED, **facts))
    (run.path / "figures").mkdir()
    (run.path / "figures" / "loss.png").write_bytes(b"an older report's")
    assert report("last") == 0
    html = (run.path / "report.html").read_text(encoding="utf-8")
    assert html.count("<li>") == 1  # unknown values have no tile
    assert "Why it failed: no memory." in html
    assert html.count("Not drawn: ") == len(CHARTS)
    assert list((run.path / "figures").iterdir()) == []
    damaged = recorded.make(store, SECOND, steps=STEPS).records("worker-0")
    lines = damaged.read_text().splitlines()
    damaged.write_text("\n".join([*lines[:5], "no record", *lines[6:]]) + "\n")
    text = Page(html_of("last")).text
    assert "1 records are missing" in text
    assert "Damaged lines in its records: 1, the first: tasks/worker-0.jsonl:6" in text


@pytest.mark.parametrize(
    ("arguments", "output"),
    [
        ("--output none/report.html", "--output: there is no directory none"),
        ("--output .", "--output: . is a directory; name a file in it"),
        ("--output README.md", "--output: README.md exists, and lab did not write it; name"
                               " another file, or replace it with --force"),
        ("--output linked.html", "linked-figures is not a directory"),
        ("--verdicts none.json", "none.json cannot be read (No such file or directory)"),
        ("--verdicts bad.json", "bad.json has no verdicts"),
        ("--verdicts deep.json", "deep.json has no verdicts"),
        ("zzz", "no run 'zzz' in runs"),
    ],
)  # fmt: skip
def test_impossible_options(
    store: Path, capsys: pytest.CaptureFixture[str], arguments: str, output: str
) -> None:
    recorded.make(store, FIRST, steps=STEPS)
    Path("README.md").write_text("# Mine\n")
    Path("elsewhere").mkdir()
    Path("linked-figures").symlink_to(Path("elsewhere").resolve())
    Path("bad.json").write_text('{"name": 1}')
    Path("deep.json").write_text("[" * 100_000)
    assert report(FIRST, *arguments.split()) == 2
    shown = capsys.readouterr().err
    assert output in shown
    assert shown.count("\n") == 1
    assert not (store / FIRST / "report.html").exists()
    assert Path("README.md").read_text() == "# Mine\n"
    assert list(Path("elsewhere").iterdir()) == []


@pytest.mark.usefixtures("blank")
def test_only_a_page_of_the_labs_is_replaced(store: Path) -> None:
    run = recorded.make(store, FIRST, steps=STEPS)
    Path("made.html").touch()
    for _ in range(2):  # an empty file, then the page itself
        assert "Loss" in Page(html_of("last")).text
    assert not (run.path / "figures").exists()


@pytest.mark.usefixtures("blank")
def test_a_page_that_cannot_be_written_is_an_error(
    store: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    recorded.make(store, FIRST, steps=STEPS)

    def refuse(*_: object) -> None:
        raise OSError(28, "No space left on device", str(Path("runs", FIRST, "report.html")))

    monkeypatch.setattr(build, "write_output", refuse)  # the tests may run as root
    assert report("last") == 1
    assert capsys.readouterr().err.splitlines()[-1] == (
        f"error: the report cannot be written to runs/{FIRST}/report.html: No space left on device;"
        " free disk space, or give a file in another directory with --output"
    )


@pytest.mark.usefixtures("blank")
def test_the_verdicts_are_beside_the_source(store: Path) -> None:
    recorded.make(store, FIRST, steps=STEPS)
    number = {
        "claim": "accuracy", "text": "accuracy of worker 2", "kind": "measured", "unit": "",
        "where": "the last line", "printed": 0.8894, "ours": 0.8871, "values": {"1": 0.8871},
        "interval": {"low": 0.88, "high": 0.895}, "verdict": "INCONCLUSIVE", "why": "it is wide",
    }  # fmt: skip
    statement = {
        **number, "text": "they differ", "kind": "qualitative", "printed": None, "unit": "apart",
        "interval": None, "verdict": "NOT_REPRODUCED", "why": "in 0 of 8 runs",
    }  # fmt: skip
    # Its numbers are those of the terminal.
    result = Result("c", "words", "measured", "here", 82_499.0, 10_900.0,
                    Interval(10_678.1, 11_113.9), "", {1: 10_900.0}, Verdict.OK, "")  # fmt: skip
    claims = [number, statement, {"claim": "sync", "verdict": "OK"}, asdict(result)]
    Path("r.json").write_text(
        json.dumps({"name": "book-async", "source": "the book", "made": "now",
                    "runs": {"whole": {"1": FIRST, "2": SECOND}}, "claims": claims,
                    "summary": "2 counted claims: 1 NOT_REPRODUCED, 1 INCONCLUSIVE",
                    "excluded": {"a-run": "it is a copy"}})
    )  # fmt: skip
    page = Page(html_of("last", "--verdicts", "r.json"))
    for row in (
        ["accuracy of worker 2", "the last line", "measured", "0.8894", "0.8871", "0.8800-0.8950",
         "? inconclusive: it is wide"],
        ["they differ", "the last line", "qualitative", NONE, "0.8871 apart", NONE,
         "✗ not reproduced: in 0 of 8 runs"],
        ["sync", NONE, NONE, NONE, NONE, NONE, "✓ ok"],
        ["words", "here", "measured", "82,499", *view.ours(result), "✓ ok"],
    ):  # fmt: skip
        assert row in page.rows
    assert "book-async: the book. 2 counted claims: 1 NOT_REPRODUCED" in page.text
    assert "1 of the 2 evaluated runs is not on this page." in page.text
    assert "Left out: run a-run: it is a copy" in page.text
