"""`--explain` and `--strict`: the lines about a plan, and the refusals."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from pathlib import Path

import pytest

from lab.cli import main
from lab.gpu import Inventory, Process
from lab.units import GIB
from tests.golden.boxes import box, uuid_of, wired
from tests.support.fakes import FakeBackend, FakeEnvironment

CLUSTER = """\
version: 1
name: mnist
nodes: {tf1: {}, tf2: {gpus: 2}}
jobs: {ps: {on: [tf1]}, worker: {on: [tf2]}}
"""
Put = Callable[[Inventory], None]
PYTHON = Process(4711, "pyth\x1bon", 3 * GIB)


@pytest.fixture(autouse=True)
def backend(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> FakeBackend:
    """A project's directory and a backend without an environment."""
    (tmp_path / "volume").mkdir()
    made = FakeBackend("local")
    for name in ("lab.cli.commands.up", "lab.service.run"):
        monkeypatch.setattr(f"{name}.backends", lambda: [made])
    (tmp_path / "cluster.yaml").write_text(CLUSTER)
    (tmp_path / "scripts").mkdir()
    (tmp_path / "scripts/mnist_async.py").write_text("")
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("LAB_RUNS_DIR", raising=False)
    monkeypatch.setenv("LAB_STATE", str(tmp_path / "state"))
    return made


@pytest.fixture
def on(monkeypatch: pytest.MonkeyPatch) -> Put:
    """Replaces this host by another one."""

    def put(inventory: Inventory) -> None:
        monkeypatch.setattr("lab.service.planning.take_inventory", lambda mode, cluster: inventory)

    return put


def busy_box() -> Inventory:
    whole = wired((0, 0, 1, 1), {(0, 1): 18})
    first, *others = whole.gpus
    return dataclasses.replace(
        whole, gpus=(dataclasses.replace(first, processes=(PYTHON,)), *others)
    )


def output(capsys: pytest.CaptureFixture[str], line: str, code: int = 0) -> list[str]:
    """The stderr of a command."""
    capsys.readouterr()
    assert main(line.split()) == code
    return capsys.readouterr().err.splitlines()


WARNING = f"GPU 0 ({uuid_of(0)}, worker-0) is in use: pyth\\x1bon (pid 4711, 3 GiB)"


def test_explain_reasons(capsys: pytest.CaptureFixture[str], on: Put) -> None:
    on(busy_box())
    node, ps, worker, warning, written = output(capsys, "render --explain")
    assert node == (f"tf2: {uuid_of(0)}, {uuid_of(1)} (0, 1): NUMA node 0, 18 NVLinks between them")
    assert ps == "ps-0: CPUs 0-31"
    assert worker == "worker-0: CPUs 32-63; which CPUs are close to its GPUs is unknown"
    assert warning == f"warning: {WARNING}"
    assert "wrote " in written
    assert uuid_of(1) in Path("compose.yaml").read_text()
    assert not any(line.startswith("tf2: ") for line in output(capsys, "render"))


@pytest.mark.parametrize("line", ["render --strict", "up --strict", "run async --strict"])
def test_strict_refuses_gpus_in_use_and_changes_nothing(
    capsys: pytest.CaptureFixture[str], on: Put, line: str, tmp_path: Path, backend: FakeBackend
) -> None:
    on(busy_box())
    before = sorted(tmp_path.rglob("*"))
    last = output(capsys, line, 1)[-1]
    assert last.startswith(
        f"error: refused by --strict: {WARNING}; change the config, or leave out"
    )
    assert sorted(tmp_path.rglob("*")) == before


@pytest.mark.parametrize(
    ("inventory", "expected"),
    [
        (
            Inventory("none", (), 8, GIB, ("no NVIDIA driver answers: CPUs only",)),
            "'mnist' asks for 2 GPUs: no NVIDIA driver answers: CPUs only;",
        ),
        (box(2, cpus=1), "1 CPU for 2 tasks: CPU sets are left out;"),
        (
            Inventory("none", (), 1, GIB),
            "'mnist' asks for 2 GPUs: this host has none (and 1 more);",
        ),
    ],
)
def test_strict_refuses_less_than_the_config(
    capsys: pytest.CaptureFixture[str], on: Put, inventory: Inventory, expected: str
) -> None:
    on(inventory)
    (line,) = output(capsys, "render --strict", 1)
    assert f"refused by --strict: {expected}" in line
    assert not Path("compose.yaml").exists()
    assert output(capsys, "render")


