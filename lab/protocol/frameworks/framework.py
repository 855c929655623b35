"""What lab knows about a framework."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Final


@dataclass(frozen=True, slots=True)
class Rank:
    """A task of a program whose tasks are ranks.

    Attributes:
        index: Its number, from 0.
        size: The number of ranks.
        host: The host of rank 0, as all tasks reach it.
        port: A port of that host that belongs to rank 0.
        gpus: The number of GPUs that the task sees.
        run: The run's id.
        attempt: The number of restarts of the run so far.
        restarts: The maximum number of restarts.
    """

    index: int
    size: int
    host: str
    port: int
    gpus: int
    run: str
    attempt: int
    restarts: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Framework:
    """A framework of training programs.

    Attributes:
        name: Its name in a run's specification: `torch`.
        title: Its name in messages: `PyTorch`.
        modules: The modules whose import shows that a program uses it.
        packages: The packages whose versions a run records.
        defaults: Variables of every program, unless the environment has them.
        threads_in: The variable with the number of threads of a process, unless the environment has
            it; or "".
        interface_in: The variables that name the network interface of the task's node.
        address_in: The variables with the name of the task's node, as the other tasks reach it.
        of_rank: Returns the variables by which a rank finds the others; None if there are no ranks.
        lost_peer: A part of the message of a program's error if another task was lost.
        launcher: The module that starts a program on several GPUs of one task, or "".
    """

    name: str
    title: str
    modules: tuple[str, ...]
    packages: tuple[str, ...]
    defaults: Mapping[str, str] = field(default_factory=dict)
    threads_in: str = ""
    interface_in: tuple[str, ...] = ()
    address_in: tuple[str, ...] = ()
    of_rank: Callable[[Rank], Mapping[str, str]] | None = None
    lost_peer: re.Pattern[str] | None = None
    launcher: str = ""

    @property
    def has_ranks(self) -> bool:
        """Whether each task of a program is a rank."""
        return self.of_rank is not None

    def sets(self, variable: str) -> bool:
        """Whether the agents set this variable in each program, whatever the user has set."""
        of_rank = self.of_rank(_ANY_RANK) if self.of_rank else {}
        own = {*of_rank, *self.interface_in, *_ALWAYS_SET}
        return variable in own or variable.startswith(("LAB_", "HOROVOD_"))


_ALWAYS_SET: Final = (
    *("CUDA_DEVICE_ORDER", "CUDA_VISIBLE_DEVICES", "NVIDIA_VISIBLE_DEVICES"),
    *("PYTHONPATH", "PYTHONUNBUFFERED", "TF_CONFIG"),
)
_ANY_RANK: Final = Rank(0, 2, "", 0, gpus=2, run="", attempt=0, restarts=0)
