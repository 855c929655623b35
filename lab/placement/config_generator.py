"""Generates a config for a host: from its inventory to the text of a file; pure.

All workers get the same number of GPUs, and the parameter servers get none. With more workers than
GPUs, the workers share them. Each worker gets at most one MIG slice, because a process can use only
one.
"""

from __future__ import annotations

import re
import textwrap
import unicodedata
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from lab.config.fields import PROJECT
from lab.errors import InputError
from lab.formatting import counted
from lab.gpu import Gpu, Inventory
from lab.text import clipped, short
from lab.units import memory_for_people

_FALLBACK_NAME: Final = "lab"
_LONGEST_NAME: Final = 31
_RESERVED: Final = frozenset({"null", "true", "false"})
_SHARED_WORKERS: Final = 3  # as in the book, on one GPU
_USUAL_WORKERS: Final = 4  # more are hard to follow on a screen
_SEVERAL_WORKERS: Final = 8
_FOR_WORKERS: Final = 80  # percent of a shared GPU's memory; the CUDA contexts need the rest
_WIDTH: Final = 96
_LONGEST_GPU: Final = 36  # maximum length of its name


@dataclass(frozen=True, slots=True)
class Options:
    """The options of the user; None: chosen by the host's size.

    Attributes:
        workers: Number of workers.
        ps: Number of parameter servers.
        nodes: Number of pseudo-nodes.
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
    """The nodes and tasks of the config.

    Attributes:
        nodes: The pseudo-nodes, in order.
        ps: The node of each parameter server.
        workers: The node of each worker.
        gpus_each: GPUs of each worker; 0 if they share GPUs, or without GPUs.
        percent: Part of a shared GPU's memory for each worker, in percent, or 0.
        idle: Number of GPUs without a worker.
    """

    nodes: tuple[_Node, ...]
    ps: tuple[str, ...]
    workers: tuple[str, ...]
    gpus_each: int
    percent: int
    idle: int


def name_from(text: str) -> str:
    """Return a project name for a text, such as a directory's: `My Würfel 2` → `my-wurfel-2`."""
    plain = unicodedata.normalize("NFKD", text).encode("ascii", "ignore").decode().lower()
    name = re.sub("[^a-z0-9]+", "-", plain).strip("-")[:_LONGEST_NAME].strip("-")
    return name or _FALLBACK_NAME


def check_name(name: str) -> str:
    """Return the name if it is valid.

    Raises:
        InputError: It is not a valid project name.
    """
    if re.fullmatch(PROJECT.removeprefix("^").removesuffix("$"), name) is None:
        raise InputError(
            f"{short(name)!r} is not a name of up to 31 of a-z, 0-9 and -, no - in front",
            f"use --name {name_from(name)}",
        )
    return name


def describe_host(inventory: Inventory) -> str:
    """Return the inventory as text: `2 GPUs (2 x NVIDIA A100, 80 GiB) and 16 CPUs`."""
    parts = [_gpus(inventory.gpus)]
    if inventory.cpus is not None:
        parts.append(counted(inventory.cpus, "CPU"))
    if inventory.memory_bytes is not None:
        parts.append(f"{memory_for_people(inventory.memory_bytes)} of memory")
    return parts[0] if len(parts) == 1 else f"{', '.join(parts[:-1])} and {parts[-1]}"


def generate(
    inventory: Inventory, name: str, options: Options, *, schema: str | None = None
) -> str:
    """Return a config that fits a host.

    Args:
        inventory: The host.
        name: The project's name.
        options: The options of the user.
        schema: Path of the JSON Schema relative to the file, for editors; None: no such line.

    Returns:
        The text of the file, with comments.

    Raises:
        InputError: The options do not fit each other, or the host.
    """
    layout = _lay_out(inventory, options)
    used = sum(len(node.gpus) for node in layout.nodes)
    by_id = any(gpu.is_slice for node in layout.nodes for gpu in node.gpus)
    lines = [f"# yaml-language-server: $schema={schema}", "#"] if schema else []
    lines += _wrapped(f"Made by `lab init` for a host with {describe_host(inventory)}.", "# ")
    lines += _wrapped(_explained(layout), "# ")
    if by_id:
        lines += _wrapped("MIG slices have no index, so the GPUs are pinned by UUID.", "# ")
    quoted = name if name[0].isalpha() and name not in _RESERVED else f'"{name}"'
    lines += ["", "version: 1", f"name: {quoted}"]
    if used:
        lines += ["", f"box: {{gpus: {used}}}"]
    lines += ["", "# A node is a part of the host that looks like a separate machine.", "nodes:"]
    for node in layout.nodes:
        lines += _node(node, by_id=by_id)
    lines += ["", "# One task per entry: the node that it runs on.", "jobs:"]
    lines += _job("ps", layout.ps, "")
    lines += _job("worker", layout.workers, _worker_keys(layout))
    lines += ["", "# `docker compose up` starts this run; then it waits for more runs."]
    lines += ["run: {experiment: async, flags: {epochs: 5}}"]
    return "\n".join(lines) + "\n"


