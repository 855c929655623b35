"""The doctor compares CDI specifications with the GPUs and slices of this host."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from lab.doctor import cdi
from lab.doctor.cdi import CdiSpec, judge_cdi, may_use_cdi, read_specs, uses_cdi
from lab.doctor.engine import EngineInfo
from lab.doctor.model import Outcome, Status
from lab.gpu import Gpu, Inventory

GPU_0, GPU_1 = (
    "GPU-5f2a0000-0000-0000-0000-000000000000",
    "GPU-5f2a0000-0000-0000-0000-000000000001",
)
SLICE_0, SLICE_1 = (
    "MIG-b46a0000-0000-0000-0000-000000000000",
    "MIG-b46a0000-0000-0000-0000-000000000001",
)
TWO = Inventory("uuid", (Gpu(0, GPU_0, minor=0), Gpu(1, GPU_1, minor=1)), 8, 2**36)
SLICED = Inventory(
    "uuid",
    (
        Gpu(0, GPU_0, minor=0),
        Gpu(1, SLICE_0, slice_of=GPU_1, minor=1),
        Gpu(1, SLICE_1, slice_of=GPU_1, minor=1),
    ),
    8,
    2**36,
)
INFO = {"Name": os.uname().nodename, "ServerVersion": "29.2.0", "CDISpecDirs": ["/etc/cdi"]}
ETC = Path("/etc/cdi/nvidia.yaml")

# As `nvidia-ctk cdi generate` writes it, with fewer mounts and hooks.
WRITTEN = f"""\
---
cdiVersion: 0.5.0
kind: nvidia.com/gpu
devices:
- name: "0"
  containerEdits:
    deviceNodes:
    - path: /dev/nvidia0
    - path: /dev/dri/card1
    hooks:
    - hookName: createContainer
      path: /usr/bin/nvidia-cdi-hook
      args:
      - nvidia-cdi-hook
      - create-symlinks
      - --link
      - ../card1::/dev/dri/by-path/pci-0000:1b:00.0-card
- name: "1:0"
  containerEdits:
    deviceNodes:
    - path: /dev/nvidia1
    - path: /dev/nvidia-caps/nvidia-cap66
- name: {GPU_0}
  containerEdits:
    deviceNodes:
    - path: /dev/nvidia0
- name: {SLICE_0}
  containerEdits:
    deviceNodes:
    - path: /dev/nvidia1
- name: all
  containerEdits:
    deviceNodes:
    - path: /dev/nvidia0
    - path: /dev/nvidia1
containerEdits:
  env:
  - NVIDIA_VISIBLE_DEVICES=void
  deviceNodes:
  - path: /dev/nvidia-uvm
  - path: /dev/nvidiactl
  mounts:
  - hostPath: /usr/lib/x86_64-linux-gnu/libcuda.so.580.95.05
    containerPath: /usr/lib/x86_64-linux-gnu/libcuda.so.580.95.05
    options: [ro, nosuid, nodev, rbind, rprivate]
