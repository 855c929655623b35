"""The steps of `make test-gpu`: one table.

Stage 1 needs one GPU and the TensorFlow for CUDA in this Python. Stage 2 needs an engine, and most
of its steps several GPUs.
"""

from __future__ import annotations

import subprocess
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

from lab.run.gpu_metrics import Sampler
from lab.units import MIB
from tests.gpu import trainings
from tests.gpu.host import Host
from tests.gpu.trainings import (
    BOOK_SHARE,
    FAILED,
    NOT_RUN,
    PASSED,
    Row,
    RunFailed,
    Training,
    book,
    cluster,
    judged,
)

PROCESSES, CONTAINERS = 1, 2
STAGES: Final = {
    PROCESSES: "Stage 1: one GPU, tasks as processes",
    CONTAINERS: "Stage 2: several GPUs, tasks in containers",
}

# Global steps: an H100 needs some seconds for them, because most of a step is not on the GPU.
_STEPS: Final = {
    "async": 12_000,
    "sync": 4_000,
    "towers": 2_000,
    "mirrored": 5_000,
    "multiworker": 5_000,
}


@dataclass(frozen=True, slots=True)
class Step:
    """A step.

    Attributes:
        name: Its name, unique in its stage.
        stage: Its stage.
        run: Runs it, and returns its rows of the page.
        gpus: The number of GPUs that it needs.
        cuda: Whether it needs the TensorFlow for CUDA in this Python.
    """

    name: str
    stage: int
    run: Callable[[Host], Sequence[Row]]
    gpus: int = 1
    cuda: bool = False

    def lacks(self, host: Host) -> str:
        """Why it cannot run on this host, or ""."""
        few = f"it needs {self.gpus} GPUs, and this host has {len(host.gpus)}"
        return (
            host.no_driver
            or (host.no_engine if self.stage == CONTAINERS else "")
            or (host.no_cuda if self.cuda else "")
            or (few if len(host.gpus) < self.gpus else "")
        )

    def execute(self, host: Host) -> Sequence[Row]:
        """Run it, or say why it cannot run."""
        if reason := self.lacks(host):
            return [Row("", NOT_RUN, reason)]
        try:
            return self.run(host)
        except RunFailed as error:
            return [Row("", FAILED, str(error))]


# ---- Stage 1: the inventory


def compare_inventory(host: Host) -> Sequence[Row]:
    """Compare each GPU with nvidia-smi, which left-out GPUs are in, too."""
    fields = "index,uuid,name,memory.total,pci.bus_id,driver_version,compute_cap"
    command = ["nvidia-smi", f"--query-gpu={fields}", "--format=csv,noheader,nounits"]
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=True)
    except (OSError, subprocess.CalledProcessError) as error:
        raise RunFailed(f"nvidia-smi: {error}") from error
    theirs = {tuple(cell.strip() for cell in line.split(",")) for line in done.stdout.splitlines()}
    inventory = host.inventory
    left_out = {fault.where for fault in inventory.faults}
    cut = {gpu.slice_of for gpu in inventory.gpus}
    ours = {
        (
            *(str(gpu.index), gpu.device_id, gpu.name, str(gpu.memory_bytes // MIB)),
            *(gpu.pci_bus_id.upper(), inventory.driver, gpu.compute_capability),
        )
        for gpu in inventory.gpus
        if not gpu.is_slice
    }
    wanted = {row for row in theirs if row[1] not in cut and f"GPU {row[0]}" not in left_out}
    faults = [f"nvidia-smi lists {' '.join(row)}" for row in sorted(wanted - ours)]
    faults += [f"the inventory has {' '.join(row)}" for row in sorted(ours - wanted)]
    return [judged("as nvidia-smi", faults, f"{len(inventory.gpus)} GPUs")]


def unknown_fields(host: Host) -> Sequence[Row]:
    """Each unknown field has a reason."""
    faults = [
        f"{each} of GPU {gpu.index} is unknown without a reason"
        for gpu in host.inventory.gpus
        for each in ("memory_free_bytes", "utilisation", "minor", "cpus")
        if getattr(gpu, each) in {None, ()} and each not in dict(gpu.unknown)
    ]
    pairs = len(host.inventory.pairs)
    return [judged("or a reason", faults, f"{pairs} connections")]


def sample(host: Host) -> Sequence[Row]:
    """Every GPU can be sampled."""
    with Sampler(list(host.gpus)) as sampler:
        taken = {each.device_id: each.memory_used_bytes for each in sampler.sample()}
    faults = [f"no memory in use of {gpu}" for gpu in host.gpus if taken.get(gpu) is None]
    return [judged("of every GPU", faults, f"{len(taken)} GPUs")]


# ---- The trainings


def on_one_gpu(experiment: str) -> Training:
    """A training with one GPU: the book's layout, where three workers share it, or one worker."""
    if experiment in {"async", "sync"}:
        return Training(experiment, _STEPS[experiment], book(), share=BOOK_SHARE)
    return Training(experiment, _STEPS[experiment], cluster(1, 1, ps=False))


def on_all_gpus(experiment: str, gpus: int) -> Training:
    """A training with all GPUs: of one worker, or several with two each if there are enough.

    Only `mirrored` and `multiworker` claim NCCL between their replicas.
    """
    each = gpus if experiment in {"towers", "mirrored"} else 2 if gpus >= 4 else 1
    workers = gpus // each
    config = cluster(workers, each, ps=experiment in {"async", "sync"})
    nccl = experiment in {"mirrored", "multiworker"}
    return Training(experiment, _STEPS[experiment], config, workers * each if nccl else 0)


def _train(make: Callable[[Host], Training], backend: str) -> Callable[[Host], Sequence[Row]]:
    def run(host: Host) -> Sequence[Row]:
        training = make(host)
        return [*trainings.check(host, training, trainings.train(host, training, backend))]

    return run


def image(host: Host) -> Sequence[Row]:
    """Build the CUDA image, unless it is here."""
    trainings.make_project(host.folder)
    (host.folder / "cluster.yaml").write_text(cluster(1, 1, ps=False))
    trainings.lab(host, "build", "--gpus", "uuid", within_s=trainings.BUILD_S)
    return [Row("built, or found", PASSED)]


def _in_processes(experiment: str) -> Step:
    run = _train(lambda _: on_one_gpu(experiment), "local")
    return Step(f"{experiment}, by processes", PROCESSES, run, cuda=True)


def _in_containers(experiment: str) -> Step:
    run = _train(lambda host: on_all_gpus(experiment, len(host.gpus)), "compose")
    return Step(f"{experiment}, in containers", CONTAINERS, run, gpus=2)


_BOOK: Final = _train(lambda _: on_one_gpu("async"), "compose")

STEPS: Final = (
    Step("inventory", PROCESSES, compare_inventory),
    Step("unknown fields", PROCESSES, unknown_fields),
    Step("samples", PROCESSES, sample),
    *map(_in_processes, _STEPS),
    Step("image", CONTAINERS, image),
    Step("the book's layout, in containers", CONTAINERS, _BOOK),
    *map(_in_containers, _STEPS),
)
