"""`tools/gpu_bundle.py`: wheels in pieces, joined on a host without a network."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tools import gpu_bundle

CUDA = """\
# a comment
numpy==2.4.6 ; python_full_version < '3.12' \\
    --hash=sha256:aa
numpy==2.5.5 ; python_full_version >= '3.12' \\
    --hash=sha256:bb \\
    --hash=sha256:cc
nvidia-curand-cu12==10.3 ; sys_platform == 'linux' \\
    --hash=sha256:dd
"""
HOST = """\
numpy==9.9.9 \\
    --hash=sha256:ee
pywin32==311 ; sys_platform == 'win32' \\
    --hash=sha256:ff
rich==14.0 \\
    --hash=sha256:00
"""
DEV = """\
pytest==9.0 \\
    --hash=sha256:11
ruff==1.0 \\
    --hash=sha256:22
"""


def locks(folder: Path) -> Path:
    for name, text in {"image-cuda.txt": CUDA, "host.txt": HOST, "dev.txt": DEV}.items():
        (folder / name).write_text(text)
    return folder


def test_requirements_are_those_of_the_other_python(tmp_path: Path) -> None:
    found = list(gpu_bundle.requirements("3.12", everything=False, locks=locks(tmp_path)))
    assert found == [
        "numpy==2.5.5 --hash=sha256:bb --hash=sha256:cc\n",
        "rich==14.0 --hash=sha256:00\n",
        "pytest==9.0 --hash=sha256:11\n",
    ]
    older = list(gpu_bundle.requirements("3.11", everything=True, locks=tmp_path))
    assert older[0] == "numpy==2.4.6 --hash=sha256:aa\n"
    assert "nvidia-curand-cu12==10.3 --hash=sha256:dd\n" in older


def test_a_missing_lock_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(SystemExit, match=r"image-cuda.txt is missing; run `make lock`"):
        list(gpu_bundle.requirements("3.12", everything=False, locks=tmp_path))


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
        (bundle / name).rename(way / name)
        assert gpu_bundle.receive(way, there) == names[position + 1 :]
        (way / name).unlink()
    joined = gpu_bundle.join(there, tmp_path / "wheels")
    assert [path.read_bytes() for path in joined] == [b"0123456789", b"", b"xyz" * 8 + b"!"]


def test_a_damaged_piece_is_not_received(bundle: Path, tmp_path: Path) -> None:
    (bundle / "piece-001").write_bytes(b"damaged!")
    assert gpu_bundle.receive(bundle, tmp_path / "there") == ["piece-001"]


def test_damage_and_gaps_are_one_line(bundle: Path, tmp_path: Path) -> None:
    kept = (bundle / "piece-003").read_bytes()
    (bundle / "piece-003").write_bytes(bytes(8))
    with pytest.raises(SystemExit, match=r"error: c.whl is damaged; copy the pieces again"):
        gpu_bundle.join(bundle, tmp_path / "wheels")
    (bundle / "piece-003").write_bytes(kept[:4])
    with pytest.raises(SystemExit, match=r"error: c.whl: a piece is too short"):
        gpu_bundle.join(bundle, tmp_path / "wheels")
    (bundle / "piece-003").unlink()
    with pytest.raises(SystemExit, match=r"piece-003 is missing; `receive` lists all"):
        gpu_bundle.join(bundle, tmp_path / "wheels")
    (bundle / gpu_bundle.LIST).unlink()
    with pytest.raises(SystemExit, match=r"bundle.json is missing; copy it with the first piece"):
        gpu_bundle.receive(bundle, bundle)


def test_another_python_is_refused(bundle: Path, tmp_path: Path) -> None:
    contents = json.loads((bundle / gpu_bundle.LIST).read_text()) | {"python": "2.7"}
    (bundle / gpu_bundle.LIST).write_text(json.dumps(contents))
    with pytest.raises(SystemExit, match=r"for Python 2.7; run this with python2.7"):
        gpu_bundle.install(bundle, tmp_path / "venv")
