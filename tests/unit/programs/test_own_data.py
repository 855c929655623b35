"""Files copied with a program: data files, a program for each task, and converted Python 2."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from lab.base.errors import InputError
from lab.cluster.config import Cluster, parse_cluster
from lab.programs.own import read_program
from lab.programs.python_source import Conversion
from lab.runner.own_experiment import experiment_of
from tests.support.programs import write

OLD = """\
import sys
for i in xrange(3):
    print "step", i
print >>sys.stderr, 1 / 2
"""


def data_of(program: Path, *argv: str) -> list[str]:
    return [str(path) for path in read_program(str(program), argv=argv).data.files]


def test_only_named_files_are_copied(tmp_path: Path) -> None:
    program = write(tmp_path, main="import part\nopen('./named.csv'), open(f'x')", part="'of.part'")
    (tmp_path / "below").mkdir()
    for name in ("named.csv", "of.part", "given.bin", "flag.bin", "below/deep.txt", "other.csv"):
        (tmp_path / name).write_text(name)
    argv = ("given.bin", "--file=flag.bin", "--deep=below/deep.txt")
    named = ["below/deep.txt", "flag.bin", "given.bin", "named.csv", "of.part"]
    assert data_of(program, *argv) == named
    own = read_program(str(program), argv=argv)
    own.copy_to(tmp_path / "run/program", tmp_path / "run/files", tmp_path / "run/original")
    copied = (path for path in (tmp_path / "run").rglob("*") if path.is_file())
    assert sorted(str(path.relative_to(tmp_path / "run")) for path in copied) == [
        *(f"files/{name}" for name in named),
        *("program/main.py", "program/part.py"),
    ]
    assert (tmp_path / "run/files/named.csv").read_text() == "named.csv"


def test_a_python_file_that_is_opened_is_in_the_working_directory_and_beside_the_source(
    tmp_path: Path,
) -> None:
    folder = tmp_path / "project"
    program = write(folder, main="exec(open('settings.py').read())", settings="", other="")
    write(folder / "config", gpt="")
    own = read_program(str(program), argv=["config/gpt.py"])
    own.copy_to(tmp_path / "program", tmp_path / "files", tmp_path / "original")
    copied = (path for path in tmp_path.rglob("*.py") if folder not in path.parents)
    assert sorted(str(path.relative_to(tmp_path)) for path in copied) == [
        *("files/config/gpt.py", "files/settings.py"),
        *(f"program/{name}.py" for name in ("config/gpt", "main", "other", "settings")),
    ]


def test_a_file_of_arguments_is_copied(tmp_path: Path) -> None:
    (tmp_path / "arguments.txt").touch()
    assert data_of(write(tmp_path, main=""), "@arguments.txt") == ["arguments.txt"]


@pytest.mark.parametrize(
    "name",
    [
        *("..", "../outside.txt", "{here}/a.txt", ".hidden", "linked/a.txt", "pipe", "part"),
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


def test_the_largest_file_is_named_where_all_are_too_large(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    program = write(tmp_path, main="'small', 'large'")
    (tmp_path / "small").write_bytes(bytes(1 << 20))
    (tmp_path / "large").write_bytes(bytes(3 << 20))
    monkeypatch.setattr("lab.programs.data_files.MAX_DATA_BYTES", 4 << 20)
    assert data_of(program) == ["large", "small"]
    monkeypatch.setattr("lab.programs.data_files.MAX_DATA_BYTES", (4 << 20) - 1)
    with pytest.raises(InputError, match=r"/large has 3 MiB; .* 3 MiB together; move it to anothe"):
        data_of(program)


def make(folder: Path, *files: str, size: int = 1) -> None:
    for file in files:
        path = folder / file
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(bytes(size))


@pytest.mark.parametrize(
    ("source", "found"),
    [
        ("os.path.join('data', 'in.csv')", ["data/in.csv", "data/part-1.csv", "data/sub/x.bin"]),
        ("Path('data') / 'sub' / 'x.bin'", ["data/in.csv", "data/part-1.csv", "data/sub/x.bin"]),
        ("f'data/part-{i}.csv'", ["data/in.csv", "data/part-1.csv", "data/sub/x.bin"]),
        ("glob.glob('./data/*.csv')", ["data/in.csv", "data/part-1.csv", "data/sub/x.bin"]),
        ("'logs/plain.csv'", ["logs/plain.csv"]),
        ("'%s', '{}', '*', '**/*.csv', 'logs', 'linked', '.', '/data'", []),
        ("'[a].csv'", ["[a].csv"]),
    ],
)
def test_a_text_that_begins_with_a_directory_names_its_files(
    tmp_path: Path, source: str, found: list[str]
) -> None:
    make(tmp_path, "data/in.csv", "data/part-1.csv", "data/sub/x.bin", "data/.hidden/x", "a.csv")
    make(tmp_path, "data/code.py", "other.bin", "[a].csv")
    make(tmp_path, "logs/events.out.tfevents.17", "logs/plain.csv", "elsewhere/x.csv")
    (tmp_path / "linked").symlink_to(tmp_path / "elsewhere")
    assert data_of(write(tmp_path, main=source)) == found


@pytest.mark.parametrize(
    "written", ["checkpoint", "sub/model.ckpt-17.index", "events.out.tfevents.1", "run.json"]
)
def test_what_an_earlier_run_wrote_is_not_copied_as_a_directory(
    tmp_path: Path, written: str
) -> None:
    make(tmp_path, "out/a.csv")
    program = write(tmp_path, main="'out'")
    assert data_of(program) == ["out/a.csv"]
    make(tmp_path, f"out/{written}")
    assert data_of(program) == []


def test_a_large_directory_is_named_and_not_copied(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("lab.programs.data_files.MAX_DATA_BYTES", 4 << 20)
    make(tmp_path, "small.csv", "few/x")
    make(tmp_path, "data/a", "data/b", size=2 << 20)
    own = read_program(str(write(tmp_path, main="'data', 'few', 'small.csv'")))
    assert [str(file) for file in own.data.files] == ["few/x", "small.csv"]
    (note,) = own.notes()
    assert note.startswith("data/ is not copied into the run: it has more than 4 MiB or 10,000 fil")
    monkeypatch.setattr("lab.programs.data_files.MAX_DATA_BYTES", 8 << 20)
    monkeypatch.setattr("lab.programs.data_files.MAX_DIRECTORY_FILES", 1)
    assert data_of(tmp_path / "main.py") == ["few/x", "small.csv"]


@pytest.mark.parametrize(
    ("source", "beside"),
    [("open(Path(__file__).parent / 'vocabulary.txt')", True), ("open('vocabulary.txt')", False)],
)
def test_files_beside_the_source_are_copied_there_too(
    tmp_path: Path, source: str, beside: bool
) -> None:
    make(tmp_path, "project/vocabulary.txt", "project/pkg/vocabulary.txt")
    program = write(tmp_path / "project", main="import pkg.part")
    write(tmp_path / "project/pkg", part=source, __init__="")
    own = read_program(str(program))
    own.copy_to(tmp_path / "program", tmp_path / "files", tmp_path / "original")
    copied = sorted(str(path.relative_to(tmp_path)) for path in tmp_path.rglob("vocabulary.txt"))
    ran = ["files/pkg/vocabulary.txt", "files/vocabulary.txt"]
    if beside:
        ran += ["program/pkg/vocabulary.txt", "program/vocabulary.txt"]
    assert [path for path in copied if not path.startswith("project")] == ran


def test_python_2_is_converted_and_both_texts_stay(tmp_path: Path) -> None:
    program = write(tmp_path, main="import part, new\nprint part.half", part=OLD, new="x = 1 / 2")
    (tmp_path / "new.py").write_bytes(b"x = 'both \xc3\xa9'\r\n")
    own = read_program(str(program), listing=True)
    assert list(own.notes()) == [
        "main.py: converted from Python 2",
        "part.py: converted from Python 2; `/` of two integers now gives a fraction",
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


def listing_of(folder: Path, source: str | bytes) -> Conversion | None:
    data = source.encode() if isinstance(source, str) else source
    (folder / "main.py").write_bytes(data)
    return read_program(str(folder / "main.py"), listing=True).converted.get(Path("main.py"))


@pytest.mark.parametrize(
    ("source", "converted"),
    [
        ("try: pass\nexcept E, e: print `e`", "try: pass\nexcept E as e: print(repr(e))"),
        ("from __future__ import division\nprint 1 / 2", "\nprint(1 / 2)"),
        ("import os\r\nprint 0777\r\n", "import os\nprint(0o777)"),
        ("for i in xrange(3): print('a', i)", "for i in range(3): print('a', i)"),
        ("import cPickle as p\nprint('a', 1)", "import pickle as p\nprint('a', 1)"),
        ("for k in d.iteritems(): print(k)", "for k in d.items(): print(k)"),
        ("print(d.has_key(1), raw_input())", "print(1 in d, input())"),
        # Within a package it would become `from . import part`, which a program cannot do.
        ("import part\nprint part.x", "import part\nprint(part.x)"),
        # Tabs count to the next eighth column.
        ("if x:\n        y = 1\n\tz = 2", "if x:\n        y = 1\n        z = 2"),
        ("if x:\n    if y:\n\tz = 2", "if x:\n    if y:\n        z = 2"),
        (
            "if x:\n        y = '''\n\ta'''\n\tz\tor 3",
            "if x:\n        y = '''\n\ta'''\n        z\tor 3",
        ),
        ("if x:\n        print `1`\n\tprint 2", "if x:\n        print(repr(1))\n        print(2)"),
        ("# -*- coding: latin-1 -*-\nprint 'é'", "# -*- coding: latin-1 -*-\nprint('é')"),
    ],
)
def test_converted_files(tmp_path: Path, source: str, converted: str) -> None:
    write(tmp_path, part="x = 1", __init__="")
    encoding = "latin-1" if "latin-1" in source else "utf-8"
    found = listing_of(tmp_path, source.encode(encoding))
    assert found.source == f"{converted}\n".encode(encoding)
    assert not found.divides


def test_an_import_within_a_package_becomes_relative(tmp_path: Path) -> None:
    (tmp_path / "pkg").mkdir()
    write(tmp_path / "pkg", part="import near\nimport os\nprint near.x", near="x = 1", __init__="")
    own = read_program(str(write(tmp_path, main="import pkg.part")), listing=True)
    assert own.converted[Path("pkg/part.py")].source == (
        b"from . import near\nimport os\nprint(near.x)\n"
    )
    write(tmp_path / "pkg", near="x =")
    with pytest.raises(InputError, match=r"near\.py:1:4"):
        read_program(str(tmp_path / "main.py"), listing=True)


@pytest.mark.parametrize(
    "source",
    [
        "xrange = range\nxrange(3)",
        "from six.moves import xrange\nxrange(3)",
        "from compatible import *\nxrange(3)",
        "try:\n    import cPickle as p\nexcept ImportError:\n    import pickle as p",
        "six.iteritems(d)",
        "def f(long): return long",
        "print('a', b), d.keys()",
        "d.has_key(1, 2)",  # a method of the program
    ],
)
def test_names_that_a_program_defines_stay(tmp_path: Path, source: str) -> None:
    assert listing_of(tmp_path, source) is None


@pytest.mark.parametrize(
    ("source", "error"),
    [
        ("print 'x'\ndef (:\n", r"main\.py:[123]:"),
        ("print 'x'\nreturn 1\n", r"main\.py:[123]:"),
        ("print 1\n\tx", r"main\.py:[123]:"),
        ("print 'x'\nf(async=True)\n", ":1:1: Missing .*; the conversion from Python 2 fails; f"),
    ],
)
def test_other_syntax_errors_stay(tmp_path: Path, source: str, error: str) -> None:
    with pytest.raises(InputError, match=error):
        listing_of(tmp_path, source)


def test_only_a_listing_is_converted(tmp_path: Path) -> None:
    assert not read_program(str(write(tmp_path, main="xrange(3)"))).converted
    with pytest.raises(InputError, match=r"main\.py:2:1: Missing parentheses in call to 'print'"):
        read_program(str(write(tmp_path, main="x = 1\nprint x")))


def cluster(jobs: str) -> Cluster:
    text = f"version: 1\nname: two\nnodes: {{tf1: {{}}}}\njobs: {{{jobs}}}\n"
    return parse_cluster(text.encode(), "two.yaml")


def test_each_task_has_its_program(tmp_path: Path) -> None:
    write(tmp_path, a="import c", b="p.add_argument('--task_index')", c="x = 1")
    word = f"worker-0={tmp_path}/a.py,worker-1={tmp_path}/b.py,ps-0={tmp_path}/a.py"
    own = read_program(word)
    assert (own.program, own.name) == ("worker-0=a.py,worker-1=b.py,ps-0=a.py", "a-b")
    assert own.files == (Path("a.py"), Path("b.py"), Path("c.py"))
    assert own.programs == {"worker-0": "a.py", "worker-1": "b.py", "ps-0": "a.py"}
    wanted = experiment_of(own, cluster("worker: {on: [tf1, tf1]}, ps: {on: [tf1]}"), "tensorflow")
    assert (wanted.name, wanted.program) == ("a-b", own.program)


COORDINATOR = "coordinator = tf.distribute.coordinator.ClusterCoordinator(strategy)"
STRATEGY = "strategy = tf.distribute.ParameterServerStrategy(resolver)"


@pytest.mark.parametrize(
    ("source", "jobs", "services"),
    [
        ("", "worker", ()),
        ("", "ps worker", ("ps",)),
        ("", "worker client", ("worker",)),
        ("", "ps worker client", ("ps", "worker")),
        (COORDINATOR, "chief ps worker", ("ps", "worker")),
        (STRATEGY, "chief ps worker", ("ps", "worker")),
        (COORDINATOR, "worker client", ("worker",)),
        (COORDINATOR, "ps worker", ("ps",)),
        (f"{STRATEGY}\ntf.estimator.RunConfig(strategy)", "chief ps worker", ("ps",)),
        ("tf.estimator.train_and_evaluate(a, b, c)", "chief ps worker", ("ps",)),
        ("strategy = MultiWorkerMirroredStrategy()", "chief worker", ()),
    ],
)
def test_a_job_that_assigns_all_steps_makes_the_others_services(
    tmp_path: Path, source: str, jobs: str, services: tuple[str, ...]
) -> None:
    write(tmp_path, a=source)
    own = read_program(str(tmp_path / "a.py"))
    described = cluster(", ".join(f"{job}: {{on: [tf1]}}" for job in jobs.split()))
    assert experiment_of(own, described, "tensorflow").services == services


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
        assert experiment_of(own, cluster(jobs), "tensorflow").services == ("ps",)
        return
    with pytest.raises(InputError, match=error):
        experiment_of(own, cluster(jobs), "tensorflow")
