"""The students' work as an archive: a home directory may hold anything."""

from __future__ import annotations

import io
import math
import os
import socket
import subprocess
import tarfile
import zipfile
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from lab.backends.compose.client import Engine
from lab.classroom import work
from lab.classroom.work import SeatVolume, add_directory, add_files
from lab.errors import LabError

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
    monkeypatch.setattr("lab.classroom.work.MAX_BYTES", 100)
    names = ("a", "b", "c")
    left_out, archive = archived(tmp_path, *(entry(f"student/{name}", b"x" * 40) for name in names))
    assert left_out == 1
    assert archive.namelist() == ["ada/a", "ada/b"]


def test_every_path_stays_inside(tmp_path: Path) -> None:
    left_out, archive = archived(
        tmp_path,
        entry("student/../../../evil"),
        entry("student/a/../../../evil"),
        entry("student/.."),
        entry("/student/absolute"),
        entry("//etc/cron.d/evil"),
        entry("../../evil"),
        entry("student/./dot"),
        entry("evil"),  # without the home directory's name
    )
    assert left_out == 4  # the last one has no name in the home directory
    found = unpacked(archive, tmp_path)
    assert set(found) == {"student/absolute", "etc/cron.d/evil", "dot"}


def test_names_that_other_systems_and_terminals_interpret(tmp_path: Path) -> None:
    names = [
        "..\\..\\evil.bat",
        "C:\\evil.bat",
        "\x1b[2Jcleared",
        "two\nlines",
        "right\u202eleft",
        "not\udcffutf-8",
        "gr\u00fc\u00df.txt",
        "tab\there",
    ]
    left_out, archive = archived(tmp_path, *(entry(f"student/{name}") for name in names))
    assert left_out == 0
    assert "\\" not in "".join(archive.namelist())
    assert archive.namelist() == [
        "ada/.._.._evil.bat",
        "ada/C:_evil.bat",
        "ada/_x1b[2Jcleared",
        "ada/two_x0alines",
        "ada/right_u202eleft",
        "ada/not_udcffutf-8",
        "ada/gr\u00fc\u00df.txt",
        "ada/tab\there",
    ]
    assert len(unpacked(archive, tmp_path)) == len(names)


def test_two_files_never_get_one_name(tmp_path: Path) -> None:
    left_out, archive = archived(
        tmp_path,
        entry("student/a_b", b"1"),
        entry("student/a\\b", b"2"),
        entry("student/a_b", b"3"),
    )
    assert left_out == 2
    assert unpacked(archive, tmp_path) == {"a_b": b"1"}


@pytest.mark.parametrize(
    ("mtime", "year"),
    [(0, 1980), (-1e9, 1980), (5e9, 2107), (1e18, 2107), (1_800_000_000, 2027)],
)
def test_times_that_the_zip_format_lacks(mtime: float, year: int, tmp_path: Path) -> None:
    _, archive = archived(tmp_path, entry("student/old", mtime=mtime))
    assert archive.infolist()[0].date_time[0] == year
    assert unpacked(archive, tmp_path) == {"old": b"mine"}


@pytest.mark.parametrize("mtime", [math.nan, math.inf, -math.inf])
def test_a_time_that_is_none(mtime: float, tmp_path: Path) -> None:
    class Home(list[tarfile.TarInfo]):
        def extractfile(self, member: tarfile.TarInfo) -> io.BytesIO:
            return io.BytesIO(b"mine")

    info, _ = entry("student/odd", mtime=mtime)
    with zipfile.ZipFile(tmp_path / "work.zip", "w") as archive:
        home: Any = Home([info])
        assert add_files(home, archive, FOLDER) == 0
        assert archive.infolist()[0].date_time[0] in (1980, 2107)


def test_very_many_and_very_deep_files(tmp_path: Path) -> None:
    many = [entry(f"student/{number}", b"") for number in range(5_000)]
    deep = entry("student/" + "d/" * 40_000 + "x")
    left_out, archive = archived(tmp_path, *many, deep)
    assert (left_out, len(archive.namelist())) == (1, 5_000)


# ---- From an engine


class Chunks(Engine):
    """An engine with a container whose home directory is these bytes."""

    def __init__(self, content: bytes, size: int) -> None:
        super().__init__()
        self.events: list[object] = []

        def get_archive(container: str, path: str) -> tuple[Iterator[bytes], object]:
            self.events.append((container, path))
            return (content[at : at + size] for at in range(0, len(content), size)), {}

        self._local.client = SimpleNamespace(
            containers=SimpleNamespace(create=self.create_container),
            api=SimpleNamespace(
                get_archive=get_archive,
                remove_container=lambda container, force: self.events.append("removed"),
            ),
        )

    def create_container(self, image: str, command: list[str], **options: Any) -> Any:
        self.events.append((image, options["network_mode"], options["volumes"]))
        return SimpleNamespace(id="c1")


def saved(engine: Engine, path: Path) -> zipfile.ZipFile:
    with zipfile.ZipFile(path / "work.zip", "w") as archive:
        SeatVolume(engine, "w", FOLDER, "lab-class:cpu").save(archive, FOLDER)
    return zipfile.ZipFile(path / "work.zip")


