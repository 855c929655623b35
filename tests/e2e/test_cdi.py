"""On an engine that assigns GPUs by CDI, each task has the device nodes of its own GPUs.

The GPUs are names (`tests.support.debian_engine`); the engine and its containers are real. The
file is that of `lab render -o gpus-by=cdi`.

LAB_TEST_CDI=1: the engine that answers has these GPUs; `make engines` sets it.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from lab.backends.compose.environment import ComposeEnvironment
from lab.backends.compose.render import DEFAULTS, render
from lab.backends.engine.client import Engine as DockerEngine
from lab.cluster.config import parse_cluster
from lab.cluster.placement.place import place
from lab.cluster.placement.plan import Plan
from tests.golden.boxes import box
from tests.support import debian_engine as debian
from tests.support import engine as engines
from tests.support.commands import run_command

SUITE = "trixie"
"""The oldest Debian whose engine knows CDI; it does not change any more."""

MINORS = {gpu: minor for minor, gpu in enumerate(debian.GPUS)}
DESCRIPTION = (engines.ROOT / "cluster.yaml").read_bytes().replace(b"name: mnist", b"name: cdi")


@pytest.fixture(scope="module")
def project(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[None]:
    """A project's directory, and an engine with CDI that has an image of lab."""
    folder = tmp_path_factory.mktemp("project")
    for name in ("scripts", "data"):
        (folder / name).mkdir()
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        if os.environ.get("LAB_TEST_CDI") == "1":
            request.getfixturevalue("image")
            yield
        elif engines.asked_for():
            with _own_engine(folder, patch):
                yield
        else:
            pytest.skip(f"no engine with CDI is made; {engines.HINT}")


@contextmanager
def _own_engine(folder: Path, patch: pytest.MonkeyPatch) -> Iterator[None]:
    try:
        with (
            engines.compose_plugin() as environment,
            debian.a_root(SUITE) as root,
            debian.a_debian_engine(root, [folder], environment) as engine,
        ):
            for name in ("DOCKER_HOST", "DOCKER_CONFIG", "PATH"):
                if name in engine.environment:
                    patch.setenv(name, engine.environment[name])
            patch.setenv("LAB_IMAGE", debian.make_bare_image(root, engine))
            yield
    except engines.NoEngine as reason:
        pytest.fail(f"no engine with CDI can be had: {reason}")


@pytest.fixture(scope="module")
def plan() -> Plan:
    # The containers' limits must fit this machine; this test does not check CPUs.
    text = re.sub(rb", cpus: [0-9]+, memory: [0-9]+GiB", b"", DESCRIPTION)
    return place(parse_cluster(text, "cluster.yaml"), box(cpus=1))


@pytest.fixture(scope="module")
def environment(project: None, plan: Plan) -> Iterator[ComposeEnvironment]:
    file = Path("docker-compose.yml")
    file.write_text(render(plan, {**DEFAULTS, "gpus-by": "cdi"}))
    compose = ["docker", "compose", "--file", str(file)]
    try:
        done = run_command([*compose, "up", "--detach", "--wait"])
        assert done.returncode == 0, done.stderr
        yield ComposeEnvironment(DockerEngine(), plan.name)
    finally:
        subprocess.run([*compose, "down", "--volumes"], stdout=sys.stderr, check=True)


def test_each_task_has_only_its_own_gpu_device_nodes(
    environment: ComposeEnvironment, plan: Plan
) -> None:
    found: dict[str, set[str]] = {}
    for seen in environment.inspect():
        listed = ["docker", "exec", seen.name, "sh", "-c", "ls /dev | grep ^nvidia || true"]
        done = subprocess.run(listed, capture_output=True, text=True, check=True)
        found[seen.service] = set(done.stdout.split())
    wanted = {task.name: {f"nvidia{MINORS[gpu]}" for gpu in task.gpus} for task in plan.tasks}
    assert found == {**{node.name: set() for node in plan.nodes}, **wanted}
    assert sum(map(len, found.values())) == len(set().union(*found.values())) == 6
