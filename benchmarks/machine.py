"""The host of a measurement, and its load."""

from __future__ import annotations

import importlib.metadata
import os
import platform
import subprocess
import sys
from pathlib import Path
from typing import Any

from lab.run.prepare import git_state

_CPUINFO = Path("/proc/cpuinfo")
_MEMINFO = Path("/proc/meminfo")


def describe(root: Path) -> dict[str, Any]:
    """Return CPU, memory, system, versions and commit, as `results.json` keeps them.

    Args:
        root: The project's directory, of which the commit is read.
    """
    return {
        "cpu": cpu_model(_text(_CPUINFO)) or platform.processor() or platform.machine(),
        "cores": len(os.sched_getaffinity(0)) if sys.platform == "linux" else os.cpu_count(),
        "memory_gib": memory_gib(_text(_MEMINFO)),
        "system": _system(),
        "kernel": f"{platform.system()} {platform.release()}",
        "python": platform.python_version(),
        "tensorflow": _version("tensorflow_cpu") or _version("tensorflow") or "none",
        "load_before": round(os.getloadavg()[0], 2),
        "git": git_state(root),
    }


def commits_since(folder: Path, commit: str, when: str) -> int | None:
    """Return the number of commits since a measurement; None without git.

    Args:
        folder: A directory of the repository.
        commit: The measured commit.
        when: The time of the measurement, used if git does not have the commit.
    """
    for since in ([f"{commit}..HEAD"], [f"--since={when}", "HEAD"]):
        command = ["git", "-C", str(folder), "rev-list", "--count", *since]
        try:
            done = subprocess.run(command, capture_output=True, text=True, check=False)
        except FileNotFoundError:
            return None
        if done.returncode == 0:
            return int(done.stdout)
    return None


def cpu_model(cpuinfo: str) -> str:
    """Return the first `model name` of /proc/cpuinfo, or ""."""
    for line in cpuinfo.splitlines():
        name, _, value = line.partition(":")
        if name.strip() == "model name":
            return " ".join(value.split())
    return ""


def memory_gib(meminfo: str) -> float | None:
    """Return the total memory in /proc/meminfo, in GiB, or None."""
    for line in meminfo.splitlines():
        name, _, value = line.partition(":")
        if name == "MemTotal":
            return round(int(value.split()[0]) / 1024**2, 1)
    return None


def _system() -> str:
    try:
        return platform.freedesktop_os_release()["PRETTY_NAME"]
    except (OSError, KeyError):
        return platform.platform(terse=True)


def _text(path: Path) -> str:
    return path.read_text(encoding="utf-8") if path.is_file() else ""


def _version(distribution: str) -> str | None:
    try:
        return importlib.metadata.version(distribution)
    except importlib.metadata.PackageNotFoundError:
        return None
