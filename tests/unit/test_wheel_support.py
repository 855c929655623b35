"""The tool that reads from wheels for which GPUs they have code."""

from __future__ import annotations

import json
import struct
import zipfile
from collections.abc import Mapping, Sequence
from pathlib import Path

import pytest

from tools import wheel_support
from tools.wheel_support import CONTAINER, ENTRY, MACHINE_CODE, MAGIC, PTX

Module = Sequence[tuple[int, int, tuple[int, int]]]
BUILD_INFO = """
import collections
build_info = collections.OrderedDict([('cuda_compute_capabilities', ['sm_60', 'compute_90']),
                                      ('cuda_version', '12.5.1'), ('cudnn_version', '9')])
"""
SM60, SM80, SM90 = ((MACHINE_CODE, number, (1, 7)) for number in (60, 80, 90))
PTX90 = (PTX, 90, (8, 3))


def container(module: Module) -> bytes:
    code = b"code"
    entries = b"".join(
        ENTRY.pack(kind, 0x101, 64, len(code), 0, 0, minor, major, number).ljust(64, b"\0") + code
        for kind, number, (major, minor) in module
    )
    return CONTAINER.pack(MAGIC, 1, CONTAINER.size, len(entries)) + entries


def library(sections: Mapping[str, Sequence[Module]]) -> bytes:
    """A shared library that has only these sections, each with these modules."""
    names = b"\0" + b"".join(name.encode() + b"\0" for name in (*sections, ".shstrtab"))
    contents = [b"".join(map(container, modules)) for modules in sections.values()]
    headers, at, offset = [bytes(64)], 64, 1
    for name, content in zip((*sections, ".shstrtab"), (*contents, names), strict=True):
        headers.append(struct.pack("<IIQQQQ", offset, 1, 0, 0, at, len(content)).ljust(64, b"\0"))
        at, offset = at + len(content), offset + len(name) + 1
    elf = bytearray(64)
    struct.pack_into("<Q", elf, 0x28, at)
    struct.pack_into("<HHH", elf, 0x3A, 64, len(headers), len(headers) - 1)
    return bytes(elf) + b"".join((*contents, names, *headers))


def wheel(folder: Path, name: str, files: Mapping[str, bytes | str]) -> Path:
    with zipfile.ZipFile(folder / name, "w") as archive:
        for path, content in files.items():
            archive.writestr(path, content)
    return folder / name


def test_the_data_is_read_from_wheels(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(wheel_support, "OUTPUT", tmp_path / "builds.json")
    tensorflow = wheel(
        tmp_path,
        "tensorflow-2.21.0-cp312-cp312-linux.whl",
        {
            "tensorflow/python/platform/build_info.py": BUILD_INFO,
            "tensorflow/libtensorflow_cc.so.2": library(
                {
                    ".nv_fatbin": [[SM60, SM80, SM90, PTX90], [SM60, SM80]],
                    ".rodata": [[SM60, (PTX, 90, (8, 5))], [SM60, PTX90]],
                    "__nv_relfatbin": [[PTX90]],
                }
            ),
            "tensorflow/readme.txt": MAGIC,
        },
    )
    cudnn = wheel(
        tmp_path,
        "nvidia_cudnn_cu12-9.28.0.42-py3-none-linux.whl",
        {
            "a.so": library({".nv_fatbin": [[SM80, SM90, PTX90], [SM90]]}),
            "b.so.9": library({".nv_fatbin": [[SM60, SM80, SM90, PTX90]]}),
            "c.so": library({".rodata": []}),
        },
    )
    wheel_support.main([str(tensorflow), "--library", f"cuDNN={cudnn}"])
    assert json.loads((tmp_path / "builds.json").read_text()) == {
        "2.21": {
            "version": "2.21.0",
            "cuda": "12.5.1",
            "cudnn": "9",
            "build_info": ["sm_60", "compute_90"],
            "kernels": {
                "modules": 2,
                "machine_code": ["6.0", "8.0"],
                "ptx": ["9.0"],
                "ptx_version": "8.3",
            },
            "generated_kernels": {
                "modules": 2,
                "machine_code": ["6.0"],
                "ptx": ["9.0"],
                "ptx_version": "8.5",
            },
            "libraries": {
                "cuDNN": {"version": "9.28.0.42", "least": "8.0", "greatest": "9.0", "ptx": "9.0"}
            },
        }
    }


def test_an_entry_without_a_size_is_an_error(tmp_path: Path) -> None:
    module = bytearray(container([SM60]))
    struct.pack_into("<I", module, CONTAINER.size + 4, 0)
    damaged = library({".nv_fatbin": [[SM60]]}).replace(container([SM60]), bytes(module))
    with pytest.raises(ValueError, match="has no size"):
        wheel_support.read_library(wheel(tmp_path, "a-1-py3.whl", {"a.so": damaged}))
