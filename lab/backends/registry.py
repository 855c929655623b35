"""The list of all backends."""

from __future__ import annotations

from lab.backends import Backend


def backends() -> list[Backend]:
    """Return all backends, the preferred one first."""
    # Imported here: docker-py takes 0.3 s, and `lab validate` does not need it.
    from lab.backends.classroom import ClassBackend  # noqa: PLC0415
    from lab.backends.compose import ComposeBackend  # noqa: PLC0415
    from lab.backends.local import LocalBackend  # noqa: PLC0415
    from lab.backends.slurm import SlurmBackend  # noqa: PLC0415

    return [ComposeBackend(), LocalBackend(), ClassBackend(), SlurmBackend()]
