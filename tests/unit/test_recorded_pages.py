"""The pages that tests on real hosts write are those of the files beside them."""

from __future__ import annotations

import tests.gpu.page as gpu_box
import tests.kubernetes.page as kubernetes
from tests.support.commands import ROOT

FOLDER = ROOT / "docs/evidence"


def test_the_pages_are_those_of_their_files() -> None:
    box = gpu_box.page(gpu_box.read(FOLDER))
    assert (FOLDER / "gpu-box.md").read_text() == box
    nodes = kubernetes.page(kubernetes.read(FOLDER))
    assert (FOLDER / "kubernetes.md").read_text() == nodes
