"""`lab report`: the content of the page, the place of its files, and its escaping."""

from __future__ import annotations

import importlib
import itertools
import json
import math
import re
import shlex
import shutil
from base64 import b64encode
from collections.abc import Iterator, Mapping
from dataclasses import asdict, replace
from hashlib import sha256
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest

from benchmarks import recorded
from lab.cli import main
from lab.cli.arguments import check
from lab.cli.commands.run import command as run_command
from lab.cli.durations import duration
from lab.errors import InputError
from lab.formatting import compared, pace
from lab.plots.data import Mark, Trace, samples_of, steps_of
from lab.plots.registry import CHARTS
from lab.report import build
from lab.report.build import mean, page
from lab.report.loader import read_runs
from lab.report.markers import marks_of, not_done
from lab.report.provenance import provenance
from lab.report.repro_command import command
from lab.report.verdicts import read_verdicts
from lab.reproduce import view
from lab.reproduce.statistics import Interval
from lab.reproduce.verdicts import Result, Verdict
from lab.run.dataframe import records_frame
from lab.run.progress import TaskProgress
from lab.run.run_info import RunInfo
from lab.run.store import RunDir
from lab.run.summarize import summary_of
from lab.task.protocol import READY_S, RunSpec
from lab.task.protocol.experiments import EXPERIMENTS, hyperparameters
from lab.task.protocol.policy import RESTARTS, OnFailure
from lab.task.protocol.states import State
from lab.tf_versions import TF1
from tests.support.specs import HOSTILE

FIRST, SECOND = "20260101-0000-async-aaaa", "20260102-0000-async-bbbb"
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
        self.tags: list[str] = []
        self.attributes: list[tuple[str, str]] = []
        self.policy = ""
        self.rows: list[list[str]] = []
        self.text = ""
        self._cell = False
        self.feed(html)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        found = {name: value or "" for name, value in attrs}
        self.tags.append(tag)
        self.attributes += found.items()
        if found.get("http-equiv") == "Content-Security-Policy":
            self.policy = found["content"]
        if tag == "tr":
            self.rows.append([])
        if tag in {"td", "th"}:
            self._cell = True
            self.rows[-1].append("")

    def handle_endtag(self, tag: str) -> None:
        if tag in {"td", "th"}:
            self._cell = False

    def handle_data(self, data: str) -> None:
        self.text += data
        if self._cell:
            self.rows[-1][-1] += data


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


def page_of(file: Path) -> Page:
    return Page(file.read_text(encoding="utf-8"))


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
    page = page_of(run.path / "report.html")
    assert page.tags.count("img") == len(FIGURES)
    worker = next(row for row in page.rows if row[0] == "worker-1")
    assert worker[1:5] == ["tf3", "succeeded", "1,100", "3,300"]
    assert f"async: run {FIRST}" in page.text
    assert found["conclusion"].startswith("async with 3 workers reached an accuracy of ")
    assert found["conclusion"] in page.text
    assert "--seed=1" in page.text


def test_the_page_loads_nothing(store: Path) -> None:
    run = recorded.make(store, FIRST, steps=STEPS)
    assert report(FIRST) == 0
    html = (run.path / "report.html").read_text(encoding="utf-8")
    page = Page(html)
    assert page.policy == POLICY
    for name, value in page.attributes:
        if name in {"src", "href", "srcset", "data", "action", "background", "poster"}:
            assert re.fullmatch(r"data:image/png;base64,[A-Za-z0-9+/=]+", value), name
    # The page's policy allows this script only.
    assert re.findall(r"<script[^>]*>(.*?)</script>", html, re.DOTALL) == [SCRIPT]
    assert not {"link", "iframe", "object", "embed", "form", "base"} & set(page.tags)
    bare = re.sub(r"data:image/png;base64,[A-Za-z0-9+/=]+", "", html.replace(SCRIPT, ""))
    assert not re.search(r"innerHTML|outerHTML|insertAdjacentHTML|document\.write|eval", SCRIPT)
    assert not re.search(r"https?:|//|@import|url\(|@font-face", bare)
    assert not any(name.startswith("on") or name == "style" for name, _ in page.attributes)


