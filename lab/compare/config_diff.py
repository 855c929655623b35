"""The settings and the environment of a run as texts, for a comparison with other runs."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import chain
from typing import Final

from lab.store.directory import RunDir
from lab.store.run_info import RunInfo
from lab.store.settings import DIGITS, SEED, seed_of, settings_of

_DIGEST: Final = "sha256:"


def describe(run: RunDir, info: RunInfo) -> dict[str, str]:
    """Return the settings of a run, its seed and its environment, without empty ones."""
    return settings_of(run, info) | {name: text for name, text in _environment(info) if text}


def diff(runs: Sequence[Mapping[str, str]]) -> tuple[dict[str, list[str]], list[str]]:
    """Return which settings differ between runs, and which are the same.

    Returns:
        Name to the text of each run, "" for none; and the names of the equal settings.
    """
    names = dict.fromkeys(chain.from_iterable(runs))
    rows = {name: [each.get(name, "") for each in runs] for name in names}
    alike = [name for name, texts in rows.items() if len(set(texts)) == 1]
    return {name: texts for name, texts in rows.items() if name not in alike}, alike


def _environment(info: RunInfo) -> Iterator[tuple[str, str]]:
    yield SEED, seed_of(info)
    yield "cluster", info.project
    yield "commit", _commit(info)
    yield from ((f"{name} (tasks)", _shown(text)) for name, text in info.provenance.items())
    yield from ((f"{name} (client)", text) for name, text in info.versions.items())


def _commit(info: RunInfo) -> str:
    git = info.git or {}
    commit = str(git.get("commit", ""))[:DIGITS]
    return f"{commit} with changes" if commit and git.get("dirty") else commit


def _shown(text: str) -> str:
    """Return a digest as docker shows it; any other text unchanged."""
    is_digest = text.startswith(_DIGEST)
    return text.removeprefix(_DIGEST)[:DIGITS] if is_digest else text
