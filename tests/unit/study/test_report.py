"""`lab report`: the content of the page, the place of its files, and its escaping."""

from __future__ import annotations

import json
import re
import shlex
from base64 import b64encode
from collections.abc import Iterator, Mapping
from dataclasses import replace
from fnmatch import fnmatch
from hashlib import sha256
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest
from syrupy.assertion import SnapshotAssertion

from lab.base.command_line import read_arguments
from lab.base.formatting import figure
from lab.base.statistics import Interval
from lab.cli import main
from lab.protocol.experiments.experiment import RESTARTS, OnFailure, hyperparameters
from lab.protocol.experiments.registry import EXPERIMENTS
from lab.protocol.runtimes import HERITAGE
from lab.protocol.volume import RunSpec
from lab.protocol.volume.run_spec import PLAIN
from lab.protocol.volume.states import State
from lab.runner.store.dataframe import records_frame
from lab.runner.store.directory import RunDir
from lab.runner.store.measures import OF_RUN
from lab.runner.store.run_info import RunInfo
from lab.runner.store.settings import command
from lab.runner.store.summarize import summarize
from lab.study.plots.charts import CHARTS
from lab.study.plots.data import Mark, Trace, tidy
from lab.study.report import build
from lab.study.report.loader import marks_of, read_runs
from lab.study.report.page import provenance
from lab.study.reproduce.verdicts import Evaluation, Result, Verdict, ours
from lab.verbs.run import command as run_command
from tests.support import recorded
from tests.support.cli import replace_backends
from tests.support.fakes import raising
from tests.support.specs import HOSTILE

FIRST, SECOND, THIRD = (f"2026010{n}-0000-async-aaaa" for n in (1, 2, 3))
SCRIPT = Path(build.__file__).with_name("full_screen.js").read_text(encoding="utf-8")
POLICY = (
    "default-src 'none'; style-src 'unsafe-inline';"
    f" script-src 'sha256-{b64encode(sha256(SCRIPT.encode()).digest()).decode()}'; img-src data:"
)
STEPS = 1100
NONE = "–"  # noqa: RUF001  (as tables have it)
FIGURES = ("loss", "progress", "staleness", "throughput")


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
    replace_backends(monkeypatch)
    # Few pixels are enough here, and take a fraction of the time.
    monkeypatch.setattr("lab.study.plots.style._DPI", 30)
    return tmp_path / "runs"


