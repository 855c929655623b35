"""`lab bundle` and `lab load`: without an engine, a network and real wheels."""

from __future__ import annotations

import errno
import json
import os
import random
import subprocess
import sys
import tarfile
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from lab.bundle import loading
from lab.bundle.archive import Blob, Manifest, SavedImage
from lab.cli import main
from lab.errors import LabError
from lab.project import replace_files
from tests.support.bundling import (
    LARGE,
    FakeEngine,
    an_image,
    renamed,
    rewritten,
    without_downloads,
)
from tests.support.cli import CLUSTER, Cli
from tests.support.disks import small_disk

PROGRAM = "scripts/mine.py"


@pytest.fixture
def engine(monkeypatch: pytest.MonkeyPatch) -> FakeEngine:
    """The engine of the room: empty."""
    return FakeEngine(monkeypatch)


@pytest.fixture
def wheels(monkeypatch: pytest.MonkeyPatch) -> dict[str, bytes]:
    return without_downloads(monkeypatch, ["lab:cpu", "lab-class:cpu"])


@pytest.fixture
def office(wheels: dict[str, bytes], monkeypatch: pytest.MonkeyPatch) -> FakeEngine:
    """The engine where bundles are written: two images share their lowest layer."""
    del wheels
    office = FakeEngine(monkeypatch)
    office.add("lab:cpu", an_image(LARGE, b"empty", b"lab", b"empty"))
    office.add("lab-class:cpu", an_image(LARGE, b"empty", b"jupyter"))
    office.install()
    return office


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A project, and a directory beside it for the room."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "project/scripts").mkdir(parents=True)
    (tmp_path / "project/cluster.yaml").write_text(CLUSTER)
    (tmp_path / "project" / PROGRAM).write_text("first")
    (tmp_path / "project/scripts/runs").mkdir()
    (tmp_path / "project/scripts/runs/log").write_text("not for the room")
    (tmp_path / "project/key.pem").write_text("secret")
    return tmp_path


def bundle(cli: Cli, name: str = "a.tar", *more: str) -> Path:
    cli("bundle", name, "--cluster", "project/cluster.yaml", *more)
    return Path(name)


def files(folder: Path) -> dict[str, bytes]:
    return {
        path.relative_to(folder).as_posix(): path.read_bytes()
        for path in folder.rglob("*")
        if path.is_file()
    }


def refused(cli: Cli, engine: FakeEngine, *arguments: str, code: int = 1) -> str:
    """The only line of a load that changes nothing."""
    engine.install()
    before, images = files(Path("room")), (dict(engine.stored), dict(engine.names))
    (line,) = (
        each
        for each in cli("load", *arguments, "--into", "room", code=code).err.splitlines()
        if not each.startswith(("checking the bundle", "loading the image"))
    )
    assert files(Path("room")) == before
    assert (engine.stored, engine.names) == images
    return line


