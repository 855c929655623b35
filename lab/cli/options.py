"""Flags that several commands share."""

from __future__ import annotations

from typing import Annotated

from lab.backends.selection import BACKENDS
from lab.cli.arguments import Argument, Flag, Switch
from lab.cli.param_types import one_of
from lab.tf_versions import CURRENT, IMAGES, TF1

AsJson = Annotated[bool, Switch("print JSON, for a program")]
ClusterFile = Annotated[
    str | None, Flag("the cluster description (default: cluster.yaml)", shows="FILE")
]
ClusterArgument = Annotated[
    str | None, Argument("the cluster description, as with --cluster", shows="FILE")
]
BackendName = Annotated[
    str,
    Flag(
        "auto, local (processes), compose (containers)",
        one_of(*BACKENDS),
        shows="NAME",
    ),
]
GpuMode = Annotated[
    str,
    Flag(
        "how GPUs are pinned: auto, uuid, index or none",
        one_of("auto", "uuid", "index", "none"),
        shows="MODE",
    ),
]
Explain = Annotated[bool, Switch("print why each node got its GPUs, and each task its CPUs")]
Strict = Annotated[
    bool, Switch("refuse GPUs on which others compute, and less than the description asks for")
]
Share = Annotated[bool, Switch("take GPUs that another environment of the lab holds, too")]
RunsDir = Annotated[
    str | None,
    Flag("where runs are kept (default: LAB_RUNS_DIR, or ./runs)", shows="DIR"),
]
Tensorflow = Annotated[
    str | None,
    Flag(
        f"the tasks' TensorFlow: {CURRENT.tensorflow}, or {TF1.tensorflow} with Estimator and"
        " Horovod",
        one_of(*IMAGES),
        shows="VERSION",
    ),
]
Force = Annotated[bool, Switch("replace a file that lab did not write")]
EnvironmentName = Annotated[
    str | None, Flag("the environment (default: the one of ./cluster.yaml)", shows="NAME")
]
