"""Pseudo-nodes without an engine: processes, in namespaces where the kernel allows them."""

from __future__ import annotations

from lab.backends.local.backend import LocalBackend

__all__ = ["LocalBackend"]
