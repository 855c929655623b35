"""The groups: which tests each has, and what of the project belongs to it alone.

Tests in no group are part of each landing; those of `SHORT` files, without an engine, of
`make test`, too.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from fnmatch import fnmatch
from typing import Final

import pytest

E2E: Final = "tests/e2e"
LANDING: Final = "landing"
"""The marker of the tests in no group."""

SHORT: Final = frozenset(
    {
        "test_daily_use.py",
        "test_doctor_here.py",
        "test_gpu_pins.py",
        "test_gpu_samples.py",
        "test_local_environment.py",
        "test_node_network.py",
        "test_replay_terminal.py",
        "test_run_from_python.py",
    }
)

# Time limits in seconds of a test of tests/e2e. They end a test that hangs; they measure nothing.
# Unit tests have the limit in pyproject.toml.
E2E_S: Final = 900.0
ENGINE_S: Final = 2700.0
"""The first test with containers installs an engine and builds images."""

FIXTURES: Final[Mapping[str, str]] = {
    "slurm": "slurm",
    "heritage_image": "heritage",
    "torch_image": "torch",
    "jax_image": "jax",
}
"""Fixtures that put a test into a group, whatever its file."""


@dataclass(frozen=True)
class Group:
    """Tests that take minutes and that few changes can break.

    Attributes:
        name: What `make test-NAME` runs, and the marker of its tests.
        about: What it tests.
        tests: The files of its tests. A test with another group's marker or fixture is not in it.
        shares: Other files with tests that have its marker or fixture.
        owns: Files of `lab/` that only this group tests: no other group reaches them, except by
            an import in its own tests.
        packages: Frameworks: programs in `scripts/` that import one belong to the group, too.
        files: Other files that its tests depend on.
        targets: Targets of the Makefile that its tests need.
        engine: Whether its tests need a Docker engine.
        command: The Python module that runs the tests, and its arguments.
        variables: Environment variables of the run.
        alone: Whether it needs a process of its own.
        nightly: Whether a landing leaves it to the nightly workflow, because it takes over half an
            hour on a machine where nothing is installed.
    """

    name: str
    about: str
    tests: tuple[str, ...]
    shares: tuple[str, ...] = ()
    owns: tuple[str, ...] = ()
    packages: tuple[str, ...] = ()
    files: tuple[str, ...] = ()
    targets: tuple[str, ...] = ()
    engine: bool = False
    command: tuple[str, ...] = ("pytest", E2E)
    variables: Mapping[str, str] = field(default_factory=dict)
    alone: bool = False
    nightly: bool = False


IMAGE: Final = ("Dockerfile.gpu", "requirements/image-cpu.txt")
ENGINE: Final = {"LAB_TEST_ENGINE": "1"}

GROUPS: Final[Mapping[str, Group]] = {
    group.name: group
    for group in (
        Group(
            "class",
            "a class on a real engine: seats, their isolation and the queue",
            tests=("tests/e2e/test_class*.py",),
            owns=("lab/teach/classroom/*", "lab/verbs/class_*.py"),
            files=(*IMAGE, "Dockerfile.class", "requirements/*class*.txt", "requirements/proxy/*"),
            engine=True,
        ),
        Group(
            "heritage",
            "programs for TensorFlow 1, Estimator and Horovod",
            tests=(
                "tests/e2e/test_complaints.py",
                "tests/e2e/test_estimator_and_horovod.py",
                "tests/e2e/test_refused_steps.py",
                "tests/e2e/test_then_and_now.py",
                "tests/e2e/test_tf1_*.py",
            ),
            shares=("tests/e2e/test_passes.py",),
            owns=("lab/task/tf1/*", "scripts/estimator.py"),
            packages=("horovod",),
            files=(
                *("Dockerfile.gpu", "requirements/*heritage*.txt", "requirements/horovod*.txt"),
                "tests/tf1_programs/*",
            ),
            targets=("heritage",),
            engine=True,
        ),
        Group(
            "torch",
            "PyTorch programs, compared with the oracle, and a user's own program",
            tests=(
                "tests/e2e/test_assignments.py",
                "tests/e2e/test_frameworks.py",
                "tests/e2e/test_ranks.py",
            ),
            owns=("lab/protocol/frameworks/torch.py",),
            packages=("torch",),
            files=("Dockerfile.gpu", "requirements/image-torch-*.txt", "docs/how-to/course/*"),
            targets=("torch",),
            engine=True,
        ),
        Group(
            "jax",
            "JAX programs, compared with the oracle, and a user's own program",
            tests=(),
            shares=("tests/e2e/test_frameworks.py", "tests/e2e/test_ranks.py"),
            owns=("lab/protocol/frameworks/jax.py",),
            packages=("jax",),
            files=("Dockerfile.gpu", "requirements/image-jax-*.txt"),
            targets=("jax",),
            engine=True,
        ),
        Group(
            "browser",
            "the board, the figures and the documentation site in Chromium",
            tests=(
                "tests/e2e/test_animation.py",
                "tests/e2e/test_board.py",
                "tests/e2e/test_site.py",
            ),
            owns=("lab/teach/board/*",),
            files=("docs/*", "mkdocs.yml"),
        ),
        Group(
            "slurm",
            "jobs on a private Slurm cluster with three nodes, and its failures",
            tests=("tests/e2e/test_slurm*.py",),
            shares=("tests/e2e/test_daily_use.py",),
            owns=("lab/backends/slurm/*", "lab/task/agent/slurm.py"),
            targets=("heritage", "torch", "jax"),
            variables={"LAB_TEST_SLURM": "1"},
            alone=True,
        ),
        Group(
            "kubernetes",
            "jobs on a private Kubernetes cluster, built from Debian's source, and its failures",
            tests=("tests/e2e/test_kubernetes.py", "tests/kubernetes/*.py"),
            shares=("tests/e2e/test_daily_use.py",),
            owns=("lab/backends/kubernetes/*",),
            files=(*IMAGE, "tests/kubernetes/*.sh"),
            command=("tests.kubernetes", E2E),
            alone=True,
            nightly=True,
        ),
        Group(
            "room",
            "a room in a network namespace with only loopback, on an engine without data",
            tests=("tests/room/*.py",),
            files=(*IMAGE, "requirements/host.txt", "tools/offline.py"),
            engine=True,
            command=("pytest", "tests/room"),
            alone=True,
            nightly=True,
        ),
        Group(
            "experiments",
            "the other experiments, lessons, notebooks and the claims from a source",
            tests=(
                "tests/e2e/test_by_hand.py",
                "tests/e2e/test_evaluation.py",
                "tests/e2e/test_experiments.py",
                "tests/e2e/test_forked_programs.py",
                "tests/e2e/test_lesson*.py",
                "tests/e2e/test_notebooks.py",
                "tests/e2e/test_tensorflow_rules.py",
            ),
            files=("notebooks/*", "docs/tutorials/lessons/*", "lab/teach/lessons/*.yaml"),
            engine=True,
        ),
        Group(
            "cdi",
            "GPU pins on an engine with CDI, which runs in its own Debian system",
            tests=("tests/e2e/test_cdi.py",),
            files=(*IMAGE, "lab/backends/compose/render.py"),
            engine=True,
        ),
        Group(
            "faults",
            "killed programs, late starts, cut networks, full disks: restarts and reasons",
            tests=(
                "tests/e2e/test_failures.py",
                "tests/e2e/test_faults.py",
                "tests/e2e/test_late_workers.py",
                "tests/e2e/test_short_torture.py",
            ),
            owns=(
                *("lab/backends/network_faults.py", "lab/verbs/fault.py"),
                *("lab/task/agent/fault_injection.py", "lab/task/agent/starts.py"),
            ),
            engine=True,
        ),
    )
}


def mark(item: pytest.Item) -> None:
    """Mark a test outside of tests/unit: its group or `landing`, `short`, `engine`, its limit."""
    path = item.path.relative_to(item.config.rootpath).as_posix()
    name = group_of(item) or LANDING
    item.user_properties.append(("group", name))
    needs_engine = has(item, "engine")
    markers = [name, *(["engine"] if needs_engine else [])]
    if name == LANDING and not needs_engine and item.path.name in SHORT:
        markers.append("short")
    for marker in markers:
        item.add_marker(marker)
    if path.startswith(E2E) and item.get_closest_marker("timeout") is None:
        item.add_marker(pytest.mark.timeout(ENGINE_S if needs_engine else E2E_S))


def group_of(item: pytest.Item) -> str:
    path = item.path.relative_to(item.config.rootpath).as_posix()
    marked = (name for name in GROUPS if item.get_closest_marker(name) is not None)
    needed = (name for fixture, name in FIXTURES.items() if has(item, fixture))
    return next(marked, "") or next(needed, "") or group_of_file(path)


def has(item: pytest.Item, name: str) -> bool:
    marked = item.get_closest_marker(name) is not None
    return marked or name in getattr(item, "fixturenames", ())


def group_of_file(path: str) -> str:
    """Return the group of the tests in a file; "" if they are part of every landing."""
    matches = (name for name, group in GROUPS.items() if owned(path, group.tests))
    return next(matches, "")


def owned(path: str, patterns: tuple[str, ...]) -> bool:
    """Whether a path fits one of the patterns, in which `*` also matches `/`."""
    return any(fnmatch(path, pattern) for pattern in patterns)
