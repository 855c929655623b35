"""Deprecated import path, kept for one release: programs of stored runs use it."""

from lab.task.sdk.refusals import *  # noqa: F403
