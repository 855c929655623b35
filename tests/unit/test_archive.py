"""`lab export`, `lab import`, and the runs that `lab report` and `lab compare` accept."""

from __future__ import annotations

import errno
import io
import json
import os
import re
import shutil
import stat
import subprocess
import sys
import zipfile
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from benchmarks import recorded
from lab import api, console
from lab.cli import main
from lab.errors import InputError, LabError
from lab.run import archive, sources
from lab.run.discovery import find, locate
from lab.run.prepare import check_resumable
from lab.run.recovery import collect_one
from lab.run.status import RunStatus
from lab.run.store import RunDir, find_run
from lab.task.protocol.experiments import EXPERIMENTS
from lab.task.protocol.states import State

ROOT = Path(__file__).parents[2]
RUN, OTHER = "20260101-0000-async-aaaa", "20260102-0000-async-bbbb"
Damage = Callable[[dict[str, bytes]], None]


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("LAB_RUNS_DIR", raising=False)
    for module in ("report", "compare"):
        monkeypatch.setattr(f"lab.service.{module}.backends", list)
    monkeypatch.setattr("lab.plots.style._saved", lambda *_, **__: b"\x89PNG")
    recorded.make(tmp_path / "runs", RUN, steps=60)
    return tmp_path


def exported(*more: str) -> Path:
    assert main(["export", RUN, *more]) == 0
    return Path(f"{RUN}{archive.SUFFIX}")


def members(file: Path) -> dict[str, bytes]:
    with zipfile.ZipFile(file) as source:
        return {name: source.read(name) for name in source.namelist()}


