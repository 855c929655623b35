"""Nodes and tasks as containers of `docker compose`.

The compose command boots what was rendered; docker-py looks, submits and collects. The labels on
containers, networks and volumes are the only state: an environment is found, watched and removed
from any directory, without its description.
"""

from __future__ import annotations

from lab.backends.compose.backend import ComposeBackend
from lab.backends.compose.environment import ComposeEnvironment

__all__ = ["ComposeBackend", "ComposeEnvironment"]
