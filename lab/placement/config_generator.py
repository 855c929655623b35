"""A description for a box: from what the box has to the text of a file; pure.

Each worker gets as many GPUs as the next one, the parameter servers get none, and where there are
more workers than GPUs the workers share them. MIG slices are given out one by one, because a
process can use no more than one of them.
"""

from __future__ import annotations

import re
import textwrap
import unicodedata
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from lab.config.model import PROJECT
from lab.errors import InputError
from lab.formatting import counted
from lab.gpu import Gpu, Inventory
from lab.task.text import clipped, short
from lab.units import memory_for_people

_FALLBACK_NAME: Final = "lab"
_LONGEST_NAME: Final = 31
_RESERVED: Final = frozenset({"null", "true", "false"})
_SHARED_WORKERS: Final = 3  # as many as share the book's one GPU
_USUAL_WORKERS: Final = 4  # as many as a person can follow on a screen
_SEVERAL_WORKERS: Final = 8
_FOR_WORKERS: Final = 80  # hundredths of a shared GPU's memory; the CUDA contexts need the rest
_WIDTH: Final = 96
_LONGEST_GPU: Final = 36  # characters of its name


@dataclass(frozen=True, slots=True)
class Options:
    """What the user asks for; None leaves it to the box.

    Attributes:
        workers: How many workers.
        ps: How many parameter servers.
        nodes: How many pseudo-nodes.
    """

    workers: int | None = None
    ps: int = 1
    nodes: int | None = None


@dataclass(frozen=True, slots=True)
class _Node:
    name: str
    gpus: tuple[Gpu, ...] = ()


@dataclass(frozen=True, slots=True)
class _Layout:
    """Who is where.

    Attributes:
        nodes: The pseudo-nodes, in order.
        ps: The node of each parameter server.
        workers: The node of each worker.
        gpus_each: GPUs of each worker; 0 where they share, or where there are none.
        hundredths: Part of a shared GPU's memory that a worker takes, in hundredths, or 0.
        idle: GPUs that nobody gets.
    """

    nodes: tuple[_Node, ...]
    ps: tuple[str, ...]
    workers: tuple[str, ...]
    gpus_each: int
    hundredths: int
    idle: int


def name_from(text: str) -> str:
    """A project's name from any text, such as a directory's: `My Würfel 2` gives `my-wurfel-2`."""
    plain = unicodedata.normalize("NFKD", text).encode("ascii", "ignore").decode().lower()
    name = re.sub("[^a-z0-9]+", "-", plain).strip("-")[:_LONGEST_NAME].strip("-")
    return name or _FALLBACK_NAME


def check_name(name: str) -> str:
    """The name itself.

    Raises:
        InputError: A description could not have it.
    """
    if re.fullmatch(PROJECT.removeprefix("^").removesuffix("$"), name) is None:
        raise InputError(
            f"{short(name)!r} cannot be a name: up to 31 of a-z, 0-9 and -, and no - in front",
            f"try --name {name_from(name)}",
        )
    return name


def describe_host(inventory: Inventory) -> str:
    """What the box has, in words: `2 GPUs (2 x Card, 80 GiB), 16 CPUs and 64 GiB of memory`."""
    parts = [_gpus(inventory.gpus)]
    if inventory.cpus is not None:
        parts.append(counted(inventory.cpus, "CPU"))
    if inventory.memory_bytes is not None:
        parts.append(f"{memory_for_people(inventory.memory_bytes)} of memory")
    return parts[0] if len(parts) == 1 else f"{', '.join(parts[:-1])} and {parts[-1]}"


