"""Programs that are started as modules: `lab run -m trainer.task`."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from lab.api.args import program_args
from lab.errors import InputError
from lab.run.program import read_program
from lab.task.agent.agent_config import AgentConfig
from lab.task.agent.command import argv, environ
from lab.task.protocol import Request, RunSpec

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


@pytest.fixture(autouse=True)
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
    command = [each for each in argv(config, request) if "_hosts=" not in each]
    assert command[:4] == [sys.executable, "-m", "lab.task.own", "-m"]
    started = [each for each in command if not each.startswith(("--job_name", "--task_index"))]
    ended = subprocess.run(
        started,
        cwd=run / "files",
        env=environ(config, request, 0, {}),
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
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
def test_invalid_modules(name: str, error: str) -> None:
    with pytest.raises(InputError, match=error):
        read_program(name, module=True)


def test_a_module_of_tensorflow_1_is_a_listing() -> None:
    Path("trainer/near.py").write_text("import tensorflow as tf\nX = tf.Session\n", "utf-8")
    own = read_program("trainer.task", module=True)
    assert next(own.notes()).startswith("trainer.task uses TensorFlow 1 (tf.Session, line 2 of tr")


def test_the_flags_of_a_module_are_not_known() -> None:
    with pytest.raises(InputError, match="the flags of async are not known"):
        program_args("async", {"epochs": 2}, module=True)
