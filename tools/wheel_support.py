r"""Read from wheels for which GPUs they have code, and write `lab/gpu/tensorflow_builds.json`.

    pip download --no-deps --python-version 3.12 --platform manylinux_2_27_x86_64 \
        --only-binary :all: 'tensorflow==2.21.*' nvidia-cudnn-cu12 nvidia-cublas-cu12 \
        nvidia-nccl-cu12
    python tools/wheel_support.py tensorflow-2.21.0-….whl --library cuDNN=nvidia_cudnn_cu12-….whl \
        --library cuBLAS=nvidia_cublas_cu12-….whl --library NCCL=nvidia_nccl_cu12-….whl

TensorFlow's build information lists compute capabilities, but not which code each part has. So this
script reads the fat binaries. A fat binary is a part of a shared library, and has the code of one
CUDA module for several GPUs. An entry is machine code (`sm_80`: GPUs of 8.0 to 8.9) or PTX
(`compute_90`: the driver compiles it for a GPU of 9.0 or later).
"""

from __future__ import annotations

import argparse
import ast
import json
import mmap
import re
import struct
import sys
import tempfile
import zipfile
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

OUTPUT = Path(__file__).parents[1] / "lab" / "gpu" / "tensorflow_builds.json"
MAGIC = b"\x50\xed\x55\xba"
CONTAINER = struct.Struct("<4sHHQ")
"""Magic number, version, size of this header, size of the entries."""

ENTRY = struct.Struct("<HHIQIIHHI")
"""Kind, version, size of this header, size of the code, its compressed size, options, minor and
major version of the code, capability."""

PTX, MACHINE_CODE = 1, 2
KERNELS = ".nv_fatbin"
"""The section of kernels that a CUDA compiler has compiled. TensorFlow generates others by MLIR,
and they are in another section."""

NOT_LINKED = "__nv_relfatbin"
"""Code before it is linked; the linked code is in the other section."""


Entries = list[tuple[int, int, tuple[int, int]]]
"""The kind, the capability and the version of each entry of a container."""


@dataclass
class Code:
    """The code of several modules.

    Attributes:
        modules: Their number.
        machine_code: The capabilities for which every module has machine code.
        ptx: The capabilities for which every module with PTX has PTX.
        ptx_version: The newest version of this PTX.
    """

    modules: int = 0
    machine_code: set[int] = field(default_factory=set)
    ptx: set[int] = field(default_factory=set)
    ptx_version: tuple[int, int] = (0, 0)

    def add(self, entries: Entries) -> None:
        """Add a module."""
        machine_code = {number for kind, number, _ in entries if kind == MACHINE_CODE}
        self.machine_code = machine_code & self.machine_code if self.modules else machine_code
        self.modules += 1
        versions = {number: version for kind, number, version in entries if kind == PTX}
        if versions:  # a module that only links others has none
            self.ptx = self.ptx & versions.keys() if self.ptx else set(versions)
            self.ptx_version = max(self.ptx_version, *versions.values())

    def to_json(self) -> dict[str, Any]:
        """Return the object of the data file."""
        return {
            "modules": self.modules,
            "machine_code": [capability(each) for each in sorted(self.machine_code)],
            "ptx": [capability(each) for each in sorted(self.ptx)],
            "ptx_version": ".".join(map(str, self.ptx_version)),
        }


def capability(number: int) -> str:
    """Return a capability as NVIDIA writes it: `12.0` for 120."""
    return f"{number // 10}.{number % 10}"


def modules(content: mmap.mmap) -> Iterator[tuple[int, Entries]]:
    """Yield the position and the entries of each container in a shared library."""
    at = content.find(MAGIC)
    while at >= 0:
        _, version, header, size = CONTAINER.unpack_from(content, at)
        end = at + header + size
        if version == 1 and header == CONTAINER.size and end <= len(content):
            yield at, list(entries(content, at + header, end))
        at = content.find(MAGIC, at + len(MAGIC))


def entries(content: mmap.mmap, at: int, end: int) -> Iterator[tuple[int, int, tuple[int, int]]]:
    """Yield the kind, the capability and the version of each entry of a container."""
    while at + ENTRY.size <= end:
        kind, _, header, size, _, _, minor, major, number = ENTRY.unpack_from(content, at)
        if not header:
            raise ValueError(f"the entry at byte {at} has no size")
        yield kind, number, (major, minor)
        at += header + size


