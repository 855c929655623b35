"""Deprecated import path, kept for one release: programs of stored runs use it."""

from lab.task.sdk.flags import *  # noqa: F403