def summary(inventory: Inventory, options: Options) -> str:
    """Return the layout that `generate` chooses, as text: `1 ps and 3 workers on 4 nodes`."""
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
            f"{node_count} nodes are more than the tasks ({tasks})", "use fewer --nodes"
        )
    names = [f"tf{position + 1}" for position in range(node_count)]
    for_ps = max(0, node_count - workers)
    # The nodes of the parameter servers come first, as in the book's cluster.
    ps_names = names[:for_ps] or names
    ps = tuple(ps_names[index % len(ps_names)] for index in range(options.ps))
    worker_names = names[for_ps:]
    if shares and len(worker_names) > len(gpus):
        raise InputError(
            f"{workers} workers share {counted(len(gpus), 'GPU')}, but"
            f" {len(worker_names)} nodes need a GPU each",
            "use fewer --nodes or --workers: workers on different nodes cannot share a GPU",
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
    percent = _FOR_WORKERS // max(Counter(placed).values()) if shares else 0
    if shares and percent == 0:
        raise InputError(
            f"{workers} workers are too many to share {counted(len(gpus), 'GPU')}",
            f"use at most {_FOR_WORKERS} --workers for each GPU",
        )
    return _Layout(tuple(nodes), ps, tuple(placed), gpus_each, percent, len(gpus) - first)


def _worker_count(gpus: int, cpus: int | None, *, cut: bool) -> int:
    """Return the default number of workers."""
    if gpus == 0:
        return min(_USUAL_WORKERS, max(2, (cpus or 0) // 2))
    if gpus == 1:
        return _SHARED_WORKERS
    if gpus <= _USUAL_WORKERS:
        return gpus
    if cut:
        return min(gpus, _SEVERAL_WORKERS)
    # Prefer a number that divides the GPUs equally, so that no GPU is idle.
    fitting = [count for count in range(3, _SEVERAL_WORKERS + 1) if gpus % count == 0]
    return min(fitting, key=lambda count: abs(count - _USUAL_WORKERS), default=_USUAL_WORKERS)


def _node_count(gpus: int, workers: int, ps: int) -> int:
    """Return the default number of nodes: one for each task, unless workers share GPUs."""
    return min(gpus, workers) if 0 < gpus < workers else workers + ps


def _parts(amount: int, count: int) -> list[int]:
    """Divide an amount into nearly equal whole parts, the larger ones first."""
    part, rest = divmod(amount, count)
    return [part + (position < rest) for position in range(count)]


def _explained(layout: _Layout) -> str:
    text = f"It gives {_tasks(layout)} on {counted(len(layout.nodes), 'node')}."
    if layout.percent:
        text += (
            f" The workers of a node share its GPUs; each uses {layout.percent} % of the"
            " memory, and the CUDA contexts need the rest."
        )
    elif layout.gpus_each:
        text += f" A worker has {counted(layout.gpus_each, 'GPU')}, a ps needs none."
    else:
        text += " All tasks use CPUs only."
    if layout.idle:
        text += (
            f" {counted(layout.idle, 'GPU')} stay idle, so that all workers have the same number."
        )
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
    if layout.percent:
        return f", share: true, gpu_memory_fraction: {layout.percent / 100:g}"
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
    """Return a GPU's name and memory; the driver's name may have any characters."""
    name = clipped(gpu.name.encode("ascii", "replace"), _LONGEST_GPU)
    amount = memory_for_people(gpu.memory_bytes) if gpu.memory_bytes else ""
    return ", ".join(part for part in (name, amount) if part)


def _wrapped(text: str, indent: str) -> list[str]:
    return textwrap.wrap(text, _WIDTH, initial_indent=indent, subsequent_indent=indent)
