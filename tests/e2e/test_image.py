"""The image as it was really built."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from lab.backends.compose.backend import ComposeBackend
from lab.backends.compose.image_build import build_image
from lab.base.errors import LabError
from lab.base.image_digest import LABEL, digest
from lab.cluster.config import load_cluster
from lab.cluster.gpu import take_inventory
from lab.cluster.placement.place import place
from lab.cluster.placement.plan import Plan
from tests.support.docker import docker
from tests.support.engine import ROOT

pytestmark = pytest.mark.engine

LOOK = """
import importlib.util, json, os, pathlib, sys
import lab.task.agent.agent, lab.protocol.mnist, lab.base.image_digest, pynvml, pyroute2
print(json.dumps({
    "user": [os.getuid(), os.getgid()],
    "runs": [os.stat("/runs").st_uid, os.stat("/runs").st_gid],
    "python": sys.executable,
    "tensorflow": importlib.util.find_spec("tensorflow") is not None,
    "helper": importlib.util.find_spec("lab.cli") is not None,
    "compiled": pathlib.Path(lab.task.agent.agent.__cached__).is_file(),
    "programs": sorted(path.name for path in pathlib.Path("/lab/scripts").glob("*.py")),
    "sources": lab.base.image_digest.digest(),
    "examples": len(lab.protocol.mnist.load_mnist().train.labels),
    "environment": sorted(os.environ),
}))
"""


@pytest.fixture
def plan() -> Plan:
    cluster = load_cluster(ROOT / "cluster.yaml")
    return place(cluster, take_inventory("none", cluster))


def test_holds_what_a_task_needs_and_no_more(image: str) -> None:
    command = ("run", "--rm", "--network", "none", "--read-only", image, "python", "-c", LOOK)
    found = json.loads(docker(*command))
    assert found["user"] == [1000, 1000]
    assert found["runs"] == [1000, 1000]
    assert found["python"] == "/opt/venv/bin/python"
    assert found["tensorflow"]
    assert not found["helper"]
    assert found["compiled"]
    assert {"mnist_async.py", "mnist_sync.py"} <= set(found["programs"])
    assert found["examples"] == 55_000
    # The image has no address of a registry, no certificate's path and no secret.
    assert found["sources"] == digest()
    assert set(found["environment"]) <= {
        *("HOME", "HOSTNAME", "LANG", "PATH", "PWD", "PYTHONPATH", "PYTHONUNBUFFERED"),
        # of an official Python image:
        *("GPG_KEY", "PYTHON_VERSION", "PYTHON_SHA256"),
    }


def test_a_build_refuses_a_package_with_another_hash(
    image: str, plan: Plan, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("LAB_IMAGE", "lab:never")
    for name in ("lab", "requirements", "scripts"):
        shutil.copytree(ROOT / name, tmp_path / name)
    for name in (".dockerignore", "Dockerfile.gpu"):
        shutil.copy(ROOT / name, tmp_path)
    lock = tmp_path / "requirements/image-cpu.txt"
    lock.write_text(f"six==1.17.0 --hash=sha256:{'0' * 64}\n", encoding="utf-8")
    with pytest.raises(LabError, match=r"pip cannot install six==1\.17\.0 in the image"):
        build_image(plan, root=tmp_path)
    lock.unlink()
    with pytest.raises(LabError, match=r"requirements/image-cpu\.txt"):
        build_image(plan, root=tmp_path)


def test_an_old_image_is_distinguished_from_a_derived_one(
    image: str, plan: Plan, monkeypatch: pytest.MonkeyPatch
) -> None:
    with (
        changed(image, "lab:mine"),
        changed(image, "lab:before", f"LABEL {LABEL}=0"),
        changed(image, "lab:never", f"LABEL {LABEL}="),
    ):
        for name in ("lab:before", "lab:never"):
            monkeypatch.setenv("LAB_IMAGE", name)
            with pytest.raises(
                LabError, match=f"{name} .LAB_IMAGE. has a different version of lab"
            ):
                ComposeBackend().missing_image(plan, root=ROOT)
        monkeypatch.setenv("LAB_IMAGE", "lab:mine")
        assert ComposeBackend().missing_image(plan, root=ROOT) is None
        monkeypatch.setenv("LAB_IMAGE", "lab:none")
        monkeypatch.setenv("LAB_BASE_IMAGE", "lab-base:of-no-registry")
        assert "tools/base-image.sh" in str(ComposeBackend().missing_image(plan, root=ROOT))


@contextmanager
def changed(image: str, name: str, *changes: str) -> Iterator[None]:
    """An image that is built on another, as long as the block lasts."""
    container = docker("create", "--network", "none", image)
    try:
        options = [word for change in changes for word in ("--change", change)]
        docker("commit", *options, container, name)
        yield
    finally:
        docker("rm", "--force", container)
        docker("rmi", "--force", name)