@pytest.mark.usefixtures("blank")
def test_several_runs_side_by_side(store: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for number, run_id in enumerate((FIRST, SECOND)):
        recorded.make(store, run_id, steps=STEPS, seed=number + 1)
    recorded.make(store, "20260103-0000-sync-cccc", steps=STEPS, experiment="sync")
    bad = recorded.make(store, "20260101-9999-async-dddd", steps=STEPS, seed=9, state=State.FAILED)
    Path("out").mkdir()
    assert (
        report("20260101-0", SECOND, "last", "20260101-0", bad.run_id, "--output", "out/all.html")
        == 0
    )
    assert capsys.readouterr().out == "out/all.html\n"
    assert {path.name for path in Path("out/all-figures").iterdir()} >= {"loss.png", "loss.svg"}
    page = page_of(Path("out/all.html"))
    assert [row[0] for row in page.rows if row and row[0].startswith("2026")] == [
        FIRST, SECOND, "20260103-0000-sync-cccc", bad.run_id,
    ]  # fmt: skip
    (together,) = [row for row in page.rows if row[:2] == ["async", "2 of 3"]]
    middle = sum(float(row[5]) for row in page.rows if row[:1] in ([FIRST], [SECOND])) / 2
    assert float(together[2].partition(" ± ")[0]) == pytest.approx(middle, abs=1e-4)
    assert page.policy == POLICY


@pytest.mark.usefixtures("blank")
def test_of_single_runs_there_are_no_groups_and_no_intervals(store: Path) -> None:
    recorded.make(store, FIRST, steps=STEPS)
    recorded.make(store, SECOND, steps=STEPS, experiment="sync")
    assert report(FIRST, SECOND, "--output", "two.html") == 0
    text = page_of(Path("two.html")).text
    for word in ("Groups", "±", "95%", "Faint"):
        assert word not in text, word
    recorded.make(store, "20260103-0000-async-cccc", steps=STEPS, seed=2)
    assert report(FIRST, SECOND, "last", "--output", "two.html") == 0
    text = page_of(Path("two.html")).text
    for word in ("Groups", "±", "95%", "Faint"):
        assert word in text, word


@pytest.mark.usefixtures("blank")
def test_unequal_lengths_are_a_warning(store: Path) -> None:
    recorded.make(store, FIRST, steps=STEPS)
    recorded.make(store, SECOND, steps=STEPS, seed=2)
    assert report(FIRST, SECOND, "--output", "two.html") == 0
    assert "Unequal lengths" not in page_of(Path("two.html")).text
    recorded.make(store, "20260103-0000-async-cccc", steps=2 * STEPS)
    assert report(FIRST, SECOND, "last", "--output", "two.html") == 0
    text = page_of(Path("two.html")).text
    assert "Unequal lengths. The runs have different lengths (global steps: 3,300 to 6,600" in text


@pytest.mark.usefixtures("blank")
def test_labels_are_escaped_in_the_title_and_the_conclusion(store: Path) -> None:
    recorded.make(store, FIRST, steps=STEPS)
    label = "<script>alert(1)</script>"
    assert report(FIRST, "--label", label, "--output", "one.html") == 0
    html = Path("one.html").read_text(encoding="utf-8")
    assert label not in html
    for tag in ("title", "h1"):
        assert f"<{tag}>async: &lt;script&gt;alert(1)&lt;/script&gt;</{tag}>" in html
    assert f"{label}: async with 3 workers reached" in Page(html).text


@pytest.mark.usefixtures("blank")
def test_the_page_is_complete_without_its_script(store: Path) -> None:
    """The script adds the buttons; it needs a heading, an image and a caption of each figure."""
    recorded.make(store, FIRST, steps=STEPS)
    assert report(FIRST, "--output", "one.html") == 0
    html = Path("one.html").read_text(encoding="utf-8")
    assert not {"button", "dialog"} & set(Page(html).tags)
    figure = (
        r'<section class="figure">\s*<h2>[^<]+</h2>\s*<figure>\s*<div class="wide">'
        r"<img [^>]+></div>\s*<figcaption>"
    )
    assert len(re.findall(figure, html)) == len(FIGURES)


@pytest.mark.usefixtures("blank")
def test_texts_have_enough_contrast_on_light_and_on_dark(store: Path) -> None:
    """WCAG 2 AA: 4.5 for texts; 3 for lines that show where something is."""
    recorded.make(store, FIRST, steps=STEPS)
    assert report(FIRST, "--output", "one.html") == 0
    html = Path("one.html").read_text(encoding="utf-8")
    themes = re.findall(r":root \{ color-scheme: (\w+);([^}]+)\}", html)
    assert [name for name, _ in themes] == ["light", "dark"]
    for _, theme in themes:
        colours = dict(re.findall(r"--([\w-]+): (#\w+)", theme))
        for text, paper in itertools.product(("ink", "soft"), ("page", "tile", "warn-page")):
            assert contrast(colours[text], colours[paper]) >= 4.5
        assert contrast(colours["head"], colours["page"]) >= 4.5
        for line in ("accent", "warn", "rule"):
            assert contrast(colours[line], colours["page"]) >= 3
    assert "@media screen and (prefers-color-scheme: dark)" in html  # paper stays white


def contrast(one: str, two: str) -> float:
    """The contrast of two colours, by WCAG 2."""
    low, high = sorted(map(_luminance, (one, two)))
    return (high + 0.05) / (low + 0.05)


def _luminance(colour: str) -> float:
    digits = colour[1:] if len(colour) > 4 else "".join(2 * each for each in colour[1:])
    parts = [value / 255 for value in bytes.fromhex(digits)]
    linear = [x / 12.92 if x <= 0.04045 else ((x + 0.055) / 1.055) ** 2.4 for x in parts]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


@pytest.mark.usefixtures("blank")
def test_only_free_texts_may_be_broken_anywhere(store: Path) -> None:
    """On paper and on a narrow screen numbers and short terms are not broken."""
    recorded.make(store, FIRST, steps=STEPS)
    recorded.make(store, SECOND, steps=STEPS, seed=2)
    assert report(FIRST, SECOND, "--output", "two.html") == 0
    # Without the pictures: a line of a million letters takes a pattern many seconds.
    html = re.sub('data:image/[^"]*', "", Path("two.html").read_text(encoding="utf-8"))
    row = re.search(rf"<tr>(<td.*>{FIRST}</td>.*)</tr>", html)
    assert row is not None
    kinds = re.findall(r"<td( class=\"\w+\")?>", row[1])
    assert kinds == ["", ' class="text"', "", *7 * [' class="right"'], ""]
    assert "\ntd { white-space: nowrap; }\n" in html
    anywhere = re.findall(r"([^\n]*)\{[^}]*overflow-wrap: anywhere", html)
    assert {each.strip() for each in anywhere} & {"td", "th, td", "td.right"} == set()


@pytest.mark.usefixtures("blank")
def test_unknown_values_have_no_tile_and_slow_has_two_digits(store: Path) -> None:
    run = RunDir(store / FIRST)
    run.create(RunInfo(FIRST, RunSpec("async"), state=State.FAILED, collected=True))
    assert report(FIRST) == 0
    page = page_of(run.path / "report.html")
    assert page.tags.count("li") == 1
    assert "failedstate" in page.text
    assert [pace(each) for each in (3.94, 0.25, 12.6, 1674.2, None)] == [
        "3.9", "0.25", "13", "1,674", "",
    ]  # fmt: skip


def test_nothing_of_a_run_becomes_markup(store: Path) -> None:
    """Any text in a run's files is shown unchanged."""
    hostile: dict[str, Any] = {
        "experiment": HOSTILE,
        "program": HOSTILE,
        "reason": HOSTILE,
        "state": State.FAILED,
        "backend": HOSTILE,
        "args": (HOSTILE,),
        "hyperparameters": {HOSTILE: HOSTILE},
        "versions": {HOSTILE: HOSTILE},
        "provenance": {HOSTILE: HOSTILE},
        "git": {"commit": HOSTILE, "dirty": True},
        "faults": (HOSTILE,),
        "start": {"worker-1": HOSTILE},
        "gpus": (HOSTILE,),
        "cluster_file": HOSTILE,
        "tasks": ({"task": "worker-0", "node": HOSTILE, "gpus": [HOSTILE]},),
    }
    for number, run_id in enumerate((FIRST, SECOND)):
        run = recorded.make(store, run_id, steps=STEPS, **hostile)
        event = {"kind": "event", "time_unix": recorded.BEGAN_UNIX + 4}
        with run.records("worker-0").open("a", encoding="utf-8") as file:
            file.write(json.dumps({**event, "message": f"fault: {HOSTILE}{number}"}) + "\n")
            file.write(json.dumps({"kind": HOSTILE, "message": HOSTILE, "name": HOSTILE}) + "\n")
            file.write("<script>\n")
        result = {"kind": "result", "name": HOSTILE, "value": 1.0}
        recorded.write(run, "ps-0", iter([result]))
        samples = {"task": HOSTILE, "gpu": HOSTILE, "time_unix": recorded.BEGAN_UNIX + 5}
        run.gpu_samples.write_text(json.dumps({**samples, "utilisation": 0.5}) + "\n")
    claim = dict.fromkeys(("claim", "text", "kind", "where", "verdict", "why", "unit"), HOSTILE)
    Path("claims.json").write_text(
        json.dumps({"name": HOSTILE, "source": HOSTILE, "summary": HOSTILE, "claims": [claim],
                    "runs": {HOSTILE: {HOSTILE: HOSTILE}}, "excluded": {HOSTILE: HOSTILE}})
    )  # fmt: skip
    assert report(FIRST, "--verdicts", "claims.json") == 0
    assert report(FIRST, SECOND, "--verdicts", "claims.json", "--output", "both.html") == 0
    for file in (store / FIRST / "report.html", Path("both.html")):
        page = page_of(file)
        assert page.tags.count("script") == 1
        assert "<script>alert(1)</script> $x^$" in page.text
        assert "\\x1b]0;t\\x07" in page.text
        assert not {"\x1b", "\x07", "\u202e"} & set(page.text)
        assert set(page.tags) <= {
            "html", "head", "meta", "title", "style", "body", "header", "h1", "h2", "p", "main",
            "ul", "li", "b", "span", "section", "div", "table", "thead", "tbody", "tr", "th", "td",
            "figure", "img", "figcaption", "footer", "br", "strong", "script",
        }  # fmt: skip


def test_the_page_reports_missing_records(store: Path) -> None:
    run = RunDir(store / FIRST)
    facts = {"reason": "no memory", "submitted_unix": 1.0, "collected": True}
    run.create(RunInfo(FIRST, RunSpec("async"), state=State.FAILED, **facts))
    (run.path / "figures").mkdir()
    (run.path / "figures" / "loss.png").write_bytes(b"an older report's")
    assert report("last") == 0
    page = page_of(run.path / "report.html")
    assert "Why it failed: no memory." in page.text
    assert page.text.count("Not drawn: ") == len(CHARTS)
    assert list((run.path / "figures").iterdir()) == []


@pytest.mark.usefixtures("blank")
def test_damaged_records_are_reported(store: Path) -> None:
    run = recorded.make(store, FIRST, steps=STEPS, faults=("kill worker-1 after 500000 steps",))
    lines = run.records("worker-0").read_text().splitlines()
    lines[5] = "no record"
    run.records("worker-0").write_text("\n".join(lines) + "\n")
    assert report("last") == 0
    text = page_of(run.path / "report.html").text
    assert "1 records are missing" in text
    assert "Damaged lines in its records: 1, the first: tasks/worker-0.jsonl:6" in text
    assert "No record shows the requested fault: kill worker-1" in text


@pytest.mark.parametrize(
    ("arguments", "output"),
    [
        (("--output", "none/report.html"), "--output: there is no directory none"),
        (("--output", "."), "--output: . is a directory; name a file in it"),
        (
            ("--output", "/dev/null"),
            "--output: /dev/null is not a file; give a file name, such as report.html",
        ),
        (("--output", "a" * 300), "cannot be written: file name too long"),
        (("--verdicts", "none.json"), "none.json cannot be read (No such file or directory)"),
        (("--verdicts", "bad.json"), "bad.json has no verdicts"),
        (("zzz",), "no run 'zzz' in runs"),
    ],
)
def test_impossible_options(
    store: Path, capsys: pytest.CaptureFixture[str], arguments: tuple[str, ...], output: str
) -> None:
    recorded.make(store, FIRST, steps=STEPS)
    Path("bad.json").write_text('{"name": 1}')
    assert report(FIRST, *arguments) == 2
    shown = capsys.readouterr().err
    assert output in shown
    assert shown.count("\n") == 1
    assert not (store / FIRST / "report.html").exists()


def test_a_run_is_needed(store: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert report() == 2
    assert "`lab report` needs RUN" in capsys.readouterr().err


def test_figures_are_written_into_no_linked_directory(
    store: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run = recorded.make(store, FIRST, steps=STEPS)
    Path("elsewhere").mkdir()
    (run.path / "figures").symlink_to(Path("elsewhere").resolve())
    assert report("last") == 2
    assert "figures is not a directory" in capsys.readouterr().err
    assert list(Path("elsewhere").iterdir()) == []


@pytest.mark.usefixtures("blank")
def test_only_a_page_of_the_labs_is_replaced(
    store: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run = recorded.make(store, FIRST, steps=STEPS)
    Path("README.md").write_text("# Mine\n")
    assert report("last", "--output", "README.md") == 2
    assert capsys.readouterr().err == (
        "error: --output: README.md exists, and lab did not write it; name another file, or"
        " replace it with --force\n"
    )
    assert Path("README.md").read_text() == "# Mine\n"
    assert not Path("README-figures").exists()
    Path("page.html").touch()
    for _ in range(2):  # an empty file, then the page itself
        assert report("last", "--output", "page.html") == 0
    assert "Loss" in page_of(Path("page.html")).text
    assert not (run.path / "figures").exists()
    assert {path.name for path in Path("page-figures").iterdir()} >= {"loss.png", "loss.svg"}


def test_a_page_that_cannot_be_written_is_an_error(
    store: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    recorded.make(store, FIRST, steps=STEPS)

    def full(_path: Path, _data: bytes) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("lab.report.build.write_output", full)
    assert report("last") == 1
    assert (
        f"the report cannot be written to runs/{FIRST}/report.html: No space left on device; free"
        " disk space, or give a file in another directory with --output"
    ) in capsys.readouterr().err


@pytest.mark.usefixtures("blank")
def test_the_page_of_a_read_only_run_is_elsewhere(
    store: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    recorded.make(store, FIRST, steps=STEPS)
    mkdir = Path.mkdir

    def guarded(path: Path, *args: Any, **kwargs: Any) -> None:
        if store.name in path.parts:  # as the kernel would, to everybody but root
            raise OSError(30, "Read-only file system", str(path))
        mkdir(path, *args, **kwargs)

    monkeypatch.setattr(Path, "mkdir", guarded)
    assert report("last") == 1
    assert (
        f"error: the report cannot be written to runs/{FIRST}/figures: Read-only file system; give"
        " a file in another directory with --output\n"
    ) in capsys.readouterr().err
    assert report("last", "--output", "elsewhere.html") == 0
    assert Path("elsewhere-figures", "loss.png").is_file()


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
    bare = {"claim": "sync", "verdict": "OK"}
    runs = {"whole": {"1": FIRST, "2": SECOND}}
    Path("r.json").write_text(
        json.dumps({"name": "book-async", "source": "the book", "made": "now", "runs": runs,
                    "summary": "2 counted claims: 1 NOT_REPRODUCED, 1 INCONCLUSIVE",
                    "claims": [number, statement, bare], "excluded": {"a-run": "it is a copy"}})
    )  # fmt: skip
    assert report("last", "--verdicts", "r.json") == 0
    page = page_of(store / FIRST / "report.html")
    assert ["accuracy of worker 2", "the last line", "measured", "0.8894", "0.8871",
            "0.8800-0.8950", "? inconclusive: it is wide"] in page.rows  # fmt: skip
    assert ["they differ", "the last line", "qualitative", NONE, "0.8871 apart", NONE,
            "✗ not reproduced: in 0 of 8 runs"] in page.rows  # fmt: skip
    assert ["sync", NONE, NONE, NONE, NONE, NONE, "✓ ok"] in page.rows
    assert "book-async: the book. 2 counted claims: 1 NOT_REPRODUCED" in page.text
    assert "1 of the 2 evaluated runs is not on this page." in page.text
    assert "Left out: run a-run: it is a copy" in page.text


def test_other_files_are_no_verdicts(tmp_path: Path) -> None:
    file = tmp_path / "r.json"
    file.write_text('{"name": "x", "claims": [{"claim": "a", "verdict": "OK", "unit": null}]}')
    with pytest.raises(InputError, match="has no verdicts;"):
        read_verdicts(file)
    file.write_text("[" * 100_000)
    with pytest.raises(InputError, match="has no verdicts"):
        read_verdicts(file)


def marked(store: Path, *events: tuple[float, str], **changes: Any) -> tuple[Any, RunInfo]:
    run = recorded.make(store, FIRST, steps=STEPS, **changes)
    with run.records("worker-0").open("a", encoding="utf-8") as file:
        for when, message in events:
            stamp = {"kind": "event", "time_unix": recorded.BEGAN_UNIX + when, "message": message}
            file.write(json.dumps(stamp) + "\n")
    return marks_until(60.0, run), run.read()


def marks_until(end: float, run: RunDir) -> Any:
    """The marks of a run of which something is known until then."""
    info, records = run.read(), records_frame(run)
    steps, _ = steps_of(info, records)
    last = Mark("worker-0", "fault", "the last one", end)
    return marks_of(Trace("one", "async", info, steps, samples_of(info, []), (last,)), records)


def test_a_fault_is_marked_until_its_end(tmp_path: Path) -> None:
    pause, slow = "pause:2s worker-0 after 5s", "slow:0.5,30s worker-0"
    marks, info = marked(
        tmp_path,
        (5.0, f"fault: {pause}"), (7.1, f"fault over: {pause}"),
        (9.0, f"fault: {pause}"), (11.2, f"fault over: {pause}"),
        (10.0, f"fault: {slow}"), (50.0, "fault: kill worker-0"),
        faults=(pause, slow, "kill worker-1 after 9 steps"),
    )  # fmt: skip
    assert [(mark.begin, mark.end) for mark in marks] == [
        (pytest.approx(5), pytest.approx(7.1)), (pytest.approx(9), pytest.approx(11.2)),
        (pytest.approx(10), pytest.approx(40)), (pytest.approx(50), None),
    ]  # fmt: skip
    assert [mark.stands_still for mark in marks] == [True, True, False, False]
    assert not_done(info, marks) == ["kill worker-1 after 9 steps"]


def test_late_starts_and_new_starts_are_marked(tmp_path: Path) -> None:
    run = recorded.make(tmp_path, FIRST, steps=STEPS, start={"worker-2": "after 500 steps"})
    again = {"kind": "start", "attempt": 1, "time_unix": recorded.BEGAN_UNIX + 9}
    with run.records("worker-0").open("a", encoding="utf-8") as file:
        file.write(json.dumps(again) + "\n")
    late, new = marks_until(60.0, run)
    assert (late.task, late.what) == ("worker-2", "late start")
    assert late.begin == pytest.approx(3.0, abs=0.01)  # where its first step began
    assert (new.task, new.what, new.begin) == ("worker-0", "new start", pytest.approx(9))


def groups_of(store: Path, *runs: Mapping[str, Any]) -> list[str]:
    """The group of each of these runs; `source` is the text of its own program."""
    made = []
    for number, changes in enumerate(runs):
        given = dict(changes)
        source = given.pop("source", "")
        own = {"own": True, "program": "own.py", "hyperparameters": {}} if source else {}
        run_id = f"20260101-{number:04}-async-aaaa"
        run = recorded.make(store, run_id, steps=60, **{**own, **given})
        if source:
            run.program.mkdir()
            (run.program / "own.py").write_text(source)
            (run.program / "out.txt").write_text(f"a result of {run_id}")
        made.append(run)
    found = [each.trace.group for each in read_runs(made, lambda _: None, print)]
    shutil.rmtree(store)
    return found


def test_runs_that_differ_by_their_seed_are_one_group(tmp_path: Path) -> None:
    store = tmp_path / "runs"
    half, one = ({"hyperparameters": {"learning_rate": rate}} for rate in (0.5, 1))
    other_seed = {"hyperparameters": {"learning_rate": 0.5, "seed": 2}, "args": ("--seed", "2")}
    assert groups_of(store, half, other_seed) == ["async", "async"]
    assert groups_of(store, half, one, {"experiment": "sync"}) == [
        "async, learning_rate 0.5", "async, learning_rate 1", "sync",
    ]  # fmt: skip
    slowed = {"faults": ("slow:0.5 worker-0",)}
    assert groups_of(store, {}, slowed) == ["async", "async, faults slow:0.5 worker-0"]


def test_runs_of_an_own_program_are_one_group_if_source_and_arguments_are_the_same(
    tmp_path: Path,
) -> None:
    store = tmp_path / "runs"
    low, high = ({"source": "1", "args": (f"--lr={rate}", "--seed=1")} for rate in (0.1, 1))
    assert groups_of(store, low, high) == [
        "async, other arguments --lr=0.1", "async, other arguments --lr=1",
    ]  # fmt: skip
    assert groups_of(store, low, {**low, "args": ("--lr=0.1", "--seed", "2")}) == ["async"] * 2
    first, second = groups_of(store, low, {**low, "source": "2"})
    assert first.startswith("async, program ")
    assert first != second
    unknown = {"own": True, "program": "own.py"}  # another client's run has no copy of its source
    first, second = groups_of(store, unknown, unknown)
    assert first != second
    registered, own = groups_of(store, {}, {"source": "1"})
    assert registered != own


def test_a_config_is_the_same_by_its_content(tmp_path: Path) -> None:
    store = tmp_path / "runs"
    one = {"cluster_file": "a/one.yaml", "cluster_sha256": "1" * 64}
    moved, edited = {**one, "cluster_file": "b/x.yaml"}, {**one, "cluster_sha256": "2" * 64}
    other = {"cluster_file": "b/two.yaml", "cluster_sha256": "2" * 64}
    assert groups_of(store, one, moved) == ["async", "async"]
    assert groups_of(store, one, other) == ["async, config one.yaml", "async, config two.yaml"]
    assert groups_of(store, one, edited) == [
        f"async, config {'1' * 12}", f"async, config {'2' * 12}",
    ]  # fmt: skip


def test_the_command_makes_the_same_run_again() -> None:
    info = RunInfo(
        "x",
        RunSpec(
            "async",
            args=("--seed=1",),
            start={"worker-2": "after 500 steps"},
            faults=("kill worker-1", "cut:5s tf2"),
            on_failure=OnFailure.RESTART,
            restarts=3,
            ready_s=READY_S,
        ),
        backend="local",
        cluster_file="clusters/book.yaml",
    )
    assert command(info) == (
        "lab run async --cluster clusters/book.yaml --backend local --start 'worker-2: after 500"
        " steps' --fault 'kill worker-1; cut:5s tf2' --on-failure restart:3 --seed=1"
    )
    mine = replace(info.spec, own=True, program="mine.py", start={}, faults=(),
                   on_failure=OnFailure.FAIL, ready_s=0)  # fmt: skip
    own = replace(info, spec=mine, cluster_file="")
    assert command(own) == "lab run mine.py --backend local -- --seed=1"


@pytest.mark.parametrize(
    ("experiment", "argv"),
    [
        ("async", ("--seed=3", "--epochs=2", "--epochs=5", "--log_device_placement")),
        ("staleness", ("--seed=3", "--global_steps=300", "--learning_rate=1", "--model=mlp",
                       "--learning_rate=0.01")),
        ("multiworker", ("--seed=1", "--strategy=multiworker", "--model=mlp", "--epochs", "3",
                         "--later", "word", "--epochs=two")),
        ("hello", ()),
    ],
)  # fmt: skip
def test_the_command_parses_into_the_same_run(experiment: str, argv: tuple[str, ...]) -> None:
    info = RunInfo(
        "x",
        RunSpec(
            experiment,
            args=argv,
            stall_s=90.5,
            max_time_s=600,
            ready_s=7,
            data_dir="/lab/data/mine",
            resumed_from=FIRST,
            on_failure=OnFailure.RESTART,
            restarts=2,
            start={"worker-1": "10s"},
            faults=("pause:2s worker-0 after 5s",),
        ),
        backend="compose",
    )
    lab, run, *arguments = shlex.split(command(info))
    assert (lab, run) == ("lab", "run")
    texts = check("run", run_command, arguments)
    wanted = EXPERIMENTS[experiment]
    again = (*wanted.args, *json.loads(texts.pop("rest")))
    assert hyperparameters(wanted, again) == hyperparameters(wanted, argv)
    assert [word for word in again if word in ("--later", "word", "--epochs=two")] == [
        word for word in argv if word in ("--later", "word", "--epochs=two")
    ]
    assert not set(arguments).intersection(wanted.args)
    limits = [duration(texts.pop(name)) for name in ("stall", "max_time", "ready_within")]
    assert limits == [90.5, 600, 7]
    assert texts == {
        "experiment": experiment, "backend": "compose", "data_dir": "data/mine", "resume": FIRST,
        "on_failure": "restart:2", "start": "worker-1: 10s", "fault": "pause:2s worker-0 after 5s",
    }  # fmt: skip


@pytest.mark.parametrize("regex", [r"it (?P<step>\d+)'s", r"- loss (?P<loss>\S+)", "--(?P<step>5)"])
def test_the_command_has_the_expression_of_an_own_program(regex: str) -> None:
    info = RunInfo("x", RunSpec("mine", program="mine.py", own=True, record=regex))
    texts = check("run", run_command, shlex.split(command(info))[2:])
    assert texts["record"] == regex


def test_the_command_of_a_printed_program_is_complete() -> None:
    info = RunInfo(
        "x",
        RunSpec(
            "book",
            own=True,
            folder="programs",
            program="book.py",
            listing=True,
            faithful=True,
            mend=True,
            args=("--x", "1"),
        ),
        plan={"tensorflow": TF1.tensorflow},
    )
    assert command(info) == (
        "lab run programs/book.py --listing --faithful --mend --tensorflow 2.15 -- --x 1"
    )
    texts = check("run", run_command, shlex.split(command(info))[2:])
    assert json.loads(texts["rest"]) == ["--x", "1"]
    plain = RunInfo(
        "x",
        RunSpec("coordinator", on_failure=OnFailure.RESTART, restarts=RESTARTS, ready_s=READY_S),
    )
    assert command(plain) == "lab run coordinator"


def test_the_provenance_shows_common_settings() -> None:
    one, two = (
        RunInfo(
            name, RunSpec("async"), seed=seed, provenance={"kernel": "Linux 6"}, started_unix=1e308
        )
        for name, seed in (("a", 1), ("b", 2))
    )
    found = provenance({each.run_id: each for each in (one, two)}, {})
    assert found["seed"] == {"a": "1", "b": "2"}
    assert found["environment"] == "kernel Linux 6"
    assert "hyperparameters" not in found
    assert "git commit" not in found
    assert "started" not in found  # no calendar knows it


@pytest.mark.usefixtures("blank")
def test_the_hyperparameters_have_the_recorded_rate(store: Path) -> None:
    given = {"epochs": 2, "global_steps": 0, "seed": 1}
    run = recorded.make(store, FIRST, steps=STEPS, hyperparameters=given)
    with run.records("worker-1").open("a", encoding="utf-8") as file:
        ready = {"kind": "event", "time_unix": recorded.BEGAN_UNIX + 1, "learning_rate": 0.01}
        file.write(json.dumps(ready) + "\n")
    assert report("last") == 0
    page = page_of(run.path / "report.html")
    assert ["hyperparameters", "epochs 2, learning_rate 0.01"] in page.rows
    typed = RunInfo(
        "x", RunSpec("async"), hyperparameters={"learning_rate": 0.5, "global_steps": 7}
    )
    assert (
        provenance({typed.run_id: typed}, {"x": 0.01})["hyperparameters"]
        == "learning_rate 0.5, global_steps 7"
    )


@pytest.mark.usefixtures("blank")
def test_numbers_of_claims_are_those_of_the_terminal(store: Path) -> None:
    recorded.make(store, FIRST, steps=STEPS)
    values = (0.88651, 82_500.0, 99.5, 3.0, 10_678.1, math.nan)
    shown = ["0.8865", "82,500", "99.5000", "3", "10,678", "nan"]
    assert [compared(value) for value in values] == shown
    result = Result("c", "words", "measured", "here", 82_499.0, 10_900.0,
                    Interval(10_678.1, 11_113.9), "", {1: 10_900.0}, Verdict.OK, "")  # fmt: skip
    Path("r.json").write_text(json.dumps({"name": "x", "claims": [asdict(result)]}))
    assert report("last", "--verdicts", "r.json") == 0
    (row,) = [each for each in page_of(store / FIRST / "report.html").rows if "words" in each]
    assert row[3:6] == ["82,499", *view.ours(result)]


def test_huge_numbers_are_short_in_tables(tmp_path: Path) -> None:
    (shown,) = read_runs([recorded.make(tmp_path, FIRST, steps=STEPS)], lambda _: None, print)
    info = RunInfo("r1", RunSpec("async"), cluster={"worker": ["tf1:2222"]})
    huge = TaskProgress("worker-0", loss=1e308, accuracy=-1e308)
    summary = summary_of(info, {}, {"worker-0": huge})
    (row,) = [
        each
        for each in Page(page([replace(shown, summary=summary)], [], None)).rows
        if each[0] == "worker-0"
    ]
    assert row[5:7] == ["1e+308", "-1e+308"]


def test_a_mean_has_an_interval_from_two_runs_on() -> None:
    assert mean([0.88, 0.9], "{:.4f}".format) == "0.8900 ± 0.1271"
    assert mean([0.88, None], "{:.4f}".format) == "0.8800"
    assert mean([None], "{:.4f}".format) == ""