def generate(
    inventory: Inventory, name: str, options: Options, *, schema: str | None = None
) -> str:
    """Write a description that fits a box.

    Args:
        inventory: The box.
        name: The project's name.
        options: What the user asks for.
        schema: Where an editor finds the JSON Schema, seen from the file; None for nowhere.

    Returns:
        The text of the file, with comments.

    Raises:
        InputError: The wishes contradict each other, or the box.
    """
    layout = _lay_out(inventory, options)
    used = sum(len(node.gpus) for node in layout.nodes)
    by_id = any(gpu.is_slice for node in layout.nodes for gpu in node.gpus)
    lines = [f"# yaml-language-server: $schema={schema}", "#"] if schema else []
    lines += _wrapped(f"Made by `lab init` for a box with {describe_host(inventory)}.", "# ")
    lines += _wrapped(_explained(layout), "# ")
    if by_id:
        lines += _wrapped("MIG slices have no number of their own: the GPUs stand by UUID.", "# ")
    quoted = name if name[0].isalpha() and name not in _RESERVED else f'"{name}"'
    lines += ["", "version: 1", f"name: {quoted}"]
    if used:
        lines += ["", f"box: {{gpus: {used}}}"]
    lines += ["", "# A node is a slice of the box that looks like a machine of its own.", "nodes:"]
    for node in layout.nodes:
        lines += _node(node, by_id=by_id)
    lines += ["", "# One task per entry: the node that it runs on.", "jobs:"]
    lines += _job("ps", layout.ps, "")
    lines += _job("worker", layout.workers, _worker_keys(layout))
    lines += ["", "# `docker compose up` trains this by itself; then it waits for more runs."]
    lines += ["run: {experiment: async, flags: {epochs: 5}}"]
    return "\n".join(lines) + "\n"


def summary(inventory: Inventory, options: Options) -> str:
    """What `propose` makes of a box, in words: `1 ps and 3 workers on 4 nodes`."""
    layout = _lay_out(inventory, options)
    return f"{_tasks(layout)} on {counted(len(layout.nodes), 'node')}"


