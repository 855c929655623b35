"""What a program's source shows that its tasks must have: GPUs, and installed packages."""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path

import pytest

from lab.base.errors import InputError
from lab.base.shipped import SHIPPED
from lab.programs.imports import missing_in_image, packages_of
from lab.programs.own import read_program
from lab.programs.packages import locked_versions
from lab.protocol.runtimes import RUNTIMES, Runtime
from lab.runner.own_experiment import check_place
from tests.support.cli import Host
from tests.support.programs import prepared, write

TORCH = "import torch\nimport torch.distributed as dist\n"


def gpu_needs(folder: Path, source: str, **modules: str) -> list[str]:
    own = read_program(str(write(folder, main=source, **modules)))
    return [own.place_of(use) for use in own.gpu_use]


@pytest.mark.parametrize(
    ("source", "needs"),
    [
        ("dist.init_process_group('nccl')", ["backend nccl, line 3"]),
        ("dist.init_process_group(backend='nccl', rank=0)", ["backend nccl, line 3"]),
        ("torch.cuda.set_device(0)\ntorch.cuda.set_device(1)", ["torch.cuda.set_device, line 3"]),
        (
            "def setup(rank):\n    torch.cuda.set_device(rank)\n"
            "    dist.init_process_group('nccl')\nif __name__ == '__main__':\n    setup(0)",
            ["torch.cuda.set_device, line 4", "backend nccl, line 5"],
        ),
        ("if world_size > 1:\n    dist.init_process_group('nccl')", ["backend nccl, line 4"]),
    ],
)
def test_calls_that_fail_without_a_gpu(tmp_path: Path, source: str, needs: list[str]) -> None:
    assert gpu_needs(tmp_path, TORCH + source) == needs


def test_a_call_in_an_imported_module_has_its_file(tmp_path: Path) -> None:
    group = TORCH + "def begin():\n    dist.init_process_group('nccl')\n"
    main = "import torch\nimport group\ngroup.begin()\n"
    assert gpu_needs(tmp_path, main, group=group) == ["backend nccl, line 4 of group.py"]


@pytest.mark.parametrize(
    "source",
    [
        "dist.init_process_group('nccl' if torch.cuda.is_available() else 'gloo')",
        "dist.init_process_group('gloo')\nx.init_process_group('nccl')",
        "if torch.cuda.is_available():\n    torch.cuda.set_device(0)",
        "torch.cuda.is_available() and torch.cuda.set_device(0)",
        "if not torch.cuda.is_available():\n    raise SystemExit(train_on_cpu())\n"
        "dist.init_process_group('nccl')",
        "if args.gpu is not None:\n    torch.cuda.set_device(args.gpu)",
        "if args.no_cuda:\n    pass\nelse:\n    torch.cuda.set_device(args.local_rank)",
        "if args.device != 'cpu':\n    torch.cuda.set_device(0)",
        "for gpu in range(torch.cuda.device_count()):\n    torch.cuda.set_device(gpu)",
        "while torch.cuda.device_count():\n    torch.cuda.set_device(0)",
        "try:\n    dist.init_process_group('nccl')\nexcept RuntimeError:\n    pass",
        "def on_gpus():\n    dist.init_process_group('nccl')\ndist.init_process_group(args.name)",
        "dist.init_process_group(BACKEND)",
        "dist.init_process_group(init_method='env://nccl')",
        "print('torch.cuda.set_device(0)', 'nccl')",
        "match args.device:\n    case 'cuda':\n        torch.cuda.set_device(0)",
    ],
)
def test_a_program_that_may_do_without_gpus(tmp_path: Path, source: str) -> None:
    assert gpu_needs(tmp_path, TORCH + source) == []


def imports(folder: Path, source: str, **modules: str) -> list[str]:
    own = read_program(str(write(folder, main=source, **modules)))
    return packages_of(own.imports)


