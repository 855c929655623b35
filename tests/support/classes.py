"""Classes for unit tests: nothing of them runs."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from lab.base.units import GIB
from lab.cluster.config import Cluster, parse_cluster
from lab.cluster.gpu import Inventory
from lab.teach.classroom.class_dir import ClassDir, StoredClass
from lab.teach.classroom.config import ClassConfig, Tls, parse_class
from lab.teach.classroom.planning import ClassPlan, HostFacts, plan_class
from tests.golden.boxes import box


def a_plan(
    seats: object = ("ada", "bob"),
    gpus: object = 0,
    *,
    tls: Tls | None = None,
    **others: Any,
) -> ClassPlan:
    """The plan of a class on a host with four GPUs."""
    seats = list(seats) if isinstance(seats, tuple) else seats
    config = a_class(seats, gpus, **others)
    return plan(config.model_copy(update={"tls": tls}), a_host(box(4)))


def granting(gpus: tuple[str, ...], networks: Sequence[str], slice_s: float) -> ClassPlan:
    """The plan of a class whose queue grants these GPUs, and networks with short names."""
    parts: dict[str, Any] = {"queue_gpus": gpus, "run_networks": tuple(networks)}
    return replace(a_plan(), slice_s=slice_s, **parts)


def stored(found: ClassPlan | None = None) -> StoredClass:
    """What `lab class up` was given."""
    return StoredClass(found or a_plan(), "lab-class:cpu", CLUSTER)


def created(found: ClassPlan | None = None) -> ClassDir:
    """The directory of a class. Its JupyterHub does not run."""
    folder = ClassDir((found or a_plan()).name)
    folder.create(stored(found))
    return folder


def certificate(folder: Path) -> Tls:
    return Tls.model_construct(certificate=folder / "c.pem", key=folder / "k.pem")


@pytest.fixture(autouse=True)
def own_state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A state directory for each test of the modules that import this."""
    monkeypatch.setenv("LAB_STATE", str(tmp_path / "state"))
    return tmp_path / "state"


CLASS = "version: 1\nname: w\nseats: [ada, bob]\nseat: {gpus: 1, memory: 1GiB}\n"


CLUSTER = "version: 1\nname: m\nnodes: {a: {gpus: 1}}\njobs: {ps: {on: [a]}, worker: {on: [a]}}\n"


# For lab.example.org and the names below it; `openssl req -x509 -newkey ec …` made it.
CERTIFICATE = """\
-----BEGIN CERTIFICATE-----
MIIBuzCCAWKgAwIBAgIUD9mb4wl/4VQbczyQR7Mq5XoUqbYwCgYIKoZIzj0EAwIw
GjEYMBYGA1UEAwwPbGFiLmV4YW1wbGUub3JnMCAXDTI2MTEyNzA0MDg1MloYDzIx
MjYxMTAzMDQwODUyWjAaMRgwFgYDVQQDDA9sYWIuZXhhbXBsZS5vcmcwWTATBgcq
hkjOPQIBBggqhkjOPQMBBwNCAATPhw+zFXjcdfwZ0yysHhtc8uw73lB2A146OKzb
qmW7PX5CumCEriI8ZJSzKpGHU5sLB+Z0aW9wuXMK562tpISYo4GDMIGAMB0GA1Ud
DgQWBBS4sGNdpWW9PYFnvGeskgCBEFDUrDAfBgNVHSMEGDAWgBS4sGNdpWW9PYFn
vGeskgCBEFDUrDAPBgNVHRMBAf8EBTADAQH/MC0GA1UdEQQmMCSCD2xhYi5leGFt
cGxlLm9yZ4IRKi5sYWIuZXhhbXBsZS5vcmcwCgYIKoZIzj0EAwIDRwAwRAIgcxdH
GZKndBqAq1VmoNxaNdpE6hBsX3vpyifOOmdRdvkCIBpoC43zdpYM6LpjN71/VHnU
xtohjy990AAroFTB+jSU
-----END CERTIFICATE-----
"""


KEY = """\
-----BEGIN PRIVATE KEY-----
MIGHAgEAMBMGByqGSM49AgEGCCqGSM49AwEHBG0wawIBAQQgIPnTBx9SxR9IxpKN
UUL5aPYahn4nha7ASlbtZcjBSTGhRANCAATPhw+zFXjcdfwZ0yysHhtc8uw73lB2
A146OKzbqmW7PX5CumCEriI8ZJSzKpGHU5sLB+Z0aW9wuXMK562tpISY
-----END PRIVATE KEY-----
"""


NO_GPUS = Inventory("none", (), 4, 16 * GIB, notices=("no NVIDIA driver",))


def a_class(seats: object = 2, gpus: object = 0, **others: object) -> ClassConfig:
    """A class; `others` are keys of a seat, except those of the whole class."""
    whole = {
        key: others.pop(key)
        for key in ("network", "slice", "cpu_runs", "domain", "address", "tls")
        if key in others
    }
    limits = {"cpus": 1, "memory": "1GiB", "disk": "1GiB"} | others
    seat = {"gpus": gpus} | {key: each for key, each in limits.items() if each is not None}
    file = {"version": 1, "name": "w", "seats": seats, "seat": seat, **whole}
    return parse_class(json.dumps(file).encode(), "class.yaml")


def a_host(inventory: Inventory | None = None, **facts: Any) -> HostFacts:
    known = {"disk_free_bytes": 100 * GIB, "disk_unenforced": None} | facts
    return HostFacts(inventory or box(), **known)


def plan(config: ClassConfig, host: HostFacts | None = None, needs: object = 0) -> ClassPlan:
    return plan_class(config, host or a_host(), a_cluster(needs))


def a_cluster(gpus: object = 0) -> Cluster:
    file = {"version": 1, "name": "m", "nodes": {"a": {"gpus": gpus}}}
    return parse_cluster(json.dumps(file | {"jobs": {"worker": {"on": ["a"]}}}).encode(), "c")
