"""Deprecated import path, kept for one release: programs of stored runs use it."""

from lab.task.protocol.checkpoints import *  # noqa: F403