@pytest.fixture
def blank(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("lab.study.plots.style._saved", lambda *_, **__: b"\x89PNG")


def report(*arguments: str) -> int:
    return main(["report", *arguments])


def html_of(*arguments: str) -> str:
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
    label = "<script>alert(1)</script>"
    assert report("last", "--json", "--label", label) == 0
    output = capsys.readouterr()
    found = json.loads(output.out)
    assert found["report"] == f"runs/{FIRST}/report.html"
    names = {Path(file).name for file in found["figures"]}
    assert names == {f"{name}.{ending}" for name in FIGURES for ending in ("png", "svg")}
    assert all((run.path / "figures" / name).stat().st_size > 1000 for name in names)
    assert "Loss: " in output.err
    html = (run.path / "report.html").read_text(encoding="utf-8")
    page = Page(html)
    assert label not in html
    for tag in ("title", "h1"):
        assert f"<{tag}>async: &lt;script&gt;alert(1)&lt;/script&gt;</{tag}>" in html
    # The script adds the buttons; it needs a heading, an image and a caption of each figure.
    figure = (
        r'<section class="figure">\s*<h2>[^<]+</h2>\s*<figure>\s*<div class="wide">'
        r"<img [^>]+></div>\s*<figcaption>"
    )
    assert html.count("<img ") == len(re.findall(figure, html)) == len(FIGURES)
    boxes = re.findall(r'<div class="task( service)?">([a-z]+-[0-9])<small>', html)
    assert boxes == [(" service", "ps-0"), *(("", f"worker-{n}") for n in range(3))]
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
    for word in ("Groups", "±"):
        assert (word in page.text) is ("repeat" in name), word
    assert ("Unequal lengths" in page.text) is ("unequal" in name)
    assert [line.strip() for line in page.text.splitlines() if line.strip()] == snapshot


@pytest.mark.usefixtures("blank")
def test_a_number_has_the_same_name_and_value_as_in_lab_compare(
    store: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for run_id in (FIRST, SECOND):
        recorded.make(store, run_id, steps=STEPS)
    html = html_of(FIRST)
    capsys.readouterr()
    assert main(["compare", FIRST, SECOND, "--json"]) == 0
    rows = json.loads(capsys.readouterr().out)["figures"]
    compared = {row["name"]: figure(row["values"][0], row["unit"]) for row in rows}
    tiles = re.findall(r"<li><b>(.*?)</b><span>(.*?)</span></li>", html)
    shown = {name: text for text, name in tiles}
    # `lab compare` has one speed, and these two beside the ids of the runs.
    assert shown.keys() - compared.keys() == {"state", "every update counted", "global steps/s"}
    both = shown.keys() & compared.keys()
    assert len(both) > 5
    assert {name: shown[name] for name in both} == {name: compared[name] for name in both}
    columns = next(row for row in Page(html_of(FIRST, SECOND)).rows if row[:2] == ["run", "group"])
    own = {"run", "group", "state", "seed", "counted"}
    assert {*columns} - own <= {measure.label for measure in OF_RUN}


@pytest.mark.usefixtures("blank")
def test_a_success_without_a_worker_names_it_in_amber(store: Path) -> None:
    run = recorded.make(store, FIRST, steps=STEPS)
    status = json.loads(run.status("worker-1").read_text()) | {"state": "failed"}
    run.status("worker-1").write_text(json.dumps(status))
    html = html_of(FIRST)
    assert '<li class="warn"><b>succeeded without worker-1</b>' in html
    assert "It succeeded without worker-1." in html


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
    claim = Result(HOSTILE, HOSTILE, "measured", HOSTILE, 1.0, 1.0, None, HOSTILE, {},
                   Verdict.OK, HOSTILE)  # fmt: skip
    claims = Evaluation(name=HOSTILE, source=HOSTILE, summary=HOSTILE, fitted={}, claims=[claim],
                        runs={HOSTILE: {1: HOSTILE}}, excluded={HOSTILE: HOSTILE})  # fmt: skip
    Path("claims.json").write_text(json.dumps(claims.json))
    usual = {"html", "head", "meta", "title", "body", "header", "h1", "h2", "p", "main", "ul", "li",
             "b", "span", "section", "div", "table", "thead", "tbody", "tr", "th", "td", "figure",
             "img", "figcaption", "footer", "br", "strong", "small"}  # fmt: skip
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


def test_impossible_options(store: Path, capsys: pytest.CaptureFixture[str]) -> None:
    recorded.make(store, FIRST, steps=STEPS)
    Path("elsewhere").mkdir()
    Path("linked-figures").symlink_to(Path("elsewhere").resolve())
    Path("bad.json").write_text('{"name": 1}')
    Path("deep.json").write_text("[" * 100_000)
    for arguments, output in (
        (("--output", "linked.html"), "linked-figures is not a directory"),
        (("--verdicts", "bad.json"), "bad.json cannot be read"),
        (("--verdicts", "deep.json"), "deep.json cannot be read"),
    ):
        assert report(FIRST, *arguments) == 2
        (shown,) = capsys.readouterr().err.splitlines()
        assert output in shown
    assert not (store / FIRST / "report.html").exists()
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
    monkeypatch.setattr(
        build,
        "write_output",
        raising(OSError(28, "No space left on device", str(Path("runs", FIRST, "report.html")))),
    )  # the tests may run as root
    assert report("last") == 1
    assert capsys.readouterr().err.splitlines()[-1] == (
        f"error: the report cannot be written to runs/{FIRST}/report.html: No space left on device;"
        " free disk space, or choose a file in another directory with --output"
    )


@pytest.mark.usefixtures("blank")
def test_the_verdicts_are_beside_the_source(store: Path) -> None:
    recorded.make(store, FIRST, steps=STEPS)
    number = Result("accuracy", "accuracy of worker 2", "measured", "the last line", 0.8894, 0.8871,
                    Interval(0.88, 0.895), "", {1: 0.8871}, Verdict.INCONCLUSIVE,
                    "it is wide")  # fmt: skip
    changes = {"text": "they differ", "kind": "qualitative", "printed": None, "unit": "apart",
               "interval": None, "why": "in 0 of 8 runs"}  # fmt: skip
    statement = replace(number, verdict=Verdict.NOT_REPRODUCED, **changes)
    # Its numbers are those of the terminal.
    result = Result("c", "words", "measured", "here", 82_499.0, 10_900.0,
                    Interval(10_678.1, 11_113.9), "", {1: 10_900.0}, Verdict.OK, "")  # fmt: skip
    found = Evaluation(
        name="book-async", source="the book", made="now", fitted={},
        summary="1 measured number: 1 INCONCLUSIVE; 1 statement: 1 NOT_REPRODUCED",
        claims=[number, statement, result], runs={"whole": {1: FIRST, 2: SECOND}},
        excluded={"a-run": "it is a copy"},
    )  # fmt: skip
    Path("r.json").write_text(json.dumps(found.json))
    page = Page(html_of("last", "--verdicts", "r.json"))
    for row in (
        ["accuracy of worker 2", "the last line", "measured", "0.8894", "0.8871", "0.8800-0.8950",
         "? inconclusive: it is wide"],
        ["they differ", "the last line", "qualitative", NONE, "0.8871 apart", NONE,
         "✗ not reproduced: in 0 of 8 runs"],
        ["words", "here", "measured", "82,499", *ours(result), "✓ ok"],
    ):  # fmt: skip
        assert row in page.rows
    assert "book-async: the book. 1 measured number: 1 INCONCLUSIVE; 1 st" in page.text
    assert "1 of the 2 evaluated runs is not on this page." in page.text
    assert "Left out: run a-run: it is a copy" in page.text


def add(run: RunDir, task: str, after_s: float, **fields: object) -> None:
    append(run, task, {"time_unix": recorded.BEGAN_UNIX + after_s, **fields})


def marks_until(end: float, run: RunDir) -> Any:
    info, records = run.read(), records_frame(run)
    data, _ = tidy(info, records, ())
    last = Mark("worker-0", "fault", "the last one", end)
    return marks_of(Trace("one", "async", info, data, (last,)), records)


def test_a_fault_is_marked_until_its_end(tmp_path: Path) -> None:
    pause, slow = "pause:2s worker-0 after 5s", "slow:0.5,30s worker-0"
    run = recorded.make(tmp_path, FIRST, steps=1100,
                        faults=(pause, slow, "kill worker-1 after 9 steps"))  # fmt: skip
    for when, message in (
        (5.0, f"fault: {pause}"), (7.1, f"fault over: {pause}"),
        (9.0, f"fault: {pause}"), (11.2, f"fault over: {pause}"),
        (10.0, f"fault: {slow}"), (50.0, "fault: kill worker-0"),
    ):  # fmt: skip
        add(run, "worker-0", when, kind="event", message=message)
    marks = marks_until(60.0, run)
    assert [(mark.begin, mark.end) for mark in marks] == [
        (pytest.approx(5), pytest.approx(7.1)),
        (pytest.approx(9), pytest.approx(11.2)),
        (pytest.approx(10), pytest.approx(40)),
        (pytest.approx(50), None),
    ]
    assert summarize(run).ineffective_faults == [slow, "kill worker-1 after 9 steps"]


def test_a_kill_lasts_until_the_program_runs_again(tmp_path: Path) -> None:
    run = recorded.make(tmp_path, FIRST, steps=1100, faults=("kill worker-1 after 9 steps",))
    add(run, "worker-1", 4, kind="event", message="fault: kill worker-1 after 9 steps")
    for task, when in (("worker-1", 3), ("worker-0", 5), ("worker-1", 6)):
        add(run, task, when, kind="start", attempt=1 + (when > 5))
    kill = next(mark for mark in marks_until(60.0, run) if mark.what == "fault")
    assert (kill.begin, kill.end) == (pytest.approx(4), pytest.approx(6))


def test_late_starts_and_new_starts_are_marked(tmp_path: Path) -> None:
    run = recorded.make(tmp_path, FIRST, steps=1100, start={"worker-2": "after 500 steps"})
    add(run, "worker-0", 9, kind="start", attempt=1)
    late, new = marks_until(60.0, run)
    assert (late.task, late.what) == ("worker-2", "late start")
    assert late.begin == pytest.approx(3.0, abs=0.01)  # where its first step began
    assert (new.task, new.what, new.begin) == ("worker-0", "new start", pytest.approx(9))


@pytest.mark.usefixtures("blank")
def test_a_diverged_run_is_not_in_the_mean_accuracy(store: Path) -> None:
    recorded.make(store, FIRST)
    diverged = recorded.make(store, SECOND, seed=2)
    append(diverged, "worker-0", '{"kind":"step","seq":99999,"local_step":9999,"loss":NaN}')
    page = Page(html_of(FIRST, SECOND))
    (row,) = (row for row in page.rows if "2 of 2" in row)
    runs = read_runs([RunDir(store / run_id) for run_id in (FIRST, SECOND)], lambda _: None)
    (known,) = (run.accuracy for run in runs if run.accuracy is not None)
    assert float(row[2]) == pytest.approx(known, abs=1e-4)


HALF = {"hyperparameters": {"learning_rate": 0.5}}
CONFIG = {"cluster_file": "a/one.yaml", "cluster_sha256": "1" * 64}
LOW = {"source": "1", "args": ("--lr=0.1", "--seed=1")}
UNKNOWN = {"own": True, "program": "own.py"}  # another client's run has no copy of its source


@pytest.mark.parametrize(
    ("runs", "groups"),
    [
        ([HALF, {"hyperparameters": {"learning_rate": 0.5, "seed": 2}, "args": ("--seed", "2")}],
         ["async"] * 2),
        ([HALF, {"hyperparameters": {"learning_rate": 1}}, {"experiment": "sync"}],
         ["async, learning_rate 0.5", "async, learning_rate 1", "sync"]),
        ([{}, {"faults": ("slow:0.5 worker-0",)}], ["async", "async, fault slow:0.5 worker-0"]),
        # An argument counts, even if `run.json` has no hyperparameter for it.
        ([{"args": ("--epochs=1",), "hyperparameters": {}},
          {"args": ("--epochs=2",), "hyperparameters": {}}],
         ["async, other arguments --epochs=1", "async, other arguments --epochs=2"]),
        # Own programs: the source and the arguments count.
        ([LOW, {**LOW, "args": ("--lr=1", "--seed=1")}],
         ["async, other arguments --lr=0.1", "async, other arguments --lr=1"]),
        ([LOW, {**LOW, "args": ("--lr=0.1", "--seed", "2")}], ["async"] * 2),
        ([LOW, {**LOW, "source": "2"}], ["async, program *", "async, program ?*"]),
        ([UNKNOWN, UNKNOWN], ["*", "?*"]),
        ([{}, {"source": "1"}], ["*", "?*"]),
        # A config is the same by its content.
        ([CONFIG, {**CONFIG, "cluster_file": "b/x.yaml"}], ["async"] * 2),
        ([CONFIG, {"cluster_file": "b/two.yaml", "cluster_sha256": "2" * 64}],
         ["async, config one.yaml", "async, config two.yaml"]),
        ([CONFIG, {**CONFIG, "cluster_sha256": "2" * 64}],
         [f"async, config {'1' * 12}", f"async, config {'2' * 12}"]),
    ],
)  # fmt: skip
def test_runs_that_differ_by_their_seed_are_one_group(
    tmp_path: Path, runs: list[Mapping[str, Any]], groups: list[str]
) -> None:
    made = []
    for number, changes in enumerate(runs):
        given = dict(changes)
        source = given.pop("source", "")
        own = {"own": True, "program": "own.py", "hyperparameters": {}} if source else {}
        run_id = f"20260101-{number:04}-async-aaaa"
        run = recorded.make(tmp_path, run_id, steps=60, **{**own, **given})
        if source:
            run.program.mkdir()
            (run.program / "own.py").write_text(source)
            (run.program / "out.txt").write_text(f"a result of {run_id}")
        made.append(run)
    found = [each.trace.group for each in read_runs(made, lambda _: None)]
    assert all(map(fnmatch, found, groups)), found
    assert len(set(found)) == len(set(groups))


ALL_OPTIONS = {
    "stall_s": 90.5, "max_time_s": 600, "data_dir": "/lab/data/mine",
    "resumed_from": FIRST, "on_failure": OnFailure.RESTART, "restarts": 2,
    "start": {"worker-1": "10s"}, "faults": ("pause:2s worker-0 after 5s",),
}  # fmt: skip
OWN = {"own": True, "program": "mine.py"}
SPECS = {
    "several faults": RunSpec("async", args=("--seed=1",), faults=("kill worker-1", "cut:5s tf2"),
                              start={"worker-2": "after 500 steps"}),
    "a repeated flag": RunSpec("async", args=("--seed=3", "--epochs=2", "--epochs=5",
                                              "--log_device_placement"), **ALL_OPTIONS),
    "staleness": RunSpec("staleness", args=("--seed=3", "--global_steps=300", "--learning_rate=1",
                                            "--model=mlp", "--learning_rate=0.01"), **ALL_OPTIONS),
    "words of no flag": RunSpec(
        "multiworker", args=("--seed=1", "--strategy=multiworker", "--model=mlp", "--epochs", "3",
                             "--later", "word", "--epochs=two"), **ALL_OPTIONS),
    "the usual policy": RunSpec("coordinator", on_failure=OnFailure.RESTART, restarts=RESTARTS),
    "an own program": RunSpec("mine", args=("--seed=1",), **OWN),
    "quotes": RunSpec("mine", record=r"it (?P<step>\d+)'s", **OWN),
    "a listing": RunSpec("book", own=True, folder="programs", program="book.py", listing="mend",
                         args=("--x", "1")),
}  # fmt: skip


def test_the_command_makes_the_same_run_again(snapshot: SnapshotAssertion) -> None:
    made = {}
    for name, spec in SPECS.items():
        plan = {"runtime": HERITAGE.name} if spec.listing else None
        info = RunInfo("x", spec, backend="local", cluster_file="a/book.yaml", plan=plan)
        made[name] = command(info)
        lab, run, *arguments = shlex.split(made[name])
        assert (lab, run) == ("lab", "run")
        values = read_arguments("run", run_command, arguments)
        assert values.get("record", "") == spec.record
        if not spec.own:
            wanted = EXPERIMENTS[spec.experiment]
            again = (*wanted.args, *values["args"])
            assert hyperparameters(wanted, again) == hyperparameters(wanted, spec.args)
            assert not set(arguments).intersection(wanted.args)
    assert made == snapshot


def test_the_command_repeats_a_plain_listing() -> None:
    spec = RunSpec("book", own=True, program="book.py", listing=PLAIN)
    _, _, *arguments = shlex.split(command(RunInfo("x", spec, plan={"runtime": HERITAGE.name})))
    assert read_arguments("run", run_command, arguments)["listing"] == PLAIN


def test_the_provenance_is_what_compare_describes(tmp_path: Path) -> None:
    """With the command, the start, and the learning rate that the records have."""
    made = [
        recorded.make(tmp_path, run_id, steps=60, seed=seed, provenance={"kernel": "Linux 6"},
                      hyperparameters={"epochs": 2, **rate}, started_unix=1_795_000_000.0)
        for run_id, seed, rate in ((FIRST, 1, {}), (SECOND, 2, {"learning_rate": 0.5}))
    ]  # fmt: skip
    for run in made:
        add(run, "worker-1", 1, kind="event", learning_rate=0.01)
    found = provenance(read_runs(made, lambda _: None))
    given = {name: found[name] for name in ("learning_rate", "epochs", "kernel (tasks)", "started")}
    assert given == {
        "learning_rate": {FIRST: "0.01", SECOND: "0.5"}, "epochs": "2",
        "kernel (tasks)": "Linux 6", "started": "2026-11-18 11:06:40 UTC",
    }  # fmt: skip
    assert found["seed"] == {FIRST: "1", SECOND: "2"}
    assert found["command"] == {run.run_id: command(run.read()) for run in made}
