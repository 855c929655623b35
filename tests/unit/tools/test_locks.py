"""The locked requirements of the image: complete, with hashes, and equal to those of processes."""

from __future__ import annotations

import json
import re
import shlex
import tomllib
from collections.abc import Mapping
from importlib import metadata
from pathlib import Path

import pytest
from packaging.dependency_groups import resolve_dependency_groups
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from lab.protocol.runtimes import RUNTIMES, TENSORFLOW
from tests.support.commands import ROOT
from tools.lock import LOCKS

FILES = ROOT / "requirements"
CLASS_LOCK = "class-image"
GROUPS = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["dependency-groups"]
IMAGE_LOCKS = sorted(name for name in LOCKS if name.startswith(("image-", "horovod", CLASS_LOCK)))
DOCKERFILE = (ROOT / "Dockerfile.gpu").read_text(encoding="utf-8")
CLASS_DOCKERFILE = (ROOT / "Dockerfile.class").read_text(encoding="utf-8")

PYTHONS = dict.fromkeys(("image-cpu", "image-cuda", CLASS_LOCK), ("3.11", "3.12", "3.13"))
"""The Pythons of the base images. TensorFlow 2.15 supports none later than 3.11."""


def entries(name: str) -> list[tuple[Requirement, list[str]]]:
    text = (FILES / f"{name}.txt").read_text(encoding="utf-8").replace("\\\n", " ")
    found = []
    for line in filter(None, map(str.strip, text.splitlines())):
        requirement, *hashes = line.split(" --hash=")
        found.append((Requirement(requirement), [each.strip() for each in hashes]))
    return found


def versions(name: str, python: str, machine: str = "x86_64") -> dict[str, str]:
    environment = {
        "implementation_name": "cpython",
        "platform_machine": machine,
        "platform_python_implementation": "CPython",
        "platform_system": "Linux",
        "python_full_version": f"{python}.2",
        "python_version": python,
        "sys_platform": "linux",
        "extra": "",
    }
    return {
        canonicalize_name(each.name): str(each.specifier).removeprefix("==")
        for each, _ in entries(name)
        if each.marker is None or each.marker.evaluate(environment)
    }


@pytest.mark.parametrize("name", sorted(LOCKS))
def test_each_package_has_one_version_and_hashes_and_no_index(name: str) -> None:
    assert "://" not in (FILES / f"{name}.txt").read_text(encoding="utf-8")
    found = entries(name)
    assert found
    for requirement, hashes in found:
        assert re.fullmatch(r"==[^*,]+", str(requirement.specifier)), requirement
        assert requirement.url is None
        assert hashes, requirement
        assert all(re.fullmatch(r"sha256:[0-9a-f]{64}", each) for each in hashes), requirement


def check_equal(one: Mapping[str, str], other: Mapping[str, str], at_least: int = 1) -> None:
    common = one.keys() & other.keys()
    assert len(common) >= at_least
    assert {each: one[each] for each in common} == {each: other[each] for each in common}


@pytest.mark.parametrize("name", IMAGE_LOCKS)
def test_a_file_has_what_it_is_made_for(name: str) -> None:
    for python in PYTHONS.get(name, ("3.11",)):
        locked = versions(name, python)
        wanted = [
            Requirement(each) for each in resolve_dependency_groups(GROUPS, *LOCKS[name].groups)
        ]
        assert wanted
        for each in wanted:
            if each.marker is None or each.marker.evaluate({"platform_machine": "x86_64"}):
                assert each.specifier.contains(locked[canonicalize_name(each.name)]), each


@pytest.mark.parametrize("python", PYTHONS["image-cuda"])
@pytest.mark.parametrize("gpus", [False, True])
@pytest.mark.parametrize("machine", ["x86_64", "aarch64"])
def test_a_file_has_what_the_wheel_of_tensorflow_requires(
    python: str, machine: str, *, gpus: bool
) -> None:
    """With CUDA, this includes NVIDIA's packages."""
    locked = versions(TENSORFLOW.requirements(gpus=gpus), python, machine)
    name = next(each for each in ("tensorflow-cpu", "tensorflow") if _is_installed(each))
    assert locked.get("tensorflow-cpu", locked.get("tensorflow")) == metadata.version(name)
    extra = "and-cuda" if gpus else ""
    where = {"extra": extra, "python_version": python, "sys_platform": "linux"}
    needed = [
        each
        for each in map(Requirement, metadata.requires(name) or ())
        if each.marker is None or each.marker.evaluate(where)
    ]
    nvidia = [each for each in needed if each.name.startswith("nvidia-")]
    assert (len(nvidia) > 9) == gpus
    for each in needed:
        assert each.specifier.contains(locked[canonicalize_name(each.name)]), each


def _is_installed(name: str) -> bool:
    try:
        metadata.version(name)
    except metadata.PackageNotFoundError:
        return False
    return True