def sections(content: mmap.mmap) -> list[tuple[str, int, int]]:
    """Return the name, the begin and the end of each section of a 64-bit ELF file."""
    (table,) = struct.unpack_from("<Q", content, 0x28)
    size, count, names = struct.unpack_from("<HHH", content, 0x3A)
    headers = [struct.unpack_from("<IIQQQQ", content, table + i * size) for i in range(count)]
    text = headers[names][4]
    nobits = 8
    return [
        (
            content[text + name : content.find(b"\0", text + name)].decode(),
            begin,
            begin + length,
        )
        for name, kind, _, _, begin, length in headers
        if kind != nobits
    ]


def shared_libraries(wheel: Path) -> Iterator[tuple[str, mmap.mmap]]:
    """Yield the name and the content of each shared library in a wheel."""
    with zipfile.ZipFile(wheel) as archive, tempfile.TemporaryDirectory() as folder:
        for name in archive.namelist():
            if re.search(r"\.so(\.\d+)*$", name):
                file = Path(archive.extract(name, folder))
                with (
                    file.open("rb") as opened,
                    mmap.mmap(opened.fileno(), 0, access=mmap.ACCESS_READ) as content,
                ):
                    yield file.name, content
                file.unlink()


def read_tensorflow(wheel: Path) -> dict[str, Any]:
    """Return the code of TensorFlow's own kernels, and of those that MLIR generated."""
    found = {"kernels": Code(), "generated_kernels": Code()}
    for _, content in shared_libraries(wheel):
        where = sections(content)
        for at, module in modules(content):
            section = next((name for name, low, high in where if low <= at < high), "")
            if section != NOT_LINKED:
                found["kernels" if section == KERNELS else "generated_kernels"].add(module)
    return {kind: code.to_json() for kind, code in found.items()}


def read_library(wheel: Path) -> dict[str, Any]:
    """Return the range of GPUs for which a library of NVIDIA has code.

    Many modules exist for some GPUs only, and the library chooses. So what counts is the least and
    the greatest capability in each shared library.
    """
    least, greatest, ptx = [], [], []
    for _, content in shared_libraries(wheel):
        found = [each for _, module in modules(content) for each in module]
        machine_code = [number for kind, number, _ in found if kind == MACHINE_CODE]
        if machine_code:
            least.append(min(machine_code))
            greatest.append(max(machine_code))
            ptx.append(max([number for kind, number, _ in found if kind == PTX], default=0))
    return {
        "version": wheel.name.split("-")[1],
        "least": capability(max(least)),
        "greatest": capability(min(greatest)),
        "ptx": capability(min(ptx)),
    }


def build_info(wheel: Path) -> dict[str, Any]:
    """Return what `tf.sysconfig.get_build_info()` reports."""
    with zipfile.ZipFile(wheel) as archive:
        text = archive.read("tensorflow/python/platform/build_info.py").decode()
    # The module assigns `collections.OrderedDict([(name, value), …])` to one variable.
    calls = [each for each in ast.walk(ast.parse(text)) if isinstance(each, ast.Call)]
    return dict(ast.literal_eval(calls[0].args[0]))


def main(argv: list[str]) -> None:
    """Add a version of TensorFlow to the data file."""
    parser = argparse.ArgumentParser()
    parser.add_argument("wheel", type=Path)
    parser.add_argument("--library", action="append", default=[], metavar="NAME=WHEEL")
    arguments = parser.parse_args(argv)
    version = arguments.wheel.name.split("-")[1]
    info = build_info(arguments.wheel)
    libraries = {}
    for each in arguments.library:
        name, _, wheel = each.partition("=")
        libraries[name] = read_library(Path(wheel))
    known = json.loads(OUTPUT.read_text("utf-8")) if OUTPUT.exists() else {}
    known[version.rpartition(".")[0]] = {
        "version": version,
        "cuda": info["cuda_version"],
        "cudnn": info["cudnn_version"],
        "build_info": info["cuda_compute_capabilities"],
        **read_tensorflow(arguments.wheel),
        "libraries": libraries,
    }
    OUTPUT.write_text(json.dumps(known, indent=2) + "\n", "utf-8")


if __name__ == "__main__":
    main(sys.argv[1:])
