"""Deprecated import path, kept for one release: programs of stored runs use it."""

from lab.task.protocol.results import *  # noqa: F403
