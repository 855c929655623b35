"""An epoch of replicas that train together is one pass over the images, whatever their number."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from lab.protocol.runtimes import HERITAGE
from tests.support import seen_images
from tests.support.agents import processes_with
from tests.support.commands import ROOT
from tests.support.conditions import lacking
from tests.support.experiments import Project, make_project

pytestmark = pytest.mark.tensorflow

IMAGES, BATCH, EPOCHS = 107, 5, 2

# The test at the end calls the model with an array, and a step with a tensor.
NOTES = """
import tensorflow as tf
from mnist_model import Softmax
logits = Softmax.logits
def noted(self, images, parameters):
    if tf.is_tensor(images):
        tf.numpy_function(seen_images.note, [images], [])
    return logits(self, images, parameters)
Softmax.logits = noted
"""


@pytest.fixture
def project(tmp_path: Path) -> Iterator[Project]:
    yield make_project(tmp_path)
    assert processes_with(str(tmp_path)) == []


@pytest.mark.parametrize("ranks", [1, 2, 3, 4])
@pytest.mark.parametrize(
    ("experiment", "program"),
    [
        ("multiworker", "all_reduce"),
        pytest.param("horovod", "horovod_ring", marks=pytest.mark.heritage),
    ],
)
def test_all_ranks_together_use_each_image_once_an_epoch(
    project: Project, experiment: str, program: str, ranks: int
) -> None:
    if experiment == "horovod" and HERITAGE.python(ROOT) is None:
        lacking(f"no {HERITAGE.environment} here; `make {HERITAGE.target}` makes it")
    script = project.path / f"scripts/{program}.py"
    watched = script.rename(script.with_name("watched.py"))
    seen_images.watching(project.path, watched, NOTES).rename(script)
    seen_images.write_numbered_images(project.path / "images", IMAGES)
    on = ["tf1"] * ranks
    (project.path / "clusters/ranks.yaml").write_text(
        f"version: 1\nname: ranks\nnodes: {{tf1: {{}}}}\njobs: {{worker: {{on: {on}}}}}\n"
    )
    flags = ("--model", "softmax", "--batch_size", str(BATCH), "--epochs", str(EPOCHS))
    ran = project.run(experiment, "ranks", "--data_dir", str(project.path / "images"), *flags)
    workers = seen_images.seen(project.path)
    assert len(workers) == len(ran.states) == ranks
    seen_images.assert_each_epoch_is_a_pass(workers, IMAGES, BATCH, EPOCHS)
