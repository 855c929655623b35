"""The backend `slurm`: an environment is a job of Slurm, its agents are the tasks of a step."""

from __future__ import annotations

from lab.backends.slurm.backend import SlurmBackend

__all__ = ["SlurmBackend"]
