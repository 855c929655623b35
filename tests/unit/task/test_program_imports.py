"""Which programs may find TensorFlow imported before their first line."""

from __future__ import annotations

from pathlib import Path

import pytest

from lab.task.agent.program import import_refusal

SCRIPTS = Path(__file__).parents[3] / "scripts"
SOMETHING = "it runs code before it imports TensorFlow, or does not import it"


@pytest.mark.parametrize(
    ("source", "why_not"),
    [
        ('"""Words."""\n\nimport tensorflow as tf\nimport os\nos.environ["A"] = "b"\n', None),
        ("import sys, os\nimport numpy as np\nimport tensorflow.compat.v1 as tf\n", None),
        ("from __future__ import annotations\nimport lab\nfrom tensorflow import keras", None),
        ('import os\nos.environ["A"] = "b"\nimport tensorflow\n', SOMETHING),
        ("try:\n  import tensorflow\nexcept ImportError:\n  pass\n", SOMETHING),
        ("def main():\n  import tensorflow\n", SOMETHING),
        ("import tensorflow, beside\n", "it imports beside before TensorFlow"),
        ("import beside\nimport tensorflow\n", "it imports beside before TensorFlow"),
        ("import random\nimport tensorflow\n", "it imports random before TensorFlow"),
        ("from . import x\nimport tensorflow\n", SOMETHING),
        ("import horovod\nimport tensorflow\n", "it imports horovod before TensorFlow"),
        ("import os\n", SOMETHING),
        ("", SOMETHING),
        ("this is no python", "its source cannot be read"),
        ("\0", "its source cannot be read"),
    ],
)  # fmt: skip
def test_why_a_program_imports_for_itself(tmp_path: Path, source: str, why_not: str | None) -> None:
    (tmp_path / "beside.py").touch()
    (tmp_path / "random.py").touch()  # in front of Python's own
    program = tmp_path / "program.py"
    program.write_text(source)
    assert import_refusal(program) == why_not


def test_a_program_beside_another_tensorflow_imports_that(tmp_path: Path) -> None:
    program = tmp_path / "program.py"
    program.write_text("import tensorflow\n")
    (tmp_path / "tensorflow").mkdir()
    assert import_refusal(program) == "it imports tensorflow before TensorFlow"


def test_no_source(tmp_path: Path) -> None:
    assert import_refusal(tmp_path / "none.py") == "its source cannot be read"


@pytest.mark.parametrize("name", ["mnist_async", "mnist_sync", "hello", "all_reduce"])
def test_the_labs_programs_do_not(name: str) -> None:
    assert import_refusal(SCRIPTS / f"{name}.py") is None