def _lay_out(inventory: Inventory, options: Options) -> _Layout:
    gpus = [gpu for gpu in inventory.gpus if not gpu.is_slice]
    gpus += [gpu for gpu in inventory.gpus if gpu.is_slice]
    whole = sum(not gpu.is_slice for gpu in gpus)
    cut = whole < len(gpus)
    workers = options.workers or _worker_count(len(gpus), inventory.cpus, cut=cut)
    shares = bool(gpus) and workers > len(gpus)
    node_count = options.nodes or _node_count(len(gpus), workers, options.ps)
    if node_count > workers + options.ps:
        tasks = f"{counted(workers, 'worker')} and {options.ps} ps"
        raise InputError(
            f"{node_count} nodes are more than there are tasks ({tasks})", "ask for fewer --nodes"
        )
    names = [f"tf{position + 1}" for position in range(node_count)]
    for_ps = max(0, node_count - workers)
    # Nodes of their own for the parameter servers come first, as in the book's cluster.
    ps_names = names[:for_ps] or names
    ps = tuple(ps_names[index % len(ps_names)] for index in range(options.ps))
    worker_names = names[for_ps:]
    if shares and len(worker_names) > len(gpus):
        raise InputError(
            f"{workers} workers share {counted(len(gpus), 'GPU')},"
            f" which {len(worker_names)} nodes cannot divide",
            "workers on different nodes cannot share a GPU: ask for fewer --nodes or --workers",
        )
    seats = zip(worker_names, _parts(workers, len(worker_names)), strict=True)
    placed = [name for name, amount in seats for _ in range(amount)]
    gpus_each = 0 if shares else len(gpus) // workers
    if cut and gpus_each:
        gpus_each = max(1, whole // workers)
    if not shares:
        taken = [gpus_each * placed.count(name) for name in worker_names]
    elif cut:
        taken = [1] * len(worker_names)
    else:
        taken = _parts(len(gpus), len(worker_names))
    nodes = [_Node(name) for name in names[:for_ps]]
    first = 0
    for name, amount in zip(worker_names, taken, strict=True):
        nodes.append(_Node(name, tuple(gpus[first : first + amount])))
        first += amount
    hundredths = _FOR_WORKERS // max(Counter(placed).values()) if shares else 0
    if shares and hundredths == 0:
        raise InputError(
            f"{workers} workers are too many to share {counted(len(gpus), 'GPU')}",
            f"ask for {_FOR_WORKERS} --workers for each GPU at most",
        )
    return _Layout(tuple(nodes), ps, tuple(placed), gpus_each, hundredths, len(gpus) - first)


def _worker_count(gpus: int, cpus: int | None, *, cut: bool) -> int:
    """How many workers a box gets where nobody says."""
    if gpus == 0:
        return min(_USUAL_WORKERS, max(2, (cpus or 0) // 2))
    if gpus == 1:
        return _SHARED_WORKERS
    if gpus <= _USUAL_WORKERS:
        return gpus
    if cut:
        return min(gpus, _SEVERAL_WORKERS)
    # Workers with as many GPUs each as the next one, and no GPU idle, if there is such a number.
    fitting = [count for count in range(3, _SEVERAL_WORKERS + 1) if gpus % count == 0]
    return min(fitting, key=lambda count: abs(count - _USUAL_WORKERS), default=_USUAL_WORKERS)


def _node_count(gpus: int, workers: int, ps: int) -> int:
    """How many nodes there are where nobody says: one for each task, unless workers share."""
    return min(gpus, workers) if 0 < gpus < workers else workers + ps


def _parts(amount: int, count: int) -> list[int]:
    """An amount in nearly equal whole parts, the larger ones first."""
    part, rest = divmod(amount, count)
    return [part + (position < rest) for position in range(count)]


def _explained(layout: _Layout) -> str:
    text = f"It gives {_tasks(layout)} on {counted(len(layout.nodes), 'node')}."
    if layout.hundredths:
        text += (
            f" The workers of a node share its GPUs; each takes {layout.hundredths} % of the"
            " memory, and what is left is for the CUDA contexts."
        )
    elif layout.gpus_each:
        text += f" A worker has {counted(layout.gpus_each, 'GPU')}, a ps needs none."
    else:
        text += " All of them compute on CPUs."
    if layout.idle:
        text += f" {counted(layout.idle, 'GPU')} stay idle, so that all workers have the same."
    return text


def _tasks(layout: _Layout) -> str:
    return f"{len(layout.ps)} ps and {counted(len(layout.workers), 'worker')}"


def _node(node: _Node, *, by_id: bool) -> list[str]:
    if not node.gpus:
        return [f"  {node.name}: {{}}"]
    if not by_id:
        return [f"  {node.name}: {{gpus: {len(node.gpus)}}}"]
    lines = [f"  {node.name}:", "    gpus:"]
    return lines + [f"      - {gpu.device_id}{_comment(gpu)}" for gpu in node.gpus]


def _comment(gpu: Gpu) -> str:
    text = _kind(gpu)
    return f"  # {text}" if text else ""


def _worker_keys(layout: _Layout) -> str:
    if layout.hundredths:
        return f", share: true, gpu_memory_fraction: {layout.hundredths / 100:g}"
    return f", gpus: {layout.gpus_each}" if layout.gpus_each else ""


def _job(name: str, on: Sequence[str], keys: str) -> list[str]:
    head = f"  {name}:".ljust(10)
    line = f"{head}{{on: [{', '.join(on)}]{keys}}}"
    if len(line) <= _WIDTH:
        return [line]
    wrapped = textwrap.wrap(", ".join(on), _WIDTH - 6)
    return [f"  {name}:", "    on: [", *(f"      {part}" for part in wrapped), "    ]"] + [
        f"    {key}" for key in keys.removeprefix(", ").split(", ") if key
    ]


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
    """A card's name and memory; the name comes from the driver and may hold anything."""
    name = clipped(gpu.name.encode("ascii", "replace"), _LONGEST_GPU)
    amount = memory_for_people(gpu.memory_bytes) if gpu.memory_bytes else ""
    return ", ".join(part for part in (name, amount) if part)


def _wrapped(text: str, indent: str) -> list[str]:
    return textwrap.wrap(text, _WIDTH, initial_indent=indent, subsequent_indent=indent)
