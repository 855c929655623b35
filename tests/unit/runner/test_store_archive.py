"""`lab export`, `lab import`, and the runs that `lab report` and `lab compare` accept."""

from __future__ import annotations

import errno
import gzip
import io
import json
import os
import re
import shutil
import tarfile
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

import lab
from lab.base import console
from lab.base.errors import InputError, LabError
from lab.cli import main
from lab.protocol.experiments.registry import EXPERIMENTS
from lab.protocol.volume.states import State
from lab.runner.discovery import find, locate
from lab.runner.fitting import check_resumable
from lab.runner.recovery import collect_one
from lab.runner.store import archive, names
from lab.runner.store.directory import RunDir, RunStatus
from lab.runner.store.names import find_run
from tests.support import recorded
from tests.support.cli import Cli, replace_backends
from tests.support.fakes import os_error, raising

RUN, OTHER = "20260101-0000-async-aaaa", "20260102-0000-async-bbbb"
Damage = Callable[[dict[str, bytes]], None]


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    replace_backends(monkeypatch)
    monkeypatch.setattr("lab.study.plots.style._saved", lambda *_, **__: b"\x89PNG")
    recorded.make(tmp_path / "runs", RUN, steps=60)
    return tmp_path


def exported(*more: str) -> Path:
    assert main(["export", RUN, *more]) == 0
    return Path(f"{RUN}{archive.SUFFIX}")


def members(file: Path) -> dict[str, bytes]:
    with tarfile.open(file) as source:
        return {each.name: source.extractfile(each).read() for each in source}


def written(file: str, files: dict[str, bytes], **member: object) -> None:
    with tarfile.open(file, "w:gz") as target:
        for name, data in files.items():
            info = tarfile.TarInfo(name)
            info.size = len(data)
            for key, value in member.items() if name == [*files][-1] else ():
                setattr(info, key, value)
            target.addfile(info, io.BytesIO(data))


def test_a_run_comes_back(here: Path, cli: Cli) -> None:
    for name in ("checkpoints/model", "secret.txt", "logs/worker-0.log"):
        (here / f"runs/{RUN}/{name}").parent.mkdir(exist_ok=True)
    (here / f"runs/{RUN}/checkpoints/model").write_bytes(b"x" * 1000)
    (here / f"runs/{RUN}/secret.txt").write_text("not part of a run")
    (here / f"runs/{RUN}/logs/worker-0.log").symlink_to("/etc/passwd")
    output = cli("export", RUN)
    file = Path(f"{RUN}{archive.SUFFIX}")
    assert output.out == f"{RUN}.lab.tar.gz\n"
    assert "add them with --all" in output.err
    assert "logs/worker-0.log is not a regular file" in output.err
    names = members(file)
    assert {f"{RUN}/run.json", f"{RUN}/tasks/worker-0.jsonl"} <= names.keys()
    assert not [name for name in names if "checkpoints" in name or "secret" in name]
    first = file.read_bytes()
    assert exported().read_bytes() == first  # replaced without --force: it is the same run's
    (found,) = json.loads(cli("import", str(file), "--runs-dir", "other", "--json").out)
    assert found == {"run_id": RUN, "path": f"other/{RUN}", "new": True}
    run = RunDir(here / "other" / RUN)
    info = run.read()
    assert (info.imported, info.collected) == (True, True)
    assert info.project == RunDir(here / "runs" / RUN).read().project
    assert run.records("worker-0").read_bytes() == names[f"{RUN}/tasks/worker-0.jsonl"]
    assert [path.name for path in (here / "other").iterdir()] == [RUN]


def test_all_and_json(here: Path, cli: Cli) -> None:
    (here / f"runs/{RUN}/files").mkdir()
    (here / f"runs/{RUN}/files/weights.bin").write_bytes(bytes(1000))
    without = json.loads(cli("export", RUN, "--json").out)
    file = Path(f"{RUN}{archive.SUFFIX}")
    sizes = {"left_out": 1, "left_out_bytes": 1000, "bytes": file.stat().st_size}
    assert without | {"file": str(file), **sizes} == without
    assert json.loads(cli("export", RUN, "--all", "--json").out)["left_out"] == 0
    assert f"{RUN}/files/weights.bin" in members(file)


