"""Classes for unit tests: nothing of them runs."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from lab.classroom.config import Times, Tls
from lab.classroom.planning import ClassPlan
from lab.classroom.state import ClassDir, StoredClass
from tests.golden.boxes import box
from tests.unit.test_class_plan import a_class, a_host, plan

CLUSTER = "version: 1\nname: m\nnodes: {a: {}}\njobs: {worker: {on: [a]}}\n"


def a_plan(
    seats: object = ("ada", "bob"),
    gpus: object = 0,
    *,
    tls: Tls | None = None,
    times: Times | None = None,
    **others: Any,
) -> ClassPlan:
    """The plan of a class on a host with four GPUs."""
    seats = list(seats) if isinstance(seats, tuple) else seats
    config = a_class(seats, gpus, **others)
    update = {"tls": tls, "times": times or config.times}
    return plan(config.model_copy(update=update), a_host(box(4)))


def stored(found: ClassPlan | None = None) -> StoredClass:
    """What `lab class up` was given."""
    return StoredClass(found or a_plan(), "lab-class:cpu", CLUSTER, ("async", "sync"))


def created(found: ClassPlan | None = None) -> ClassDir:
    """The directory of a class. Its JupyterHub does not run."""
    folder = ClassDir((found or a_plan()).name)
    folder.create(stored(found))
    return folder


def certificate(folder: Path) -> Tls:
    """The names of files for HTTPS."""
    return Tls.model_construct(certificate=folder / "c.pem", key=folder / "k.pem")