def with_gpus(*capabilities: str, driver: str = "580.95.05") -> Inventory:
    """A host whose GPUs have these compute capabilities."""
    host = box(len(capabilities))
    gpus = tuple(
        dataclasses.replace(gpu, compute_capability=each)
        for gpu, each in zip(host.gpus, capabilities, strict=True)
    )
    return dataclasses.replace(host, gpus=gpus, driver=driver, cuda="")


@pytest.mark.parametrize(
    ("inventory", "expected"),
    [
        (with_gpus("5.2", "9.0"), "GPU 0: TensorFlow 2.21 needs compute capability 6.0 or later;"),
        (with_gpus("5.2", "5.0"), "GPU 0, 1: TensorFlow 2.21 needs compute capability 6.0"),
        (
            with_gpus("8.0", "9.0", driver="550.54.15"),
            "GPU 1: TensorFlow 2.21 needs a driver for CUDA 12.5 on such a new GPU,",
        ),
    ],
)
def test_gpus_that_tensorflow_cannot_use_are_a_warning(
    capsys: pytest.CaptureFixture[str], on: Put, inventory: Inventory, expected: str
) -> None:
    on(inventory)
    warning, _ = output(capsys, "render --force")
    assert warning.startswith(f"warning: {expected}")
    assert output(capsys, "up --strict", 1)[-1].startswith(
        f"error: refused by --strict: {expected}"
    )


def test_limits_of_gpus_are_notices(capsys: pytest.CaptureFixture[str], on: Put) -> None:
    on(with_gpus("6.0", "12.0"))
    first, second, written = output(capsys, "render --strict")
    assert first.startswith("GPU 0: cuDNN ")
    assert second.startswith("GPU 1: TensorFlow 2.21 has no machine code for such a new GPU")
    assert "wrote " in written


def test_gpus_that_no_task_has_do_not_count(capsys: pytest.CaptureFixture[str], on: Put) -> None:
    on(with_gpus("8.0", "8.6", "3.7"))
    assert len(output(capsys, "render --strict")) == 1


def test_the_judgement_is_for_the_tensorflow_of_the_plan(
    capsys: pytest.CaptureFixture[str], on: Put, monkeypatch: pytest.MonkeyPatch
) -> None:
    on(with_gpus("5.2", "5.2"))
    assert len(output(capsys, "render --strict --tensorflow 2.15")) == 1
    # An unknown TensorFlow is not judged.
    monkeypatch.setenv("LAB_TENSORFLOW", "tensorflow[and-cuda]==2.18.*")
    assert len(output(capsys, "render --strict --force")) == 1


def test_strict_accepts_requested_cpus(capsys: pytest.CaptureFixture[str], on: Put) -> None:
    on(Inventory("none", (), 8, GIB))
    assert "wrote " in output(capsys, "render --strict --gpus none")[-1]


@pytest.mark.parametrize("word", ["--strict", "--explain"])
def test_a_stale_file_does_not_depend_on_host_usage(
    capsys: pytest.CaptureFixture[str], on: Put, word: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    on(busy_box())
    output(capsys, "render")
    monkeypatch.setattr("lab.render.take_inventory", lambda mode, cluster: busy_box())
    assert output(capsys, "render --check") == ["compose.yaml is up to date"]
    (line,) = output(capsys, f"render --check {word}", 2)
    assert line == f"error: --check only compares, so that {word} has no effect; leave out {word}"


def test_a_running_environment_is_not_checked_again(
    capsys: pytest.CaptureFixture[str], on: Put, backend: FakeBackend, tmp_path: Path
) -> None:
    on(busy_box())
    backend.environment = FakeEnvironment(tmp_path / "volume")
    # Another state of the config: this is found first, and does not concern --strict.
    assert "was booted from another version" in output(capsys, "up --strict", 2)[-1]


def test_the_notices_of_a_plan_are_printed(on: Put, capsys: pytest.CaptureFixture[str]) -> None:
    on(Inventory("none", (), 8, GIB, ("no NVIDIA driver answers: CPUs only", "no CPUs")))
    assert main(["render", "--output", "-"]) == 0
    captured = capsys.readouterr()
    assert "no NVIDIA driver answers: CPUs only\nno CPUs\n" in captured.err
    assert "no CPUs" not in captured.out
