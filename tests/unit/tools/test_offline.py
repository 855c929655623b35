"""`tools/offline.py`: without an engine, a network and the wheels of lab."""

from __future__ import annotations

import io
import os
import subprocess
import sys
import tarfile
import zipfile
from collections.abc import Callable, Iterable
from pathlib import Path

import pytest

from tools import offline

DOCKER = """\
#!/bin/sh
echo "$*" >>"$LOG"
case $1 in
save) echo "$*" >"$3" ;;
load) cat >"$LOG.loaded" ;;
esac
exit "${FAILS:-0}"
"""
"""An engine that saves an archive with the names of the images, and keeps what it loads."""


@pytest.fixture
def log(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """What the engine was asked; the log's name with `.loaded` has what it loaded."""
    docker = tmp_path / "bin/docker"
    docker.parent.mkdir()
    docker.write_text(DOCKER)
    docker.chmod(0o755)
    log = tmp_path / "log"
    log.touch()
    monkeypatch.setenv("LOG", str(log))
    monkeypatch.setenv("PATH", f"{docker.parent}:{os.environ['PATH']}")
    return log


def a_wheel(folder: Path) -> None:
    folder.mkdir()
    with zipfile.ZipFile(folder / "room-1-py3-none-any.whl", "w") as wheel:
        wheel.writestr("room.py", "print('in the room')\n")
        wheel.writestr("room-1.dist-info/METADATA", "Metadata-Version: 2.1\nName: room\nVersion: 1")
        wheel.writestr("room-1.dist-info/WHEEL", "Wheel-Version: 1.0\nTag: py3-none-any\n")
        wheel.writestr("room-1.dist-info/RECORD", "")


@pytest.fixture
def archive(log: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """What a host with a network packs; the current directory is an empty one in the room."""
    monkeypatch.setattr(offline, "download", lambda folder, locks: a_wheel(folder))
    office, room = tmp_path / "office", tmp_path / "room"
    for path in ("scripts/mine.py", "scripts/runs/log", "key.pem", ".git/config", "cluster.yaml"):
        (office / path).parent.mkdir(parents=True, exist_ok=True)
        (office / path).write_text(path)
    (office / "scripts/link").symlink_to("/etc/passwd")
    room.mkdir()
    monkeypatch.chdir(office)
    run("pack", "room.tar", "--image", "lab:cpu", "--image", "lab-class:cpu", ".")
    assert log.read_text().split()[3:] == ["lab:cpu", "lab-class:cpu"]
    monkeypatch.chdir(room)
    return office / "room.tar"


def run(*words: str | Path) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sys, "argv", ["offline.py", *map(str, words)])
        offline.main()


def refused(*words: str | Path) -> str:
    before = sorted(Path().rglob("*"))
    with pytest.raises(SystemExit) as stop:
        run(*words)
    assert sorted(Path().rglob("*")) == before
    return str(stop.value.code)


def names(archive: Path) -> set[str]:
    with tarfile.open(archive) as tar:
        return {os.path.normpath(member.name) for member in tar if member.isfile()}


def test_a_room_gets_what_was_packed(archive: Path, log: Path) -> None:
    """Links, runs, keys and hidden files stay at home."""
    project = {"project/cluster.yaml", "project/scripts/mine.py"}
    wheel = "wheels/room-1-py3-none-any.whl"
    assert names(archive) == {*project, wheel, "images.tar", "offline.py", "SHA256SUMS"}
    subprocess.run(["tar", "-xf", archive, "offline.py"], check=True)
    script = [sys.executable, "-I", "offline.py", "install", archive]
    subprocess.run(script, check=True, stdout=subprocess.DEVNULL)
    assert {path.name for path in Path().iterdir()} == {
        *(".venv", "cluster.yaml", "offline.py", "scripts"),
    }
    assert Path("scripts/mine.py").read_text() == "scripts/mine.py"
    python = [".venv/bin/python", "-c", "import room"]
    assert subprocess.check_output(python, text=True) == "in the room\n"
    assert "lab-class:cpu" in log.with_name("log.loaded").read_text()
    assert refused("install", archive).endswith(".venv is there already; use a new directory")


Entries = Iterable[tuple[tarfile.TarInfo, bytes]]
Change = Callable[[tarfile.TarInfo, bytes], Entries]
"""A member of an archive and its content to what stands in its place."""


def changed(archive: Path, change: Change) -> Path:
    """A copy in which a function has changed, left out or added files."""
    copy = archive.with_name("changed.tar")
    with tarfile.open(archive) as old, tarfile.open(copy, "w") as new:
        for member in old:
            content = old.extractfile(member).read() if member.isfile() else b""
            for entry, data in change(member, content):
                entry.size = len(data)
                new.addfile(entry, io.BytesIO(data))
    return copy


def renamed(old: str, new: str) -> Change:
    """A file with another name, also in the checksums."""

    def change(member: tarfile.TarInfo, data: bytes) -> Entries:
        if os.path.normpath(member.name) == old:
            member.name = new
        yield member, data.replace(old.encode(), new.encode())

    return change


def linked(member: tarfile.TarInfo, data: bytes) -> Entries:
    if member.name.endswith("cluster.yaml"):
        member.type, member.linkname, data = tarfile.SYMTYPE, "/etc/passwd", b""
    yield member, data


def twice(member: tarfile.TarInfo, data: bytes) -> Entries:
    yield member, data
    if member.isfile():
        yield member, data


def damaged(member: tarfile.TarInfo, data: bytes) -> Entries:
    yield member, data[:-1] + b"?" if member.name == "images.tar" else data


def without(name: str) -> Change:
    return lambda member, data: [(member, data)] if member.name != name else []


def with_another(member: tarfile.TarInfo, data: bytes) -> Entries:
    yield member, data
    if member.name == "offline.py":
        yield tarfile.TarInfo("wheels/evil.whl"), b"evil"


DAMAGE: dict[str, tuple[Change, str]] = {
    "a path above": (renamed("project/cluster.yaml", "project/../../x"), "leads out of its"),
    "an absolute path": (renamed("project/cluster.yaml", "/tmp/x"), "leads out of its"),
    "a link": (linked, "'project/cluster.yaml' is a link or a device"),
    "a file twice": (twice, "'offline.py' is a link or a device, or is there twice"),
    "other content": (damaged, "'images.tar' is damaged, missing or not in SHA256SUMS"),
    "no image": (without("images.tar"), "'images.tar' is damaged, missing or not in SHA256SUMS"),
    "another wheel": (with_another, "'wheels/evil.whl' is damaged, missing or not in"),
    "no checksums": (without("SHA256SUMS"), "there is no SHA256SUMS; name an archive that"),
}


@pytest.mark.parametrize("damage", DAMAGE)
def test_a_changed_archive_changes_nothing(archive: Path, log: Path, damage: str) -> None:
    change, error = DAMAGE[damage]
    before = log.read_text()
    assert error in refused("install", changed(archive, change))
    assert log.read_text() == before


def test_an_archive_that_is_cut_off(archive: Path) -> None:
    archive.write_bytes(archive.read_bytes()[:-20_000])
    assert refused("install", archive).startswith("offline.py: error: ")


def test_a_file_in_the_way(archive: Path) -> None:
    Path("cluster.yaml").write_text("mine")
    assert "cluster.yaml is there already; use a new directory" in refused("install", archive)


def test_a_failed_command_leaves_no_environment(
    archive: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FAILS", "1")
    assert "`docker load` failed; see its message above" in refused("install", archive)
    python = Path(".venv/bin/python")

    def run_command(*command: str, **_: object) -> None:
        if command[1:3] == ("-m", "venv"):
            python.parent.mkdir(parents=True)
        if command[0] == str(python):
            raise offline.OfflineError("a wheel of another platform")

    monkeypatch.setattr(offline, "_run", run_command)
    assert "a wheel of another platform" in refused("install", archive)


@pytest.mark.parametrize("path", ["/etc/passwd", "../office", "scripts/../../x", "nothing"])
def test_files_of_the_project_alone_are_packed(
    archive: Path, path: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    expected = "No such file" if path == "nothing" else f"{path!r} leads out of its directory"
    monkeypatch.chdir(archive.parent)
    assert expected in refused("pack", "other.tar", path)


def test_the_wheels_are_the_locked_ones(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    commands: list[tuple[str, ...]] = []
    monkeypatch.setattr(offline, "_run", lambda *command, **_: commands.append(command))
    offline.download(tmp_path / "wheels", ["host", "class"])
    download, build = commands
    assert {"--require-hashes", "--only-binary=:all:", "--no-deps"} < set(download)
    locks = [word.partition("=")[2] for word in download if word.startswith("--requirement=")]
    assert all(Path(lock).is_file() for lock in locks)
    assert [Path(lock).name for lock in locks] == ["host.txt", "class.txt"]
    assert f"--directory={tmp_path}/wheels" in build
