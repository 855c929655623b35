"""Programs of users, written as files."""

from __future__ import annotations

from pathlib import Path


def write(folder: Path, **files: str) -> Path:
    """Write the sources of modules, `pkg__in__part` as `pkg/part.py`; return the first file."""
    paths = [folder / f"{name.replace('__in__', '/')}.py" for name in files]
    for path, text in zip(paths, files.values(), strict=True):
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
    return paths[0]
