"""Check of the CDI specifications: whether they describe the GPUs that this host has now.

A CDI specification is a file with the device nodes that a container needs for each GPU. NVIDIA's
toolkit writes it, but not again after MIG slices have changed:
https://github.com/NVIDIA/nvidia-container-toolkit/issues/1828
"""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from lab.doctor.engine import EngineInfo
from lab.doctor.model import Outcome, ok, skipped, warning
from lab.formatting import counted
from lab.gpu import Inventory
from lab.text import clipped, visible

KIND: Final = "nvidia.com/gpu"
DIRECTORIES: Final = ("/etc/cdi", "/var/run/cdi")
"""The engine's default directories; the later one takes precedence."""

REFRESHED: Final = Path("/var/run/cdi/nvidia.yaml")
"""The file that the service `nvidia-cdi-refresh` of toolkit 1.18 and later writes."""

REFRESH_UNITS: Final = tuple(
    Path(directory, "nvidia-cdi-refresh.service")
    for directory in ("/etc/systemd/system", "/usr/lib/systemd/system", "/lib/systemd/system")
)

_OLDEST: Final = (29, 2)
"""The first engine that uses CDI for a request with `driver: nvidia`, if a specification has the
GPU: https://github.com/moby/moby/pull/50228"""

_SUFFIXES: Final = frozenset({".yaml", ".yml", ".json"})
_MAX_BYTES: Final = 2**20
_MAX_SHOWN: Final = 2
_MAX_NAME: Final = 120
_UUID: Final = re.compile(r"(?:GPU|MIG)-.+")
_NODE: Final = re.compile(r"/dev/nvidia[0-9]+")


@dataclass(frozen=True, slots=True)
class CdiSpec:
    """One CDI specification of NVIDIA GPUs.

    Attributes:
        file: Its file.
        nodes: Name of a device to its GPU nodes, such as `/dev/nvidia0`. A device has a name for
            each of index and UUID: `0`, `1:0` (the first slice of GPU 1), `GPU-…`, `MIG-…`, `all`.
        missing_nodes: Those nodes that do not exist.
        fault: Why the file cannot be read, or "".
    """

    file: Path
    nodes: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    missing_nodes: tuple[str, ...] = ()
    fault: str = ""


def read_specs(engine_info: EngineInfo) -> tuple[CdiSpec, ...]:
    """Read the CDI specifications of NVIDIA GPUs in the engine's directories on this host."""
    directories = engine_info.info.get("CDISpecDirs") or DIRECTORIES
    files = (
        file
        for directory in directories
        for file in sorted(Path(str(directory)).glob("*"))
        if file.suffix in _SUFFIXES and file.is_file()
    )
    return tuple(spec for file in files if (spec := read_spec(file)) is not None)


def read_spec(file: Path) -> CdiSpec | None:
    """Read one specification; None if it describes other devices than NVIDIA's GPUs."""
    try:
        with file.open("rb") as opened:
            data = opened.read(_MAX_BYTES + 1)
    except OSError as error:
        return CdiSpec(file, fault=f"cannot be read: {error.strerror}")
    if KIND.encode() not in data:
        return None
    content = None if len(data) > _MAX_BYTES else _parse(data, file.suffix)
    if content is None:
        return CdiSpec(file, fault="is damaged, or larger than 1 MiB")
    if content.get("kind") != KIND:
        return None
    nodes = dict(_devices(content))
    every = sorted({node for each in nodes.values() for node in each})
    return CdiSpec(file, nodes, tuple(each for each in every if not Path(each).exists()))


def _parse(data: bytes, suffix: str) -> dict[str, Any] | None:
    """Parse a file without trust: no aliases, no tags, and limited nesting."""
    if suffix == ".json":
        try:
            content = json.loads(data)
        except (ValueError, RecursionError):
            return None
    else:
        from lab.config.yaml_reader import read_source  # noqa: PLC0415  (packages may be missing)

        source = read_source(data)
        content = source.value if source.readable else None
    return content if isinstance(content, dict) else None


def _devices(content: Mapping[str, Any]) -> Iterator[tuple[str, tuple[str, ...]]]:
    """Yield each device's name and GPU nodes; the values can be of any type."""
    for device in _list(content.get("devices")):
        edits = device.get("containerEdits")
        listed = _list(edits.get("deviceNodes")) if isinstance(edits, dict) else []
        paths = [str(node.get("hostPath") or node.get("path")) for node in listed]
        yield str(device.get("name")), tuple(each for each in paths if _NODE.fullmatch(each))


def _list(value: object) -> list[dict[str, Any]]:
    return [each for each in value if isinstance(each, dict)] if isinstance(value, list) else []


def discovered(engine_info: EngineInfo) -> frozenset[str]:
    """Return the names of NVIDIA's devices that the engine has found; Engine 28.2 and later."""
    ids = (str(each.get("ID", "")) for each in _list(engine_info.info.get("DiscoveredDevices")))
    return frozenset(each.removeprefix(f"{KIND}=") for each in ids if each.startswith(f"{KIND}="))


