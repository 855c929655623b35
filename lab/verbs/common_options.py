"""Flags that several commands share."""

from __future__ import annotations

import os
from typing import Annotated, Final

from lab.backends.names import AUTO, BUILT_IN, backend_names
from lab.base.converters import OneOf, duration, one_of, whole
from lab.base.options import Argument, Flag, RepeatedFlag, Switch
from lab.protocol.runtimes import RUNTIMES

_MAX_GPUS: Final = 1000


def host_gpus(raw: str) -> str | int:
    """Parse `auto`, `none`, or the number of GPUs of another host."""
    if raw in {"auto", "none"}:
        return raw
    try:
        return whole(1, _MAX_GPUS)(raw)
    except ValueError:
        raise ValueError(f"auto, none, or a number from 1 to {_MAX_GPUS:,}") from None


AsJson = Annotated[bool, Switch("print JSON")]
ClusterFile = Annotated[
    str | os.PathLike[str] | None,
    Flag("the cluster config (default: cluster.yaml)", shows="FILE"),
]
ClusterArgument = Annotated[
    str | os.PathLike[str] | None,
    Argument("the cluster config (same as --cluster)", shows="FILE"),
]
BackendName = Annotated[
    str,
    Flag(
        "auto, or one that `lab backends` lists",
        OneOf(backend_names, (AUTO, *BUILT_IN)),
        shows="NAME",
    ),
]
OwnOptions = Annotated[
    tuple[str, ...],
    RepeatedFlag("an option of one backend (see `lab backends`)", shows="KEY=VALUE", short="-o"),
]
GpuMode = Annotated[
    str,
    Flag(
        "pinning: auto, uuid, index or none", one_of("auto", "uuid", "index", "none"), shows="MODE"
    ),
]
HostGpus = Annotated[
    str | int,
    Flag("auto (this host), none, or the number of GPUs of another host", host_gpus, shows="N"),
]
RunsDir = Annotated[
    str | os.PathLike[str] | None,
    Flag("the run store (default: LAB_RUNS_DIR, or ./runs)", shows="DIR"),
]
Share = Annotated[bool, Switch("also use GPUs that another environment holds")]
DataDir = Annotated[
    str | os.PathLike[str] | None,
    Flag("a directory with your own data: the four IDX files", shows="DIR"),
]
Stall = Annotated[
    float | str,
    Flag("fail after this time without progress: 90s, 5m; 0: never", duration, shows="TIME"),
]
Framework = Annotated[
    str | None,
    Flag(f"the tasks' framework: {', '.join(RUNTIMES)}", one_of(*RUNTIMES), shows="NAME"),
]
Force = Annotated[bool, Switch("replace the file even if lab did not write it")]
EnvironmentArgument = Annotated[str | None, Argument(shows="ENVIRONMENT")]
EnvironmentName = Annotated[
    str | None, Flag("the environment (default: the one of ./cluster.yaml)", shows="ENVIRONMENT")
]
