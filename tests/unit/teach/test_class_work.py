"""The archive of the students' work: a home directory may hold anything."""

from __future__ import annotations

import io
import tarfile
import zipfile
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import pytest

from lab.backends.engine.client import Engine
from lab.base.errors import LabError
from lab.teach.classroom import student_work
from lab.teach.classroom.containers import Containers
from lab.teach.classroom.student_work import add_files
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


def test_a_huge_file_and_very_many_entries_end_the_copy_of_a_seat(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(student_work, "MAX_BYTES", 100)
    monkeypatch.setattr(student_work, "MAX_READ_BYTES", 400)
    sizes = {"data/x": 100, "a": 40, "b": 40, "c": 40, "d": 20, "e": 161, "f": 0}
    files = [entry(f"student/{name}", b"x" * size) for name, size in sizes.items()]
    left_out, archive = archived(tmp_path, *files)
    assert (left_out, archive.namelist()) == (2, ["ada/a", "ada/b", "ada/d"])  # c, and the rest
    monkeypatch.setattr(student_work, "MAX_ENTRIES", 3)
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


@pytest.mark.parametrize(
    ("mtime", "year"), [("-1e9", 1980), ("1e18", 2107), ("nan", 1980), ("1800000000", 2027)]
)
def test_times_that_the_zip_format_lacks(mtime: str, year: int, tmp_path: Path) -> None:
    _, archive = archived(tmp_path, entry("student/old", pax_headers={"mtime": mtime}))
    assert archive.infolist()[0].date_time[0] == year


def test_very_many_and_very_deep_files_are_not_all_in_memory(tmp_path: Path) -> None:
    many = [entry(f"student/{number}", b"") for number in range(5_000)]
    content = tar_of(*many, entry("student/" + "d/" * 40_000 + "x"))
    with (
        tarfile.open(fileobj=io.BytesIO(content), mode="r|") as home,
        zipfile.ZipFile(tmp_path / "work.zip", "w") as archive,
    ):
        assert add_files(home, archive, FOLDER) == 1
        assert len(archive.namelist()) == 5_000
        assert len(vars(home)["members"]) <= 1


@pytest.fixture
def client(monkeypatch: pytest.MonkeyPatch) -> Mock:
    found = Mock()
    found.containers.create.return_value.id = "c1"
    monkeypatch.setattr(Engine, "client", lambda _: found)
    return found


def saved(client: Mock, content: bytes, size: int, path: Path) -> zipfile.ZipFile:
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
    size: int, client: Mock, tmp_path: Path, notices: list[str]
) -> None:
    link = special("student/link", tarfile.SYMTYPE, "/etc/passwd")
    content = tar_of(entry("student/a", b"1" * 700), link, entry("student/b", b"2"))
    archive = saved(client, content, size, tmp_path)
    assert unpacked(archive, tmp_path) == {"a": b"1" * 700, "b": b"2"}
    assert notices == ["ada: not in the archive: 1 (links, special files, or over the size limit)"]
    (created,) = client.containers.create.call_args_list
    assert created.kwargs["network_mode"] == "none"
    assert created.kwargs["volumes"] == {"lab-class-w-ada": {"bind": "/home/student"}}


@pytest.mark.parametrize("content", [b"", b"no tar" * 200, tar_of(entry("student/a"))[:700]])
def test_an_archive_that_ends_early(content: bytes, client: Mock, tmp_path: Path) -> None:
    with pytest.raises(LabError, match=r"^reading the work of ada: .*; run the command again$"):
        saved(client, content, 512, tmp_path)