def test_a_room_gets_files_and_images(
    here: Path, cli: Cli, office: FakeEngine, engine: FakeEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    written = json.loads(cli("bundle", "a.tar", "--cluster", "project/cluster.yaml", "--json").out)
    assert written["images"] == ["lab:cpu", "lab-class:cpu"]
    assert (written["files"], written["wheels"], written["left_out_bytes"]) == (3, 2, 0)
    engine.install()
    loaded = json.loads(cli("load", "a.tar", "--into", "room", "--json").out)
    assert loaded == {
        "into": "room",
        "written": 3,
        "kept": "",
        "images": ["lab:cpu", "lab-class:cpu"],
        "new_images": ["lab:cpu", "lab-class:cpu"],
        "next": ["cd room", "lab doctor", "lab run async --epochs 1"],
    }
    assert files(Path("room")) == {
        "cluster.yaml": CLUSTER.encode(),
        PROGRAM: b"first",
        "documents/index.html": b"<title>lab</title>",
    }
    assert engine == office
    again = cli("load", "a.tar", "--into", "room").err
    assert "0 files written" in again
    assert again.count("is already there") == 2
    assert engine.accepts == 98  # it got each image once


def test_the_same_input_gives_the_same_bytes(here: Path, cli: Cli, office: FakeEngine) -> None:
    first = bundle(cli).read_bytes()
    assert bundle(cli, "b.tar").read_bytes() == first
    assert first.count(LARGE) == 1
    with tarfile.open("a.tar") as archive:
        assert {each.mtime for each in archive} == {0}


def test_a_second_bundle_has_only_what_changed(
    here: Path,
    cli: Cli,
    office: FakeEngine,
    engine: FakeEngine,
    wheels: dict[str, bytes],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    first = bundle(cli)
    (here / "project" / PROGRAM).write_text("second")
    office.add("lab:cpu", an_image(LARGE, b"empty", b"new code"))
    wheels["gpulab-0.2.0-py3-none-any.whl"] = b"new lab"
    second = bundle(cli, "b.tar", "--since", "a.tar")
    data = second.read_bytes()
    assert len(data) < 40_000 < len(first.read_bytes())
    assert [each for each in (b"second", b"new code", b"new lab") if each not in data] == []
    (here / "room").mkdir()
    lack = refused(cli, engine, "b.tar", code=2)
    assert "error: b.tar lacks 2.1 MB of its content; name the earlier bundle, too" in lack
    newer = refused(cli, engine, "a.tar", "b.tar", code=2)
    assert "b.tar is newer than a.tar; name the newest bundle first" in newer
    cli("load", "a.tar", "--into", "room")
    (here / "room/scripts/own.py").write_text("of the room")
    output = cli("load", "b.tar", "a.tar", "--into", "room").err
    assert "room: 1 file written\nwhat was there before is in room/before-load-" in output
    assert "image lab:cpu: loaded\nimage lab-class:cpu: is already there" in output
    (kept,) = (here / "room").glob("before-load-*")
    assert files(kept) == {PROGRAM: b"first"}
    room = files(here / "room")
    assert (room[PROGRAM], room["scripts/own.py"]) == (b"second", b"of the room")
    assert engine.names == office.names
    # A third one needs both.
    assert bundle(cli, "c.tar", "--since", "b.tar").stat().st_size < len(data)
    refused(cli, engine, "c.tar", "b.tar", code=2)
    cli("load", "c.tar", "b.tar", "a.tar", "--into", "room")


def test_a_changed_byte_changes_nothing_or_is_found(
    here: Path, cli: Cli, office: FakeEngine, engine: FakeEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Bytes between the members and in unused fields of headers mean nothing."""
    data = bundle(cli, "a.tar", "--no-images").read_bytes()
    with tarfile.open("a.tar") as archive:
        used = [(each.offset_data, each.size) for each in archive]
    engine.install()
    cli("load", "a.tar", "--into", "right")
    rng = random.Random(1)  # noqa: S311
    places = [rng.randrange(len(data)) for _ in range(150)]
    places += [start + rng.randrange(size) for start, size in used if size for _ in range(3)]
    found = 0
    for place in places:
        bad = bytearray(data)
        bad[place] ^= 1 << rng.randrange(8)
        Path("bad.tar").write_bytes(bad)
        code = main(["load", "bad.tar", "--into", f"room-{place}"])
        within = any(start <= place < start + size for start, size in used)
        assert code == 1 or (code == 0 and not within), place
        assert files(Path(f"room-{place}")) == (files(Path("right")) if code == 0 else {})
        found += code == 1
    assert found > len(used) * 3


@pytest.mark.parametrize("share", [0, 0.1, 0.5, 0.9, 0.999])
def test_a_bundle_that_is_cut_off(
    here: Path, cli: Cli, office: FakeEngine, engine: FakeEngine, share: float
) -> None:
    data = bundle(cli).read_bytes()
    (here / "room").mkdir()
    for size in {int(len(data) * share), int(len(data) * share) // 512 * 512}:
        Path("a.tar").write_bytes(data[:size])
        assert "a.tar is not a valid bundle: it is cut off; copy it again" in refused(
            cli, engine, "a.tar"
        )


NUL = "\0"


def another(**values: Any) -> Callable[[Manifest], Manifest]:
    return lambda each: replace(each, **values)


def image_named(name: str) -> Callable[[Manifest], Manifest]:
    return lambda each: replace(each, images=(SavedImage(name, *_parts(each)),))


def _parts(manifest: Manifest) -> tuple[Blob, tuple[Blob, ...]]:
    return manifest.images[0].config, manifest.images[0].layers


BAD = {
    "up": (renamed(PROGRAM, "scripts/../../mine.py"), "is not a file of a project"),
    "absolute": (renamed(PROGRAM, "/etc/mine.py"), "is not a file of a project"),
    "not plain": (renamed(PROGRAM, "scripts//mine.py"), "is not a file of a project"),
    "backslash": (renamed(PROGRAM, "scripts/..\\mine.py"), "is not a file of a project"),
    "hidden": (renamed(PROGRAM, ".git/hooks/pre-commit"), "is not a file of a project"),
    "hidden config": (renamed(PROGRAM, ".config/x.yaml"), "is not a file of a project"),
    "environment": (renamed(PROGRAM, ".venv/bin/lab"), "is not a file of a project"),
    "shell": (renamed(PROGRAM, "$(touch x)"), "is not a file of a project"),
    "control": (renamed(PROGRAM, "scripts/\x1b[2J.py"), "is not a file of a project"),
    "case": (renamed("cluster.yaml", "scripts/MINE.py"), "differ only by their case"),
    "below a file": (renamed("cluster.yaml", f"{PROGRAM}/x"), "is a file and a directory"),
    "wheel": (another(wheels={"../x.whl": Blob("0" * 64, 1)}), "is not a wheel"),
    "image": (image_named("../debian:12"), "is not the name of an image"),
    "untagged": (image_named("debian"), "is not the name of an image"),
    "checksum": (another(files={"data/x": Blob("../x", 1)}), "is not a checksum"),
    "size": (another(files={"data/x": Blob("0" * 64, -1)}), "is not a checksum"),
    "format": (another(format=2), "it has format 2, and this lab reads format 1"),
    "plain": (another(plain={"install": Blob("0" * 64, 1)}), "install is damaged"),
}


@pytest.mark.parametrize("kind", BAD)
def test_a_manifest_with_what_no_bundle_has(
    here: Path, cli: Cli, office: FakeEngine, engine: FakeEngine, kind: str
) -> None:
    change, message = BAD[kind]
    rewritten(bundle(cli), change=change)
    (here / "room").mkdir()
    assert message in refused(cli, engine, "a.tar")


def test_members_that_no_bundle_has(
    here: Path, cli: Cli, office: FakeEngine, engine: FakeEngine
) -> None:
    data = bundle(cli).read_bytes()
    (here / "room").mkdir()
    for kind in (tarfile.SYMTYPE, tarfile.LNKTYPE, tarfile.DIRTYPE, tarfile.FIFOTYPE, b"L", b"x"):
        member = tarfile.TarInfo("install")
        member.type, member.linkname = kind, "/etc/passwd"
        Path("a.tar").write_bytes(member.tobuf(tarfile.GNU_FORMAT) + data)
        assert "'install' is not a regular file" in refused(cli, engine, "a.tar")
    for name, message in {
        "../evil": "'../evil' is not a file of a bundle",
        f"blobs/sha256/{'0' * 63}": "is not a file of a bundle",
        "install": "'install' is in it twice",
    }.items():
        member = tarfile.TarInfo(name)
        Path("a.tar").write_bytes(member.tobuf(tarfile.GNU_FORMAT) + data)
        assert message in refused(cli, engine, "a.tar")
    Path("a.tar").write_bytes(data + bytes(512))
    assert "its end is not where it must be" in refused(cli, engine, "a.tar")
    Path("a.tar").write_bytes(b"PK\3\4" * 1000)
    assert "a.tar is not a valid bundle" in refused(cli, engine, "a.tar")
    Path("a.tar").unlink()
    assert refused(cli, engine, "a.tar") == "error: there is no file a.tar; check its path"
    Path("a.tar").symlink_to("/dev/zero")
    assert "it is not a regular file" in refused(cli, engine, "a.tar")


def test_a_missing_blob_and_a_changed_manifest(
    here: Path, cli: Cli, office: FakeEngine, engine: FakeEngine
) -> None:
    data = bundle(cli).read_bytes()
    (here / "room").mkdir()
    with tarfile.open("a.tar") as archive:
        blob = next(each.name for each in archive if each.name.startswith("blobs/"))
    rewritten(Path("a.tar"), leave_out=blob)
    assert "a.tar lacks" in refused(cli, engine, "a.tar", code=2)
    Path("a.tar").write_bytes(data.replace(b"scripts/mine.py", b"scripts/evil.py"))
    line = refused(cli, engine, "a.tar")
    assert "manifest.json is not as manifest.sha256 says: it is damaged or changed" in line


def test_it_follows_no_link_of_the_project(
    here: Path, cli: Cli, office: FakeEngine, engine: FakeEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    bundle(cli)
    (here / "elsewhere").mkdir()
    (here / "room").mkdir()
    (here / "room/scripts").symlink_to(here / "elsewhere")
    (here / "room/cluster.yaml").symlink_to(here / "elsewhere/config")
    engine.install()
    cli("load", "a.tar", "--into", "room")
    assert files(here / "elsewhere") == {}
    (kept,) = (here / "room").glob("before-load-*")
    assert (kept / "scripts").is_symlink()
    assert (kept / "cluster.yaml").is_symlink()
    assert (here / "room" / PROGRAM).read_text() == "first"


def test_a_full_disk_changes_nothing(
    here: Path, cli: Cli, office: FakeEngine, engine: FakeEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    (here / "project/data").mkdir()
    (here / "project/data/large").write_bytes(LARGE)
    bundle(cli)
    engine.install()
    with small_disk(here / "room"):
        (here / "room/cluster.yaml").write_text("mine")
        line = refused(cli, engine, "a.tar")
    assert line == (
        "error: room cannot be written: No space left on device; make room, or name another"
        " directory with --into"
    )


def test_an_engine_that_does_not_answer_or_refuses(
    here: Path, cli: Cli, office: FakeEngine, engine: FakeEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    bundle(cli)
    (here / "room").mkdir()
    engine.install()
    engine.add("lab:cpu", an_image(b"older"))
    engine.silent = True
    line = refused(cli, engine, "a.tar")
    assert "no Docker engine answers" in line
    assert line.endswith("or load without images: --no-images")
    engine.silent, engine.accepts = False, 1
    assert "the disk is full" in refused(cli, engine, "a.tar")
    engine.silent = True
    cli("load", "a.tar", "--into", "room", "--no-images")
    assert (here / "room" / PROGRAM).read_text() == "first"


def test_images_go_again_if_the_files_cannot_be_written(
    here: Path, cli: Cli, office: FakeEngine, engine: FakeEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    bundle(cli)
    (here / "room").mkdir()
    engine.install()

    def fail(*_: object) -> None:
        raise PermissionError(errno.EACCES, os.strerror(errno.EACCES))

    monkeypatch.setattr(loading, "replace_files", fail)
    assert "room cannot be written: Permission denied" in refused(cli, engine, "a.tar")


def test_replaced_files_come_back_if_one_cannot_be_placed(tmp_path: Path) -> None:
    root, sources = tmp_path / "room", {}
    (root / "scripts").mkdir(parents=True)
    (root / "scripts/a").write_text("mine")
    (root / "clusters").symlink_to(tmp_path)
    for name in ("scripts/a", "clusters/b", "new/c"):
        sources[name] = tmp_path / name.replace("/", "-")
        sources[name].write_text(name)
    before = sorted(root.rglob("*"))

    def place(source: Path, target: Path) -> None:
        if target.name == "c":
            raise OSError(errno.ENOSPC, "full")
        source.rename(target)

    with pytest.raises(OSError, match="full"):
        replace_files(root, sources, "load", place)
    assert sorted(root.rglob("*")) == before
    assert (root / "clusters").is_symlink()
    assert (root / "scripts/a").read_text() == "mine"


# ---- What a bundle has


def test_output_and_earlier_bundle(here: Path, cli: Cli, office: FakeEngine) -> None:
    Path("mine.txt").write_text("mine")
    arguments = ("--cluster", "project/cluster.yaml")
    assert "lab did not write it" in cli("bundle", "mine.txt", *arguments, code=2).err
    bundle(cli)
    same = cli("bundle", "a.tar", "--since", "a.tar", *arguments, code=2).err
    assert "a.tar is the earlier bundle; name another output" in same
    assert "not a valid bundle" in cli("bundle", "b", "--since", "mine.txt", *arguments, code=1).err
    assert sorted(each.name for each in here.iterdir()) == ["a.tar", "mine.txt", "project"]


def test_a_class_brings_its_configs_but_no_secret(
    here: Path, cli: Cli, office: FakeEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    text = "version: 1\nname: w\nseats: 2\ncluster: clusters/own.yaml\n"
    text += "address: 0.0.0.0:8443\ntls: {certificate: key.pem, key: key.pem}\n"
    (here / "project/clusters").mkdir()
    (here / "project/clusters/own.yaml").write_text(CLUSTER)
    (here / "project/class.yaml").write_text(text)
    bundle(cli, "a.tar", "--class", "project/class.yaml")
    cli("load", "a.tar", "--into", "room", "--no-images")
    assert files(here / "room").keys() == {
        *("class.yaml", "cluster.yaml", "clusters/own.yaml", PROGRAM, "documents/index.html")
    }
    (here / "class.yaml").write_text(text.replace("clusters/own.yaml", "project/cluster.yaml"))
    arguments = ("--cluster", "project/cluster.yaml", "--class", "class.yaml")
    assert "class.yaml is not in the project" in cli("bundle", "b.tar", *arguments, code=2).err


# ---- The script in the archive


def script(folder: Path, *arguments: str, **more: str) -> str:
    """The error of `sh install`."""
    done = subprocess.run(
        ["sh", "install", *arguments],
        cwd=folder,
        env={"PATH": os.defpath, "PYTHON": sys.executable, **more},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode, done.stderr
    return done.stderr.splitlines()[-1]


def test_the_script_checks_before_it_installs(
    here: Path, cli: Cli, office: FakeEngine, wheels: dict[str, bytes]
) -> None:
    first = bundle(cli).absolute()
    wheels["gpulab-0.2.0-py3-none-any.whl"] = b"new lab"
    second = bundle(cli, "b.tar", "--since", "a.tar").absolute()
    room = here / "room"
    room.mkdir()
    subprocess.run(["tar", "-xf", second, "install"], cwd=room, check=True)
    assert "no bundle; run sh install BUNDLE" in script(room)
    assert "not-python is not Python" in script(room, "../b.tar", PYTHON="not-python")
    lack = script(room, "../b.tar")
    assert (
        lack
        == "install: error: no bundle has numpy-2.0-cp311-x86_64.whl; name the earlier bundle, too"
    )
    bad = first.read_bytes()
    first.write_bytes(bad.replace(b"numpy" + bytes(507), b"numpi" + bytes(507)))
    damaged = script(room, "../b.tar", "../a.tar")
    assert damaged == "install: error: a wheel is damaged; copy the bundle again"
    assert [each.name for each in room.iterdir()] == ["install"]


def test_the_texts_in_the_archive(here: Path, cli: Cli, office: FakeEngine) -> None:
    bundle(cli)
    with tarfile.open("a.tar") as archive:
        readme, install = (
            archive.extractfile(each).read().decode() for each in ("README.txt", "install")
        )
        assert archive.getmember("install").mode == 0o755
    assert "    lab:cpu\n    lab-class:cpu\n" in readme
    version = ".".join(map(str, sys.version_info[:3]))
    assert f"- Python {version} or a later" in readme
    assert subprocess.run(["sh", "-n"], input=install, text=True, check=False).returncode == 0
    assert LabError.exit_code == 1