def test_export_replaces_no_other_file(here: Path, cli: Cli) -> None:
    recorded.make(here / "runs", OTHER, steps=60)
    Path("mine.txt").write_text("mine")
    exported()
    cli("export", RUN, "--output", "mine.txt", code=2)
    output = cli("export", OTHER, "--output", f"{RUN}.lab.tar.gz", code=2).err
    assert "exists, and lab did not write it" in output
    cli("export", RUN, "-o", "mine.txt", "--force")
    assert tarfile.is_tarfile("mine.txt")


def test_a_run_under_way_is_not_exported(here: Path, cli: Cli) -> None:
    run = RunDir(here / "runs" / RUN)
    run.write(replace(run.read(), state=State.TRAINING))
    assert "has not ended: it is training" in cli("export", RUN, code=2).err
    assert not list(here.glob("*.tar.gz"))


def test_import_twice_and_other_content(here: Path, cli: Cli) -> None:
    file = exported()
    assert "is already there" in cli("import", str(file)).err  # the run itself
    assert not RunDir(here / "runs" / RUN).read().imported
    records = RunDir(here / "runs" / RUN).records("worker-0")
    records.rename(here / "records")
    for change in (lambda: records.symlink_to(here / "records"), lambda: records.write_text("")):
        records.unlink(missing_ok=True)
        change()
        assert "has another run with the id" in cli("import", str(file), code=1).err
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
        (
            lambda found: found.update({f"{RUN}/program/{x}": b"" for x in ("a", "a/b")}),
            "is a file and a directory",
        ),
        (changed(run_id=OTHER), "run.json belongs to another run"),
        (changed(state="training"), "has not ended"),
        (changed(odd=1), "unknown key"),
        (changed(format=99), "its format is 99; this lab reads 2"),
        (changed(format=1), "its format is 1; this lab reads 2"),
        (changed(started_unix=1e308), "its started_unix is not a time"),
        (extra(f"{RUN}/status/worker-0.json", b"[]"), "worker-0.json"),
    ],
)
def test_refused_archives(here: Path, cli: Cli, damage: Damage, expected: str) -> None:
    found = members(exported())
    damage(found)
    written("bad.tar.gz", found)
    output = cli("import", "bad.tar.gz", "--runs-dir", "other", code=1).err
    assert output.startswith("error: bad.tar.gz is not a valid archive of a run: ")
    assert expected in output
    assert output.count("\n") == 1
    assert not list((here / "other").iterdir())


def refused(files: dict[str, bytes] | None = None, **member: object) -> str:
    if files is not None:
        written("bad.tar.gz", files, **member)
    with pytest.raises(LabError) as caught:
        archive.unpack(Path("bad.tar.gz"), Path("none"))
    assert not Path("none").exists()
    return str(caught.value)


@pytest.mark.parametrize(
    ("name", "value", "expected"),
    [
        ("MAX_FILES", 5, "more than 5 files and directories"),
        ("MAX_BYTES", 99, "more than 99 bytes"),
        ("_MAX_READ", 99, "a name in it is too long"),
    ],
)
def test_limits(
    here: Path, monkeypatch: pytest.MonkeyPatch, name: str, value: int, expected: str
) -> None:
    good = members(exported())
    monkeypatch.setattr(archive, name, value)
    assert expected in refused(good)


def test_a_sparse_file_or_a_negative_size_is_refused(here: Path) -> None:
    files = {**members(exported()), f"{RUN}/program/x": b""}
    sparse = {"GNU.sparse.map": "0,0", "GNU.sparse.size": "1000000000000"}
    assert "is not a regular file" in refused(files, pax_headers=sparse)
    assert "is not a valid archive" in refused(files, pax_headers={"size": "-512"})


def test_rights_and_dates_of_the_archive_do_not_count(here: Path) -> None:
    files = {**members(exported()), f"{RUN}/program/x": b"1"}
    written("bad.tar.gz", files, mode=0o6777, mtime=2**40, uid=12345)
    status = (archive.unpack(Path("bad.tar.gz"), Path("some")).path / "program/x").stat()
    assert (status.st_mode & 0o7111, status.st_uid) == (0, os.getuid())
    assert status.st_mtime < 2**33


