"""The page on old and new idioms, held against the TensorFlow that is installed.

One process imports TensorFlow, looks up every name, and runs the page's Python from top to bottom,
with a parameter server and a worker for it to find by `TF_CONFIG`.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any, Final

import pytest

from tests.support.commands import PATIENCE_S
from tests.support.then_and_now import PAGE, ROOT, names, pieces, prose, table

pytestmark = pytest.mark.tensorflow

TEXT: Final = PAGE.read_text("utf-8")
IDIOMS: Final = [row for row in table(TEXT, "then") if row.names]
OPTIONS: Final = [
    code for row in table(TEXT, "`tf.ConfigProto`") for code in row.code("`tf.ConfigProto`")
]

LOOK: Final = r"""
import importlib.metadata, inspect, json, os, runpy, sys

import absl.flags
import tensorflow as tf
import tensorflow.compat.v1 as v1
from tensorflow.python.training.session_manager import SessionManager
from tf_slim import l2_regularizer

asked = json.load(sys.stdin)


def find(top, name):
    for part in name.split(".")[1:]:
        top = getattr(top, part)
    return top


def there(top, name):
    try:
        find(top, name)
    except AttributeError:
        return False
    return True


def warns(thing):
    said = [thing.__doc__, getattr(thing.__init__, "__doc__", None)]
    return any("THIS FUNCTION IS DEPRECATED" in (text or "") for text in said)


def fate(name):
    if not there(v1, name):
        return "changed" if there(tf, name) else "gone"
    old = find(v1, name)
    if there(tf, name):
        return "same" if find(tf, name) is old else "changed"
    return "deprecated" if warns(old) else "v1"


def is_option(path):
    fields = v1.ConfigProto.DESCRIPTOR.fields_by_name
    for part in path.split("."):
        if part not in fields:
            return False
        message = fields[part].message_type
        fields = message.fields_by_name if message else {}
    return True


def why_not(top, name):
    try:
        find(top, name)
    except AttributeError as error:
        return str(error)


def serve(job):
    return tf.distribute.Server({job: ["localhost:0"]}, job_name=job, task_index=0, protocol="grpc")


servers = [(job, serve(job)) for job in ("ps", "worker")]
cluster = {job: [server.target.removeprefix("grpc://")] for job, server in servers}
cluster["chief"] = ["localhost:0"]  # Nobody calls it.
config = {"cluster": cluster, "task": {"type": "chief", "index": 0}}
os.environ["TF_CONFIG"] = json.dumps(config)

package = importlib.metadata.packages_distributions()["tensorflow"][0]
ones = tf.ones([784, 10])
v1.flags.DEFINE_string("old", "", "declared as it was then")
answers = {
    "version": tf.__version__,
    "fates": {name: fate(name) for name in asked["names"]},
    "modern": [name for name in asked["prose"] if there(tf, name)],
    "options": [path for path in asked["options"] if is_option(path)],
    "server": tf.distribute.Server is v1.train.Server,
    "flags": "old" in absl.flags.FLAGS,
    "layers": why_not(v1, "tf.layers.dense"),
    "l2": [float(l2_regularizer(1e-4)(ones)), float(tf.keras.regularizers.L2(0.5e-4)(ones))],
    "brings": importlib.metadata.requires(package),
    "poll_s": inspect.signature(SessionManager).parameters["recovery_wait_secs"].default,
}
print(json.dumps(answers), flush=True)
runpy.run_path(asked["program"], run_name="__main__")
os._exit(0)  # The servers have no end of their own.
"""


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The page's Python, as the program that a reader would type from it."""
    path = tmp_path_factory.mktemp("page") / "then_and_now.py"
    path.write_text("\n".join(f"# line {line}\n{code}" for line, code in pieces(TEXT)), "utf-8")
    return path


@pytest.fixture(scope="module")
def done(program: Path) -> subprocess.CompletedProcess[str]:
    """The process that has looked up every name, printed the results, and run the program."""
    asked = {
        "names": [name for row in IDIOMS for name in row.names],
        "prose": names(prose(TEXT)),
        "options": OPTIONS,
        "program": str(program),
    }
    kept = {name: value for name, value in os.environ.items() if name != "TF_CONFIG"}
    return subprocess.run(
        [sys.executable, "-c", LOOK],
        input=json.dumps(asked),
        env={
            **kept,
            "PYTHONPATH": str(ROOT),
            "CUDA_VISIBLE_DEVICES": "-1",
            "TMPDIR": str(program.parent),
        },
        capture_output=True,
        text=True,
        check=False,
        timeout=PATIENCE_S,
    )


@pytest.fixture(scope="module")
def answers(done: subprocess.CompletedProcess[str]) -> dict[str, Any]:
    """The result of TensorFlow for every name."""
    assert done.stdout, done.stderr[-4000:]
    output: dict[str, Any] = json.loads(done.stdout.splitlines()[0])
    return output


def test_the_python_of_the_page_runs_from_top_to_bottom(
    done: subprocess.CompletedProcess[str],
) -> None:
    assert done.returncode == 0, done.stderr[-4000:]


def test_it_is_the_tensorflow_that_the_page_names(answers: dict[str, Any]) -> None:
    (version,) = set(re.findall(r"its status in TensorFlow (\d+\.\d+)", TEXT))
    assert answers["version"].startswith(f"{version}.")


def test_fate_of_every_name(answers: dict[str, Any]) -> None:
    assert answers["fates"] == {name: row.fate for row in IDIOMS for name in row.names}


def test_a_name_outside_the_first_column_is_modern_or_is_in_that_column(
    answers: dict[str, Any],
) -> None:
    then = {name for row in IDIOMS for name in row.names}
    strange = set(names(prose(TEXT))) - set(answers["modern"]) - then
    assert strange == MENTIONED


MENTIONED: Final = {
    "tf.contrib",
    "tf.contrib.seq2seq",
    "tf.layers",
    "tf.nn.rnn_cell",
    "tf.estimator",
}
"""Old names in the text that no row has: packages, of which rows have parts."""


def test_options_of_a_session_are_options(answers: dict[str, Any]) -> None:
    assert answers["options"] == OPTIONS


def test_claims_beside_the_names(answers: dict[str, Any]) -> None:
    assert answers["server"], "tf.distribute.Server is tf.train.Server"
    assert answers["flags"], "tf.flags declares flags of absl's"
    assert "Keras 3" in answers["layers"]
    assert answers["poll_s"] == 30
    assert not [need for need in answers["brings"] if need.startswith("tensorboard")]
    old, new = answers["l2"]
    assert old == pytest.approx(new, rel=1e-5)