def test_a_run_comes_back(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (here / f"runs/{RUN}/checkpoints").mkdir()
    (here / f"runs/{RUN}/checkpoints/model").write_bytes(b"x" * 1000)
    (here / f"runs/{RUN}/secret.txt").write_text("not part of a run")
    (here / f"runs/{RUN}/logs").mkdir(exist_ok=True)
    (here / f"runs/{RUN}/logs/worker-0.log").symlink_to("/etc/passwd")
    exported()
    output = capsys.readouterr()
    assert output.out == f"{RUN}.lab.zip\n"
    assert "add them with --all" in output.err
    assert "logs/worker-0.log is not a regular file" in output.err
    names = members(here / f"{RUN}.lab.zip")
    assert {f"{RUN}/run.json", f"{RUN}/tasks/worker-0.jsonl"} <= names.keys()
    assert not [name for name in names if "checkpoints" in name or "secret" in name]
    assert main(["import", f"{RUN}.lab.zip", "--runs-dir", "other", "--json"]) == 0
    (found,) = json.loads(capsys.readouterr().out)
    assert found == {"run_id": RUN, "path": f"other/{RUN}", "new": True}
    run = RunDir(here / "other" / RUN)
    info = run.read()
    assert info.imported
    assert info.collected
    assert info.project == RunDir(here / "runs" / RUN).read().project
    assert run.records("worker-0").read_bytes() == names[f"{RUN}/tasks/worker-0.jsonl"]
    assert [path.name for path in (here / "other").iterdir()] == [RUN]


def test_the_same_run_gives_the_same_bytes(here: Path) -> None:
    first = exported().read_bytes()
    assert exported().read_bytes() == first  # replaced without --force: it is the same run's


def test_all_and_json(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (here / f"runs/{RUN}/files").mkdir()
    (here / f"runs/{RUN}/files/weights.bin").write_bytes(bytes(1000))
    file = exported("--json")
    without = json.loads(capsys.readouterr().out)
    assert (without["left_out"], without["left_out_bytes"]) == (1, 1000)
    assert without["file"] == str(file)
    assert without["bytes"] == file.stat().st_size
    exported("--all", "--json")
    assert json.loads(capsys.readouterr().out)["left_out"] == 0
    assert f"{RUN}/files/weights.bin" in members(file)


def test_export_replaces_no_other_file(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    recorded.make(here / "runs", OTHER, steps=60)
    Path("mine.txt").write_text("mine")
    exported()
    assert main(["export", RUN, "--output", "mine.txt"]) == 2
    assert main(["export", OTHER, "--output", f"{RUN}.lab.zip"]) == 2
    assert f"is the archive of another run, {RUN}" in capsys.readouterr().err
    assert main(["export", RUN, "-o", "mine.txt", "--force"]) == 0
    assert zipfile.is_zipfile("mine.txt")


def test_a_run_under_way_is_not_exported(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run = RunDir(here / "runs" / RUN)
    run.write(replace(run.read(), state=State.TRAINING))
    assert main(["export", RUN]) == 2
    assert "has not ended: it is training" in capsys.readouterr().err
    assert not list(here.glob("*.zip"))


def test_import_twice_and_other_content(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = exported()
    assert main(["import", str(file)]) == 0  # the run itself is there
    assert "is already there" in capsys.readouterr().err
    assert not RunDir(here / "runs" / RUN).read().imported
    RunDir(here / "runs" / RUN).records("worker-0").write_text("")
    assert main(["import", str(file)]) == 1
    assert "has another run with the id" in capsys.readouterr().err
    assert sorted(path.name for path in (here / "runs").iterdir()) == [RUN]


def extra(name: str, data: bytes = b"{}") -> Damage:
    return lambda found: found.update({name: data})


def changed(**changes: object) -> Damage:
    def change(found: dict[str, bytes]) -> None:
        name = f"{RUN}/run.json"
        found[name] = json.dumps(json.loads(found[name]) | changes).encode()

    return change


@pytest.mark.parametrize(
    ("damage", "expected"),
    [
        (extra("../evil"), "'../evil' is not a file of a run"),
        (extra(f"{RUN}/program/../x"), "is not a file of a run"),
        (extra(f"{RUN}/report.html"), "is not a file of a run"),
        (extra(f"{RUN}/program/\u202e.py"), "is not a file of a run"),
        (extra(f"{OTHER}/gpu.jsonl"), "exactly one run"),
        (lambda found: found.pop(f"{RUN}/run.json"), "run.json is missing"),
        (lambda found: found.update({f"{RUN}/program/{x}": b"" for x in "aA"}), "by their case"),
        (
            lambda found: found.update({f"{RUN}/program/{x}": b"" for x in ("a", "a/b")}),
            "is a file and a directory",
        ),
        (extra(f"{RUN}/program/zeros", bytes(17 << 20)), "is compressed more than 200 times"),
        (changed(run_id=OTHER), "run.json is of another run"),
        (changed(state="training"), "has not ended"),
        (changed(odd=1), "unknown key"),
        (changed(format=99), "written by a newer lab"),
        (extra(f"{RUN}/status/worker-0.json", b"[]"), "worker-0.json"),
    ],
)
def test_refused_archives(
    here: Path, capsys: pytest.CaptureFixture[str], damage: Damage, expected: str
) -> None:
    found = members(exported())
    damage(found)
    with zipfile.ZipFile("bad.zip", "w", zipfile.ZIP_DEFLATED) as target:
        for name, data in found.items():
            target.writestr(name, data)
    capsys.readouterr()
    assert main(["import", "bad.zip", "--runs-dir", "other"]) == 1
    output = capsys.readouterr().err
    assert output.startswith("error: bad.zip is not a valid archive of a run: ")
    assert expected in output
    assert output.count("\n") == 1
    assert not list((here / "other").iterdir())


def test_links_doubles_and_limits(here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    good = members(exported())

    def refused(*more: tuple[zipfile.ZipInfo, bytes]) -> str:
        data = io.BytesIO()
        with zipfile.ZipFile(data, "w") as target:
            for each, content in (*((zipfile.ZipInfo(n), b) for n, b in good.items()), *more):
                target.writestr(each, content)
        Path("bad.zip").write_bytes(data.getvalue())
        with pytest.raises(LabError) as caught:
            archive.unpack(Path("bad.zip"), here / "none")
        return str(caught.value)

    link = zipfile.ZipInfo(f"{RUN}/gpu.jsonl")
    link.external_attr = (stat.S_IFLNK | 0o777) << 16
    assert "is not a regular file" in refused((link, b"/etc/passwd"))
    with pytest.warns(UserWarning, match="Duplicate name"):
        assert "is in it twice" in refused((zipfile.ZipInfo(f"{RUN}/run.json"), b"{}"))
    for name, value, expected in (
        ("MAX_FILES", 3, "more than 3 files"),
        ("MAX_BYTES", 99, "more than 99 bytes"),
        ("MAX_FILE_BYTES", 99, "has more than 99 bytes"),
        ("_MAX_READ", 99, "list of files is too long"),
    ):
        with monkeypatch.context() as patched:
            patched.setattr(archive, name, value)
            assert expected in refused()
    assert not (here / "none").exists()


def test_an_interrupted_import_leaves_nothing(here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = exported()

    def interrupted(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("lab.run.archive._marked", interrupted)
    assert main(["import", str(file), "--runs-dir", "other"]) == 130
    assert not list((here / "other").iterdir())


class Claimed:
    """An environment that is up and has a run with the id of the imported one."""

    project, backend = "mnist", "local"

    def runs(self) -> list[object]:
        raise AssertionError("an imported run was looked for")


def test_no_command_acts_on_an_imported_run(here: Path) -> None:
    file = exported()
    shutil.rmtree(here / "runs")
    assert main(["import", str(file)]) == 0
    store, run = here / "runs", RunDir(here / "runs" / RUN)
    found = find(RUN, store, [Claimed()], None)  # type: ignore[list-item]
    assert (found.request, found.environment) == (None, None)
    assert locate(RUN, store, [], None).environment is None
    assert not run.complete()  # a volume's run with this id is another one, and is not lost
    with pytest.raises(InputError, match="has started"):
        find_run("last", store)
    with pytest.raises(InputError, match="it cannot be resumed"):
        check_resumable(run, EXPERIMENTS["async"], None, RunStatus.recorded(run))

    class Request:
        run_id = RUN

    before = run.info_path.read_bytes()
    with pytest.raises(LabError, match="was imported"):
        collect_one(Request(), Claimed(), store, print)  # type: ignore[arg-type]
    assert run.info_path.read_bytes() == before


@pytest.fixture
def groups(here: Path) -> Path:
    """Two directories and an archive, each with another run; all have the same id."""
    exported()
    for seconds, name in enumerate(("one", "two"), 1):
        shutil.copytree(here / "runs", here / name)
        run = RunDir(here / name / RUN)
        info = run.read()
        run.write(replace(info, submitted_unix=(info.submitted_unix or 0) + seconds))
    run = RunDir(here / "runs" / RUN)
    run.write(replace(run.read(), submitted_unix=1.0))
    return here


def test_copies_of_a_run_are_left_out(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    exported()
    recorded.make(here / "runs", OTHER, steps=60, seed=2)
    shutil.copytree(here / "runs" / RUN, here / "runs" / "renamed")
    shutil.copytree(here / "runs", here / "one")
    capsys.readouterr()
    arguments = [f"./one/{RUN}", "./runs", f"{RUN}.lab.zip", "last"]
    assert main(["report", *arguments, "--output", "all.html"]) == 0
    notices = capsys.readouterr().err.splitlines()
    copied = f"a copy of run {RUN} in one"
    assert [line for line in notices if line.startswith("left out: ")] == [
        f"left out: run {RUN} in ./runs: {copied}",
        f"left out: run renamed in ./runs: {copied}",
        f"left out: run {RUN} in {RUN}.lab.zip: {copied}",
    ]
    page = (here / "all.html").read_text()
    assert "async: 2 runs" in page
    assert ">2 of 2</td>" in page


def test_a_run_has_no_copy_to_compare_with(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    shutil.copytree(here / "runs", here / "one")
    assert main(["compare", RUN, "one"]) == 2
    notice, error = capsys.readouterr().err.splitlines()
    assert notice == f"left out: run {RUN} in one: a copy of run {RUN} in the run store"
    assert error == f"error: run {RUN} is the only run; name another run"


def test_a_figure_of_copies_is_that_of_one_run(here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    recorded.make(here / "runs", OTHER, steps=200)
    shutil.copytree(here / "runs", here / "one")
    notices: list[str] = []
    out = console.NotebookOutput()
    monkeypatch.setattr(out, "notify", notices.append)
    monkeypatch.setattr("lab.api.results.output", lambda: out)
    found = api.figure("loss", [api.find(OTHER), api.find(OTHER, "one")])
    labels = [str(line.get_label()) for line in found.axes[0].get_lines()]
    assert {"worker-0", "worker-1", "worker-2"} < set(labels)  # as of one run
    assert notices == [f"left out: run {OTHER} in one: a copy of run {OTHER} in runs"]


def test_report_of_directories_and_archives(
    groups: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    labels = ("--label", "group 1", "--label", "group <2>", "--label=zip")
    assert main(["report", "one", f"./two/{RUN}", f"{RUN}.lab.zip", *labels]) == 0
    assert capsys.readouterr().out == "report.html\n"
    page = (groups / "report.html").read_text()
    for name in ("group 1", "group &lt;2&gt;", "zip"):
        assert re.search(rf"<td>{name}</td><td[^>]*>{name}: async", page)
    assert not list((groups / "one").glob("**/report.html"))


def test_one_label_for_all_arguments(groups: Path) -> None:
    assert main(["report", "one", "two", "--label", "group 3"]) == 0
    page = (groups / "report.html").read_text()
    for name in ("group 3, run 1", "group 3, run 2"):
        assert re.search(rf"<td>{name}</td><td[^>]*>group 3: async", page)


def test_runs_with_one_id_keep_their_rows(groups: Path) -> None:
    assert main(["report", "one", "two", RUN, "--output", "all.html"]) == 0
    page = (groups / "all.html").read_text()
    for name in (f"{RUN} in one", f"{RUN} in two", f"{RUN} in the run store"):
        assert f"<td>{name}</td>" in page


def test_a_damaged_run_is_left_out(groups: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (groups / f"two/{RUN}/run.json").write_text("{")
    Path("bad.zip").write_bytes(b"PK")
    assert main(["report", "one", "two", "bad.zip", RUN, "--output", "all.html"]) == 0
    output = capsys.readouterr().err
    assert f"left out: two/{RUN}/run.json" in output
    assert "left out: bad.zip is not a valid archive" in output
    assert "2 runs" in (groups / "all.html").read_text()
    assert main(["report", "two", "--output", "one.html"]) == 1
    assert main(["compare", "one", "two"]) == 1
    assert f"error: two/{RUN}/run.json" in capsys.readouterr().err


def test_a_run_under_way_elsewhere(groups: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run = RunDir(groups / "two" / RUN)
    run.write(replace(run.read(), state=State.TRAINING, collected=False))
    assert main(["compare", "one", "two", "--json"]) == 0
    output = capsys.readouterr()
    assert [each["state"] for each in json.loads(output.out)["runs"]] == ["succeeded", "training"]
    assert f"run {RUN}: its status is unknown: it is outside the run store, in two" in output.err


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (("one", "two", "two", "--label", "x", "--label", "y"), "2 labels for 3 arguments"),
        (("one", "--label", "x" * 61), "is too long"),
        (("./nothing",), "there is no run, directory or archive ./nothing"),
        (("nothing",), "no run 'nothing' in runs"),
    ],
)
def test_refused_arguments(
    groups: Path, capsys: pytest.CaptureFixture[str], arguments: tuple[str, ...], expected: str
) -> None:
    assert main(["report", *arguments]) == 2
    assert expected in capsys.readouterr().err


def test_an_id_wins_over_a_directory(groups: Path, capsys: pytest.CaptureFixture[str]) -> None:
    shutil.copytree(groups / "one", groups / "last")
    assert main(["report", "last"]) == 0
    assert capsys.readouterr().out == f"runs/{RUN}/report.html\n"
    assert main(["report", "./last"]) == 0
    assert capsys.readouterr().out == "report.html\n"


def test_a_label_that_the_terminal_cannot_show(groups: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "lab", "compare", "one", "two", "--label=größe", "--label=b"],
        env={**os.environ, "PYTHONIOENCODING": "ascii", "PYTHONPATH": str(ROOT)},
        capture_output=True,
        check=True,
    )
    assert rb"gr\xf6\xdfe" in done.stdout


def test_from_python(groups: Path) -> None:
    run = api.find(RUN)
    found = api.compare(run, Path("one"), "./two", labels=["<a>", "b", "c"])
    assert list(found.frame().columns) == ["<a>", "b", "c"]
    assert ("run", "accuracy") in found.frame().index
    assert "&lt;a&gt;" in found._repr_html_()
    page = api.report(run, Path("one"), labels=["a", "b"], output="both.html")
    assert Path(page) == Path("both.html")
    assert page._repr_html_() == '<a href="both.html" target="_blank">both.html</a>'
    with pytest.raises(InputError, match="no run is given"):
        api.report()


def test_a_notebook_has_no_output_on_stderr(
    groups: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    RunDir(groups / "two" / RUN).info_path.write_text("{")
    notices: list[str] = []
    out = console.NotebookOutput()
    monkeypatch.setattr(out, "notify", notices.append)
    monkeypatch.setattr(console, "output", lambda: out)
    api.report(Path("one"), "./two", RUN)
    api.compare(Path("one"), "./two", RUN)
    assert sum(line.startswith("left out: ") for line in notices) == 2
    assert capsys.readouterr().err == ""


def test_an_export_that_cannot_be_written(
    here: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    assert main(["export", RUN, "--output", "/dev/null", "--force"]) == 2
    assert "--output: /dev/null is not a file" in capsys.readouterr().err
    shutil.copytree(here / "runs" / RUN, here / "runs" / OTHER)
    assert main(["export", OTHER]) == 1
    assert f"run.json is of another run, '{RUN}'" in capsys.readouterr().err

    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr("lab.service.archive.pack", full)
    assert main(["export", RUN]) == 1
    assert f"cannot be written to {RUN}.lab.zip: No space left on device" in capsys.readouterr().err
    assert not list(here.glob("*.zip"))


def test_an_import_that_cannot_be_read_or_written(
    here: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = str(exported())
    assert main(["import", "nothing.zip"]) == 1
    assert "there is no file nothing.zip" in capsys.readouterr().err
    (here / "a-file").touch()
    assert main(["import", file, "--runs-dir", "a-file/runs"]) == 1
    assert "the run cannot be written to a-file/runs: Not a directory" in capsys.readouterr().err


def test_directories_that_cannot_be_read(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (here / "empty").mkdir()
    assert main(["report", "./empty"]) == 2
    assert "./empty has no run" in capsys.readouterr().err
    assert main(["report", f"./{'x' * 300}"]) == 1
    assert "cannot be read: [Errno 36] File name too long" in capsys.readouterr().err

    def read(_: sources.NamedRun) -> None:
        raise PermissionError(errno.EACCES, os.strerror(errno.EACCES))

    run = sources.NamedRun(RunDir(here / "runs" / RUN), is_own=True)
    with pytest.raises(LabError, match=f"{RUN} cannot be read: Permission denied"):
        sources.read_each([run], read, print)
