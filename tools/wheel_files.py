"""Adds to the wheel what stands beside the package: programs, configs, Dockerfiles, documents.

The files are not in an editable installation, which finds them in the clone.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

SKIPPED = frozenset({".ipynb_checkpoints", "__pycache__"})


class ShippedFiles(BuildHookInterface[Any]):
    """Lists the files of `shipped` in pyproject.toml, for a wheel that is no editable one."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Add each file as `lab/shipped/…`."""
        if version == "editable":
            return
        root = Path(self.root)
        for name in self.config["shipped"]:
            start = root / name
            for path in [start] if start.is_file() else sorted(start.rglob("*")):
                inside = path.relative_to(root)
                if path.is_file() and not SKIPPED.intersection(inside.parts):
                    build_data["force_include"][str(path)] = f"lab/shipped/{inside.as_posix()}"