def may_use_cdi(engine_info: EngineInfo) -> bool:
    """Whether the engine adds GPUs to containers by CDI if it finds a specification of them."""
    if engine_info.is_podman:
        return True
    version = str(engine_info.info.get("ServerVersion", ""))
    recent = tuple(map(int, re.findall(r"\d+", version)[:2])) >= _OLDEST
    return recent and bool(engine_info.info.get("CDISpecDirs"))


def uses_cdi(engine_info: EngineInfo) -> bool:
    """Whether the engine adds GPUs to containers by CDI; otherwise it uses the toolkit's hook."""
    found = engine_info.is_podman or bool(discovered(engine_info))
    return may_use_cdi(engine_info) and found


def has_refresh_service(units: Sequence[Path] = REFRESH_UNITS) -> bool:
    """Whether the toolkit's service that writes the specification is installed."""
    return any(unit.exists() for unit in units)


def judge_cdi(
    inventory: Inventory,
    engine_info: EngineInfo,
    cdi_specs: Sequence[CdiSpec],
    has_refresh_service: bool,
) -> Outcome:
    """Check that the specifications have the GPUs and slices of this host, and no others.

    Only UUIDs are compared, because `lab` pins GPUs by UUID.

    Args:
        inventory: This host.
        engine_info: What the engine reports.
        cdi_specs: The specifications on this host.
        has_refresh_service: Whether the toolkit's service that writes them is installed.
    """
    if not engine_info.is_local:
        return skipped("the engine runs on another host")
    if not cdi_specs and engine_info.is_podman:
        fix = "`sudo nvidia-ctk cdi generate --output=/etc/cdi/nvidia.yaml`"
        return warning("no CDI specification, by which alone Podman gives GPUs", fix)
    if not cdi_specs:
        return skipped("no CDI specification; the engine uses the toolkit's hook")
    faults = list(_faults(inventory, engine_info, cdi_specs))
    files = ", ".join(visible(str(each.file)) for each in cdi_specs)
    if not faults:
        return ok(f"{files} has {counted(len(_uuids_of(inventory)), 'GPU')} of this host")
    what = f"{files} {'; '.join(faults)}"
    if not may_use_cdi(engine_info):
        return ok(f"{what}; this engine does not use it")
    return warning(
        f"{what}: containers may not start, or get another GPU",
        _refresh([each.file for each in cdi_specs], has_refresh_service=has_refresh_service),
    )


def _faults(
    inventory: Inventory, engine_info: EngineInfo, specs: Sequence[CdiSpec]
) -> Iterator[str]:
    unreadable = [each.fault or _refusal(engine_info, each) for each in specs]
    if any(unreadable):
        yield from filter(None, unreadable)
        return
    # The engine's list counts; engines before 28.2 have none.
    known = discovered(engine_info) or {name for each in specs for name in each.nodes}
    named = {name for name in known if _UUID.fullmatch(name)}
    host = _uuids_of(inventory)
    if known and not named:
        yield "names no GPU by its UUID, by which lab pins GPUs"
        return
    if missing := host - named:
        yield f"lacks {_shown(missing)}"
    if left := named - host - {gpu.slice_of for gpu in inventory.gpus}:
        yield f"has {_shown(left)}, which this host does not have"
    nodes = {name: each.nodes[name] for each in specs for name in each.nodes}
    wrong = {
        f"{gpu.device_id} with {', '.join(found)} instead of /dev/nvidia{gpu.minor}"
        for gpu in inventory.gpus
        if gpu.minor is not None
        and (found := nodes.get(gpu.device_id))
        and f"/dev/nvidia{gpu.minor}" not in found
    }
    if wrong:
        yield f"has {_shown(wrong)}"
    absent = {node for each in specs for node in each.missing_nodes}
    if gone := absent & {node for name in host for node in nodes.get(name, ())}:
        yield f"has device nodes that do not exist: {_shown(gone)}"


def _refusal(engine_info: EngineInfo, spec: CdiSpec) -> str:
    """Return why the engine refuses a file, or "".

    Its warning: `CDI: Error associated with spec file FILE: … invalid version "9.0.0"`.
    """
    for warned in map(str, engine_info.info.get("Warnings") or ()):
        _, found, reason = warned.partition(f" {spec.file}: ")
        if found:
            return f"is refused by the engine: {clipped(reason, _MAX_NAME)}"
    return ""


def _uuids_of(inventory: Inventory) -> set[str]:
    return {gpu.device_id for gpu in inventory.gpus if _UUID.fullmatch(gpu.device_id)}


def _shown(values: set[str]) -> str:
    first = ", ".join(clipped(each, _MAX_NAME) for each in sorted(values)[:_MAX_SHOWN])
    more = len(values) - _MAX_SHOWN
    return f"{first} and {more} more" if more > 0 else first


def _refresh(files: Sequence[Path], *, has_refresh_service: bool) -> str:
    """Return the commands that write the files again."""
    commands = [
        "sudo systemctl restart nvidia-cdi-refresh"
        if has_refresh_service and file == REFRESHED
        else f"sudo nvidia-ctk cdi generate --output={shlex.quote(visible(str(file)))}"
        for file in files
    ]
    return f"write it again: `{' && '.join(dict.fromkeys(commands))}`"