@pytest.mark.parametrize(
    ("source", "needed"),
    [
        ("import os, torch.nn as nn\nfrom yaml import load", ["torch", "yaml"]),
        ("from torch.utils.tensorboard import SummaryWriter", ["tensorboard", "torch"]),
        ("try:\n    import wandb\nexcept ImportError:\n    wandb = None", []),
        ("def f():\n    import wandb\nif args.log:\n    import wandb", []),
        ("import part", ["boto3"]),
        ("from package.deep import x", ["timm"]),
        ("def f():\n    import part", []),
        ("import sys\nsys.path.append('../lib')\nimport wandb", []),
        ("from . import x\nimport main", []),
        ("print 1\nimport cPickle", []),  # Python 2, of a listing
    ],
)
def test_what_a_program_imports_whatever_happens(
    tmp_path: Path, source: str, needed: list[str]
) -> None:
    files = {"part": "import boto3", "package__in__deep": "import timm\nx = 1"}
    if source.startswith("print 1"):
        source += "\nimport tensorflow as tf\ntf.placeholder"
    assert imports(tmp_path, source, **files) == needed


def test_no_package_of_the_images_is_missing_in_them() -> None:
    for runtime in RUNTIMES.values():
        lock = (SHIPPED / f"requirements/{runtime.requirements(gpus=False)}.txt").read_text()
        text = locked_versions(lock)
        assert missing_in_image(text, ["torch", "jax", "tensorflow", "numpy", "_ours"]) == []
        assert missing_in_image(text, ["transformers", "sklearn"]) == ["transformers", "sklearn"]
    present = locked_versions("pillow==1 \\\n  --hash=sha256:0\npytorch-lightning==2\n")
    assert missing_in_image(present, ["PIL", "pytorch_lightning"]) == []


@pytest.fixture
def project(host: Host, monkeypatch: pytest.MonkeyPatch) -> None:
    """The directory of a project without an environment; nothing is known of its Pythons."""
    host.backend.environment = None
    monkeypatch.setattr(Runtime, "python", lambda *_: None)


@pytest.mark.usefixtures("project")
def test_a_program_for_gpus_is_refused_without_them() -> None:
    source = "import torch.distributed as dist\ndist.init_process_group('nccl')\n"
    with pytest.raises(InputError) as refused:
        prepared(source)
    assert str(refused.value).startswith(
        "own.py needs GPUs (backend nccl, line 2), and its tasks have none; use a config with GPUs"
    )
    run, _ = prepared(source, jobs="worker: {on: [tf1]}")
    assert run.plan.runtime == "torch"


@pytest.mark.usefixtures("project")
@pytest.mark.parametrize("framework", [None, "torch", "tensorflow-2.15"])
def test_horovod_for_pytorch_is_refused(framework: str | None) -> None:
    with pytest.raises(
        InputError, match=r"own.py imports horovod.torch, but lab supports Horovod only for"
    ):
        prepared("import torch\nimport horovod.torch as hvd\n", framework=framework)


@pytest.mark.usefixtures("project")
def test_a_program_that_can_do_without_horovod_runs_with_pytorch() -> None:
    optional = "try:\n    import horovod.torch\nexcept ImportError:\n    pass\n"
    run, notices = prepared(f"import torch\n{optional}")
    assert (run.plan.runtime, run.spec.horovod) == ("torch", False)
    assert [line for line in notices if "orovod" in line] == []


@pytest.mark.usefixtures("project")
def test_missing_packages_are_named_where_they_are_missing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = "import mine, numpy, hydra, no_such_module\n"
    run, _ = prepared(source)
    monkeypatch.setattr(Runtime, "python", lambda *_: Path(sys.executable))
    Path("mine").mkdir()
    own = read_program("own.py")
    with pytest.raises(InputError) as refused:
        check_place(own, run.plan, "local", tmp_path, [])
    assert str(refused.value) == (
        f"own.py imports hydra and no_such_module, which {Path(sys.executable).parents[1]} does"
        " not have;"
        " add --with hydra-core --with no_such_module"
    )
    Path("trainer").mkdir()
    inside = read_program(str(write(tmp_path / "trainer", task="import models")))
    Path("models").mkdir()
    with pytest.raises(
        InputError, match=rf"; start it in {tmp_path} with `lab run -m trainer.task`"
    ):
        check_place(inside, run.plan, "local", tmp_path, [])
    with pytest.raises(
        InputError, match=r"imports hydra, which the image lab:cpu does not have; add"
    ):
        check_place(own, run.plan, "compose", tmp_path, [])
    check_place(own, run.plan, "slurm", tmp_path, [])
    Path("own.py").write_text("import yaml\n")  # Horovod needs it
    old = replace(run.plan, runtime="tensorflow-2.15")
    check_place(read_program("own.py"), old, "compose", tmp_path, [])
    monkeypatch.setenv("LAB_IMAGE", "mine")
    check_place(own, run.plan, "compose", tmp_path, [])