OF_TENSORFLOW = [name for name in IMAGE_LOCKS if "torch" not in name and "jax" not in name]


@pytest.mark.parametrize("framework", ["torch", "jax"])
def test_cpus_and_gpus_have_the_same_versions(framework: str) -> None:
    """Processes are installed from the lock of the image for CPUs."""
    cpu, cuda = (versions(f"image-{framework}-{each}", "3.11") for each in ("cpu", "cuda"))
    assert cpu.pop("torch", "2.13.0+cpu") == "2.13.0+cpu"
    check_equal(cpu, cuda, 5)
    assert not any("nvidia-c" in name for name in cpu)
    pins = {"torch": "2.13.0", "jax": "0.10.2"}
    assert cuda[framework] == RUNTIMES[framework].pin == pins[framework]


@pytest.mark.parametrize("name", OF_TENSORFLOW)
def test_containers_and_processes_have_the_same_versions(name: str) -> None:
    beside = "tensorflow" if name in PYTHONS else "heritage"
    for python in PYTHONS.get(name, ("3.11",)):
        check_equal(versions(name, python), versions(beside, python), 3)


def test_horovod_fits_the_image_that_it_is_built_in() -> None:
    assert versions("horovod", "3.11")["horovod"] == "0.28.1"
    for gpus in (False, True):
        image = versions(RUNTIMES["tensorflow-2.15"].requirements(gpus=gpus), "3.11")
        for other in ("horovod", "horovod-build"):
            check_equal(versions(other, "3.11"), image, 0)


@pytest.mark.parametrize("python", PYTHONS[CLASS_LOCK])
def test_a_class_changes_no_package_of_the_image_and_of_the_host(python: str) -> None:
    added = versions(CLASS_LOCK, python)
    assert {"jupyterlab", "jupyterhub", "numpy", "pydantic"} <= added.keys()
    assert not any(name.startswith(("tensorflow-", "nvidia-cu")) for name in added)
    for name in ("image-cpu", "image-cuda", "class", "notebooks"):
        check_equal(added, versions(name, python), 11)


def test_the_proxy_of_a_class_is_locked() -> None:
    lock = json.loads((FILES / "proxy/package-lock.json").read_text(encoding="utf-8"))
    root = json.loads((FILES / "proxy/package.json").read_text(encoding="utf-8"))
    assert lock["packages"].pop("")["dependencies"] == root["dependencies"]
    assert root["dependencies"] == {"configurable-http-proxy": "5.3.0"}
    for name, package in lock["packages"].items():
        assert package["integrity"].startswith("sha512-"), name
        assert "resolved" not in package, name  # it would name a registry


def test_the_dockerfiles_install_only_locked_packages() -> None:
    """Only `TENSORFLOW`, which the user names, is not locked."""
    installs, own = (
        [shlex.split(each) for each in re.findall(r"/bin/pip install ([^;&]+)", text)]
        for text in (each.replace("\\\n", " ") for each in (DOCKERFILE, CLASS_DOCKERFILE))
    )
    assert (len(installs), len(own)) == (5, 1)
    for arguments in (*installs, own[0]):
        assert "--only-binary" in arguments
        # A wheel of Horovod that the user has compiled comes from no index, and has no locked hash.
        compiled = "--no-index" in arguments and arguments[-1] == "$horovod"
        assert compiled or "--require-hashes" in arguments or "${packages[@]}" in arguments
    assert "packages=(--require-hashes --requirement /opt/requirements.txt)" in DOCKERFILE
    named = {Path(each).stem for each in re.findall(r"COPY requirements/(\S+)", DOCKERFILE)}
    assert named == {"${REQUIREMENTS}", "horovod*", "horovod"}
    assert own[0][-1] == f"/opt/class/{CLASS_LOCK}.txt"
    assert re.findall(r"npm-cli.js\" (\w+)", CLASS_DOCKERFILE) == ["ci"]


def test_the_build_receives_every_file_that_it_copies() -> None:
    ignore = (ROOT / ".dockerignore").read_text(encoding="utf-8").splitlines()
    patterns = [line[1:] for line in ignore if line.startswith("!requirements/")]
    sent = {file.stem for each in patterns for file in ROOT.glob(each)}
    images = {
        image.requirements(gpus=gpus) for image in RUNTIMES.values() for gpus in (False, True)
    }
    kinds = ("", "heritage-", "torch-", "jax-")
    assert images == {f"image-{kind}{device}" for kind in kinds for device in ("cpu", "cuda")}
    assert {*images, "horovod", "horovod-build", CLASS_LOCK} == set(IMAGE_LOCKS)
    assert sent == {*IMAGE_LOCKS, "package", "package-lock"}
    assert {image.horovod for image in RUNTIMES.values()} == {"", "horovod"}
