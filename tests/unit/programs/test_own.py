"""A user's program, a file or a module: its checks, its copied files, and its start."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from lab.base.errors import InputError
from lab.programs import names_a_program
from lab.programs import own as programs
from lab.programs.own import read_program
from lab.protocol.volume import Request, RunSpec
from lab.task.agent.agent_config import AgentConfig
from lab.task.agent.command import argv, environ
from lab.verbs.inputs import program_args
from tests.support.commands import run_command
from tests.support.programs import write


def test_names_of_programs() -> None:
    assert names_a_program("my.py")
    assert names_a_program("./async")
    assert names_a_program("worker-0=a,worker-1=b")
    assert not names_a_program("worker=a")
    assert not names_a_program("async")


def test_only_modules_and_packages_beside_it_are_copied(tmp_path: Path) -> None:
    write(tmp_path, main="import other, utils.one, elsewhere.x", other="")
    write(tmp_path, pkg__in____init__="", pkg__in__deep__in__x="", loose__in__no_package="")
    write(tmp_path, utils__in__one="", utils__in__two="")
    (tmp_path / "data.bin").write_bytes(b"x" * 1000)
    (tmp_path / "elsewhere").symlink_to("/etc")
    program = read_program(str(tmp_path / "main.py"))
    program.copy_to(tmp_path / "copy", tmp_path / "data", tmp_path / "original")
    copied = {str(p.relative_to(tmp_path / "copy")) for p in (tmp_path / "copy").rglob("*.*")}
    packages = {"pkg/__init__.py", "pkg/deep/x.py", "utils/one.py", "utils/two.py"}
    assert copied == {"main.py", "other.py", *packages}
    assert not (tmp_path / "data").exists()
    assert not (tmp_path / "original").exists()
    assert program.name == "main"


@pytest.mark.parametrize(
    ("source", "place"),
    [
        ("def broken(:\n", ":1:12: "),
        ("x = 1\nreturn x\n", ":2:1: "),
        ("a\0b", "null bytes"),
        pytest.param("-" * 100_000 + "1", "main.py", id="nested"),
    ],
)
def test_a_syntax_error_is_found_before_anything_starts(
    tmp_path: Path, source: str, place: str
) -> None:
    write(tmp_path, main=source)
    with pytest.raises(InputError) as caught:
        read_program(str(tmp_path / "main.py"))
    assert place in str(caught.value)
    assert "fix the program" in str(caught.value)


PACKAGES = {
    "pkg/__init__.py": "",
    "pkg/deep/__init__.py": "",
    "pkg/deep/x.py": "from . import near\nfrom ..other import thing\nfrom .... import nothing",
    "pkg/deep/near.py": "",
    "pkg/other.py": "import main",  # in a circle
    "space/part.py": "",
}


@pytest.mark.parametrize("broken", PACKAGES)
def test_every_module_that_an_import_runs_is_checked(tmp_path: Path, broken: str) -> None:
    write(tmp_path, main="import pkg.deep.x\nfrom space import part", pkg__in__unused="def (")
    write(tmp_path, other="def (", near="def (", x="def (")
    write(tmp_path, **{name.removesuffix(".py"): text for name, text in PACKAGES.items()})
    assert read_program(str(tmp_path / "main.py")).files
    (tmp_path / broken).write_text("def (", encoding="utf-8")
    with pytest.raises(InputError, match=rf"{broken}:1:5: "):
        read_program(str(tmp_path / "main.py"))


def test_a_module_precedes_a_directory_of_its_name(tmp_path: Path) -> None:
    write(tmp_path, main="import tool.part", tool="", tool__in__part="def (")
    assert Path("tool/part.py") not in read_program(str(tmp_path / "main.py")).files


@pytest.mark.parametrize(
    ("name", "error"),
    [
        ("nowhere.py", r"no program .*nowhere\.py; check its path"),
        ("run.sh", r"is not a Python program; name a file that ends in \.py"),
        ("folder.py", "cannot be read"),
    ],
)
def test_invalid_programs_fail(tmp_path: Path, name: str, error: str) -> None:
    (tmp_path / "folder.py").mkdir()
    with pytest.raises(InputError, match=error):
        read_program(str(tmp_path / name))


def test_a_whole_home_directory_is_not_copied(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(programs, "MAX_FILES", 3)
    write(tmp_path, main="", a="", b="", c="")
    with pytest.raises(InputError, match=r"Python files: 4 files, 0 MiB; put .* its own directory"):
        read_program(str(tmp_path / "main.py"))


FILES = {
    "trainer/__init__.py": "",
    "trainer/task.py": "from . import near\nfrom models.net import SIZE\n"
    "import pathlib, sys\nprint(SIZE, near.X, sys.argv[1:], open('sizes.csv').read())\n"
    "print((pathlib.Path(__file__).parent / 'words.txt').read_text())\n",
    "trainer/near.py": "X = 1\n",
    "trainer/words.txt": "beside the module",
    "trainer/__main__.py": "print('whole')\n",
    "models/net.py": "SIZE = 3\n",
    "alone.py": "print('alone')\n",
    "sizes.csv": "7",
    "broken/__init__.py": "x =\n",
    "broken/task.py": "",
}


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, text in FILES.items():
        path = tmp_path / "project" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
    monkeypatch.chdir(tmp_path / "project")


@pytest.mark.parametrize(
    ("module", "name", "printed"),
    [
        ("trainer.task", "trainer-task", "3 1 ['--epochs=2'] 7\nbeside the module\n"),
        ("trainer", "trainer", "whole\n"),
        ("alone", "alone", "alone\n"),
    ],
)
@pytest.mark.usefixtures("project")
def test_a_module_is_copied_and_started(
    tmp_path: Path, module: str, name: str, printed: str
) -> None:
    own = read_program(module, module=True)
    assert (own.program, own.name) == (module, name)
    run = tmp_path / "runs/r1"
    own.copy_to(run / "program", run / "files", run / "original")
    (run / "files").mkdir(exist_ok=True)
    spec = own.complete(RunSpec(name, module, ("--epochs=2",), module=True))
    request = Request("r1", spec, {"worker": ["tf1:1"]})
    config = AgentConfig(
        project="p",
        node="tf1",
        task="worker-0",
        cluster=request.cluster,
        runs=tmp_path / "runs",
        scripts=tmp_path,
        data=tmp_path,
    )
    command = argv(config, request)
    assert command[:4] == [sys.executable, "-m", "lab.task.own", "-m"]
    ended = run_command(command, cwd=run / "files", env=environ(config, request, 0, {}))
    assert ended.stdout == printed, ended.stderr


@pytest.mark.parametrize(
    ("name", "error"),
    [
        ("trainer/task.py", r"-m: trainer/task\.py is not the name of a module; write trainer\.t"),
        ("trainer.no", r"no module trainer\.no: .* has neither trainer/no\.py nor trainer/no/__ma"),
        ("models", r"no module models: .* has neither models\.py nor models/__main__\.py"),
        ("..models", r"-m: \.\.models is not the name of a module"),
        ("", r"-m:  is not the name of a module; write it as trainer\.task"),
        ("broken.task", r"broken/__init__\.py:1:4: invalid syntax; fix the program"),
    ],
)
@pytest.mark.usefixtures("project")
def test_invalid_modules(name: str, error: str) -> None:
    with pytest.raises(InputError, match=error):
        read_program(name, module=True)


@pytest.mark.usefixtures("project")
def test_a_module_of_tensorflow_1_is_a_listing() -> None:
    Path("trainer/near.py").write_text("import tensorflow as tf\nX = tf.Session\n", "utf-8")
    own = read_program("trainer.task", module=True)
    assert next(own.notes()).startswith("trainer.task uses TensorFlow 1 (tf.Session, line 2 of tr")


@pytest.mark.usefixtures("project")
def test_the_flags_of_a_module_are_not_known() -> None:
    with pytest.raises(InputError, match="the flags of async are not known"):
        program_args("async", {"epochs": 2}, module=True)