"""


def spec(*names: str, file: Path = ETC, missing: Sequence[str] = ()) -> CdiSpec:
    """Each UUID of a whole GPU has the node of its last digit."""
    nodes = {name: (f"/dev/nvidia{name[-1]}",) if name.startswith("GPU-") else () for name in names}
    return CdiSpec(file, nodes, tuple(missing))


def judge(
    inventory: Inventory,
    *specs: CdiSpec,
    info: Mapping[str, Any] = INFO,
    service: bool = False,
) -> Outcome:
    return judge_cdi(inventory, EngineInfo(info), specs, service)


def test_a_specification_of_this_host() -> None:
    names = ("0", "1", "all", GPU_0, GPU_1)
    found = judge(TWO, spec(*names))
    assert (found.status, found.what) == (Status.OK, f"{ETC} has 2 GPUs of this host")
    # A later directory may have the other half.
    assert judge(TWO, spec(GPU_0), spec(GPU_1)).status is Status.OK
    assert judge(SLICED, spec(GPU_0, SLICE_0, SLICE_1)).status is Status.OK
    # A GPU in MIG mode is no fault, though no task is pinned to it.
    assert judge(SLICED, spec(GPU_0, GPU_1, SLICE_0, SLICE_1)).status is Status.OK


@pytest.mark.parametrize(
    ("inventory", "names", "fault"),
    [
        (TWO, [GPU_0], f"lacks {GPU_1}"),
        (TWO, [GPU_0, GPU_1, SLICE_0], f"has {SLICE_0}, which this host does not have"),
        (SLICED, [GPU_0, GPU_1], f"lacks {SLICE_0}, {SLICE_1}"),
        (
            SLICED,
            [GPU_0, SLICE_0, "MIG-old"],
            f"lacks {SLICE_1}; has MIG-old, which this host does not have",
        ),
        (TWO, ["0", "1", "all"], "names no GPU by its UUID, by which lab pins GPUs"),
        (TWO, [], f"lacks {GPU_0}, {GPU_1}"),
    ],
)
def test_a_stale_specification(inventory: Inventory, names: list[str], fault: str) -> None:
    found = judge(inventory, spec(*names))
    assert (found.status, found.blocks) == (Status.WARNING, "")
    assert found.what == f"{ETC} {fault}: containers may not start, or get another GPU"
    assert found.fix == f"write it again: `sudo nvidia-ctk cdi generate --output={ETC}`"


def test_many_devices_are_counted() -> None:
    found = judge(TWO, spec(GPU_0, GPU_1, *(f"MIG-{number}" for number in range(7))))
    assert "has MIG-0, MIG-1 and 5 more, which" in found.what


def test_a_gpu_has_another_node_since_the_file_was_written() -> None:
    nodes = {GPU_0: ("/dev/nvidia1",), GPU_1: ("/dev/nvidia0",)}
    found = judge(TWO, CdiSpec(ETC, nodes))
    assert f"{GPU_0} with /dev/nvidia1 instead of /dev/nvidia0" in found.what
    # The later directory takes precedence.
    assert judge(TWO, CdiSpec(ETC, nodes), spec(GPU_0, GPU_1)).status is Status.OK
    # Without the driver's answer there is nothing to compare.
    unknown = replace(TWO, gpus=tuple(replace(gpu, minor=None) for gpu in TWO.gpus))
    assert judge(unknown, CdiSpec(ETC, nodes)).status is Status.OK
    found = judge(TWO, spec(GPU_0, GPU_1, missing=["/dev/nvidia1", "/dev/nvidia7"]))
    assert "has device nodes that do not exist: /dev/nvidia1: containers" in found.what


def test_the_command_that_writes_the_files() -> None:
    stale = spec(GPU_0, file=cdi.REFRESHED)
    service = "sudo systemctl restart nvidia-cdi-refresh"
    assert judge(TWO, stale, service=True).fix == f"write it again: `{service}`"
    assert f"--output={cdi.REFRESHED}`" in judge(TWO, stale).fix
    both = judge(TWO, spec(GPU_0), stale, service=True).fix
    assert both == (f"write it again: `sudo nvidia-ctk cdi generate --output={ETC} && {service}`")
    odd = judge(TWO, spec(GPU_0, file=Path("/etc/cdi/a b;\x1b.yaml"))).fix
    assert odd.endswith("--output='/etc/cdi/a b;\\x1b.yaml'`")


DISCOVERED = {
    "DiscoveredDevices": [
        {"Source": "cdi", "ID": f"nvidia.com/gpu={GPU_0}"},
        {"Source": "cdi", "ID": "nvidia.com/gpu=all"},
        {"Source": "cdi", "ID": "amd.com/gpu=0"},
        None,
    ]
}


def test_the_list_of_the_engine_counts() -> None:
    info = {**INFO, **DISCOVERED}
    assert f"lacks {GPU_1}" in judge(TWO, spec(GPU_0, GPU_1), info=info).what


def test_where_no_specification_matters() -> None:
    assert judge(TWO).status is Status.SKIPPED
    assert judge(TWO, spec(), info={**INFO, "Name": "another"}).status is Status.SKIPPED
    found = judge(TWO, spec(GPU_0), info={**INFO, "ServerVersion": "29.1.5"})
    assert (found.status, found.fix) == (Status.OK, "")
    assert found.what == f"{ETC} lacks {GPU_1}; this engine does not use it"


@pytest.mark.parametrize(
    ("changed", "uses"),
    [
        ({}, True),
        ({"ServerVersion": "29.2.0-rc.1"}, True),
        ({"ServerVersion": "30.0.0"}, True),
        ({"ServerVersion": "29.1.5"}, False),
        ({"ServerVersion": "28.5.2"}, False),
        ({"ServerVersion": ""}, False),
        ({"CDISpecDirs": []}, False),
        ({"CDISpecDirs": None}, False),
    ],
)
def test_engines_that_use_cdi(changed: Mapping[str, Any], uses: bool) -> None:
    engine_info = EngineInfo({**INFO, **DISCOVERED, **changed})
    assert uses_cdi(engine_info) is uses
    assert may_use_cdi(engine_info) is uses


def test_an_engine_without_a_specification_uses_the_hook() -> None:
    assert may_use_cdi(EngineInfo(INFO))
    assert not uses_cdi(EngineInfo(INFO))


def test_a_file_that_the_engine_refuses() -> None:
    """A real warning of Engine 28.5.2."""
    warned = (
        f"CDI: Error associated with spec file {ETC}: failed to load CDI Spec invalid CDI Spec:"
        ' invalid version "9.0.0"'
    )
    info = {**INFO, "Warnings": ["No swap limit support", warned]}
    found = judge(TWO, spec(GPU_0, GPU_1), info=info)
    assert found.status is Status.WARNING
    assert (
        "is refused by the engine: failed to load CDI Spec invalid CDI Spec: invalid" in found.what
    )
    assert judge(TWO, spec(GPU_0, GPU_1), info={**INFO, "Warnings": None}).status is Status.OK


def read(directory: Path) -> tuple[CdiSpec, ...]:
    return read_specs(EngineInfo({"CDISpecDirs": [str(directory), str(directory / "none")]}))


def test_files_of_the_toolkit(tmp_path: Path) -> None:
    (tmp_path / "nvidia.yaml").write_text(WRITTEN)
    nodes = {
        "0": ("/dev/nvidia0",),
        "1:0": ("/dev/nvidia1",),
        GPU_0: ("/dev/nvidia0",),
        SLICE_0: ("/dev/nvidia1",),
        "all": ("/dev/nvidia0", "/dev/nvidia1"),
    }
    [found] = read(tmp_path)
    assert (found.file, dict(found.nodes), found.fault) == (tmp_path / "nvidia.yaml", nodes, "")
    missing = [node for node in ("/dev/nvidia0", "/dev/nvidia1") if not Path(node).exists()]
    assert found.missing_nodes == tuple(missing)
    moved = {"path": "/dev/nvidia0", "hostPath": "/dev/nvidia7"}
    device = {"name": GPU_0, "containerEdits": {"deviceNodes": [moved]}}
    (tmp_path / "nvidia.yaml").unlink()
    (tmp_path / "nvidia.json").write_text(json.dumps({"kind": cdi.KIND, "devices": [device]}))
    [found] = read(tmp_path)
    assert found.nodes == {GPU_0: ("/dev/nvidia7",)}


def test_files_of_others(tmp_path: Path) -> None:
    (tmp_path / "amd.json").write_text('{"kind": "amd.com/gpu"}')
    (tmp_path / "management.yaml").write_text("kind: management.nvidia.com/gpu\n")
    (tmp_path / "nvidia.yaml.old").write_text(WRITTEN)
    (tmp_path / "folder.yaml").mkdir()
    assert read(tmp_path) == ()


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("a.yaml", "kind: nvidia.com/gpu\ndevices: [\n"),
        ("a.yaml", "kind: nvidia.com/gpu\na: &a [x]\nb: *a\nc: !!python/object:os.system x\n["),
        ("a.yaml", "kind: nvidia.com/gpu\n" + "- " * 100_000),
        ("a.yaml", "- kind: nvidia.com/gpu\n"),
        ("a.yaml", "kind: nvidia.com/gpu\n#" + "x" * 2**20),
        ("a.json", '{"kind": "nvidia.com/gpu"'),
        ("a.json", '{"kind": "nvidia.com/gpu", "a": ' + "[" * 100_000),
        ("a.json", '"nvidia.com/gpu"'),
    ],
)
def test_damaged_and_malicious_files(tmp_path: Path, name: str, text: str) -> None:
    (tmp_path / name).write_text(text)
    [found] = read(tmp_path)
    assert (found.nodes, found.fault) == ({}, "is damaged, or larger than 1 MiB")
    assert "1 MiB: containers" in judge(TWO, found).what


@pytest.mark.parametrize(
    "devices",
    [
        7,
        None,
        [1, "x", None],
        [{"name": ["x"], "containerEdits": 3}],
        [{"containerEdits": {"deviceNodes": [4, {"path": 5}, {"path": "/dev/sda"}]}}],
    ],
)
def test_values_of_another_type(tmp_path: Path, devices: object) -> None:
    (tmp_path / "a.json").write_text(json.dumps({"kind": cdi.KIND, "devices": devices}))
    [found] = read(tmp_path)
    assert not any(found.nodes.values())
    assert found.fault == ""


def test_a_file_that_cannot_be_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> None:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(Path, "open", refuse)
    (tmp_path / "a.yaml").touch()
    [found] = read(tmp_path)
    assert "cannot be read: Permission denied" in judge(TWO, found).what


def test_the_refresh_service(tmp_path: Path) -> None:
    unit = tmp_path / "nvidia-cdi-refresh.service"
    assert not cdi.has_refresh_service([unit])
    unit.touch()
    assert cdi.has_refresh_service([tmp_path / "none", unit])
