"""A user's program with Horovod: how it is recognized, and what its run is prepared with."""

from __future__ import annotations

from pathlib import Path

import pytest

from lab.base.errors import InputError
from lab.programs.own import read_program
from lab.protocol.experiments.experiment import OnFailure, Policy
from lab.protocol.volume import Request, RunSpec
from tests.support.cli import Host
from tests.support.programs import WORKERS, prepared

WITH_PS = "ps: {on: [tf1]}, worker: {on: [tf1, tf2]}"
PROGRAM = "import horovod.tensorflow as hvd\nhvd.init()\n"


@pytest.mark.parametrize(
    ("source", "found"),
    [
        ("import horovod.tensorflow as hvd", True),
        ("import os, horovod.keras", True),
        ("from horovod import tensorflow", True),
        ("def main():\n    import horovod.tensorflow.keras as hvd", True),
        ("try:\n    from horovod.tensorflow import mpi_ops\nexcept ImportError:\n    pass", True),
        ("import importlib\nhvd = importlib.import_module('horovod.tensorflow')", True),
        ("hvd = __import__('horovod.tensorflow')", True),
        ("import part", True),
        ("from package import deep", True),
        ("print('horovod', 'horovod.tensorflow')", False),
        ("import horovodrun", False),
        ("import own.horovod", False),
    ],
)
def test_a_program_that_imports_horovod(source: str, found: bool, tmp_path: Path) -> None:
    (tmp_path / "package").mkdir()
    for name in ("part.py", "package/deep.py"):
        (tmp_path / name).write_text("def ring():\n    import horovod.tensorflow\n")
    (tmp_path / "main.py").write_text(source)
    assert read_program(str(tmp_path / "main.py")).horovod == found


@pytest.fixture
def project(host: Host) -> None:
    host.backend.environment = None


OLDER = "tensorflow-2.15"


@pytest.mark.usefixtures("project")
@pytest.mark.parametrize(
    ("source", "chosen", "ring", "runtime", "notice"),
    [
        (PROGRAM, "", True, OLDER, "own.py imports Horovod: it runs with TensorFlow 2.15"),
        (PROGRAM, OLDER, True, OLDER, ""),
        (PROGRAM, "tensorflow", False, "tensorflow", "its tasks cannot form a ring"),
        ("MultiWorkerMirroredStrategy()\nmodel.fit(x)\n", "", False, OLDER, "TensorFlow 2.15"),
        ("import tensorflow\n", "", False, "tensorflow", ""),
    ],
)
def test_it_gets_a_ring_and_the_tensorflow_with_horovod(
    source: str, chosen: str, ring: bool, runtime: str, notice: str
) -> None:
    run, notices = prepared(source, **({"framework": chosen} if chosen else {}))
    spec = run.spec
    assert (spec.horovod, spec.gang, spec.tf_config) == (ring, ring, True)
    assert run.plan.runtime == runtime
    about = [line for line in notices if "Horovod" in line or "it runs with" in line]
    assert len(about) == bool(notice)
    assert notice in "".join(about)


ESTIMATOR = "tf.estimator.Estimator\n"
ONE = "worker: {on: [tf1]}"


@pytest.mark.usefixtures("project")
@pytest.mark.parametrize(
    ("source", "jobs", "tf_config"),
    [
        (PROGRAM + ESTIMATOR, WORKERS, False),
        (f"{PROGRAM}from tensorflow import estimator\n", WORKERS, False),
        (f"{PROGRAM}import tensorflow_estimator\n", WORKERS, False),
        (ESTIMATOR, WORKERS, True),
        (ESTIMATOR, ONE, False),
        ("import os; os.environ['TF_CONFIG']\n", ONE, True),
    ],
)
def test_an_estimator_with_horovod_is_not_in_a_cluster_of_tensorflow(
    source: str, jobs: str, tf_config: bool
) -> None:
    run, _ = prepared(source, jobs=jobs)
    assert run.spec.tf_config is tf_config


@pytest.mark.usefixtures("project")
def test_every_task_needs_a_rank(tmp_path: Path) -> None:
    for job in ("ps", "evaluator"):
        jobs = WITH_PS.replace("ps", job)
        with pytest.raises(
            InputError, match=rf"own.py: .* does not give a rank to the job '{job}' of cluster"
        ):
            prepared(PROGRAM, jobs=jobs)
    (tmp_path / "clusters").mkdir()
    (tmp_path / "clusters/workers.yaml").write_text(Path("cluster.yaml").read_text())
    (tmp_path / "clusters/two.yaml").write_text(
        Path("cluster.yaml").read_text().replace(WITH_PS.replace("ps", "evaluator"), WORKERS)
    )
    with pytest.raises(InputError, match=r"; try --cluster clusters/two.yaml"):
        prepared(PROGRAM, jobs=WITH_PS)


@pytest.mark.usefixtures("project")
def test_a_ps_may_serve_a_program_that_knows_its_job() -> None:
    flags = "p.add_argument('--job_name')\np.add_argument('--task_index', type=int)\n"
    parser = f"import argparse\np = argparse.ArgumentParser()\n{flags}"
    run, _ = prepared(PROGRAM + parser, jobs=WITH_PS)
    assert run.spec.horovod
    run, _ = prepared(PROGRAM, "{job}", jobs=WITH_PS)
    assert run.spec.horovod


@pytest.mark.usefixtures("project")
def test_a_ring_needs_every_rank() -> None:
    with pytest.raises(InputError, match="'own' needs all of its workers"):
        prepared(PROGRAM, on_failure=Policy(OnFailure.CONTINUE))


@pytest.mark.parametrize(
    ("spec", "ranks"),
    [
        ({"horovod": False}, []),
        ({}, ["chief-0", "worker-0", "worker-1"]),
        ({"services": ("ps", "worker")}, ["chief-0"]),
        ({"programs": {"worker-1": "a.py"}}, ["worker-1"]),
    ],
)
def test_ranks(spec: dict[str, object], ranks: list[str]) -> None:
    cluster = {"worker": ["a:1", "b:1"], "ps": ["a:2"], "evaluator": ["a:3"], "chief": ["a:4"]}
    made = RunSpec("own", "own.py", **{"horovod": True, **spec})
    assert Request("r1", made, cluster).ranks() == ranks
