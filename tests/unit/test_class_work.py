"""The archive of the students' work, and its gradebook: a home directory may hold anything."""

from __future__ import annotations

import csv
import io
import json
import math
import tarfile
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import pytest
from syrupy.assertion import SnapshotAssertion

from lab.backends.engine.client import Engine
from lab.classroom import gradebook as module
from lab.classroom import work
from lab.classroom.containers import Containers
from lab.classroom.gradebook import gradebook
from lab.classroom.work import add_files, write_entry
from lab.errors import LabError
from lab.store.run_info import RunInfo
from lab.store.summary import Summary
from lab.volume import RunSpec
from lab.volume.states import State
from tests.support.classes import own_state, stored  # noqa: F401

FOLDER = "ada"


def entry(name: str, content: bytes = b"mine", **fields: Any) -> tuple[tarfile.TarInfo, bytes]:
    found = tarfile.TarInfo(name)
    for key, value in {"size": len(content), "mtime": 1_800_000_000, **fields}.items():
        setattr(found, key, value)
    return found, content


def special(name: str, kind: bytes, target: str = "") -> tuple[tarfile.TarInfo, bytes]:
    return entry(name, b"", type=kind, linkname=target)


def tar_of(*entries: tuple[tarfile.TarInfo, bytes]) -> bytes:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w", format=tarfile.PAX_FORMAT) as archive:
        for info, content in entries:
            archive.addfile(info, io.BytesIO(content))
    return buffer.getvalue()


def archived(path: Path, *entries: tuple[tarfile.TarInfo, bytes]) -> tuple[int, zipfile.ZipFile]:
    """The number of entries that were left out, and the archive."""
    # As a stream: the engine's archive cannot be read twice.
    with (
        tarfile.open(fileobj=io.BytesIO(tar_of(*entries)), mode="r|") as home,
        zipfile.ZipFile(path / "work.zip", "w") as archive,
    ):
        left_out = add_files(home, archive, FOLDER)
    return left_out, zipfile.ZipFile(path / "work.zip")


def unpacked(archive: zipfile.ZipFile, place: Path) -> dict[str, bytes]:
    """The files that zipfile writes. All are regular files in the seat's directory."""
    folder = place / "unpacked"
    folder.mkdir()
    with archive:
        assert archive.testzip() is None
        archive.extractall(folder)  # noqa: S202  (what a teacher does)
    assert sorted(path.name for path in place.iterdir()) == ["unpacked", "work.zip"]
    paths = [path for path in folder.rglob("*") if not path.is_dir()]
    assert all(path.is_file() and not path.is_symlink() for path in paths)
    assert {path.relative_to(folder).parts[0] for path in paths} <= {FOLDER}
    return {str(path.relative_to(folder / FOLDER)): path.read_bytes() for path in paths}


def test_the_work_without_data_and_caches(tmp_path: Path) -> None:
    left_out, archive = archived(
        tmp_path,
        special("student/", tarfile.DIRTYPE),
        special("student/notebooks/", tarfile.DIRTYPE),
        entry("student/notebooks/01_async.ipynb", b"{}"),
        entry("student/data/train.gz", b"x" * 999),
        entry("student/.cache/pip/x"),
        special("student/data/link", tarfile.SYMTYPE, "/etc/passwd"),
        entry("student/notebooks/data/own.csv", b"1,2"),
        entry("student/empty", b""),
    )
    assert left_out == 0
    assert unpacked(archive, tmp_path) == {
        "notebooks/01_async.ipynb": b"{}",
        "notebooks/data/own.csv": b"1,2",
        "empty": b"",
    }


def test_links_and_special_files_are_left_out(tmp_path: Path) -> None:
    left_out, archive = archived(
        tmp_path,
        entry("student/mine"),
        special("student/passwd", tarfile.SYMTYPE, "/etc/passwd"),
        special("student/out", tarfile.SYMTYPE, "../../.."),
        entry("student/out/x"),  # through the link, if it were made
        special("student/shadow", tarfile.LNKTYPE, "/etc/shadow"),
        special("student/again", tarfile.LNKTYPE, "student/mine"),
        special("student/disk", tarfile.BLKTYPE),
        special("student/tty", tarfile.CHRTYPE),
        special("student/pipe", tarfile.FIFOTYPE),
        special("student/what", b"Z"),
    )
    assert left_out == 8
    assert set(unpacked(archive, tmp_path)) == {"mine", "out/x"}


