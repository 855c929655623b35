"""The image of a class, `lab-class:cpu` or `lab-class:cuda`: its state and its build.

It is built on the tasks' image. A label of the image has the digest of what it was built from.
"""

from __future__ import annotations

import hashlib
import json
from contextlib import suppress
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final

from lab.backends.compose.cli import Compose, require_builder
from lab.backends.compose.image_build import build_image
from lab.backends.engine.client import Engine, NotFound, engine_errors
from lab.errors import LabError
from lab.log import LOG
from lab.placement.plan import Plan, PlannedNode, PlannedTask
from lab.shipped import files_of
from lab.text import visible

DIGEST: Final = "lab.class-sha256"
"""The label of the image with the digest of what it was built from."""

SOURCES: Final = (
    *("Dockerfile.class", "requirements/class-image.txt", "requirements/proxy"),
    *("lab", "scripts", "notebooks", "clusters", "docs"),
    *("benchmarks/scaling.json", "data/README.md"),
    *("cluster.yaml", "pyproject.toml", "README.md", "LICENSE"),
)
"""What the build copies into the image, relative to the project, and the Dockerfile."""

_PROJECT: Final = "lab-class"
_SERVICE: Final = "seat"
_DOING: Final = "looking for the image of the class"


def ensure_image(engine: Engine, *, gpus: bool, root: Path, cpu_runs: bool = False) -> str:
    """Build the image of a class, unless the engine has it with these sources.

    The tasks' image is built first where it is missing or has another version of lab's code.

    Args:
        engine: The engine.
        gpus: Whether seats or the queue have GPUs.
        root: The project's directory, with `Dockerfile.class`.
        cpu_runs: Whether the queue has runs without GPUs, so that it needs their image, too.

    Returns:
        The image's name.

    Raises:
        LabError: There is no engine with compose, a build fails, or the directory is not a project.
    """
    kinds = [True, False] if gpus and cpu_runs else [gpus]
    base, *_ = [build_image(_plan(gpus=kind), root=root, if_needed=True) for kind in kinds]
    name = f"{_PROJECT}:{'cuda' if gpus else 'cpu'}"
    images = engine.client().images
    with engine_errors(_DOING):
        digest = _digest(root, str(images.get(base).id))
    with suppress(NotFound), engine_errors(_DOING):
        if images.get(name).labels.get(DIGEST) == digest:
            return name
    _build(name, base, digest, root)
    return name


def _build(name: str, base: str, digest: str, root: Path) -> None:
    require_builder()
    LOG.info(f"building {name} downloads about 230 MB: JupyterLab, Node.js and lab's packages")
    build = {
        "context": ".",
        "dockerfile": "Dockerfile.class",
        "network": "${LAB_BUILD_NETWORK:-default}",
        "args": {"IMAGE": base},
        "labels": {DIGEST: digest},
    }
    with TemporaryDirectory(prefix="lab-build-") as folder:
        file = Path(folder) / "docker-compose.yml"
        file.write_text(json.dumps({"services": {_SERVICE: {"image": name, "build": build}}}))
        Compose(_PROJECT, file, root.absolute()).build(_SERVICE)


def _plan(*, gpus: bool) -> Plan:
    """Return a plan with one task, which runs in the image that a seat's image is built on."""
    devices = ("0",) if gpus else ()
    return Plan(
        name=_PROJECT,
        mode="index" if gpus else "none",
        cluster_sha256="",
        nodes=(PlannedNode("tf1", devices),),
        tasks=(PlannedTask("worker", 0, "tf1", 2222, devices),),
    )


def _digest(root: Path, base_id: str) -> str:
    """SHA-256 of the sources' names and contents and of the tasks' image, in hexadecimal.

    Raises:
        LabError: A source is missing.
    """
    if missing := [name for name in SOURCES if not (root / name).exists()]:
        raise LabError(
            f"{missing[0]} is missing in {visible(str(root))}",
            "run the command in the project's directory",
        )
    whole = hashlib.sha256(base_id.encode())
    for name, path in files_of(SOURCES, root):
        whole.update(f"{hashlib.sha256(path.read_bytes()).hexdigest()}  {name}\n".encode())
    return whole.hexdigest()
