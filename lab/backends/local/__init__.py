"""The backend whose pseudo-nodes are processes, in namespaces if the kernel allows them."""

from __future__ import annotations

from lab.backends.local.backend import LocalBackend

__all__ = ["LocalBackend"]