def test_a_huge_file_ends_the_copy_of_a_seat(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(work, "MAX_BYTES", 100)
    monkeypatch.setattr(work, "MAX_READ_BYTES", 400)
    sizes = {"data/x": 100, "a": 40, "b": 40, "c": 40, "d": 20, "e": 161, "f": 0}
    files = [entry(f"student/{name}", b"x" * size) for name, size in sizes.items()]
    left_out, archive = archived(tmp_path, *files)
    assert (left_out, archive.namelist()) == (2, ["ada/a", "ada/b", "ada/d"])  # c, and the rest


def test_very_many_entries_end_the_copy_of_a_seat(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(work, "MAX_ENTRIES", 3)
    folders = [special(f"student/{name}/", tarfile.DIRTYPE) for name in "abc"]
    left_out, archive = archived(tmp_path, *folders, entry("student/mine"))
    assert (left_out, archive.namelist()) == (1, [])


def test_every_path_stays_inside(tmp_path: Path) -> None:
    left_out, archive = archived(
        tmp_path,
        *map(entry, ("student/../../../evil", "student/a/../../../evil", "student/..")),
        *map(entry, ("/student/absolute", "//etc/cron.d/evil", "../../evil", "student/./dot")),
        entry("evil"),  # without the home directory's name
    )
    assert left_out == 4  # the last one has no name in the home directory
    assert set(unpacked(archive, tmp_path)) == {"student/absolute", "etc/cron.d/evil", "dot"}


def test_names_that_other_systems_and_terminals_interpret(tmp_path: Path) -> None:
    names = {
        "..\\..\\evil.bat": ".._.._evil.bat",
        "C:\\evil.bat": "C:_evil.bat",
        "\x1b[2Jcleared": "_x1b[2Jcleared",
        "two\nlines": "two_x0alines",
        "right\u202eleft": "right_u202eleft",
        "not\udcffutf-8": "not_udcffutf-8",
        "gr\u00fc\u00df.txt": "gr\u00fc\u00df.txt",
        "tab\there": "tab\there",
    }
    left_out, archive = archived(tmp_path, *(entry(f"student/{name}") for name in names))
    assert left_out == 0
    assert archive.namelist() == [f"ada/{name}" for name in names.values()]
    assert len(unpacked(archive, tmp_path)) == len(names)


def test_two_files_never_get_one_name(tmp_path: Path) -> None:
    names = ("student/a_b", "student/a\\b", "student/a_b")
    left_out, archive = archived(tmp_path, *(entry(each, each.encode()) for each in names))
    assert left_out == 2
    assert unpacked(archive, tmp_path) == {"a_b": b"student/a_b"}


@pytest.mark.parametrize(("mtime", "year"), [(-1e9, 1980), (1e18, 2107), (1_800_000_000, 2027)])
def test_times_that_the_zip_format_lacks(mtime: float, year: int, tmp_path: Path) -> None:
    _, archive = archived(tmp_path, entry("student/old", mtime=mtime))
    assert archive.infolist()[0].date_time[0] == year


def test_very_many_and_very_deep_files(tmp_path: Path) -> None:
    many = [entry(f"student/{number}", b"") for number in range(5_000)]
    deep = entry("student/" + "d/" * 40_000 + "x")
    left_out, archive = archived(tmp_path, *many, deep)
    assert (left_out, len(archive.namelist())) == (1, 5_000)


def test_the_entries_of_a_seat_are_not_all_in_memory(tmp_path: Path) -> None:
    content = tar_of(*(entry(f"student/{number}", b"") for number in range(50)))
    with (
        tarfile.open(fileobj=io.BytesIO(content), mode="r|") as home,
        zipfile.ZipFile(tmp_path / "work.zip", "w") as archive,
    ):
        add_files(home, archive, FOLDER)
        assert len(vars(home)["members"]) <= 1


# ---- From an engine


@pytest.fixture
def client(monkeypatch: pytest.MonkeyPatch) -> Mock:
    """The calls of an engine."""
    found = Mock()
    found.containers.create.return_value.id = "c1"
    monkeypatch.setattr(Engine, "client", lambda _: found)
    return found


def saved(client: Mock, content: bytes, size: int, path: Path) -> zipfile.ZipFile:
    """The archive of a home directory that the engine sends in pieces of this size."""
    pieces = (content[at : at + size] for at in range(0, len(content), size))
    client.containers.create.return_value.get_archive.return_value = pieces, {}
    try:
        with zipfile.ZipFile(path / "work.zip", "w") as archive:
            Containers(stored()).save(FOLDER, archive, FOLDER)
    finally:
        client.containers.create.return_value.remove.assert_called_once_with(force=True)
    return zipfile.ZipFile(path / "work.zip")


@pytest.mark.parametrize("size", [1, 511, 1 << 20])
def test_a_container_that_is_not_started_reads_the_volume(
    size: int, client: Mock, tmp_path: Path
) -> None:
    content = tar_of(entry("student/a", b"1" * 700), entry("student/b", b"2"))
    archive = saved(client, content, size, tmp_path)
    assert unpacked(archive, tmp_path) == {"a": b"1" * 700, "b": b"2"}
    (created,) = client.containers.create.call_args_list
    assert created.kwargs["network_mode"] == "none"
    assert created.kwargs["volumes"] == {"lab-class-w-ada": {"bind": "/home/student"}}


@pytest.mark.parametrize("content", [b"", b"no tar" * 200, tar_of(entry("student/a"))[:700]])
def test_an_archive_that_ends_early(content: bytes, client: Mock, tmp_path: Path) -> None:
    with pytest.raises(LabError, match=r"^reading the work of ada: .*; run the command again$"):
        saved(client, content, 512, tmp_path)


def test_a_file_that_grows_while_it_is_read(tmp_path: Path) -> None:
    with zipfile.ZipFile(tmp_path / "work.zip", "w") as archive:
        write_entry(archive, "a", io.BytesIO(b"1234" * 10), 4, math.nan)
        assert archive.read("a") == b"1234"


# ---- The gradebook


SEATS = ("ada", "bob", "ada-b")
NOTEBOOKS = ("00_tour", "01_async")
Files = dict[str, str | bytes]


def run(
    name: str, spec: RunSpec | None = None, state: State = State.SUCCEEDED, **fields: Any
) -> Files:
    """The files of a run of ada that ended; its start is in its name."""
    figures = {"accuracy": 0.9, "global_step": 100, **fields.pop("figures", {})}
    info = RunInfo(name, spec or RunSpec("async"), state, started_unix=float(name[1:]), **fields)
    others = dict.fromkeys(("updates_conserved", "updates_lost", "wall_s", "first_step_s"))
    summary = Summary(
        run_id=name,
        experiment="async",
        backend="local",
        state=state,
        reason="",
        degraded=False,
        steps_redone=0,
        resumed_from="",
        steps_per_s=None,
        records_lost=0,
        tasks=[],
        **others,
        **figures,
    )
    folder = f"ada/runs/{name}"
    return {f"{folder}/run.json": info.to_json(), f"{folder}/summary.json": summary.to_json()}


def notebook(*counts: int | None) -> str:
    cells = [{"cell_type": "code", "execution_count": count} for count in counts]
    return json.dumps({"cells": [{"cell_type": "markdown"}, *cells]})


@pytest.fixture
def rows(tmp_path: Path) -> Callable[..., dict[str, dict[str, str]]]:
    """The row of each seat; the archive is still being written, as in `lab class down`."""

    def read(*files: Files) -> dict[str, dict[str, str]]:
        with (
            (tmp_path / "w.zip").open("w+b") as file,
            zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED) as archive,
        ):
            for name, content in {k: v for each in files for k, v in each.items()}.items():
                archive.writestr(name, content)
            text = gradebook(archive, SEATS, ("tour", "async"))
        found = list(csv.DictReader(io.StringIO(text)))
        assert [row["seat"] for row in found] == list(SEATS)
        return {row["seat"]: row for row in found}

    return read


def test_the_facts_of_each_seat(rows: Callable[..., Any], snapshot: SnapshotAssertion) -> None:
    found = rows(
        run("r3", figures={"accuracy": 0.5, "global_step": 7}),
        run("r1", figures={"accuracy": 0.75}),
        run("r2", state=State.FAILED, figures={"accuracy": None, "global_step": None}),
        run("r4", RunSpec("sync"), figures={"accuracy": None}),
        run("r5", RunSpec("mine.py", own=True)),
        run("r6", imported=True),
        {
            "ada/notebooks/00_tour.ipynb": notebook(1, None, 7),
            "bob/notebooks/01_async.ipynb": notebook(None),
            "bob/notebooks/02_sync.ipynb": notebook(1),  # not a lesson of this class
            "resets/ada-20261201-090000.zip": b"",
            "resets/ada-20261201-100000.zip": b"",
            "resets/ada-b-20261201-100000.zip": b"",
        },
    )
    assert found == snapshot
    assert found["ada"]["async last step"] == "7"  # the newest, not the last in the archive
    assert found["bob"]["async cells"] == "0 of 1"
    assert [found[seat]["resets"] for seat in SEATS] == ["2", "0", "1"]


def test_a_student_forges_every_column_but_two(rows: Callable[..., Any]) -> None:
    """docs/teach.md says so."""

    def seat(figure: float, *counts: int | None) -> Files:
        """The files in a seat, which its student can write."""
        figures = {"accuracy": figure, "global_step": int(figure * 100)}
        state = State.SUCCEEDED if figure else State.FAILED
        others = [(RunSpec("async"), {}), (RunSpec("mine.py", own=True), {})]
        others += [(RunSpec("sync"), {"imported": True})] * (2 if figure else 1)
        files = [
            run(f"r{number}", spec, state, figures=figures, **fields)
            for number, (spec, fields) in enumerate(others)
        ]
        files.append({"ada/runs/x/run.json": "{"} if figure else {})
        files.append({f"ada/notebooks/{each}.ipynb": notebook(*counts) for each in NOTEBOOKS})
        return {name: text for each in files for name, text in each.items()}

    honest, forged = (rows(seat(*each))["ada"] for each in ((0.0, None), (0.99, 1)))
    assert honest.keys() == forged.keys()
    assert [name for name in honest if honest[name] == forged[name]] == ["seat", "resets"]


@pytest.mark.parametrize(
    "experiment", ["=HYPERLINK(1)", "+1", "-1", "@SUM(A1)", "a,\r\n=1", "\t=1"]
)
def test_no_text_of_a_student_gets_into_a_cell(experiment: str, rows: Callable[..., Any]) -> None:
    files = run("r1", RunSpec(experiment), reason=experiment)
    files[f"ada/notebooks/{experiment}.ipynb"] = notebook(1)
    files[f"resets/{experiment}-20261201-090000.zip"] = b""
    files["ada/notebooks/00_tour.ipynb"] = json.dumps(
        {"cells": [{"cell_type": "code", "execution_count": experiment}]}
    )
    for row in rows(files).values():
        for name, cell in row.items():
            assert not {name[:1], cell[:1]} & set("=+-@\t\r\n")
            assert experiment not in {name, cell}


NO_OBJECTS = [b"", b"{", b"[]", b"{}", b"\xff\xfe", b"[" * 100_000]


@pytest.mark.parametrize(
    "content", [*NO_OBJECTS, b'{"a":' * 100_000, b"9" * 5000, b'{"format": 99}'], ids=range(9)
)
@pytest.mark.parametrize("file", ["run.json", "summary.json"])
def test_a_damaged_run_is_counted(file: str, content: bytes, rows: Callable[..., Any]) -> None:
    row = rows(run("r1"), run("r2") | {f"ada/runs/r2/{file}": content})["ada"]
    assert (row["async runs"], row["unreadable"]) == ("1 succeeded", "1")


@pytest.mark.parametrize(
    ("name", "value"),
    [
        *(("accuracy", each) for each in (1.5, -0.1, math.nan, math.inf)),
        *(("global_step", each) for each in (-1, 1 << 63)),
    ],
)
def test_impossible_figures(name: str, value: float, rows: Callable[..., Any]) -> None:
    assert rows(run("r1", figures={name: value}))["ada"]["unreadable"] == "1"


@pytest.mark.parametrize(
    "content",
    [*NO_OBJECTS, *(b'{"cells": %s}' % each for each in (b"1", b"[{}]", b'{"a": {}}'))],
    ids=range(9),
)
def test_a_damaged_notebook(content: bytes, rows: Callable[..., Any]) -> None:
    row = rows({"ada/notebooks/00_tour.ipynb": content})["ada"]
    assert row["tour cells"] == "unreadable"


def test_no_seat_makes_the_end_long(
    rows: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    size = sum(map(len, run("r2").values()))
    monkeypatch.setattr(module, "_MAX_BYTES", size)
    monkeypatch.setattr(module, "_MAX_SEAT_BYTES", 3 * size)
    large = run("r1") | {"ada/runs/r1/run.json": "{}" + " " * size}
    other = {"ada/notebooks/09_other.ipynb": " " * size}
    row = rows(other, large, run("r2"), run("r3"), run("r4"), run("r5"))["ada"]
    assert (row["async runs"], row["unreadable"]) == ("3 succeeded", "2")
