"""Templates of the arguments that describe the cluster and the task to a program.

A template has placeholders: `--task={index}`, `--machines={worker_hosts}`.

========================  ==================================================================
`{job}`, `{index}`        the task's job and its index in the job
`{JOB_hosts}`             the addresses of the job's tasks, joined by commas
`{JOB_names}`             the same without ports
`{JOB_hosts...}`          one argument for each of them: `--host={ps_hosts...}`
========================  ==================================================================
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from typing import Final

from lab.volume.names import CLUSTER_FLAGS, ClusterSpec

CLUSTER_ARGS: Final = tuple(f"--{name}={value}" for name, value in CLUSTER_FLAGS.items())
"""The templates for a program of lab."""

PLACEHOLDER: Final = re.compile(r"\{(?:(job|index)|([a-z]+)_(hosts|names)(\.\.\.)?)\}")
"""A placeholder: `job` or `index`, or else the job of the addresses, their kind, and `...`."""


def fill_in(template: str, job: str, index: int, cluster: ClusterSpec) -> Iterator[str]:
    """Yield the arguments that a template stands for; none if it needs a job without tasks."""
    own = {"job": job, "index": str(index)}
    jobs = [match[2] for match in PLACEHOLDER.finditer(template) if match[2]]
    if not all(cluster.get(each) for each in jobs):
        return

    def hosts(match: re.Match[str]) -> list[str]:
        addresses = cluster[match[2]]
        return addresses if match[3] == "hosts" else [each.rpartition(":")[0] for each in addresses]

    def value(match: re.Match[str]) -> str:
        return own[match[1]] if match[1] else ",".join(hosts(match))

    several = next((match for match in PLACEHOLDER.finditer(template) if match[4]), None)
    if several is None:
        yield PLACEHOLDER.sub(value, template)
        return
    for host in hosts(several):
        yield PLACEHOLDER.sub(value, template.replace(several[0], host))


def jobs_in(arguments: Iterable[str]) -> list[str] | None:
    """Return the jobs whose addresses placeholders name; None if there is no placeholder."""
    found = [match for each in arguments for match in PLACEHOLDER.finditer(each)]
    return [match[2] for match in found if match[2]] if found else None
