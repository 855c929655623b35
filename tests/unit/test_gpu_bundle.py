"""`tools/gpu_bundle.py`: wheels in pieces, joined on a host without a network."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tools import gpu_bundle

LOCKS = {
    "image-cuda.txt": "# a comment\n"
    "numpy==2.4.6 ; python_full_version < '3.12' \\\n    --hash=sha256:aa\n"
    "numpy==2.5.5 ; python_full_version >= '3.12' \\\n    --hash=sha256:bb \\\n"
    "    --hash=sha256:cc\n"
    "nvidia-curand-cu12==10.3 ; sys_platform == 'linux' \\\n    --hash=sha256:dd\n",
    "host.txt": "numpy==9.9.9 \\\n    --hash=sha256:ee\n"
    "pywin32==311 ; sys_platform == 'win32' \\\n    --hash=sha256:ff\n"
    "rich==14.0 \\\n    --hash=sha256:00\n",
    "dev.txt": "pytest==9.0 \\\n    --hash=sha256:11\nruff==1.0 \\\n    --hash=sha256:22\n",
}


def test_requirements_are_those_of_the_other_python(tmp_path: Path) -> None:
    with pytest.raises(SystemExit, match=r"image-cuda.txt is missing; run `make lock`"):
        list(gpu_bundle.requirements("3.12", everything=False, locks=tmp_path))
    for name, text in LOCKS.items():
        (tmp_path / name).write_text(text)
    assert list(gpu_bundle.requirements("3.12", everything=False, locks=tmp_path)) == [
        "numpy==2.5.5 --hash=sha256:bb --hash=sha256:cc\n",
        "rich==14.0 --hash=sha256:00\n",
        "pytest==9.0 --hash=sha256:11\n",
    ]
    older = list(gpu_bundle.requirements("3.11", everything=True, locks=tmp_path))
    assert older[0] == "numpy==2.4.6 --hash=sha256:aa\n"
    assert "nvidia-curand-cu12==10.3 --hash=sha256:dd\n" in older


@pytest.fixture
def bundle(tmp_path: Path) -> Path:
    """Three wheels of 10, 0 and 25 bytes in pieces of 8."""
    made, folder = tmp_path / "made", tmp_path / "bundle"
    made.mkdir()
    folder.mkdir()
    for name, content in {"a.whl": b"0123456789", "b.whl": b"", "c.whl": b"xyz" * 8 + b"!"}.items():
        (made / name).write_bytes(content)
    gpu_bundle.write(sorted(made.iterdir()), folder, 8, "3.12")
    return folder


def test_pieces_arrive_one_by_one_and_give_the_same_wheels(bundle: Path, tmp_path: Path) -> None:
    names = sorted(path.name for path in bundle.glob("piece-*"))
    assert names == [f"piece-00{number}" for number in range(5)]
    way, there = tmp_path / "way", tmp_path / "there"
    way.mkdir()
    (bundle / gpu_bundle.LIST).rename(way / gpu_bundle.LIST)
    for position, name in enumerate(names):
        (way / name).write_bytes(b"damaged!")
        assert gpu_bundle.receive(way, there) == names[position:]
        (bundle / name).rename(way / name)
        assert gpu_bundle.receive(way, there) == names[position + 1 :]
        (way / name).unlink()
    joined = gpu_bundle.join(there, tmp_path / "wheels")
    assert [path.read_bytes() for path in joined] == [b"0123456789", b"", b"xyz" * 8 + b"!"]


def test_damage_gaps_and_another_python_are_one_line(bundle: Path, tmp_path: Path) -> None:
    def join(error: str) -> None:
        with pytest.raises(SystemExit, match=error):
            gpu_bundle.join(bundle, tmp_path / "wheels")

    piece, contents = bundle / "piece-003", bundle / gpu_bundle.LIST
    kept = piece.read_bytes()
    piece.write_bytes(bytes(8))
    join(r"error: c.whl is damaged; copy the pieces again")
    piece.write_bytes(kept[:4])
    join(r"error: c.whl: a piece is too short")
    piece.unlink()
    join(r"piece-003 is missing; `receive` lists all")
    contents.write_text(json.dumps(json.loads(contents.read_text()) | {"python": "2.7"}))
    with pytest.raises(SystemExit, match=r"for Python 2.7; run this with python2.7"):
        gpu_bundle.install(bundle, tmp_path / "venv")
    contents.unlink()
    with pytest.raises(SystemExit, match=r"bundle.json is missing; copy it with the first piece"):
        gpu_bundle.receive(bundle, bundle)