def test_damage_is_found(here: Path) -> None:
    data = exported().read_bytes()
    raw = gzip.decompress(data)
    second = raw.index(b"ustar", 600)
    for damaged in (
        data[:-40],
        data[:-6] + b"x" + data[-5:],
        gzip.compress(raw[:second] + b"x" + raw[second + 1 :]),  # the header of the second file
        data + data,
        b"PK",
        b"",
    ):
        Path("bad.tar.gz").write_bytes(damaged)
        assert "is not a valid archive of a run" in refused()


def test_an_interrupted_import_leaves_nothing(
    here: Path, monkeypatch: pytest.MonkeyPatch, cli: Cli
) -> None:
    file = exported()
    monkeypatch.setattr("lab.runner.store.archive._marked", raising(KeyboardInterrupt()))
    cli("import", str(file), "--runs-dir", "other", code=130)
    assert not list((here / "other").iterdir())


class Claimed:
    """An environment that is up and has a run with the id of the imported one."""

    project, backend = "mnist", "local"

    def runs(self) -> list[object]:
        raise AssertionError("an imported run was looked for")


def test_no_command_acts_on_an_imported_run(here: Path, cli: Cli) -> None:
    file = exported()
    shutil.rmtree(here / "runs")
    cli("import", str(file))
    store, run = here / "runs", RunDir(here / "runs" / RUN)
    found = find(RUN, store, [Claimed()], None)
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
        collect_one(Request(), Claimed(), store)
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


def test_copies_of_a_run_are_left_out(here: Path, cli: Cli) -> None:
    exported()
    recorded.make(here / "runs", OTHER, steps=60, seed=2)
    shutil.copytree(here / "runs" / RUN, here / "runs" / "renamed")
    shutil.copytree(here / "runs", here / "one")
    arguments = [f"./one/{RUN}", "./runs", f"{RUN}.lab.tar.gz", "last"]
    notices = cli("report", *arguments, "--output", "all.html").err.splitlines()
    copied = f"is a copy of run {RUN} in one"
    assert [line for line in notices if line.startswith("left out: ")] == [
        f"left out: run {RUN} in runs {copied}",
        f"left out: run renamed in runs {copied}",
        f"left out: run {RUN} in {RUN}.lab.tar.gz {copied}",
    ]
    page = (here / "all.html").read_text()
    assert "async: 2 runs" in page
    assert ">2 of 2</td>" in page


def test_report_of_directories_and_archives(groups: Path, cli: Cli) -> None:
    labels = ("--label", "group 1", "--label", "group <2>", "--label=zip")
    assert cli("report", "one", f"./two/{RUN}", f"{RUN}.lab.tar.gz", *labels).out == "report.html\n"
    page = (groups / "report.html").read_text()
    for name in ("group 1", "group &lt;2&gt;", "zip"):
        assert re.search(rf"<td>{name}</td><td[^>]*>{name}: async", page)


def test_one_label_for_all_arguments_and_rows_without_labels(groups: Path, cli: Cli) -> None:
    cli("report", "one", "two", "--label", "group 3")
    page = (groups / "report.html").read_text()
    for name in ("group 3, run 1", "group 3, run 2"):
        assert re.search(rf"<td>{name}</td><td[^>]*>group 3: async", page)
    cli("report", "one", "two", RUN, "--output", "all.html")
    page = (groups / "all.html").read_text()
    for name in (f"{RUN} in one", f"{RUN} in two", f"{RUN} in the run store"):
        assert f"<td>{name}</td>" in page


def test_a_damaged_run_is_left_out(groups: Path, cli: Cli) -> None:
    (groups / f"two/{RUN}/run.json").write_text("{")
    Path("bad.tar.gz").write_bytes(b"PK")
    output = cli("report", "one", "two", "bad.tar.gz", RUN, "--output", "all.html").err
    assert f"left out: two/{RUN}/run.json" in output
    assert "left out: bad.tar.gz is not a valid archive" in output
    assert "2 runs" in (groups / "all.html").read_text()
    cli("report", "two", "--output", "one.html", code=1)
    assert f"error: two/{RUN}/run.json" in cli("compare", "one", "two", code=1).err


