"""The backend `kubernetes`: each task is a pod, and the run volume is a volume claim.

It needs a kubeconfig, a namespace in which the user may create the rendered objects, an image of
`lab` that the nodes can pull, and a volume claim that all nodes can mount.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Final

from lab.backends.names import Capabilities
from lab.backends.options import BackendOption, choice

NAME: Final = "kubernetes"
"""The name of its entry point."""

_OBJECT: Final = r"[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?"


def _matching(pattern: str, expected: str) -> Callable[[str], str]:
    """Return a parser of texts that match a regular expression."""

    def parse(raw: str) -> str:
        if not re.fullmatch(pattern, raw):
            raise ValueError(expected)
        return raw

    return parse


_object_name: Final = _matching(_OBJECT, "a name of a-z, 0-9 and hyphens")

_dotted_name: Final = _matching(
    rf"(?=.{{1,63}}\Z){_OBJECT}(\.{_OBJECT})*",
    "a name of a-z, 0-9, hyphens and dots, of at most 63 characters",
)

_image_name: Final = _matching(
    r"[A-Za-z0-9][A-Za-z0-9._:/@-]{0,254}",
    "the name of an image, such as registry.example/lab:cpu",
)

CAPABILITIES: Final = Capabilities(
    "lab.backends.kubernetes.backend:KubernetesBackend",
    "pods",
    containers=True,
    host_gpus=False,
    queued=True,
    network_faults=False,
    renders=("cluster.k8s.yaml",),
    extra="kubernetes",
    options=(
        choice("flavour", "plain: a Job for each task, without JobSet", "jobset", "plain"),
        choice(
            "nodes",
            "one: all pods on one node, for a volume that one node can mount (ReadWriteOnce)",
            "any",
            "one",
        ),
        BackendOption("queue", "the Kueue queue", _dotted_name, "NAME", ""),
        BackendOption(
            "namespace",
            "the namespace (default: that of the kubeconfig)",
            _object_name,
            "NAME",
            "",
        ),
        BackendOption(
            "claim",
            "the volume claim for the run volume (default: lab creates one)",
            _dotted_name,
            "NAME",
            "",
        ),
        BackendOption(
            "image", "the image of the tasks that the nodes pull", _image_name, "IMAGE", ""
        ),
    ),
)
