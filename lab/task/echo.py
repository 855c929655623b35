"""Deprecated import path, kept for one release: programs of stored runs use it."""

from lab.task.agent.echo import *  # noqa: F403
