"""Damaged and malicious archives of runs, and what `lab import` does with them."""

from __future__ import annotations

import io
import random
import shutil
import tarfile
from collections.abc import Iterator
from pathlib import Path

from lab.runner.store.archive import contents, pack
from lab.runner.store.directory import RunDir
from tests.hostile.calls import call, faults_of
from tests.hostile.runs import BAD, GOOD, SAMPLES
from tests.hostile.values import ODD, changed_json

NAMES = (
    "../evil", "/etc/evil", f"{BAD}/../../evil", f"{BAD}/..\\..\\evil", f"{BAD}/tasks/../run.json",
    f"{BAD}/RUN.json", f"{BAD}/program/a/../../x", f"{BAD}/program//x", f"{BAD}/program/\x1b.py",
    f"{BAD}/program/{'x' * 300}", f"{BAD}/logs/worker-0.log/x", f"{BAD}/status/worker-0.jsonl",
    f"{GOOD}/run.json", f"{BAD}/program", f"{BAD}/", "", "C:/evil", f"{BAD}/run.json",
    f"{BAD}/run.json/x", f"{BAD}/gpu.jsonl/x", "/".join("a" * 90),
)  # fmt: skip
"""Names of files that an archive must not have; some are names of files that it has."""

KINDS = (tarfile.SYMTYPE, tarfile.LNKTYPE, tarfile.FIFOTYPE, tarfile.CHRTYPE, tarfile.DIRTYPE)


def attack(seed: int, around: Path) -> Iterator[str]:
    # Nothing else writes to either directory, so that each new file is the import's.
    folder = around / "folder"
    folder.mkdir(exist_ok=True)
    store, file = folder / "imported", folder / "hostile.lab.tar.gz"
    shutil.rmtree(store, ignore_errors=True)
    before = _seen(folder) - {file.name, store.name}
    data, done, may_pass = damaged(seed)
    file.write_bytes(data)
    output = call("import", str(file), "--runs-dir", str(store))
    there = sorted(path.name for path in store.iterdir())
    checks = {
        f"{done}: a malicious archive was imported": output.code == 0 and not may_pass,
        f"{done}: the run store has {there}": there != ([BAD] if output.code == 0 else []),
        f"{done}: a file is not regular": any(
            path.is_symlink() or not (path.is_file() or path.is_dir()) for path in store.rglob("*")
        ),
        f"{done}: a file outside the run store": _seen(folder) - {file.name, store.name} != before,
    }
    yield from output.faults()
    yield from (output.fault(what) for what, is_so in checks.items() if is_so)
    if output.code == 0:
        yield from faults_of([["runs"], ["show", BAD]], "--runs-dir", str(store))


def damaged(seed: int) -> tuple[bytes, str, bool]:
    """A changed archive, a text about the change, and whether it may still be valid."""
    rng = random.Random(seed)  # noqa: S311
    run, source = RunDir(SAMPLES / BAD), io.BytesIO()
    pack(run, list(contents(run, complete=False)[0]), source)
    data, how = bytearray(source.getvalue()), seed % 5
    if how == 0:
        for _ in range(rng.randrange(1, 4)):
            data[rng.randrange(len(data))] = rng.randrange(256)
        return bytes(data), "bytes are changed", True  # a date may be changed
    if how == 1:
        return bytes(data[: rng.randrange(len(data))]), "it is cut off", False
    with tarfile.open(fileobj=io.BytesIO(source.getvalue())) as archive:
        members = [(member, _content(archive, member)) for member in archive]
    done, may_pass = _change(members, how, rng)
    target = io.BytesIO()
    with tarfile.open(fileobj=target, mode="w:gz", compresslevel=rng.choice((1, 9))) as archive:
        for member, content in members:
            member.size = len(content)
            archive.addfile(member, io.BytesIO(content))
    return target.getvalue(), done, may_pass


def _content(archive: tarfile.TarFile, member: tarfile.TarInfo) -> bytes:
    file = archive.extractfile(member)
    return file.read()


def _change(
    members: list[tuple[tarfile.TarInfo, bytes]], how: int, rng: random.Random
) -> tuple[str, bool]:
    if how == 2:
        name = rng.choice(NAMES)
        members.insert(rng.randrange(len(members) + 1), (tarfile.TarInfo(name), b"{}"))
        return f"it also has {name!r}", False
    if how == 3:
        member, kind = rng.choice(members)[0], rng.choice(KINDS)
        member.type, member.linkname = kind, "/etc/passwd"
        return f"{member.name} is of kind {kind!r}", False
    if rng.randrange(4) == 0:
        deep = "/".join("d" * 400)
        files = [tarfile.TarInfo(f"{BAD}/program/{number}/{deep}/x") for number in range(60)]
        members += [(file, b"") for file in files]
        return "it has 24,000 directories", False
    place = rng.choice([i for i, (each, _) in enumerate(members) if each.name.endswith(".json")])
    member, data = members[place]
    text = changed_json(data.decode(), rng) if rng.randrange(4) else str(rng.choice(ODD))
    members[place] = (member, text.encode("utf-8", "surrogatepass"))
    return f"{member.name} is changed", True


def _seen(folder: Path) -> set[str]:
    return {path.name for path in (*folder.iterdir(), *folder.parent.iterdir())}
