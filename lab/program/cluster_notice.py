"""Say before a run that a program does not form the cluster that the config describes."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Final

from lab.program.cluster_arguments import HOSTS, INDEX, JOB, ClusterArguments, builds_cluster
from lab.program.python_source import imported_packages, names_in, uses_estimator
from lab.program.tensorflow_use import STRATEGIES
from lab.text import short

_SHOWN: Final = 6
"""The number of flags that the notice names."""

_NAMES: Final = {JOB: ("job", "{job}"), INDEX: ("index", "{index}")}

_ADDRESS: Final = re.compile(r"(?!127\.|0\.0\.0\.0)\d{1,3}(?:\.\d{1,3}){3}:\d{1,5}")
"""An address of a server on another host."""

_TF_CONFIG: Final = "TF_CONFIG"
_READ_TF_CONFIG: Final = frozenset(
    {"TFConfigClusterResolver", "RunConfig", "train_and_evaluate", "model_to_estimator"}
    | {"learn_runner"}
    | STRATEGIES
)
"""Parts of TensorFlow that read TF_CONFIG by themselves."""

_HOST_NAMES: Final = frozenset({"gethostname", "getfqdn", "uname", "SlurmClusterResolver"})
_VARIABLE: Final = re.compile(r"LAB_TASK|HOSTNAME|(?:SLURM|OMPI|PMI)_[A-Z_]+")
"""The variables that give a task its place."""


def missing_notice(
    program: str,
    trees: Mapping[Path, ast.Module],
    arguments: ClusterArguments,
    jobs: Mapping[str, int],
) -> str | None:
    """Return the notice that the tasks of a program do not form a cluster; None if they may.

    Args:
        program: The program's name.
        trees: The syntax trees of the program and of the modules that it imports.
        arguments: The arguments that describe the cluster to it.
        jobs: Job to its number of tasks.
    """
    needed = [JOB] * (len(jobs) > 1) + [INDEX] * (max(jobs.values()) > 1)
    missing = [meaning for meaning in needed if meaning not in arguments.meanings]
    if not missing:
        return _foreign_notice(program, trees, arguments, jobs)
    if knows_its_place(trees):
        return None
    what = " or ".join(_NAMES[each][0] for each in missing)
    placeholders = " and ".join(_NAMES[each][1] for each in missing)
    known = [_NAMES[each][0] for each in needed if each not in missing]
    alike = f"tasks with the same {known[0]} start alike" if known else "every task starts alike"
    if not (arguments.other or arguments.meanings):
        return (
            f"{short(program)} declares no flag for its {what}, and does not read TF_CONFIG:"
            f" {alike}; write {placeholders} after --, or let it read TF_CONFIG"
        )
    shown = [*arguments.other[:_SHOWN], *["…"] * (len(arguments.other) > _SHOWN)]
    flags = f" ({short(', '.join(shown))})" if shown else ""
    return (
        f"{short(program)} declares flags, but none that lab knows for its {what}{flags}: {alike};"
        f" name it with --map FLAG={missing[0]}, or write {placeholders} after --"
    )


def _foreign_notice(
    program: str,
    trees: Mapping[Path, ast.Module],
    arguments: ClusterArguments,
    jobs: Mapping[str, int],
) -> str | None:
    """Return the notice that a program's own cluster has addresses of other hosts, or None."""
    nodes = [node for tree in trees.values() for node in ast.walk(tree)]
    found = next((text for text in _texts(nodes) if _ADDRESS.fullmatch(text)), None)
    gets_hosts = any(meaning.endswith(HOSTS) for meaning in arguments.meanings)
    if found is None or gets_hosts or sum(jobs.values()) == 1:
        return None
    if not any(map(builds_cluster, trees.values())):
        return None
    return (
        f"{short(program)} has addresses of other hosts in its source, such as {found}: its tasks"
        " do not find each other; replace them by NODE:PORT of the config"
    )


def knows_its_place(trees: Mapping[Path, ast.Module]) -> bool:
    """Whether a program learns its job and index without flags."""
    nodes = [node for tree in trees.values() for node in ast.walk(tree)]
    names, texts = names_in(trees.values()), [*_texts(nodes)]
    if names & _HOST_NAMES or any(map(_VARIABLE.fullmatch, texts)):
        return True
    if "horovod" in imported_packages(trees):
        return True
    if _TF_CONFIG in texts:
        # A program that only sets the variable does not use the one that the task has.
        return texts.count(_TF_CONFIG) > len([*_sets_tf_config(nodes)])
    return bool(names & _READ_TF_CONFIG) or uses_estimator(trees.values())


def _texts(nodes: Sequence[ast.AST]) -> Iterator[str]:
    for node in nodes:
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            yield node.value


def _sets_tf_config(nodes: Sequence[ast.AST]) -> Iterator[ast.AST]:
    """Yield the places where a program sets or removes TF_CONFIG itself."""
    for node in nodes:
        key: ast.AST | None = None
        if isinstance(node, ast.Subscript) and not isinstance(node.ctx, ast.Load):
            key = node.slice
        elif isinstance(node, ast.Call) and getattr(node.func, "attr", "") in {"pop", "putenv"}:
            key = next(iter(node.args), None)
        if isinstance(key, ast.Constant) and key.value == _TF_CONFIG:
            yield node
