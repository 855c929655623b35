"""The page on old and new idioms, held against the TensorFlow that is installed.

One process imports TensorFlow, looks up every name, and runs the page's Python from top to bottom,
with a parameter server and a worker for it to find by `TF_CONFIG`.
"""

from __future__ import annotations

import json
import os
import re
from pathlib import Path
from typing import Final

import pytest

from tests.support.commands import python
from tests.support.then_and_now import ROOT, TEXT, names, pieces, prose, table

pytestmark = pytest.mark.tensorflow

IDIOMS: Final = [row for row in table(TEXT, "then") if row.names]
LOOK: Final = r"""
import json, os, runpy, sys

import tensorflow as tf
import tensorflow.compat.v1 as v1

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


def serve(job):
    return tf.distribute.Server({job: ["localhost:0"]}, job_name=job, task_index=0, protocol="grpc")


servers = [(job, serve(job)) for job in ("ps", "worker")]
cluster = {job: [server.target.removeprefix("grpc://")] for job, server in servers}
cluster["chief"] = ["localhost:0"]  # Nobody calls it.
config = {"cluster": cluster, "task": {"type": "chief", "index": 0}}
os.environ["TF_CONFIG"] = json.dumps(config)

answers = {
    "version": tf.__version__,
    "fates": {name: fate(name) for name in asked["names"]},
    "modern": [name for name in asked["prose"] if there(tf, name)],
}
print(json.dumps(answers), flush=True)
runpy.run_path(asked["program"], run_name="__main__")
os._exit(0)  # The servers have no end of their own.
"""


def test_names_and_python_of_the_page_are_those_of_tensorflow(tmp_path: Path) -> None:
    program = tmp_path / "then_and_now.py"
    program.write_text("\n".join(f"# line {line}\n{code}" for line, code in pieces(TEXT)), "utf-8")
    then = [name for row in IDIOMS for name in row.names]
    asked = {"names": then, "prose": names(prose(TEXT)), "program": str(program)}
    kept = {name: value for name, value in os.environ.items() if name != "TF_CONFIG"}
    own = {"PYTHONPATH": str(ROOT), "CUDA_VISIBLE_DEVICES": "-1", "TMPDIR": str(tmp_path)}
    done = python("-c", LOOK, input=json.dumps(asked), env={**kept, **own})
    assert done.returncode == 0, done.stderr[-4000:]
    answers = json.loads(done.stdout.splitlines()[0])
    (version,) = set(re.findall(r"its status in TensorFlow (\d+\.\d+)", TEXT))
    assert answers["version"].startswith(f"{version}.")
    assert answers["fates"] == {name: row.fate for row in IDIOMS for name in row.names}
    assert set(names(prose(TEXT))) - set(answers["modern"]) - {*then} == set()
