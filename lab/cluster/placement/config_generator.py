"""Writes a config that fits a host: a template, filled with the GPUs of the host; pure.

There are four: three workers on the CPUs; three workers that share one GPU, as in the book; a
worker for each GPU or MIG slice; and four workers that divide many GPUs. One parameter server, on
the CPU, is in each of them.
"""

from __future__ import annotations

import re
import textwrap
import unicodedata
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from lab.base.formatting import counted
from lab.base.text import clipped
from lab.base.units import memory_for_people
from lab.cluster.gpu import Gpu, Inventory

_FALLBACK_NAME: Final = "lab"
_LONGEST_NAME: Final = 31
_RESERVED: Final = frozenset({"null", "true", "false"})
_MOST_WORKERS: Final = 8  # more are hard to follow on a screen
_WORKERS_OF_MANY: Final = 4
_WIDTH: Final = 96
_LONGEST_GPU: Final = 36  # maximum length of its name

_TEMPLATE: Final = """\
{head}

version: 1
name: {name}
{box}
# A node is a part of the host that looks like a separate machine.
nodes:
{nodes}

# One task per entry: the node that it runs on.
jobs:
  ps:     {{on: [tf1]}}
  worker: {{on: [{workers}]{keys}}}

# `docker compose up` starts this run; then it waits for more runs.
run: {{experiment: async, flags: {{epochs: 5}}}}
"""


@dataclass(frozen=True, slots=True)
class _Layout:
    """How a template divides the GPUs of a host.

    Attributes:
        nodes: The GPUs of each pseudo-node: tf1, tf2 and so on.
        workers: The node of each worker.
        keys: What the config says about the workers' GPUs.
        comment: The same for the reader.
    """

    nodes: tuple[tuple[Gpu, ...], ...]
    workers: tuple[str, ...]
    keys: str
    comment: str

    def __str__(self) -> str:
        nodes = counted(len(self.nodes), "node")
        return f"1 ps and {counted(len(self.workers), 'worker')} on {nodes}"


def name_from(text: str) -> str:
    """Return a project name for a text, such as a directory's: `My Würfel 2` → `my-wurfel-2`."""
    plain = unicodedata.normalize("NFKD", text).encode("ascii", "ignore").decode().lower()
    name = re.sub("[^a-z0-9]+", "-", plain).strip("-")[:_LONGEST_NAME].strip("-")
    return name or _FALLBACK_NAME


def describe_host(inventory: Inventory) -> str:
    """Return the inventory as text: `2 GPUs (2 x NVIDIA A100, 80 GiB) and 16 CPUs`."""
    parts = [_gpus(inventory.gpus)]
    if inventory.cpus is not None:
        parts.append(counted(inventory.cpus, "CPU"))
    if inventory.memory_bytes is not None:
        parts.append(f"{memory_for_people(inventory.memory_bytes)} of memory")
    return parts[0] if len(parts) == 1 else f"{', '.join(parts[:-1])} and {parts[-1]}"


def generate(inventory: Inventory, name: str, *, schema: str | None = None) -> tuple[str, str]:
    """Return the text of a config that fits a host, and its layout in words.

    Args:
        inventory: The host.
        name: The project's name.
        schema: Path of the JSON Schema relative to the file, for editors; None: no such line.
    """
    layout = _layout(inventory.gpus)
    used = [gpu for node in layout.nodes for gpu in node]
    by_id = any(gpu.is_slice for gpu in used)
    idle = len(inventory.gpus) - len(used)
    head = [f"# yaml-language-server: $schema={schema}", "#"] if schema else []
    head += _comment(f"Made by `lab init` for a host with {describe_host(inventory)}.")
    head += _comment(
        f"It gives {layout}. {layout.comment}"
        + (f" No worker uses {counted(idle, 'GPU')}." if idle else "")
        + (" MIG slices have no index, so the GPUs are pinned by UUID." if by_id else "")
    )
    text = _TEMPLATE.format(
        head="\n".join(head),
        name=name if name[0].isalpha() and name not in _RESERVED else f'"{name}"',
        box=f"\nbox: {{gpus: {len(used)}}}\n" if used else "",
        nodes="\n".join(
            _node(f"tf{number}", gpus, by_id=by_id) for number, gpus in enumerate(layout.nodes, 1)
        ),
        workers=", ".join(layout.workers),
        keys=layout.keys,
    )
    return text, str(layout)


def _layout(gpus: Sequence[Gpu]) -> _Layout:
    """Return the template for the GPUs of a host."""
    if not gpus:
        return _Layout(((),) * 4, _names(3), "", "All tasks use CPUs only.")
    if len(gpus) == 1:
        keys = ", share: true, gpu_memory_fraction: 0.26"
        why = "The workers share the GPU; each uses 26 % of its memory: CUDA needs the rest."
        return _Layout((tuple(gpus),), ("tf1",) * 3, keys, why)
    # A process can use only one MIG slice.
    if len(gpus) < _MOST_WORKERS or any(gpu.is_slice for gpu in gpus):
        whole_first = sorted(gpus, key=lambda gpu: gpu.is_slice)
        parts: list[tuple[Gpu, ...]] = [(gpu,) for gpu in whole_first[:_MOST_WORKERS]]
    else:
        part = len(gpus) // _WORKERS_OF_MANY
        parts = [tuple(gpus[part * i : part * (i + 1)]) for i in range(_WORKERS_OF_MANY)]
    why = f"A worker has {counted(len(parts[0]), 'GPU')}, the ps needs none."
    return _Layout(((), *parts), _names(len(parts)), f", gpus: {len(parts[0])}", why)


def _names(workers: int) -> tuple[str, ...]:
    """Return the node of each worker, behind that of the ps."""
    return tuple(f"tf{number}" for number in range(2, workers + 2))


def _node(name: str, gpus: Sequence[Gpu], *, by_id: bool) -> str:
    if not gpus:
        return f"  {name}: {{}}"
    if not by_id:
        return f"  {name}: {{gpus: {len(gpus)}}}"
    (gpu,) = gpus
    return f"  {name}: {{gpus: [{gpu.device_id}]}}"


def _comment(text: str) -> list[str]:
    return textwrap.wrap(text, _WIDTH, initial_indent="# ", subsequent_indent="# ")


def _gpus(gpus: Sequence[Gpu]) -> str:
    if not gpus:
        return "no GPU"
    slices = sum(gpu.is_slice for gpu in gpus)
    counts = []
    if slices < len(gpus):
        counts.append(counted(len(gpus) - slices, "GPU"))
    if slices:
        counts.append(counted(slices, "MIG slice"))
    kinds = Counter(kind for gpu in gpus if (kind := _kind(gpu)))
    named = ", ".join(f"{count} x {kind}" for kind, count in kinds.items())
    return " and ".join(counts) + (f" ({named})" if named else "")


def _kind(gpu: Gpu) -> str:
    """Return a GPU's name and memory; the driver's name may have any characters."""
    name = clipped(gpu.name.encode("ascii", "replace"), _LONGEST_GPU)
    amount = memory_for_people(gpu.memory_bytes) if gpu.memory_bytes else ""
    return ", ".join(part for part in (name, amount) if part)
