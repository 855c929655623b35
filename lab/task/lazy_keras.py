"""Deprecated import path, kept for one release: programs of stored runs use it."""

from lab.task.protocol.lazy_keras import *  # noqa: F403
