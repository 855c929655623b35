"""Packages with plug-ins, as pip installs them."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

import pytest

from lab.backends.names import known
from lab.base.plugins import plugins, warn_once

Install = Callable[..., Path]
"""Installs a package: its name, the entry points of each group, and its files by path."""


def forget() -> None:
    """Let the next call look for packages again."""
    plugins.cache_clear()
    known.cache_clear()
    warn_once.cache_clear()


@pytest.fixture
def install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Install]:
    site = tmp_path / "site-packages"
    site.mkdir()
    monkeypatch.syspath_prepend(str(site))

    def make(
        name: str,
        points: Mapping[str, str],
        files: Mapping[str, str],
        *,
        version: str = "1.2",
        needs: str = "",
    ) -> Path:
        info = site / f"{name}-{version}.dist-info"
        info.mkdir()
        required = f"Requires-Dist: {needs}\n" if needs else ""
        metadata = f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n{required}"
        (info / "METADATA").write_text(metadata)
        lines = (f"[gpulab.{group}]\n{point}\n" for group, point in points.items())
        (info / "entry_points.txt").write_text("\n".join(lines))
        for path, text in {f"{name}/__init__.py": "", **files}.items():
            (site / path).parent.mkdir(parents=True, exist_ok=True)
            (site / path).write_text(text)
        forget()
        return site / name

    forget()
    yield make
    for name in {path.name for path in site.iterdir()}:
        sys.modules.pop(name, None)
    forget()
