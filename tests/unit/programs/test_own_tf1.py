"""Programs for TensorFlow 1, recognized by their source."""

from __future__ import annotations

from pathlib import Path

import pytest

from lab.base.errors import InputError
from lab.programs.own import read_program
from lab.protocol.volume import RunSpec
from tests.support.commands import environ, python
from tests.support.programs import write
from tests.support.shown import assert_shows

TF = "import tensorflow as tf\n"


def used(program: Path) -> str:
    """What shows that a program is for TensorFlow 1, and where."""
    use = read_program(str(program)).tensorflow_1
    return "" if use is None else f"{use.what} {use.file}:{use.line}"


@pytest.mark.parametrize(
    ("source", "what"),
    [
        (TF + "x = tf.placeholder(tf.float32)", "tf.placeholder main.py:2"),
        (TF + "tf.app.flags.DEFINE_string('a', '', '')", "tf.app main.py:2"),
        (TF + "\n\ntf.contrib.layers.flatten(x)", "tf.contrib main.py:4"),
        (TF + "tf.train.MomentumOptimizer(1, 2)", "tf.train.MomentumOptimizer main.py:2"),
        (TF + "try:\n    tf.Session()\nexcept KeyboardInterrupt: pass", "tf.Session main.py:3"),
        (TF + "try:\n    f()\nfinally:\n    tf.Session()", "tf.Session main.py:5"),
        (TF + "if __name__ == '__main__':\n    tf.app.run()", "tf.app main.py:3"),
        ("from tensorflow import flags", "tensorflow.flags main.py:1"),
        ("from tensorflow.contrib import slim", "tensorflow.contrib main.py:1"),
        ("import tensorflow.contrib.slim as slim", "tensorflow.contrib main.py:1"),
        (TF + "print 'step', 1", "Python 2 main.py:2"),
        (TF + "print 'step', tf.Session()", "tf.Session main.py:2"),
    ],
)
def test_programs_for_tensorflow_1(tmp_path: Path, source: str, what: str) -> None:
    assert used(write(tmp_path, main=source)) == what


@pytest.mark.parametrize(
    "source",
    [
        TF + "tf.keras.Sequential(); tf.data.Dataset; tf.distribute; tf.train.Checkpoint",
        TF + "tf.train.ClusterSpec({}); tf.train.latest_checkpoint('a'); tf.estimator.Estimator",
        "import tensorflow.compat.v1 as tf\ntf.placeholder(1)",
        "from tensorflow.compat import v1 as tf\ntf.placeholder(1)",
        "import tensorflow as tf\nimport tensorflow.compat.v1 as tf\ntf.Session()",
        TF + "tf = tf.compat.v1\ntf.Session()",
        TF + "tf.compat.v1.placeholder(1); tf.compat.v1.train.Server(1)",
        TF + "if hasattr(tf, 'Session'):\n    tf.Session()",
        TF + "if tf.__version__.startswith('1'):\n    tf.app.run()\nelse:\n    main()",
        TF + "s = tf.Session() if IS_TF1 else None",
        TF + "try:\n    tf.logging.set_verbosity(1)\nexcept AttributeError:\n    tf.Session",
        "try:\n    from tensorflow.contrib import slim\nexcept ImportError:\n    import tf_slim",
        TF + "@tf.function\ndef f(): pass\ndef old(): tf.Session()",
        TF + "tf.config.list_physical_devices('GPU'); tf.placeholder",
        "import torch\ntf.placeholder(1)",
        "import tf_slim as tf\ntf.layers",
    ],
)
def test_other_programs(tmp_path: Path, source: str) -> None:
    assert not used(write(tmp_path, main=source))


def test_a_module_shows_it_too_and_only_if_it_is_imported(tmp_path: Path) -> None:
    program = write(tmp_path, main="import part", part=TF + "tf.placeholder(1)", other="")
    own = read_program(str(program))
    assert next(own.notes()) == (
        "main.py uses TensorFlow 1 (tf.placeholder, line 2 of part.py): it runs as with --listing"
    )
    assert own.complete(RunSpec("main")).listing
    assert not used(write(tmp_path, main="import other"))


def test_the_page_on_printed_programs_shows_the_note(tmp_path: Path) -> None:
    program = write(tmp_path, main="\n" * 10 + TF + "x = tf.placeholder(tf.float32)")
    (note,) = read_program(str(program)).notes()
    note = note.replace("main.py", "their_program.py")
    assert_shows("docs/how-to/printed-programs.md", "their_program.py uses", note)


def test_it_is_converted_as_a_listing(tmp_path: Path) -> None:
    program = write(tmp_path, main=TF + "for i in xrange(3): print 'step', tf.Session()")
    assert list(read_program(str(program)).notes()) == [
        "main.py uses TensorFlow 1 (tf.Session, line 2): it runs as with --listing",
        "main.py: converted from Python 2",
    ]
    assert read_program(str(program), listing=True).tensorflow_1 is None  # the user knows it


@pytest.mark.parametrize(
    "source",
    [
        "print 'x'",  # without TensorFlow
        TF + "print 'x'\n@tf.function\ndef f(): pass",
        TF + "x = (",
        TF + "print('x'",
    ],
)
def test_the_syntax_error_of_another_program_stays(tmp_path: Path, source: str) -> None:
    with pytest.raises(InputError, match=r"main\.py:\d+:\d+: .*; fix the program"):
        read_program(str(write(tmp_path, main=source)))


def test_the_last_line_of_a_program_that_is_missing(tmp_path: Path) -> None:
    done = python("-m", "lab.task.tf1", "gone.py", cwd=tmp_path, env=environ(tmp_path))
    line = f"error: {tmp_path}/gone.py cannot be read (No such file or directory); check the path\n"
    assert (done.returncode, done.stderr) == (1, line)
