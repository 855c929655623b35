"""Files copied with a program: data files, a program for each task, and converted Python 2."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from lab.config import Cluster, parse_cluster
from lab.errors import InputError
from lab.run import program as programs
from lab.run.program import names_a_program, read_program
from lab.run.project import experiment_of
from lab.task.protocol import TaskProgram

OLD = """\
import sys
for i in xrange(3):
    print "step", i
print >>sys.stderr, 1 / 2
"""


def write(folder: Path, **files: str) -> Path:
    for name, text in files.items():
        (folder / f"{name}.py").write_text(text, encoding="utf-8")
    return folder / f"{next(iter(files))}.py"


def data_of(program: Path, *argv: str) -> list[str]:
    return [str(path) for path in read_program(str(program), listing=True, argv=argv).data]


# ---- Data files.


def test_only_files_named_in_a_listing_are_copied(tmp_path: Path) -> None:
    program = write(tmp_path, main="import part\nopen('./named.csv'), open(f'x')", part="'of.part'")
    (tmp_path / "below").mkdir()
    for name in ("named.csv", "of.part", "given.bin", "flag.bin", "below/deep.txt", "other.csv"):
        (tmp_path / name).write_text(name)
    argv = ("given.bin", "--file=flag.bin", "--deep=below/deep.txt")
    named = ["below/deep.txt", "flag.bin", "given.bin", "named.csv", "of.part"]
    assert data_of(program, *argv) == named
    assert read_program(str(program), argv=argv).data == ()
    own = read_program(str(program), listing=True, argv=argv)
    own.copy_to(tmp_path / "run/program", tmp_path / "run/files", tmp_path / "run/original")
    copied = (path for path in (tmp_path / "run").rglob("*") if path.is_file())
    assert sorted(str(path.relative_to(tmp_path / "run")) for path in copied) == [
        *(f"files/{name}" for name in named),
        *("program/main.py", "program/part.py"),
    ]
    assert (tmp_path / "run/files/named.csv").read_text() == "named.csv"


@pytest.mark.parametrize(
    "name",
    [
        *("..", "../outside.txt", "{here}/a.txt", ".hidden", "linked/a.txt", "pipe", "part.py"),
        *("a\0b", "x" * 5000, "\udc80", "", "."),
    ],
)
def test_other_files_stay(tmp_path: Path, name: str) -> None:
    folder = tmp_path / "folder"
    folder.mkdir()
    (tmp_path / "outside.txt").touch()
    for file in (".hidden", "a.txt", "part.py"):
        (folder / file).touch()
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "elsewhere/a.txt").touch()
    (folder / "linked").symlink_to(tmp_path / "elsewhere")
    os.mkfifo(folder / "pipe")
    program = write(folder, main=f"open({name.format(here=folder)!r})")
    assert data_of(program) == []


def test_a_link_to_a_file_is_followed(tmp_path: Path) -> None:
    program = write(tmp_path, main="open('data.txt')")
    (tmp_path / "truth").write_text("true")
    (tmp_path / "data.txt").symlink_to("truth")
    own = read_program(str(program), listing=True)
    own.copy_to(tmp_path / "program", tmp_path / "files", tmp_path / "original")
    assert (tmp_path / "files/data.txt").read_text() == "true"
    assert not (tmp_path / "files/data.txt").is_symlink()


def test_the_largest_file_is_named_where_all_are_too_large(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    program = write(tmp_path, main="'small', 'large'")
    (tmp_path / "small").write_bytes(bytes(1 << 20))
    (tmp_path / "large").write_bytes(bytes(3 << 20))
    monkeypatch.setattr(programs, "MAX_DATA_BYTES", 4 << 20)
    assert data_of(program) == ["large", "small"]
    monkeypatch.setattr(programs, "MAX_DATA_BYTES", (4 << 20) - 1)
    with pytest.raises(InputError, match=r"/large has 3 MiB; .* 3 MiB together; move it to anothe"):
        data_of(program)


def test_a_data_file_that_cannot_be_read_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    program = write(tmp_path, main="'data.txt'")
    (tmp_path / "data.txt").touch()
    monkeypatch.setattr(os, "access", lambda path, _mode: Path(path).name != "data.txt")  # root may
    with pytest.raises(InputError, match=r"data file .*/data\.txt cannot be read; change its perm"):
        data_of(program)


# ---- Python 2.


def test_python_2_is_converted_and_both_texts_stay(tmp_path: Path) -> None:
    program = write(tmp_path, main="import part, new\nprint part.half", part=OLD, new="x = 1 / 2")
    (tmp_path / "new.py").write_bytes(b"x = 'both \xc3\xa9'\r\n")
    own = read_program(str(program), listing=True)
    assert list(own.notes()) == [
        "main.py: converted from Python 2: print 1",
        "part.py: converted from Python 2: print 2, xrange 1; `/` of two integers now gives"
        " a fraction",
    ]
    own.copy_to(tmp_path / "program", tmp_path / "files", tmp_path / "original")
    ran = {path.name: path.read_bytes() for path in (tmp_path / "program").iterdir()}
    assert ran == {
        "main.py": b"import part, new\nprint(part.half)\n",
        "part.py": b"import sys\nfor i in range(3):\n    print('step', i)\n".replace(b"'", b'"')
        + b"print(1 / 2, file=sys.stderr)\n",
        "new.py": b"x = 'both \xc3\xa9'\r\n",
    }
    assert (tmp_path / "original/part.py").read_text() == OLD
    assert not (tmp_path / "original/new.py").exists()


@pytest.mark.parametrize(
    ("source", "converted"),
    [
        ("try: pass\nexcept E, e: print `e`", "try: pass\nexcept E as e: print(repr(e))"),
        ("from __future__ import division\nprint 1 / 2", "\nprint(1 / 2)"),
        ("# -*- coding: latin-1 -*-\nprint 'é'", "# -*- coding: latin-1 -*-\nprint('é')"),
        ("import os\r\nprint 0777\r\n", "import os\nprint(0o777)"),
    ],
)
def test_converted_files(tmp_path: Path, source: str, converted: str) -> None:
    encoding = "latin-1" if "latin" in source else "utf-8"
    (tmp_path / "main.py").write_bytes(source.encode(encoding))
    own = read_program(str(tmp_path / "main.py"), listing=True)
    assert own.converted[Path("main.py")].source == f"{converted}\n".encode(encoding)
    assert not own.converted[Path("main.py")].divides


def test_an_import_of_a_module_beside_a_program_stays(tmp_path: Path) -> None:
    # Within a package it would become `from . import part`, which a program cannot do.
    program = write(tmp_path, main="import part\nprint part.x", part="x = 1", __init__="")
    own = read_program(str(program), listing=True)
    assert own.converted[Path("main.py")].source == b"import part\nprint(part.x)\n"


@pytest.mark.parametrize("source", ["print 'x'\ndef (:\n", "print 'x'\nreturn 1\n", "print 1\n\tx"])
def test_other_syntax_errors_stay(tmp_path: Path, source: str) -> None:
    with pytest.raises(InputError, match=r"main\.py:[123]:"):
        read_program(str(write(tmp_path, main=source)), listing=True)


def test_only_a_listing_is_converted(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"main\.py:2:1: Missing parentheses in call to 'print'"):
        read_program(str(write(tmp_path, main="x = 1\nprint x")))


# ---- A program for each task.


def cluster(jobs: str) -> Cluster:
    text = f"version: 1\nname: two\nnodes: {{tf1: {{}}}}\njobs: {{{jobs}}}\n"
    return parse_cluster(text.encode(), "two.yaml")


def test_each_task_has_its_program(tmp_path: Path) -> None:
    write(tmp_path, a="import c", b="p.add_argument('--task_index')", c="x = 1")
    word = f"worker-0={tmp_path}/a.py,worker-1={tmp_path}/b.py,ps-0={tmp_path}/a.py"
    own = read_program(word)
    assert (own.program, own.name) == ("worker-0=a.py,worker-1=b.py,ps-0=a.py", "a-b")
    assert own.files == (Path("a.py"), Path("b.py"), Path("c.py"))
    assert own.programs["worker-1"] == TaskProgram("b.py", ("--task_index={index}",))
    assert own.programs["worker-0"] == own.programs["ps-0"]
    assert own.programs["worker-0"].cluster_args == ()
    wanted = experiment_of(own, cluster("worker: {on: [tf1, tf1]}, ps: {on: [tf1]}"), "2.21")
    assert (wanted.name, wanted.program) == ("a-b", own.program)


def test_names_of_task_programs() -> None:
    assert names_a_program("worker-0=a,worker-1=b")
    assert names_a_program("worker-0=a.py")
    assert not names_a_program("worker=a")


@pytest.mark.parametrize(
    ("word", "error"),
    [
        ("worker-0={}/a.py,worker-1=", "worker-1= has no program; write worker-1=FILE.py"),
        ("worker-0={0}/a.py,worker-0={0}/b.py", "worker-0 has two programs; give it only one"),
        ("worker-0={0}/a.py,worker-1={0}/deep/a.py", "are in two directories, .*put them into one"),
        ("worker-0={0}/a.py,worker-1={0}/gone.py", r"no program .*gone\.py; check its path$"),
        ("worker-0={0}/a.py,worker-1={0}/a", "a is not a Python program; name a file that ends in"),
        ("worker={0}/a.py", r"no program worker=.*; write the program of a task as worker-0=FILE"),
        ("worker-0={0}/a.py,{0}/b.py", r"no program .*a\.py,.*b\.py; check its path"),
    ],
)
def test_tasks_without_a_program(tmp_path: Path, word: str, error: str) -> None:
    (tmp_path / "deep").mkdir()
    write(tmp_path, a="", b="")
    write(tmp_path / "deep", a="")
    with pytest.raises(InputError, match=error):
        read_program(word.format(tmp_path))


@pytest.mark.parametrize(
    ("jobs", "error"),
    [
        ("worker: {on: [tf1]}", r"^worker-1=a\.py: .* 'two' has no task 'worker-1'; .* worker-0$"),
        ("worker: {on: [tf1, tf1, tf1]}", r"^worker-2 has no program; add worker-2=FILE\.py$"),
        ("worker: {on: [tf1, tf1]}, ps: {on: [tf1]}", ""),
        ("worker: {on: [tf1, tf1, tf1]}, client: {on: [tf1]}", "^client-0 has no program; add cl"),
    ],
)
def test_tasks_and_programs_fit(tmp_path: Path, jobs: str, error: str) -> None:
    write(tmp_path, a="")
    own = read_program(f"worker-0={tmp_path}/a.py,worker-1={tmp_path}/a.py")
    if not error:
        assert experiment_of(own, cluster(jobs), "2.21").services == ("ps",)
        return
    with pytest.raises(InputError, match=error):
        experiment_of(own, cluster(jobs), "2.21")
