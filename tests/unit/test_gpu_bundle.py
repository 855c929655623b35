"""`tools/gpu_bundle.py`: the locked wheels for the Python of another host."""

from __future__ import annotations

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