@pytest.mark.parametrize("size", [1, 511, 1 << 20])
def test_a_container_that_is_not_started_reads_the_volume(size: int, tmp_path: Path) -> None:
    content = tar_of(entry("student/a", b"1" * 700), entry("student/b", b"2"))
    engine = Chunks(content, size)
    assert unpacked(saved(engine, tmp_path), tmp_path) == {"a": b"1" * 700, "b": b"2"}
    assert engine.events == [
        ("lab-class:cpu", "none", {"lab-class-w-ada": {"bind": "/home/student"}}),
        ("c1", "/home/student"),
        "removed",
    ]


@pytest.mark.parametrize("content", [b"", b"no tar" * 200, tar_of(entry("student/a"))[:700]])
def test_an_archive_that_ends_early(content: bytes, tmp_path: Path) -> None:
    engine = Chunks(content, 512)
    with pytest.raises(LabError) as caught:
        saved(engine, tmp_path)
    line = str(caught.value)
    assert line.startswith("reading the work of ada: ")
    assert line.endswith("; run the command again")
    assert engine.events[-1] == "removed"


# ---- A directory of this host


def collected(directory: Path, place: Path) -> tuple[int, zipfile.ZipFile]:
    """The number of entries that were left out, and the archive."""
    place.mkdir()
    with zipfile.ZipFile(place / "work.zip", "w") as archive:
        left_out = add_directory(directory, archive, FOLDER)
    return left_out, zipfile.ZipFile(place / "work.zip")


def test_a_directory_without_data_links_and_special_files(tmp_path: Path) -> None:
    files = tmp_path / "ada"
    for name in (
        "notebooks/01_async.ipynb",
        "data/train.gz",
        ".cache/x",
        ".npm/y",
        "runs/r/data/z",
    ):
        (files / name).parent.mkdir(parents=True, exist_ok=True)
        (files / name).write_text(name)
    (files / "data.txt").write_bytes(b"")
    os.mkfifo(files / "pipe")  # it would block for ever
    (files / "link").symlink_to("/etc/passwd")
    (files / "notebooks/up").symlink_to(tmp_path)
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(os.path.relpath(files / "socket"))
        left_out, archive = collected(files, tmp_path / "out")
    assert left_out == 4
    assert unpacked(archive, tmp_path / "out") == {
        "notebooks/01_async.ipynb": b"notebooks/01_async.ipynb",
        "runs/r/data/z": b"runs/r/data/z",
        "data.txt": b"",
    }


def test_a_name_that_a_terminal_would_interpret(tmp_path: Path) -> None:
    files = tmp_path / "ada"
    files.mkdir()
    (files / "a\x1b[2J\\b").write_text("mine")
    left_out, archive = collected(files, tmp_path / "out")
    assert left_out == 0
    assert archive.namelist() == [f"{FOLDER}/a\\x1b[2J_b".replace("\\", "_")]


def test_a_file_that_changes_while_it_is_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    files = tmp_path / "ada"
    files.mkdir()
    (files / "grows").write_bytes(b"1234")
    (files / "ends").write_bytes(b"1234")
    (files / "removed").write_bytes(b"1234")
    (files / "replaced").write_bytes(b"1234")
    opened = work._opened

    def change(path: Path) -> Any:
        if path.name == "grows":
            path.write_bytes(b"1234" * 10)
        elif path.name == "ends":
            path.write_bytes(b"1")
        else:
            path.unlink()
            if path.name == "replaced":
                path.symlink_to("/etc/passwd")
        return opened(path)

    monkeypatch.setattr(work, "_opened", change)
    left_out, archive = collected(files, tmp_path / "out")
    assert left_out == 2
    assert unpacked(archive, tmp_path / "out") == {"grows": b"1234", "ends": b"1"}


def test_a_directory_beyond_every_path(tmp_path: Path) -> None:
    files = tmp_path / "ada"
    files.mkdir()
    (files / "mine").write_text("mine")
    before = Path.cwd()
    os.chdir(files)
    try:
        for _ in range(1_500):
            Path("deep").mkdir()
            os.chdir("deep")
        Path("lost").write_text("too deep")
    finally:
        os.chdir(before)
    left_out, archive = collected(files, tmp_path / "out")
    assert left_out == 1
    assert archive.namelist() == [f"{FOLDER}/mine"]
    subprocess.run(["rm", "-rf", files], check=True)  # pytest cannot


def test_a_seat_that_has_no_directory_yet(tmp_path: Path) -> None:
    left_out, archive = collected(tmp_path / "ada", tmp_path / "out")
    assert (left_out, archive.namelist()) == (0, [])


def test_a_directory_has_the_limit_of_size(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(work, "MAX_BYTES", 10)
    files = tmp_path / "ada"
    files.mkdir()
    with (files / "hole").open("wb") as hole:
        hole.truncate(1 << 40)
    left_out, archive = collected(files, tmp_path / "out")
    assert (left_out, archive.namelist()) == (1, [])