def test_a_run_under_way_elsewhere(groups: Path, cli: Cli) -> None:
    run = RunDir(groups / "two" / RUN)
    run.write(replace(run.read(), state=State.TRAINING, collected=False))
    output = cli("compare", "one", "two", "--json")
    assert [each["state"] for each in json.loads(output.out)["runs"]] == ["succeeded", "training"]
    assert f"run {RUN}: its status is unknown: it is outside the run store, in two" in output.err


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (("one", "two", "two", "--label", "x", "--label", "y"), "2 labels for 3 arguments"),
        (("one", "--label", "x" * 61), "is too long"),
        (("./nothing",), "no run, directory or archive ./nothing"),
        (("nothing",), "no run 'nothing' in runs"),
    ],
)
def test_refused_arguments(
    groups: Path, cli: Cli, arguments: tuple[str, ...], expected: str
) -> None:
    assert expected in cli("report", *arguments, code=2).err


def test_an_id_wins_over_a_directory(groups: Path, cli: Cli) -> None:
    shutil.copytree(groups / "one", groups / "last")
    assert cli("report", "last").out == f"runs/{RUN}/report.html\n"
    assert cli("report", "./last").out == "report.html\n"


def test_from_python(
    groups: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    run = lab.find(RUN)
    found = lab.compare(run, Path("one"), "./two", label=["<a>", "b", "c"])
    assert list(found.frame().columns) == ["<a>", "b", "c"]
    assert ("run", "accuracy") in found.frame().index
    assert "&lt;a&gt;" in found._repr_html_()
    page = lab.report(run, Path("one"), label=["a", "b"], output="both.html")
    assert Path(page) == Path("both.html")
    assert page._repr_html_() == '<a href="both.html" target="_blank">both.html</a>'
    with pytest.raises(InputError, match="no run is given"):
        lab.report()
    capsys.readouterr()
    RunDir(groups / "two" / RUN).info_path.write_text("{")
    notices: list[str] = []
    out = console.NotebookOutput()
    monkeypatch.setattr(out, "show", notices.append)
    monkeypatch.setattr(console, "output", lambda: out)
    lab.report(Path("one"), "./two", RUN)
    assert sum(line.startswith("left out: ") for line in notices) == 1
    assert capsys.readouterr().err == ""


def test_an_export_that_cannot_be_written(
    here: Path, cli: Cli, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert (
        "--output: /dev/null is not a file"
        in cli("export", RUN, "--output", "/dev/null", "--force", code=2).err
    )
    shutil.copytree(here / "runs" / RUN, here / "runs" / OTHER)
    assert f"run.json belongs to another run, '{RUN}'" in cli("export", OTHER, code=1).err
    monkeypatch.setattr("lab.verbs.export.pack", raising(os_error(errno.ENOSPC)))
    assert (
        f"cannot be written to {RUN}.lab.tar.gz: No space left on device"
        in cli("export", RUN, code=1).err
    )
    assert not list(here.glob("*.tar.gz"))


def test_an_import_that_cannot_be_read_or_written(here: Path, cli: Cli) -> None:
    file = str(exported())
    assert "there is no file nothing.tar.gz" in cli("import", "nothing.tar.gz", code=1).err
    (here / "a-file").touch()
    assert (
        "the run cannot be written to a-file/runs: Not a directory"
        in cli("import", file, "--runs-dir", "a-file/runs", code=1).err
    )


def test_directories_that_cannot_be_read(here: Path, cli: Cli) -> None:
    (here / "empty").mkdir()
    assert "./empty has no runs" in cli("report", "./empty", code=2).err
    (here / "file").touch()
    assert (
        "./file is a file; import an archive"
        in cli("reproduce", "book-async", "--runs", "./file", code=2).err
    )
    assert (
        "cannot be read: [Errno 36] File name too long"
        in cli("report", f"./{'x' * 300}", code=1).err
    )

    def read(_: names.NamedRun) -> None:
        raise PermissionError(errno.EACCES, os.strerror(errno.EACCES))

    run = names.NamedRun(RunDir(here / "runs" / RUN), is_own=True)
    with pytest.raises(LabError, match=f"{RUN} cannot be read: Permission denied"):
        names.read_each([run], read)
