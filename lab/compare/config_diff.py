"""The settings of a run as texts, for a comparison with other runs."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping, Sequence
from itertools import chain
from pathlib import Path
from typing import Any, Final

from lab.run.run_info import RunInfo
from lab.run.store import RunDir
from lab.task.protocol.policy import OnFailure

_DIGEST: Final = "sha256:"
_DIGITS: Final = 12  # shown of a digest, as docker and git do


def describe(run: RunDir, info: RunInfo) -> dict[str, str]:
    """Return the settings of a run, without empty ones."""
    return {name: text for name, text in _facts(run, info) if text}


def diff(runs: Sequence[Mapping[str, str]]) -> tuple[dict[str, list[str]], list[str]]:
    """Return which settings differ between runs, and which are the same.

    Returns:
        Name to the text of each run, "" for none; and the names of the equal settings.
    """
    names = dict.fromkeys(chain.from_iterable(runs))
    rows = {name: [each.get(name, "") for each in runs] for name in names}
    alike = [name for name, texts in rows.items() if len(set(texts)) == 1]
    return {name: texts for name, texts in rows.items() if name not in alike}, alike


def _facts(run: RunDir, info: RunInfo) -> Iterator[tuple[str, str]]:
    yield "experiment", info.spec.experiment
    yield "backend", info.backend
    yield "cluster", info.project
    yield "config", info.cluster_sha256[:_DIGITS]
    yield "tasks", ", ".join(f"{len(hosts)} {job}" for job, hosts in info.cluster.items())
    yield "nodes", str(len({str(row.get("node")) for row in info.tasks}) or "")
    yield "GPUs", str(len(info.gpus))
    yield from ((str(name), str(value)) for name, value in _items(info.hyperparameters))
    yield "other arguments", " ".join(_others(info))
    yield "data_dir", info.spec.data_dir
    yield "start", "; ".join(f"{task}: {moment}" for task, moment in _items(info.spec.start))
    yield "faults", "; ".join(info.spec.faults)
    yield "on failure", _policy(info)
    for name, text in info.spec.plain_options().items():
        yield name.replace("-", " "), text or "yes"
    yield "ready within", f"{info.spec.ready_s:g} s" if info.spec.ready_s else ""
    yield "resumed from", info.spec.resumed_from
    yield "printed program", _listing(info)
    yield "program", _digest(run.program) if info.spec.own else info.spec.program
    yield "program of each task", info.spec.program if info.spec.programs else ""
    yield "commit", _commit(info)
    yield from ((f"{name} (tasks)", _shown(text)) for name, text in _items(info.provenance))
    yield from ((f"{name} (client)", str(text)) for name, text in _items(info.versions))


def _items(found: object) -> Iterator[tuple[Any, Any]]:
    """Return the pairs of a mapping; none if a file has another value there."""
    return iter(found.items() if isinstance(found, Mapping) else ())


def _others(info: RunInfo) -> Iterator[str]:
    """Yield the program arguments that are not hyperparameters; values count as arguments."""
    for argument in info.spec.args:
        name = argument.removeprefix("--").partition("=")[0]
        if name not in info.hyperparameters:
            yield argument


def _policy(info: RunInfo) -> str:
    restarts = info.spec.on_failure is OnFailure.RESTART
    return (
        f"{info.spec.on_failure.value}, {info.spec.restarts} times"
        if restarts
        else info.spec.on_failure.value
    )


def _listing(info: RunInfo) -> str:
    modes = (
        ("as printed", info.spec.listing),
        ("faithful", info.spec.faithful),
        ("fixed", info.spec.mend),
    )
    return ", ".join(mode for mode, is_set in modes if is_set)


def _commit(info: RunInfo) -> str:
    git = info.git if isinstance(info.git, Mapping) else {}
    commit = str(git.get("commit", ""))[:_DIGITS]
    return f"{commit} with changes" if commit and git.get("dirty") else commit


def _shown(text: object) -> str:
    """Return a digest as docker shows it; any other text unchanged."""
    whole = str(text)
    return whole.removeprefix(_DIGEST)[:_DIGITS] if whole.startswith(_DIGEST) else whole


def _digest(folder: Path) -> str:
    """Return a digest of all files of a program."""
    digest = hashlib.sha256()
    for path in sorted(path for path in folder.rglob("*") if path.is_file()):
        data = path.read_bytes()
        digest.update(f"{path.relative_to(folder)}\0{len(data)}\0".encode(errors="replace"))
        digest.update(data)
    return digest.hexdigest()[:_DIGITS]
