"""Which GPU works with which TensorFlow: the table, and the judgement."""

from __future__ import annotations

import re

import pytest

from lab.cluster.gpu import Gpu
from lab.cluster.gpu.support import LEAST, Support, build_of, by_gpus, judge_gpu
from lab.protocol.runtimes import RUNTIMES
from tests.support.engine import ROOT

TENSORFLOW, HERITAGE = "tensorflow", "tensorflow-2.15"


def status(capability: str, build: str) -> Support:
    return judge_gpu(Gpu(0, "", compute_capability=capability), build).status


@pytest.mark.parametrize(
    ("capability", "build", "status", "words"),
    [
        # Another TensorFlow may help a GPU that is too old.
        ("3.7", TENSORFLOW, Support.TOO_OLD, "6.0 or later → use `--gpus none`$"),
        ("5.2", TENSORFLOW, Support.TOO_OLD, "LAB_TENSORFLOW=.*and-cuda.==2.15.1'"),
        ("3.7", HERITAGE, Support.TOO_OLD, "→ use `--gpus none`$"),
        ("6.0", TENSORFLOW, Support.WORKS, ""),
        # Versions are compared as numbers.
        ("12.0", TENSORFLOW, Support.WORKS, ""),
        ("", TENSORFLOW, Support.UNKNOWN, "compute capability is unknown"),
    ],
)
def test_the_judgement(capability: str, build: str, status: Support, words: str) -> None:
    found = judge_gpu(Gpu(0, "", compute_capability=capability), build)
    assert found.status is status
    assert re.search(words, f"{found.what} → {found.fix}")
    assert bool(found.fix) == (status is not Support.WORKS)


def test_the_build_follows_the_variables_that_name_another_one() -> None:
    assert build_of("tensorflow", {}) == TENSORFLOW
    assert build_of("tensorflow-2.15", {"LAB_TENSORFLOW": "tensorflow==1.0"}) is None
    assert build_of("tensorflow", {"LAB_TENSORFLOW": "tensorflow[and-cuda]==2.15.1"}) == HERITAGE
    assert build_of("tensorflow", {"LAB_TENSORFLOW": "tensorflow[and-cuda]==2.19.*"}) is None
    assert build_of("tensorflow", {"LAB_IMAGE": "mine"}) is None
    assert build_of("torch", {"LAB_TENSORFLOW": "tensorflow[and-cuda]==2.15.1"}) is None
    assert build_of("tensorflow-2.15", {"LAB_IMAGE": "mine"}) is None


def test_equal_gpus_and_slices_are_judged_together() -> None:
    found = ((0, "GPU-0", "5.0"), (1, "MIG-1", "8.0"), (1, "MIG-2", "8.0"), (2, "GPU-2", "5.0"))
    gpus = [Gpu(index, name, compute_capability=each) for index, name, each in found]
    judged = {each.status: each.where for each in by_gpus(gpus, TENSORFLOW)}
    assert judged == {Support.TOO_OLD: "GPU 0, 2", Support.WORKS: "GPU 1"}
    assert [each.status for each in by_gpus(gpus, None)] == [Support.UNKNOWN]


def test_the_documents_have_the_judgements_and_the_table() -> None:
    text = (ROOT / "docs/reference/gpus.md").read_text("utf-8")
    rows = [
        [cell.strip() for cell in line.strip("|").split("|")]
        for line in text.splitlines()
        if line.startswith("|") and "---" not in line
    ]
    gpus = [row for row in rows if len(row) == 4 and row[0] != "GPUs"]
    assert len(gpus) == 11
    for _, capability, current, tf1 in gpus:
        assert (current, tf1) == (status(capability, TENSORFLOW), status(capability, HERITAGE)), (
            capability
        )
    facts = [row[1:] for row in rows if len(row) == 3][-2:]
    wheels, least = facts
    assert least == [LEAST[build] for build in (TENSORFLOW, HERITAGE)]
    # If a lock has changed, read the new wheels: the page says how.
    for name, wheel in zip(LEAST, wheels, strict=True):
        lock = ROOT / "requirements" / f"{RUNTIMES[name].requirements(gpus=True)}.txt"
        assert f"\ntensorflow=={wheel} " in lock.read_text("utf-8")


def test_every_tensorflow_is_in_the_table() -> None:
    assert set(LEAST) == {name for name in RUNTIMES if name.startswith("tensorflow")}
