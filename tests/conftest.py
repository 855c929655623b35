"""Fixtures that several test files share."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import settings

from lab.backends.compose.image_build import CPU, build_image
from lab.backends.compose.render import BASE_IMAGE
from lab.backends.engine.client import Engine
from lab.base.log import shown_by
from lab.cluster.config import load_cluster
from lab.cluster.gpu import take_inventory
from lab.cluster.placement.place import place
from lab.protocol.runtimes import HERITAGE, JAX, TORCH, Runtime
from lab.teach.classroom.preparation import ensure_image
from tests.groups.group import GROUPS, mark
from tests.support import engine as engines
from tests.support import slurm as slurms
from tests.support.conditions import ATTACKS, lacking
from tests.support.signals import restore_signals
from tests.support.trainings import add_trainings, check_outputs

pytest_plugins = ["tests.support.nvml.library"]

restore_signals()

# As in an activated environment: messages then have commands as `lab up`.
os.environ["PATH"] = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"

# The time of an example depends on the load of the machine, not on the code.
settings.register_profile("lab", deadline=None, max_examples=40 * ATTACKS)
settings.load_profile("lab")


FAST = {Path(__file__).parent / name for name in ("unit", "hostile")}
"""The folders whose tests run as a whole."""


def pytest_configure(config: pytest.Config) -> None:
    for name, group in GROUPS.items():
        config.addinivalue_line("markers", f"{name}: {group.about}")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if FAST.isdisjoint(item.path.parents):
            mark(item)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_teardown(item: pytest.Item) -> Iterator[None]:
    """Count the trainings of each test for `--junitxml`, and check what they print."""
    trains = FAST.isdisjoint(item.path.parents)
    if trains:
        add_trainings(item)
    yield
    if trains:
        check_outputs(item)


@pytest.fixture
def notices() -> Iterator[list[str]]:
    """The messages of lab, of each level."""
    lines: list[str] = []
    with shown_by(lines.append):
        yield lines


@pytest.fixture(scope="session")
def variables() -> Iterator[pytest.MonkeyPatch]:
    """Environment variables that hold until the session's end."""
    with pytest.MonkeyPatch.context() as patch:
        yield patch


@pytest.fixture(scope="session", autouse=True)
def _own_gpu_record(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """The tests hold no GPU of this host."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("LAB_GPU_RECORD", str(tmp_path_factory.mktemp("host") / "gpus"))
        yield


@pytest.fixture(scope="session")
def engine(
    variables: pytest.MonkeyPatch, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[engines.Engine]:
    """A Docker engine that answers; every test and every child finds it by its variables."""
    try:
        with engines.an_engine() as found:
            for name in ("DOCKER_HOST", "DOCKER_CONFIG", "PATH"):
                if name in found.environment:
                    variables.setenv(name, found.environment[name])
            variables.setenv("LAB_STATE", str(tmp_path_factory.mktemp("state")))
            yield found
    except engines.NoEngine as reason:
        if engines.asked_for():
            pytest.fail(str(reason))
        pytest.skip(str(reason))


@pytest.fixture(scope="session")
def image(engine: engines.Engine, variables: pytest.MonkeyPatch) -> str:
    """The image for CPUs, built through Dockerfile.gpu by `docker compose build`."""
    variables.delenv("LAB_IMAGE", raising=False)
    base = os.environ.get("LAB_BASE_IMAGE")
    if base is None and not engines.can_pull(BASE_IMAGE, engine.environment):
        variables.setenv("LAB_BASE_IMAGE", engines.make_base_image(engine.environment))
    cluster = load_cluster(engines.ROOT / "cluster.yaml")
    output: list[str] = []
    with shown_by(output.append):
        name = build_image(place(cluster, take_inventory("none", cluster)), root=engines.ROOT)
    assert CPU[0] in output[0]
    # Plans with GPUs run in the same image: the engine's fake hook has no GPUs.
    variables.setenv("LAB_IMAGE", name)
    return name


@pytest.fixture(scope="session")
def class_image(image: str) -> str:
    return ensure_image(Engine(), gpus=False, root=engines.ROOT)


TORCH_CPU = f"torch=={TORCH.pin}+cpu"


@pytest.fixture(scope="session")
def heritage_image(image: str) -> str:
    """The image for programs of 2017, with the Horovod of `make heritage`, or one of its own."""
    compiled = engines.ROOT / HERITAGE.environment / "wheels"
    with pytest.MonkeyPatch.context() as patch:
        if any(compiled.glob("horovod-*.whl")):
            patch.setenv("LAB_WHEELS", str(compiled))
        return _image_of(HERITAGE)


@pytest.fixture(scope="session")
def torch_image(
    image: str, variables: pytest.MonkeyPatch, tmp_path_factory: pytest.TempPathFactory
) -> str:
    """The image with PyTorch for CPUs, from LAB_WHEELS or from the wheel that pip finds."""
    if "LAB_WHEELS" not in os.environ:
        folder = tmp_path_factory.mktemp("wheels")
        download = ["download", "--quiet", "--no-deps", "--dest", str(folder), TORCH_CPU]
        command = [sys.executable, "-m", "pip", *download]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode != 0:
            lacking(f"pip finds no {TORCH_CPU}, which the package index does not have")
        variables.setenv("LAB_WHEELS", str(folder))
    return _image_of(TORCH)


@pytest.fixture(scope="session")
def jax_image(image: str) -> str:
    return _image_of(JAX)


def _image_of(runtime: Runtime) -> str:
    cluster = load_cluster(engines.ROOT / "cluster.yaml")
    plan = replace(place(cluster, take_inventory("none", cluster)), runtime=runtime.name)
    return build_image(plan, root=engines.ROOT)


@pytest.fixture(scope="session")
def pinning(engine: engines.Engine, image: str) -> None:
    """An engine that accepts a GPU reservation without a GPU."""
    command = ["docker", "run", "--rm", "--gpus", "device=GPU-of-no-box", image, "true"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        assert not engine.private, done.stderr
        lacking("this engine has no fake nvidia-container-runtime-hook; the private one has")


@pytest.fixture(scope="session")
def slurm(variables: pytest.MonkeyPatch) -> Iterator[slurms.Slurm]:
    """A private Slurm; every test and every child finds it by its variables."""
    try:
        with slurms.a_slurm() as found:
            for name in ("SLURM_CONF", "PATH"):
                variables.setenv(name, found.environment[name])
            yield found
    except slurms.NoSlurm as reason:
        if slurms.asked_for():
            pytest.fail(str(reason))
        pytest.skip(str(reason))


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """A project's directory with no programs and no data."""
    (tmp_path / "scripts").mkdir()
    (tmp_path / "data").mkdir()
    return tmp_path
