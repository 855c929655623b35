"""Changed configs: each is refused with the places of its errors, or renders to a safe file."""

from __future__ import annotations

import random
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import jsonschema
from ruamel.yaml import YAML

from lab.cluster.config.schema import json_schema
from tests.golden.cases import BAD, GOOD, core
from tests.hostile.calls import call, is_plain

ROOT: Final = Path(__file__).parents[2]
SOURCES: Final = [ROOT / "cluster.yaml", *sorted((ROOT / "clusters").glob("*.yaml")), *GOOD, *BAD]
FILE, OUTPUT = "cluster.yaml", "compose.yaml"
VALUES: Final = (
    *("~", "true", "-1", "0", "1", "2222", "65536", "1e999", ".nan", "0x10", "9" * 400, "''"),
    *("[]", "{}", "[[]]", "{a: {a: {a: 1}}}", "8GiB", "-1GiB", "5ms", "1e308", "GPU-0", "all"),
    *("'../../etc'", "/etc/passwd", "'$(id)'", "'${HOME}'", "'a b'", '"\\e[31m"', '"\\0"'),
    *("&a [*a]", "*nothing", "!!python/object/apply:os.system [id]", "!!binary aGk=", "<<: 1"),
    *("'<script>'", "x" * 5_000, "[" * 3_000, "é", "\U0001f600", "2026-01-01", "? x", "- - -"),
)
KEYS: Final = (
    *("version", "name", "nodes", "jobs", "links", "box", "start", "on", "gpus", "share", "port"),
    *("cpus", "memory", "rate", "delay", "ps", "worker", "chief", "evaluator", "__class__", "''"),
)
_NAME = re.compile(r"[a-z0-9][a-z0-9-]*")


def attack(seed: int, folder: Path) -> Iterator[str]:
    path = folder / FILE
    rng = random.Random(seed)  # noqa: S311
    data = rng.choice(SOURCES).read_bytes()
    for _ in range(rng.randint(1, 3)):
        data = _changed(data, rng)
    path.write_bytes(data)
    (folder / "scripts").mkdir(exist_ok=True)  # as in every project
    (folder / OUTPUT).unlink(missing_ok=True)
    checked = call("validate", FILE)
    yield from checked.faults()
    if checked.code:
        lines = checked.err.splitlines()
        if not all(line.startswith((FILE, "error: ")) for line in lines):
            yield checked.fault("a fault without its place")
        return
    try:
        jsonschema.validate(core(path.read_text("utf-8-sig")), json_schema())
    except jsonschema.ValidationError as error:
        yield checked.fault(f"against the schema: {error.message[:200]}")
    rendered = call("render", FILE, "--gpus", "none", "--output", OUTPUT)
    yield from rendered.faults()
    if rendered.code == 0:
        yield from map(rendered.fault, unsafe((folder / OUTPUT).read_text("utf-8")))


def _changed(data: bytes, rng: random.Random) -> bytes:
    how = rng.randrange(7)
    lines = data.splitlines(keepends=True) or [b"\n"]
    place = rng.randrange(len(lines))
    if how == 0:
        start = rng.randrange(len(data) + 1)
        return data[:start] + rng.randbytes(rng.randrange(4)) + data[start + rng.randrange(20) :]
    if how < 5:
        line = lines.pop(place)
        lines[place:place] = [[], [line, line], [b" " * rng.randrange(5), line], [line]][how - 1]
        if how == 4:
            rng.shuffle(lines)
        return b"".join(lines)
    # A value or a key is replaced, so that the rest stays a config.
    value = rng.choice(VALUES if how == 5 else KEYS).encode()
    found = list(re.finditer(rb"(?<=: )[^\n{}\[\],#]+" if how == 5 else rb"[A-Za-z_]+(?=:)", data))
    if not found:
        return data + value
    one = rng.choice(found)
    return data[: one.start()] + value + data[one.end() :]


_OWN_VARIABLES: Final = r"\$\$|\$\{LAB_ONCE:-\}|^\$\{LAB_RUN-[^${}]*\}$"


def unsafe(text: str) -> Iterator[str]:
    """Strings that a rendered file must not contain."""
    if not is_plain(text):
        yield "a control character"
    document: dict[str, Any] = YAML(typ="safe", pure=True).load(text)
    for name, service in document["services"].items():
        if not _NAME.fullmatch(name):
            yield f"a service named {name!r}"
        if service.get("cap_drop") != ["ALL"] or service.get("privileged"):
            yield f"{name} has capabilities"
        if service.get("ports"):
            yield f"{name} publishes a port"
        for volume in service.get("volumes", ()):
            is_known = volume["source"] in {"runs", "./scripts", "./data"}
            if not is_known or (volume["type"] == "bind" and not volume["read_only"]):
                yield f"{name} mounts {volume}"
        for key, value in service.get("environment", {}).items():
            if "$" in re.sub(_OWN_VARIABLES, "", str(value)):
                yield f"{name} has a variable that compose fills in: {key}"
    for name, network in (document.get("networks") or {}).items():
        if not (network or {}).get("internal"):
            yield f"the network {name} is not internal"
