"""Damaged and malicious archives of runs, and what `lab import` and `lab report` do with them."""

from __future__ import annotations

import io
import random
import shutil
import stat
import zipfile
from collections.abc import Iterator
from pathlib import Path

from lab.run.archive import contents, pack
from lab.run.store import RunDir
from tests.hostile.calls import Column, Fault, call
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

KINDS = (stat.S_IFLNK, stat.S_IFIFO, stat.S_IFCHR, stat.S_IFSOCK, stat.S_IFDIR)


def attack(seed: int, around: Path) -> Iterator[Fault]:
    """Import a changed archive; on one of fifty also make a report of it."""
    # Nothing else writes to either directory, so that each new file is the import's.
    folder = around / "folder"
    folder.mkdir(exist_ok=True)
    store, file = folder / "imported", folder / "hostile.lab.zip"
    shutil.rmtree(store, ignore_errors=True)
    before = _seen(folder) - {file.name, store.name}
    done, may_pass = damage(file, seed)
    output = call(["import", str(file), "--runs-dir", str(store)])
    found = list(output.faults())
    if output.code == 0 and not may_pass:
        found.append(output.fault(Column.SUCCESS, "a malicious archive was imported"))
    there = sorted(path.name for path in store.iterdir())
    if there != ([BAD] if output.code == 0 else []):
        found.append(output.fault(Column.SUCCESS, f"the run store has {there}"))
    if any(not (path.is_file() or path.is_dir()) or path.is_symlink() for path in _below(store)):
        found.append(output.fault(Column.SUCCESS, "a file is not regular"))
    if _seen(folder) - {file.name, store.name} != before:
        found.append(output.fault(Column.SUCCESS, "a file outside the run store"))
    for arguments in (["runs"], ["show", BAD]) if output.code == 0 else ():
        found += call([*arguments, "--runs-dir", str(store)]).faults()
    if seed % 50 == 0:
        page = str(folder / "hostile.html")
        found += call(["report", str(file), "--output", page, "--runs-dir", str(store)]).faults()
        Path(page).unlink(missing_ok=True)
        shutil.rmtree(folder / "hostile-figures", ignore_errors=True)
    for fault in found:
        yield Fault(fault.column, f"{done}: {fault.words}")


def archive(run: Path = SAMPLES / BAD) -> bytes:
    """A valid archive of a run."""
    data = io.BytesIO()
    pack(RunDir(run), list(contents(RunDir(run), complete=False)[0]), data)
    return data.getvalue()


def damage(file: Path, seed: int) -> tuple[str, bool]:
    """Write a changed archive.

    Returns:
        A text about the change, and whether the archive may still be valid.
    """
    rng = random.Random(seed)  # noqa: S311
    data = bytearray(archive())
    how = seed % 6
    if how == 0:
        for _ in range(rng.randrange(1, 4)):
            data[rng.randrange(len(data))] = rng.randrange(256)
        done, may_pass = "bytes are changed", True  # a date may be changed
    elif how == 1:
        del data[rng.randrange(len(data)) :]
        done, may_pass = "it is cut off", False
    elif how == 2:
        place = data.rindex(b"PK\x05\x06") if rng.randrange(2) else data.index(b"PK\x01\x02")
        for _ in range(2):
            data[place + 4 + rng.randrange(16)] = rng.choice((0, 1, 127, 255))
        done, may_pass = "its list of files is changed", True
    else:
        members = _members(bytes(data))
        done, may_pass = _change(members, how, rng)
        data = bytearray(_packed(members, rng.choice((zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED))))
    file.write_bytes(data)
    return done, may_pass


def _members(data: bytes) -> list[tuple[zipfile.ZipInfo, bytes]]:
    with zipfile.ZipFile(io.BytesIO(data)) as source:
        return [(member, source.read(member)) for member in source.infolist()]


def _change(
    members: list[tuple[zipfile.ZipInfo, bytes]], how: int, rng: random.Random
) -> tuple[str, bool]:
    place = rng.randrange(len(members))
    member, data = members[place]
    if how == 3:
        name = rng.choice(NAMES)
        members.insert(rng.randrange(len(members) + 1), (zipfile.ZipInfo(name), b"{}"))
        return f"it also has {name!r}", False
    if how == 4:
        kind = rng.choice(KINDS)
        member.external_attr = (kind | 0o777) << 16
        return f"{member.filename} is of kind {kind:o}", False
    if rng.randrange(4) == 0:
        name = f"{BAD}/program/{'zeros.bin' if rng.randrange(2) else 'a.py'}"
        members.append((zipfile.ZipInfo(name), bytes(40 << 20)))
        return f"{name} has 40 MiB of zeros", True  # without compression it is no bomb
    texts = [each for each in members if each[0].filename.endswith(".json")]
    member, data = rng.choice(texts)
    text = changed_json(data.decode(), rng) if rng.randrange(4) else str(rng.choice(ODD))
    members[members.index((member, data))] = (member, text.encode("utf-8", "surrogatepass"))
    return f"{member.filename} is changed", True


def _packed(members: list[tuple[zipfile.ZipInfo, bytes]], compression: int) -> bytes:
    data = io.BytesIO()
    with zipfile.ZipFile(data, "w") as target:
        for old, content in members:
            new = zipfile.ZipInfo(old.filename)
            new.external_attr = old.external_attr
            target.writestr(new, content, compression)
    return data.getvalue()


def _seen(folder: Path) -> set[str]:
    return {path.name for path in (*folder.iterdir(), *folder.parent.iterdir())}


def _below(folder: Path) -> list[Path]:
    return list(folder.rglob("*"))
